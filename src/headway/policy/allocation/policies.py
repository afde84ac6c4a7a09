"""Every policy by its name: from a problem to a schedule."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from headway.errors import JobError
from headway.policy.allocation import virtual
from headway.policy.allocation.baselines import probandwidth, prodataamount, random_shares
from headway.policy.allocation.capacity import FloatArray
from headway.policy.allocation.constant import is_sufficient, m_maxt, m_stet, m_sumt
from headway.policy.allocation.problem import Objective, Problem, Schedule
from headway.policy.allocation.rounds import Allocate, alloc_once, batches, realloc
from headway.policy.allocation.search import differential_evolution, genetic

Policy = Callable[[Problem, Objective, np.random.Generator, FloatArray | None], Schedule]
"""The last argument is what the sites really hold, where that is to differ from the estimates."""

_Choose = Callable[[Objective, np.random.Generator], Allocate]
_Form = Callable[[Problem, Allocate, FloatArray | None], Schedule]

_AT_ONCE = frozenset({"m-maxt", "m-sumt", "m-stet", "random", "probandwidth", "prodataamount", "ga", "de"})


def run_policy(
    name: str,
    problem: Problem,
    objective: Objective = Objective.MAX_COMPLETION,
    *,
    seed: int = 0,
    actual: FloatArray | None = None,
) -> Schedule:
    """Work out one policy's schedule. Only random, ga and de use the seed."""
    policy = POLICIES.get(name)
    if policy is None:
        raise JobError(f"there is no policy {name!r}; choose one of {', '.join(POLICIES)}")
    if name != "headway" and problem.capacity.least <= 0:
        raise JobError(f"the policy {name} needs a bandwidth that is never zero; only headway can pause")
    if not len(problem):
        return Schedule.empty(problem)
    schedule = policy(problem, objective, np.random.default_rng(seed), actual)
    return replace(schedule, notes=tuple(_notes(name, problem)))


def _together(problem: Problem, allocate: Allocate, actual: FloatArray | None) -> Schedule:
    """All at once where there are crawlers enough, else in rounds, so that m is never exceeded."""
    if len(problem) > problem.crawlers:
        return realloc(problem, allocate, actual)
    if actual is not None:
        return alloc_once(problem, allocate, actual)
    return Schedule.of_constant_rates(problem, allocate(problem))


def _policy(form: _Form, choose: _Choose) -> Policy:
    def policy(
        problem: Problem, objective: Objective, rng: np.random.Generator, actual: FloatArray | None
    ) -> Schedule:
        return form(problem, choose(objective, rng), actual)

    return policy


def _headway(
    problem: Problem, objective: Objective, _rng: np.random.Generator, actual: FloatArray | None
) -> Schedule:
    return virtual.run(problem, objective, actual)


def _first_allocation(objective: Objective, _rng: np.random.Generator) -> Allocate:
    """The paper does not say which algorithm AllocOnce uses once; the one made for the objective."""
    return m_sumt if objective is Objective.SUM_COMPLETION else m_maxt


POLICIES: Mapping[str, Policy] = MappingProxyType(
    {
        "m-maxt": _policy(_together, lambda _objective, _rng: m_maxt),
        "m-sumt": _policy(_together, lambda _objective, _rng: m_sumt),
        "m-stet": _policy(_together, lambda _objective, _rng: m_stet),
        "random": _policy(_together, lambda _objective, rng: lambda seen: random_shares(seen, rng)),
        "probandwidth": _policy(_together, lambda _objective, _rng: probandwidth),
        "prodataamount": _policy(_together, lambda _objective, _rng: prodataamount),
        "ga": _policy(_together, lambda objective, rng: lambda seen: genetic(seen, objective, rng)),
        "de": _policy(
            _together, lambda objective, rng: lambda seen: differential_evolution(seen, objective, rng)
        ),
        "realloc-maxt": _policy(realloc, lambda _objective, _rng: m_maxt),
        "realloc-sumt": _policy(realloc, lambda _objective, _rng: m_sumt),
        "realloc-probandwidth": _policy(realloc, lambda _objective, _rng: probandwidth),
        "alloconce": _policy(alloc_once, _first_allocation),
        "realloc-prodataamount": _policy(batches, lambda _objective, _rng: prodataamount),
        "headway": _headway,
    }
)


def _notes(name: str, problem: Problem) -> Iterator[str]:
    if name == "headway":
        return
    if not problem.capacity.is_constant:
        yield "it cannot follow a timetable, and counts on the least bandwidth at any time"
    if name in ("m-maxt", "m-sumt") and len(problem) <= problem.crawlers and not is_sufficient(problem):
        yield "constant rates cannot meet all deadlines here, so m-stet takes over, as in the paper"
    if name in _AT_ONCE and len(problem) > problem.crawlers:
        yield f"it would open all sites at once; with {problem.crawlers} crawlers it goes in rounds instead"
    if "probandwidth" in name and not np.all(problem.has_deadline):
        yield "sites without a deadline stand in with the latest deadline of the others"
