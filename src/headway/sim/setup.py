"""The parameters of a simulated crawl."""

from __future__ import annotations

import math

import msgspec

from headway.errors import JobError
from headway.policy.ordering import parse_ordering
from headway.policy.politeness import Politeness
from headway.policy.timetable import Timetable
from headway.sim.web import Web
from headway.units import UNBOUNDED, BytesPerSecond, Seconds


class Setup(msgspec.Struct, frozen=True):
    """castillo2004's parameters: strategy, r robots, w seconds between connections, k pages on each."""

    strategy: str = "length"
    robots: int = 64
    interval_s: Seconds = Seconds(15.0)
    pages_per_connection: int = 1
    bandwidth: Timetable | BytesPerSecond = UNBOUNDED
    seed: int = 0
    asks_robots_txt: bool = False

    def check(self, web: Web) -> None:
        """JobError for what cannot be simulated on this web."""
        if self.robots < 1:
            raise JobError(f"{self.robots} robots fetch nothing; give at least one")
        if not (self.interval_s >= 0 and math.isfinite(self.interval_s)):
            raise JobError(f"an interval of {self.interval_s} s cannot be; it must not be negative")
        if self.pages_per_connection < 1:
            raise JobError(f"{self.pages_per_connection} pages a connection fetch nothing; give at least one")
        rates = [self.timetable.usual_bytes_per_s, *(e.rate_bytes_per_s for e in self.timetable.entries)]
        if not max(rates) > 0 or min(rates) < 0:
            raise JobError("a bandwidth must be above zero, or nothing ever arrives")
        _, size = parse_ordering(self.strategy)
        if size is not None and size > web.pages:
            raise JobError(f"{self.strategy}: the web {web.name} has only {web.pages} pages")

    @property
    def timetable(self) -> Timetable:
        return self.bandwidth if isinstance(self.bandwidth, Timetable) else Timetable(self.bandwidth)

    @property
    def politeness(self) -> Politeness:
        return Politeness(self.interval_s, self.pages_per_connection)
