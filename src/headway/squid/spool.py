"""Announcements on their way from the listener to the crawl: a file of lines in the run folder.

The listener may run beside a crawl, or die, or the crawl may; what was taken waits here. The reader
remembers up to where everything is settled: after a crash some come twice, and are then found fresh.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path

import msgspec

from headway.store.failures import clear_errors
from headway.store.inplace import put_in_place
from headway.units import Instant

FOLDER = "announced"
MAX_BYTES = 100_000_000
_NAME = "waiting.log"
_PLACE = "read-until"
_TRUNCATE_FROM_BYTES = 1_000_000
_PIECE_BYTES = 262_144


class Announced(msgspec.Struct, frozen=True, gc=False):
    at: Instant
    url: str
    place: int
    """Where its line begins."""


class SpoolWriter:
    def __init__(self, run_folder: Path) -> None:
        self._path = run_folder / FOLDER / _NAME
        with clear_errors(self._path):
            self._path.parent.mkdir(mode=0o755, exist_ok=True)
            self._fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def append(self, lines: list[tuple[Instant, str]]) -> bool:
        """All of them, or none when too many wait already."""
        data = "".join(f"{at:.3f} {url}\n" for at, url in lines).encode("utf-8", "replace")
        with clear_errors(self._path):
            # The reader may empty the file while nobody else has it locked.
            fcntl.flock(self._fd, fcntl.LOCK_EX)
            try:
                if os.fstat(self._fd).st_size + len(data) > MAX_BYTES:
                    return False
                while data:
                    data = data[os.write(self._fd, data) :]
                return True
            finally:
                fcntl.flock(self._fd, fcntl.LOCK_UN)

    def close(self) -> None:
        os.close(self._fd)


class SpoolReader:
    """Reads what is new. `keep` says up to where everything is settled."""

    def __init__(self, run_folder: Path) -> None:
        self._path = run_folder / FOLDER / _NAME
        self._place_path = run_folder / FOLDER / _PLACE
        self._fd = -1
        self._next = self._kept = self._place()

    def read(self, most: int) -> list[Announced]:
        """At most so many lines more, in order."""
        if self._fd < 0:
            with suppress(FileNotFoundError):
                self._fd = os.open(self._path, os.O_RDWR)
        if self._fd < 0 or most <= 0:
            return []
        if os.fstat(self._fd).st_size < self._next:
            self._next = self._kept = 0  # somebody has emptied it
        found: list[Announced] = []
        piece = os.pread(self._fd, _PIECE_BYTES, self._next)
        whole = piece[: piece.rfind(b"\n") + 1]
        if not whole and len(piece) == _PIECE_BYTES:
            self._next += _PIECE_BYTES  # no line of ours is so long
        for line in whole.splitlines(keepends=True)[:most]:
            announced = _read_line(line, self._next)
            self._next += len(line)
            if announced is not None:
                found.append(announced)
        return found

    @property
    def place(self) -> int:
        """Where the next line begins."""
        return self._next

    def keep(self, place: int) -> None:
        """All before this place is settled; remembered, and forgotten with the file when that is all."""
        if self._fd < 0 or place == self._kept:
            return
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        try:
            if place >= _TRUNCATE_FROM_BYTES and place == os.fstat(self._fd).st_size:
                self._save(0)
                os.ftruncate(self._fd, 0)
                self._next = self._kept = 0
                return
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)
        self._save(place)
        self._kept = place

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _place(self) -> int:
        try:
            return int(self._place_path.read_text())
        except (OSError, ValueError):
            return 0

    def _save(self, place: int) -> None:
        put_in_place(self._place_path, b"%d\n" % place)


def _read_line(line: bytes, place: int) -> Announced | None:
    at, _, url = line.decode("utf-8", "replace").rstrip("\n").partition(" ")
    try:
        return Announced(Instant(float(at)), url, place)
    except ValueError:
        return None
