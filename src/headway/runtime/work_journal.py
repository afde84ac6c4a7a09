"""Which pages are being worked on, in a file that outlives the process.

A page is entered before it is read and removed afterwards: two writes to shared memory, less than a
microsecond each. When a process has died, the next one finds in the file what it was doing. Such a page is
suspect: it is tried in a process of its own first (`runtime.isolated`), and one that was being read at the
death of two processes is not read again.
"""

from __future__ import annotations

import fcntl
import itertools
import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from headway.archive.files import explain_system

T = TypeVar("T")

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

    def clear(self, url: str) -> None:
        """The page was read after all, or is settled: it is no longer suspect."""
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
