"""Two processes beside one: `python -m benchmarks.crawl.processes [--copies 12] [--rounds 5] [--write]`

The benchmark's web under more addresses, so that a crawl takes long enough for its first and last second not
to count. One process has a core to itself and nginx the other; two have both cores, and nginx beside
them. Both run in turn, since a machine is not equally fast all the time, and each two runs make a ratio.
"""

from __future__ import annotations

import argparse
import os
import statistics
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.sites import make_web, serve

from . import readme
from .crawlers import all_crawlers
from .measuring import Run, goal, run_once

COPIES = 12
ROUNDS = 5
AT_MOST_S = 300.0
HEADINGS = (
    "pages",
    "one process, pages/s",
    "two",
    "ratio",
    "CPU a page, two / one",
    "nginx, % of the time used",
)

Pair = tuple[Run, Run]


def measure(copies: int = COPIES, rounds: int = ROUNDS) -> list[Pair]:
    sites = make_web(copies)
    crawlers = all_crawlers()
    one, two = crawlers["headway"](), crawlers["headway-2"]()
    urls = [site.url for site in sites]
    here, there = min(os.sched_getaffinity(0)), max(os.sched_getaffinity(0))
    pairs = []
    with serve(sites, core=there) as server, TemporaryDirectory() as kept:
        for _ in range(rounds):
            runs = [
                run_once(crawler, server, urls, core=here, at_most_s=AT_MOST_S, kept=Path(kept))
                for crawler in (one, two)
            ]
            for run in runs:
                if run.problem:
                    raise SystemExit(run.problem)
            print(f"{runs[0].pages_per_s:,.0f} pages/s, then {runs[1].pages_per_s:,.0f}", flush=True)
            pairs.append((runs[0], runs[1]))
    return pairs


def report(pairs: Sequence[Pair]) -> list[str]:
    rows = [
        (
            f"{len(one.pages):,}",
            f"{one.pages_per_s:,.0f}",
            f"{two.pages_per_s:,.0f}",
            f"{two.pages_per_s / one.pages_per_s:.2f}",
            f"{two.cpu_s_a_page / one.cpu_s_a_page:.2f}",
            f"{100 * two.server_cpu_s / (two.server_cpu_s + two.cpu_s):.0f}",
        )
        for one, two in pairs
    ]
    ratios = [two.pages_per_s / one.pages_per_s for one, two in pairs]
    parts = [two.server_cpu_s / (two.server_cpu_s + two.cpu_s) for _, two in pairs]
    left = statistics.median(ratio / (1 - part) for ratio, part in zip(ratios, parts, strict=True))
    return [
        *readme.table(HEADINGS, rows),
        "",
        goal("times one process by two", ratios, least=1.7) + ".",
        f"Of the time that nginx leaves them, two processes make {left:.2f} times as much as one.",
    ]


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
