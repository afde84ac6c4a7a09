"""Receives from Squid what its users request: announcements of the helper, and lines of the access log.

It reads as fast as it can and decides nothing that needs the store, so that a busy proxy does not have to
wait. Accepted requests go into the spool. What is lost is counted: the helper numbers its datagrams, and the
system counts those that it dropped.

`configuration` returns the matching lines for squid.conf. Squid waits while a helper answers, and the
question costs a busy proxy more than the answer. So the first configuration asks only about hosts of the
crawl, and about each page once an hour: Squid caches the answers of an access rule's helper, unlike those of
a URL rewriter. The rule only has to be evaluated; it never matches, so nothing is rewritten.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import struct
from collections.abc import Iterable
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import msgspec

from headway.archive.files import put_in_place
from headway.errors import HeadwayError, StoreError
from headway.policy.scope import Scope, host_of
from headway.ports import Clock
from headway.squid.spool import (
    FOLDER,
    LOG_FORMAT,
    Intake,
    ProxyRequest,
    SpoolWriter,
    bump,
    read_announced_line,
    read_datagram,
    read_log_line,
    save_counters,
)


class ListenError(HeadwayError):
    """The listener cannot use an address."""


class HelperSocket(msgspec.Struct, frozen=True):
    """A Unix datagram socket, for the helper on this machine."""

    path: Path


class UdpPort(msgspec.Struct, frozen=True):
    """For the helper on another machine, or for `access_log udp://HOST:PORT`."""

    host: str
    port: int


class TcpPort(msgspec.Struct, frozen=True):
    """For `access_log tcp://HOST:PORT`."""

    host: str
    port: int


class LogFile(msgspec.Struct, frozen=True):
    """The file that `access_log daemon:PATH` or `stdio:PATH` writes."""

    path: Path


Place = HelperSocket | UdpPort | TcpPort | LogFile


def parse_place(text: str) -> Place:
    """Read `unix:PATH`, `udp:HOST:PORT`, `tcp:HOST:PORT` or `tail:PATH`."""
    kind, _, rest = text.partition(":")
    rest = rest.removeprefix("//") if kind in {"udp", "tcp"} else rest
    if kind in {"unix", "tail"} and rest:
        return HelperSocket(Path(rest)) if kind == "unix" else LogFile(Path(rest))
    host, _, port = rest.rpartition(":")
    if kind in {"udp", "tcp"} and host and port.isdecimal() and int(port) < 65536:
        host = host.strip("[]")
        return UdpPort(host, int(port)) if kind == "udp" else TcpPort(host, int(port))
    raise ListenError(
        f"{text!r} is not an address to listen on; give one such as 'unix:/run/headway.sock', "
        "'udp:127.0.0.1:4801', 'tcp:127.0.0.1:4801' or 'tail:/var/log/squid/access.log'"
    )


ASKED_AGAIN_AFTER_S = 3600
_NAMES_PER_LINE = 8
_ONCE_AN_HOUR = """\
acl headway_itself browser ^headway
external_acl_type headway ttl={ttl} negative_ttl={ttl} children-max=4 children-startup=0 concurrency=200 \
%METHOD %URI {helper}
acl headway external headway
url_rewrite_program {helper}
url_rewrite_children 1 startup=0 idle=1 concurrency=200
url_rewrite_access deny headway_itself
{scope}url_rewrite_access allow headway
url_rewrite_access deny all
"""
_EACH_TIME = """\
acl headway_itself browser ^headway
url_rewrite_program {helper}
url_rewrite_children 4 startup=0 idle=1 concurrency=200
url_rewrite_extras "- - %>rm"
url_rewrite_bypass on
url_rewrite_access deny headway_itself
{scope}url_rewrite_access allow all
"""
_LOG = """\
acl headway_itself browser ^headway
{log_format}
access_log tcp://127.0.0.1:4801 logformat=headway on-error=drop !headway_itself
"""


def asked_once_an_hour(helper: str, scope: Scope | None = None) -> str:
    """The configuration in which Squid asks the helper about each page at most once an hour."""
    return _ONCE_AN_HOUR.format(helper=helper, ttl=ASKED_AGAIN_AFTER_S, scope=_only(scope))


def asked_each_time(helper: str, scope: Scope | None = None) -> str:
    """The configuration in which Squid asks the helper about every request, as in cobweb1999."""
    return _EACH_TIME.format(helper=helper, scope=_only(scope))


def configuration(program: str, socket: Path, scope: Scope | None) -> str:
    """The lines for squid.conf: the usual configuration, and its alternatives as comments."""
    helper = f"{program} {socket}"
    log = _LOG.format(log_format=LOG_FORMAT)
    return (
        "# Squid asks the helper once an hour about each page (Squid 4 or later):\n"
        f"{asked_once_an_hour(helper, scope)}\n"
        "# Alternative: Squid asks about every request, which costs a busy proxy more:\n"
        f"{_commented(asked_each_time(helper, scope))}\n"
        "# Alternative: Squid sends its access log; start headway with `--listen tcp:127.0.0.1:4801`:\n"
        f"{_commented(log)}"
    )


def _commented(lines: str) -> str:
    return "".join(f"#{line}\n" for line in lines.splitlines())


def _only(scope: Scope | None) -> str:
    """A rule that keeps Squid from asking about hosts outside the crawl's scope."""
    names = _domains(scope) if scope is not None else []
    if not names:
        return ""
    lines = [
        f"acl headway_scope dstdomain -n {' '.join(names[begin : begin + _NAMES_PER_LINE])}\n"
        for begin in range(0, len(names), _NAMES_PER_LINE)
    ]
    return "".join(lines) + "url_rewrite_access deny !headway_scope\n"


