"""Where the work on pages runs beside the event loop: in a thread, or in processes of its own.

Work on pages that no budget bounds runs in processes of its own, which are ended and started again.

Extraction rules run in lxml and in regular expressions, and functions of users do what they like: on some
page each of them may take for ever, fill the memory or crash. A page that has ended its process twice is
quarantined: it is kept, without items.

Which pages are being worked on is in a file that outlives the process: a page is entered before it is read
and removed afterwards, two writes to shared memory, less than a microsecond each. When a process has died,
the next one finds in the file what it was doing. Such a page is suspect: it is tried in a process of its own
first, and one that was being read at the death of two processes is not read again.
"""

from __future__ import annotations

import asyncio
import fcntl
import itertools
import mmap
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import ParamSpec, TypeVar

import msgspec

from headway import plugins
from headway.archive.files import explain_system
from headway.model.page import Page, Site
from headway.pages.document import parse
from headway.pages.extract import Extractor, Item, Rule
from headway.pages.parsed import ParseOptions
from headway.plugins import PluginError
from headway.ports import Response
from headway.runtime.process import die_with_parent

_MOST_PROCESSES = 8
_ONE_MORE_AFTER_S = 1.0
"""Another process is started when a page has waited for so long, because all are held by other pages."""
_TRIES = 2
_MOST_QUARANTINED = 3
"""Of one site. Its other pages are then kept without items, since each costs the time limit twice."""
_LOOK_EVERY_S = 0.25
_WALL_FACTOR = 6
"""A process that waits for something other than the processor may take this many times the limit."""
_LENGTH = struct.Struct("<I")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class _Setup(msgspec.Struct):
    """The first message to a process."""

    path: list[str]
    rules: dict[str, list[Rule]]
    most_bytes: int


class _Extract(msgspec.Struct, tag="extract", array_like=True):
    url: str
    site: Site
    content_type: str
    body: bytes


class _Try(msgspec.Struct, tag="try", array_like=True):
    """Read a page, and report only whether that has ended well."""

    response: Response
    page: Page
    options: ParseOptions


class _Reply(msgspec.Struct, array_like=True):
    items: list[Item] = []
    failure: str = ""
    """Why a user's function failed, which ends the crawl."""


_encode = msgspec.msgpack.Encoder().encode
P = ParamSpec("P")
T = TypeVar("T")

_SHARE_EVERY_S = 0.0001
"""The switch interval of Python while the worker thread is busy: the loop waits no longer than this for its
turn, and it has dozens of turns per page. With three hostile sites, a good site took 1.44 times as long with
Python's 5 ms, 1.23 times with 0.5 ms, and 1.12 times with 0.1 ms."""


class WorkerThread:
    """One thread, started when first needed. Small pieces of work are cheaper on the loop."""

    def __init__(self) -> None:
        self._thread: ThreadPoolExecutor | None = None
        self._under_way = 0
        self._usual_share_s = sys.getswitchinterval()

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="headway-worker")
        self._under_way += 1
        sys.setswitchinterval(_SHARE_EVERY_S)
        try:
            return await asyncio.wrap_future(self._thread.submit(work, *args, **kwargs))
        finally:
            self._under_way -= 1
            if not self._under_way:
                sys.setswitchinterval(self._usual_share_s)

    def close(self) -> None:
        """Running work finishes, and its results are discarded."""
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)
            self._thread = None


class EndedError(Exception):
    """The work has ended its process, which the text says how."""


