"""Will the deadlines hold? A job's sites under each allocation policy, over many draws of what is not known.

In every draw each site holds more or less data than it is thought to, and its server is quicker or slower
than thought. The policies plan by the estimates and meet the draw as a crawl would.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from headway.policy.allocation.capacity import FloatArray
from headway.policy.allocation.policies import POLICIES, run_policy
from headway.policy.allocation.problem import Objective, Problem, Schedule
from headway.report.sim_whatif import OWN, PolicyChance, Range, SiteChance, WhatIf

QUICK_POLICIES = tuple(name for name in POLICIES if name not in {"ga", "de", "random"})
"""Searching and guessing aside: those that can be asked a hundred times."""
SERVER_SPREAD = 0.3


def draw_problem(
    problem: Problem, size_spread: FloatArray, chance: np.random.Generator
) -> tuple[Problem, FloatArray]:
    """The problem with servers as they are drawn, and what the sites really hold; both log-normal."""
    count = len(problem)
    caps = problem.cap_bytes_per_s * np.exp(chance.normal(0.0, SERVER_SPREAD, count))
    actual = problem.data_bytes * np.exp(size_spread * chance.normal(0.0, 1.0, count))
    return replace(problem, cap_bytes_per_s=caps), actual


def what_if(
    job: str,
    problem: Problem,
    size_spread: FloatArray,
    *,
    objective: Objective,
    draws: int,
    seed: int,
    factors: Sequence[float] = (1.0, 0.5),
    policies: Sequence[str] = QUICK_POLICIES,
    tell: Callable[[str], None] = lambda _: None,
) -> WhatIf:
    """`size_spread` is the deviation of the logarithm of each site's amount of data."""
    if problem.capacity.least <= 0:
        policies = (OWN,)
    chances, sites = [], []
    for factor in factors:
        scaled = problem.with_capacity(problem.capacity.scaled(factor))
        for policy in policies:
            tell(f"{policy}, {factor:g} times the link")
            chance = np.random.default_rng([seed, 0x1F])
            pairs = [draw_problem(scaled, size_spread, chance) for _ in range(draws)]
            schedules = [
                run_policy(policy, drawn, objective, seed=seed, actual=actual) for drawn, actual in pairs
            ]
            chances.append(_chance(policy, factor, schedules))
            if policy == OWN:
                sites += _site_chances(scaled, factor, schedules, [actual for _, actual in pairs])
    most = problem.capacity.most
    too_slow = problem.data_bytes / problem.cap_bytes_per_s > problem.deadline_s
    return WhatIf(
        job=job,
        draws=draws,
        seed=seed,
        bandwidth_bytes_per_s=most if most < 1e15 else None,
        policies=chances,
        sites=sites,
        held_up_by_site=[name for name, late in zip(problem.names, too_slow, strict=True) if late],
    )


def _chance(policy: str, factor: float, schedules: Sequence[Schedule]) -> PolicyChance:
    return PolicyChance(
        policy=policy,
        bandwidth_factor=factor,
        all_met=float(np.mean([schedule.on_time for schedule in schedules])),
        late_sites=_range([schedule.late for schedule in schedules]),
        tardiness_s=_range([schedule.total_tardiness_s for schedule in schedules]),
        end_s=_range([schedule.max_completion_s for schedule in schedules]),
    )


def _site_chances(
    problem: Problem, factor: float, schedules: Sequence[Schedule], actuals: Sequence[FloatArray]
) -> list[SiteChance]:
    ends = np.array([schedule.end_s for schedule in schedules])
    late = np.array([schedule.tardiness_s > 0 for schedule in schedules])
    data = np.array(actuals)
    return [
        SiteChance(
            site=name,
            bandwidth_factor=factor,
            deadline_s=float(problem.deadline_s[place]) if problem.has_deadline[place] else None,
            data_bytes=_range(data[:, place]),
            end_s=_range(ends[:, place]),
            met=float(1.0 - late[:, place].mean()) if problem.has_deadline[place] else None,
        )
        for place, name in enumerate(problem.names)
    ]


def _range(values: Sequence[float] | FloatArray) -> Range:
    low, middle, high = np.quantile(np.asarray(values, dtype=np.float64), [0.1, 0.5, 0.9])
    return Range(float(low), float(middle), float(high))