def _domains(scope: Scope) -> list[str]:
    """The scope's domains in Squid's notation. Squid rejects a name under another one, so those are
    omitted."""
    under = sorted({f".{suffix.strip('.').lower()}" for suffix in scope.suffixes}, key=len)
    kept: list[str] = []
    for suffix in under:
        if not any(suffix.endswith(other) for other in kept):
            kept.append(suffix)
    hosts = {host_of(f"//://{host}") for host in scope.hosts}
    return [*kept, *sorted(host for host in hosts if not any(f".{host}".endswith(each) for each in kept))]


_READ_BYTES = 1_048_576
_LONGEST_LINE = 65_536


class _Position(msgspec.Struct):
    inode: int
    offset: int


class Tail:
    """Follows a file that grows, across rotations and restarts.

    It starts at the position stored in `position_path`, or at the end of the file if there is none.
    """

    def __init__(self, path: Path, position_path: Path) -> None:
        self._path = path
        self._position_path = position_path
        self._fd = -1
        self._inode = 0
        self._offset = 0
        self._rest = b""
        self.skipped = 0
        """Lines that were skipped because they are too long."""
        self._load_position()

    def read(self) -> list[str]:
        """The complete lines since the last call, at most about 1 MB."""
        if self._fd < 0 and not self._open():
            return []
        data = os.pread(self._fd, _READ_BYTES, self._offset)
        if not data and self._was_replaced():
            os.close(self._fd)
            self._fd, self._rest = -1, b""
            return self.read()
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _LONGEST_LINE:
            self.skipped += 1
            self._rest = b""
        return [line.decode("utf-8", "replace") for line in lines]

    def store_position(self) -> None:
        """Continue from here after a restart. Call this once the lines that were read are on disk."""
        if self._fd >= 0:
            position = _Position(self._inode, self._offset - len(self._rest))
            put_in_place(self._position_path, msgspec.json.encode(position))

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _load_position(self) -> None:
        last: _Position | None = None
        with suppress(OSError, msgspec.DecodeError):
            last = msgspec.json.decode(self._position_path.read_bytes(), type=_Position)
        if not self._open():
            return
        size = os.fstat(self._fd).st_size
        if last is None:
            self._offset = size
        elif last.inode == self._inode and last.offset <= size:
            self._offset = last.offset
        # Otherwise the file was rotated since: read the new one from its beginning.

    def _open(self) -> bool:
        try:
            self._fd = os.open(self._path, os.O_RDONLY)
        except FileNotFoundError:
            return False
        self._inode, self._offset = os.fstat(self._fd).st_ino, 0
        return True

    def _was_replaced(self) -> bool:
        """Whether the path now names another file, or the file was truncated."""
        try:
            named = self._path.stat()
        except FileNotFoundError:
            return False
        return named.st_ino != self._inode or named.st_size < self._offset


COUNTERS = "listener.json"
_RECEIVE_BUFFER_BYTES = 8 * 1024 * 1024
_SO_RCVBUFFORCE = 33
_SO_MEMINFO = 55
_MEMINFO_DROPS = 8
_DATAGRAMS_PER_TURN = 64
_POLL_EVERY_S = 0.2
_LARGEST_DATAGRAM = 262_144


