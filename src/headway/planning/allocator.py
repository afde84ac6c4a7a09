"""The allocator of a running crawl: rates now, how long they are valid, and when each site will end.

The allocator follows a plan and makes a new one only when something relevant has changed: sites appeared or
disappeared unexpectedly, a deadline, a cap or the link changed, or the remaining data differs from the
forecast. The same events always lead to the same decisions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from operator import is_not

import msgspec
import numpy as np

from headway.model.page import Site
from headway.planning.feasibility import Work, least_bandwidths
from headway.planning.priority_lists import Watch, holds_until_s, order_now, rates_in_order
from headway.planning.problem import (
    LATE_TOLERANCE,
    BoolArray,
    FloatArray,
    IntArray,
    Objective,
    Problem,
    Timetable,
)
from headway.planning.rate_plan import Doubt, RatePlan, are_few, plan_carefully, plan_many_carefully
from headway.units import BytesPerSecond, Instant, Seconds


class SiteDemand(msgspec.Struct, frozen=True, gc=False):
    site: Site
    remaining_bytes: float
    """Data still to fetch, including xi. A site with nothing left is skipped."""
    deadline_at: Instant | None = None
    cap_bytes_per_s: BytesPerSecond = BytesPerSecond(math.inf)
    weight: float = 1.0


class DemandColumns:
    """Demands as arrays. A crawl asks often and most demands do not change, so only demands that are a
    different object than last time at the same index are read again."""

    def __init__(self) -> None:
        self._demands: Sequence[SiteDemand] = ()
        self._number_by_site: dict[Site, int] = {}
        self.sites: list[Site] = []
        self.numbers: IntArray = np.zeros(0, dtype=np.int64)
        """Stable numbers: a site keeps its number when other sites appear or disappear."""
        self._left = self._cap = self._due_at = self._weight = np.zeros(0)

    def read(self, demands: Sequence[SiteDemand]) -> None:
        """Update the arrays. Sites without remaining data or with a cap of 0 are left out."""
        changed = self._changed(demands)
        if changed is None:
            self._read_all(demands)
        else:
            news = [demands[index] for index in changed.tolist()]
            if [demand.site for demand in news] != [self.sites[index] for index in changed.tolist()]:
                self._read_all(demands)
            else:
                self._left[changed], self._cap[changed], self._due_at[changed], self._weight[changed] = (
                    _columns(news)
                )
                self._demands = demands
        if not np.all((self._left > 0) & (self._cap > 0)):
            self._read_all([one for one in demands if one.remaining_bytes > 0 and one.cap_bytes_per_s > 0])

    def work(self, now: Instant, link: Timetable, seats: int | None) -> Work:
        return Work.of(
            self._left.copy(),
            self._cap,
            self._due_at - now,
            weight=self._weight.copy(),
            link=link,
            seats=max(len(self.sites), 1) if seats is None else seats,
        )

    @property
    def cap_bytes_per_s(self) -> FloatArray:
        return self._cap

    def _changed(self, demands: Sequence[SiteDemand]) -> IntArray | None:
        """The indexes whose demand is a different object than last time; None if most of them are."""
        if len(demands) != len(self._demands):
            return None
        fresh = np.fromiter(map(is_not, demands, self._demands), dtype=bool, count=len(demands))
        places = np.flatnonzero(fresh)
        return places if len(places) < len(demands) // 2 else None

    def _read_all(self, demands: Sequence[SiteDemand]) -> None:
        sites = [demand.site for demand in demands]
        if sites != self.sites:
            known = self._number_by_site
            self.numbers = np.array([known.setdefault(site, len(known)) for site in sites], dtype=np.int64)
            self.sites = sites
        self._left, self._cap, self._due_at, self._weight = _columns(demands)
        self._demands = demands


def _columns(demands: Sequence[SiteDemand]) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    due_at = [math.inf if demand.deadline_at is None else demand.deadline_at for demand in demands]
    return (
        np.array([demand.remaining_bytes for demand in demands], dtype=np.float64),
        np.array([demand.cap_bytes_per_s for demand in demands], dtype=np.float64),
        np.array(due_at, dtype=np.float64),
        np.array([demand.weight for demand in demands], dtype=np.float64),
    )


class Allocation(msgspec.Struct, frozen=True):
    rates: dict[Site, BytesPerSecond]
    """Only sites with a rate above 0; the others wait."""
    decide_again_at: Instant
    forecast: dict[Site, Instant]
    """When each site will end. With many sites it is an upper bound."""
    late: tuple[Site, ...]
    """Sites that will miss their deadlines, according to the forecast."""


class Advice(msgspec.Struct, frozen=True):
    """What would help if deadlines cannot be met."""

    bandwidth_bytes_per_s: BytesPerSecond | None
    """The least bandwidth that meets all deadlines; None if none does."""
    out_of_reach: dict[Site, Instant]
    """Sites whose own cap is too low, and the earliest instant at which they could end."""


@dataclass(frozen=True, eq=False, slots=True)
class Decision:
    """An `Allocation` in columns, with the data needed to pass on shares until the next decision."""

    rates: FloatArray
    until_s: float
    ends_s: FloatArray
    order: IntArray
    guard_s: FloatArray
    late: BoolArray
    """Sites that miss their deadlines by this plan if they hold as much as expected."""
    is_tight: bool = False
    """Deadlines are kept with hardly any reserve."""


_ANY_LINK = Timetable.constant(1.0)


class Allocator:
    """Deterministic: its decisions depend only on the sequence of calls. Ties go to the first site in
    `demands`."""

    limits_until = Instant(-math.inf)
    """Until then a site's rate is the most that it gets, too: what others do not use is not lent to it."""
    takes_doubt = True
    """Whether `decide_columns` allows for more data than expected."""

    def __init__(
        self,
        objective: Objective = Objective.MAX_COMPLETION,
        *,
        seats: int | None = None,
        unhurried: bool = False,
    ) -> None:
        self._objective = objective
        self._seats = seats
        self._unhurried = unhurried
        self._columns = DemandColumns()
        self._rate_plan: RatePlan | None = None
        self.plans_made = 0

    @property
    def seats(self) -> int | None:
        """How many sites may be served at once; None: all."""
        return self._seats

    @property
    def takes_columns(self) -> bool:
        """Whether `decide_columns` can be called: not where another policy replaces `decide`."""
        return type(self).decide is Allocator.decide

    def decide(
        self,
        now: Instant,
        demands: Sequence[SiteDemand],
        capacity: Timetable,
        *,
        at_least_s: Seconds = Seconds(0.0),
    ) -> Allocation:
        """Decide the rates from `now` on. The times of `capacity` are relative to `now`. The next decision is
        requested in `at_least_s` at the earliest, and deadlines are guarded that much earlier."""
        self._columns.read(demands)
        sites, work = self._columns.sites, self._columns.work(now, capacity, self._seats)
        decision = self.decide_columns(now, self._columns.numbers, work, float(at_least_s))
        ends_at = (now + decision.ends_s).tolist()
        served = np.flatnonzero(decision.rates).tolist()
        late = decision.ends_s > work.due_s + LATE_TOLERANCE * np.maximum(decision.ends_s, 1.0)
        return Allocation(
            rates={sites[i]: BytesPerSecond(float(decision.rates[i])) for i in served},
            decide_again_at=Instant(now + decision.until_s),
            forecast=dict(zip(sites, ends_at, strict=True)),
            late=tuple(sites[i] for i in np.flatnonzero(late).tolist()),
        )

    def decide_columns(
        self,
        now: float,
        numbers: IntArray,
        work: Work,
        at_least_s: float = 0.0,
        doubt: Doubt | None = None,
    ) -> Decision:
        """`decide` for sites in columns, identified by stable numbers. `doubt`: how far the
        sites may be from `work`, which is what is expected."""
        if not len(work):
            nothing = np.zeros(0)
            return Decision(nothing, math.inf, nothing, np.zeros(0, np.int64), nothing, np.zeros(0, np.bool_))
        if not are_few(len(work), self._unhurried):
            return self._decide_for_many(work, at_least_s, doubt)
        rate_plan = self._rate_plan
        if rate_plan is None or not rate_plan.is_right(now, numbers, work):
            incumbent = None if rate_plan is None else rate_plan.order_of(numbers)
            self.plans_made += 1
            is_first = self._unhurried and self.plans_made == 1
            careful = plan_carefully(work, doubt, self._objective, incumbent, unhurried=is_first)
            rate_plan = self._rate_plan = RatePlan(now, numbers, work, careful, is_exact=doubt is None)
        place, guard_s, ends_s = rate_plan.seen_at(now, numbers)
        reserved = rate_plan.caution.more(work, doubt)
        watch = Watch.of(reserved, guard_s)
        order = order_now(watch, place, at_least_s)
        rates = rates_in_order(work, order, work.link.at(0.0))
        until_s = max(holds_until_s(watch, rates), at_least_s)
        rate_plan.follow(now, numbers, rates)
        late = rate_plan.is_late(numbers)
        is_tight = rate_plan.caution.is_small and bool(np.any(np.isfinite(work.due_s) & ~late))
        return Decision(
            rates,
            until_s,
            np.maximum(ends_s, 0.0),
            order,
            guard_s,
            late,
            is_tight=is_tight and doubt is not None,
        )

    def _decide_for_many(self, work: Work, at_least_s: float, doubt: Doubt | None) -> Decision:
        """With many sites the plan is a single fast rule, which is applied again for each decision."""
        self._rate_plan = None
        self.plans_made += 1
        is_first = self._unhurried and self.plans_made == 1
        careful = plan_many_carefully(work, doubt, self._objective, unhurried=is_first)
        plan, work = careful.plan, careful.caution.more(work, doubt)
        order, watch = plan.order, plan.watch
        if watch is None:
            watch = Watch.of(work, np.full(len(work), math.inf))
        else:
            place = np.empty(len(work), dtype=np.int64)
            place[plan.order] = np.arange(len(work))
            order = order_now(watch, place, at_least_s)
        rates = rates_in_order(work, order, work.link.at(0.0))
        until_s = max(holds_until_s(watch, rates, exact=False), at_least_s)
        return Decision(rates, until_s, plan.ends_s, order, watch.guard_s, careful.late)


