"""The figures that `--plot` writes: of a plan, and of a run.

A plan: when each site is fetched and how fast, its deadline, and how full the link is. A run: the link second
by second under its bound, and each site from its first to its last page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from headway.planning.problem import FloatArray, IntArray, Schedule
from headway.report.canvas import new_figure, save_figure, spread_times
from headway.report.plan_text import most_telling
from headway.report.run_charts import as_steps, data_unit, short, time_unit
from headway.units import format_duration, format_rate
from headway.view.link import LinkHistory, LinkSecond
from headway.view.run import RunMonitor

# Okabe and Ito's colours, which colour-blind people can tell apart.
IN_TIME, LATE, NO_DEADLINE, INK = "#0072B2", "#D55E00", "#8C8C8C", "#222222"
_PALE = "#9BC4E2"
ROWS = 60
_RUN_ROWS = 40
HEADROOM = 1.35
"""A deadline later than this many times the last end is written as an arrow at the edge."""


def draw_plan(schedule: Schedule, title: str, path: Path) -> None:
    """Write PNG, SVG or PDF, by the ending of the path."""
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
    _draw_plan_link(link, schedule, scale_s)
    deadlines = schedule.problem.deadline_s[sites]
    shown = deadlines[deadlines <= rows.get_xlim()[1] * scale_s]
    is_spread = spread_times(link, scale_s, [*schedule.end_s[sites].tolist(), *shown.tolist()])
    link.set_xlabel("time, logarithmic" if is_spread else f"time ({unit})")
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
        # The height is the rate, yet a slow site must still be visible.
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
    """Label the first mark with free room to its right."""
    for row, site in enumerate(sites):
        deadline_s = float(schedule.problem.deadline_s[site])
        if deadline_s <= 0.85 * edge_s and schedule.end_s[site] <= deadline_s:
            place = (deadline_s / scale_s, row)
            axes.annotate("deadline", place, (4, 0), textcoords="offset points", va="center", fontsize=7)
            return


def _draw_plan_link(axes: Any, schedule: Schedule, scale_s: float) -> None:
    """How the link is shared by kinds of sites, under its capacity."""
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
    """The total rate of these sites from each edge on."""
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


# -- a run ------------------------------------------------------------------------------------------------


class SiteBar(msgspec.Struct, frozen=True):
    name: str
    start_s: float
    end_s: float
    deadline_s: float | None
    is_late: bool


def draw_run(link: Sequence[LinkSecond], started_at: float, sites: Sequence[SiteBar], path: Path) -> None:
    """Write the figure as PNG, SVG or PDF, by the ending of the path."""
    rows = min(len(sites), _RUN_ROWS)
    link_height, sites_height = 2.6, 0.8 + 0.26 * max(rows, 1)
    figure = new_figure(9.0, link_height + sites_height)
    top, below = figure.subplots(2, 1, height_ratios=(link_height, sites_height), sharex=True)
    last_s = max([second.at - started_at for second in link] + [site.end_s for site in sites], default=0.0)
    unit_s, unit = time_unit(last_s)
    _draw_run_link(top, link, started_at, unit_s)
    _draw_bars(below, sites[:rows], unit_s)
    times = [at_s for site in sites[:rows] for at_s in (site.end_s, site.deadline_s) if at_s is not None]
    is_spread = spread_times(below, unit_s, times)
    below.set_xlabel("time since the start, logarithmic" if is_spread else f"{unit} since the start")
    save_figure(figure, path, dpi=120)


def _draw_run_link(axes: Any, link: Sequence[LinkSecond], started_at: float, unit_s: float) -> None:
    rows = [(one.at - started_at, one.length_s, one.rate_bytes_per_s, one.bound_bytes_per_s) for one in link]
    at_s, length_s, rates, bounds = np.array(rows).reshape(-1, 4).T
    bounds = np.where(np.isfinite(bounds), bounds, np.nan)
    most = max(np.nanmax(bounds, initial=0.0), rates.max(initial=0.0)) or 1.0
    factor, prefix = data_unit(most)
    times, rates, bounds = as_steps(at_s - length_s, at_s, rates / factor, bounds / factor)
    axes.fill_between(times / unit_s, rates, color=_PALE, linewidth=0)
    axes.plot(times / unit_s, rates, color=IN_TIME, linewidth=1.4)
    if not np.isnan(bounds).all():
        axes.plot(times / unit_s, bounds, color=INK, linewidth=1.2)
        last = np.flatnonzero(~np.isnan(bounds))[-1]
        place = (times[last] / unit_s, bounds[last])
        axes.annotate("the bound", place, xytext=(-4, 4), ha="right", textcoords="offset points")
    axes.set_ylim(0, 1.18 * max(most / factor, 1e-9))
    axes.set_ylabel(f"{prefix}B/s, one-second samples")
    _plain(axes)


def _draw_bars(axes: Any, sites: Sequence[SiteBar], unit_s: float) -> None:
    for row, site in enumerate(sites):
        colour = LATE if site.is_late else IN_TIME
        length_s = site.end_s - site.start_s
        axes.barh(row, length_s / unit_s, left=site.start_s / unit_s, height=0.62, color=colour)
        if site.deadline_s is not None:
            axes.plot([site.deadline_s / unit_s] * 2, [row - 0.42, row + 0.42], color=INK, linewidth=2)
    marked = [(row, site.deadline_s) for row, site in enumerate(sites) if site.deadline_s is not None]
    if marked:
        row, deadline_s = marked[0]
        axes.annotate(
            "deadline", (deadline_s / unit_s, row), xytext=(5, 0), va="center", textcoords="offset points"
        )
    axes.set_yticks(range(len(sites)), [short(site.name) for site in sites])
    axes.invert_yaxis()
    axes.set_xlim(left=0)
    _plain(axes)


def _plain(axes: Any) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="x", color="#e6e6e6", linewidth=0.8)
    axes.set_axisbelow(True)


def draw_picture(folder: Path | str, path: Path, names: Mapping[str, str] | None = None) -> None:
    """`names`: the labels of the sites."""
    with RunMonitor(folder) as monitor:
        view = monitor.view()
        samples = monitor.reader.samples()
        history = LinkHistory(sample for sample in samples if sample.at >= view.started_at)
    bars = []
    for site in view.sites:
        if site.start_s is not None:
            end_s = site.end_s if site.end_s is not None else view.elapsed_s
            name = (names or {}).get(site.site, site.site)
            bars.append(SiteBar(name, max(0.0, site.start_s), end_s, site.deadline_s, site.is_missed))
    draw_run(history.seconds, view.started_at, bars, path)
