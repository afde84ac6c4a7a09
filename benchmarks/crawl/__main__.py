"""`make bench NAME=crawl`: pages a second, CPU and memory of five crawlers on the same web.

nginx on one core serves Debian's manuals as some fifty sites; each crawler in turn has the other core to
itself. The quick ones run several times, before and between the slow ones, and their median counts, since a
machine is not equally fast all the time. What was fetched is read from the server's log, which counts all
alike. There are three webs of the same pages: over HTTP, over HTTPS, and compressed by gzip.

    python -m benchmarks.crawl [--only headway,scrapy] [--webs http,https,gzip] [--rounds 3] [--copies 3]

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
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec
from benchmarks.manuals import SiteFolder, make_web, serve
from rich.console import Console
from rich.table import Table

from . import processes, readme, shares
from .crawlers import Crawler, MissingError, all_crawlers
from .measuring import Run, goal, place_to_write, run_once

QUICK = ("headway", "headway-cores", "headway-2", "headway-apart", "headway-exact", "wget2")
ALL = "headway,headway-exact,headway-2,headway-apart,wget2,scrapy,scrapy-tuned,crawlee,httrack"
AT_MOST_S = 400.0
WEBS = {"http": (False, False), "https": (True, False), "gzip": (False, True)}
"""Whether over TLS, and whether compressed."""
HEADINGS = (
    "cores",
    "pages",
    "pages/s",
    "/ wget2",
    "/ Scrapy",
    "CPU s per 1,000 pages",
    "CPU / wget2",
    "whole s",
    "peak MB",
    "keeps",
)

Runs = dict[str, list[Run]]
"""By the crawler's name."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.crawl", description="headway beside other crawlers")
    parser.add_argument(
        "--only",
        default=ALL,
        help="which of these, separated by commas (exact: digests only; 2: two processes; apart: two crawls)",
    )
    parser.add_argument("--webs", default=",".join(WEBS), help="which webs, of http, https and gzip")
    parser.add_argument("--rounds", type=int, default=3, help="how often the quick crawlers run")
    parser.add_argument("--copies", type=int, default=shares.COPIES, help="how often each manual is served")
    parser.add_argument("--every", type=int, default=1, help="only every so many-th site")
    parser.add_argument(
        "--write", action="store_true", help="put the tables into the README, whole run or not"
    )
    parser.add_argument("--resume", type=Path, help="keep runs in this file, and go on from there")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no run after so long")
    options = parser.parse_args()
    console = Console(width=140)
    runs: dict[str, Runs] = {}
    if options.resume is not None and options.resume.exists():
        runs = msgspec.json.decode(options.resume.read_bytes(), type=dict[str, Runs])
    names = [each for name in options.only.split(",") for each in _with_all_cores(name)]
    crawlers = dict(_to_be_had(names, all_crawlers(), console))
    until = time.monotonic() + options.seconds
    said: list[str] = []
    for web in options.webs.split(","):
        is_secure, is_compressed = WEBS[web]
        sites = make_web(options.copies, is_secure=is_secure, is_compressed=is_compressed)[:: options.every]
        of_web = runs.setdefault(web, {})
        for name, run in _run_all(
            crawlers, sites, _to_do(_turns(list(crawlers), options.rounds), of_web), until
        ):
            of_web.setdefault(name, []).append(run)
            if options.resume is not None:
                options.resume.write_bytes(msgspec.json.encode(runs))
            took = f"{run.crawling_s:.1f} s, CPU {run.cpu_s:.1f} s, nginx {run.server_cpu_s:.1f} s"
            console.print(f"{web}, {crawlers[name].name}: {len(run.pages):,} pages in {took} {run.problem}")
        if time.monotonic() > until:
            console.print("to be continued with --resume")
            return
        said += [] if said else [_described(sites)]
        lines = [*_differences(crawlers, of_web), *_processes(of_web), *_goals(of_web)]
        said += [f"{web}: {line}" for line in lines]
    console.print(_table(crawlers, runs))
    for line in said:
        console.print(line)
    is_whole = options.only == ALL and options.copies == shares.COPIES and options.every == 1
    if options.write or is_whole:
        rows = list(_rows(crawlers, runs))
        readme.put(
            "figures",
            [*readme.table(("web", "crawler", *HEADINGS), rows), "", *(f"- {line}" for line in said)],
        )
        if is_whole:
            readme.put("shares", shares.table_of(make_web(options.copies)))
            readme.put("processes", processes.report(processes.measure()))
        console.print(f"written into {readme.README.name}")


def _with_all_cores(name: str) -> list[str]:
    """One process of headway on two cores stands beside that on one."""
    return [name, "headway-cores"] if name == "headway" and len(os.sched_getaffinity(0)) > 1 else [name]


