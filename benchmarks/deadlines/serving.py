"""The sites of a case on loopback, each on a port of its own, with the pages of the simulated web."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from benchmarks.deadlines.cases import HEAD_BYTES, LATENCY_S, SERVER_BYTES_PER_S, Case

from headway.sim.web import Web

_CHUNK_BYTES = 8_000
_PACKET_PART = 1 / 1.047
"""Of what crosses the wire, the part that is not headers of packets."""


class LiveSites:
    def __init__(self, case: Case) -> None:
        self.case = case
        self.origins: list[str] = []
        self._web: Web | None = None
        self._began_at: float | None = None

    @property
    def web(self) -> Web:
        if self._web is None:
            self._web = self.case.web(self.origins)
        return self._web

    def begin(self) -> None:
        """The crawl begins now: changes of a server count from here."""
        self._began_at = time.monotonic()

    async def answer(self, site: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                path = head.split(b" ", 2)[1].decode("latin-1")
                await self._send(site, path, writer)
        writer.close()

    async def _send(self, site: int, path: str, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(LATENCY_S)
        page = self._page(site, path)
        if page is None:
            writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
            return
        links = "".join(f'<a href="{self.web.url(target)}">x</a>' for target in self.web.links_of(page))
        text = f"<!doctype html><title>{page}</title><body>{links}".encode()
        size = max(len(text), int((int(self.web.size_bytes[page]) - HEAD_BYTES) * _PACKET_PART))
        body = text + b" " * (size - len(text))
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: %d\r\n\r\n" % size
        )
        for begun in range(0, size, _CHUNK_BYTES):
            part = body[begun : begun + _CHUNK_BYTES]
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(len(part) / self._rate(site))

    def _page(self, site: int, path: str) -> int | None:
        if path == "/":
            return int(self.web.seeds[site])
        number = path[1:]
        return int(number) if number.isdigit() and int(number) < self.web.pages else None

    def _rate(self, site: int) -> float:
        slows_at_s = self.case.slows_at_s
        since_s = 0.0 if self._began_at is None else time.monotonic() - self._began_at
        if site == 0 and slows_at_s is not None and since_s >= slows_at_s:
            return self.case.slow_bytes_per_s
        return SERVER_BYTES_PER_S


@asynccontextmanager
async def served(case: Case) -> AsyncIterator[LiveSites]:
    """The sites of a case, until the block ends."""
    sites = LiveSites(case)
    async with AsyncExitStack() as stack:
        servers: Sequence[asyncio.Server] = [
            await asyncio.start_server(
                lambda reader, writer, site=site: sites.answer(site, reader, writer), "127.0.0.1", 0
            )
            for site in range(len(case.sites))
        ]
        for server in servers:
            await stack.enter_async_context(server)
            sites.origins.append(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        yield sites
