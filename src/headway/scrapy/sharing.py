"""Which site of a spider gets which part of the link, and when each will be done.

The same allocation as in a crawl of headway's own: from what is left of each site, the most that it can give,
its deadline and weight, to rates. What the sites do not use is lent to the others by the pacer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from headway.model.page import Site
from headway.policy.allocation.allocator import Allocation, Allocator, SiteDemand
from headway.policy.allocation.capacity import Timetable as Capacity
from headway.policy.estimate import cap_bytes_per_s, page_bytes, remaining_bytes
from headway.policy.prediction import Prediction
from headway.policy.timetable import Segment
from headway.scrapy.settings import LinkSettings
from headway.scrapy.tally import SiteTally
from headway.units import FOREVER, BytesPerSecond, Instant, Seconds

_MARGIN = 0.1
"""Of the time left to a deadline, kept in hand: what a plan is made from is never exact."""
_TURN_S = 0.02
_NOTHING = Allocation({}, FOREVER, {}, ())


class Sharing:
    def __init__(self, settings: LinkSettings, prediction: Prediction) -> None:
        self._settings = settings
        self._prediction = prediction
        self._allocator = Allocator(settings.objective)
        self._allocation = _NOTHING

    def decide(
        self, now: Instant, tallies: Iterable[SiteTally], segments: list[Segment]
    ) -> dict[Site, BytesPerSecond]:
        """Rates from now on; `segments` is the bound ahead."""
        demands = [self._demand(now, tally, segments[0][2]) for tally in tallies if tally.is_busy]
        capacity = _capacity(segments)
        self._allocation = self._allocator.decide(now, demands, capacity) if demands else _NOTHING
        return dict(self._allocation.rates)

    def ends_at(self) -> Instant | None:
        """When the last site will be done, as far as is known; None when nothing is to come."""
        return max(self._allocation.forecast.values(), default=None)

    def late(self) -> tuple[Site, ...]:
        """Sites foreseen to miss their deadline."""
        forecast = self._allocation.forecast
        return tuple(
            site for site, end_at in forecast.items() if end_at > (self.deadline_of(site) or FOREVER)
        )

    def deadline_of(self, site: Site) -> Instant | None:
        return self._settings.wish_for(site).deadline_at or self._settings.deadline_at

    def _demand(self, now: Instant, tally: SiteTally, link_bytes_per_s: BytesPerSecond) -> SiteDemand:
        wish = self._settings.wish_for(tally.site)
        evidence = tally.evidence(wish.data_bytes)
        size = page_bytes(evidence)
        left = remaining_bytes(evidence).guarded() + tally.in_flight * size
        deadline = self.deadline_of(tally.site)
        if deadline is not None and deadline > now:
            deadline = Instant(deadline - _MARGIN * (deadline - now))
        return SiteDemand(
            tally.site,
            max(left, 1.0),
            deadline,
            BytesPerSecond(min(self._cap(now, tally, size), max(link_bytes_per_s, 1.0))),
            wish.weight,
        )

    def _cap(self, now: Instant, tally: SiteTally, size_bytes: float) -> float:
        """The most that the site can give to all requests that may be under way together."""
        lanes = self._settings.lanes
        one = cap_bytes_per_s(
            size_bytes,
            pause_s=Seconds(0.0),
            latency_s=Seconds(_TURN_S),
            server_rate_bytes_per_s=self._prediction.predict(now, tally.server),
        )
        delay_s = self._settings.delay_s
        return min(one * lanes, size_bytes / delay_s if delay_s > 0 else math.inf)


def _capacity(segments: list[Segment]) -> Capacity:
    steps = [(float(from_s), float(rate)) for from_s, _, rate in segments]
    if not steps[-1][1]:
        # Some day the link is free again; the allocation needs to see that day.
        steps.append((float(segments[-1][1]), max(rate for _, rate in steps) or 1.0))
    return Capacity(steps)
