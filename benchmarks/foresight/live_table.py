"""Live crawls whose forecasts are judged, and recorded runs that are simulated beside second live runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
from benchmarks.foresight.crawls import Crawl, Setting
from benchmarks.foresight.live import LiveSetting, as_crawl, crawl, served, serving, simulated_end
from benchmarks.foresight.webs import SiteGraph, graph_sites, synthetic_sites

_AT_ONCE = 2
_PAGES = 30, 90
_ABOUT_S = 40.0
"""How long a live crawl is to take."""
_TYPICAL_BYTES = 15_000.0


class Pair(NamedTuple):
    """A live run with its second, and the end that was simulated."""

    name: str
    live_s: float
    second_s: float
    simulated_s: float
    is_what_if: bool

    @property
    def spread(self) -> float:
        return abs(self.second_s - self.live_s) / ((self.second_s + self.live_s) / 2)

    @property
    def error(self) -> float:
        """Against the mean of both live runs."""
        return self.simulated_s / ((self.second_s + self.live_s) / 2) - 1


def sites_for(count: int, seed: int) -> list[SiteGraph]:
    """Sites that were not used for the table that headway ships."""
    pool = graph_sites("debdoc-small")[1::2] + synthetic_sites(range(40, 42), 4000)
    few = [site for site in pool if _PAGES[0] <= len(site.links) <= _PAGES[1]]
    chance = np.random.default_rng([seed, 0x77])
    return [few[place] for place in chance.choice(len(few), min(count, len(few)), replace=False)]


def crawls(folder: Path, count: int, seed: int) -> list[Crawl]:
    """Live crawls, each with new servers; in every third the servers slow down to a third half-way."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(lambda number: _lived(folder / f"live-{number}", seed + number), range(count)))


def _lived(folder: Path, seed: int) -> Crawl:
    folder.mkdir()
    chance = np.random.default_rng([seed, 0x99])
    sites = sites_for(int(chance.choice([2, 4, 8])), seed)
    is_slow = seed % 3 == 0
    ready = served(sites, seed, slows_after_s=0.4 * _ABOUT_S if is_slow else None)
    longest = max(len(site.links) for site in sites)
    whole = sum(min(size, 40_000) for site in sites for size in site.sizes)
    interval_s = float(chance.uniform(0.1, 0.8)) * _ABOUT_S / longest
    bandwidth = whole / _ABOUT_S * float(chance.choice([0.9, 1.5, 4.0]))
    setting = LiveSetting(f"live {seed}", round(interval_s, 3), bandwidth)
    with serving(ready, folder):
        crawl(ready, setting, folder / "run")
    about = Setting(seed, interval_s, 1.0, slows=is_slow)
    return as_crawl(folder / "run", "live", about)


def recorded(folder: Path, seed: int, *, is_quick: bool = False) -> list[Pair]:
    """For each setting two live runs, a simulation of the first, and of what would have been with another
    setting, beside live runs with that setting."""
    cases = _cases()[: 2 if is_quick else None]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        work = enumerate(cases)
        return [
            pair for found in pool.map(lambda each: _compared(folder, seed, *each), work) for pair in found
        ]


def _cases() -> list[tuple[int, LiveSetting, Sequence[LiveSetting]]]:
    busy = LiveSetting("6 sites, 100 KB/s", 0.1, 100e3)
    idle = LiveSetting("6 sites, 1 MB/s, 0.3 s", 0.3, 1e6)
    free = LiveSetting("4 sites, no bound, no pause", 0.0, math.inf)
    alone = LiveSetting("1 site, 60 KB/s", 0.05, 60e3)
    return [
        (
            6,
            busy,
            [
                busy._replace(name="- double the bound", bandwidth_bytes_per_s=200e3),
                busy._replace(name="- half the bound", bandwidth_bytes_per_s=50e3),
                busy._replace(name="- another strategy", strategy="depth"),
            ],
        ),
        (6, idle, [idle._replace(name="- double the interval", interval_s=0.6)]),
        (4, free, [free._replace(name="- an interval of 0.2 s", interval_s=0.2)]),
        (1, alone, []),
    ]


def _compared(
    folder: Path, seed: int, number: int, case: tuple[int, LiveSetting, Sequence[LiveSetting]]
) -> list[Pair]:
    count, setting, others = case
    mine = folder / f"case-{number}"
    mine.mkdir()
    ready = served(sites_for(count, seed + 50 + number), seed + number)
    pairs = []
    with serving(ready, mine):
        for place, one in enumerate([setting, *others]):
            ends = [crawl(ready, one, mine / f"run-{place}-{turn}") for turn in (0, 1)]
            what_if = None if place == 0 else one
            simulated_s = float(
                np.median([simulated_end(mine / "run-0-0", what_if, draw) for draw in range(3)])
            )
            pairs.append(Pair(one.name, *ends, simulated_s, is_what_if=place > 0))
    return pairs