class Listener:
    """An async context manager that receives requests until the block ends."""

    def __init__(self, run_folder: Path, places: Iterable[Place], intake: Intake, clock: Clock) -> None:
        self._folder = run_folder / FOLDER
        self._spool = SpoolWriter(run_folder)
        self._places = tuple(places)
        self._intake = intake
        self._clock = clock
        self._stack = AsyncExitStack()
        self._sockets: list[socket.socket] = []
        self._drops: dict[int, int] = {}
        self._tails: list[Tail] = []
        self._clients: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Listener:
        loop = asyncio.get_running_loop()
        try:
            for place in self._places:
                await self._open(place)
        except BaseException:
            await self._close()
            raise
        for sock in self._sockets:
            loop.add_reader(sock, self._receive, sock)
        polling = loop.create_task(self._poll_repeatedly())
        self._stack.callback(polling.cancel)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._close()
        self._poll()
        self._spool.close()

    async def _open(self, place: Place) -> None:
        try:
            match place:
                case HelperSocket(path):
                    self._add_socket(_bound_unix(path))
                    self._stack.callback(path.unlink, missing_ok=True)
                case UdpPort(host, port):
                    self._add_socket(_bound_udp(host, port))
                case TcpPort(host, port):
                    server = await asyncio.start_server(self._accept, host, port, limit=_LONGEST_LINE)
                    self._stack.callback(server.close)
                case LogFile(path):
                    self._tails.append(Tail(path, self._folder / f"tail-{len(self._tails)}.json"))
        except OSError as problem:
            raise ListenError(f"cannot listen on {_name(place)}: {problem.strerror}") from None

    def _add_socket(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        with suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)
        with suppress(OSError):  # above the system's limit, which needs CAP_NET_ADMIN
            sock.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _RECEIVE_BUFFER_BYTES)
        self._sockets.append(sock)

    async def _close(self) -> None:
        loop = asyncio.get_running_loop()
        await self._stack.aclose()
        for sock in self._sockets:
            loop.remove_reader(sock)
            self._receive(sock)
            sock.close()
        clients = list(self._clients)
        for client in clients:
            client.cancel()
        await asyncio.gather(*clients, return_exceptions=True)

    # -- receiving --------------------------------------------------------------------------------------

    def _receive(self, sock: socket.socket) -> None:
        requests: list[ProxyRequest | None] = []
        for _ in range(_DATAGRAMS_PER_TURN):
            try:
                data = sock.recv(_LARGEST_DATAGRAM)
            except OSError:
                break
            parsed = read_datagram(data)
            if parsed is not None:
                head, lines = parsed
                self._intake.note_datagram(head)
                requests += [read_announced_line(line) for line in lines]
            else:
                text = data.decode("utf-8", "replace")
                requests += [read_log_line(line) for line in text.splitlines() if line]
        self._take(requests)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = asyncio.ensure_future(self._read_log(reader, writer))
        self._clients.add(client)
        client.add_done_callback(self._clients.discard)

    async def _read_log(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read one connection to its end. After a restart Squid connects again by itself."""
        rest = b""
        try:
            with suppress(OSError):
                while chunk := await reader.read(_LONGEST_LINE):
                    *lines, rest = (rest + chunk).split(b"\n")
                    if len(rest) > _LONGEST_LINE:
                        lines, rest = [*lines, b"too long"], b""
                    self._take([read_log_line(line.decode("utf-8", "replace")) for line in lines if line])
        finally:
            if rest:
                self._take([read_log_line(rest.decode("utf-8", "replace"))])
            writer.close()

    def _take(self, requests: list[ProxyRequest | None]) -> None:
        """Count requests and spool those that are accepted. If the disk is full, they count as lost."""
        now = self._clock.now()
        urls = [url for each in requests if (url := self._intake.take(now, each)) is not None]
        if not urls:
            return
        try:
            reason = "" if self._spool.append([(now, url) for url in urls]) else "too-many-waiting"
        except StoreError as problem:
            reason = str(problem)
        if reason:
            self._intake.counters.accepted -= len(urls)
            bump(self._intake.counters.lost, reason, len(urls))

    # -- polling ----------------------------------------------------------------------------------------

    async def _poll_repeatedly(self) -> None:
        while True:
            self._poll()
            await asyncio.sleep(_POLL_EVERY_S)

    def _poll(self) -> None:
        for tail in self._tails:
            # If the log cannot be read now, or the disk is full, the next call tries again.
            with suppress(OSError):
                self._follow(tail)
        for number, sock in enumerate(self._sockets):
            dropped = _dropped_by_system(sock)
            if dropped > self._drops.get(number, 0):
                lost = dropped - self._drops.get(number, 0)
                bump(self._intake.counters.lost, "log-lines-dropped-by-the-system", lost)
                self._drops[number] = dropped
        with suppress(OSError):
            save_counters(self._folder / COUNTERS, self._intake.counters)

    def _follow(self, tail: Tail) -> None:
        while lines := tail.read():
            self._take([read_log_line(line) for line in lines if line])
        if tail.skipped:
            bump(self._intake.counters.refused, "garbage", tail.skipped)
            self._intake.counters.announced += tail.skipped
            tail.skipped = 0
        tail.store_position()


def _bound_unix(path: Path) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        _remove_stale(path)
        sock.bind(str(path))
        # Squid runs as another user. The permissions of the folder restrict access.
        path.chmod(0o666)
    except BaseException:
        sock.close()
        raise
    return sock


def _remove_stale(path: Path) -> None:
    """Remove a socket file that a killed process left. OSError if another process is listening on it."""
    if not path.is_socket():
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(str(path))
        except OSError as problem:
            if problem.errno == errno.ECONNREFUSED:
                path.unlink()
                return
            raise
    raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))


def _bound_udp(host: str, port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
    try:
        sock.bind((host, port))
    except BaseException:
        sock.close()
        raise
    return sock


def _dropped_by_system(sock: socket.socket) -> int:
    """Datagrams dropped because the receive buffer was full. Those of the helper on a Unix socket are counted
    by their numbers instead."""
    if sock.family == socket.AF_UNIX:
        return 0
    try:
        figures = struct.unpack("9I", sock.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, 36))
    except (OSError, struct.error):
        return 0
    return int(figures[_MEMINFO_DROPS])


def _name(place: Place) -> str:
    match place:
        case HelperSocket(path) | LogFile(path):
            return str(path)
        case UdpPort(host, port) | TcpPort(host, port):
            return f"{host}:{port}"
