"""`make bench NAME=dashboard`: what looking at a crawl costs, and how quick a look at a large one is.

A run of 10,000 sites and 1,000,000 pages is made up: its report is timed, and its dashboard, up to the first
paint in a browser. Then a crawl of 10,000 sites runs, whose dashboard somebody looks at now and not then.
Options: --sites, --pages, --rounds, --seconds (of each turn of a round),
--only report|dashboard|cost|orders.
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
from .orders import measure_orders


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.dashboard", description="what looking at a crawl costs")
    parser.add_argument("--sites", type=int, default=10_000)
    parser.add_argument("--pages", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--only", choices=("report", "dashboard", "cost", "orders"))
    parser.add_argument("--run", type=Path, help="A run made up earlier, kept for another time.")
    options = parser.parse_args()
    console = Console(width=110)
    with tempfile.TemporaryDirectory() as name:
        if options.only not in {"cost", "orders"}:
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
        if options.only in {None, "orders"}:
            table = Table("20 orders to a crawl by", "take effect after (least, median, most)", box=None)
            table.add_row("one process", measure_orders(Path(name) / "one", 20))
            table.add_row("two processes", measure_orders(Path(name) / "two", 20, "--processes", "2"))
            console.print(table)
        if options.only in {None, "cost"}:
            console.print(_cost_table(Path(name), options.sites, options.rounds, options.seconds))


def _report_rows(table: Table, size: str, folder: Path, out: Path) -> None:
    begun = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "headway", "report", "-q", os.fspath(folder), "-o", os.fspath(out)], check=True
    )
    seconds = time.perf_counter() - begun
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    memory = used.ru_maxrss / 1024
    page = (out / "report.html").stat().st_size / 1e6
    everything = sum(path.stat().st_size for path in out.iterdir()) / 1e6
    table.add_row(size, "report, written in", f"{seconds:.1f} s", "< 30 s")
    table.add_row(size, "report, CPU", f"{used.ru_utime + used.ru_stime:.1f} s", "")
    table.add_row(size, "report, page / with all figures", f"{page:.1f} / {everything:.1f} MB", "< 20 MB")
    table.add_row(size, "report, memory", f"{memory:.0f} MB", "")


def _cost_table(folder: Path, sites: int, rounds: int, seconds: float) -> Table:
    found = measure_cost(folder / "cost", sites, rounds, seconds)
    table = Table(
        f"a crawl of {sites:,} sites", "pages/s", "crawl's CPU ms/page", "dashboard's cores", box=None
    )
    for name, turns in (
        ("nobody looking on", [each.alone for each in found]),
        ("a dashboard, refreshed each second", [each.watched for each in found]),
    ):
        figures = [statistics.median(column) for column in zip(*turns, strict=True)]
        table.add_row(name, f"{figures[0]:.0f}", f"{figures[1]:.3f}", f"{figures[2]:.3f}")
    speed = [each.watched.pages_per_s / each.alone.pages_per_s for each in found]
    cpu = [each.watched.cpu_ms_per_page / each.alone.cpu_ms_per_page for each in found]
    table.add_row(f"ratio, median of {rounds} rounds", _spread(speed), _spread(cpu), "")
    return table


def _spread(ratios: list[float]) -> str:
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return f"{middle:.3f} ({low:.3f}-{high:.3f})"


if __name__ == "__main__":
    main()
