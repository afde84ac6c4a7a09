"""Fit, calibration and judgement on families of sites that have nothing in common, each in each part."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import permutations
from typing import NamedTuple

from benchmarks.foresight.crawls import Crawl
from benchmarks.foresight.fit import crawled, settings
from benchmarks.foresight.fitting import PROBABILITIES, fit_pages, snapshots, table_of
from benchmarks.foresight.judging import as_before, with_factors
from benchmarks.foresight.webs import SiteGraph, graph_sites, synthetic_sites

from headway.planning.ends import WANTED

_CALIBRATED_ON = 80
MADE_UP = "made-up"


class Judged(NamedTuple):
    """The crawls of one rotation, with the ranges of the chain and those of the planner's ends with
    factors."""

    parts: tuple[str, ...]
    crawls: list[Crawl]
    before: list[Crawl]


def families() -> dict[str, list[SiteGraph]]:
    found = {
        "documentation": graph_sites("debdoc-small"),
        "research": graph_sites("cnr-2000"),
        MADE_UP: synthetic_sites(range(20, 26)),
    }
    return {name: sites for name, sites in found.items() if sites}


def ways(names: Sequence[str]) -> list[tuple[str, ...]]:
    """The ways to give the families to the parts. Ranges are calibrated on real sites: made-up ones are too
    much alike."""
    return [parts for parts in permutations(names) if parts[1] != MADE_UP or len(names) < 3]


def rotate(number: int, judged: int, seed: int = 0) -> Judged:
    """One of the ways to give the families to the parts. The level of the ranges adapts from crawl to
    crawl."""
    sites = families()
    parts = ways(list(sites))[number]
    fitted, calibrated, last = (sites[parts[place % len(parts)]] for place in range(3))
    pages = fit_pages(snapshots(fitted))
    even = table_of(pages)
    seed = 1000 + 10 * number + seed
    others = [crawled(calibrated, even, setting) for setting in settings(_CALIBRATED_ON, seed)]
    table, levels = table_of(pages, others), (WANTED, WANTED)
    crawls = []
    for setting in settings(judged, seed + 5):
        crawl = crawled(last, table, setting, levels)
        levels = crawl.levels
        crawls.append(crawl)
    before = with_factors(as_before(crawls), as_before(others), PROBABILITIES)
    return Judged(parts, crawls, before)


def rotations(judged: int, seed: int = 0, processes: int = 2) -> list[Judged]:
    count = len(ways(list(families())))
    with ProcessPoolExecutor(processes) as pool:
        return list(pool.map(rotate, range(count), [judged] * count, [seed] * count))
