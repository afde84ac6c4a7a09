"""What a schedule says to a person: do all deadlines hold, which bandwidth would do, which deadline binds."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from headway.policy.allocation.capacity import FloatArray
from headway.policy.allocation.constant import is_sufficient, required_bandwidth, required_rates
from headway.policy.allocation.feasibility import Work, least_bandwidths, lower_bound_max_end_s
from headway.policy.allocation.problem import Objective, Problem, Schedule

VARYING = "headway"
"""The one policy whose rates change in time; for the others a deadline needs its constant rate."""


@dataclass(frozen=True, eq=False, slots=True)
class Outlook:
    policy: str
    objective: Objective
    schedule: Schedule
    sufficient: bool
    required_bytes_per_s: float
    """The least bandwidth that meets all deadlines under this kind of policy; infinity when none does."""
    needs_bytes_per_s: FloatArray
    """What each site's deadline asks of the link: the largest binds (varying rates), or all add up."""

    @staticmethod
    def of(policy: str, objective: Objective, schedule: Schedule) -> Outlook:
        problem = schedule.problem
        if policy == VARYING:
            required, needs = least_bandwidths(problem)
            return Outlook(policy, objective, schedule, schedule.on_time, required, needs)
        required, needs = required_bandwidth(problem), required_rates(problem)
        return Outlook(policy, objective, schedule, is_sufficient(problem), required, needs)

    @property
    def problem(self) -> Problem:
        return self.schedule.problem

    @property
    def binding(self) -> int | None:
        """The site whose deadline asks for the most; None without deadlines."""
        if not np.any(self.needs_bytes_per_s > 0):
            return None
        return int(np.argmax(self.needs_bytes_per_s))

    @property
    def out_of_reach(self) -> list[int]:
        """Sites that no bandwidth brings in on time, because their own cap is too low."""
        problem = self.problem
        shortest_s = problem.data_bytes / problem.cap_bytes_per_s
        return np.flatnonzero(shortest_s > problem.deadline_s * (1 + 1e-9)).tolist()


def lower_bounds(problem: Problem) -> dict[str, float]:
    """What no policy can go below: the largest end, and the sum of ends (shortest first at full speed)."""
    work = Work.at_start(problem)
    shortest_first = problem.capacity.time_of(np.cumsum(np.sort(problem.data_bytes)))
    sum_s = max(float(shortest_first.sum()), float(work.shortest_s.sum()))
    return {"max_completion_s": lower_bound_max_end_s(work), "sum_completion_s": sum_s}


def finite_or_none(value: float) -> float | None:
    """JSON has no infinity."""
    return value if math.isfinite(value) else None
