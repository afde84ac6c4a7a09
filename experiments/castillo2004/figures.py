"""The figures, drawn as the paper has them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from headway.report.canvas import new_figure
from headway.report.simulation import clear_axes, label_lines, line_styles

from .findings import Findings, OnWeb, Outcome
from .runs import BANDWIDTHS, ROBOTS

BLUE, ORANGE, GREEN, BLACK = "#0072B2", "#D55E00", "#009E73", "#222222"
COLOURS = (GREEN, ORANGE, BLUE)
TITLES = {
    "figure-03": "Pages of each site (figure 3)",
    "figure-05": "Which strategy brings the PageRank in first, with one robot (figure 5)",
    "figure-06": "The same with more robots (figure 6)",
    "table-1": "Speed-up by bandwidth (table 1)",
    "figure-07": "Robots active in a batch (figure 7)",
    "figure-08-09": "The paper's own crawl (figures 8 and 9)",
    "figure-10": "PageRank by depth (figure 10)",
}


def draw_all(findings: Findings, out: Path) -> None:
    webs = findings.webs
    site_sizes(webs, out / "figure-03.png")
    strategies(webs, out / "figure-05.png")
    robots([web for web in webs if web.robots is not None], out / "figure-06.png")
    speed_ups([web for web in webs if web.speed_ups is not None], out / "table-1.png")
    real_crawl([web for web in webs if web.real is not None], out / "figure-08-09.png")
    rank_by_depth(webs, out / "figure-10.png")
    batch([web for web in webs if web.batch is not None], out / "figure-07.png")


def save(figure: Any, path: Path) -> None:
    figure.savefig(path, dpi=90)


def panels(count: int, *, width: float = 5.2, height: float = 4.2) -> tuple[Any, list[Any]]:
    figure = new_figure(width * count, height)
    axes = figure.subplots(1, count, squeeze=False)[0]
    for each in axes:
        clear_axes(each)
    return figure, list(axes)


def site_sizes(webs: Sequence[OnWeb], path: Path) -> None:
    figure, axes = panels(len(webs))
    for web, panel in zip(webs, axes, strict=True):
        sizes = web.site_sizes
        panel.loglog(range(1, len(sizes) + 1), sizes, ".", color=BLUE, markersize=3)
        _name(panel, f"{web.label}: {len(sizes):,} sites, {web.pages:,} pages", "site, by size", "pages")
    save(figure, path)


def strategies(webs: Sequence[OnWeb], path: Path) -> None:
    figure, axes = panels(len(webs))
    for web, panel in zip(webs, axes, strict=True):
        names = _one_of_each(web.strategies)
        curves = [web.strategies[name].result.pagerank_curve for name in names]
        styles = line_styles(names)
        for curve, (colour, dash) in zip(curves, styles, strict=True):
            panel.plot(*np.array(curve).T, color=colour, linestyle=dash, linewidth=1.5)
        label_lines(panel, names, curves, styles)
        _unit_square(panel, f"{web.label}, r = 1")
    save(figure, path)


def robots(webs: Sequence[OnWeb], path: Path) -> None:
    if not webs:
        return
    figure, axes = panels(len(webs))
    looks = {1: "-", 64: "--", 256: ":"}
    for web, panel in zip(webs, axes, strict=True):
        for name, colour in (("length", BLUE), ("depth", ORANGE)):
            for count, result in (web.robots or {})[name].items():
                label = f"{name}, r = {count}"
                curve = np.array(result.pagerank_curve).T
                panel.plot(*curve, color=colour, linestyle=looks[count], linewidth=1.5, label=label)
        panel.legend(loc="lower right", frameon=False, fontsize=8)
        _unit_square(panel, web.label)
    save(figure, path)


def batch(webs: Sequence[OnWeb], path: Path) -> None:
    if not webs:
        return
    figure, axes = panels(2 * len(webs), width=4.6)
    for place, (web, per_connection) in enumerate((web, k) for web in webs for k in (1, 100)):
        panel = axes[place]
        assert web.batch is not None
        for bandwidth, colour, lift in ((20_000, BLUE, 40), (2_000, ORANGE, 22)):
            run = web.batch.run(bandwidth, per_connection)
            panel.step(run.edges_h[1:], run.robots, where="pre", color=colour, linewidth=1.4)
            text = f"{bandwidth // 1000} KB/s: {run.hours:.1f} h"
            side = "right" if run.hours > 12 else "left"
            panel.annotate(
                text, (run.hours, 0), (0, lift), textcoords="offset points", ha=side, color=colour, fontsize=9
            )
            panel.plot([run.hours], [0], "|", color=colour, markersize=12)
        most = max(max(run.robots) for run in web.batch.runs)
        _name(panel, f"{web.label}, k = {per_connection}", "time (hours)", "robots active")
        panel.set_xlim(left=0)
        panel.set_ylim(0, most * 1.1)
    figure.suptitle("A batch of 10,000 pages from the middle of the crawl, r = 256 (figure 7)", fontsize=11)
    save(figure, path)


def speed_ups(webs: Sequence[OnWeb], path: Path) -> None:
    if not webs:
        return
    figure, axes = panels(len(webs))
    for web, panel in zip(webs, axes, strict=True):
        for count, colour, lift in zip(ROBOTS, (BLACK, ORANGE, BLUE), (-14, -14, 6), strict=True):
            table = web.speed_ups or {}
            values = [table[bandwidth][count].first_tenth for bandwidth in BANDWIDTHS]
            panel.loglog(BANDWIDTHS, values, "o-", color=colour, linewidth=1.4, markersize=4)
            end = (BANDWIDTHS[0], values[0])
            panel.annotate(
                f"r = {count}",
                end,
                (0, lift),
                textcoords="offset points",
                ha="right",
                color=colour,
                fontsize=9,
            )
        _name(panel, web.label, "bandwidth (bytes per second)", "speed-up, first tenth of the pages")
        panel.set_ylim(top=600)
    save(figure, path)


def real_crawl(webs: Sequence[OnWeb], path: Path) -> None:
    if not webs:
        return
    figure, axes = panels(2, width=5.8)
    for web, colour in zip(webs, COLOURS, strict=False):
        run = web.real
        assert run is not None
        at = np.array(run.days) / run.days[-1]
        label = f"{web.label}, {run.days[-1]:.2g} days"
        axes[0].plot(at, run.rank_fraction, color=colour, linewidth=1.6)
        axes[0].plot(at, run.pages_fraction, color=colour, linewidth=1.2, linestyle="--")
        axes[1].step(at[1:], run.mean_rank, where="pre", color=colour, linewidth=1.4, label=label)
    axes[0].plot([], [], color="#555555", label="PageRank")
    axes[0].plot([], [], color="#555555", linestyle="--", label="pages")
    axes[0].legend(frameon=False, fontsize=9, loc="lower right")
    axes[1].legend(frameon=False, fontsize=9, loc="upper right")
    _name(axes[0], "What is in (figure 8)", "part of the crawl's time", "fraction")
    _name(
        axes[1],
        "Mean PageRank of what is fetched (figure 9)",
        "part of the crawl's time",
        "1: the mean of the web",
    )
    axes[0].set_ylim(0, 1.02)
    # The first span has the home pages, which would press all the others flat.
    later = max(max(web.real.mean_rank[1:]) for web in webs if web.real is not None)
    axes[1].set_ylim(0, 1.25 * later)
    for panel in axes:
        panel.set_xlim(left=0)
    figure.suptitle("Length, r = 1000, w = 15 s", fontsize=11)
    save(figure, path)


def rank_by_depth(webs: Sequence[OnWeb], path: Path) -> None:
    figure, axes = panels(len(webs))
    for web, panel in zip(webs, axes, strict=True):
        means, counts = np.array(web.depth.mean_rank), np.array(web.depth.pages)
        shown = np.flatnonzero(counts >= max(1, counts.sum() // 10_000))
        panel.semilogy(shown, means[shown], "o-", color=BLUE, linewidth=1.4, markersize=4)
        panel.axhline(1.0, color="#999999", linewidth=0.8)
        panel.annotate(
            "mean of the web", (shown[-1], 1), (0, 3), textcoords="offset points", ha="right", fontsize=8
        )
        _name(panel, web.label, "depth (links from a home page)", "mean PageRank")
        panel.xaxis.get_major_locator().set_params(integer=True)
        panel.tick_params(axis="y", which="minor", labelleft=False)
    save(figure, path)


def _one_of_each(runs: dict[str, Outcome]) -> list[str]:
    """The largest stands for the batches; the others are in the table."""
    words: dict[str, str] = {}
    for name in runs:
        words[name.partition("(")[0]] = name
    return list(words.values())


def _name(panel: Any, title: str, across: str, up: str) -> None:
    panel.set_title(title, fontsize=10, loc="left")
    panel.set_xlabel(across, fontsize=9)
    panel.set_ylabel(up, fontsize=9)


def _unit_square(panel: Any, title: str) -> None:
    panel.plot([0, 1], [0, 1], color="#CCCCCC", linewidth=0.8, zorder=0)
    panel.set_xlim(0, 1)
    panel.set_ylim(0, 1.02)
    _name(panel, title, "fraction of the pages", "of the PageRank")
