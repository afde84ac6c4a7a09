"""`make bench NAME=sites`: what the control of a crawl costs by the number of its sites.

Options: --most SITES (100,000; 1,000,000 takes some minutes), --kind (repeatable): deadlines, bound,
unbounded, connections (10,000 at once) or simulating (a crawl in virtual time); without it all.
Each size is measured in a process of its own. Growth is over the size before, which has a tenth of the sites:
what depends on all sites grows tenfold, what depends only on what changes does not grow.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from itertools import pairwise
from typing import NamedTuple

SIZES = (1_000, 10_000, 100_000, 1_000_000)
KINDS = ("deadlines", "bound", "unbounded")
ALONE = ("connections", "simulating")
"""Measured once each, by a module of that name."""
CONNECTIONS, SHARE_WANTED = 10_000, 0.95
SIMULATED_SITES, SIMULATED_PAGE_S = 100_000, 150e-6


class Figure(NamedTuple):
    name: str
    title: str
    unit: str
    times: float
    most_growth: float
    """At ten times the sites."""
    targets: dict[int, float]
    """By number of sites, in the unit."""


FIGURES = (
    Figure("job_s", "job checked", "s", 1, 13, {}),
    Figure("start_s", "start", "s", 1, 13, {100_000: 3, 1_000_000: 40}),
    Figure("restart_s", "restart", "s", 1, 13, {100_000: 3, 1_000_000: 40}),
    Figure("opening_step_s", "longest hold, start", "ms", 1e3, 2, {100_000: 50, 1_000_000: 50}),
    Figure("reopening_step_s", "longest hold, restart", "ms", 1e3, 2, {100_000: 50, 1_000_000: 50}),
    Figure("page_s", "a page", "us", 1e6, 1.3, {}),
    Figure("longest_step_s", "longest hold, crawl", "ms", 1e3, 13, {100_000: 50}),
    Figure("replan_s", "a plan", "ms", 1e3, 13, {}),
    Figure("planning_share", "planning, of a core", "%", 100, 13, {100_000: 5, 1_000_000: 5}),
    Figure("view_s", "terminal and samples, each second", "ms", 1e3, 2, {100_000: 10, 1_000_000: 10}),
    Figure("dashboard_s", "dashboard, first look", "ms", 1e3, 13, {}),
    Figure("memory_bytes", "memory", "MB", 1e-6, 13, {1_000_000: 1000}),
)
_NOISE = 0.05
"""In the unit: below this, growth is the clock's."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.sites", description=__doc__)
    parser.add_argument("--most", type=int, default=100_000)
    parser.add_argument("--kind", action="append", choices=(*KINDS, *ALONE))
    options = parser.parse_args()
    for kind in options.kind or (*KINDS, *ALONE):
        if kind in ALONE:
            print(alone(kind, options.most), flush=True)
            continue
        rows = [measure(size, kind) for size in SIZES if size <= options.most]
        print(table(kind, rows), flush=True)


def alone(kind: str, most: int) -> str:
    if kind == "connections":
        row = run("benchmarks.sites.connections", str(CONNECTIONS))
        verdict = "met" if row["share_of_wanted"] >= SHARE_WANTED else "NOT MET"
        figure = f"{100 * row['share_of_wanted']:.1f}% of the wanted pages/s from second 20 on"
        return f"{CONNECTIONS:,} connections: {figure}; {100 * SHARE_WANTED:g}%: {verdict}"
    row = run("benchmarks.sites.simulating", str(min(most, SIMULATED_SITES)))
    verdict = "met" if row["page_s"] <= SIMULATED_PAGE_S else "NOT MET"
    figure = f"{1e6 * row['page_s']:.0f} us a page"
    return f"simulation of {row['sites']:,} sites: {figure}; {1e6 * SIMULATED_PAGE_S:g} us: {verdict}"


def measure(sites: int, kind: str) -> dict[str, float]:
    return run("benchmarks.sites.crawling", str(sites), kind)


def run(module: str, *arguments: str) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{module} {' '.join(arguments)}: it failed\n{done.stderr}")
    return dict(json.loads(done.stdout))


def table(kind: str, rows: list[dict[str, float]]) -> str:
    sizes = [int(row["sites"]) for row in rows]
    lines = [
        f"## {kind}",
        "| CPU | " + " | ".join(f"{size:,} sites" for size in sizes) + " | growth | verdict |",
        "|---|" + "---|" * (len(sizes) + 2),
    ]
    for figure in FIGURES:
        if figure.name in rows[0]:
            values = [row[figure.name] * figure.times for row in rows]
            growth = [after / max(before, _NOISE) for before, after in pairwise(values)]
            cells = [f"{value:,.2f} {figure.unit}" for value in values]
            grown = ", ".join(f"{each:.1f}" for each in growth)
            verdict = "; ".join(verdicts(figure, dict(zip(sizes, values, strict=True)), growth))
            lines.append(f"| {figure.title} | " + " | ".join(cells) + f" | {grown} | {verdict} |")
    return "\n".join(lines) + "\n"


def verdicts(figure: Figure, values: dict[int, float], growth: list[float]) -> list[str]:
    told = []
    if growth:
        told.append("grows as it may" if max(growth) <= figure.most_growth else "GROWS TOO FAST")
    for size, target in figure.targets.items():
        if size in values:
            verdict = "met" if values[size] <= target else "NOT MET"
            told.append(f"{target:g} {figure.unit} at {size:,}: {verdict}")
    return told


if __name__ == "__main__":
    main()
