"""A bound that a person sets on a run, also while it crawls: one line of text in the run folder.

A file rather than a socket: it works when nothing is running yet, over any file system, and from a shell.
"""

from __future__ import annotations

from pathlib import Path

from headway.config.checks import rate
from headway.errors import StoreError, UnitError
from headway.store.inplace import put_in_place
from headway.store.reader import database_of
from headway.units import BytesPerSecond

LIMIT_FILE = "bandwidth"


def write_limit(folder: Path, text: str | None) -> None:
    """Set the bound of a run, or with None give it back to its job."""
    path = database_of(folder).with_name(LIMIT_FILE)
    try:
        if text is None:
            path.unlink(missing_ok=True)
            return
        rate(text)
        put_in_place(path, f"{text.strip()}\n".encode())
    except OSError as problem:
        raise StoreError(f"{path}: cannot be written: {problem.strerror}") from None


class LimitWatch:
    """Notices when the bound in a run folder changes."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / LIMIT_FILE
        self._stamp: tuple[int, int] | None = None
        self.limit_bytes_per_s: BytesPerSecond | None = None

    def has_changed(self) -> bool:
        try:
            status = self._path.stat()
            stamp = (status.st_mtime_ns, status.st_ino)
        except OSError:
            stamp = None
        if stamp == self._stamp:
            return False
        self._stamp = stamp
        before = self.limit_bytes_per_s
        self.limit_bytes_per_s = self._read() if stamp is not None else None
        return self.limit_bytes_per_s != before

    def _read(self) -> BytesPerSecond | None:
        """What cannot be read leaves the bound as it was: a slip of the pen must not open the link."""
        try:
            return rate(self._path.read_text(encoding="utf-8").strip())
        except (OSError, UnicodeDecodeError, UnitError):
            return self.limit_bytes_per_s
