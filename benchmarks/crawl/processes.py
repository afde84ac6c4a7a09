"""Two processes beside one: `python -m benchmarks.crawl.processes [--copies 12] [--rounds 5] [--write]`

The benchmark's web under more addresses, so that a crawl takes long enough for its first and last second not
to count. One process has a core to itself and nginx the other; two have both cores, and nginx beside
them. A machine is not equally fast all the time: in each round one process runs before and after two runs of
two, so that what changes evenly counts for both alike, and the four make a ratio.
"""

from __future__ import annotations

import argparse
import os
import statistics
from collections.abc import Sequence

from benchmarks.manuals import make_web, serve

from . import readme
from .crawlers import all_crawlers
from .measuring import Run, goal, place_to_write, run_once

COPIES = 12
ROUNDS = 4
ORDER = (0, 1, 1, 0)
AT_MOST_S = 300.0
HEADINGS = (
    "pages",
    "one process, pages/s",
    "two",
    "ratio",
    "CPU a page, two / one",
    "nginx, % of the time used",
)

Round = tuple[list[Run], list[Run]]
"""Of one process, and of two."""


def measure(copies: int = COPIES, rounds: int = ROUNDS) -> list[Round]:
    sites = make_web(copies)
    crawlers = all_crawlers()
    both = crawlers["headway"](), crawlers["headway-2"]()
    urls = [site.url for site in sites]
    there = max(os.sched_getaffinity(0))
    measured: list[Round] = []
    with serve(sites, core=there) as server, place_to_write() as kept:
        for _ in range(rounds):
            runs: Round = ([], [])
            for which in ORDER:
                run = run_once(both[which], server, urls, at_most_s=AT_MOST_S, kept=kept)
                if run.problem:
                    raise SystemExit(run.problem)
                runs[which].append(run)
            told = [" and ".join(f"{run.pages_per_s:,.0f}" for run in each) for each in runs]
            print(f"one process {told[0]} pages/s, two {told[1]}", flush=True)
            measured.append(runs)
    return measured


def report(measured: Sequence[Round]) -> list[str]:
    rows, ratios, left = [], [], []
    for one, two in measured:
        ratio = _pages_per_s(two) / _pages_per_s(one)
        part = sum(run.server_cpu_s for run in two) / sum(run.server_cpu_s + run.cpu_s for run in two)
        ratios.append(ratio)
        left.append(ratio / (1 - part))
        rows.append(
            (
                f"{len(one[0].pages):,}",
                f"{_pages_per_s(one):,.0f}",
                f"{_pages_per_s(two):,.0f}",
                f"{ratio:.2f}",
                f"{sum(run.cpu_s for run in two) / sum(run.cpu_s for run in one):.2f}",
                f"{100 * part:.0f}",
            )
        )
    return [
        *readme.table(HEADINGS, rows),
        "",
        goal("times one process by two", ratios, least=1.7) + ".",
        f"Of the time that nginx leaves them, two make {statistics.median(left):.2f} times as much as one.",
    ]


def _pages_per_s(runs: Sequence[Run]) -> float:
    """Of all of them one after the other."""
    return sum(len(run.pages) for run in runs) / sum(run.crawling_s for run in runs)


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.crawl.processes", description=__doc__)
    parser.add_argument("--copies", type=int, default=COPIES, help="how often each manual is served")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--write", action="store_true", help="put the table into the README here")
    options = parser.parse_args()
    lines = report(measure(options.copies, options.rounds))
    for line in lines:
        print(line)
    if options.write:
        readme.put("processes", lines)


if __name__ == "__main__":
    main()
