"""Constant rates by blind search, as zhu2020's comparison has them: a genetic algorithm and differential
evolution. Both only need a seed to repeat; both get slow with many sites, hence the limit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from headway.errors import JobError
from headway.policy.allocation.capacity import FloatArray
from headway.policy.allocation.constant import is_sufficient, required_rates
from headway.policy.allocation.problem import Objective, Problem

SEARCHABLE_SITES = 200

_OnRows = Callable[[FloatArray], FloatArray]


def genetic(problem: Problem, objective: Objective, rng: np.random.Generator) -> FloatArray:
    """Tournaments of two, blend crossover, a mutation now and then, and the best two always survive."""
    size, generations = 60, 120
    decode, score = _decoder(problem), _scorer(problem, objective)
    people = rng.random((size, len(problem)))
    scores = score(decode(people))
    for _ in range(generations):
        pairs = rng.integers(size, size=(2, size, 2))
        winners = np.where(scores[pairs[..., 0]] <= scores[pairs[..., 1]], pairs[..., 0], pairs[..., 1])
        blend = rng.random((size, len(problem)))
        children = blend * people[winners[0]] + (1 - blend) * people[winners[1]]
        mutated = rng.random(children.shape) < 1 / max(len(problem), 2)
        children = np.clip(children + mutated * rng.normal(0, 0.15, children.shape), 0, 1)
        best = np.argsort(scores, kind="stable")[:2]
        children[:2] = people[best]
        people, scores = children, score(decode(children))
    return _one(decode, people[int(np.argmin(scores))])


def differential_evolution(problem: Problem, objective: Objective, rng: np.random.Generator) -> FloatArray:
    # SciPy takes a while to load, and no other policy needs it.
    from scipy.optimize import differential_evolution as evolve

    decode, score = _decoder(problem), _scorer(problem, objective)
    if len(problem) == 1:
        return _one(decode, np.ones(1))
    found = evolve(
        lambda keys: score(decode(keys.T)),
        bounds=[(0.0, 1.0)] * len(problem),
        rng=rng,
        vectorized=True,
        updating="deferred",
        maxiter=100,
        popsize=10,
        polish=False,
    )
    return _one(decode, np.asarray(found.x))


def _decoder(problem: Problem) -> _OnRows:
    """Keys from 0 to 1 become shares: of what is left beyond the deadlines' needs, or of all of it."""
    if len(problem) > SEARCHABLE_SITES:
        raise JobError(
            f"ga and de search among at most {SEARCHABLE_SITES} sites at a time, not {len(problem)}: "
            "choose another policy, or fewer crawlers (--crawlers)"
        )
    floor = required_rates(problem) if is_sufficient(problem) else np.zeros(len(problem))
    rest = problem.bandwidth_bytes_per_s - float(floor.sum())

    def decode(keys: FloatArray) -> FloatArray:
        keys = keys + 1e-6  # a rate of zero would never end
        shares = keys / keys.sum(axis=1, keepdims=True)
        return np.asarray(np.minimum(floor + rest * shares, problem.cap_bytes_per_s))

    return decode


def _one(decode: _OnRows, keys: FloatArray) -> FloatArray:
    return decode(keys[np.newaxis]).ravel()


def _scorer(problem: Problem, objective: Objective) -> _OnRows:
    deadlines_first = not is_sufficient(problem)

    def score(rates: FloatArray) -> FloatArray:
        ends = problem.data_bytes / rates
        tardiness = np.maximum(ends - problem.deadline_s, 0)
        if objective is Objective.LATE_SITES:
            total = tardiness.sum(axis=1)
            return np.asarray(np.count_nonzero(tardiness, axis=1) + total / (1 + total))
        if deadlines_first or objective is Objective.TARDINESS:
            return np.asarray(tardiness.sum(axis=1))
        return np.asarray(ends.max(axis=1) if objective is Objective.MAX_COMPLETION else ends.sum(axis=1))

    return score
