"""The last second as it was and the next as it is expected, and whether more fits under the bound.

Grants are booked at the moment when their bytes should arrive, a round trip later. What really arrived is
told by `saw`, so that lumps, late answers and bytes that nobody asked for are seen as they are.
"""

from __future__ import annotations

import math

SLOT_S = 0.01
_WINDOW_SLOTS = 101  # one more than a second has, so that none is cut short by where its slots begin
_AHEAD_SLOTS = 100
_SLOTS = _WINDOW_SLOTS + _AHEAD_SLOTS
_LARGE_PART = 0.1
_LATE_AT_MOST_S = 0.3
_LATE_FOR_S = 1.0
_PACKET_BYTES = 1514


def most_in_a_second(bound_bytes_per_s: float, tolerance: float) -> float:
    """What a second may hold. On a slow link the packet with which somebody else's second begins or ends is
    much of the tolerance, and is kept back."""
    return max(bound_bytes_per_s, (1 + tolerance) * bound_bytes_per_s - _PACKET_BYTES)


class PeakGuard:
    """Two rings of 10 ms slots: what arrived in the last second, what should arrive in the next."""

    def __init__(self, now: float, bound_bytes_per_s: float, tolerance: float) -> None:
        self._tolerance = tolerance
        self._bound = self._limit = math.inf
        self._arrived = [0.0] * _SLOTS
        self._coming = [0.0] * _SLOTS
        self._arrived_bytes = 0.0
        self._coming_bytes = 0.0
        self._late_bytes = 0.0
        """Granted, due, and not seen yet: they may arrive at any moment."""
        self._slot = math.floor(now / SLOT_S)
        """The slot that `now` is in; ring positions are slots modulo the ring's length."""
        self._slot_ends_at = (self._slot + 1) * SLOT_S
        self._last = self._slot
        self._looked_in = self._slot
        self.set_bound(bound_bytes_per_s)

    def set_bound(self, bound_bytes_per_s: float) -> None:
        if 0.0 < bound_bytes_per_s < self._bound < math.inf:
            # What came under the bound of its time must not shut the link for a second now.
            self._arrived = [arrived * bound_bytes_per_s / self._bound for arrived in self._arrived]
            self._arrived_bytes = sum(self._arrived, 0.0)
        self._bound = bound_bytes_per_s
        self._limit = most_in_a_second(bound_bytes_per_s, self._tolerance)

    def book(self, now: float, arrives_at: float, size_bytes: float) -> None:
        self._advance(now)
        self._book_in(self._slot_of(arrives_at), size_bytes)

    def book_if_quiet(self, now: float, arrives_at: float, size_bytes: float) -> bool:
        """Book where nothing near the bound is on its way at all, which is quickly seen."""
        if now >= self._slot_ends_at:
            self._advance(now)
        if self._arrived_bytes + self._coming_bytes + self._late_bytes + size_bytes > self._limit:
            return False
        slot = self._slot
        if arrives_at >= self._slot_ends_at:
            slot = self._slot_of(arrives_at)
            self._last = max(self._last, slot)
        self._coming[slot % _SLOTS] += size_bytes
        self._coming_bytes += size_bytes
        return True

    def saw(self, now: float, arrived_bytes: float, outstanding_bytes: float) -> None:
        """So much arrived since the last look; so much is granted and still to come."""
        self._advance(now)
        self._arrived[self._slot % _SLOTS] += arrived_bytes
        self._arrived_bytes += arrived_bytes
        self._looked_in = self._slot
        self._late_bytes = max(0.0, outstanding_bytes - self._coming_bytes)
        early = self._coming_bytes - outstanding_bytes
        slot = self._slot
        while early > 0.0 and slot <= self._last:
            taken = min(early, self._coming[slot % _SLOTS])
            self._coming[slot % _SLOTS] -= taken
            self._coming_bytes -= taken
            early -= taken
            slot += 1

    def fits(self, now: float, arrives_at: float, size_bytes: float) -> bool:
        """Whether the bytes fit into every second that they would be part of."""
        if math.isinf(self._limit):
            return True
        self._advance(now)
        late_bytes = min(self._late_bytes, _LATE_AT_MOST_S * self._bound)
        if self._arrived_bytes + self._coming_bytes + late_bytes + size_bytes <= self._limit:
            return True
        # On a slow link a single packet may be a good part of a second's worth. Seconds cannot be filled with
        # such lumps and stay exactly under the bound: each may then be exceeded by one of them.
        lump = size_bytes > _LARGE_PART * self._bound
        room = (self._bound if lump else self._limit - size_bytes) - late_bytes
        arrived, coming = self._arrived, self._coming
        slot = self._slot_of(arrives_at)
        second = sum(
            (arrived[index % _SLOTS] for index in range(slot - _WINDOW_SLOTS + 1, self._slot + 1)), 0.0
        )
        second += sum((coming[index % _SLOTS] for index in range(self._slot, slot + 1)), 0.0)
        while second <= room:
            if slot >= self._last:
                return True
            slot += 1
            second += coming[slot % _SLOTS] - arrived[(slot - _WINDOW_SLOTS) % _SLOTS]
        return False

    def _book_in(self, slot: int, size_bytes: float) -> None:
        self._coming[slot % _SLOTS] += size_bytes
        self._coming_bytes += size_bytes
        self._last = max(self._last, slot)

    def _slot_of(self, arrives_at: float) -> int:
        slot = math.floor(arrives_at / SLOT_S)
        return min(max(slot, self._slot), self._slot + _AHEAD_SLOTS)

    def _advance(self, now: float) -> None:
        """What should have come by now is late until seen; after a long gap all slots are empty."""
        slot = math.floor(now / SLOT_S)
        steps = slot - self._slot
        if steps <= 0:
            return
        if steps >= _SLOTS:
            self._late_bytes += self._coming_bytes
            self._arrived, self._coming = [0.0] * _SLOTS, [0.0] * _SLOTS
        else:
            for passed in range(self._slot, slot):
                self._late_bytes += self._coming[passed % _SLOTS]
                self._coming[passed % _SLOTS] = 0.0
                self._arrived[(passed - _WINDOW_SLOTS + 1) % _SLOTS] = 0.0
        self._arrived_bytes = sum(self._arrived, 0.0)
        self._coming_bytes = sum(self._coming, 0.0)
        self._slot = slot
        self._slot_ends_at = (slot + 1) * SLOT_S
        self._last = max(self._last, slot)
        if slot - self._looked_in > _LATE_FOR_S / SLOT_S:
            self._late_bytes = 0.0
