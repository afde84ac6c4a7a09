"""A plan as a figure: when each site is fetched and how fast, its deadline, and how full the link is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from headway.policy.allocation.capacity import FloatArray, IntArray
from headway.policy.allocation.problem import Schedule
from headway.report.figure import new_figure, save_figure
from headway.report.plan_table import most_telling
from headway.units import format_duration, format_rate

# Okabe and Ito's colours, which people who see few colours can tell apart.
IN_TIME, LATE, NO_DEADLINE, INK = "#0072B2", "#D55E00", "#8C8C8C", "#222222"
ROWS = 60
HEADROOM = 1.35
"""A deadline further out than this many times the last end is written as an arrow at the edge."""


def draw_plan(schedule: Schedule, title: str, path: Path) -> None:
    """Write PNG, SVG or PDF, by the file's ending."""
    save_figure(plan_figure(schedule, title), path)


def plan_figure(schedule: Schedule, title: str) -> Any:
    sites = most_telling(schedule, ROWS)
    sites.sort(key=lambda site: (schedule.start_s[site], schedule.end_s[site]))
    height = 2.6 + max(0.22 * len(sites), 1.6)
    figure = new_figure(9.0, height)
    rows, link = figure.subplots(
        2, 1, sharex=True, gridspec_kw={"height_ratios": [max(0.22 * len(sites), 1.6), 1.4]}
    )
    scale_s, unit = _time_unit(schedule.max_completion_s)
    _draw_rows(rows, schedule, sites, scale_s)
    _draw_link(link, schedule, scale_s)
    link.set_xlabel(f"time ({unit})")
    hidden = len(schedule.problem) - len(sites)
    rows.set_title(title + (f"\n(the {len(sites)} tightest of {len(schedule.problem)})" if hidden else ""))
    rows.title.set_fontsize(11)
    return figure


def _draw_rows(axes: Any, schedule: Schedule, sites: list[int], scale_s: float) -> None:
    problem, most = schedule.problem, schedule.problem.capacity.most
    edge_s = schedule.max_completion_s * 1.02
    deadlines = problem.deadline_s[sites]
    edge_s = max(edge_s, float(np.max(deadlines[deadlines <= HEADROOM * edge_s], initial=0.0)) * 1.02)
    by_site: dict[int, int] = {site: row for row, site in enumerate(sites)}
    rate_of = schedule.segment_rate_bytes_per_s / most
    for index in np.flatnonzero(np.isin(schedule.segment_site, sites)).tolist():
        row = by_site[int(schedule.segment_site[index])]
        from_s, to_s = float(schedule.segment_from_s[index]), float(schedule.segment_to_s[index])
        # The height is the rate, yet a slow site must still be seen.
        tall = max(0.84 * float(rate_of[index]), 0.06)
        axes.bar(
            from_s / scale_s,
            tall,
            (to_s - from_s) / scale_s,
            row + 0.42 - tall,
            align="edge",
            color=_colour(schedule, sites[row]),
            linewidth=0,
        )
    for row, site in enumerate(sites):
        deadline_s, late = float(problem.deadline_s[site]), schedule.tardiness_s[site] > 0
        if deadline_s <= edge_s:
            axes.plot([deadline_s / scale_s] * 2, [row - 0.45, row + 0.45], color=INK, linewidth=1.6)
        elif np.isfinite(deadline_s):
            text = f"due {format_duration(deadline_s)} ›"
            axes.annotate(text, (edge_s / scale_s, row), ha="right", va="center", color=INK, fontsize=7)
        if late:
            text = f"late by {format_duration(float(schedule.tardiness_s[site]))}"
            end = (float(schedule.end_s[site]) / scale_s, row)
            axes.annotate(text, end, (4, 0), textcoords="offset points", va="center", fontsize=7, color=LATE)
    _explain_mark(axes, schedule, sites, edge_s, scale_s)
    axes.set_yticks(range(len(sites)), [problem.names[site][:34] for site in sites])
    axes.tick_params(axis="y", labelsize=8 if len(sites) <= 30 else 7, length=0)
    axes.set_ylim(len(sites) - 0.4, -0.6)
    axes.set_xlim(0, edge_s / scale_s)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.grid(axis="x", color="#E5E5E5", linewidth=0.6)
    axes.set_axisbelow(True)


def _explain_mark(axes: Any, schedule: Schedule, sites: list[int], edge_s: float, scale_s: float) -> None:
    """The first mark with free room to its right says what it is."""
    for row, site in enumerate(sites):
        deadline_s = float(schedule.problem.deadline_s[site])
        if deadline_s <= 0.85 * edge_s and schedule.end_s[site] <= deadline_s:
            place = (deadline_s / scale_s, row)
            axes.annotate("deadline", place, (4, 0), textcoords="offset points", va="center", fontsize=7)
            return


def _draw_link(axes: Any, schedule: Schedule, scale_s: float) -> None:
    """How the link is shared by kinds of site, under what it has to give."""
    capacity = schedule.problem.capacity
    edges = np.unique(np.concatenate((schedule.segment_from_s, schedule.segment_to_s, [0.0])))
    late = schedule.tardiness_s > 0
    timed = schedule.problem.has_deadline
    base = np.zeros(len(edges))
    most = capacity.most
    kinds = (("in time", IN_TIME, timed & ~late), ("late", LATE, late), ("no deadline", NO_DEADLINE, ~timed))
    for label, colour, members in kinds:
        if not np.any(members):
            continue
        used = _used(schedule, np.flatnonzero(members), edges) / most
        axes.fill_between(
            edges / scale_s, base, base + used, step="post", color=colour, linewidth=0, label=label
        )
        base = base + used
    steps = [(from_s, rate) for from_s, rate in capacity.steps if from_s <= edges[-1]]
    times = [*(from_s / scale_s for from_s, _ in steps), axes.get_xlim()[1]]
    rates = [rate / most for _, rate in steps]
    axes.step(times, [*rates, rates[-1]], where="post", color=INK, linewidth=1.2)
    axes.annotate(f"bandwidth {format_rate(most)}", (0, 1), (2, 3), textcoords="offset points", fontsize=8)
    axes.set_ylim(0, 1.28)
    axes.set_yticks([0, 0.5, 1], ["0", "50%", "100%"], fontsize=8)
    axes.set_ylabel("link in use", fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="upper right", ncols=3, frameon=False, fontsize=8, borderaxespad=0, handlelength=1)


def _used(schedule: Schedule, sites: IntArray, edges: FloatArray) -> FloatArray:
    """The rate that these sites have together from each edge on."""
    theirs = np.isin(schedule.segment_site, sites)
    change = np.zeros(len(edges))
    rates = schedule.segment_rate_bytes_per_s[theirs]
    np.add.at(change, np.searchsorted(edges, schedule.segment_from_s[theirs]), rates)
    np.add.at(change, np.searchsorted(edges, schedule.segment_to_s[theirs]), -rates)
    return np.cumsum(change)


def _colour(schedule: Schedule, site: int) -> str:
    if not np.isfinite(schedule.problem.deadline_s[site]):
        return NO_DEADLINE
    return LATE if schedule.tardiness_s[site] > 0 else IN_TIME


def _time_unit(longest_s: float) -> tuple[float, str]:
    for scale_s, unit in ((86_400.0, "days"), (3_600.0, "hours"), (60.0, "minutes")):
        if longest_s >= 5 * scale_s:
            return scale_s, unit
    return 1.0, "seconds"
