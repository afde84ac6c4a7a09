"""How a plan allows for sites that hold more than expected, without losing a deadline by that.

An exact plan serves each site at the last instant at which its deadline can still be met, but its inputs are
estimates. So a plan is made twice: by what is expected, which decides which deadlines are kept, and again
with more data and earlier deadlines, as far as the link allows that for the deadlines that are kept. A
deadline that the expected sizes meet is never given up for the sake of a reserve.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from headway.planning import priority_lists
from headway.planning.feasibility import Work, is_feasible, keepable_of_many
from headway.planning.problem import LATE_TOLERANCE, BoolArray, FloatArray, IntArray, Objective, Problem
from headway.planning.rate_plan import Plan, are_few, make_plan, plan_for_many


@dataclass(frozen=True, eq=False, slots=True)
class Doubt:
    """How far the sites may be from what is expected."""

    more_bytes: FloatArray
    """They may hold so much more."""
    spread: FloatArray
    """The deviation of the logarithm of what is left."""


@dataclass(frozen=True, slots=True)
class Caution:
    """The reserve of a plan."""

    time: float
    """Part of the time left to a deadline that is kept in reserve. It shrinks as the deadline approaches,
    since the plan is made again."""
    doubt: float
    """Part of the doubt about the size of each site that is planned for."""

    @property
    def is_small(self) -> bool:
        return self.time < _SMALL

    def more(self, work: Work, doubt: Doubt | None) -> Work:
        """The work with more data."""
        if doubt is None or not self.doubt:
            return work
        return replace(work, left_bytes=work.left_bytes + self.doubt * doubt.more_bytes)

    def earlier(self, due_s: FloatArray) -> FloatArray:
        """The deadlines with the reserve of time before them."""
        return np.where((due_s > 0) & np.isfinite(due_s), (1 - self.time) * due_s, due_s)


_SMALL = 0.1
NONE = Caution(0.0, 0.0)
CAUTIONS = (
    Caution(0.4, 1.0),
    Caution(0.25, 1.0),
    Caution(0.1, 1.0),
    Caution(0.06, 0.5),
    Caution(0.03, 0.25),
    Caution(0.015, 0.0),
)
"""From the largest on: the first that the link allows is taken."""


_OPTIMISM = 0.5
"""So many deviations of what is left of a site are allowed for before its deadline is given up: what is given
up by mistake cannot be made up for, and estimates move from one page to the next."""


@dataclass(frozen=True, eq=False, slots=True)
class CarefulPlan:
    plan: Plan
    caution: Caution
    late: BoolArray
    """Sites that miss their deadlines if they hold as much as expected."""


def plan_carefully(
    work: Work,
    doubt: Doubt | None,
    objective: Objective,
    incumbent: IntArray | None = None,
    *,
    unhurried: bool = False,
) -> CarefulPlan:
    """The best plan of the portfolio, with the largest reserve that loses no deadline."""
    if doubt is not None and is_careful(work, CAUTIONS[0], doubt, np.isfinite(work.due_s)):
        # Nothing is lost by the largest reserve: it is the usual case.
        careful = _with_reserve(work, CAUTIONS[0], doubt, np.isfinite(work.due_s))
        plan = make_plan(careful, objective, incumbent, unhurried=unhurried)
        if not np.any(_late(plan.ends_s, work.due_s)):
            return CarefulPlan(plan, CAUTIONS[0], np.zeros(len(work), dtype=bool))
    hopeful = work if doubt is None else _hopeful(work, doubt)
    expected = make_plan(hopeful, objective, incumbent, unhurried=unhurried)
    late = _late(expected.ends_s, work.due_s)
    kept = np.isfinite(work.due_s) & ~late
    if doubt is None or not np.any(kept):
        return CarefulPlan(expected, NONE, late)
    for caution in CAUTIONS:
        if not is_careful(work, caution, doubt, kept):
            continue
        careful = _with_reserve(work, caution, doubt, kept, objective)
        plan = make_plan(careful, objective, expected.order, unhurried=unhurried)
        if not np.any(_late(plan.ends_s, work.due_s) & kept):
            return CarefulPlan(plan, caution, late)
    return CarefulPlan(_earliest_first(work, kept, expected), NONE, late)


def _hopeful(work: Work, doubt: Doubt) -> Work:
    """The work if the sites hold a little less than expected."""
    return replace(work, left_bytes=work.left_bytes * np.exp(-_OPTIMISM * doubt.spread))


def _earliest_first(work: Work, kept: BoolArray, expected: Plan) -> Plan:
    """Without any reserve, the deadlines that are kept one after the other: no other order makes them
    safer."""
    by_deadline = priority_lists.earliest_deadline_first(work, work.due_s)
    order = np.concatenate((by_deadline[kept[by_deadline]], expected.order[~kept[expected.order]]))
    ends_s = priority_lists.ends_in_order(work, order)
    return Plan(order, np.full(len(work), math.inf), ends_s, expected.score, guarded=False)


def given_up(problem: Problem, objective: Objective) -> BoolArray:
    """The deadlines that a crawl gives up at its start, if the sites hold what the problem says."""
    work = Work.at_start(problem)
    if not len(work):
        return np.zeros(0, dtype=bool)
    plan = plan_carefully if are_few(len(work), unhurried=False) else plan_many_carefully
    return plan(work, None, objective).late


def plan_many_carefully(
    work: Work, doubt: Doubt | None, objective: Objective, *, unhurried: bool = False
) -> CarefulPlan:
    """The same for many sites, by one fast rule."""
    timed, is_live = np.isfinite(work.due_s), doubt is not None
    kept, late = timed, np.zeros(len(work), dtype=bool)
    if np.any(timed) and not is_feasible(work, work.due_s):
        if objective is Objective.LATE_SITES:
            hopeful = work if doubt is None else _hopeful(work, doubt)
            kept = keepable_of_many(hopeful, work.due_s)
            late = timed & ~kept
            work = replace(work, due_s=np.where(kept, work.due_s, math.inf))
        else:
            late = _late(plan_for_many(work, objective, unhurried, is_live=is_live).ends_s, work.due_s)
            kept = timed & ~late
    for caution in CAUTIONS if doubt is not None and np.any(kept) else ():
        if is_careful(work, caution, doubt, kept):
            careful = _with_reserve(work, caution, doubt, kept)
            return CarefulPlan(plan_for_many(careful, objective, unhurried, is_live=is_live), caution, late)
    return CarefulPlan(plan_for_many(work, objective, unhurried, is_live=is_live), NONE, late)


def is_careful(work: Work, caution: Caution, doubt: Doubt | None, kept: BoolArray) -> bool:
    """Whether the deadlines that are kept can be met with this reserve."""
    return is_feasible(caution.more(work, doubt), caution.earlier(np.where(kept, work.due_s, math.inf)))


def _with_reserve(
    work: Work,
    caution: Caution,
    doubt: Doubt | None,
    kept: BoolArray,
    objective: Objective | None = None,
) -> Work:
    """The work with a reserve for the deadlines that are kept. By the number of late sites, a deadline that
    is given up does not count any more."""
    given_up_s = np.inf if objective is Objective.LATE_SITES else work.due_s
    due_s = np.where(kept, caution.earlier(work.due_s), given_up_s)
    return replace(caution.more(work, doubt), due_s=due_s)


def _late(ends_s: FloatArray, due_s: FloatArray) -> BoolArray:
    late: BoolArray = ends_s > due_s + LATE_TOLERANCE * np.maximum(ends_s, 1.0)
    return late
