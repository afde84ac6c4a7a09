"""The second that is about to arrive: what is booked for it, and whether more fits under the bound.

Bytes are booked at the moment when they should arrive, a round trip after their grant, so that grants to far
and near servers that would come in together are seen to do so.
"""

from __future__ import annotations

import math

SLOT_S = 0.01
_WINDOW_SLOTS = 101  # one more than a second has, so that none is cut short by where its slots begin
_AHEAD_SLOTS = 100
_LARGE_PART = 0.1
_SLOTS = _WINDOW_SLOTS + _AHEAD_SLOTS + 1


class PeakGuard:
    """A ring of 10 ms slots: the last second, and the one to come."""

    def __init__(self, now: float, bound_bytes_per_s: float, tolerance: float) -> None:
        self._tolerance = tolerance
        self._bound = self._limit = math.inf
        self._booked = [0.0] * _SLOTS
        self._total = 0.0
        self._slot = math.floor(now / SLOT_S)
        """The slot that `now` is in; ring positions are slots modulo the ring's length."""
        self._last = self._slot
        self.set_bound(bound_bytes_per_s)

    def set_bound(self, bound_bytes_per_s: float) -> None:
        self._bound = bound_bytes_per_s
        self._limit = (1 + self._tolerance) * bound_bytes_per_s

    def book(self, now: float, arrives_at: float, size_bytes: float) -> int:
        """Note bytes for when they arrive; returns the slot, to give them back by."""
        self._advance(now)
        slot = self._slot_of(arrives_at)
        self._booked[slot % _SLOTS] += size_bytes
        self._total += size_bytes
        self._last = max(self._last, slot)
        return slot

    def book_if_quiet(self, now: float, arrives_at: float, size_bytes: float) -> int | None:
        """Book where nothing near the bound is on its way at all, which is quickly seen; else None."""
        slot = int(now / SLOT_S)
        if slot > self._slot:
            self._advance(now)
        if self._total + size_bytes > self._limit:
            return None
        arrives_in = int(arrives_at / SLOT_S)
        slot = min(max(arrives_in, self._slot), self._slot + _AHEAD_SLOTS)
        self._booked[slot % _SLOTS] += size_bytes
        self._total += size_bytes
        self._last = max(self._last, slot)
        return slot

    def unbook(self, slot: int, size_bytes: float) -> None:
        """Bytes that will not come after all, taken from their slot and from those before it."""
        while size_bytes > 0 and slot > self._slot - _WINDOW_SLOTS and slot <= self._last:
            taken = min(size_bytes, self._booked[slot % _SLOTS])
            self._booked[slot % _SLOTS] -= taken
            self._total -= taken
            size_bytes -= taken
            slot -= 1

    def fits(self, now: float, arrives_at: float, size_bytes: float) -> bool:
        """Whether the bytes fit into every second that they would be part of."""
        if math.isinf(self._limit):
            return True
        self._advance(now)
        if self._total + size_bytes <= self._limit:
            return True
        # On a slow link a single packet may be a good part of a second's worth. Seconds cannot be filled with
        # such lumps and stay exactly under the bound: each may then be exceeded by one of them.
        lump = size_bytes > _LARGE_PART * self._bound
        room = self._bound if lump else self._limit - size_bytes
        slot = self._slot_of(arrives_at)
        booked = self._booked
        second = sum(booked[index % _SLOTS] for index in range(slot - _WINDOW_SLOTS + 1, slot + 1))
        while second <= room:
            if slot >= self._last:
                return True
            slot += 1
            second += booked[slot % _SLOTS] - booked[(slot - _WINDOW_SLOTS) % _SLOTS]
        return False

    def _slot_of(self, arrives_at: float) -> int:
        slot = math.floor(arrives_at / SLOT_S)
        return min(max(slot, self._slot), self._slot + _AHEAD_SLOTS)

    def _advance(self, now: float) -> None:
        """Empty the slots that come into sight; after a long gap that is all of them, and no more."""
        slot = math.floor(now / SLOT_S)
        steps = slot - self._slot
        if steps <= 0:
            return
        if steps >= _SLOTS:
            self._booked = [0.0] * _SLOTS
        else:
            for step in range(1, steps + 1):
                self._booked[(self._slot + _AHEAD_SLOTS + step) % _SLOTS] = 0.0
        self._total = sum(self._booked)
        self._slot = slot
        self._last = max(self._last, slot)
