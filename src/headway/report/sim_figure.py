"""Simulated crawls as a figure: PageRank against pages and time, robots and bandwidth against time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from headway.report.figure import new_figure, save_figure
from headway.report.sim_result import Curve, SimResult
from headway.report.sim_table import heading
from headway.units import format_rate

# Okabe and Ito's colours, which people who see few colours can tell apart; lines differ in style as well.
STYLES = {
    "optimal": ("#000000", "-"),
    "length": ("#0072B2", "-"),
    "batch": ("#009E73", "-"),
    "depth": ("#E69F00", "-"),
    "partial": ("#D55E00", "--"),
    "flow": ("#CC79A7", "-"),
    "random": ("#808080", ":"),
    "klwf": ("#CC79A7", "--"),
    "score": ("#56B4E9", "-."),
    "deadline": ("#56B4E9", "-"),
}
_SECOND_STYLES = ("--", "-.", ":")


def draw_comparison(results: Sequence[SimResult], path: Path) -> None:
    """Write PNG, SVG or PDF, by the file's ending."""
    save_figure(comparison_figure(results), path)


def comparison_figure(results: Sequence[SimResult]) -> Any:
    figure = new_figure(11.5, 8.2)
    (by_pages, by_time), (robots, link) = figure.subplots(2, 2)
    scale_s, unit = time_unit(max(result.seconds for result in results))
    styles = line_styles([result.strategy for result in results])
    for result, (colour, dash) in zip(results, styles, strict=True):
        look = {"color": colour, "linestyle": dash, "linewidth": 1.6}
        _plot(by_pages, result.pagerank_curve, 1.0, look)
        _plot(by_time, result.pagerank_by_time, scale_s, look)
        thinner = {**look, "linewidth": 1.2}
        _steps(robots, result.robots_by_time, scale_s, thinner)
        _steps(link, _coarser(result.bandwidth_by_time), scale_s, thinner)
    label_lines(by_pages, [r.strategy for r in results], [r.pagerank_curve for r in results], styles)
    _name_panel(by_pages, "PageRank gathered, by pages fetched", "fraction of the pages", "of the PageRank")
    _name_panel(by_time, "PageRank gathered, by time", f"time ({unit})", "of the PageRank")
    _name_panel(robots, "Robots active", f"time ({unit})", "robots")
    _name_panel(link, "Bandwidth used", f"time ({unit})", "bytes per second")
    for axes in (by_pages, by_time):
        axes.set_ylim(0, 1.02)
    by_pages.set_xlim(0, 1)
    by_pages.plot([0, 1], [0, 1], color="#CCCCCC", linewidth=0.8, zorder=0)
    most = max(result.robots for result in results)
    robots.set_ylim(0, max(row[1] for result in results for row in result.robots_by_time) * 1.12 or most)
    _rate_axis(link, results)
    handles = by_time.get_lines()[: len(results)]
    by_time.legend(handles, [r.strategy for r in results], loc="lower right", frameon=False, fontsize=8)
    figure.suptitle(heading(results), fontsize=11)
    return figure


def line_styles(names: Sequence[str]) -> list[tuple[str, str]]:
    """A colour for each strategy, and another dash for the second of a kind."""
    used: set[tuple[str, str]] = set()
    styles = []
    for name in names:
        colour, dash = STYLES.get(name.partition("(")[0], ("#444444", "-"))
        style = next(
            (s for s in [(colour, dash), *((colour, d) for d in _SECOND_STYLES)] if s not in used),
            (colour, dash),
        )
        used.add(style)
        styles.append(style)
    return styles


def label_lines(
    axes: Any, names: Sequence[str], curves: Sequence[Curve], styles: Sequence[tuple[str, str]]
) -> None:
    """Write each name on its own line, where the other lines are furthest; names do not cover each other.
    For axes from 0 to 1 both ways."""
    grid = np.linspace(0.1, 0.88, 40)
    heights = [np.interp(grid, *np.array(curve).T) for curve in curves]
    taken: list[tuple[float, float]] = []
    for number, name in enumerate(names):
        others = [np.abs(heights[number] - height) for place, height in enumerate(heights) if place != number]
        room = np.min(others, axis=0) if others else np.ones(len(grid))
        for x, y in taken:
            is_near = (np.abs(grid - x) < 0.2) & (np.abs(heights[number] - y) < 0.06)
            room = np.where(is_near, -1.0, room)
        # A name at the very edge reads worse than one with a little less room.
        best = int(np.argmax(np.minimum(room, 0.12) - 0.02 * np.abs(grid - 0.5)))
        taken.append((float(grid[best]), float(heights[number][best])))
        axes.annotate(
            name,
            taken[-1],
            color=styles[number][0],
            fontsize=8.5,
            ha="center",
            va="center",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8},
        )


def time_unit(longest_s: float) -> tuple[float, str]:
    for scale_s, unit in ((86_400.0, "days"), (3_600.0, "hours"), (60.0, "minutes")):
        if longest_s >= 3 * scale_s:
            return scale_s, unit
    return 1.0, "seconds"


def clear_axes(axes: Any) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="#EBEBEB", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=8)


def _plot(axes: Any, curve: Curve, scale: float, look: dict[str, Any]) -> None:
    axes.plot([row[0] / scale for row in curve], [row[1] for row in curve], **look)


def _steps(axes: Any, curve: Curve, scale: float, look: dict[str, Any]) -> None:
    rows = [[0.0, curve[0][1]], *curve] if curve else []
    axes.step([row[0] / scale for row in rows], [row[1] for row in rows], where="pre", **look)


def _coarser(curve: Curve, together: int = 4) -> Curve:
    """Means over several spans: single pages make the finer curve flicker."""
    groups = [curve[begin : begin + together] for begin in range(0, len(curve), together)]
    return [[group[-1][0], sum(row[1] for row in group) / len(group)] for group in groups]


def _name_panel(axes: Any, title: str, across: str, up: str) -> None:
    clear_axes(axes)
    axes.set_title(title, fontsize=10, loc="left")
    axes.set_xlabel(across, fontsize=9)
    axes.set_ylabel(up, fontsize=9)
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)


def _rate_axis(axes: Any, results: Sequence[SimResult]) -> None:
    from matplotlib.ticker import FuncFormatter

    highest = max(row[1] for result in results for row in _coarser(result.bandwidth_by_time))
    bound = results[0].bandwidth_bytes_per_s
    if bound is not None and bound <= 3 * highest:
        axes.axhline(bound, color="#222222", linewidth=1.0)
        text = f"the link has {format_rate(bound)}"
        axes.annotate(
            text,
            (1, bound),
            (-2, 3),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            ha="right",
            fontsize=8,
        )
        highest = max(highest, bound)
    axes.set_ylim(0, highest * 1.12 or 1.0)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda rate, _: format_rate(rate)))
    axes.set_ylabel("")
