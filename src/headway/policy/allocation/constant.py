"""zhu2020's instant allocation: every site starts now and keeps its rate to the end.

Each function returns one rate a site. The paper's greedy loops fix one site at a time, O(n^2); fixing a
site only ever tightens the others the same way, so the result is the closed form that `fill` finds.
"""

from __future__ import annotations

import math

import numpy as np

from headway.policy.allocation.capacity import FloatArray
from headway.policy.allocation.fill import fill
from headway.policy.allocation.problem import Problem


def required_rates(problem: Problem) -> FloatArray:
    """The least constant rate that meets each deadline (eq 11 and 13); 0 without a deadline."""
    with np.errstate(divide="ignore"):
        return np.where(problem.deadline_s > 0, problem.data_bytes / problem.deadline_s, math.inf)


def required_bandwidth(problem: Problem) -> float:
    """U-bar (eq 1): the least bandwidth that meets all deadlines if rates are constant.

    Infinite when a deadline has passed, or a cap is below what its site needs.
    """
    rates = required_rates(problem)
    if np.any(rates > problem.cap_bytes_per_s * (1 + 1e-12)):
        return math.inf
    return float(rates.sum())


def is_sufficient(problem: Problem) -> bool:
    """Whether constant rates can meet all deadlines; sites without one must be left something too."""
    required, available = required_bandwidth(problem), problem.bandwidth_bytes_per_s
    if np.all(problem.has_deadline):
        return required <= available * (1 + 1e-12)
    return required < available


def m_maxt(problem: Problem) -> FloatArray:
    """Algorithm 1: the least largest end. D / min(t*, T), with the T that uses up the link.

    Line 12 is misprinted: what remains is shared in proportion to the data, not to D / t*.
    """
    if not is_sufficient(problem):
        return m_stet(problem)
    return fill(required_rates(problem), problem.cap_bytes_per_s, problem.data_bytes, _link(problem))


def m_sumt(problem: Problem) -> FloatArray:
    """Algorithm 2: the least sum of ends. max(D / t*, s sqrt(D)), with the s that uses up the link."""
    if not is_sufficient(problem):
        return m_stet(problem)
    return fill(required_rates(problem), problem.cap_bytes_per_s, np.sqrt(problem.data_bytes), _link(problem))


def m_stet(problem: Problem) -> FloatArray:
    """Algorithm 3: the least sum of tardiness. min(D / t*, s sqrt(D)): nobody ends before the deadline.

    A site without a deadline keeps its square-root share, and so does one that is late already.
    """
    ceiling = np.where(problem.has_deadline, required_rates(problem), math.inf)
    ceiling = np.minimum(ceiling, problem.cap_bytes_per_s)
    return fill(np.zeros(len(problem)), ceiling, np.sqrt(problem.data_bytes), _link(problem))


def _link(problem: Problem) -> float:
    return problem.bandwidth_bytes_per_s
