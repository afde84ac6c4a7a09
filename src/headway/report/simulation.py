"""Simulated crawls side by side, as a table and as a figure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from headway.report.canvas import new_figure, save_figure
from headway.report.plots import IN_TIME, INK, LATE, NO_DEADLINE
from headway.sim.job_simulation import JobSimulation, JobSite, tightest, verdict
from headway.sim.study import ACCELERATOR, Curve, SimResult, SiteEnd
from headway.units import format_duration, format_rate, format_size


def heading(results: Sequence[SimResult]) -> str:
    """The parameters that all results share."""
    first = results[0]
    bound = "an unbounded link"
    if first.bandwidth_bytes_per_s is not None:
        bound = f"a link of {format_rate(first.bandwidth_bytes_per_s)}"
    most = "1 connection" if first.robots == 1 else f"at most {first.robots} connections"
    pages = "1 page" if first.pages_per_connection == 1 else f"{first.pages_per_connection} pages"
    by = "accelerator" if first.simulated_by == ACCELERATOR else "engine"
    return (
        f"{first.web}: {most} at a time, {first.interval_s:g} s between two to a site, "
        f"{pages} on each, {bound}; simulated by the {by}"
    )


def strategy_table(results: Sequence[SimResult]) -> Table:
    differ = len({result.pages for result in results}) > 1
    # With the pages, too, eighty columns leave less room for the others.
    table = Table(box=None, pad_edge=False, padding=(0, 1 if differ else 2, 0, 0), header_style="bold")
    table.add_column("strategy", no_wrap=True)
    for name in ("time", "speed-up", "busy", "link", "area", "half", "80%"):
        table.add_column(name, no_wrap=True, justify="right")
    if differ:
        table.add_column("pages", no_wrap=True, justify="right")
    for result in results:
        cells = [
            result.strategy,
            format_duration(result.seconds),
            f"{result.speedup:.1f}",
            f"{result.mean_active_robots:.1f}",
            _link(result, is_short=differ),
            f"{result.pagerank_auc:.3f}",
            _percent(result.pages_for_half_pagerank),
            _percent(result.pages_for_80_pagerank),
        ]
        table.add_row(*cells, *([f"{result.pages:,}"] if differ else []))
    return table


def legend(results: Sequence[SimResult]) -> str:
    failed = {result.strategy: result.failed for result in results if result.failed}
    if not failed:
        return LEGEND
    if len(set(failed.values())) == 1 and len(failed) == len(results):
        return f"{LEGEND} {results[0].failed:,} requests failed with each."
    each = ", ".join(f"{name} {count:,}" for name, count in failed.items())
    return f"{LEGEND} Requests that failed: {each}."


def fetched(result: SimResult) -> str:
    return f"{result.pages:,} pages" + (f" ({result.failed:,} requests failed)" if result.failed else "")


LEGEND = (
    "speed-up: against one connection that only waits for answers. busy: connections in use on average. "
    "area: the mean fraction of the PageRank over the pages, 0.5 for a random order. half, 80%: the pages "
    "that it takes to gather so much of the PageRank."
)


def one_result(result: SimResult) -> list[str]:
    size, length = format_size(result.wire_bytes), format_duration(result.seconds)
    active = f"{result.mean_active_robots:.1f} of {result.robots}"
    lines = [
        f"{result.strategy}: {fetched(result)}, {size} in {length}",
        f"connections in use {active}, speed-up {result.speedup:.1f}, link {_link(result)}",
    ]
    if result.pages_for_half_pagerank is not None:
        lines.append(
            f"half of the PageRank with {_percent(result.pages_for_half_pagerank)} of the pages, 80% of it "
            f"with {_percent(result.pages_for_80_pagerank)}; area {result.pagerank_auc:.3f} (random 0.5)"
        )
    return lines


def _link(result: SimResult, *, is_short: bool = False) -> str:
    rate = format_rate(result.mean_bytes_per_s)
    if result.bandwidth_bytes_per_s is None:
        return rate
    share = f"{result.mean_bytes_per_s / result.bandwidth_bytes_per_s:.0%}"
    return share if is_short else f"{rate} ({share})"


def _percent(fraction: float | None) -> str:
    return "-" if fraction is None else f"{fraction:.0%}"


# Okabe and Ito's colours, which colour-blind people can tell apart; lines differ in style as well.
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
_MOST_ROWS = 40
_SECOND_STYLES = ("--", "-.", ":")


def draw_comparison(results: Sequence[SimResult], path: Path) -> None:
    """Write PNG, SVG or PDF, by the ending of the path."""
    save_figure(comparison_figure(results), path)


def draw_job(result: JobSimulation, path: Path) -> None:
    save_figure(job_figure(result), path)


def job_figure(result: JobSimulation) -> Any:
    """When each site is crawled and its deadline, and the link under its bound."""
    sites = sorted(tightest(result.sites, _MOST_ROWS), key=lambda site: site.deadline_s or math.inf)
    first = {end.site: end for end in result.first.sites}
    height = 1.4 + 0.2 * len(sites)
    figure = new_figure(11.5, height + 2.6)
    rows, link = figure.subplots(2, 1, height_ratios=[height, 2.2], sharex=True)
    ends = [result.end_s.high, *(site.end_s.high for site in sites if site.end_s is not None)]
    edge_s = 1.03 * max(ends)
    scale_s, unit = time_unit(edge_s)
    for row, site in enumerate(sites):
        _draw_site(rows, row, site, first[site.site], (edge_s, scale_s))
    rows.set_yticks(range(len(sites)), [site.site.partition("://")[2][:34] for site in sites])
    rows.tick_params(axis="y", labelsize=7, length=0)
    rows.set_ylim(len(sites) - 0.4, -0.6)
    rows.set_xlim(0, edge_s / scale_s)
    clear_axes(rows)
    rows.tick_params(axis="y", labelsize=7)
    hidden = len(result.sites) - len(sites)
    shown = (
        f" ({len(sites)} of {len(result.sites)} sites, those with the least time to spare)" if hidden else ""
    )
    rows.set_title(f"Sites from their first to their last page{shown}", fontsize=10, loc="left")
    names = {IN_TIME: "deadline met", LATE: "deadline missed", NO_DEADLINE: "no deadline"}
    handles = [rows.plot([], [], color=colour, linewidth=4, label=name)[0] for colour, name in names.items()]
    handles.append(rows.plot([], [], color=INK, marker="|", linestyle="", label="deadline")[0])
    if result.draws > 1:
        label = f"end in {'all' if result.draws <= 10 else '8 of 10'} draws"
        handles.append(rows.plot([], [], color=INK, linewidth=1, label=label)[0])
    rows.legend(handles=handles, loc="upper left", bbox_to_anchor=(0, 0), ncols=5, frameon=False, fontsize=8)
    _draw_job_link(link, result, scale_s)
    link.set_xlabel(f"time from the start of the crawl ({unit})", fontsize=9)
    figure.suptitle("\n".join(verdict(result)[:3]), fontsize=10)
    return figure


def _draw_site(axes: Any, row: int, site: JobSite, end: SiteEnd, scale: tuple[float, float]) -> None:
    edge_s, scale_s = scale
    colour = NO_DEADLINE if end.is_met is None else IN_TIME if end.is_met else LATE
    if end.start_s is not None:
        to_s = edge_s if end.end_s is None else end.end_s
        axes.barh(row, (to_s - end.start_s) / scale_s, 0.55, end.start_s / scale_s, color=colour, linewidth=0)
    if site.end_s is not None and site.end_s.high > site.end_s.low:
        axes.plot(
            [site.end_s.low / scale_s, site.end_s.high / scale_s], [row] * 2, color="#555555", linewidth=1
        )
    if site.deadline_s is not None and site.deadline_s <= edge_s:
        axes.plot([site.deadline_s / scale_s] * 2, [row - 0.42, row + 0.42], color=INK, linewidth=1.6)


def _draw_job_link(axes: Any, result: JobSimulation, scale_s: float) -> None:
    from matplotlib.ticker import FuncFormatter

    clear_axes(axes)
    used = [[0.0, result.link_by_time[0][1]], *result.link_by_time]
    times, rates = [row[0] / scale_s for row in used], [row[1] for row in used]
    axes.fill_between(times, rates, step="pre", color=IN_TIME, alpha=0.5, linewidth=0, label="used")
    highest = max(rates)
    if result.capacity_by_time:
        steps = [*result.capacity_by_time, [result.first.end_s, result.capacity_by_time[-1][1]]]
        axes.step(
            [row[0] / scale_s for row in steps],
            [row[1] for row in steps],
            where="post",
            color=INK,
            label="bound",
        )
        highest = max(highest, *(row[1] for row in steps))
    axes.set_ylim(0, 1.15 * highest or 1.0)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda rate, _: format_rate(rate)))
    use = "" if result.first.link_use is None else f": {result.first.link_use:.0%} used"
    axes.set_title(f"Link{use}", fontsize=10, loc="left")
    axes.legend(loc="upper right", ncols=2, frameon=False, fontsize=8)


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
    _name_panel(robots, "Connections in use", f"time ({unit})", "connections")
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
    """A colour for each strategy, and another dash pattern for the second of a kind."""
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
    """Write each name on its own line, where the other lines are furthest; names do not overlap. For axes
    from 0 to 1 in both directions."""
    grid = np.linspace(0.1, 0.88, 40)
    heights = [np.interp(grid, *np.array(curve).T) for curve in curves]
    taken: list[tuple[float, float]] = []
    for number, name in enumerate(names):
        others = [np.abs(heights[number] - height) for place, height in enumerate(heights) if place != number]
        room = np.min(others, axis=0) if others else np.ones(len(grid))
        for x, y in taken:
            is_near = (np.abs(grid - x) < 0.2) & (np.abs(heights[number] - y) < 0.06)
            room = np.where(is_near, -1.0, room)
        # A name at the very edge is harder to read than one with a little less room.
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
    """Means over several intervals: single pages make the finer curve flicker."""
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
