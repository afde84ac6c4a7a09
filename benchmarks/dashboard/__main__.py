"""`make bench NAME=dashboard`: what looking at a crawl costs, and how quick a look at a large one is.

A run of 10,000 sites and 1,000,000 pages is made up: its report is timed, and its dashboard, up to the first
paint in a browser. Then a crawl of 10,000 sites runs with and without a dashboard that somebody looks at.
Options: --sites, --pages, --rounds, --crawled (pages of each crawl), --only report|dashboard|cost.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from .bigrun import make_run
from .cost import measure_cost
from .looking import measure_looking


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.dashboard", description="what looking at a crawl costs")
    parser.add_argument("--sites", type=int, default=10_000)
    parser.add_argument("--pages", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--crawled", type=int, default=8000)
    parser.add_argument("--only", choices=("report", "dashboard", "cost"))
    parser.add_argument("--run", type=Path, help="A run made up earlier, kept for another time.")
    options = parser.parse_args()
    console = Console(width=110)
    with tempfile.TemporaryDirectory() as name:
        if options.only != "cost":
            folder = options.run or Path(name) / "run"
            if not folder.exists():
                make_run(folder, sites=options.sites, pages=options.pages)
            table = Table("a run of", "what", "figure", "goal", box=None)
            size = f"{options.sites:,} sites, {options.pages:,} pages"
            if options.only != "dashboard":
                _report_rows(table, size, folder, Path(name) / "report")
            if options.only != "report":
                for what, figure in measure_looking(folder).items():
                    table.add_row(size, what, figure, "")
            console.print(table)
        if options.only in {None, "cost"}:
            console.print(_cost_table(Path(name), options.sites, options.rounds, options.crawled))


def _report_rows(table: Table, size: str, folder: Path, out: Path) -> None:
    begun = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "headway", "report", "-q", os.fspath(folder), "-o", os.fspath(out)], check=True
    )
    seconds = time.perf_counter() - begun
    memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    page = (out / "report.html").stat().st_size / 1e6
    everything = sum(path.stat().st_size for path in out.iterdir()) / 1e6
    table.add_row(size, "report, written in", f"{seconds:.1f} s", "< 30 s")
    table.add_row(size, "report, page / with all figures", f"{page:.1f} / {everything:.1f} MB", "< 20 MB")
    table.add_row(size, "report, memory", f"{memory:.0f} MB", "")


def _cost_table(folder: Path, sites: int, rounds: int, pages: int) -> Table:
    """Crawls with and without a dashboard by turns, so that whatever else the machine does hits both."""
    alone, watched = [], []
    for number in range(rounds):
        alone.append(measure_cost(folder / f"alone{number}", sites, pages, is_watched=False))
        watched.append(measure_cost(folder / f"watched{number}", sites, pages, is_watched=True))
        print(f"round {number + 1}: alone {alone[-1]}, watched {watched[-1]}", file=sys.stderr, flush=True)
    table = Table(f"a crawl of {sites:,} sites", "pages/s", "CPU ms/page", "median", "more", box=None)
    base = statistics.median(cost.cpu_ms_per_page for cost in alone)
    for name, costs in (("nobody looking on", alone), ("a dashboard, refreshed each second", watched)):
        middle = statistics.median(cost.cpu_ms_per_page for cost in costs)
        each = " ".join(f"{cost.cpu_ms_per_page:.3f}" for cost in costs)
        pages = statistics.median(cost.pages_per_s for cost in costs)
        table.add_row(name, f"{pages:.0f}", each, f"{middle:.3f}", f"{middle / base - 1:+.1%}")
    return table


if __name__ == "__main__":
    main()
