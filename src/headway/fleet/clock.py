"""One clock for the whole fleet: the coordinator's, kept going by what passes here.

Clocks of machines differ, by hours where somebody set one wrong; how long a second is they agree on.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from headway.units import Instant


class SharedClock:
    def __init__(
        self, time_of_day: Callable[[], float] = time.time, running_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._running_s = running_s
        self._began_at = time_of_day() - running_s()

    def now(self) -> Instant:
        return Instant(self._began_at + self._running_s())

    def follow(self, now: Instant, read_at: float) -> None:
        """It was this late when we read it there: on its way here a moment passed, so we are never ahead."""
        self._began_at = now - read_at
