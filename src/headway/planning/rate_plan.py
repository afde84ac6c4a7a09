"""The plan that a crawl follows: the best of several priority lists, kept until the facts deviate from it.

No single rule is best for every job, and a schedule of some hundred sites is computed in milliseconds. So
several lists and sets of guarded deadlines are tried. For more sites there is only one rule.

An exact plan serves each site at the last instant at which its deadline can still be met, but its inputs are
estimates. So a plan is made twice (`Caution`): by what is expected, which decides which deadlines are kept,
and again with more data and earlier deadlines, as far as the link allows that for the deadlines that are
kept. A deadline that the expected sizes meet is never given up for the sake of a reserve.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from headway.planning import feasibility, priority_lists
from headway.planning.feasibility import Work, is_feasible, keepable_of_many
from headway.planning.priority_lists import Watch, ends_in_order, run_guarded
from headway.planning.problem import (
    LATE_TOLERANCE,
    BoolArray,
    FloatArray,
    IntArray,
    Objective,
    Problem,
    Timetable,
)

FEW_SITES = 150
"""Up to this many sites all combinations are tried, if there is time."""
FEW_SITES_IN_A_HURRY = 40
"""The same limit in a running crawl, which is blocked meanwhile, for some tens of milliseconds."""

Score = tuple[float, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Plan:
    """A list to follow and the guarded deadline of each site (infinity: none), from the time of planning."""

    order: IntArray
    guard_s: FloatArray
    ends_s: FloatArray
    score: Score
    guarded: bool
    """False if the list alone meets every guard, so that none has to be watched."""
    watch: Watch | None = None
    """The state of the guards at the start, if it was computed anyway."""


def make_plan(
    work: Work, objective: Objective, incumbent: IntArray | None = None, *, unhurried: bool = False
) -> Plan:
    """The best plan of the portfolio. The incumbent order wins ties, so that a crawl does not oscillate.

    `unhurried` allows seconds of computing for many sites; a running crawl has milliseconds.
    """
    if not are_few(len(work), unhurried):
        return plan_for_many(work, objective, unhurried)
    best: Plan | None = None
    for order, guard_s in _candidates(work, objective, incumbent, unhurried):
        plan = _work_out(work, order, guard_s, objective)
        if best is None or plan.score < best.score:
            best = plan
    assert best is not None
    in_shortage = best.score[0] > 0 and not work.is_uncapped and objective is not Objective.LATE_SITES
    return _searched(work, objective, best) if unhurried and in_shortage else best


_MOST_MOVES, _MOVES_TIMES_SITES = 500, 25_000
"""Of the search, which takes about two seconds."""
_LATE_MOVES = 0.5
"""So many of the moves are of late sites."""


def _searched(work: Work, objective: Objective, best: Plan) -> Plan:
    """Where deadlines cannot all be met and sites have caps, no list is near the best for all jobs: sites are
    moved in the list as long as that helps."""
    chance = np.random.default_rng(len(work))
    order, no_guard = best.order, np.full(len(work), math.inf)
    best_of_list = _work_out(work, order, no_guard, objective)
    late = np.flatnonzero(best_of_list.ends_s > work.due_s)
    for _ in range(min(_MOST_MOVES, _MOVES_TIMES_SITES // len(work))):
        site = int(chance.choice(late)) if len(late) and chance.random() < _LATE_MOVES else -1
        place = int(np.flatnonzero(order == site)[0]) if site >= 0 else int(chance.integers(len(order)))
        moved = np.insert(np.delete(order, place), int(chance.integers(len(order))), order[place])
        plan = _work_out(work, moved, no_guard, objective)
        if plan.score < best_of_list.score:
            best_of_list, order = plan, moved
            late = np.flatnonzero(plan.ends_s > work.due_s)
    return min(best, best_of_list, key=lambda plan: plan.score)


def are_few(sites: int, unhurried: bool) -> bool:
    return sites <= (FEW_SITES if unhurried else FEW_SITES_IN_A_HURRY)


def score_of(work: Work, ends_s: FloatArray, objective: Objective) -> Score:
    """Deadlines first, then the objective; smaller is better. Rounding turns near ties into ties."""
    over = ends_s - work.due_s
    late = over > LATE_TOLERANCE * np.maximum(ends_s, 1.0)
    tardiness = float((work.weight * over)[late].sum())
    late_weight = float(work.weight[late].sum())
    last, total = float(ends_s.max(initial=0.0)), float((work.weight * ends_s).sum())
    unit = max(feasibility.lower_bound_max_end_s(work), 1e-9)
    tardiness, last, total = (round(value / unit, 6) for value in (tardiness, last, total))
    match objective:
        case Objective.LATE_SITES:
            return late_weight, tardiness, total, last
        case Objective.TARDINESS:
            return tardiness, late_weight, total, last
        case Objective.SUM_COMPLETION:
            return tardiness, total, last
        case Objective.MAX_COMPLETION:
            return tardiness, last, total


def _candidates(
    work: Work, objective: Objective, incumbent: IntArray | None, unhurried: bool
) -> Iterator[tuple[IntArray, FloatArray]]:
    due_s, uncapped = work.due_s, work.is_uncapped
    by_length, by_deadline = (
        priority_lists.shortest_first(work),
        priority_lists.earliest_deadline_first(work, due_s),
    )
    lists = [] if incumbent is None else [incumbent]
    lists += [priority_lists.modified_due_date(work, due_s), priority_lists.longest_last(work, due_s)]
    if unhurried or uncapped:
        lists += [by_length, by_deadline]
    for guard_s in _guards(work, objective, unhurried):
        for order in lists:
            yield order, guard_s
    if not feasibility.is_feasible(work, due_s):
        kept = feasibility.keepable(work, due_s)
        given_up_last = np.concatenate((by_deadline[kept[by_deadline]], by_length[~kept[by_length]]))
        for order in (given_up_last, *(lists if unhurried else lists[:1])):
            yield order, np.where(kept & ~uncapped, due_s, math.inf)


def _guards(work: Work, objective: Objective, unhurried: bool) -> Iterator[FloatArray]:
    """Sets of deadlines that can be met together, and the empty set if not all of them can."""
    due_s = work.due_s
    if work.is_uncapped:
        # One site at a time uses the whole link, so a good list is enough; a guard would interrupt it.
        yield np.full(len(work), math.inf)
        return
    if not (feasible := feasibility.is_feasible(work, due_s)):
        # A site that would be late even at its cap is guarded at its earliest possible end.
        due_s = np.maximum(due_s, work.shortest_s)
        due_s = due_s + Watch.of(work, due_s).least_stretch_s()
    if unhurried or objective is Objective.MAX_COMPLETION:
        # Guarding all sites at the earliest common end keeps the link busy to the end, for any objective.
        yield np.minimum(due_s, feasibility.earliest_common_end_s(work, due_s))
    if unhurried or objective is not Objective.MAX_COMPLETION:
        yield due_s
    if unhurried and not feasible:
        yield np.full(len(work), math.inf)


def _work_out(work: Work, order: IntArray, guard_s: FloatArray, objective: Objective) -> Plan:
    ends_s = ends_in_order(work, order)
    if np.all(ends_s <= guard_s * (1 + LATE_TOLERANCE)):
        return Plan(order, guard_s, ends_s, score_of(work, ends_s, objective), guarded=False)
    for site, _, to_s, _ in run_guarded(work, order, guard_s):
        ends_s[site] = to_s
    return Plan(order, guard_s, ends_s, score_of(work, ends_s, objective), guarded=True)


def plan_for_many(work: Work, objective: Objective, unhurried: bool, *, is_live: bool = False) -> Plan:
    """One set of guards, and one list (or the best of a few, if lists are cheap to evaluate). `is_live`:
    decisions are a second apart."""
    stretch_s = (watch := Watch.of(work, np.maximum(work.due_s, work.shortest_s))).least_stretch_s()
    watch = watch.stretched(stretch_s)
    guard_s = watch.guard_s
    lists = [priority_lists.modified_due_date_at_once(work, work.due_s)]
    if unhurried and work.is_uncapped:
        lists += _lists_for_shortage(work)
    best: Plan | None = None
    for order in lists:
        ends_s = _ends_at_the_latest(work, order)
        guarded = not np.all(ends_s <= guard_s * (1 + LATE_TOLERANCE))
        if guarded and work.is_uncapped:
            # On an uncapped link the ends of a list are exact; a guard would only interrupt it.
            guarded, held_s = False, np.full(len(work), math.inf)
        else:
            held_s = guard_s
            ends_s = np.minimum(ends_s, guard_s)
        score = score_of(work, ends_s, objective)
        plan = Plan(order, held_s, ends_s, score, guarded, watch if guarded else None)
        if best is None or plan.score < best.score:
            best = plan
    assert best is not None
    if stretch_s and not work.is_uncapped and (unhurried or (is_live and len(work) <= _MANY_IN_A_HURRY)):
        return _better_in_shortage(work, objective, unhurried) or best
    return best


_MANY_IN_A_HURRY = 200
_MANY_TO_SEARCH = 1000
_BETTER = 0.98


def _better_in_shortage(work: Work, objective: Objective, unhurried: bool) -> Plan | None:
    """With far too little bandwidth, delaying all guards alike makes many sites late to spare the worst one.
    A list without guards, which gives up some sites, is better then. None if the list of the guarded plan is
    the best: its guards only help."""
    lists = [priority_lists.modified_due_date_at_once(work, work.due_s), *_lists_for_shortage(work)]
    if unhurried and len(work) <= _MANY_TO_SEARCH:
        lists.append(priority_lists.modified_due_date(work, work.due_s))
    plans = []
    for order in lists:
        ends_s = ends_in_order(work, order)
        score = score_of(work, ends_s, objective)
        plans.append(Plan(order, np.full(len(work), math.inf), ends_s, score, guarded=False))
    best = min(plans[1:], key=lambda plan: plan.score)
    return best if best.score[0] < _BETTER * plans[0].score[0] else None


def _lists_for_shortage(work: Work) -> list[IntArray]:
    by_length = priority_lists.shortest_first(work)
    by_deadline = priority_lists.modified_due_date_at_once(work, work.due_s)
    kept = feasibility.keepable_of_many(work, work.due_s)
    given_up_last = np.concatenate((by_deadline[kept[by_deadline]], by_length[~kept[by_length]]))
    return [priority_lists.longest_last(work, work.due_s), by_length, given_up_last]


def _ends_at_the_latest(work: Work, order: IntArray) -> FloatArray:
    """Upper bounds for the ends. Exact on an uncapped link, otherwise Graham's bound: a site starts when the
    link and the seats could have finished all before it, and then takes its shortest time."""
    left, shortest = work.left_bytes[order], work.shortest_s[order]
    ends = np.empty(len(work))
    if work.is_uncapped:
        ends[order] = work.link.time_of(np.cumsum(left))
        return ends
    through_link_s = work.link.time_of(np.cumsum(left) - left)
    through_seats_s = (np.cumsum(shortest) - shortest) / work.seats
    at_once = np.cumsum(work.cap_bytes_per_s[order]) <= work.link.at(0.0)
    at_once &= np.arange(len(work)) < work.seats
    start_s = np.where(at_once, 0.0, np.maximum(through_link_s, through_seats_s))
    ends[order] = start_s + shortest
    return ends


DRIFT = 0.05
"""Relative deviation of the total remaining data from the forecast at which a new plan is made."""
SITE_DRIFT = 0.2
"""The same for a single site, whose estimate is less precise than that of all sites together."""
RELIEF = 0.02
"""A deadline that moves later by at most this fraction of the time left does not cause a new plan."""
RENEW, RENEW_S = 0.2, 0.5
"""A plan is made again after this part of the time to the next deadline, and at least after so long."""
SAME_S = 1e-3
"""Instants closer than this count as equal: deadlines and timetables do not move by less."""


class RatePlan:
    """The plan that a crawl follows, by site number, and whether it is still valid."""

    def __init__(
        self, now: float, numbers: IntArray, work: Work, careful: CarefulPlan, *, is_exact: bool = True
    ) -> None:
        """`is_exact`: the work is known and not estimated, so the plan holds until something changes."""
        plan, self.caution, self._is_exact = careful.plan, careful.caution, is_exact
        size = int(numbers.max()) + 1
        self._place = np.full(size, size, dtype=np.int64)
        self._place[numbers[plan.order]] = np.arange(len(numbers))
        guard_s = plan.guard_s if plan.guarded else np.full(len(work), math.inf)
        self._guard_at = _spread(size, numbers, guard_s + now)
        self._end_at = _spread(size, numbers, plan.ends_s + now)
        self._due_at = _spread(size, numbers, work.due_s + now)
        self._cap = _spread(size, numbers, work.cap_bytes_per_s)
        self._is_late = np.zeros(size, dtype=bool)
        self._is_late[numbers] = careful.late
        self._renew_at = math.inf if is_exact else now + _lasts_s(work.due_s)
        self._foreseen = _spread(size, numbers, work.left_bytes)
        self._rate = np.zeros(size)
        self._at = self._made_at = now
        self._link = work.link

    def seen_at(self, now: float, numbers: IntArray) -> tuple[IntArray, FloatArray, FloatArray]:
        """The position of each site in the list, and its guard and forecast end in seconds from now."""
        return self._place[numbers], self._guard_at[numbers] - now, self._end_at[numbers] - now

    def is_late(self, numbers: IntArray) -> BoolArray:
        """The sites that miss their deadlines by the plan."""
        late: BoolArray = self._is_late[numbers]
        return late

    def follow(self, now: float, numbers: IntArray, rates: FloatArray) -> None:
        """Record the decided rates, to forecast the remaining data."""
        self._foresee(now)
        self._rate[numbers] = rates

    def order_of(self, numbers: IntArray) -> IntArray:
        """The order of these sites in the list; unknown sites come last."""
        place = np.full(len(numbers), len(self._place), dtype=np.int64)
        inside = numbers < len(self._place)
        place[inside] = self._place[numbers[inside]]
        return np.argsort(place, kind="stable")

    def is_right(self, now: float, numbers: IntArray, work: Work) -> bool:
        """Whether the plan is still valid: everything developed as forecast."""
        size = len(self._place)
        if int(numbers.max()) >= size or np.any(self._place[numbers] == size):
            return False
        if not _same_link(self._link.seen_from(now - self._made_at), work.link):
            return False
        if now >= self._renew_at or _deadlines_moved(self._due_at[numbers] - now, work.due_s):
            return False
        if np.any(np.abs(self._cap[numbers] - work.cap_bytes_per_s) > DRIFT * work.cap_bytes_per_s):
            return False
        self._foresee(now)
        foreseen, total = self._foreseen[numbers], float(work.left_bytes.sum())
        drift = np.abs(work.left_bytes - foreseen)
        # The forecast remaining data of a site that has gone counts as drift too.
        gone = float(self._foreseen.sum() - foreseen.sum())
        if float(drift.sum()) + gone > DRIFT * total:
            return False
        if np.any(drift > SITE_DRIFT * np.maximum(work.left_bytes, foreseen) + DRIFT * total / len(work)):
            return False
        if self._is_exact:
            return True
        return feasibility.is_feasible(work, np.where(self._is_late[numbers], math.inf, work.due_s))

    def _foresee(self, now: float) -> None:
        self._foreseen = np.maximum(self._foreseen - self._rate * (now - self._at), 0.0)
        self._rate = np.zeros_like(self._rate)
        self._at = now


def _lasts_s(due_s: FloatArray) -> float:
    """How long a plan is followed: a reserve of time before the next deadline shrinks, and what was given up
    may be possible after all."""
    return max(RENEW * float(np.min(due_s[due_s > 0], initial=math.inf)), RENEW_S)


def _deadlines_moved(before_s: FloatArray, after_s: FloatArray) -> bool:
    timed = np.isfinite(after_s)
    if np.any(timed != np.isfinite(before_s)):
        return True
    later_s = after_s[timed] - before_s[timed]
    allowed_s = SAME_S + RELIEF * np.maximum(after_s[timed], 0.0)
    return bool(np.any((later_s < -SAME_S) | (later_s > allowed_s)))


def _spread(size: int, numbers: IntArray, values: FloatArray) -> FloatArray:
    by_number = np.zeros(size)
    by_number[numbers] = values
    return by_number


def _same_link(one: Timetable, other: Timetable) -> bool:
    if len(one.steps) != len(other.steps):
        return False
    return all(
        abs(from_s - other_from_s) <= SAME_S and abs(rate - other_rate) <= 1e-3 * max(rate, other_rate)
        for (from_s, rate), (other_from_s, other_rate) in zip(one.steps, other.steps, strict=True)
    )


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
