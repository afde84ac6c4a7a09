"""zhu2020's task scheduling: more sites than crawlers.

Algorithm 4 goes in rounds. The most urgent m sites share the link; whoever ends hands its rate on to the
next in the queue; when the round's first m would all have ended, everything is allocated anew. `actual`
is what the sites really hold, when that is to differ from the estimates that allocation goes by.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from headway.policy.allocation.capacity import FloatArray, Timetable
from headway.policy.allocation.problem import Problem, Schedule

Allocate = Callable[[Problem], FloatArray]

UNFORESEEN = 0.05
"""A site that goes on beyond its estimate is taken to have this part of the estimate still to come."""


def realloc(problem: Problem, allocate: Allocate, actual: FloatArray | None = None) -> Schedule:
    """Algorithm 4. With no more sites than crawlers, and true estimates, it is `allocate` itself."""
    run = _Run(problem, actual)
    now_s, open_sites = 0.0, run.next_sites(problem.crawlers)
    while open_sites:
        seen = run.seen_at(now_s, open_sites)
        rates = allocate(seen)
        round_end_s = now_s + float((seen.data_bytes / rates).max())
        open_sites = run.work(now_s, open_sites, rates.tolist(), round_end_s)
        open_sites += run.next_sites(problem.crawlers - len(open_sites))
        now_s = round_end_s
    return run.schedule()


def alloc_once(problem: Problem, allocate: Allocate, actual: FloatArray | None = None) -> Schedule:
    """AllocOnce: the first m sites' rates are handed on for ever."""
    run = _Run(problem, actual)
    first = run.next_sites(problem.crawlers)
    if first:
        run.work(0.0, first, allocate(run.seen_at(0.0, first)).tolist(), math.inf)
    return run.schedule()


def batches(problem: Problem, allocate: Allocate, actual: FloatArray | None = None) -> Schedule:
    """ReAlloc-PRODataAmount: m sites together from start to end, then the next m."""
    run = _Run(problem, actual)
    now_s = 0.0
    while batch := run.next_sites(problem.crawlers):
        rates = allocate(run.seen_at(now_s, batch))
        ends = now_s + run.left[np.array(batch)] / rates
        for site, rate, end_s in zip(batch, rates.tolist(), ends.tolist(), strict=True):
            run.download(site, now_s, end_s, rate)
        now_s = float(ends.max())
    return run.schedule()


class _Run:
    """The seats, the queue, what is left of each site, and the segments written so far."""

    def __init__(self, problem: Problem, actual: FloatArray | None) -> None:
        self.problem = problem
        self.left = (problem.data_bytes if actual is None else actual).copy()
        self._beyond_estimate = self.left - problem.data_bytes
        self._unforeseen = problem.data_bytes * (0.0 if actual is None else UNFORESEEN)
        # "Loose before tight" in 4.3 contradicts the priority queue below it: tight first. Sites without
        # a deadline come last, and ties keep the order of the input.
        self._queue = np.argsort(problem.deadline_s, kind="stable").tolist()[::-1]
        self._rows: list[tuple[int, float, float, float]] = []

    def next_sites(self, count: int) -> list[int]:
        return [self._queue.pop() for _ in range(min(count, len(self._queue)))]

    def seen_at(self, now_s: float, sites: list[int]) -> Problem:
        """The round's own problem: what seems to be left of these sites, and of their time."""
        index = np.array(sites, dtype=np.int64)
        whole = self.problem
        estimated_left = np.maximum(self.left[index] - self._beyond_estimate[index], self._unforeseen[index])
        return replace(
            whole,
            names=[whole.names[site] for site in sites],
            data_bytes=estimated_left,
            deadline_s=whole.deadline_s[index] - now_s,
            cap_bytes_per_s=whole.cap_bytes_per_s[index],
            weight=whole.weight[index],
            capacity=Timetable.constant(whole.bandwidth_bytes_per_s),
        )

    def work(self, now_s: float, sites: list[int], rates: list[float], until_s: float) -> list[int]:
        """Let every seat work until then, handing rates on; returns the sites that are still open."""
        caps = self.problem.cap_bytes_per_s
        # (end, seat, site, since, rate): the seat keeps its claim even where a site's cap is below it.
        heap = [
            (now_s + self.left[site] / rate, seat, site, now_s, rate)
            for seat, (site, rate) in enumerate(zip(sites, rates, strict=True))
        ]
        heapq.heapify(heap)
        while heap and heap[0][0] <= until_s * (1 + 1e-12):
            end_s, seat, site, since_s, rate = heapq.heappop(heap)
            end_s = min(end_s, until_s)
            self.download(site, since_s, end_s, rate)
            self.left[site] = 0.0
            for following in self.next_sites(1):
                its_rate = min(rates[seat], float(caps[following]))
                its_end_s = end_s + self.left[following] / its_rate
                heapq.heappush(heap, (its_end_s, seat, following, end_s, its_rate))
        for _, _, site, since_s, rate in heap:
            self.download(site, since_s, until_s, rate)
        return [site for _, _, site, _, _ in sorted(heap, key=lambda entry: entry[1])]

    def download(self, site: int, from_s: float, to_s: float, rate: float) -> None:
        if to_s > from_s:
            self._rows.append((site, from_s, to_s, rate))
            self.left[site] -= rate * (to_s - from_s)

    def schedule(self) -> Schedule:
        if not self._rows:
            return Schedule.empty(self.problem)
        site, from_s, to_s, rate = zip(*self._rows, strict=True)
        return Schedule.of_segments(self.problem, site, from_s, to_s, rate_bytes_per_s=rate)
