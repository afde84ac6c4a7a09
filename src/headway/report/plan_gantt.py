"""A plan as a picture in the terminal: a row a site, time to the right, height for the rate."""

from __future__ import annotations

import numpy as np

from headway.policy.allocation.capacity import FloatArray
from headway.policy.allocation.problem import Schedule
from headway.units import format_duration

LEVELS = " ▁▂▃▄▅▆▇█"
DEADLINE = "│"
MISSED = "╳"
NAME_WIDTH = 24


def gantt(schedule: Schedule, sites: list[int], width: int = 80) -> list[str]:
    """Lines for these sites. A deadline is drawn as a bar, or as a cross where the site is late."""
    problem = schedule.problem
    label_width = min(max((len(problem.names[site]) for site in sites), default=4), NAME_WIDTH)
    cells = max(width - label_width - 2, 20)
    # A deadline far beyond the last end would only squeeze the rest.
    horizon_s = schedule.max_completion_s * 1.02 or 1.0
    full = _mean_rates(schedule, sites, horizon_s, cells) / problem.capacity.most
    lines = []
    for row, site in enumerate(sites):
        levels = np.ceil(np.clip(full[row], 0, 1) * (len(LEVELS) - 1) - 1e-6).astype(int)
        bar = [LEVELS[level] for level in levels]
        deadline_s = float(problem.deadline_s[site])
        if deadline_s <= horizon_s:
            mark = MISSED if schedule.tardiness_s[site] > 0 else DEADLINE
            bar[min(int(deadline_s / horizon_s * cells), cells - 1)] = mark
        lines.append(f"{_short(problem.names[site], label_width)}  {''.join(bar).rstrip()}")
    return [*lines, _axis(horizon_s, label_width, cells)]


def _mean_rates(schedule: Schedule, sites: list[int], horizon_s: float, cells: int) -> FloatArray:
    """What each of these sites gets in each cell of time, on average: (sites, cells)."""
    edges = np.linspace(0.0, horizon_s, cells + 1)
    rates = np.zeros((len(sites), cells))
    row_of = {site: row for row, site in enumerate(sites)}
    shown = np.isin(schedule.segment_site, sites)
    cell_s = horizon_s / cells
    columns = (
        schedule.segment_site,
        schedule.segment_from_s,
        schedule.segment_to_s,
        schedule.segment_rate_bytes_per_s,
    )
    for site, from_s, to_s, rate in zip(*(column[shown].tolist() for column in columns), strict=True):
        overlap = np.clip(np.minimum(edges[1:], to_s) - np.maximum(edges[:-1], from_s), 0.0, None)
        rates[row_of[site]] += rate * overlap / cell_s
    return rates


def _axis(horizon_s: float, label_width: int, cells: int) -> str:
    middle, end = format_duration(horizon_s / 2), format_duration(horizon_s)
    left = "0".ljust(max(cells // 2 - len(middle) // 2, 1)) + middle
    return " " * (label_width + 2) + left + end.rjust(max(cells - len(left), len(end) + 1))


def _short(name: str, width: int) -> str:
    return name.ljust(width) if len(name) <= width else name[: width - 1] + "…"
