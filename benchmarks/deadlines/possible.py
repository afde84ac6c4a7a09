"""How many deadlines can be met by who knows everything in advance: the benchmark's yardsticks."""

from __future__ import annotations

import numpy as np
from benchmarks.deadlines.cases import Case
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import lil_matrix

from headway.errors import JobError
from headway.planning.policies import PUBLISHED, run_policy
from headway.planning.problem import Objective


def planned(case: Case) -> int:
    """What `headway plan` says holds, with exact sizes and without knowing what will change."""
    return _met(case, "headway", given=False)


def best_of_paper(case: Case, *, searches: bool = True) -> tuple[int, str]:
    """The most that any policy of the papers meets: it plans with what the user says, and meets the truth."""
    names = [name for name in PUBLISHED if searches or name not in {"ga", "de"}]
    return max((_met(case, name, given=True), name) for name in names)


def _met(case: Case, policy: str, *, given: bool) -> int:
    problem = case.problem(given=given)
    actual = case.problem().data_bytes if given else None
    try:
        schedule = run_policy(policy, problem, Objective(case.objective), actual=actual)
    except JobError:
        return 0
    return int(np.count_nonzero(problem.has_deadline)) - schedule.late


def possible(case: Case) -> int:
    """The most deadlines that any schedule meets which knows all sizes and all changes: a mixed-integer
    programme over the intervals between deadlines and changes."""
    problem = case.problem()
    timed = np.flatnonzero(problem.has_deadline)
    edges = {0.0, *problem.deadline_s[timed].tolist()}
    edges |= {at for at in (case.bound_halved_at_s, case.slows_at_s) if at is not None}
    marks = np.array(sorted(edges))
    marks = marks[marks <= problem.deadline_s[timed].max()]
    count, spans, sites = len(timed), np.diff(marks), range(len(timed))
    before, after = problem.cap_bytes_per_s, case.caps_after()
    index = {(i, k): count + i * len(spans) + k for i in sites for k in range(len(spans))}
    size = count + count * len(spans)
    upper = np.zeros(size)
    upper[:count] = 1.0
    rows, lows, highs = lil_matrix((count + len(spans), size)), [], []
    for i in sites:
        site = int(timed[i])
        for k in range(len(spans)):
            is_slow = case.slows_at_s is not None and marks[k] >= case.slows_at_s
            cap = after[site] if is_slow else float(before[site])
            upper[index[i, k]] = cap * spans[k] if marks[k] < problem.deadline_s[site] else 0.0
            rows[i, index[i, k]] = 1.0
        # A site that is to be met gets all its data by its deadline.
        rows[i, i] = -float(problem.data_bytes[site])
        lows.append(0.0)
        highs.append(np.inf)
    for k in range(len(spans)):
        halved = case.bound_halved_at_s is not None and marks[k] >= case.bound_halved_at_s
        for i in sites:
            rows[count + k, index[i, k]] = 1.0
        lows.append(-np.inf)
        highs.append(problem.bandwidth_bytes_per_s * spans[k] * (0.5 if halved else 1.0) * (1 + 1e-9))
    wanted = np.zeros(size)
    wanted[:count] = -1.0
    whole = np.zeros(size)
    whole[:count] = 1
    found = milp(
        wanted,
        constraints=LinearConstraint(rows.tocsr(), lows, highs),
        bounds=Bounds(np.zeros(size), upper),
        integrality=whole,
    )
    return round(-float(found.fun))
