"""Following a log file that Squid writes, rotates or empties, and going on after a restart of ours."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import msgspec

from headway.store.inplace import put_in_place

_READ_BYTES = 1_048_576
_LONGEST_LINE = 65_536


class _Position(msgspec.Struct):
    inode: int
    offset: int


class Tail:
    """`read` as often as you like. Begins at the end of the file, or where `memory` says it was left."""

    def __init__(self, path: Path, memory: Path) -> None:
        self._path = path
        self._memory = memory
        self._fd = -1
        self._inode = 0
        self._offset = 0
        self._rest = b""
        self.skipped = 0
        """Lines so long that they were passed over."""
        self._recall()

    def read(self) -> list[str]:
        """The whole lines that have come since the last time, at most about a megabyte."""
        if self._fd < 0 and not self._open():
            return []
        data = os.pread(self._fd, _READ_BYTES, self._offset)
        if not data and self._has_moved_on():
            os.close(self._fd)
            self._fd, self._rest = -1, b""
            return self.read()
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _LONGEST_LINE:
            self.skipped += 1
            self._rest = b""
        return [line.decode("utf-8", "replace") for line in lines]

    def remember(self) -> None:
        """From here on after a restart. To be called when what was read is safe."""
        if self._fd >= 0:
            position = _Position(self._inode, self._offset - len(self._rest))
            put_in_place(self._memory, msgspec.json.encode(position))

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _recall(self) -> None:
        last: _Position | None = None
        with suppress(OSError, msgspec.DecodeError):
            last = msgspec.json.decode(self._memory.read_bytes(), type=_Position)
        if not self._open():
            return
        size = os.fstat(self._fd).st_size
        if last is None:
            self._offset = size
        elif last.inode == self._inode and last.offset <= size:
            self._offset = last.offset
        # Otherwise it was rotated meanwhile: the new file is read from its beginning.

    def _open(self) -> bool:
        try:
            self._fd = os.open(self._path, os.O_RDONLY)
        except FileNotFoundError:
            return False
        self._inode, self._offset = os.fstat(self._fd).st_ino, 0
        return True

    def _has_moved_on(self) -> bool:
        """Whether the name now means another file, or the file was emptied."""
        try:
            named = self._path.stat()
        except FileNotFoundError:
            return False
        return named.st_ino != self._inode or named.st_size < self._offset
