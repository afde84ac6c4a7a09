"""A run as one picture: the link second by second under its bound, and each site's time with its deadline."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from headway.report.figure import new_figure, save_figure
from headway.report.run_charts import data_unit, short, time_unit

_BLUE, _ORANGE, _INK, _PALE = "#0072b2", "#d55e00", "#222222", "#9bc4e2"


class LinkSecond(msgspec.Struct, frozen=True):
    at_s: float
    rate_bytes_per_s: float
    bound_bytes_per_s: float
    """Infinity: none."""


class SiteBar(msgspec.Struct, frozen=True):
    name: str
    start_s: float
    end_s: float
    deadline_s: float | None
    is_late: bool


def draw_run(link: Sequence[LinkSecond], sites: Sequence[SiteBar], path: Path) -> None:
    """Write the figure as PNG, SVG or PDF, by the ending of the path."""
    rows = min(len(sites), 40)
    link_height, sites_height = 2.6, 0.8 + 0.26 * max(rows, 1)
    figure = new_figure(9.0, link_height + sites_height)
    top, below = figure.subplots(2, 1, height_ratios=(link_height, sites_height), sharex=True)
    last_s = max([second.at_s for second in link] + [site.end_s for site in sites], default=0.0)
    unit_s, unit = time_unit(last_s)
    _draw_link(top, link, unit_s)
    _draw_sites(below, sites[:rows], unit_s)
    below.set_xlabel(f"{unit} since the start")
    save_figure(figure, path, dpi=120)


def _draw_link(axes: Any, link: Sequence[LinkSecond], unit_s: float) -> None:
    times = [second.at_s / unit_s for second in link]
    bounds = [second.bound_bytes_per_s for second in link]
    finite = [bound for bound in bounds if bound != float("inf")]
    rates = [second.rate_bytes_per_s for second in link]
    most = max([*finite, *rates], default=1.0)
    factor, prefix = data_unit(most)
    rates, bounds, finite = ([each / factor for each in some] for some in (rates, bounds, finite))
    axes.fill_between(times, rates, step="pre", color=_PALE, linewidth=0)
    axes.step(times, rates, where="pre", color=_BLUE, linewidth=1.4)
    if finite:
        axes.step(times, bounds, where="pre", color=_INK, linewidth=1.2)
        axes.annotate(
            "the bound", (times[-1], finite[-1]), xytext=(-4, 4), ha="right", textcoords="offset points"
        )
    axes.set_ylim(0, 1.18 * max(most / factor, 1e-9))
    axes.set_ylabel(f"{prefix}B/s, one-second samples")
    _plain(axes)


def _draw_sites(axes: Any, sites: Sequence[SiteBar], unit_s: float) -> None:
    for row, site in enumerate(sites):
        colour = _ORANGE if site.is_late else _BLUE
        length_s = site.end_s - site.start_s
        axes.barh(row, length_s / unit_s, left=site.start_s / unit_s, height=0.62, color=colour)
        if site.deadline_s is not None:
            axes.plot([site.deadline_s / unit_s] * 2, [row - 0.42, row + 0.42], color=_INK, linewidth=2)
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
