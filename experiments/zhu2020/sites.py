"""The paper's two jobs. Data and bandwidth are its own; deadlines it does not print, so ours are stated."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from headway.planning.problem import Problem

RATIOS = np.array([1, 1.3, 1.6, 1.9, 2.2, 2.5])
NAMES = ("wiki", "pearvideo", "huanqiu", "sinanews", "huitu", "chinanews")
DEADLINES_S = np.array([60.0, 90.0, 180.0, 200.0, 320.0, 400.0])
"""Chosen so that constant rates need 746 kbit/s: less than any bandwidth of figure 2."""
DATA_KBIT = 125_000.0
FIFTY = 50
CRAWLERS = 5


def six_sites(
    bandwidth_kbit_per_s: float = 1000.0,
    data_kbit: float = DATA_KBIT,
    tightness_kbit_per_s: float | None = None,
) -> Problem:
    """`tightness` is the sum of D / t*: deadlines are scaled until they have it."""
    data = data_kbit * RATIOS / RATIOS.sum()
    deadlines = DEADLINES_S
    if tightness_kbit_per_s is not None:
        deadlines = deadlines * float((data / deadlines).sum()) / tightness_kbit_per_s
    return Problem.of(data, bandwidth_kbit_per_s, deadline_s=deadlines, names=NAMES)


Draw = Callable[[np.random.Generator, np.ndarray, float], np.ndarray]


def _anywhere(rng: np.random.Generator, data: np.ndarray, whole_s: float) -> np.ndarray:
    return rng.uniform(0.05, 1.3, len(data)) * whole_s


def _in_turn(rng: np.random.Generator, data: np.ndarray, whole_s: float) -> np.ndarray:
    order = rng.permutation(len(data))
    deadlines = np.empty(len(data))
    deadlines[order] = np.cumsum(data[order]) / data.sum() * whole_s * rng.uniform(0.9, 1.5, len(data))
    return deadlines


def _loose(rng: np.random.Generator, data: np.ndarray, whole_s: float) -> np.ndarray:
    return rng.uniform(0.3, 2.0, len(data)) * whole_s


DRAWS: dict[str, Draw] = {"in turn": _in_turn, "anywhere": _anywhere, "loose": _loose}
"""How deadlines are drawn, the time that all the data takes at 530 kbit/s being the unit. In turn: about when
each would end if they were fetched one after another; anywhere: from 0.05 to 1.3; loose: from 0.3 to 2."""


def fifty_sites(way: str, seed: int) -> Callable[[float], Problem]:
    """One draw of fifty sites, each the size of one of the six; the same at every bandwidth."""
    rng = np.random.default_rng([seed, list(DRAWS).index(way)])
    data = DATA_KBIT / RATIOS.sum() * rng.uniform(1.0, 2.5, FIFTY)
    deadlines = DRAWS[way](rng, data, float(data.sum()) / 530.0)
    return lambda bandwidth: Problem.of(data, bandwidth, deadline_s=deadlines, crawlers=CRAWLERS)


def draws(count: int) -> Iterator[tuple[str, int]]:
    return ((way, seed) for way in DRAWS for seed in range(count))
