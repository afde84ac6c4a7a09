"""Policies over a sweep of one factor, as rows that figures, CSV files and verdicts are made from."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import numpy as np

from headway.planning.policies import run_policy
from headway.planning.problem import Objective, Problem

from .sites import DRAWS, fifty_sites, six_sites

CONSTANT = ("m-maxt", "m-sumt", "random", "probandwidth", "ga", "de", "headway")
SHORT = ("m-stet", "prodataamount", "probandwidth", "ga", "de", "headway")
ROUNDS = (
    "realloc-maxt",
    "realloc-sumt",
    "realloc-probandwidth",
    "alloconce",
    "realloc-prodataamount",
    "headway",
)
SEED = 1


class Point(msgspec.Struct, frozen=True):
    figure: str
    factor: str
    x: float
    policy: str
    max_end_s: float
    sum_of_ends_s: float
    sum_of_execution_s: float
    tardiness_s: float
    late: float
    tardiness_by_sum_s: float
    """Beside the sum of execution times, where that was the objective."""


def sufficient() -> list[Point]:
    """Figures 2 to 4."""
    return [
        *_sweep("2", "bandwidth (kbit/s)", range(800, 1201, 50), CONSTANT, six_sites),
        *_sweep("3", "data (Mbit)", range(80, 166, 10), CONSTANT, lambda x: six_sites(data_kbit=1000 * x)),
        *_sweep(
            "4",
            "tightness (kbit/s)",
            (700, 750, 800, 850, 900, 925, 950, 965, 975, 985, 995),
            CONSTANT,
            lambda x: six_sites(tightness_kbit_per_s=x),
        ),
    ]


def insufficient() -> list[Point]:
    """Figures 5 to 7."""
    return [
        *_sweep("5", "bandwidth (kbit/s)", range(500, 741, 30), SHORT, six_sites),
        *_sweep("6", "data (Mbit)", range(170, 251, 10), SHORT, lambda x: six_sites(data_kbit=1000 * x)),
        *_sweep(
            "7",
            "tightness (kbit/s)",
            range(1050, 2051, 100),
            SHORT,
            lambda x: six_sites(tightness_kbit_per_s=x),
        ),
    ]


def scheduling(draws: int) -> dict[str, list[list[Point]]]:
    """Figures 8 to 10, by the way in which deadlines are drawn: one list of points for each draw."""
    return {
        way: [
            _sweep("8-10", "bandwidth (kbit/s)", range(520, 541, 2), ROUNDS, fifty_sites(way, seed))
            for seed in range(draws)
        ]
        for way in DRAWS
    }


def mean_over_draws(draws: Sequence[Sequence[Point]]) -> list[Point]:
    """The same sweep, averaged point by point."""
    averaged = []
    for points in zip(*draws, strict=True):
        numbers = {
            name: float(np.mean([getattr(point, name) for point in points]))
            for name in (
                "max_end_s",
                "sum_of_ends_s",
                "sum_of_execution_s",
                "tardiness_s",
                "late",
                "tardiness_by_sum_s",
            )
        }
        averaged.append(msgspec.structs.replace(points[0], **numbers))
    return averaged


def write_csv(points: Sequence[Point], path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(Point.__struct_fields__)
        for point in points:
            rows.writerow(_shown(value) for value in msgspec.structs.astuple(point))


def _sweep(
    figure: str,
    factor: str,
    xs: Sequence[float],
    policies: Sequence[str],
    problem_at: Callable[[float], Problem],
) -> list[Point]:
    points = []
    for x in xs:
        problem = problem_at(float(x))
        for policy in policies:
            # Searches and headway are asked for each objective by itself, as the paper asks its own.
            by_max = run_policy(policy, problem, Objective.MAX_COMPLETION, seed=SEED)
            by_sum = run_policy(policy, problem, Objective.SUM_COMPLETION, seed=SEED)
            points.append(
                Point(
                    figure,
                    factor,
                    float(x),
                    policy,
                    by_max.max_completion_s,
                    by_sum.sum_completion_s,
                    by_sum.sum_execution_s,
                    by_max.total_tardiness_s,
                    by_max.late,
                    by_sum.total_tardiness_s,
                )
            )
    return points


def _shown(value: object) -> object:
    return f"{value:.6g}" if isinstance(value, float) else value
