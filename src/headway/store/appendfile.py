"""A file that only grows: bytes are gathered, handed to the system on `flush`, and never rewritten.

A write that fails half-way (disk full) keeps what is left, so `flush` may be called again; the store
knows the length that counts, and what lies beyond it is cut on reopening.
"""

from __future__ import annotations

import os
from pathlib import Path

from headway.store.failures import clear_errors

_GATHER_BYTES = 1 << 18
_FILE_MODE = 0o644


class AppendFile:
    def __init__(self, path: Path, *, is_new: bool = False) -> None:
        flags = os.O_WRONLY | os.O_CREAT | (os.O_EXCL if is_new else 0)
        self.path = path
        with clear_errors(path):
            self._fd = os.open(path, flags, _FILE_MODE)
            self._written_bytes = os.fstat(self._fd).st_size
        self.length_bytes = self._written_bytes
        """With what is still gathered here."""
        self._gathered: list[bytes] = []

    def append(self, data: bytes) -> None:
        self._gathered.append(data)
        self.length_bytes += len(data)
        if self.length_bytes - self._written_bytes >= _GATHER_BYTES:
            self.flush()

    def flush(self) -> int:
        """Hand everything to the system; returns the file's length."""
        if self._gathered:
            rest = memoryview(b"".join(self._gathered))
            try:
                with clear_errors(self.path):
                    while rest:
                        # At an explicit place: a second try overwrites whatever the first left.
                        count = os.pwrite(self._fd, rest, self._written_bytes)
                        self._written_bytes += count
                        rest = rest[count:]
            finally:
                self._gathered = [bytes(rest)] if rest else []
        return self._written_bytes

    def cut(self, length_bytes: int) -> None:
        """Forget what was appended after this length."""
        with clear_errors(self.path):
            kept = b"".join(self._gathered)[: max(0, length_bytes - self._written_bytes)]
            self._gathered = [kept] if kept else []
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
