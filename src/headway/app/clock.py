"""Real time, as a crawl lives in it."""

from __future__ import annotations

import time
from collections.abc import Callable

from headway.units import Instant


def _running_s() -> float:
    """What has passed, also while the machine slept, whoever sets the clock meanwhile."""
    is_told_of_sleep = hasattr(time, "CLOCK_BOOTTIME")
    return time.clock_gettime(time.CLOCK_BOOTTIME) if is_told_of_sleep else time.monotonic()


class WallClock:
    """The time of day when it was made, and from then on what has passed: were the clock set back by an
    hour, every site would else be left alone for an hour."""

    def __init__(
        self, time_of_day: Callable[[], float] = time.time, running_s: Callable[[], float] = _running_s
    ) -> None:
        self._running_s = running_s
        self._began_at = time_of_day() - running_s()

    def now(self) -> Instant:
        return Instant(self._began_at + self._running_s())
