"""Clocks for tests: one that a test moves, and one that reads the running loop's own time."""

from __future__ import annotations

import asyncio

from headway.units import Instant


class ManualClock:
    """Stands still until `advance`. Satisfies `headway.ports.Clock`."""

    def __init__(self, start_at: float = 0.0) -> None:
        self._now = float(start_at)

    def now(self) -> Instant:
        return Instant(self._now)

    def advance(self, seconds: float) -> Instant:
        if not seconds >= 0:
            raise ValueError(f"a clock does not run backwards: advance({seconds})")
        self._now += seconds
        return Instant(self._now)

    def advance_to(self, instant: float) -> Instant:
        """Exactly that instant: adding a difference could miss it by a rounding."""
        if not instant >= self._now:
            raise ValueError(f"a clock does not run backwards: from {self._now} to {instant}")
        self._now = float(instant)
        return Instant(self._now)


class LoopClock:
    """The running loop's time: virtual time under `VirtualTimeLoop`."""

    def now(self) -> Instant:
        return Instant(asyncio.get_running_loop().time())