class IsolatedWork:
    """Extracts items, and tries out pages. `aclose` ends the processes."""

    def __init__(self, rules: Mapping[Site, Sequence[Rule]], *, limit_s: float, most_bytes: int = 0) -> None:
        """`limit_s` of CPU time for one page; `most_bytes` of memory for one process, 0 for any."""
        self._setup = _Setup([], {site: list(each) for site, each in rules.items()}, most_bytes)
        self._limit_s = limit_s
        self._idle: list[_Process] = []
        self._all: set[_Process] = set()
        self._queue: list[asyncio.Future[_Process | None]] = []
        self._usual = min(_MOST_PROCESSES, max(1, len(os.sched_getaffinity(0))))
        self._quarantined: Counter[Site] = Counter()

    async def items(self, url: str, site: Site, content_type: str, body: bytes) -> tuple[list[Item], str]:
        """The items of a page; and, if there are none because of it, why the page is quarantined."""
        if self._quarantined[site] >= _MOST_QUARANTINED:
            return [], f"no items: {_MOST_QUARANTINED} pages of the site are quarantined"
        problem = ""
        for _ in range(_TRIES):
            try:
                reply = await self._run(_Extract(url, site, content_type, body))
            except EndedError as ended:
                problem = str(ended)
                continue
            if reply.failure:
                raise PluginError(reply.failure)
            return reply.items, ""
        self._quarantined[site] += 1
        return [], f"quarantined, without items: extraction {problem}, twice"

    async def trial(self, response: Response, page: Page, options: ParseOptions) -> str:
        """Read a page here first. Why it may not be read in this process; empty if it may."""
        try:
            await self._run(_Try(response, page, options))
        except EndedError as ended:
            return str(ended)
        return ""

    async def aclose(self) -> None:
        for process in list(self._all):
            process.kill()
        await asyncio.gather(*(process.wait() for process in list(self._all)))
        self._all.clear()
        self._idle.clear()

    async def _run(self, work: _Extract | _Try) -> _Reply:
        process = await self._take()
        try:
            reply = await process.call(_encode(work), self._limit_s)
        except BaseException:
            await self._end(process)
            raise
        self._give_back(process)
        return reply

    async def _end(self, process: _Process) -> None:
        """The thread that waits for the process goes on if this is cancelled: nothing is left unreaped."""
        process.kill()
        self._all.discard(process)
        self._give_back(None)
        await process.wait()

    async def _take(self) -> _Process:
        while True:
            if self._idle:
                return self._idle.pop()
            if len(self._all) < self._usual:
                return await self._start()
            turn: asyncio.Future[_Process | None] = asyncio.get_running_loop().create_future()
            self._queue.append(turn)
            try:
                async with asyncio.timeout(_ONE_MORE_AFTER_S):
                    process = await turn
            except TimeoutError:
                if turn in self._queue:
                    self._queue.remove(turn)
                if len(self._all) < _MOST_PROCESSES:
                    return await self._start()
            else:
                if process is not None:
                    return process

    def _give_back(self, process: _Process | None) -> None:
        """None: a process has ended, so that another may be started."""
        while self._queue:
            turn = self._queue.pop(0)
            if not turn.done():
                turn.set_result(process)
                return
        if process is not None:
            self._idle.append(process)

    async def _start(self) -> _Process:
        process = _Process()
        self._all.add(process)
        try:
            await process.open(msgspec.structs.replace(self._setup, path=sys.path))
        except BaseException:
            await self._end(process)
            raise
        return process


