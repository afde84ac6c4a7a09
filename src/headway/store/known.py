"""Which contents may be known: a filter in memory that spares the database most questions about new ones."""

from __future__ import annotations

from collections.abc import Iterable

_BITS = 1 << 24
"""Two mebibytes. With ten million contents it still spares every other question."""


class KnownContents:
    """Never says no to what was added; says yes to a few others."""

    __slots__ = ("_bits",)

    def __init__(self, fingerprints: Iterable[int] = ()) -> None:
        self._bits = bytearray(_BITS // 8)
        for fingerprint in fingerprints:
            self.add(fingerprint)

    def add(self, fingerprint: int) -> None:
        place = fingerprint % _BITS
        self._bits[place >> 3] |= 1 << (place & 7)

    def may_have(self, fingerprint: int) -> bool:
        place = fingerprint % _BITS
        return bool(self._bits[place >> 3] >> (place & 7) & 1)
