"""Figures 11 and 12: how long a download takes against its bandwidth and its data, and xi of eq 17.

They are drawn from measured downloads, a CSV of `site,data_bytes,rate_bytes_per_s,duration_s`: one row a
download of one site under one rate. `python -m experiments.zhu2020 --downloads FILE` reads such a file.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np
from matplotlib.figure import Figure

from headway.policy.estimate import fit_xi

from .verdicts import Claim

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00")


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
    for site, mine in _by_site(downloads).items():
        xi = fit_xi([(one.data_bytes, one.rate_bytes_per_s, one.duration_s) for one in mine])
        told = np.array([xi * one.data_bytes / one.rate_bytes_per_s for one in mine])
        measured = np.array([one.duration_s for one in mine])
        apart = float(np.max(np.abs(told / measured - 1)))
        yield Claim(
            "11-12",
            f"time is proportional to data and inverse to bandwidth ({site})",
            f"xi = {xi:.3f}; {len(mine)} downloads, at most {apart:.0%} off the line",
            "holds" if apart <= 0.1 else f"within {apart:.0%}",
        )


def draw_downloads(downloads: Sequence[Download], folder: Path) -> None:
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    by_rate, by_data = figure.subplots(1, 2)
    for colour, (site, mine) in zip(COLOURS, _by_site(downloads).items(), strict=False):
        xi = fit_xi([(one.data_bytes, one.rate_bytes_per_s, one.duration_s) for one in mine])
        usual_data = float(np.median([one.data_bytes for one in mine]))
        usual_rate = float(np.median([one.rate_bytes_per_s for one in mine]))
        at_data = sorted((o.rate_bytes_per_s, o.duration_s) for o in mine if o.data_bytes == usual_data)
        at_rate = sorted((o.data_bytes, o.duration_s) for o in mine if o.rate_bytes_per_s == usual_rate)
        # Where the lines are furthest apart: at the lowest bandwidth, and at the most data.
        for axes, rows, scale, end in ((by_rate, at_data, 1e3, 0), (by_data, at_rate, 1e6, -1)):
            xs, ys = [x / scale for x, _ in rows], [y for _, y in rows]
            axes.plot(xs, ys, "o", color=colour, markersize=4)
            if xs:
                text, place = f"{site}, xi {xi:.2f}", (xs[end], ys[end])
                axes.annotate(text, place, (6, 0), textcoords="offset points", fontsize=8, color=colour)
        rates = (
            np.linspace(min(r for r, _ in at_data), max(r for r, _ in at_data), 60)
            if at_data
            else np.array([])
        )
        by_rate.plot(rates / 1e3, xi * usual_data / rates, color=colour, linewidth=1)
        sizes = np.array([size for size, _ in at_rate])
        by_data.plot(sizes / 1e6, xi * sizes / usual_rate, color=colour, linewidth=1)
    by_rate.set_title("Figure 11: time against bandwidth", fontsize=10)
    by_data.set_title("Figure 12: time against data", fontsize=10)
    by_rate.set_xlabel("bandwidth (KB/s)")
    by_data.set_xlabel("data (MB)")
    for axes in (by_rate, by_data):
        axes.set_ylabel("time (s)")
        axes.spines[["top", "right"]].set_visible(False)
        axes.margins(x=0.18)
    figure.savefig(folder / "figure-11-12.png", dpi=110)


def _by_site(downloads: Sequence[Download]) -> dict[str, list[Download]]:
    grouped: dict[str, list[Download]] = {}
    for one in downloads:
        grouped.setdefault(one.site, []).append(one)
    return grouped
