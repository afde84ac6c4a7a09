"""Whether all deadlines can be met if rates may change over time. Exact for a constant link, in O(n log n).

The mandatory work by tau is h(tau) = sum of max(0, w - c * (d - tau)+): what a site cannot postpone until
after tau, because its cap c limits what it can receive between tau and its deadline d. All deadlines can be
met if and only if no site is hopeless by itself (w > c d) and h(tau) fits through the link by tau, for every
deadline tau. With m seats (sites open at once) the same must hold for the time at the cap, w / c, against m *
tau. With a timetable or seats, the test is only necessary; the schedule itself is then the proof.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass

import numpy as np

from headway.planning.problem import BoolArray, FloatArray, Problem, Timetable

TOLERANCE = 1e-9
SMALL_TABLE = 4000
"""Up to this many entries, a plain table of sites by instants is faster than sorting."""


@dataclass(frozen=True, eq=False, slots=True)
class Work:
    """The remaining work from now on: columns of the sites that are not done."""

    left_bytes: FloatArray
    cap_bytes_per_s: FloatArray
    """At most the highest capacity of the link, so always finite."""
    due_s: FloatArray
    """Seconds from now; infinity without a deadline."""
    weight: FloatArray
    link: Timetable
    seats: int

    @staticmethod
    def of(
        left_bytes: FloatArray,
        cap_bytes_per_s: FloatArray,
        due_s: FloatArray,
        *,
        weight: FloatArray,
        link: Timetable,
        seats: int,
    ) -> Work:
        return Work(left_bytes, np.minimum(cap_bytes_per_s, link.most), due_s, weight, link, seats)

    @staticmethod
    def at_start(problem: Problem) -> Work:
        return Work.of(
            problem.data_bytes,
            problem.cap_bytes_per_s,
            problem.deadline_s,
            weight=problem.weight,
            link=problem.capacity,
            seats=problem.crawlers,
        )

    def __len__(self) -> int:
        return len(self.left_bytes)

    @property
    def shortest_s(self) -> FloatArray:
        """The time that each site needs at its cap."""
        return self.left_bytes / self.cap_bytes_per_s

    @property
    def is_uncapped(self) -> bool:
        """Any single site can use the whole link, so serving one at a time loses nothing."""
        return bool(np.all(self.cap_bytes_per_s >= self.link.most))

    def hopeless(self, due_s: FloatArray) -> BoolArray:
        return _later(self.shortest_s, due_s)


def _later(at_s: FloatArray, due_s: FloatArray) -> BoolArray:
    """Later than due by more than rounding, which for times below a second is absolute."""
    later: BoolArray = at_s > due_s + TOLERANCE * np.maximum(due_s, 1.0)
    return later


def mandatory(left: FloatArray, cap: FloatArray, due_s: FloatArray, at_s: FloatArray) -> FloatArray:
    """h at each of the instants `at_s`; sites without a deadline have no mandatory work."""
    # max(0, w - c (d - tau)+) = c (tau - s)+ - c (tau - d)+, with s = d - w/c the latest start.
    if len(left) * len(at_s) <= SMALL_TABLE:
        put_off = cap[:, np.newaxis] * np.maximum(due_s[:, np.newaxis] - at_s, 0.0)
        must: FloatArray = np.maximum(left[:, np.newaxis] - put_off, 0.0).sum(axis=0)
        return must
    finite = np.isfinite(due_s)
    due, caps, starts = due_s[finite], cap[finite], (due_s - left / cap)[finite]
    return _ramps(starts, caps, at_s) - _ramps(due, caps, at_s)


def _ramps(begin_s: FloatArray, slope: FloatArray, at_s: FloatArray) -> FloatArray:
    """The sum of slope * (at - begin)+ over all sites, by prefix sums."""
    order = np.argsort(begin_s)
    begun = np.searchsorted(begin_s[order], at_s, side="left")
    slopes = np.concatenate(([0.0], np.cumsum(slope[order])))
    offsets = np.concatenate(([0.0], np.cumsum((slope * begin_s)[order])))
    return slopes[begun] * at_s - offsets[begun]


def critical_instants(work: Work, due_s: FloatArray) -> FloatArray:
    """The instants at which h can exceed the link: deadlines, and changes of the timetable."""
    due = due_s[np.isfinite(due_s)]
    if not work.link.is_constant and len(due):
        changes_s = work.link.change_times_s
        due = np.concatenate((due, changes_s[changes_s < due.max()]))
    return np.unique(due)


def room_bytes(work: Work, due_s: FloatArray, at_s: FloatArray) -> FloatArray:
    """What the link can carry by each instant minus the mandatory work. A second row, if there are fewer
    seats than sites, has the same for the seats: their spare time times the capacity of the link."""
    link_room = work.link.amount_until(at_s) - mandatory(work.left_bytes, work.cap_bytes_per_s, due_s, at_s)
    if work.seats >= len(work):
        return link_room[np.newaxis]
    busy_s = mandatory(work.shortest_s, np.ones(len(work)), due_s, at_s)
    return np.stack((link_room, (at_s - busy_s / work.seats) * work.link.most))


def is_feasible(work: Work, due_s: FloatArray) -> bool:
    """Whether all these deadlines can be met (see the module for when the test is only necessary)."""
    return first_overfull_s(work, due_s) is None


def first_overfull_s(work: Work, due_s: FloatArray) -> float | None:
    """The first instant by which the mandatory work does not fit; None if all deadlines can be met."""
    hopeless = work.hopeless(due_s)
    if np.any(hopeless):
        return float(due_s[hopeless].min())
    at_s = critical_instants(work, due_s)
    # Relative to all work that is due as well: otherwise it is too strict in the last second before a
    # deadline.
    all_due = float(work.left_bytes[np.isfinite(due_s)].sum())
    tolerance = TOLERANCE * np.maximum(work.link.most * at_s, all_due)
    over = np.flatnonzero(np.any(room_bytes(work, due_s, at_s) < -tolerance, axis=0))
    return float(at_s[over[0]]) if len(over) else None


def least_bandwidths(problem: Problem) -> tuple[float, FloatArray]:
    """The least constant bandwidth that meets all deadlines, and what each deadline by itself requires.

    The latter is the mandatory work by that deadline divided by the time until it; the largest is binding. It
    is zero for a site without a deadline, and infinite if no bandwidth helps, because the cap is too low or
    there are too few seats.
    """
    due_s, caps, left = problem.deadline_s, problem.cap_bytes_per_s, problem.data_bytes
    needs = np.zeros(len(problem))
    timed = np.isfinite(due_s)
    if not np.any(timed):
        return 0.0, needs
    # The capacity of the link is unknown here, so it cannot limit a site without a cap: such a site can
    # postpone everything until its deadline.
    capped = np.isfinite(caps)
    order = np.argsort(due_s)
    done_by = np.concatenate(([0.0], np.cumsum(np.where(capped, 0.0, left)[order])))
    must = done_by[np.searchsorted(due_s[order], due_s[timed], side="right")]
    must += mandatory(left[capped], caps[capped], due_s[capped], due_s[timed])
    needs[timed] = must / due_s[timed]
    needs[_later(left / caps, due_s)] = math.inf
    least = float(needs.max())
    if problem.crawlers < len(problem) and math.isfinite(least):
        least = _least_with_seats(problem, least)
    return least, needs


def _least_with_seats(problem: Problem, low: float) -> float:
    """The least bandwidth with few seats, which are free sooner on a faster link; searched from `low`
    upwards."""

    def holds(bandwidth: float) -> bool:
        return is_feasible(Work.at_start(problem.with_capacity(bandwidth)), problem.deadline_s)

    if holds(low):
        return low
    high = low
    while not holds(high):
        high *= 2
        if high > 1e6 * low:
            return math.inf
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def earliest_common_end_s(work: Work, due_s: FloatArray) -> float:
    """The least T by which everything can be done while these deadlines are met (they must be feasible)."""
    low = lower_bound_max_end_s(work)
    if is_feasible(work, np.minimum(due_s, low)):
        return low
    high = 2 * low
    while not is_feasible(work, np.minimum(due_s, high)) and high < 1e6 * low:
        high *= 2
    for _ in range(40):
        middle = (low + high) / 2
        if is_feasible(work, np.minimum(due_s, middle)):
            high = middle
        else:
            low = middle
    return high


def lower_bound_max_end_s(work: Work) -> float:
    """A lower bound on the time by which everything can be done."""
    if not len(work):
        return 0.0
    link_s = float(work.link.time_of(np.array([work.left_bytes.sum()]))[0])
    shortest = work.shortest_s
    return max(link_s, float(shortest.max()), float(shortest.sum()) / work.seats)


def keepable(work: Work, due_s: FloatArray) -> BoolArray:
    """Moore-Hodgson with caps: which deadlines to keep so that few are missed.

    Deadlines are added from the earliest on. When they do not fit together, the site with the most mandatory
    work by then, relative to its weight, is given up.
    """
    if work.is_uncapped and work.link.is_constant:
        return _keepable_uncapped(work, due_s)
    kept = np.zeros(len(work), dtype=bool)
    out_of_reach = work.hopeless(due_s)
    for site in np.argsort(due_s, kind="stable").tolist():
        if out_of_reach[site] or not math.isfinite(due_s[site]):
            continue
        kept[site] = True
        while (
            np.any(kept)
            and (overfull_s := first_overfull_s(work, np.where(kept, due_s, math.inf))) is not None
        ):
            put_off = work.cap_bytes_per_s * np.maximum(due_s - overfull_s, 0.0)
            must = np.where(kept, (work.left_bytes - put_off) / work.weight, -math.inf)
            kept[int(np.argmax(must))] = False
    return kept


_MOST_WORK = 2_000_000
"""Entries of a table of sites by instants that are computed for one decision about many sites."""


def keepable_of_many(work: Work, due_s: FloatArray) -> BoolArray:
    """`keepable` for many sites: deadlines are looked at in groups, and as many sites are given up at once as
    the mandatory work exceeds the link."""
    if work.is_uncapped and work.link.is_constant:
        return _keepable_uncapped(work, due_s)
    kept = np.isfinite(due_s) & ~work.hopeless(due_s)
    marks_s = np.unique(due_s[kept])
    most = max(_MOST_WORK // max(len(work), 1), 8)
    if len(marks_s) > most:
        marks_s = marks_s[np.unique(np.linspace(0, len(marks_s) - 1, most).astype(int))]
    has_seats = work.seats < len(work)
    for mark_s in marks_s.tolist():
        put_off_s = np.maximum(due_s - mark_s, 0.0)
        room = float(work.link.amount_until(np.array([mark_s]))[0])
        columns = [(np.maximum(work.left_bytes - work.cap_bytes_per_s * put_off_s, 0.0), room)]
        if has_seats:
            columns.append((np.maximum(work.shortest_s - put_off_s, 0.0), mark_s * work.seats))
        for must, most_now in columns:
            over = float(must[kept].sum()) - most_now * (1 + TOLERANCE)
            if over <= 0:
                continue
            members = np.flatnonzero(kept & (must > 0))
            members = members[np.argsort(-must[members] / work.weight[members], kind="stable")]
            count = int(np.searchsorted(np.cumsum(must[members]), over)) + 1
            kept[members[:count]] = False
    return kept


def _keepable_uncapped(work: Work, due_s: FloatArray) -> BoolArray:
    kept = np.zeros(len(work), dtype=bool)
    due, length = due_s.tolist(), (work.left_bytes / work.link.most).tolist()
    weight = work.weight.tolist()
    longest: list[tuple[float, int]] = []
    end_s = 0.0
    for site in np.argsort(due_s, kind="stable").tolist():
        if not math.isfinite(due[site]):
            break
        heapq.heappush(longest, (-length[site] / weight[site], site))
        kept[site] = True
        end_s += length[site]
        if end_s > due[site] * (1 + 1e-12):
            dropped = heapq.heappop(longest)[1]
            kept[dropped] = False
            end_s -= length[dropped]
    return kept