def _run_all(
    crawlers: dict[str, Crawler], sites: list[SiteFolder], turns: Sequence[str], until: float
) -> Iterable[tuple[str, Run]]:
    if not turns:
        return
    urls = [site.url for site in sites]
    with serve(sites, core=max(os.sched_getaffinity(0))) as server, place_to_write() as kept:
        for name in turns:
            if time.monotonic() > until:
                return
            yield name, run_once(crawlers[name], server, urls, at_most_s=AT_MOST_S, kept=kept)


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


def _to_do(turns: list[str], runs: Runs) -> list[str]:
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


def _table(crawlers: dict[str, Crawler], runs: dict[str, Runs]) -> Table:
    table = Table(
        title="nginx has the last core, which crawlers on two cores share with it", title_justify="left"
    )
    for heading in ("web", "crawler", *HEADINGS):
        table.add_column(heading, justify="left" if heading in {"web", "crawler", "keeps"} else "right")
    for row in _rows(crawlers, runs):
        table.add_row(*row)
    return table


def _rows(crawlers: dict[str, Crawler], runs: dict[str, Runs]) -> Iterable[list[str]]:
    for web, of_web in runs.items():
        median = {name: _median(each) for name, each in of_web.items()}
        wget2, scrapy = median.get("wget2"), median.get("scrapy")
        for name, run in sorted(median.items(), key=lambda item: -item[1].pages_per_s):
            speeds = [each.pages_per_s for each in of_web[name]]
            spread = f" ({min(speeds):,.0f}-{max(speeds):,.0f})" if len(speeds) > 1 else ""
            yield [
                web,
                f"{crawlers[name].name} {crawlers[name].version}",
                "2" if crawlers[name].has_two_cores else "1",
                f"{len(run.pages):,}",
                f"{run.pages_per_s:,.0f}{spread}",
                f"{run.pages_per_s / wget2.pages_per_s:.2f}" if wget2 else "",
                f"{run.pages_per_s / scrapy.pages_per_s:.1f}" if scrapy else "",
                f"{1000 * run.cpu_s_a_page:.3f}",
                f"{run.cpu_s_a_page / wget2.cpu_s_a_page:.2f}" if wget2 else "",
                f"{run.whole_s:.1f}",
                f"{run.peak_bytes / 1e6:.0f}",
                crawlers[name].keeps,
            ]


def _processes(runs: Runs) -> Iterable[str]:
    """Of runs that stood side by side, since a machine is not equally fast all the time."""
    for name, said in (
        ("headway-cores", "one process on two cores is"),
        ("headway-2", "two processes are"),
        ("headway-apart", "two crawls apart, each of half the sites, which is all that the cores give, are"),
    ):
        ratios = _ratios(runs, name, "headway")
        if ratios:
            two = _median(runs[name])
            part = two.server_cpu_s / (two.server_cpu_s + two.cpu_s)
            yield (
                f"{said} {statistics.median(ratios):.2f} times as fast as one on one core "
                f"({ratios[0]:.2f} to {ratios[-1]:.2f}), on two cores of which nginx takes {100 * part:.0f}% "
                "of the time used"
            )


def _ratios(runs: Runs, name: str, other: str) -> list[float]:
    pairs = zip(runs.get(other, ()), runs.get(name, ()), strict=False)
    return sorted(two.pages_per_s / one.pages_per_s for one, two in pairs if one.pages_per_s)


def _goals(runs: Runs) -> Iterable[str]:
    """Whether the median of all runs reaches them, and how many of the runs do."""
    ours = runs.get("headway", [])
    if "scrapy" in runs and ours:
        peer = _median(runs["scrapy"]).pages_per_s
        yield goal("times Scrapy's pages/s", [run.pages_per_s / peer for run in ours], least=15.0)
    if "wget2" in runs and ours:
        cpu = _median(runs["wget2"]).cpu_s_a_page
        yield goal("times wget2's CPU a page", [run.cpu_s_a_page / cpu for run in ours], most=1.5)
    if "wget2" in runs and "headway-cores" in runs:
        ratios = _ratios(runs, "headway-cores", "wget2")
        yield goal("times wget2's pages/s by one process on two cores", ratios, least=1.0)
    if "headway-cores" in runs and ours:
        yield goal(
            "times its speed on one core by one process on two cores",
            _ratios(runs, "headway-cores", "headway"),
            least=1.7,
        )


def _median(runs: list[Run]) -> Run:
    middle = statistics.median_low([run.pages_per_s for run in runs])
    return next(run for run in runs if run.pages_per_s == middle)


def _differences(crawlers: dict[str, Crawler], runs: Runs) -> Iterable[str]:
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
