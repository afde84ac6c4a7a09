"""The controller of Shkapenyuk and Suel, kept as the baseline of diligenti2004's figure 3: stop a fetcher
when the measured bandwidth is above the bound, start one when it is below. It oscillates, since a change
shows in the measure only when it is too late."""

from __future__ import annotations

from headway.units import BytesPerSecond


class NaiveController:
    def __init__(self, bound_bytes_per_s: BytesPerSecond, *, most_fetchers: int) -> None:
        if most_fetchers < 1:
            raise ValueError(f"there must be at least one fetcher, not {most_fetchers}")
        self.bound_bytes_per_s = bound_bytes_per_s
        self._most = most_fetchers
        self._fetchers = 1

    @property
    def fetchers(self) -> int:
        """How many may be at work now."""
        return self._fetchers

    def measured(self, rate_bytes_per_s: BytesPerSecond) -> int:
        """Take in the bandwidth of the last period; gives the number of fetchers for the next."""
        if rate_bytes_per_s > self.bound_bytes_per_s:
            self._fetchers = max(0, self._fetchers - 1)
        elif rate_bytes_per_s < self.bound_bytes_per_s:
            self._fetchers = min(self._most, self._fetchers + 1)
        return self._fetchers
