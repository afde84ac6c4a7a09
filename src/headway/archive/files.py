"""Append-only files, files replaced as a whole, and clear messages for errors of files."""

from __future__ import annotations

import errno
import os
import resource
import sqlite3
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from headway.errors import StoreError

_DISK_FULL = "the disk is full; free some space, then run the same command again: no committed data is lost"
_NO_PERMISSION = "no permission; check who owns the folder and whether the disk is mounted read-only"
_DAMAGED = (
    "it is damaged or not an SQLite database; make it again from the archive and the logs with"
    " 'headway rebuild', or restore it from a backup"
)
_IN_USE = "another program has locked it; close that program and start again"
_TOO_LARGE = "the file exceeds the system's limit on file size (ulimit -f); raise that limit"
_LOST = "it cannot be reached; check that the folder still exists and that its disk is mounted"

_SQLITE_WRITES_AT_ONCE = 64 * 1024

_BY_SQLITE_NAME = {
    "SQLITE_FULL": _DISK_FULL,
    "SQLITE_READONLY": _NO_PERMISSION,
    "SQLITE_PERM": _NO_PERMISSION,
    "SQLITE_AUTH": _NO_PERMISSION,
    "SQLITE_CORRUPT": _DAMAGED,
    "SQLITE_NOTADB": _DAMAGED,
    "SQLITE_BUSY": _IN_USE,
    "SQLITE_LOCKED": _IN_USE,
    "SQLITE_CANTOPEN": _LOST,
    "SQLITE_IOERR": _LOST,
}
_BY_ERRNO = {
    errno.ENOSPC: _DISK_FULL,
    errno.EDQUOT: _DISK_FULL,
    errno.EFBIG: _TOO_LARGE,
    errno.EACCES: _NO_PERMISSION,
    errno.EPERM: _NO_PERMISSION,
    errno.EROFS: _NO_PERMISSION,
    errno.ENOENT: _LOST,
    errno.ENOTDIR: "a part of this path is a file, not a folder; choose another path",
    errno.EIO: _LOST,
    errno.EMFILE: "too many open files; raise the limit (ulimit -n) or lower the number of connections",
}


def explain_sqlite(error: sqlite3.Error, path: Path) -> StoreError:
    name = getattr(error, "sqlite_errorname", "")
    # Extended names add a word to the primary one: SQLITE_IOERR_WRITE, SQLITE_READONLY_DBMOVED.
    advice = next((text for prefix, text in _BY_SQLITE_NAME.items() if name.startswith(prefix)), "")
    if name in {"SQLITE_IOERR_WRITE", "SQLITE_IOERR_TRUNCATE"} and _is_at_its_limit(path):
        advice = _TOO_LARGE
    return StoreError(f"{path}: {advice or 'the database reported an error'} ({error})")


def _is_at_its_limit(path: Path) -> bool:
    """SQLite reports only that it could not write; check whether the reason is the limit on the size of
    files."""
    most, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if most == resource.RLIM_INFINITY:
        return False
    files = [path, path.with_name(path.name + "-wal"), path.with_name(path.name + "-journal")]
    return any(file.stat().st_size >= most - _SQLITE_WRITES_AT_ONCE for file in files if file.exists())


def explain_system(error: OSError, path: Path | str) -> StoreError:
    advice = _BY_ERRNO.get(error.errno or 0, "the system reported an error")
    return StoreError(f"{path}: {advice} ({error.strerror or error})")


@contextmanager
def clear_errors(path: Path) -> Iterator[None]:
    """Turn exceptions of SQLite or the system into errors that say what to do."""
    try:
        yield
    except sqlite3.Error as error:
        raise explain_sqlite(error, path) from error
    except OSError as error:
        raise explain_system(error, error.filename or path) from error


