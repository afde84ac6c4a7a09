"""Pages a second, CPU, memory and coverage of all crawlers on the same web.

    python -m benchmarks.whole.peers --json FILE [--copies 3] [--every 1] [--rounds 3] [--at-most 400]

nginx on one core serves Debian's manuals; each crawler in turn has the other core to itself. What was fetched
is read from the server's log. `benchmarks/crawl` has the crawlers and their settings.
"""

from __future__ import annotations

import argparse
import os
import statistics
from pathlib import Path

import msgspec
from benchmarks.crawl.crawlers import Crawler, MissingError, all_crawlers
from benchmarks.crawl.measuring import Run, place_to_write, run_once
from benchmarks.manuals import SiteFolder, make_web, serve
from benchmarks.whole.coverage import Missing, explain

QUICK = frozenset({"headway", "wget2"})
NAMES = ("headway", "headway-2", "wget2", "scrapy", "scrapy-tuned", "crawlee", "httrack")


class Peer(msgspec.Struct, frozen=True):
    name: str
    version: str
    pages: int
    pages_per_s: float
    slowest_pages_per_s: float
    fastest_pages_per_s: float
    cpu_ms_per_page: float
    peak_bytes: int
    whole_s: float
    keeps: str
    cores: int
    problem: str
    missing: list[Missing]


class Peers(msgspec.Struct, frozen=True):
    sites: int
    files: int
    bytes_per_file: float
    found: int
    """Pages that anybody found."""
    peers: list[Peer]
    left_out: list[str]


def measure(copies: int, every: int, rounds: int, at_most_s: float) -> Peers:
    sites = make_web(copies)[::every]
    crawlers: dict[str, Crawler] = {}
    left_out = []
    makers = all_crawlers()
    for name in NAMES:
        try:
            if name in makers:
                crawlers[name] = makers[name]()
        except MissingError as missing:
            left_out.append(str(missing))
    runs: dict[str, list[Run]] = {}
    there = max(os.sched_getaffinity(0))
    urls = [site.url for site in sites]
    with serve(sites, core=there) as server, place_to_write() as kept:
        for name in turns(list(crawlers), rounds):
            run = run_once(crawlers[name], server, urls, at_most_s=at_most_s, kept=kept)
            runs.setdefault(name, []).append(run)
            print(
                f"{crawlers[name].name}: {len(run.pages)} pages, {run.pages_per_s:.0f}/s {run.problem}",
                flush=True,
            )
    return summarise(sites, crawlers, runs, left_out)


def turns(names: list[str], rounds: int) -> list[str]:
    """The quick ones before each slow one, so that a slow minute of the machine hits all alike."""
    quick, slow = [name for name in names if name in QUICK], [name for name in names if name not in QUICK]
    order: list[str] = []
    for number in range(max(rounds, len(slow))):
        order += quick if number < rounds else []
        order += slow[number : number + 1]
    return order


def summarise(
    sites: list[SiteFolder], crawlers: dict[str, Crawler], runs: dict[str, list[Run]], left_out: list[str]
) -> Peers:
    found = frozenset[str]().union(*(run.pages for each in runs.values() for run in each))
    peers = []
    for name, each in runs.items():
        speeds = [run.pages_per_s for run in each]
        middle = statistics.median_low(speeds)
        run = next(run for run in each if run.pages_per_s == middle)
        crawler = crawlers[name]
        lacks = () if run.problem else found - run.pages
        peers.append(
            Peer(
                crawler.name,
                crawler.version,
                len(run.pages),
                middle,
                min(speeds),
                max(speeds),
                1000 * run.cpu_s / max(1, len(run.pages)),
                run.peak_bytes,
                run.whole_s,
                crawler.keeps,
                2 if crawler.has_two_cores else 1,
                run.problem,
                explain(sorted(lacks), run.pages, sites),
            )
        )
    peers.sort(key=lambda peer: -peer.pages_per_s)
    files, size = sum(site.pages for site in sites), sum(site.size_bytes for site in sites)
    return Peers(len(sites), files, size / files, len(found), peers, left_out)


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.whole.peers", description=__doc__)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--copies", type=int, default=3, help="how often each manual is served")
    parser.add_argument("--every", type=int, default=1, help="only every so many-th site")
    parser.add_argument("--rounds", type=int, default=3, help="how often the quick crawlers run")
    parser.add_argument("--at-most", type=float, default=400.0, help="seconds of each run")
    options = parser.parse_args()
    told = measure(options.copies, options.every, options.rounds, options.at_most)
    options.json.write_bytes(msgspec.json.format(msgspec.json.encode(told)))


if __name__ == "__main__":
    main()
