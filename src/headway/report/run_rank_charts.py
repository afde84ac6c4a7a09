"""castillo2004's figures 8 to 10 of any run: how early the good pages came, and where they lie."""

from __future__ import annotations

from typing import Any

import numpy as np

from headway.report.run_canvas import BLUE, INK, MUTED, TEAL, quiet
from headway.report.run_charts import time_unit
from headway.report.run_facts import Floats, Ranks, RunFacts

_PARTS = 24
_MOST_POINTS = 400
_MOST_DEPTH = 20


def shares(ranks: Ranks) -> tuple[Floats, Floats, Floats]:
    """Instants, and the parts of all pages and of all PageRank that were there by then."""
    order = np.argsort(ranks.settled_s, kind="stable")
    pages = np.arange(1, len(order) + 1) / len(order)
    rank = np.cumsum(ranks.rank[order]) / ranks.rank.sum()
    chosen = np.unique(np.linspace(0, len(order) - 1, min(len(order), _MOST_POINTS)).astype(int))
    return ranks.settled_s[order][chosen], pages[chosen], rank[chosen]


def mean_by_time(ranks: Ranks, seconds: float) -> tuple[Floats, Floats]:
    """The mean PageRank of the pages of each length of time, in units of the mean over all pages."""
    part = np.clip((ranks.settled_s / max(seconds, 1e-9) * _PARTS).astype(int), 0, _PARTS - 1)
    pages = np.bincount(part, minlength=_PARTS)
    sums = np.bincount(part, weights=ranks.rank, minlength=_PARTS)
    has_any = pages > 0
    middle = (np.arange(_PARTS) + 0.5) * seconds / _PARTS
    return middle[has_any], sums[has_any] / pages[has_any] * len(ranks.rank)


def mean_by_depth(ranks: Ranks) -> tuple[Floats, Floats]:
    depth = np.minimum(ranks.depth, _MOST_DEPTH)
    pages = np.bincount(depth)
    sums = np.bincount(depth, weights=ranks.rank)
    has_any = pages > 0
    return np.flatnonzero(has_any).astype(float), sums[has_any] / pages[has_any] * len(ranks.rank)


def draw_shares(figure: Any, facts: RunFacts) -> None:
    axes = figure.subplots()
    assert facts.ranks is not None
    unit_s, unit = time_unit(facts.seconds)
    at, pages, rank = shares(facts.ranks)
    axes.plot(at / unit_s, 100 * rank, color=BLUE, label="PageRank")
    axes.plot(at / unit_s, 100 * pages, color=INK, linestyle="--", linewidth=1.4, label="pages")
    half = int(np.searchsorted(pages, 0.5))
    if half < len(pages):
        axes.plot(
            [at[half] / unit_s] * 2, [50, 100 * rank[half]], color=MUTED, linewidth=0.9, marker="o", ms=4
        )
        axes.annotate(
            f"with half of the pages,\n{rank[half]:.0%} of the PageRank",
            (at[half] / unit_s, 100 * rank[half]),
            xytext=(-6, 7),
            ha="right",
            textcoords="offset points",
            fontsize=8.5,
            color=MUTED,
        )
    axes.set_ylim(0, 102)
    axes.set_xlim(left=0)
    axes.set_ylabel("% of what the run fetched")
    axes.set_xlabel(f"{unit} since the start")
    axes.legend(loc="lower right")
    quiet(axes)


def draw_rank_by_time(figure: Any, facts: RunFacts) -> None:
    axes = figure.subplots()
    assert facts.ranks is not None
    unit_s, unit = time_unit(facts.seconds)
    at, mean = mean_by_time(facts.ranks, facts.seconds)
    axes.bar(at / unit_s, mean, 0.86 * facts.seconds / _PARTS / unit_s, color=BLUE)
    axes.axhline(1.0, color=INK, linewidth=1)
    axes.set_ylabel("mean PageRank (all pages: 1)")
    axes.set_xlabel(f"{unit} since the start")
    quiet(axes)


def draw_rank_by_depth(figure: Any, facts: RunFacts) -> None:
    axes = figure.subplots()
    assert facts.ranks is not None
    depth, mean = mean_by_depth(facts.ranks)
    axes.bar(depth, mean, 0.8, color=TEAL)
    axes.axhline(1.0, color=INK, linewidth=1)
    axes.set_ylabel("mean PageRank (all pages: 1)")
    axes.set_xlabel(
        "links from a seed" + (f" ({_MOST_DEPTH}: or more)" if depth.max() >= _MOST_DEPTH else "")
    )
    axes.xaxis.get_major_locator().set_params(integer=True)
    quiet(axes)
