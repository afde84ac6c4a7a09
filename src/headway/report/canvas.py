"""How headway's figures are created and saved: style, canvas, and files as PNG and SVG."""

from __future__ import annotations

import datetime as dt
import io
import math
import re
from collections.abc import Callable, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headway.errors import HeadwayError


def new_figure(width: float, height: float) -> Any:
    """Width and height are in inches."""
    from matplotlib.figure import Figure  # slow to import

    return Figure(figsize=(width, height), layout="constrained")


def save_figure(figure: Any, path: Path, dpi: int = 144) -> None:
    """Save as PNG, SVG or PDF, by the ending of the path."""
    if not path.suffix:
        raise HeadwayError(f"cannot write the plot {path}: end its name in .png, .svg or .pdf")
    try:
        figure.savefig(path, dpi=dpi)
    except OSError as problem:
        raise HeadwayError(f"cannot write the plot {path}: {problem.strerror or problem}") from problem
    except ValueError as problem:
        raise HeadwayError(f"cannot write the plot {path}: {problem}") from problem


# The figures of the report, drawn once: as PNG and SVG files, and as part of the page.
#
# In the page a figure takes the colours of the page, so that it can be read on light and on dark: the colours
# below are names, which the page replaces with its own.

INK, MUTED, GRID, PAPER = "#16202c", "#5a6878", "#e3e9ef", "#fefefe"
BLUE, PALE, AMBER, RED, TEAL, GREY = "#2f86dd", "#cfe3f8", "#e2a100", "#dd4a3b", "#1c9c86", "#b8c2cd"
_NAMES = {
    INK: "ink",
    MUTED: "muted",
    GRID: "grid",
    PAPER: "panel",
    BLUE: "blue",
    PALE: "pale",
    AMBER: "amber",
    RED: "red",
    TEAL: "teal",
    GREY: "grey",
}
_STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "headway",
    "text.parse_math": False,  # a site's name may have a dollar sign
    "font.family": ["DejaVu Sans"],
    "font.size": 10,
    "axes.edgecolor": GRID,
    "axes.labelcolor": MUTED,
    "axes.titlecolor": INK,
    "axes.titlesize": 10.5,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.facecolor": PAPER,
    "figure.facecolor": PAPER,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "legend.frameon": False,
    "lines.linewidth": 1.7,
}

Draw = Callable[[Any], None]


@contextmanager
def _drawn(draw: Draw, size: tuple[float, float]) -> Any:
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    with mpl.rc_context(_STYLE):
        figure = plt.figure(figsize=size, layout="constrained")
        try:
            draw(figure)
            yield figure
        finally:
            plt.close(figure)


def write_figure(draw: Draw, size: tuple[float, float], folder: Path, name: str) -> str:
    """Write NAME.png and NAME.svg; returns the figure as a part of the page."""
    text = io.StringIO()
    with _drawn(draw, size) as figure:
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
        figure.set_layout_engine("none")  # the layout is final
        figure.savefig(folder / f"{name}.png", dpi=110)
    (folder / f"{name}.svg").write_text(text.getvalue(), encoding="utf-8")
    return for_the_page(text.getvalue(), name)


def for_the_page(svg: str, name: str) -> str:
    """The drawing alone, with the page's colours and fonts, and with ids that no other figure uses."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<style[^>]*>.*?</style>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r' width="[\d.]+pt" height="[\d.]+pt"', ' class="figure" aria-hidden="true"', svg, count=1)
    svg = re.sub(r'id="([^"]+)"', rf'id="{name}-\1"', svg)
    svg = re.sub(r'(href="#|url\(#)', rf"\g<1>{name}-", svg)
    svg = re.sub(r"'DejaVu Sans'[^;\"]*", "inherit", svg)
    svg = re.sub(r"font: ([\d.]+)px inherit", r"font-size: \1px", svg)
    for colour, word in _NAMES.items():
        svg = svg.replace(colour, f"var(--{word})")
    return svg


_TIME_MARKS = (
    (1.0, "1 s"), (10.0, "10 s"), (60.0, "1 min"), (600.0, "10 min"), (3600.0, "1 h"), (21600.0, "6 h"),
    (86400.0, "1 d"), (604800.0, "7 d"), (2592000.0, "30 d"), (31536000.0, "1 y"),
)  # fmt: skip
_MOST_SPREAD = 60.0
"""With times further apart than this, the shortest would not be visible on a linear axis."""


def spread_times(axes: Any, unit_s: float, times_s: Iterable[float]) -> bool:
    """Make the time axis, in units of `unit_s`, logarithmic if these times need it, such as deadlines of 8 s
    and of 14 days. False if it stays linear."""
    known = [time_s for time_s in times_s if 0 < time_s < math.inf]
    if not known or max(known) < _MOST_SPREAD * min(known):
        return False
    shortest = max(0.1, min(known))
    axes.set_xscale("symlog", linthresh=shortest / unit_s, linscale=0.6)
    marks = [mark for mark in _TIME_MARKS if shortest / 2 <= mark[0] <= 1.5 * max(known)]
    axes.set_xticks([0.0, *(at_s / unit_s for at_s, _ in marks)], ["0", *(name for _, name in marks)])
    axes.minorticks_off()
    return True


_CLOCK_STEPS_S = (60, 120, 300, 600, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800)
_MOST_CLOCK_TICKS = 9


def clock_times(axes: Any, unit_s: float, started_at: float, zone: dt.tzinfo | None) -> bool:
    """Label the time axis, in units of `unit_s` since the start, with times of day. False if it is too
    short for that."""
    seconds = axes.get_xlim()[1] * unit_s
    if not 2 * _CLOCK_STEPS_S[0] <= seconds < math.inf:
        return False
    last_s = _CLOCK_STEPS_S[-1]
    step_s = next((step for step in _CLOCK_STEPS_S if seconds / step < _MOST_CLOCK_TICKS), last_s)
    begin = dt.datetime.fromtimestamp(started_at, zone)
    offset = begin.astimezone().utcoffset() if zone is None else begin.utcoffset()
    offset_s = 0.0 if offset is None else offset.total_seconds()
    first_at = math.ceil((started_at + offset_s) / step_s) * step_s - offset_s
    count = min(4 * _MOST_CLOCK_TICKS, 1 + int((started_at + seconds - first_at) // step_s))
    ticks = [first_at + number * step_s for number in range(count)]
    words = "%H:%M" if step_s < 86400 else "%b %d"
    names = [f"{dt.datetime.fromtimestamp(tick, zone):{words}}" for tick in ticks]
    axes.set_xticks([(tick - started_at) / unit_s for tick in ticks], names)
    return True


def quiet(axes: Any, *, grid: str = "y") -> None:
    axes.grid(axis=grid)
    axes.tick_params(length=0)
