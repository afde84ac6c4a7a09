"""A good site and hostile ones, in a process of its own: one port, and a loopback address for each site.

`with HostileWeb(9) as web`: `web.url(0)` begins the good site, a chain of pages; `web.url(3, "trickle")` is a
page of the third of nine hostile sites, answered as `ANSWERS` says; `web.asked(url)` counts the requests.
"""

from __future__ import annotations

import asyncio
import gzip
import random
import signal
import subprocess
import sys
import urllib.request
import zlib
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self

GOOD_PAGES = 2000
_HTML = "Content-Type: text/html\r\n"
_REPOSITORY = Path(__file__).parents[2]
Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]


def whole(body: bytes, headers: str = _HTML) -> bytes:
    return f"HTTP/1.1 200 OK\r\n{headers}Content-Length: {len(body)}\r\n\r\n".encode() + body


def _fixed(make: Callable[[], bytes]) -> Answer:
    made = cache(make)

    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(made())

    return answer


def _zipped(pattern: bytes, total_bytes: int, shell: bytes = b"%s") -> Callable[[], bytes]:
    """With so many stored blocks that it is no bomb: the ratio of its sizes is below 150."""

    def make() -> bytes:
        squeeze = zlib.compressobj(6, zlib.DEFLATED, 31)
        content = memoryview(shell % (pattern * (total_bytes // len(pattern))))
        parts = []
        for begin in range(0, len(content), 1500):
            parts.append(squeeze.compress(content[begin : begin + 1500]))
            parts.append(squeeze.flush(zlib.Z_FULL_FLUSH))
        body = b"".join(parts) + squeeze.flush()
        return whole(body, _HTML + "Content-Encoding: gzip\r\n")

    return make


def _trickle(piece: bytes, pause_s: float) -> Answer:
    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(f"HTTP/1.1 200 OK\r\n{_HTML}Content-Length: 50000000\r\n\r\n".encode())
        while True:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(pause_s)

    return answer


async def _slow_head(writer: asyncio.StreamWriter) -> None:
    for byte in whole(b"x" * 1000):
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(2)


async def _silent(writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(3600)


async def _two_byte_chunks(writer: asyncio.StreamWriter) -> None:
    writer.write(f"HTTP/1.1 200 OK\r\n{_HTML}Transfer-Encoding: chunked\r\n\r\n".encode())
    for _ in range(230):
        writer.write(b"2\r\nab\r\n" * 100_000)
        await writer.drain()
    writer.write(b"0\r\n\r\n")


def _empty_members() -> bytes:
    body = gzip.compress(b"", mtime=0) * 128_000
    return whole(body, _HTML + "Content-Encoding: gzip\r\n")


def _many_attributes() -> bytes:
    body = b"<a " + b"".join(b"a%d=1 " % number for number in range(2_000_000)) + b">"
    return whole(gzip.compress(body, 1), _HTML + "Content-Encoding: gzip\r\n")


def _bomb() -> bytes:
    squeeze = zlib.compressobj(9, zlib.DEFLATED, 31)
    body = b"".join(squeeze.compress(bytes(1 << 20)) for _ in range(1000)) + squeeze.flush()
    return whole(body, _HTML + "Content-Encoding: gzip\r\n")


ANSWERS: dict[str, Answer] = {
    "silent": _silent,
    "trickle": _trickle(b"x", 5.0),
    "trickle-200": _trickle(b"x" * 200, 1.0),
    "slow-head": _slow_head,
    "open-tags": _fixed(_zipped(b"<x <a>", 30_000_000)),
    "open-tags-200": _fixed(_zipped(b"<x <a>", 199_000_000)),
    "comments": _fixed(_zipped(b"<!--", 60_000_000)),
    "entities": _fixed(_zipped(b"&#x26", 60_000_000, b'<a href="%s">')),
    "links": _fixed(_zipped(b'<a href="/a">', 150_000_000)),
    "words": _fixed(_zipped(b"word ", 199_000_000)),
    "deep": _fixed(_zipped(b"<div>", 60_000_000)),
    "attributes": _fixed(_many_attributes),
    "empty-members": _fixed(_empty_members),
    "bomb": _fixed(_bomb),
    "two-byte-chunks": _two_byte_chunks,
    "noise": _fixed(lambda: whole(random.Random(1).randbytes(49_000_000), "Content-Type: text/html\r\n")),
    "noise-as-file": _fixed(
        lambda: whole(random.Random(2).randbytes(49_000_000), "Content-Type: text/plain\r\n")
    ),
    "number": _fixed(lambda: whole(b"<h1>" + b"7" * 5000 + b"</h1>")),
    "million-digits": _fixed(lambda: whole(b"<h1>" + b"7" * 1_000_000 + b"</h1>")),
    "plain": _fixed(lambda: whole(b"<title>plain</title>")),
}


def _rules() -> bytes:
    body = b"User-agent: *\n" + b"".join(b"Disallow: /*a%d$\n" % number for number in range(30_000))
    return whole(body, "Content-Type: text/plain\r\n")


class _Server:
    """Answers by address and path; a request for `/asked/PATH` is answered with the count of that path."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self._robots = (whole(b"", "Content-Type: text/plain\r\n"), _rules())

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host = writer.get_extra_info("sockname")[0]
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                path = head.split(b" ", 2)[1].decode()
                self.asked[f"{host}{path}"] += 1
                await self._answer(host, path, writer)
                await writer.drain()
        writer.close()

    async def _answer(self, host: str, path: str, writer: asyncio.StreamWriter) -> None:
        name = path.rpartition("/")[2]
        if path.startswith("/asked/"):
            writer.write(whole(str(self.asked[path.removeprefix("/asked/")]).encode()))
        elif path == "/robots.txt":
            writer.write(self._robots[host == HEAVY_ROBOTS])
        elif name in ANSWERS:
            await ANSWERS[name](writer)
        elif path == "/" or name.isdecimal():
            number = int(name or 0)
            link = f'<a href="/{number + 1}">next</a>' if number + 1 < GOOD_PAGES else ""
            writer.write(whole(f"<title>{number}</title>{link}".encode() + b"good words " * 200))
        else:
            writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")


def address_of(number: int) -> str:
    return f"127.66.{number // 250}.{number % 250 + 1}"


HEAVY_ROBOTS = address_of(1)
"""The site with thirty thousand rules."""


class HostileWeb:
    def __init__(self, sites: int) -> None:
        self._sites = sites
        self._child: subprocess.Popen[bytes] | None = None
        self.port = 0

    def site(self, number: int) -> str:
        return f"http://{address_of(number)}:{self.port}"

    def url(self, number: int, behaviour: str = "") -> str:
        return f"{self.site(number)}/{behaviour}"

    def asked(self, url: str) -> int:
        path = url.partition("://")[2].replace(f":{self.port}", "", 1)
        with urllib.request.urlopen(f"{self.site(0)}/asked/{path}") as answer:
            return int(answer.read())

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "tests.support.hostile", str(self._sites)]
        pipe = subprocess.PIPE
        self._child = subprocess.Popen(command, stdin=pipe, stdout=pipe, cwd=_REPOSITORY)
        assert self._child.stdout is not None
        self.port = int(self._child.stdout.readline())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._child is not None
        self._child.kill()
        self._child.communicate()


async def _main() -> None:
    served = _Server()
    first = await asyncio.start_server(served.serve, address_of(0), 0)
    port = first.sockets[0].getsockname()[1]
    others = [address_of(number) for number in range(1, int(sys.argv[1]) + 1)]
    second = await asyncio.start_server(served.serve, others, port)
    print(port, flush=True)
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, over.set)
    loop.add_reader(sys.stdin, over.set)  # closed when the parent ends
    await over.wait()
    for server in (first, second):
        server.close()


if __name__ == "__main__":
    asyncio.run(_main())
