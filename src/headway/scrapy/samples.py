"""The link second by second: its rate of late, its worst second, how often it was over its bound."""

from __future__ import annotations

from headway.units import BytesPerSecond, Instant

_OVER = 1.05
_SHORTEST_S = 0.5
"""What is shorter says little about a second."""


class LinkSamples:
    def __init__(self) -> None:
        self.rate_bytes_per_s = 0.0
        self.peak_bytes_per_s = 0.0
        self.seconds_over = 0
        self._first: tuple[Instant, int] | None = None
        self._last: tuple[Instant, int] | None = None

    def add(self, now: Instant, received_bytes: int, capacity_bytes_per_s: BytesPerSecond) -> None:
        """`received_bytes` is all until now; the capacity is what held since the last sample."""
        if self._last is None:
            self._first = self._last = (now, received_bytes)
            return
        lasted_s = now - self._last[0]
        if lasted_s < _SHORTEST_S:
            return
        self.rate_bytes_per_s = (received_bytes - self._last[1]) / lasted_s
        self.peak_bytes_per_s = max(self.peak_bytes_per_s, self.rate_bytes_per_s)
        if self.rate_bytes_per_s > _OVER * capacity_bytes_per_s:
            self.seconds_over += 1
        self._last = (now, received_bytes)

    @property
    def mean_bytes_per_s(self) -> float:
        if self._first is None or self._last is None or self._last[0] <= self._first[0]:
            return 0.0
        return (self._last[1] - self._first[1]) / (self._last[0] - self._first[0])
