"""Turn what SQLite and the system say into one message that names the file and what to do."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headway.errors import StoreError

_DISK_FULL = "the disk is full; make room, then start the same command again: nothing committed is lost"
_NO_PERMISSION = "no permission; check who owns the folder and whether the disk is mounted read-only"
_DAMAGED = "it is damaged or no SQLite database; restore it from a copy or crawl into a new folder"
_IN_USE = "another program holds its lock; close that program and start again"
_LOST = "it cannot be reached; check that the folder still exists and that its disk is mounted"

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
    errno.EFBIG: "the file has become larger than the system allows (ulimit -f); raise that limit",
    errno.EACCES: _NO_PERMISSION,
    errno.EPERM: _NO_PERMISSION,
    errno.EROFS: _NO_PERMISSION,
    errno.ENOENT: _LOST,
    errno.EIO: _LOST,
    errno.EMFILE: "too many open files; raise the limit (ulimit -n) or lower the number of connections",
}


def explain_sqlite(error: sqlite3.Error, path: Path) -> StoreError:
    name = getattr(error, "sqlite_errorname", "")
    # Extended names add a word to the primary one: SQLITE_IOERR_WRITE, SQLITE_READONLY_DBMOVED.
    advice = next((text for prefix, text in _BY_SQLITE_NAME.items() if name.startswith(prefix)), "")
    return StoreError(f"{path}: {advice or 'the database refused'} ({error})")


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
