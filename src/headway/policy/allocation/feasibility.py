"""Can all deadlines be met if rates may change in time? Exact for a constant link, in O(n log n).

Work that must be done by tau is h(tau) = sum of max(0, w - c * (d - tau)+): what a site cannot put off
until after tau, because its cap only lets so much through between tau and its deadline. All deadlines
hold iff no site is hopeless by itself (w > c d) and h(tau) fits through the link by tau, at every deadline
tau. With m seats the same must hold for the time at the cap, w / c, against m * tau. Under a timetable,
and with seats, the test is necessary; the schedule itself is then the proof.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from headway.policy.allocation.capacity import BoolArray, FloatArray, Timetable
from headway.policy.allocation.problem import Problem

TOLERANCE = 1e-9
SMALL_TABLE = 4000
"""Up to so many entries a plain table of sites by instants is quicker than sorting."""


@dataclass(frozen=True, eq=False, slots=True)
class Work:
    """What is left to do, seen from now: columns of the sites that are not done."""

    left_bytes: FloatArray
    cap_bytes_per_s: FloatArray
    """Never more than the link has at its best, so always finite."""
    due_s: FloatArray
    """From now; infinity for none."""
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
        """The time each site needs when it gets all it can take."""
        return self.left_bytes / self.cap_bytes_per_s

    @property
    def is_uncapped(self) -> bool:
        """Any one site could take the whole link, so one at a time loses nothing."""
        return bool(np.all(self.cap_bytes_per_s >= self.link.most))

    def hopeless(self, due_s: FloatArray) -> BoolArray:
        return self.shortest_s > due_s + TOLERANCE * np.maximum(due_s, 1.0)


def mandatory(left: FloatArray, cap: FloatArray, due_s: FloatArray, at_s: FloatArray) -> FloatArray:
    """h at each of the instants `at_s`; sites without a deadline are never mandatory."""
    # max(0, w - c (d - tau)+) = c (tau - s)+ - c (tau - d)+, with s = d - w/c the latest start.
    if len(left) * len(at_s) <= SMALL_TABLE:
        put_off = cap[:, np.newaxis] * np.maximum(due_s[:, np.newaxis] - at_s, 0.0)
        must: FloatArray = np.maximum(left[:, np.newaxis] - put_off, 0.0).sum(axis=0)
        return must
    finite = np.isfinite(due_s)
    due, caps, starts = due_s[finite], cap[finite], (due_s - left / cap)[finite]
    return _ramps(starts, caps, at_s) - _ramps(due, caps, at_s)


def _ramps(begin_s: FloatArray, slope: FloatArray, at_s: FloatArray) -> FloatArray:
    """The sum of slope * (at - begin)+ over all, by prefix sums."""
    order = np.argsort(begin_s)
    begun = np.searchsorted(begin_s[order], at_s, side="left")
    slopes = np.concatenate(([0.0], np.cumsum(slope[order])))
    offsets = np.concatenate(([0.0], np.cumsum((slope * begin_s)[order])))
    return slopes[begun] * at_s - offsets[begun]


def critical_instants(work: Work, due_s: FloatArray) -> FloatArray:
    """Where h can catch up with the link: at deadlines, and where the timetable turns for the better."""
    due = due_s[np.isfinite(due_s)]
    if not work.link.is_constant and len(due):
        turns = work.link.turns_s
        due = np.concatenate((due, turns[turns < due.max()]))
    return np.unique(due)


def room_bytes(work: Work, due_s: FloatArray, at_s: FloatArray) -> FloatArray:
    """What the link can carry by each instant beyond what it must; below, the same for the seats if they are
    fewer than the sites, as what the link carries in the seats' spare time."""
    link_room = work.link.amount_until(at_s) - mandatory(work.left_bytes, work.cap_bytes_per_s, due_s, at_s)
    if work.seats >= len(work):
        return link_room[np.newaxis]
    busy_s = mandatory(work.shortest_s, np.ones(len(work)), due_s, at_s)
    return np.stack((link_room, (at_s - busy_s / work.seats) * work.link.most))


def is_feasible(work: Work, due_s: FloatArray) -> bool:
    """Whether every one of these deadlines can be met (see above for where the test is only necessary)."""
    return first_overfull_s(work, due_s) is None


def first_overfull_s(work: Work, due_s: FloatArray) -> float | None:
    """The first instant by which more must be done than can be; None when all deadlines can be met."""
    hopeless = work.hopeless(due_s)
    if np.any(hopeless):
        return float(due_s[hopeless].min())
    at_s = critical_instants(work, due_s)
    # Measured by all that is due as well, or the last second before a deadline would be judged too finely.
    all_due = float(work.left_bytes[np.isfinite(due_s)].sum())
    tolerance = TOLERANCE * np.maximum(work.link.most * at_s, all_due)
    over = np.flatnonzero(np.any(room_bytes(work, due_s, at_s) < -tolerance, axis=0))
    return float(at_s[over[0]]) if len(over) else None


def least_bandwidths(problem: Problem) -> tuple[float, FloatArray]:
    """The least constant bandwidth that meets all deadlines, and what each deadline by itself asks for.

    The latter is what must be fetched by that deadline over the time until it: the largest binds. Zero for
    a site without a deadline; infinity where no bandwidth helps, the cap being too low or the seats too few.
    """
    due_s, caps, left = problem.deadline_s, problem.cap_bytes_per_s, problem.data_bytes
    needs = np.zeros(len(problem))
    timed = np.isfinite(due_s)
    if not np.any(timed):
        return 0.0, needs
    # Here a site without a cap has none at all, for the link's size is what is asked: it can put off
    # everything until its deadline.
    capped = np.isfinite(caps)
    order = np.argsort(due_s)
    done_by = np.concatenate(([0.0], np.cumsum(np.where(capped, 0.0, left)[order])))
    must = done_by[np.searchsorted(due_s[order], due_s[timed], side="right")]
    must += mandatory(left[capped], caps[capped], due_s[capped], due_s[timed])
    needs[timed] = must / due_s[timed]
    needs[left / caps > due_s * (1 + TOLERANCE)] = math.inf
    least = float(needs.max())
    if problem.crawlers < len(problem) and math.isfinite(least):
        least = _least_with_seats(problem, least)
    return least, needs


def _least_with_seats(problem: Problem, low: float) -> float:
    """Seats that are held for less time when the link is faster: search upwards from what the link needs."""

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
    """The least T by which everything can be done while these deadlines hold (which must be feasible)."""
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
    """Nobody can be done with everything before this."""
    if not len(work):
        return 0.0
    link_s = float(work.link.time_of(np.array([work.left_bytes.sum()]))[0])
    shortest = work.shortest_s
    return max(link_s, float(shortest.max()), float(shortest.sum()) / work.seats)
