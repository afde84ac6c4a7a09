"""The figures, drawn as the paper has them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from headway.report.sim_figure import clear_axes, label_lines, line_styles, new_figure

from .runs import BANDWIDTHS, ROBOTS, BatchRun, RealCrawl, SpeedUp, Timed
from .webs import Ground

BLUE, ORANGE, GREEN, BLACK = "#0072B2", "#D55E00", "#009E73", "#222222"


def save(figure: Any, path: Path) -> None:
    figure.savefig(path, dpi=130)


def panels(count: int, *, width: float = 5.2, height: float = 4.2) -> tuple[Any, list[Any]]:
    figure = new_figure(width * count, height)
    axes = figure.subplots(1, count, squeeze=False)[0]
    for each in axes:
        clear_axes(each)
    return figure, list(axes)


def site_sizes(grounds: Sequence[Ground], path: Path) -> None:
    figure, axes = panels(len(grounds))
    for ground, panel in zip(grounds, axes, strict=True):
        sizes = np.sort(ground.web.site_sizes())[::-1]
        panel.loglog(np.arange(1, len(sizes) + 1), sizes, ".", color=BLUE, markersize=3)
        panel.set_title(
            f"{ground.label}: {len(sizes):,} sites, {sizes.sum():,} pages", fontsize=10, loc="left"
        )
        panel.set_xlabel("site, by size", fontsize=9)
        panel.set_ylabel("pages", fontsize=9)
    save(figure, path)


def strategies(by_ground: dict[str, dict[str, Timed]], path: Path) -> None:
    figure, axes = panels(len(by_ground))
    for (label, runs), panel in zip(by_ground.items(), axes, strict=True):
        names = _one_of_each(runs)
        styles = line_styles(names)
        for name, (colour, dash) in zip(names, styles, strict=True):
            panel.plot(
                *np.array(runs[name].result.pagerank_curve).T, color=colour, linestyle=dash, linewidth=1.5
            )
        label_lines(panel, names, [runs[name].result.pagerank_curve for name in names], styles)
        _unit_square(panel, f"{label}, r = 1")
    save(figure, path)


def robots(by_ground: dict[str, dict[str, dict[int, Timed]]], path: Path) -> None:
    figure, axes = panels(len(by_ground))
    looks = {1: "-", 64: "--", 256: ":"}
    for (label, runs), panel in zip(by_ground.items(), axes, strict=True):
        for name, colour in (("length", BLUE), ("depth", ORANGE)):
            for count, run in runs[name].items():
                curve = np.array(run.result.pagerank_curve).T
                panel.plot(
                    *curve, color=colour, linestyle=looks[count], linewidth=1.5, label=f"{name}, r = {count}"
                )
        panel.legend(loc="lower right", frameon=False, fontsize=8)
        _unit_square(panel, label)
    save(figure, path)


def batch(label: str, runs: Sequence[BatchRun], path: Path) -> None:
    figure, axes = panels(2, width=5.8)
    for panel, per_connection in zip(axes, (1, 100), strict=True):
        for bandwidth, colour in ((20_000, BLUE), (2_000, ORANGE)):
            run = next(r for r in runs if (r.bandwidth, r.per_connection) == (bandwidth, per_connection))
            panel.step(run.edges_h[1:], run.robots, where="pre", color=colour, linewidth=1.4)
            text = f"{bandwidth // 1000} KB/s: {run.hours:.1f} h"
            panel.annotate(
                text,
                (run.hours, 0),
                (-4, 14 if bandwidth > 2000 else 30),
                textcoords="offset points",
                ha="right" if bandwidth == 2_000 else "left",
                color=colour,
                fontsize=9,
            )
        word = "page" if per_connection == 1 else "pages"
        panel.set_title(f"k = {per_connection} {word} a connection", fontsize=10, loc="left")
        panel.set_xlabel("time (hours)", fontsize=9)
        panel.set_ylabel("robots active", fontsize=9)
        panel.set_xlim(left=0)
        panel.set_ylim(0, 270)
    figure.suptitle(f"{label}: a batch from the middle of the crawl, r = 256", fontsize=11)
    save(figure, path)


def speed_ups(tables: dict[str, dict[int, dict[int, SpeedUp]]], path: Path) -> None:
    figure, axes = panels(len(tables))
    for (label, table), panel in zip(tables.items(), axes, strict=True):
        for count, colour in zip(ROBOTS, (BLACK, ORANGE, BLUE), strict=True):
            values = [table[bandwidth][count].first_tenth for bandwidth in BANDWIDTHS]
            panel.loglog(BANDWIDTHS, values, "o-", color=colour, linewidth=1.4, markersize=4)
            panel.annotate(
                f"r = {count}",
                (BANDWIDTHS[0], values[0]),
                (-2, 6),
                textcoords="offset points",
                ha="right",
                color=colour,
                fontsize=9,
            )
        panel.set_title(label, fontsize=10, loc="left")
        panel.set_xlabel("bandwidth (bytes per second)", fontsize=9)
        panel.set_ylabel("speed-up over the first tenth of the pages", fontsize=9)
    save(figure, path)


def real_crawl(runs: dict[str, RealCrawl], path: Path) -> None:
    figure, axes = panels(2, width=5.8)
    colours = dict(zip(runs, (BLUE, ORANGE, GREEN), strict=False))
    for label, run in runs.items():
        axes[0].plot(run.days, run.rank_fraction, color=colours[label], linewidth=1.6)
        axes[0].plot(run.days, run.pages_fraction, color=colours[label], linewidth=1.2, linestyle="--")
        axes[1].step(run.days[1:], run.mean_rank, where="pre", color=colours[label], linewidth=1.4)
    label = max(runs, key=lambda name: float(runs[name].days[-1]))
    run = runs[label]
    place = len(run.days) // 5
    axes[0].annotate(
        "PageRank",
        (run.days[place], run.rank_fraction[place]),
        (6, -4),
        textcoords="offset points",
        color=colours[label],
        fontsize=9,
        va="top",
    )
    axes[0].annotate(
        "pages",
        (run.days[place], run.pages_fraction[place]),
        (8, -8),
        textcoords="offset points",
        color=colours[label],
        fontsize=9,
        va="top",
    )
    for name, colour in colours.items():
        axes[1].plot([], [], color=colour, label=name)
    axes[1].legend(frameon=False, fontsize=9)
    axes[0].set_ylabel("fraction fetched", fontsize=9)
    axes[1].set_ylabel("mean PageRank of what is fetched (1: the web's)", fontsize=9)
    axes[0].set_ylim(0, 1.02)
    axes[1].set_ylim(bottom=0)
    for panel in axes:
        panel.set_xlabel("days", fontsize=9)
        panel.set_xlim(left=0)
    figure.suptitle("Length, r = 1000, w = 15 s (figures 8 and 9)", fontsize=11)
    save(figure, path)


def rank_by_depth(by_ground: dict[str, tuple[Any, Any, Any]], path: Path) -> None:
    figure, axes = panels(len(by_ground))
    for (label, (levels, means, counts)), panel in zip(by_ground.items(), axes, strict=True):
        shown = counts >= max(1, counts.sum() // 10_000)
        panel.plot(levels[shown], means[shown], "o-", color=BLUE, linewidth=1.4, markersize=4)
        panel.axhline(1.0, color="#999999", linewidth=0.8)
        panel.set_title(label, fontsize=10, loc="left")
        panel.set_xlabel("depth (links from a home page)", fontsize=9)
        panel.set_ylabel("mean PageRank (1: the web's)", fontsize=9)
        panel.set_ylim(bottom=0)
    save(figure, path)


def _one_of_each(runs: dict[str, Timed]) -> list[str]:
    """The middle size stands for the batches; the others are in the table."""
    words: dict[str, list[str]] = {}
    for name in runs:
        words.setdefault(name.partition("(")[0], []).append(name)
    return [names[len(names) // 2] for names in words.values()]


def _unit_square(panel: Any, title: str) -> None:
    panel.plot([0, 1], [0, 1], color="#CCCCCC", linewidth=0.8, zorder=0)
    panel.set_xlim(0, 1)
    panel.set_ylim(0, 1.02)
    panel.set_title(title, fontsize=10, loc="left")
    panel.set_xlabel("fraction of the pages", fontsize=9)
    panel.set_ylabel("of the PageRank", fontsize=9)
