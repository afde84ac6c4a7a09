"""Serves a web design on loopback, one port a site, in this process or in a child of its own."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from headway.errors import HeadwayError
from headway.testing.demoweb.accesslog import AccessLog, Connection, Exchange
from headway.testing.demoweb.answering import Answerer
from headway.testing.demoweb.connection import ServerConnection, SiteDesk
from headway.testing.demoweb.design import WebDesign
from headway.testing.demoweb.truth import Expected, Scope

HOST = "127.0.0.1"
_BACKLOG = 1024


class Served:
    """A web that is being served: where it is, what is in it, and what it has seen."""

    def __init__(self, design: WebDesign, origins: Mapping[str, str], log: AccessLog) -> None:
        self.design = design
        self.sites = dict(origins)
        """Each site's name, and its origin without a trailing slash."""
        self._log = log

    @property
    def urls(self) -> tuple[str, ...]:
        """The home pages: what to give a crawl as seeds."""
        return tuple(f"{origin}/" for origin in self.sites.values())

    @property
    def log(self) -> AccessLog:
        return self._log

    def url(self, site: str, path: str = "/") -> str:
        return self.sites[site] + path

    def expected(self, scope: Scope | None = None) -> dict[str, Expected]:
        """What a crawl within this scope asks for, and how each request ends."""
        return {place.url(self.sites): found for place, found in self.design.expected(scope).items()}

    def reachable(self, scope: Scope | None = None) -> set[str]:
        return set(self.expected(scope))

    def requests(self, site: str | None = None) -> list[Exchange]:
        return self.log.requests(site)

    def connections(self, site: str | None = None) -> list[Connection]:
        return self.log.connections(site)

    def most_connections(self, site: str | None = None) -> int:
        return self.log.most_connections(site)

    def gaps_s(self, site: str) -> list[float]:
        return self.log.gaps_s(site)


@asynccontextmanager
async def serve(
    design: WebDesign, port_base: int | None = None, *, access_log: Path | None = None
) -> AsyncIterator[Served]:
    """Serve in the running loop. Site i gets port `port_base + i`, or any free one without a base."""
    _check_ports(port_base, len(design.sites))
    origins: dict[str, str] = {}
    log = AccessLog(access_log)
    desks: list[SiteDesk] = []
    servers: list[asyncio.Server] = []
    try:
        for number, site in enumerate(design.sites.values()):
            desk = SiteDesk(Answerer(site, origins), log)
            server = await _listen(desk, 0 if port_base is None else port_base + number)
            desks.append(desk)
            servers.append(server)
            origins[site.name] = f"http://{HOST}:{server.sockets[0].getsockname()[1]}"
        yield Served(design, origins, log)
    finally:
        await _close(servers, desks)
        log.close()


async def _listen(desk: SiteDesk, port: int) -> asyncio.Server:
    loop = asyncio.get_running_loop()
    try:
        return await loop.create_server(lambda: ServerConnection(desk), HOST, port, backlog=_BACKLOG)
    except OSError as error:
        reasons = {
            errno.EADDRINUSE: "is taken by another program",
            errno.EACCES: "may be opened by root alone",
        }
        reason = reasons.get(error.errno or 0, f"cannot be opened ({error.strerror})")
        raise HeadwayError(
            f"port {port} on {HOST}, for the demo site {desk.site.name!r}, {reason}; choose another"
            " port base, or none to take any free ports"
        ) from error


async def _close(servers: list[asyncio.Server], desks: list[SiteDesk]) -> None:
    for server in servers:
        server.close()
    for desk in desks:
        desk.is_closed = True
        for connection in list(desk.open):
            connection.abort()
    await asyncio.sleep(0)  # for connections that are being accepted
    while any(desk.open for desk in desks):
        await asyncio.sleep(0)
    for server in servers:
        await server.wait_closed()


def _check_ports(port_base: int | None, count: int) -> None:
    if port_base is not None and not 1 <= port_base <= 65_536 - count:
        raise HeadwayError(
            f"the demo web needs {count} ports from {port_base} on, and ports go from 1 to 65535;"
            f" choose a port base from 1024 to {65_536 - count}"
        )
