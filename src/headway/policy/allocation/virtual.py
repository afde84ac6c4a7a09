"""A whole schedule from the crawl's own allocator, asked again and again in virtual time.

So a plan and a crawl are decided by the same code. `actual` is what the sites really hold, when that is to
differ from the estimates; the allocator then learns of it as a crawl would, when a site ends early or
goes on for longer than it was thought to.
"""

from __future__ import annotations

import math

import numpy as np

from headway.policy.allocation.allocator import Allocator, Decision
from headway.policy.allocation.capacity import FloatArray, IntArray
from headway.policy.allocation.feasibility import TOLERANCE, Work
from headway.policy.allocation.guard import NEAR
from headway.policy.allocation.listing import columns_in_order, run_in_order
from headway.policy.allocation.portfolio import are_few
from headway.policy.allocation.problem import Objective, Problem, Schedule

UNFORESEEN = 0.05
"""As in `rounds`: what a site that goes on beyond its estimate is taken to have still to come."""


def run(
    problem: Problem, objective: Objective, actual: FloatArray | None = None, margin: float = 0.0
) -> Schedule:
    """`margin` is added to estimates, as a part of what is left, for safety."""
    if not len(problem):
        return Schedule.empty(problem)
    return _VirtualCrawl(problem, objective, actual, margin).run()


class _VirtualCrawl:
    def __init__(
        self, problem: Problem, objective: Objective, actual: FloatArray | None, margin: float
    ) -> None:
        self._problem = problem
        self._estimate = problem.data_bytes
        self._exact = actual is None
        self._left = (problem.data_bytes if actual is None else actual).copy()
        self._got = np.zeros(len(problem))
        self._margin = margin
        self._allocator = Allocator(objective, seats=problem.crawlers, unhurried=True)
        self._columns: list[tuple[IntArray, FloatArray, FloatArray, FloatArray]] = []
        end_s = float(problem.capacity.time_of(np.array([problem.data_bytes.sum()]))[0])
        self._few = are_few(len(problem), unhurried=True)
        # Many sites cannot each have a decision of their own: shares are handed on in between. And where
        # estimates are wrong, guard points come thick and fast; a crawl would not look at each either.
        decisions = math.inf if self._few else max(4_000_000 / len(problem), 25)
        self._grain_s = end_s / (decisions if self._exact else min(decisions, 2_000))
        self._step_s = NEAR / 10 * end_s

    def run(self) -> Schedule:
        now_s, numbers = 0.0, np.arange(len(self._problem))
        while len(numbers):
            work = self._seen_at(now_s, numbers)
            decision = self._allocator.decide_columns(now_s, numbers, work, self._grain_s)
            if not self._few and self._exact:
                step_s = self._follow_list(now_s, numbers, work, decision)
            else:
                step_s = self._keep_rates(now_s, numbers, decision, work.link.next_turn_s(0.0))
            now_s += step_s
            numbers = numbers[self._left[numbers] > 0]
        site, from_s, to_s, rate = (np.concatenate(column) for column in zip(*self._columns, strict=True))
        return Schedule.of_segments(self._problem, site, from_s, to_s, rate_bytes_per_s=rate)

    def _seen_at(self, now_s: float, numbers: IntArray) -> Work:
        problem = self._problem
        left = self._left[numbers]
        if not self._exact:
            estimate = self._estimate[numbers]
            left = np.maximum((estimate - self._got[numbers]) * (1 + self._margin), UNFORESEEN * estimate)
        return Work.of(
            left,
            problem.cap_bytes_per_s[numbers],
            problem.deadline_s[numbers] - now_s,
            weight=problem.weight[numbers],
            link=problem.capacity.seen_from(now_s),
            seats=problem.crawlers,
        )

    def _keep_rates(self, now_s: float, numbers: IntArray, decision: Decision, turn_s: float) -> float:
        """Until the next decision, or until a site really ends."""
        served = np.flatnonzero(decision.rates)
        sites, rates = numbers[served], decision.rates[served]
        ends_s = self._left[sites] / rates
        step_s = min(decision.until_s, turn_s, float(ends_s.min(initial=math.inf)))
        step_s = max(step_s, self._step_s)
        done = ends_s <= step_s * (1 + 1e-9)
        to_s = now_s + np.where(done, np.minimum(ends_s, step_s), step_s)
        self._columns.append((sites, np.full(len(sites), now_s), to_s, rates))
        got = rates * (to_s - now_s)
        self._got[sites] += got
        self._left[sites] = np.where(done, 0.0, self._left[sites] - got)
        return step_s

    def _follow_list(self, now_s: float, numbers: IntArray, work: Work, decision: Decision) -> float:
        """Until the next decision, handing shares on as sites end; to the end when nothing needs watching."""
        if not np.any(np.isfinite(decision.guard_s)):
            site, from_s, to_s, rate = columns_in_order(work, decision.order)
            self._left[numbers] = 0.0
        else:
            rows = run_in_order(work, decision.order, decision.until_s)
            site, from_s, to_s, rate = (np.array(column) for column in zip(*rows, strict=True))
            np.subtract.at(self._left, numbers[site], rate * (to_s - from_s))
            self._left[self._left <= TOLERANCE * self._estimate] = 0.0
        self._columns.append((numbers[site], now_s + from_s, now_s + to_s, rate))
        return decision.until_s
