"""A run as one picture: the link second by second under its bound, and each site's time with its deadline."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from headway.errors import HeadwayError

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
    try:
        import matplotlib as mpl
    except ImportError:
        raise HeadwayError("figures need the extra: pip install 'headway[plot]'") from None
    mpl.use("agg")
    from matplotlib import pyplot as plt

    rows = min(len(sites), 40)
    figure, (top, below) = plt.subplots(
        2,
        1,
        figsize=(9, 2.6 + 0.8 + 0.26 * max(rows, 1)),
        height_ratios=(2.6, 0.8 + 0.26 * max(rows, 1)),
        sharex=True,
        layout="constrained",
    )
    try:
        _draw_link(top, link)
        _draw_sites(below, sites[:rows])
        figure.savefig(path, dpi=120)
    except (OSError, ValueError) as problem:
        raise HeadwayError(f"{path}: the figure cannot be written: {problem}") from None
    finally:
        plt.close(figure)


def _draw_link(axes: Any, link: Sequence[LinkSecond]) -> None:
    times = [second.at_s for second in link]
    rates = [second.rate_bytes_per_s / 1000 for second in link]
    axes.fill_between(times, rates, step="pre", color=_PALE, linewidth=0)
    axes.step(times, rates, where="pre", color=_BLUE, linewidth=1.4)
    bounds = [second.bound_bytes_per_s / 1000 for second in link]
    finite = [bound for bound in bounds if bound != float("inf")]
    if finite:
        axes.step(times, bounds, where="pre", color=_INK, linewidth=1.2)
        axes.annotate(
            "the bound", (times[-1], finite[-1]), xytext=(-4, 4), ha="right", textcoords="offset points"
        )
    axes.set_ylim(0, 1.18 * max([*finite, *rates], default=1.0))
    axes.set_ylabel("KB/s, one-second samples")
    _plain(axes)


def _draw_sites(axes: Any, sites: Sequence[SiteBar]) -> None:
    for row, site in enumerate(sites):
        colour = _ORANGE if site.is_late else _BLUE
        axes.barh(row, site.end_s - site.start_s, left=site.start_s, height=0.62, color=colour)
        if site.deadline_s is not None:
            axes.plot([site.deadline_s] * 2, [row - 0.42, row + 0.42], color=_INK, linewidth=2)
    marked = [(row, site) for row, site in enumerate(sites) if site.deadline_s is not None]
    if marked:
        row, site = marked[0]
        axes.annotate(
            "deadline", (site.deadline_s, row), xytext=(5, 0), va="center", textcoords="offset points"
        )
    axes.set_yticks(range(len(sites)), [site.name for site in sites])
    axes.invert_yaxis()
    axes.set_xlabel("seconds")
    axes.set_xlim(left=0)
    _plain(axes)


def _label(axes: Any, text: str, at: tuple[Any, Any], beside: tuple[int, int], **aligned: str) -> None:
    axes.annotate(text, at, xytext=beside, textcoords="offset points", **aligned)


def _plain(axes: Any) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="x", color="#e6e6e6", linewidth=0.8)
    axes.set_axisbelow(True)
