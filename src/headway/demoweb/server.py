"""Serves the demo web on loopback, with one port for each site, in this process or a separate one."""

from __future__ import annotations

import asyncio
import errno
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from headway.demoweb.connection import (
    AccessLog,
    Answerer,
    Connection,
    Exchange,
    ServerConnection,
    SiteState,
    read_access_log,
)
from headway.demoweb.design import Expected, Scope, WebDesign
from headway.errors import HeadwayError

HOST = "127.0.0.1"
_BACKLOG = 1024


class Served:
    """A web that is being served: its origins, its design and its access log."""

    def __init__(self, design: WebDesign, origins: Mapping[str, str], log: AccessLog) -> None:
        self.design = design
        self.sites = dict(origins)
        """The origin of each site by its name, without a trailing slash."""
        self._log = log

    @property
    def urls(self) -> tuple[str, ...]:
        """The home pages, which are the seeds of a crawl."""
        return tuple(f"{origin}/" for origin in self.sites.values())

    @property
    def log(self) -> AccessLog:
        return self._log

    def url(self, site: str, path: str = "/") -> str:
        return self.sites[site] + path

    def expected(self, scope: Scope | None = None) -> dict[str, Expected]:
        """Each URL that a crawl within this scope requests, and the result."""
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
    """Serve on the running event loop. Site i gets port `port_base + i`, or any free port without a base."""
    _check_ports(port_base, len(design.sites))
    origins: dict[str, str] = {}
    log = AccessLog(access_log)
    states: list[SiteState] = []
    servers: list[asyncio.Server] = []
    try:
        for number, site in enumerate(design.sites.values()):
            state = SiteState(Answerer(site, origins), log)
            server = await _listen(state, 0 if port_base is None else port_base + number)
            states.append(state)
            servers.append(server)
            origins[site.name] = f"http://{HOST}:{server.sockets[0].getsockname()[1]}"
        yield Served(design, origins, log)
    finally:
        await _close(servers, states)
        log.close()


async def _listen(state: SiteState, port: int) -> asyncio.Server:
    loop = asyncio.get_running_loop()
    try:
        return await loop.create_server(lambda: ServerConnection(state), HOST, port, backlog=_BACKLOG)
    except OSError as error:
        reasons = {
            errno.EADDRINUSE: "is used by another program",
            errno.EACCES: "may only be opened by root",
        }
        reason = reasons.get(error.errno or 0, f"cannot be opened ({error.strerror})")
        raise HeadwayError(
            f"port {port} on {HOST}, for the demo site {state.site.name!r}, {reason}; choose another"
            " port base, or none to use any free ports"
        ) from error


async def _close(servers: list[asyncio.Server], states: list[SiteState]) -> None:
    for server in servers:
        server.close()
    for state in states:
        state.is_closed = True
        for connection in list(state.open):
            connection.abort()
    await asyncio.sleep(0)  # for connections that are being accepted
    while any(state.open for state in states):
        await asyncio.sleep(0)
    for server in servers:
        await server.wait_closed()


def _check_ports(port_base: int | None, count: int) -> None:
    if port_base is not None and not 1 <= port_base <= 65_536 - count:
        raise HeadwayError(
            f"the demo web needs {count} ports, and the highest port is 65535;"
            f" choose a port base from 1024 to {65_536 - count}, not {port_base}"
        )


_EXIT_TIMEOUT_S = 20


class Ready(msgspec.Struct):
    """The first line that the child process prints, when it listens."""

    sites: dict[str, str]


class ServedProcess(Served):
    """A web served by a child process: `with ServedProcess(design) as served: ...`.

    The child ends with the block. It also ends when this process dies, since its stdin is closed then.
    """

    def __init__(
        self, design: WebDesign, port_base: int | None = None, *, access_log: Path | None = None
    ) -> None:
        super().__init__(design, {}, AccessLog())
        self._port_base = port_base
        self._log_path = access_log
        self._ending = ExitStack()
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> AccessLog:
        """What the child has logged until now; after the block, everything."""
        if self._child is None or self._log_path is None:
            return self._log
        return read_access_log(self._log_path)

    @property
    def pid(self) -> int:
        if self._child is None:
            raise RuntimeError("the demo web is not running")
        return self._child.pid

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            if self._log_path is None:
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="headway-demoweb-"))
                self._log_path = Path(folder) / "access.jsonl"
            self._child = self._start(self._log_path)
            stack.callback(self._end)
            assert self._child.stdout is not None
            line = self._child.stdout.readline()
            if not line:
                raise HeadwayError(self._end() or "the demo web ended before it was ready")
            self.sites.update(msgspec.json.decode(line, type=Ready).sites)
            self._ending = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.close()

    def _start(self, log_path: Path) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "headway.demoweb", "--access-log", str(log_path)]
        command += ["--recipe", msgspec.json.encode(self.design.recipe).decode()]
        if self._port_base is not None:
            command += ["--port-base", str(self._port_base)]
        pipe = subprocess.PIPE
        # In its own process group, so that Ctrl-C in the terminal does not end it while the crawl drains.
        return subprocess.Popen(  # noqa: S603 - our own interpreter and module
            command, stdin=pipe, stdout=pipe, stderr=pipe, process_group=0
        )

    def _end(self) -> str:
        """End the child and read its log; returns what it wrote to stderr."""
        child = self._child
        if child is None:
            return ""
        child.terminate()
        try:
            _, stderr = child.communicate(timeout=_EXIT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            child.kill()
            _, stderr = child.communicate()
        if self._log_path is not None and self._log_path.exists():
            self._log = read_access_log(self._log_path)
        self._child = None
        return stderr.decode(errors="replace").strip()
