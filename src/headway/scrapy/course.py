"""The rates of `headway run-scrapy` over time: a policy's schedule, made anew where its policy does so."""

from __future__ import annotations

import math

import numpy as np

from headway.policy.allocation.policies import run_policy
from headway.policy.allocation.problem import Objective, Problem, Schedule

_REPLANS = frozenset({"headway", "realloc-maxt", "realloc-sumt", "realloc-probandwidth"})
"""Policies that share out again what a site leaves when it ends; the others keep their rates to the end."""
_EXACT_S = 1e-6
AIM = 0.985
"""A pacer stays a little below the bound that it is given, so a plan counts on this part of the link, and
each crawler is given as much more as makes up for it."""


class Course:
    """Sites are numbered as in the problem, whose capacity is the link's, times `AIM`.

    Times are seconds since the start.
    """

    def __init__(self, policy: str, objective: Objective, problem: Problem, *, seed: int = 0) -> None:
        self._policy = policy
        self._objective = objective
        self._seed = seed
        self.problem = problem
        self.planned: Schedule = run_policy(policy, problem, objective, seed=seed)
        self._segments = dict(enumerate(self.planned.segments_by_site()))

    def rates(self, now_s: float) -> dict[int, float]:
        """The rate of each site now; those not named wait. One behind its plan keeps its last rate."""
        rates: dict[int, float] = {}
        for number, segments in self._segments.items():
            begun = [rate for from_s, _, rate in segments if from_s <= now_s + _EXACT_S]
            if begun:
                rates[number] = begun[-1]
        most = self.capacity(now_s)
        together = sum(rates.values())
        part = min(1.0, most / together) if together else 1.0
        return {number: rate * part for number, rate in rates.items()}

    def capacity(self, now_s: float) -> float:
        """What all sites together may be given now."""
        return self.problem.capacity.at(now_s)

    def next_change_s(self, now_s: float) -> float:
        """When the rates change next by themselves; infinity when they do not."""
        begins = (from_s for segments in self._segments.values() for from_s, _, _ in segments)
        return min((from_s for from_s in begins if from_s > now_s + _EXACT_S), default=math.inf)

    @property
    def can_change(self) -> bool:
        return self._policy in _REPLANS

    def go_on(self, now_s: float, left_bytes: dict[int, float]) -> None:
        """A site has ended, or the others hold more or less than was planned: `left_bytes` is what is left
        of each that goes on."""
        self._segments = {number: self._segments[number] for number in left_bytes}
        if not self.can_change or not left_bytes:
            return
        chosen = np.array(list(left_bytes))
        due_s = self.problem.deadline_s[chosen] - now_s
        problem = Problem.of(
            np.maximum(np.array(list(left_bytes.values())), 1.0),
            self.problem.capacity.seen_from(now_s),
            # What is late already is wanted as soon as may be.
            deadline_s=np.where(due_s > 0, due_s, _EXACT_S),
            cap_bytes_per_s=self.problem.cap_bytes_per_s[chosen],
            weight=self.problem.weight[chosen],
            crawlers=self.problem.crawlers,
        )
        schedule = run_policy(self._policy, problem, self._objective, seed=self._seed)
        self._segments = {
            number: [(from_s + now_s, to_s + now_s, rate) for from_s, to_s, rate in segments]
            for number, segments in zip(left_bytes, schedule.segments_by_site(), strict=True)
        }
