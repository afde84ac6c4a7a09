"""`make bench NAME=simulator`: from ten thousand pages to the paper's size, and the live frontier.

Options: --most PAGES (3,500,000), --known PAGES (5,000,000), --only growth|frontier|paths.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys

from rich.console import Console
from rich.table import Table

SIZES = (10_000, 35_000, 100_000, 350_000, 1_000_000, 3_500_000)
TARGET_S, TARGET_MIB, TARGET_US = 60.0, 4096.0, 10.0


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.simulator", description=__doc__)
    parser.add_argument("--most", type=int, default=SIZES[-1])
    parser.add_argument("--known", type=int, default=5_000_000)
    parser.add_argument("--only", choices=("growth", "frontier", "paths"))
    options = parser.parse_args()
    console = Console(width=110)
    if options.only in (None, "growth"):
        growth(console, options.most)
    if options.only in (None, "paths"):
        paths(console)
    if options.only in (None, "frontier"):
        frontier(console, options.known)


def growth(console: Console, most: int) -> None:
    table = _table("Crawls of synthetic webs, r = 256, w = 15 s, unbounded link", "pages", "strategy")
    for name in ("CPU s", "us a page", "peak MiB", "virtual days", "web made in"):
        table.add_column(name, justify="right")
    for pages in (size for size in SIZES if size <= most):
        for strategy in ("length", "depth"):
            told = run("crawls", str(pages), strategy)
            table.add_row(
                f"{pages:,}",
                strategy,
                f"{told['cpu_s']:.2f}",
                f"{told['cpu_s'] / told['pages'] * 1e6:.2f}",
                f"{told['peak_mib']:.0f}",
                f"{told['days']:.2f}",
                f"{told['web_s']:.1f} s",
            )
            if pages == SIZES[-1]:
                met = told["cpu_s"] < TARGET_S and told["peak_mib"] < TARGET_MIB
                console.print(
                    f"{strategy} at the paper's size under 60 s and 4 GiB: {'yes' if met else 'NO'}"
                )
    console.print(table)


def paths(console: Console) -> None:
    """The machine itself against the loop on arrays, which decides the same (a property test says so)."""
    table = _table("The machine and the loop on arrays: us a page", "pages", "strategy")
    for name in ("machine", "arrays", "times"):
        table.add_column(name, justify="right")
    for pages, strategy in ((10_000, "length"), (10_000, "depth"), (10_000, "batch"), (50_000, "length")):
        slow, fast = (run("crawls", str(pages), strategy, way) for way in ("machine", "arrays"))
        costs = [told["cpu_s"] / told["pages"] * 1e6 for told in (slow, fast)]
        table.add_row(
            f"{pages:,}", strategy, f"{costs[0]:.0f}", f"{costs[1]:.2f}", f"{costs[0] / costs[1]:.0f}"
        )
    console.print(table)


def frontier(console: Console, known: int) -> None:
    table = _table("The live frontier, all known pages waiting", "known pages", "strategy")
    for name in ("us to hand out a page", "us to take one in", "bytes a known URL"):
        table.add_column(name, justify="right")
    for pages in (100_000, known):
        for strategy in ("length", "depth"):
            told = run("frontier", str(pages), strategy)
            table.add_row(
                f"{pages:,}",
                strategy,
                f"{told['handed_out_us']:.1f}",
                f"{told['found_us']:.1f}",
                f"{told['bytes_per_url']:.0f}",
            )
            if pages == known:
                met = told["handed_out_us"] < TARGET_US
                console.print(
                    f"{strategy}: a page in under 10 us at {known:,} known: {'yes' if met else 'NO'}"
                )
    console.print(table)


def run(module: str, *args: str) -> dict[str, float]:
    command = [sys.executable, "-m", f"benchmarks.simulator.{module}", *args]
    told: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return told


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, justify="right" if column == columns[0] else "left")
    return table


if __name__ == "__main__":
    main()
