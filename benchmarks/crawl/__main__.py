"""`make bench NAME=crawl`: pages a second, CPU and memory of five crawlers on the same web.

nginx on one core serves Debian's manuals as some fifty sites; each crawler in turn has the other core to
itself. The quick ones run several times, before and between the slow ones, and their median counts, since a
machine is not equally fast all the time. What was fetched is read from the server's log, which counts all
alike.

    python -m benchmarks.crawl [--only headway,scrapy] [--rounds 3] [--copies 3] [--every 1]

A whole run writes its table, that of a page's shares and that of two processes into the README here.
`--resume` keeps what was measured in a file, so that it can be done in parts of so many `--seconds`.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
from benchmarks.sites import SiteFolder, make_web, serve
from rich.console import Console
from rich.table import Table

from . import processes, readme, shares
from .crawlers import Crawler, MissingError, all_crawlers
from .measuring import Run, goal, run_once

QUICK = ("headway", "headway-2", "headway-apart", "headway-exact", "wget2")
ALL = "headway,headway-exact,headway-2,headway-apart,wget2,scrapy,scrapy-tuned,crawlee,httrack"
AT_MOST_S = 400.0
SPEEDS = ("pages/s", "x Scrapy", "x tuned")
CPU = ("CPU s per 1,000 pages", "Scrapy's / it", "tuned / it")
HEADINGS = ("pages", *SPEEDS, "whole s", *CPU, "peak MB", "keeps")
PEERS = ("scrapy", "scrapy-tuned")


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.crawl", description="headway beside other crawlers")
    parser.add_argument(
        "--only",
        default=ALL,
        help="which of these, separated by commas (exact: digests only; 2: two processes; apart: two crawls)",
    )
    parser.add_argument("--rounds", type=int, default=3, help="how often the quick crawlers run")
    parser.add_argument("--copies", type=int, default=shares.COPIES, help="how often each manual is served")
    parser.add_argument("--every", type=int, default=1, help="only every so many-th site")
    parser.add_argument(
        "--write", action="store_true", help="put the tables into the README, whole run or not"
    )
    parser.add_argument("--resume", type=Path, help="keep runs in this file, and go on from there")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no run after so long")
    options = parser.parse_args()
    console = Console(width=118)
    sites = make_web(options.copies)[:: options.every]
    runs: dict[str, list[Run]] = {}
    if options.resume is not None and options.resume.exists():
        runs = msgspec.json.decode(options.resume.read_bytes(), type=dict[str, list[Run]])
    crawlers = dict(_to_be_had(options.only.split(","), all_crawlers(), console))
    with serve(sites, core=max(os.sched_getaffinity(0))) as server, TemporaryDirectory() as kept:
        urls = [site.url for site in sites]
        until = time.monotonic() + options.seconds
        for name in _to_do(_turns(list(crawlers), options.rounds), runs):
            if time.monotonic() > until:
                console.print("to be gone on with")
                return
            run = run_once(
                crawlers[name],
                server,
                urls,
                core=min(os.sched_getaffinity(0)),
                at_most_s=AT_MOST_S,
                kept=Path(kept),
            )
            runs.setdefault(name, []).append(run)
            if options.resume is not None:
                options.resume.write_bytes(msgspec.json.encode(runs))
            took = f"{run.crawling_s:.1f} s, CPU {run.cpu_s:.1f} s, nginx {run.server_cpu_s:.1f} s"
            console.print(f"{crawlers[name].name}: {len(run.pages):,} pages in {took} {run.problem}")
    said = [_described(sites), *_differences(crawlers, runs), *_two_processes(runs), *_ahead(crawlers, runs)]
    said += _goals(runs)
    console.print(_table(crawlers, runs))
    for line in said:
        console.print(line)
    is_whole = options.only == ALL and options.copies == shares.COPIES and options.every == 1
    if options.write or is_whole:
        rows = list(_rows(crawlers, runs))
        readme.put(
            "figures", [*readme.table(("crawler", *HEADINGS), rows), "", *(f"- {line}" for line in said)]
        )
        if is_whole:
            readme.put("shares", shares.table_of(sites))
            readme.put("processes", processes.report(processes.measure()))
        console.print(f"written into {readme.README.name}")


def _to_be_had(
    names: list[str], makers: dict[str, Callable[[], Crawler]], console: Console
) -> Iterable[tuple[str, Crawler]]:
    for name in names:
        try:
            yield name, makers[name]()
        except MissingError as missing:
            console.print(f"left out: {missing}")


def _turns(names: list[str], rounds: int) -> list[str]:
    """The quick ones, a slow one, the quick ones, a slow one, ..."""
    quick, slow = [name for name in names if name in QUICK], [name for name in names if name not in QUICK]
    turns: list[str] = []
    for number in range(max(rounds, len(slow))):
        turns += quick if number < rounds else []
        turns += slow[number : number + 1]
    return turns


def _to_do(turns: list[str], runs: dict[str, list[Run]]) -> list[str]:
    """Without those that were taken before."""
    taken = Counter({name: len(each) for name, each in runs.items()})
    left = []
    for name in turns:
        if taken[name]:
            taken[name] -= 1
        else:
            left.append(name)
    return left


def _described(sites: list[SiteFolder]) -> str:
    pages, size_bytes = sum(site.pages for site in sites), sum(site.size_bytes for site in sites)
    return f"{len(sites)} sites, {pages:,} HTML files of {size_bytes / pages / 1000:.1f} KB on average"


def _table(crawlers: dict[str, Crawler], runs: dict[str, list[Run]]) -> Table:
    table = Table(title="One core for the crawler, the other for nginx", title_justify="left")
    table.add_column("crawler")
    for heading in HEADINGS:
        table.add_column(heading, justify="left" if heading == "keeps" else "right")
    for row in _rows(crawlers, runs):
        table.add_row(*row)
    return table


def _rows(crawlers: dict[str, Crawler], runs: dict[str, list[Run]]) -> Iterable[list[str]]:
    median = {name: _median(each) for name, each in runs.items()}
    for name, run in sorted(median.items(), key=lambda item: -item[1].pages_per_s):
        speeds = [each.pages_per_s for each in runs[name]]
        spread = f" ({min(speeds):,.0f}-{max(speeds):,.0f})" if len(speeds) > 1 else ""
        peers = [median.get(peer) for peer in PEERS]
        yield [
            f"{crawlers[name].name} {crawlers[name].version}",
            f"{len(run.pages):,}",
            f"{run.pages_per_s:,.0f}{spread}",
            *(f"{run.pages_per_s / peer.pages_per_s:.1f}" if peer else "" for peer in peers),
            f"{run.whole_s:.1f}",
            f"{1000 * run.cpu_s_a_page:.2f}",
            *(f"{peer.cpu_s_a_page / run.cpu_s_a_page:.1f}" if peer else "" for peer in peers),
            f"{run.peak_bytes / 1e6:.0f}",
            crawlers[name].keeps,
        ]


def _two_processes(runs: dict[str, list[Run]]) -> Iterable[str]:
    """Of runs that stood side by side, since a machine is not equally fast all the time."""
    for name, said in (
        ("headway-2", "two processes are"),
        ("headway-apart", "two crawls apart, each of half the sites, which is all that the cores give, are"),
    ):
        if "headway" in runs and name in runs:
            pairs = zip(runs["headway"], runs[name], strict=False)
            ratios = sorted(two.pages_per_s / one.pages_per_s for one, two in pairs)
            two = _median(runs[name])
            part = two.server_cpu_s / (two.server_cpu_s + two.cpu_s)
            yield (
                f"{said} {statistics.median(ratios):.2f} times as fast as one ({ratios[0]:.2f} to "
                f"{ratios[-1]:.2f}), on two cores of which nginx takes {100 * part:.0f}% of the time used"
            )


def _goals(runs: dict[str, list[Run]]) -> Iterable[str]:
    """Whether the median of all runs reaches them, and how many of the runs do."""
    ours = runs.get("headway", [])
    if "scrapy" in runs:
        peer = _median(runs["scrapy"]).pages_per_s
        yield goal("times Scrapy's pages/s", [run.pages_per_s / peer for run in ours], least=15.0)
    yield goal("s of CPU for 1,000 pages", [1000 * run.cpu_s_a_page for run in ours], most=0.5)


def _ahead(crawlers: dict[str, Crawler], runs: dict[str, list[Run]]) -> Iterable[str]:
    """Peers that are faster than headway on one core, or need less CPU."""
    if "headway" not in runs:
        return
    ours = _median(runs["headway"])
    for name, each in runs.items():
        run = _median(each)
        if name.startswith("headway") or not run.pages:
            continue
        faster = run.pages_per_s / ours.pages_per_s
        leaner = ours.cpu_s_a_page / run.cpu_s_a_page
        if faster > 1 or leaner > 1:
            needs = f"1/{leaner:.1f} of its CPU"
            yield f"{crawlers[name].name} is ahead: {faster:.1f} times headway's pages/s, {needs}"


def _median(runs: list[Run]) -> Run:
    middle = statistics.median_low([run.pages_per_s for run in runs])
    return next(run for run in runs if run.pages_per_s == middle)


def _differences(crawlers: dict[str, Crawler], runs: dict[str, list[Run]]) -> Iterable[str]:
    """Which pages one crawler found and another did not."""
    everywhere = frozenset[str]().union(*(run.pages for each in runs.values() for run in each))
    alike = [name for name, each in runs.items() if all(run.pages == everywhere for run in each)]
    if alike:
        yield f"the same {len(everywhere):,} pages: " + ", ".join(crawlers[name].name for name in alike)
    for name, each in runs.items():
        for run in each:
            if missing := sorted(everywhere - run.pages):
                yield f"{crawlers[name].name} lacks {len(missing):,}: {', '.join(missing[:3])}"


if __name__ == "__main__":
    main()