def advise(
    now: Instant, demands: Sequence[SiteDemand], capacity: Timetable, seats: int | None = None
) -> Advice:
    """The bandwidth needed to meet all deadlines from now on, and the sites that no bandwidth helps."""
    columns = DemandColumns()
    columns.read(demands)
    work, caps = columns.work(now, capacity, seats), columns.cap_bytes_per_s
    shortest_s = work.left_bytes / caps
    beyond = shortest_s > work.due_s
    return Advice(
        bandwidth_bytes_per_s=least_bandwidth(work.left_bytes, caps, work.due_s, work.seats),
        out_of_reach={
            columns.sites[i]: Instant(now + shortest_s[i]) for i in np.flatnonzero(beyond).tolist()
        },
    )


def least_bandwidth(
    left_bytes: FloatArray, cap_bytes_per_s: FloatArray, due_s: FloatArray, seats: int | None = None
) -> BytesPerSecond | None:
    """The least bandwidth that meets all deadlines; None if no bandwidth does."""
    if np.any(left_bytes / cap_bytes_per_s > due_s):
        return None
    problem = Problem(
        names=(),
        data_bytes=left_bytes,
        deadline_s=due_s,
        cap_bytes_per_s=cap_bytes_per_s,
        weight=np.ones(len(left_bytes)),
        capacity=_ANY_LINK,
        crawlers=max(len(left_bytes), 1) if seats is None else seats,
    )
    least, _ = least_bandwidths(problem)
    return BytesPerSecond(least) if math.isfinite(least) else None
