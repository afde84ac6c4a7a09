"""`make bench NAME=dashboard`: the cost of the dashboard to a crawl, and its speed for a large crawl.

For a synthetic run of 10,000 sites and 1,000,000 pages, the report is timed, and the dashboard up to the
first paint in a browser. Then a crawl of 10,000 sites runs, with and without a client of its dashboard.
Options: --sites, --pages, --rounds, --seconds (of each turn of a round),
--only report|dashboard|cost|orders, --write (puts the tables into the README here).
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
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.notes import write_part
from rich.console import Console
from rich.table import Table

from .bigrun import make_run
from .cost import measure_cost
from .looking import measure_looking
from .orders import measure_orders

_GOAL = 0.98
"""Of the throughput of a crawl without a client."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.dashboard", description="what looking at a crawl costs")
    parser.add_argument("--sites", type=int, default=10_000)
    parser.add_argument("--pages", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--only", choices=("report", "dashboard", "cost", "orders"))
    parser.add_argument("--run", type=Path, help="A synthetic run from earlier, kept for another time.")
    parser.add_argument("--write", action="store_true", help="Put the tables into the README here.")
    options = parser.parse_args()
    show = _Shown(writes=options.write)
    with tempfile.TemporaryDirectory() as name:
        if options.only not in {"cost", "orders"}:
            folder = options.run or Path(name) / "run"
            if not folder.exists():
                make_run(folder, sites=options.sites, pages=options.pages)
            size = f"a run of {options.sites:,} sites, {options.pages:,} pages"
            if options.only != "dashboard":
                show("report", (size, "figure", "goal"), _report_rows(folder, Path(name) / "report"))
            if options.only != "report":
                show("dashboard", (size, "figure"), measure_looking(folder).items())
        if options.only in {None, "orders"}:
            rows = [
                ("one process", measure_orders(Path(name) / "one", 20)),
                ("two processes", measure_orders(Path(name) / "two", 20, "--processes", "2")),
            ]
            show("orders", ("20 orders to a crawl by", "take effect after (least, median, most)"), rows)
        if options.only in {None, "cost"}:
            headings = (
                f"a crawl of {options.sites:,} sites",
                "pages/s",
                "crawl's CPU ms/page",
                "dashboard's cores",
            )
            show("cost", headings, _cost_rows(Path(name), options.sites, options.rounds, options.seconds))


class _Shown:
    """A table on the terminal and, if wanted, in the README."""

    def __init__(self, *, writes: bool) -> None:
        self._writes = writes
        self._console = Console(width=110)

    def __call__(self, name: str, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        kept = [tuple(row) for row in rows]
        table = Table(*headings, box=None)
        for row in kept:
            table.add_row(*row)
        self._console.print(table)
        if self._writes:
            lines = [headings, ["---"] * len(headings), *kept]
            text = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
            write_part(Path(__file__).with_name("README.md"), name, text)


def _report_rows(folder: Path, out: Path) -> list[tuple[str, str, str]]:
    begun = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "headway", "report", "-q", os.fspath(folder), "-o", os.fspath(out)], check=True
    )
    seconds = time.perf_counter() - begun
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    memory = used.ru_maxrss / 1024
    page = (out / "report.html").stat().st_size / 1e6
    everything = sum(path.stat().st_size for path in out.iterdir()) / 1e6
    return [
        ("report, written in", f"{seconds:.1f} s", "< 30 s"),
        ("report, CPU", f"{used.ru_utime + used.ru_stime:.1f} s", ""),
        ("report, page / with all figures", f"{page:.1f} / {everything:.1f} MB", "< 20 MB"),
        ("report, memory", f"{memory:.0f} MB", ""),
    ]


def _cost_rows(folder: Path, sites: int, rounds: int, seconds: float) -> list[tuple[str, str, str, str]]:
    found = measure_cost(folder / "cost", sites, rounds, seconds)
    rows = []
    for name, turns in (
        ("no client", [each.alone for each in found]),
        ("a dashboard, refreshed each second", [each.watched for each in found]),
    ):
        figures = [statistics.median(column) for column in zip(*turns, strict=True)]
        rows.append((name, f"{figures[0]:.0f}", f"{figures[1]:.3f}", f"{figures[2]:.3f}"))
    speed = [each.watched.pages_per_s / each.alone.pages_per_s for each in found]
    cpu = [each.watched.cpu_ms_per_page / each.alone.cpu_ms_per_page for each in found]
    verdict = "met" if statistics.median(speed) >= _GOAL else "MISSED"
    title = f"ratio, median of {rounds} rounds (quartiles); goal {_GOAL}: {verdict}"
    return [*rows, (title, _spread(speed), _spread(cpu), "")]


def _spread(ratios: list[float]) -> str:
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return f"{middle:.3f} ({low:.3f}-{high:.3f})"


if __name__ == "__main__":
    main()