class _Process:
    """One of the processes, seen from the crawl."""

    def __init__(self) -> None:
        theirs, self._ours = socket.socketpair()
        with theirs:
            # In a session of its own: Ctrl-C is for the crawl, which ends this process.
            self._child = subprocess.Popen(  # noqa: S603
                [sys.executable, "-P", "-m", "headway.runtime.isolated", str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
                stdin=subprocess.DEVNULL,
            )
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    async def open(self, setup: _Setup) -> None:
        self._reader, self._writer = await asyncio.open_connection(sock=self._ours)
        await self._send(_encode(setup))
        await self._receive()

    async def call(self, work: bytes, limit_s: float) -> _Reply:
        """Raises EndedError."""
        loop = asyncio.get_running_loop()
        began_at, cpu_before_s = loop.time(), self._cpu_s()
        await self._send(work)
        receiving = asyncio.ensure_future(self._receive())
        while True:
            await asyncio.wait([receiving], timeout=_LOOK_EVERY_S)
            if receiving.done():
                return msgspec.msgpack.decode(receiving.result(), type=_Reply)
            lasted_s = loop.time() - began_at
            if self._cpu_s() - cpu_before_s >= limit_s or lasted_s >= _WALL_FACTOR * limit_s:
                receiving.cancel()
                raise EndedError(f"took longer than {limit_s:g} s")

    def kill(self) -> None:
        self._child.kill()
        with suppress(AttributeError):
            self._writer.close()

    async def wait(self) -> int:
        return await asyncio.to_thread(self._child.wait)

    async def _send(self, data: bytes) -> None:
        self._writer.write(_LENGTH.pack(len(data)) + data)
        with suppress(OSError):  # `_receive` says how the process has ended
            await self._writer.drain()

    async def _receive(self) -> bytes:
        try:
            (length,) = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))
            return await self._reader.readexactly(length)
        except (OSError, asyncio.IncompleteReadError):
            raise EndedError(_ending(await self.wait())) from None

    def _cpu_s(self) -> float:
        """The CPU time of the process until now; where the system does not say, none."""
        try:
            fields = Path(f"/proc/{self._child.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def _ending(code: int) -> str:
    if code < 0:
        return f"was ended by {signal.Signals(-code).name}"
    return "ran out of memory" if code == _OUT_OF_MEMORY else f"ended its process with exit code {code}"


# In the process.

_OUT_OF_MEMORY = 77


def main(fd: int) -> None:
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with socket.socket(fileno=fd) as line, line.makefile("rwb") as frames:

        def receive() -> bytes:
            head = frames.read(_LENGTH.size)
            if len(head) < _LENGTH.size:
                os._exit(0)  # the crawl has ended
            return frames.read(*_LENGTH.unpack(head))

        def send(reply: _Reply) -> None:
            data = _encode(reply)
            frames.write(_LENGTH.pack(len(data)) + data)
            frames.flush()

        setup = msgspec.msgpack.decode(receive(), type=_Setup)
        sys.path[:] = setup.path
        if setup.most_bytes:
            resource.setrlimit(resource.RLIMIT_AS, (setup.most_bytes, setup.most_bytes))
        decoder = msgspec.msgpack.Decoder(_Extract | _Try)
        try:
            extractor = Extractor({Site(site): rules for site, rules in setup.rules.items()})
            send(_Reply())
            while True:
                send(_carry_out(decoder.decode(receive()), extractor))
        except MemoryError:
            os._exit(_OUT_OF_MEMORY)


def _carry_out(work: _Extract | _Try, extractor: Extractor) -> _Reply:
    if isinstance(work, _Try):
        parse(work.response, work.page, work.options)
        return _Reply()
    try:
        return _Reply(extractor.items(work.url, work.site, work.content_type, work.body))
    except plugins.PluginError as failure:
        if isinstance(failure.__cause__, MemoryError):
            raise failure.__cause__ from None
        return _Reply(failure=str(failure))


if __name__ == "__main__":
    main(int(sys.argv[1]))


FOLDER = "work"
_SUSPECTS = "suspects.json"
_SLOT_BYTES = 2048
_SLOTS = 128
_HEAD_BYTES = 3
_FREE = bytes(_HEAD_BYTES)
"""Of a slot: how often its page was suspect before, and the length of the URL; no length: free."""
MOST_STRIKES = 2
_numbers = itertools.count()


class WorkJournal:
    """The file of this process, and the suspects that earlier processes of the crawl have left."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / FOLDER
        self._folder.mkdir(mode=0o755, exist_ok=True)
        self.suspects = self._take_over()
        """How often each suspect page was being read when a process died."""
        # Several sessions of one process, as in tests, have a file each.
        self._path = self._folder / f"{os.getpid()}-{next(_numbers)}"
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
        fcntl.flock(self._fd, fcntl.LOCK_EX)  # while it is held, the process lives
        try:  # a page of a file without space on the disk would end the process with SIGBUS
            os.posix_fallocate(self._fd, 0, _SLOT_BYTES * _SLOTS)
        except OSError as error:
            os.close(self._fd)
            raise explain_system(error, self._path) from error
        self._memory = mmap.mmap(self._fd, _SLOT_BYTES * _SLOTS)
        self._free = list(range(0, _SLOT_BYTES * _SLOTS, _SLOT_BYTES))

    def begin(self, url: str) -> int:
        """Enter a page; returns its place for `end`. A page beyond the number of places is not entered."""
        if not self._free:
            return -1
        place = self._free.pop()
        data = url.encode()[: _SLOT_BYTES - _HEAD_BYTES]
        length = len(data)
        strikes = self.suspects.get(url, 0) if self.suspects else 0
        end = place + _HEAD_BYTES + length
        self._memory[place:end] = bytes((strikes, length & 255, length >> 8)) + data
        return place

    def end(self, place: int) -> None:
        if place >= 0:
            self._memory[place : place + _HEAD_BYTES] = _FREE
            self._free.append(place)

    def noted(self, url: str, work: Callable[[], T]) -> T:
        """Carry out work on a page that is entered meanwhile."""
        place = self.begin(url)
        try:
            return work()
        finally:
            self.end(place)
            if self.suspects:
                self.clear(url)

    def keep(self, url: str) -> None:
        """The page is quarantined: when the crawl visits it again, it is tried in a process of its own."""
        self.suspects[url] = 1
        with self._locked():
            self._write_suspects({**self._read_suspects(), url: 1})

    def clear(self, url: str) -> None:
        """The page was read after all: it is no longer suspect."""
        if self.suspects.pop(url, None) is not None:
            with self._locked():
                suspects = self._read_suspects()
                suspects.pop(url, None)
                self._write_suspects(suspects)

    def close(self) -> None:
        """Remove the file: nothing is being worked on."""
        if self._fd >= 0:
            self._memory.close()
            self._path.unlink(missing_ok=True)
            os.close(self._fd)
            self._fd = -1
            with suppress(OSError):  # others work, or there are suspects
                self._folder.rmdir()

    def _take_over(self) -> dict[str, int]:
        """The suspects so far, with those in the files of processes that have died."""
        with self._locked():
            suspects = self._read_suspects()
            known = dict(suspects)
            for left in sorted(self._folder.glob("[0-9]*")):
                with left.open("r+b") as file:
                    try:
                        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    except BlockingIOError:
                        continue  # its process lives
                    for url, strikes in _pages_in(file.read()):
                        suspects[url] = max(suspects.get(url, 0), strikes) + 1
                    left.unlink(missing_ok=True)
            if suspects != known:
                self._write_suspects(suspects)
        return suspects

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Worker processes share the suspects."""
        fd = os.open(self._folder, os.O_RDONLY)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)

    def _read_suspects(self) -> dict[str, int]:
        try:
            return msgspec.json.decode((self._folder / _SUSPECTS).read_bytes(), type=dict[str, int])
        except (FileNotFoundError, msgspec.DecodeError):
            return {}  # damaged by a power cut: at worst a crash is met once more

    def _write_suspects(self, suspects: dict[str, int]) -> None:
        path = self._folder / _SUSPECTS
        if not suspects:
            path.unlink(missing_ok=True)
            return
        temporary = path.with_name(f".{_SUSPECTS}.{os.getpid()}")
        temporary.write_bytes(msgspec.json.encode(suspects))
        temporary.replace(path)


def _pages_in(data: bytes) -> list[tuple[str, int]]:
    pages = []
    for place in range(0, len(data) - _SLOT_BYTES + 1, _SLOT_BYTES):
        strikes, low, high = data[place : place + _HEAD_BYTES]
        length = low | high << 8
        if length:
            url = data[place + _HEAD_BYTES : place + _HEAD_BYTES + length]
            pages.append((url.decode(errors="replace"), strikes))
    return pages
