"""The second that is about to arrive: what is booked for it, and whether more fits under the bound.

Bytes are booked at the moment when they should arrive, a round trip after their grant, so that grants to far
and near servers that would come in together are seen to do so.
"""

from __future__ import annotations

import math

SLOT_S = 0.01
_WINDOW_SLOTS = 100
_AHEAD_SLOTS = 100
_SLOTS = _WINDOW_SLOTS + _AHEAD_SLOTS + 1


class PeakGuard:
    """A ring of 10 ms slots: the last second, and the one to come."""

    def __init__(self, now: float, bound_bytes_per_s: float, tolerance: float) -> None:
        self._tolerance = tolerance
        self._limit = math.inf
        self._booked = [0.0] * _SLOTS
        self._total = 0.0
        self._slot = math.floor(now / SLOT_S)
        """The slot that `now` is in; ring positions are slots modulo the ring's length."""
        self._last = self._slot
        self.set_bound(bound_bytes_per_s)

    def set_bound(self, bound_bytes_per_s: float) -> None:
        self._limit = (1 + self._tolerance) * bound_bytes_per_s

    def book(self, now: float, arrives_at: float, size_bytes: float) -> int:
        """Note bytes for when they arrive; returns the slot, to give them back by."""
        self._advance(now)
        slot = self._slot_of(arrives_at)
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

    def clear_at(self, now: float, arrives_at: float, size_bytes: float) -> float:
        """`now` when the bytes fit into every second that they would be part of, else when to look again."""
        if math.isinf(self._limit):
            return now
        self._advance(now)
        if self._total + size_bytes <= self._limit:
            return now
        slot = self._slot_of(arrives_at)
        # What is larger than a second's worth fits into no second: it goes when the line is otherwise quiet.
        room = max(0.0, self._limit - size_bytes)
        busiest = max(self._second_ending_with(slot), self._second_ending_with(max(slot, self._last)))
        if busiest <= room:
            return now
        return (self._slot + 1) * SLOT_S

    def _second_ending_with(self, slot: int) -> float:
        first = (slot - _WINDOW_SLOTS + 1) % _SLOTS
        last = slot % _SLOTS
        if first <= last:
            return sum(self._booked[first : last + 1])
        return sum(self._booked[first:]) + sum(self._booked[: last + 1])

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
