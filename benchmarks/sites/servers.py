"""Many servers on loopback addresses of their own, in one process: each page takes the same time.

    python -m benchmarks.sites.servers PORT LATENCY_S

It prints a line when all listen, and ends when standard input is closed.
"""

from __future__ import annotations

import asyncio
import resource
import sys

PAGES = 40
"""Of each site: its first page links to the others."""
_BODY = b"<title>Page</title>" + b"".join(b'<a href="/%d">%d</a> ' % (page, page) for page in range(1, PAGES))
_PAGE = b"<title>Page</title><p>" + b"word " * 200
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n"
_FIRST, _OTHER = _HEAD % len(_BODY) + _BODY, _HEAD % len(_PAGE) + _PAGE


def address_of(number: int) -> str:
    """Of the network 127.0.0.0/8, all of which is this machine's."""
    return f"127.{1 + number // 62_500}.{number // 250 % 250}.{1 + number % 250}"


class Server(asyncio.Protocol):
    def __init__(self, loop: asyncio.AbstractEventLoop, latency_s: float) -> None:
        self._loop = loop
        self._latency_s = latency_s
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        if not transport.get_extra_info("peername")[0].startswith("127."):
            transport.abort()
            return
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None

    def data_received(self, data: bytes) -> None:
        answer = _FIRST if data.startswith(b"GET / ") else _OTHER
        self._loop.call_later(self._latency_s, self._answer, answer)

    def _answer(self, answer: bytes) -> None:
        if self._transport is not None:
            self._transport.write(answer)


async def serve(port: int, latency_s: float) -> None:
    loop = asyncio.get_running_loop()
    # One socket for all addresses of this machine: a process may not have one for each.
    await loop.create_server(lambda: Server(loop, latency_s), "0.0.0.0", port, backlog=4096)
    print("listening", flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


def allow_many_files() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


if __name__ == "__main__":
    allow_many_files()
    asyncio.run(serve(int(sys.argv[1]), float(sys.argv[2])))
