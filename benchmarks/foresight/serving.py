"""A web server on loopback: sites of known pages, each on a port of its own, with delays and rates that vary.

`python -m benchmarks.foresight.serving SITES.json` prints "ready" and serves until its standard input ends.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import sys
import time
from pathlib import Path
from typing import NamedTuple

_CHUNK_S = 0.02
_HEAD = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {}\r\n\r\n"


class ServedSite(NamedTuple):
    port: int
    links: list[list[int]]
    sizes: list[int]
    delay_s: float
    rate_bytes_per_s: float
    spread: float
    """The deviation of the logarithm of both, from answer to answer."""
    slows_after_s: float | None
    """After so much time from the first request, both are three times as slow."""


class _Server:
    def __init__(self, site: ServedSite, seed: int) -> None:
        self._site = site
        self._chance = random.Random(seed)
        self._began_at: float | None = None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                await self._answer(head.split(b" ", 2)[1].decode("ascii", "replace"), writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, path: str, writer: asyncio.StreamWriter) -> None:
        site = self._site
        number = int(path[1:]) if path[1:].isdecimal() else 0 if path == "/" else -1
        if not 0 <= number < len(site.links):
            writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
            return
        now = time.monotonic()
        self._began_at = now if self._began_at is None else self._began_at
        is_slow = site.slows_after_s is not None and now - self._began_at > site.slows_after_s
        factor = 3.0 if is_slow else 1.0
        await asyncio.sleep(site.delay_s * factor * math.exp(self._chance.gauss(0.0, site.spread)))
        rate = site.rate_bytes_per_s / factor * math.exp(self._chance.gauss(0.0, site.spread))
        body = _body(number, site.links[number], site.sizes[number])
        writer.write(_HEAD.format(len(body)).encode())
        step = max(1, int(rate * _CHUNK_S))
        begun_at = asyncio.get_running_loop().time()
        for sent in range(0, len(body), step):
            writer.write(body[sent : sent + step])
            await writer.drain()
            due_at = begun_at + (sent + step) / rate
            await asyncio.sleep(max(0.0, due_at - asyncio.get_running_loop().time()))


def _body(number: int, links: list[int], size: int) -> bytes:
    text = f"<title>{number}</title>" + "".join(f'<a href="/{to}">{to}</a>\n' for to in links)
    # The padding differs from page to page, so that no page is a duplicate.
    return (text + f"<p>page {number} " + "x" * max(0, size - len(text))).encode()


async def main(path: Path) -> None:
    servers = []
    for seed, fields in enumerate(json.loads(path.read_text())):
        site = ServedSite(*fields)
        servers.append(await asyncio.start_server(_Server(site, seed).serve, "127.0.0.1", site.port))
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    for server in servers:
        server.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