def put_in_place(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Open with at most the permissions `mode`, also with an open umask."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
        file.write(data)
    fresh.replace(path)


_GATHER_BYTES = 1 << 18
_LONG_BYTES = 1 << 22
_WRITTEN_AT_ONCE_BYTES = 1 << 21
"""Some milliseconds."""
_FILE_MODE = 0o644


class AppendFile:
    """An append-only file: bytes are buffered, passed to the system by `flush`, and never rewritten.

    A write that fails half-way (disk full) keeps the rest, so `flush` may be called again; the store knows
    the committed length, and everything beyond it is truncated when the file is reopened.
    """

    def __init__(self, path: Path, *, is_new: bool = False) -> None:
        flags = os.O_WRONLY | os.O_CREAT | (os.O_EXCL if is_new else 0)
        self.path = path
        with clear_errors(path):
            self._fd = os.open(path, flags, _FILE_MODE)
            self._written_bytes = os.fstat(self._fd).st_size
        self.length_bytes = self._written_bytes
        """Including what is still buffered here."""
        self._gathered: deque[bytes | memoryview] = deque()

    def append(self, data: bytes) -> None:
        """What is long is written by `write_some` or `flush`."""
        self._gathered.append(data)
        self.length_bytes += len(data)
        if _GATHER_BYTES <= self.length_bytes - self._written_bytes < _LONG_BYTES:
            self.flush()

    def flush(self) -> int:
        """Pass everything to the system; returns the file's length."""
        if len(self._gathered) > 1 and self.length_bytes - self._written_bytes < _LONG_BYTES:
            joined = b"".join(self._gathered)
            self._gathered.clear()
            self._gathered.append(joined)
        while self._gathered:
            self._write(len(self._gathered[0]))
        return self._written_bytes

    def write_some(self) -> bool:
        """Pass a part of what is long to the system; returns whether more is left."""
        if self.length_bytes - self._written_bytes < _LONG_BYTES:
            return False
        self._write(_WRITTEN_AT_ONCE_BYTES)
        return True

    def _write(self, most: int) -> None:
        """From the first of what is gathered."""
        rest = memoryview(self._gathered[0])
        part = rest[:most]
        try:
            with clear_errors(self.path):
                while part:
                    # At an explicit position: a second try overwrites what the first has written.
                    count = os.pwrite(self._fd, part, self._written_bytes)
                    self._written_bytes += count
                    part, rest = part[count:], rest[count:]
        finally:
            if rest:
                self._gathered[0] = rest
            else:
                self._gathered.popleft()

    def cut(self, length_bytes: int) -> None:
        """Discard everything that was appended after this length."""
        with clear_errors(self.path):
            kept = b"".join(self._gathered)[: max(0, length_bytes - self._written_bytes)]
            self._gathered = deque([kept] if kept else ())
            if length_bytes < self._written_bytes:
                os.ftruncate(self._fd, length_bytes)
                self._written_bytes = length_bytes
            self.length_bytes = self._written_bytes + len(kept)

    def close(self) -> None:
        if self._fd < 0:
            return
        try:
            self.flush()
        finally:
            fd, self._fd = self._fd, -1
            with clear_errors(self.path):
                os.close(fd)


class AppendLog:
    """A log of lines in the run folder, flushed and committed by its length like the archive."""

    def __init__(self, run_folder: Path, name: str) -> None:
        self.name = name
        self._file = AppendFile(run_folder / name)
        self._encoder = msgspec.json.Encoder()

    @property
    def length_bytes(self) -> int:
        return self._file.length_bytes

    def append(self, value: object) -> None:
        """One JSON object as a line."""
        self._file.append(self._encoder.encode(value) + b"\n")

    def append_lines(self, lines: bytes) -> None:
        """Whole lines, as another process made them."""
        if lines:
            self._file.append(lines)

    def append_text(self, line: str) -> None:
        self._file.append(line.encode("utf-8", "replace") + b"\n")

    def flush(self) -> int:
        """Pass everything to the system; returns the length to commit."""
        return self._file.flush()

    def cut(self, length_bytes: int) -> None:
        self._file.cut(length_bytes)

    def close(self) -> None:
        self._file.close()
