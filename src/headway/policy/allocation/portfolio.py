"""Which list to follow, and which deadlines to guard: try several, keep the one that turns out best.

No single rule is best for every job, and a schedule of some hundred sites is worked out in milliseconds. For
more sites than that one rule has to do.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from headway.policy.allocation import feasibility, orders
from headway.policy.allocation.capacity import FloatArray, IntArray
from headway.policy.allocation.feasibility import Work
from headway.policy.allocation.guard import Watch, run_guarded
from headway.policy.allocation.listing import ends_in_order
from headway.policy.allocation.problem import LATE_TOLERANCE, Objective

FEW_SITES = 150
"""Up to here every combination is tried when there is time for it,"""
FEW_SITES_IN_A_HURRY = 40
"""and up to here in a running crawl, which it holds up for some tens of milliseconds."""

Score = tuple[float, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Plan:
    """A list to follow and the deadlines to hold for each site (infinity: none), from when it was made."""

    order: IntArray
    guard_s: FloatArray
    ends_s: FloatArray
    score: Score
    guarded: bool
    """False when the list alone meets every guard, so that there is nothing to watch."""
    watch: Watch | None = None
    """The guards as they look at the start, where they were worked out anyway."""


def make_plan(
    work: Work, objective: Objective, incumbent: IntArray | None = None, *, unhurried: bool = False
) -> Plan:
    """The best of the portfolio; the incumbent order wins ties, so that a crawl does not flap.

    `unhurried` allows seconds where there are many sites; a running crawl has milliseconds.
    """
    if not are_few(len(work), unhurried):
        return _plan_for_many(work, objective, unhurried)
    best: Plan | None = None
    for order, guard_s in _candidates(work, objective, incumbent, unhurried):
        plan = _work_out(work, order, guard_s, objective)
        if best is None or plan.score < best.score:
            best = plan
    assert best is not None
    return best


def are_few(sites: int, unhurried: bool) -> bool:
    return sites <= (FEW_SITES if unhurried else FEW_SITES_IN_A_HURRY)


def score_of(work: Work, ends_s: FloatArray, objective: Objective) -> Score:
    """Smaller is better. Deadlines come first, then the objective; rounding makes ties of near ties."""
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
    by_length, by_deadline = orders.shortest_first(work), orders.earliest_deadline_first(work, due_s)
    lists = [] if incumbent is None else [incumbent]
    lists += [orders.modified_due_date(work, due_s), orders.longest_last(work, due_s)]
    if unhurried or uncapped:
        lists += [by_length, by_deadline]
    for guard_s in _guards(work, objective, unhurried):
        for order in lists:
            yield order, guard_s
    if not feasibility.is_feasible(work, due_s):
        kept = orders.keepable(work, due_s)
        given_up_last = np.concatenate((by_deadline[kept[by_deadline]], by_length[~kept[by_length]]))
        for order in (given_up_last, *(lists if unhurried else lists[:1])):
            yield order, np.where(kept & ~uncapped, due_s, math.inf)


def _guards(work: Work, objective: Objective, unhurried: bool) -> Iterator[FloatArray]:
    """Sets of deadlines that can be held together, and none at all where not all of them can."""
    due_s = work.due_s
    if work.is_uncapped:
        # One site at a time takes the whole link, so a good list is all it needs; a guard would interrupt.
        yield np.full(len(work), math.inf)
        return
    if not (feasible := feasibility.is_feasible(work, due_s)):
        # A site that cannot make it even with all it can take is held to its earliest possible end.
        due_s = np.maximum(due_s, work.shortest_s)
        due_s = due_s + Watch.of(work, due_s).least_stretch_s()
    if unhurried or objective is Objective.MAX_COMPLETION:
        # Holding all sites to the earliest common end keeps the link in use to the last, whatever is asked.
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


def _plan_for_many(work: Work, objective: Objective, unhurried: bool) -> Plan:
    """One guard, and one list (or the best of a few, where lists are cheap to work out)."""
    watch = Watch.of(work, np.maximum(work.due_s, work.shortest_s))
    watch = watch.stretched(watch.least_stretch_s())
    guard_s = watch.guard_s
    lists = [orders.modified_due_date_at_once(work, work.due_s)]
    if unhurried and work.is_uncapped:
        lists += [orders.longest_last(work, work.due_s), orders.shortest_first(work)]
        kept = orders.keepable(work, work.due_s)
        lists.append(np.concatenate((lists[0][kept[lists[0]]], lists[2][~kept[lists[2]]])))
    best: Plan | None = None
    for order in lists:
        ends_s = _ends_at_the_latest(work, order)
        guarded = not np.all(ends_s <= guard_s * (1 + LATE_TOLERANCE))
        if guarded and work.is_uncapped:
            # On an uncapped link a list is as good as its ends say; a guard would only interrupt it.
            guarded, held_s = False, np.full(len(work), math.inf)
        else:
            held_s = guard_s
            ends_s = np.minimum(ends_s, guard_s)
        score = score_of(work, ends_s, objective) if len(lists) > 1 else ()
        plan = Plan(order, held_s, ends_s, score, guarded, watch if guarded else None)
        if best is None or plan.score < best.score:
            best = plan
    assert best is not None
    return best


def _ends_at_the_latest(work: Work, order: IntArray) -> FloatArray:
    """Exact on an uncapped link; else Graham's bound: a site starts when all before it could have been
    through the link and the seats, and then takes its shortest time."""
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
