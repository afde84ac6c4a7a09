"""Figures 11 and 12: how long a download takes against its bandwidth and its data, and xi of eq 17.

They are drawn from measured downloads, a CSV of `site,data_bytes,rate_bytes_per_s,duration_s`: one row a
download of one site under one rate. `measure` makes them; `--downloads FILE` reads such a file instead.
"""

from __future__ import annotations

import csv
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np
from matplotlib.figure import Figure

from headway.planning.estimate import fit_xi

from .verdicts import Claim

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#444444")
CLOSE_TO_THE_LINE = 0.1


class Download(msgspec.Struct, frozen=True):
    site: str
    data_bytes: float
    rate_bytes_per_s: float
    duration_s: float


def read_downloads(path: Path) -> list[Download]:
    with path.open(newline="", encoding="utf-8") as file:
        return [msgspec.convert(row, Download, strict=False) for row in csv.DictReader(file)]


def claims_on(downloads: Sequence[Download]) -> Iterator[Claim]:
    """t = xi D / v: inverse in the bandwidth, proportional to the data, with a xi of each site's own."""
    on_the_line: list[tuple[float, float]] = []
    for site, mine in _by_site(downloads).items():
        xi = _xi(mine)
        told = np.array([xi * one.data_bytes / one.rate_bytes_per_s for one in mine])
        measured = np.array([one.duration_s for one in mine])
        apart = float(np.max(np.abs(told / measured - 1)))
        if apart <= CLOSE_TO_THE_LINE:
            on_the_line.append((xi, apart))
        yield Claim(
            "11-12",
            f"time is proportional to data and inverse to bandwidth ({site})",
            f"xi = {xi:.3f}; {len(mine)} downloads, at most {apart:.0%} off the line",
            "holds" if apart <= CLOSE_TO_THE_LINE else f"within {apart:.0%}",
        )
    if len(on_the_line) > 1:
        least, most = min(xi for xi, _ in on_the_line), max(xi for xi, _ in on_the_line)
        scatter = max(apart for _, apart in on_the_line)
        yield Claim(
            "11-12",
            "xi differs between sites",
            f"{least:.3f} to {most:.3f} where the line holds, with a scatter of at most {scatter:.0%}",
            "holds" if most / least - 1 > scatter else "lost in the scatter",
        )


def draw_downloads(downloads: Sequence[Download], folder: Path) -> None:
    figure = Figure(figsize=(10, 5.2), layout="constrained")
    by_rate, by_data = figure.subplots(1, 2)
    usual_data = float(np.median([one.data_bytes for one in downloads]))
    usual_rate = float(np.median([one.rate_bytes_per_s for one in downloads]))
    for colour, (site, mine) in zip(itertools.cycle(COLOURS), _by_site(downloads).items(), strict=False):
        xi = _xi(mine)
        at_data = sorted((o.rate_bytes_per_s, o.duration_s) for o in mine if o.data_bytes == usual_data)
        at_rate = sorted((o.data_bytes, o.duration_s) for o in mine if o.rate_bytes_per_s == usual_rate)
        for axes, rows in ((by_rate, at_data), (by_data, at_rate)):
            axes.plot([x / 1e3 for x, _ in rows], [y for _, y in rows], "o", color=colour, markersize=4)
        if at_data:
            rates = np.linspace(at_data[0][0], at_data[-1][0], 60)
            label = f"{site}: xi {xi:.2f}"
            by_rate.plot(rates / 1e3, xi * usual_data / rates, color=colour, linewidth=1, label=label)
        sizes = np.array([size for size, _ in at_rate])
        by_data.plot(sizes / 1e3, xi * sizes / usual_rate, color=colour, linewidth=1)
    by_rate.set_title(f"Figure 11: time against bandwidth, {usual_data / 1e3:g} KB", fontsize=10)
    by_data.set_title(f"Figure 12: time against data, at {usual_rate / 1e3:g} KB/s", fontsize=10)
    by_rate.set_xlabel("bandwidth (KB/s)")
    by_data.set_xlabel("data (KB)")
    for axes in (by_rate, by_data):
        axes.set_ylabel("time (s)")
        axes.set_ylim(bottom=0)
        axes.spines[["top", "right"]].set_visible(False)
    # The lines lie too close together for names beside them.
    figure.legend(
        loc="outside lower center",
        ncols=2,
        fontsize=8,
        frameon=False,
        title="dots: measured; lines: xi D / v",
        title_fontsize=8,
    )
    figure.savefig(folder / "figure-11-12.png", dpi=110)


def _xi(downloads: Sequence[Download]) -> float:
    return fit_xi([(one.data_bytes, one.rate_bytes_per_s, one.duration_s) for one in downloads])


def _by_site(downloads: Sequence[Download]) -> dict[str, list[Download]]:
    grouped: dict[str, list[Download]] = {}
    for one in downloads:
        grouped.setdefault(one.site, []).append(one)
    return grouped
