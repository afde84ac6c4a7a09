"""Which contents may be known: a filter in memory that spares the database most questions about new ones."""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Iterable
from typing import Self

_BITS = 1 << 24
"""Two mebibytes. With ten million contents it still spares every other question."""


class KnownContents:
    """Never says no to what was added; says yes to a few others."""

    __slots__ = ("_bits",)

    def __init__(self, fingerprints: Iterable[int] = ()) -> None:
        self._bits: bytearray | mmap.mmap = bytearray(_BITS // 8)
        for fingerprint in fingerprints:
            self.add(fingerprint)

    def share(self) -> int:
        """A file without a name, open: processes that are started with it see what is added here at once."""
        fd = _nameless_file()
        os.truncate(fd, _BITS // 8)
        shared = mmap.mmap(fd, _BITS // 8)
        shared[:] = bytes(self._bits)
        self._bits = shared
        return fd

    @classmethod
    def shared(cls, fd: int) -> Self:
        """What another process adds to, for reading only."""
        known = cls()
        known._bits = mmap.mmap(fd, _BITS // 8, access=mmap.ACCESS_READ)
        return known

    def add(self, fingerprint: int) -> None:
        place = fingerprint % _BITS
        self._bits[place >> 3] |= 1 << (place & 7)

    def may_have(self, fingerprint: int) -> bool:
        place = fingerprint % _BITS
        return bool(self._bits[place >> 3] >> (place & 7) & 1)


def _nameless_file() -> int:
    """In memory where the system can do that: nobody needs it on disk."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("headway-known")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
