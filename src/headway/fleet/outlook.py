"""How the sites of a crawl by several stand, for those who look on: what each collector knows of its sites,
put beside what the leader has planned for all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

import msgspec

from headway.crawl.machine import Crawl
from headway.model.page import Site
from headway.policy.allocation.allocator import Allocation
from headway.policy.allocation.demand import SiteDemand
from headway.policy.estimate import Remaining, forecast_range
from headway.store.course import SiteCourse
from headway.units import Instant, Seconds

_ROWS_A_TURN = 150
_LEAST_S = Seconds(1.0)
_PART_OF_ELAPSED = 0.05
_NOTHING = Remaining(0.0, 0.0, 0.0)


class SiteOutlook(msgspec.Struct, frozen=True, gc=False, array_like=True):
    waiting: int
    remaining: Remaining


def outlooks_of(crawl: Crawl, demands: Sequence[SiteDemand]) -> tuple[SiteOutlook, ...]:
    """Of the sites that ask for something, in the same order."""
    steward, room = crawl.steward, crawl.frontier.room
    assert steward is not None
    return tuple(
        SiteOutlook(room(demand.site).waiting, steward.remaining_of(demand.site) or _NOTHING)
        for demand in demands
    )


class FleetChronicle:
    """Rows of sites, the further apart the longer the crawl has lasted, as those of a crawl by one."""

    def __init__(self, began_at: Instant, wire_bytes_of: Callable[[Site], int]) -> None:
        self._began_at = began_at
        self._wire_bytes_of = wire_bytes_of
        self._due_at: dict[Site, float] = {}

    def course(
        self, now: Instant, standing: Iterable[tuple[SiteDemand, SiteOutlook]], plan: Allocation | None
    ) -> list[SiteCourse]:
        pause_s = max(_LEAST_S, _PART_OF_ELAPSED * (now - self._began_at))
        rows = []
        for demand, outlook in islice(self._due(now, standing), _ROWS_A_TURN):
            self._due_at[demand.site] = now + pause_s
            rows.append(self._row(now, demand, outlook, plan))
        return rows

    def _due(
        self, now: Instant, standing: Iterable[tuple[SiteDemand, SiteOutlook]]
    ) -> Iterator[tuple[SiteDemand, SiteOutlook]]:
        return (each for each in standing if self._due_at.get(each[0].site, 0.0) <= now)

    def _row(
        self, now: Instant, demand: SiteDemand, outlook: SiteOutlook, plan: Allocation | None
    ) -> SiteCourse:
        site = demand.site
        row = SiteCourse(
            site, now, self._wire_bytes_of(site), outlook.waiting, left_bytes=demand.remaining_bytes
        )
        if plan is None or site not in plan.forecast:
            return row
        ends = forecast_range(now, plan.forecast[site], outlook.remaining)
        share = plan.rates.get(site, 0.0)
        return msgspec.structs.replace(
            row, share_bytes_per_s=share, forecast_from_at=ends[0], forecast_to_at=ends[1]
        )
