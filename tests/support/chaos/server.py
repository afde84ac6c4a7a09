"""Serves the chaos web on loopback, one port a site, in the running loop."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

from tests.support.chaos.certificates import HOST, Certificates
from tests.support.chaos.line import Line, html, not_found, whole
from tests.support.chaos.roster import ROSTER
from tests.support.chaos.site import AFTER, ENCRYPTED, ChaosSite, Door

_REQUEST_BYTES = 1 << 20
_QUEUE_FILLERS = 8
_NO_TLS_AFTER_ALL = frozenset({Door.TLS_SPOKEN_PLAINLY, Door.TLS_SILENT, Door.TLS_RESET})


class ServedChaos:
    """The chaos web while it is being served."""

    def __init__(
        self, sites: Mapping[str, ChaosSite], origins: Mapping[str, str], authority_pem: str
    ) -> None:
        self.sites = dict(sites)
        self.origins = dict(origins)
        """Each site's name, and its origin without a trailing slash."""
        self.authority_pem = authority_pem
        """To be trusted by the crawl, for the https sites; empty when there are none."""

    def url(self, name: str, path: str) -> str:
        return self.origins[name] + path


@asynccontextmanager
async def serve_chaos(sites: Mapping[str, ChaosSite] | None = None) -> AsyncIterator[ServedChaos]:
    """Serve these sites, or all of them."""
    chosen = ROSTER if sites is None else sites
    needs_certificates = any(site.door in ENCRYPTED for site in chosen.values())
    certificates = Certificates() if needs_certificates else None
    for site in chosen.values():
        if site.prepare is not None:
            site.prepare()
    async with AsyncExitStack() as stack:
        house = _House()
        stack.push_async_callback(house.aclose)
        origins = {name: await house.open(site, certificates) for name, site in chosen.items()}
        yield ServedChaos(chosen, origins, certificates.authority_pem if certificates else "")


class _House:
    """All that is open, so that it can be closed."""

    def __init__(self) -> None:
        self._servers: list[asyncio.Server] = []
        self._sockets: list[socket.socket] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self, site: ChaosSite, certificates: Certificates | None) -> str:
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._sockets.append(sock)
        sock.bind((HOST, 0))
        port: int = sock.getsockname()[1]
        origin = f"{site.scheme}://{HOST}:{port}"
        if site.door is Door.DEAF:
            self._fill_queue(sock, port)
        elif site.door is not Door.SHUT:
            context = certificates.context(site.door) if certificates and site.door in ENCRYPTED else None
            server = await asyncio.start_server(
                lambda reader, writer: self._take(site, Line(reader, writer, origin)),
                sock=sock,
                ssl=context,
                limit=_REQUEST_BYTES,
                backlog=256,
            )
            self._servers.append(server)
        return origin

    async def aclose(self) -> None:
        for server in self._servers:
            server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for server in self._servers:
            await server.wait_closed()
        for sock in self._sockets:
            sock.close()

    def _fill_queue(self, sock: socket.socket, port: int) -> None:
        """A queue of one that nobody takes from: what knocks after these gets no answer at all."""
        sock.listen(0)
        for _ in range(_QUEUE_FILLERS):
            filler = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            filler.setblocking(False)
            self._sockets.append(filler)
            filler.connect_ex((HOST, port))

    def _take(self, site: ChaosSite, line: Line) -> None:
        task = asyncio.get_running_loop().create_task(_converse(site, line))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _converse(site: ChaosSite, line: Line) -> None:
    try:
        with contextlib.suppress(ConnectionError):
            if site.door in _NO_TLS_AFTER_ALL:
                await _disappoint(site.door, line)
            while not line.is_closing and await line.take_request():
                await _answer(site, line)
    finally:
        line.close()


async def _disappoint(door: Door, line: Line) -> None:
    """A client has begun to shake hands."""
    if door is Door.TLS_SILENT:
        await line.stall()
    await line.take_something()
    if door is Door.TLS_RESET:
        line.reset()
    else:
        await line.send(whole(html("What was that?"), status="400 Bad Request"))
        line.close()


async def _answer(site: ChaosSite, line: Line) -> None:
    if line.path == "/robots.txt":
        if site.robots is None:
            await line.send(not_found())
        else:
            await site.robots(line)
    elif line.path == AFTER:
        await line.send(whole(html("After the storm", site.name)))
    else:
        await site.answer(line)
