"""What a running crawl asks: who gets how much now, until when, when will each site end, who will be late.

The allocator keeps the plan it follows, and makes a new one only when something moved that matters: sites
came or went unforeseen, a deadline, a cap or the link changed, or the data left is not what was foreseen.
The same events always lead to the same decisions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from headway.model.page import Site
from headway.policy.allocation.capacity import FloatArray, IntArray, Timetable
from headway.policy.allocation.course import Course
from headway.policy.allocation.demand import DemandColumns, SiteDemand
from headway.policy.allocation.feasibility import Work, least_bandwidths
from headway.policy.allocation.guard import Watch, holds_until_s, order_now
from headway.policy.allocation.listing import rates_in_order
from headway.policy.allocation.portfolio import Plan, are_few, make_plan
from headway.policy.allocation.problem import LATE_TOLERANCE, Objective, Problem
from headway.units import BytesPerSecond, Instant, Seconds

__all__ = ["Advice", "Allocation", "Allocator", "Decision", "SiteDemand", "advise"]


class Allocation(msgspec.Struct, frozen=True):
    rates: dict[Site, BytesPerSecond]
    """Only sites that get something now; the others wait their turn."""
    decide_again_at: Instant
    forecast: dict[Site, Instant]
    """When each site will end. With many sites it is a bound: at the latest."""
    late: tuple[Site, ...]
    """Sites that will miss their deadlines, as far as is known now."""


class Advice(msgspec.Struct, frozen=True):
    """What would help when deadlines cannot be met."""

    bandwidth_bytes_per_s: BytesPerSecond | None
    """The least that meets all deadlines; None when no bandwidth would."""
    out_of_reach: dict[Site, Instant]
    """Sites whose own cap is too low, and the earliest that they could end with all they can take."""


@dataclass(frozen=True, eq=False, slots=True)
class Decision:
    """An `Allocation` in columns, with what it takes to hand shares on until the next decision."""

    rates: FloatArray
    until_s: float
    ends_s: FloatArray
    order: IntArray
    guard_s: FloatArray


class Allocator:
    """Deterministic: what it decides follows from what it was told, in the order it was told.

    Ties go to the site that comes first in `demands`.
    """

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
        self._course: Course | None = None
        self.plans_made = 0

    def decide(
        self,
        now: Instant,
        demands: Sequence[SiteDemand],
        capacity: Timetable,
        *,
        at_least_s: Seconds = Seconds(0.0),
    ) -> Allocation:
        """`capacity` is reckoned from `now`. The next decision is asked for no sooner than in `at_least_s`,
        and deadlines are guarded that much earlier."""
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

    def decide_columns(self, now: float, numbers: IntArray, work: Work, at_least_s: float = 0.0) -> Decision:
        """The same for sites in columns, known by numbers that stay with them."""
        if not len(work):
            return Decision(np.zeros(0), math.inf, np.zeros(0), np.zeros(0, dtype=np.int64), np.zeros(0))
        if not are_few(len(work), self._unhurried):
            return self._decide_for_many(work, at_least_s)
        course = self._course
        if course is None or not course.is_right(now, numbers, work):
            incumbent = None if course is None else course.order_of(numbers)
            course = self._course = Course(now, numbers, work, self._plan(work, incumbent))
        place, guard_s, ends_s = course.seen_at(now, numbers)
        watch = Watch.of(work, guard_s)
        order = order_now(watch, place, at_least_s)
        rates = rates_in_order(work, order, work.link.at(0.0))
        until_s = max(holds_until_s(watch, rates), at_least_s)
        course.follow(now, numbers, rates)
        return Decision(rates, until_s, np.maximum(ends_s, 0.0), order, guard_s)

    def _decide_for_many(self, work: Work, at_least_s: float) -> Decision:
        """With many sites a plan is one quick rule, which is best applied afresh."""
        self._course = None
        plan = self._plan(work, None)
        order, watch = plan.order, plan.watch
        if watch is None:
            watch = Watch.of(work, np.full(len(work), math.inf))
        else:
            place = np.empty(len(work), dtype=np.int64)
            place[plan.order] = np.arange(len(work))
            order = order_now(watch, place, at_least_s)
        rates = rates_in_order(work, order, work.link.at(0.0))
        until_s = max(holds_until_s(watch, rates, exact=False), at_least_s)
        return Decision(rates, until_s, plan.ends_s, order, watch.guard_s)

    def _plan(self, work: Work, incumbent: IntArray | None) -> Plan:
        self.plans_made += 1
        return make_plan(work, self._objective, incumbent, unhurried=self._unhurried and self.plans_made == 1)


def advise(
    now: Instant, demands: Sequence[SiteDemand], capacity: Timetable, seats: int | None = None
) -> Advice:
    """What it would take to meet all deadlines from here."""
    columns = DemandColumns()
    columns.read(demands)
    work, caps = columns.work(now, capacity, seats), columns.cap_bytes_per_s
    shortest_s = work.left_bytes / caps
    beyond = shortest_s > work.due_s
    least = math.inf
    if not np.any(beyond):
        problem = Problem(
            names=columns.sites,
            data_bytes=work.left_bytes,
            deadline_s=work.due_s,
            cap_bytes_per_s=caps,
            weight=work.weight,
            capacity=capacity,
            crawlers=work.seats,
        )
        least, _ = least_bandwidths(problem)
    return Advice(
        bandwidth_bytes_per_s=BytesPerSecond(least) if math.isfinite(least) else None,
        out_of_reach={
            columns.sites[i]: Instant(now + shortest_s[i]) for i in np.flatnonzero(beyond).tolist()
        },
    )
