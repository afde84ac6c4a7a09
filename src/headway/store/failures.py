"""Turn what SQLite and the system say into one message that names the file and what to do."""

from __future__ import annotations

import errno
import resource
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headway.errors import StoreError

_DISK_FULL = "the disk is full; make room, then start the same command again: nothing committed is lost"
_NO_PERMISSION = "no permission; check who owns the folder and whether the disk is mounted read-only"
_DAMAGED = "it is damaged or no SQLite database; restore it from a copy or crawl into a new folder"
_IN_USE = "another program holds its lock; close that program and start again"
_TOO_LARGE = "the file has become larger than the system allows (ulimit -f); raise that limit"
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
    errno.ENOTDIR: "a part of this path is a file, not a folder; choose another place",
    errno.EIO: _LOST,
    errno.EMFILE: "too many open files; raise the limit (ulimit -n) or lower the number of connections",
}


def explain_sqlite(error: sqlite3.Error, path: Path) -> StoreError:
    name = getattr(error, "sqlite_errorname", "")
    # Extended names add a word to the primary one: SQLITE_IOERR_WRITE, SQLITE_READONLY_DBMOVED.
    advice = next((text for prefix, text in _BY_SQLITE_NAME.items() if name.startswith(prefix)), "")
    if name in {"SQLITE_IOERR_WRITE", "SQLITE_IOERR_TRUNCATE"} and _is_at_its_limit(path):
        advice = _TOO_LARGE
    return StoreError(f"{path}: {advice or 'the database refused'} ({error})")


def _is_at_its_limit(path: Path) -> bool:
    """SQLite says only that it could not write; whether the reason is the limit on a file's size is ours to
    find out."""
    most, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if most == resource.RLIM_INFINITY:
        return False
    files = [path, path.with_name(path.name + "-wal"), path.with_name(path.name + "-journal")]
    return any(file.stat().st_size >= most - _SQLITE_WRITES_AT_ONCE for file in files if file.exists())


def explain_system(error: OSError, path: Path | str) -> StoreError:
    advice = _BY_ERRNO.get(error.errno or 0, "the system refused")
    return StoreError(f"{path}: {advice} ({error.strerror or error})")


@contextmanager
def clear_errors(path: Path) -> Iterator[None]:
    """Let no exception of SQLite or the system pass that does not say what to do."""
    try:
        yield
    except sqlite3.Error as error:
        raise explain_sqlite(error, path) from error
    except OSError as error:
        raise explain_system(error, error.filename or path) from error
