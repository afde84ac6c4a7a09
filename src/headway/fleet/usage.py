"""What the fleet has read, second by second: all collectors' readings at the same instants, added up."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from headway.units import Instant

_KEPT = 4
_LATE_S = 2
"""A reading is reported at the latest so long after its second."""


class Usage:
    """Kept by whoever leads. A new leader knows the last readings only, and the rest after some seconds."""

    def __init__(self) -> None:
        self._readings: dict[int, dict[int, int]] = {}
        self._summed = 0

    def note(self, readings: Iterable[tuple[int, int, int]]) -> None:
        """Collector, second, bytes until then."""
        for collector, second, received in readings:
            known = self._readings.setdefault(collector, {})
            known[second] = received
            while len(known) > _LATE_S + _KEPT + 1:
                del known[min(known)]

    def sums(self, now: Instant) -> list[tuple[int, int]]:
        """Seconds that are complete and were not given before, with all that was read until then."""
        last = int(now) - _LATE_S
        first = max(self._summed + 1, last - 1)
        found = [
            (second, sum(self._at(each, second) for each in self._readings))
            for second in range(first, last + 1)
        ]
        self._summed = max(self._summed, last)
        return found

    def rates_bytes_per_s(self, collector: int) -> list[float]:
        """Over the last few seconds that are known, one by one."""
        known = sorted(self._readings.get(collector, {}).items())
        return [(after - before) / (last - first) for (first, before), (last, after) in pairwise(known)][
            -_KEPT:
        ]

    def _at(self, collector: int, second: int) -> int:
        known = self._readings[collector]
        earlier = [each for each in known if each <= second]
        return known[max(earlier)] if earlier else 0
