"""The figures: lines labelled where they end, in colours that people who see few of them can tell apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isfinite, log
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .runs import Point

STYLES = {
    "headway": ("#000000", "D", "-"),
    "m-maxt": ("#0072B2", "o", "-"),
    "m-sumt": ("#009E73", "s", "-"),
    "m-stet": ("#0072B2", "o", "-"),
    "random": ("#CC79A7", "v", ":"),
    "probandwidth": ("#D55E00", "^", "--"),
    "prodataamount": ("#CC79A7", "v", "--"),
    "ga": ("#E69F00", "x", "-."),
    "de": ("#56B4E9", "+", "-."),
    "realloc-maxt": ("#0072B2", "o", "-"),
    "realloc-sumt": ("#009E73", "s", "-"),
    "realloc-probandwidth": ("#D55E00", "^", "--"),
    "alloconce": ("#E69F00", "x", "-."),
    "realloc-prodataamount": ("#CC79A7", "v", "--"),
}
Measure = Callable[[Point], float]


def draw_all(
    sufficient: list[Point],
    insufficient: list[Point],
    scheduling: list[Point],
    folder: Path,
    live: Sequence[Point] = (),
) -> None:
    """Lines are formulas; `live` crawls are large open marks."""
    for number in ("2", "3", "4"):
        points = [point for point in sufficient if point.figure == number]
        panels: list[tuple[str, Measure]] = [
            ("maximum complete time (s)", lambda point: point.max_end_s),
            ("sum of execution times (s)", lambda point: point.sum_of_ends_s),
        ]
        path = folder / f"figure-{int(number):02}.png"
        _draw(f"Figure {number}: sufficient bandwidth", points, panels, path, live)
    for number in ("5", "6", "7"):
        points = [point for point in insufficient if point.figure == number]
        tardy: list[tuple[str, Measure]] = [
            ("time beyond the deadlines (s)", lambda point: point.tardiness_s)
        ]
        path = folder / f"figure-{int(number):02}.png"
        _draw(f"Figure {number}: insufficient bandwidth", points, tardy, path, live)
    fifty: dict[str, list[tuple[str, Measure]]] = {
        "08": [
            (
                "ln max t + ln(1 + time beyond deadlines)",
                lambda point: _logs(point.max_end_s, point.tardiness_s),
            )
        ],
        "09": [
            (
                "ln sum of execution + ln(1 + time beyond)",
                lambda point: _logs(point.sum_of_execution_s, point.tardiness_by_sum_s),
            )
        ],
        "10": [
            ("time beyond the deadlines (s)", lambda point: point.tardiness_s),
            ("sites in time, of 50", lambda point: 50 - point.late),
        ],
    }
    for number, panels in fifty.items():
        title = f"Figure {int(number)}: 50 sites, 5 crawlers (mean over draws, deadlines in turn)"
        _draw(title, scheduling, panels, folder / f"figure-{number}.png", live)


def _logs(time_s: float, tardiness_s: float) -> float:
    """The paper's ln of a sum that may be zero: ln(1 + x) instead, which moves no comparison."""
    return log(time_s) + log(1 + tardiness_s)


def _draw(
    title: str,
    points: Sequence[Point],
    panels: Sequence[tuple[str, Measure]],
    path: Path,
    live: Sequence[Point],
) -> None:
    figure = Figure(figsize=(1.6 + 4.9 * len(panels), 4.2), layout="constrained")
    measured = [point for point in live if point.figure == points[0].figure]
    figure.suptitle(title + ("; open marks: live crawls" if measured else ""), fontsize=11)
    for axes, (label, measure) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        series: dict[str, tuple[list[float], list[float]]] = {}
        for point in points:
            xs, ys = series.setdefault(point.policy, ([], []))
            xs.append(point.x)
            ys.append(measure(point))
        marks: dict[str, tuple[list[float], list[float]]] = {}
        for point in measured:
            xs, ys = marks.setdefault(point.policy, ([], []))
            xs.append(point.x)
            ys.append(measure(point))
        _lines(axes, series, marks)
        axes.set_xlabel(points[0].factor, fontsize=9)
        axes.set_title(label, fontsize=9, loc="left")
    figure.savefig(path, dpi=110)


def _lines(
    axes: Axes,
    series: dict[str, tuple[list[float], list[float]]],
    marks: dict[str, tuple[list[float], list[float]]],
) -> None:
    for name, (xs, ys) in series.items():
        colour, marker, line = STYLES[name]
        width = 2.2 if name == "headway" else 1.3
        axes.plot(xs, ys, line, color=colour, marker=marker, markersize=4, linewidth=width, zorder=3)
    for name, (xs, ys) in marks.items():
        colour, marker, _ = STYLES[name]
        outline = {} if marker in "x+" else {"facecolors": "none", "edgecolors": colour}
        axes.scatter(xs, ys, s=70, marker=marker, linewidths=1.4, zorder=4, **(outline or {"color": colour}))
    values = [y for _, ys in (*series.values(), *marks.values()) for y in ys if isfinite(y)]
    low, high = min(values), max(values)
    room = 0.06 * (high - low or 1.0)
    axes.set_ylim(low - room, high + room)
    left, right = axes.get_xlim()
    axes.set_xticks([tick for tick in axes.get_xticks() if left <= tick <= right])
    axes.set_xlim(left, right + 0.34 * (right - left))
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#E5E5E5", linewidth=0.6)
    _label_ends(axes, {name: (xs[-1], ys[-1]) for name, (xs, ys) in series.items()}, high - low or 1.0)


def _label_ends(axes: Axes, ends: dict[str, tuple[float, float]], span: float) -> None:
    """Names at the ends of their lines, moved apart where they would cover one another."""
    apart = 0.062 * span
    names = sorted(ends, key=lambda name: ends[name][1])
    heights = [ends[name][1] for name in names]
    for _ in range(200):
        moved = False
        for lower in range(len(names) - 1):
            overlap = apart - (heights[lower + 1] - heights[lower])
            if overlap > 1e-9:
                heights[lower] -= overlap / 2
                heights[lower + 1] += overlap / 2
                moved = True
        if not moved:
            break
    low, high = axes.get_ylim()
    axes.set_ylim(min(low, min(heights) - apart / 2), max(high, max(heights) + apart / 2))
    left, right = axes.get_xlim()
    for name, height in zip(names, heights, strict=True):
        x, y = ends[name]
        text_x = x + 0.03 * (right - left)
        axes.plot([x, text_x], [y, height], color="#BBBBBB", linewidth=0.6, zorder=1)
        weight = "bold" if name == "headway" else "normal"
        axes.text(text_x, height, f" {name}", color=STYLES[name][0], fontsize=7.5, va="center", weight=weight)
