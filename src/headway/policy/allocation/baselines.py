"""The constant-rate allocations that zhu2020 measures itself against: Random, PROBandwidth, PRODataAmount."""

from __future__ import annotations

import numpy as np

from headway.policy.allocation.capacity import FloatArray
from headway.policy.allocation.constant import is_sufficient, required_rates
from headway.policy.allocation.fill import fill
from headway.policy.allocation.problem import Problem

DUE_SOON = 0.1
"""No site counts as due sooner than within this part of the time that the data needs in all: one that is late
already would otherwise take the whole link, and the round would last for ages."""


def prodataamount(problem: Problem) -> FloatArray:
    """In proportion to the data (eq 16): all end together, unless a cap says otherwise."""
    return _share(problem, problem.data_bytes)


def probandwidth(problem: Problem) -> FloatArray:
    """In proportion to D / t* (eq 14, which prints D for the required rate).

    A site without a deadline stands in with the latest deadline of the others; with none at all the
    shares are those of the data.
    """
    known = problem.deadline_s[problem.has_deadline]
    if not len(known):
        return prodataamount(problem)
    due_soon = DUE_SOON * float(problem.data_bytes.sum()) / problem.bandwidth_bytes_per_s
    deadline = np.where(problem.has_deadline, problem.deadline_s, known.max())
    return _share(problem, problem.data_bytes / np.maximum(deadline, due_soon))


def random_shares(problem: Problem, rng: np.random.Generator) -> FloatArray:
    """What the deadlines need, and the rest of the link at random.

    The paper uses it only where the bandwidth is sufficient; elsewhere here the whole link goes at random.
    """
    lot = 1.0 - rng.random(len(problem))
    if not is_sufficient(problem):
        return _share(problem, lot)
    needed = required_rates(problem)
    rest = problem.bandwidth_bytes_per_s - float(needed.sum())
    return needed + fill(np.zeros(len(problem)), np.maximum(problem.cap_bytes_per_s - needed, 0), lot, rest)


def _share(problem: Problem, shape: FloatArray) -> FloatArray:
    nothing = np.zeros(len(problem))
    return fill(nothing, problem.cap_bytes_per_s, shape, problem.bandwidth_bytes_per_s)
