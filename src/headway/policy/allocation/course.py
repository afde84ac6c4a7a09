"""The plan that a crawl follows, by site number, and whether it is still right."""

from __future__ import annotations

import math

import numpy as np

from headway.policy.allocation.capacity import FloatArray, IntArray, Timetable
from headway.policy.allocation.feasibility import Work
from headway.policy.allocation.portfolio import Plan

DRIFT = 0.05
"""How far what is left, in all, may stray from what was foreseen before a new plan is made."""
SITE_DRIFT = 0.2
"""The same for a single site; estimates of one site are rougher than of all together."""
RELIEF = 0.02
"""A deadline that moves back by no more than this part of the time left is held to where it was."""
SAME_S = 1e-3
"""Instants this close are the same: deadlines and timetables do not move by less."""


class Course:
    def __init__(self, now: float, numbers: IntArray, work: Work, plan: Plan) -> None:
        size = int(numbers.max()) + 1
        self._place = np.full(size, size, dtype=np.int64)
        self._place[numbers[plan.order]] = np.arange(len(numbers))
        guard_s = plan.guard_s if plan.guarded else np.full(len(work), math.inf)
        self._guard_at = _spread(size, numbers, guard_s + now)
        self._end_at = _spread(size, numbers, plan.ends_s + now)
        self._due_at = _spread(size, numbers, work.due_s + now)
        self._cap = _spread(size, numbers, work.cap_bytes_per_s)
        self._foreseen = _spread(size, numbers, work.left_bytes)
        self._rate = np.zeros(size)
        self._at = self._made_at = now
        self._link = work.link

    def seen_at(self, now: float, numbers: IntArray) -> tuple[IntArray, FloatArray, FloatArray]:
        """Each site's place in the list, and its guard and foreseen end from now."""
        return self._place[numbers], self._guard_at[numbers] - now, self._end_at[numbers] - now

    def follow(self, now: float, numbers: IntArray, rates: FloatArray) -> None:
        """Remember what was decided, to foresee what will be left."""
        self._foresee(now)
        self._rate[numbers] = rates

    def order_of(self, numbers: IntArray) -> IntArray:
        """The list, for these sites; those that it does not know come last."""
        place = np.full(len(numbers), len(self._place), dtype=np.int64)
        inside = numbers < len(self._place)
        place[inside] = self._place[numbers[inside]]
        return np.argsort(place, kind="stable")

    def is_right(self, now: float, numbers: IntArray, work: Work) -> bool:
        """Whether it may go on being followed: nothing moved that was not foreseen."""
        size = len(self._place)
        if int(numbers.max()) >= size or np.any(self._place[numbers] == size):
            return False
        if not _same_link(self._link.seen_from(now - self._made_at), work.link):
            return False
        if _deadlines_moved(self._due_at[numbers] - now, work.due_s):
            return False
        if np.any(np.abs(self._cap[numbers] - work.cap_bytes_per_s) > DRIFT * work.cap_bytes_per_s):
            return False
        self._foresee(now)
        foreseen, total = self._foreseen[numbers], float(work.left_bytes.sum())
        drift = np.abs(work.left_bytes - foreseen)
        # Whatever a site that is gone was still thought to have is drift too.
        gone = float(self._foreseen.sum() - foreseen.sum())
        if float(drift.sum()) + gone > DRIFT * total:
            return False
        return not np.any(
            drift > SITE_DRIFT * np.maximum(work.left_bytes, foreseen) + DRIFT * total / len(work)
        )

    def _foresee(self, now: float) -> None:
        self._foreseen = np.maximum(self._foreseen - self._rate * (now - self._at), 0.0)
        self._rate = np.zeros_like(self._rate)
        self._at = now


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
