"""Listening to Squid: what its helper announces and what its log says, taken in, counted and spooled.

It reads as fast as it can and decides nothing that needs the store, so that a busy proxy finds it ready.
What is lost all the same is counted: the helper numbers its datagrams, and the system counts those that it
had no room for.
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

from headway.errors import StoreError
from headway.ports import Clock
from headway.squid.address import HelperSocket, ListenError, LogFile, Place, TcpPort, UdpPort
from headway.squid.intake import Intake
from headway.squid.lines import Asked, read_announced_line, read_datagram, read_log_line
from headway.squid.spool import FOLDER, SpoolWriter
from headway.squid.tailing import Tail
from headway.squid.tally import bump, save_tally

TALLY = "listener.json"
_RECEIVE_BUFFER_BYTES = 8 * 1024 * 1024
_SO_RCVBUFFORCE = 33
_SO_MEMINFO = 55
_MEMINFO_DROPS = 8
_DATAGRAMS_A_TURN = 64
_LOOK_EVERY_S = 0.2
_LONGEST_LINE = 65_536
_LARGEST_DATAGRAM = 262_144


class Listener:
    """Use as an async context; it listens until the end of the block."""

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
        watch = loop.create_task(self._watch())
        self._stack.callback(watch.cancel)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._close()
        self._look()
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
            raise ListenError(f"cannot listen at {_name(place)}: {problem.strerror}") from None

    def _add_socket(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        with suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)
        with suppress(OSError):  # beyond the system's usual most, where we may
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

    # -- what comes -------------------------------------------------------------------------------------

    def _receive(self, sock: socket.socket) -> None:
        gathered: list[Asked | None] = []
        for _ in range(_DATAGRAMS_A_TURN):
            try:
                data = sock.recv(_LARGEST_DATAGRAM)
            except OSError:
                break
            told = read_datagram(data)
            if told is not None:
                head, lines = told
                self._intake.hear_from(head)
                gathered += [read_announced_line(line) for line in lines]
            else:
                text = data.decode("utf-8", "replace")
                gathered += [read_log_line(line) for line in text.splitlines() if line]
        self._take(gathered)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = asyncio.ensure_future(self._read_log(reader, writer))
        self._clients.add(client)
        client.add_done_callback(self._clients.discard)

    async def _read_log(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Squid connects again by itself when it was restarted."""
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

    def _take(self, asked: list[Asked | None]) -> None:
        """Count and spool. A full disk loses announcements, and says so."""
        now = self._clock.now()
        urls = [url for each in asked if (url := self._intake.take(now, each)) is not None]
        if not urls:
            return
        try:
            reason = "" if self._spool.append([(now, url) for url in urls]) else "too-many-waiting"
        except StoreError as problem:
            reason = str(problem)
        if reason:
            self._intake.tally.accepted -= len(urls)
            bump(self._intake.tally.lost, reason, len(urls))

    # -- now and then -----------------------------------------------------------------------------------

    async def _watch(self) -> None:
        while True:
            self._look()
            await asyncio.sleep(_LOOK_EVERY_S)

    def _look(self) -> None:
        for tail in self._tails:
            # A log that may not be read just now, or a full disk, is tried again the next time.
            with suppress(OSError):
                self._follow(tail)
        for number, sock in enumerate(self._sockets):
            dropped = _dropped_by_system(sock)
            if dropped > self._drops.get(number, 0):
                lost = dropped - self._drops.get(number, 0)
                bump(self._intake.tally.lost, "log-lines-dropped-by-the-system", lost)
                self._drops[number] = dropped
        with suppress(OSError):
            save_tally(self._folder / TALLY, self._intake.tally)

    def _follow(self, tail: Tail) -> None:
        while lines := tail.read():
            self._take([read_log_line(line) for line in lines if line])
        if tail.skipped:
            bump(self._intake.tally.refused, "garbage", tail.skipped)
            self._intake.tally.announced += tail.skipped
            tail.skipped = 0
        tail.remember()


def _bound_unix(path: Path) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        _remove_stale(path)
        sock.bind(str(path))
        # Squid runs as a user of its own. Who may come near is for the folder to say.
        path.chmod(0o666)
    except BaseException:
        sock.close()
        raise
    return sock


def _remove_stale(path: Path) -> None:
    """A socket that nobody listens at any more, left by a process that was killed."""
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
    """Datagrams that came and found no room; the helper's are numbered, and counted by that."""
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
