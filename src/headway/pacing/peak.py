"""Checks that no second exceeds the bound: the bytes of the last second, and those expected in the next.

A grant is entered at the time when its bytes should arrive, a round trip later. `observe` reports what really
arrived, so that bursts, late responses and bytes without a grant count when they arrive.
"""

from __future__ import annotations

import math

SLOT_S = 0.01
_WINDOW_SLOTS = 101  # one more than a second has, since a second rarely begins where a slot does
_AHEAD_SLOTS = 100
_SLOTS = _WINDOW_SLOTS + _AHEAD_SLOTS
_LARGE_PART = 0.1
"""A larger part of a second's bytes may exceed the bound alone; see `PeakGuard.fits`."""
_MAX_LATE_S = 0.3
"""Late bytes count for this part of a second's bytes at most."""
_LATE_FOR_S = 1.0
"""Late bytes are dropped if nothing was observed for this long."""
PACKET_BYTES = 1514
_PART_OF_PIECE = 0.8


def most_in_a_second(bound_bytes_per_s: float, tolerance: float) -> float:
    """The most bytes for any second. One packet is subtracted from the tolerance, since a second measured
    elsewhere may begin or end with one more. On a slow link the tolerance is less than two packets; there a
    second may have one more than the bound, or the link would be idle while there is no room for a whole
    one."""
    return bound_bytes_per_s + max(tolerance * bound_bytes_per_s - PACKET_BYTES, PACKET_BYTES)


class PeakGuard:
    """Two rings of 10 ms slots: bytes that arrived in the last second, and bytes expected in the next."""

    def __init__(self, now: float, bound_bytes_per_s: float, tolerance: float) -> None:
        self._tolerance = tolerance
        self._bound = self._limit = math.inf
        self._arrived = [0.0] * _SLOTS
        self._coming = [0.0] * _SLOTS
        self._arrived_bytes = 0.0
        self._coming_bytes = 0.0
        self._late_bytes = 0.0
        """Expected before now and not observed yet: they may arrive at any time."""
        self._slot = math.floor(now / SLOT_S)
        """The slot of `now`. A slot's place in a ring is its number modulo the ring's length."""
        self._slot_ends_at = (self._slot + 1) * SLOT_S
        self._last = self._slot
        self._observed_in = self._slot
        self.set_bound(bound_bytes_per_s)

    def set_bound(self, bound_bytes_per_s: float) -> None:
        if 0.0 < bound_bytes_per_s < self._bound < math.inf:
            # What arrived under the higher bound must not block the link for a second.
            self._arrived = [arrived * bound_bytes_per_s / self._bound for arrived in self._arrived]
            self._arrived_bytes = sum(self._arrived, 0.0)
        self._bound = bound_bytes_per_s
        self._limit = most_in_a_second(bound_bytes_per_s, self._tolerance)

    def reserve(self, now: float, arrives_at: float, size_bytes: float) -> None:
        """Enter bytes that were granted."""
        self._advance(now)
        self._reserve_in(self._slot_of(arrives_at), size_bytes)

    def reserve_if_quiet(self, now: float, arrives_at: float, size_bytes: float) -> bool:
        """Reserve if all bytes of both rings are below the limit, which is quick to check."""
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

    def observe(self, now: float, arrived_bytes: float, outstanding_bytes: float) -> None:
        """Report the bytes that arrived since the last call, and those granted that have not arrived."""
        self._advance(now)
        self._arrived[self._slot % _SLOTS] += arrived_bytes
        self._arrived_bytes += arrived_bytes
        self._observed_in = self._slot
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
        """Whether the bytes fit into every second that would contain them."""
        if math.isinf(self._limit):
            return True
        self._advance(now)
        late_bytes = min(self._late_bytes, _MAX_LATE_S * self._bound)
        if self._arrived_bytes + self._coming_bytes + late_bytes + size_bytes <= self._limit:
            return True
        # On a slow link a single packet may be a large part of a second's bytes. No second can be filled with
        # such pieces and stay below the bound, so a second may exceed it by a packet, or two if a piece has
        # several; one that is more than a second's bytes needs a second of its own.
        is_large = size_bytes > _LARGE_PART * self._bound
        over = max(PACKET_BYTES, min(_PART_OF_PIECE * size_bytes, 2 * PACKET_BYTES))
        most = self._bound + over if is_large else self._limit
        room = max(0.0, most - size_bytes - late_bytes)
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

    def _reserve_in(self, slot: int, size_bytes: float) -> None:
        self._coming[slot % _SLOTS] += size_bytes
        self._coming_bytes += size_bytes
        self._last = max(self._last, slot)

    def _slot_of(self, arrives_at: float) -> int:
        slot = math.floor(arrives_at / SLOT_S)
        return min(max(slot, self._slot), self._slot + _AHEAD_SLOTS)

    def _advance(self, now: float) -> None:
        """Move to the slot of `now`. Bytes expected before it are late until observed; after a gap longer
        than the rings all slots are empty."""
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
        if slot - self._observed_in > _LATE_FOR_S / SLOT_S:
            self._late_bytes = 0.0
