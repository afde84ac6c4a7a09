"""Crawls in virtual time by the engine, over sites of known size, with servers that drift; and their
forecasts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from benchmarks.foresight.webs import SiteGraph

from headway.config.job import Job, build_job
from headway.config.reading import Source
from headway.config.schema import CrawlTable, JobFile, SiteTable
from headway.engine.forecast import Forecaster
from headway.engine.machine import Engine
from headway.model.command import Command
from headway.model.event import Event, Seeded
from headway.planning.ends import WANTED, ForecastTable
from headway.planning.forecast_table import SHIPPED
from headway.runtime.driver import VirtualClock, VirtualDriver
from headway.runtime.runtime import Circumstances, Runtime, build_politeness
from headway.runtime.simulation import seed_pages, without_what_is_not_simulated
from headway.sim.web import Answering, Trouble, Web
from headway.sim.world import GraphWorld
from headway.units import Instant, Seconds

LOOKS = 40
_DRIFT = 0.5
"""The deviation of the logarithm of a server's rate over the time of its site."""
_JITTER = 0.3


class DriftingServers:
    """Each server has a rate and a delay of its own that wander, and each answer varies around them."""

    def __init__(self, pages: Sequence[int], seed: int, slows_at: float | None = None) -> None:
        """`slows_at`: the first half of the servers fall to a third of their rate at this time."""
        self._chance = np.random.default_rng([seed, 0xD1])
        count = len(pages)
        self._rate = 400_000.0 * np.exp(self._chance.normal(0.0, 0.8, count))
        self._delay_s = np.clip(0.12 * np.exp(self._chance.normal(0.0, 0.7, count)), 0.002, 3.0)
        self._step = _DRIFT / np.sqrt(np.maximum(np.array(pages, dtype=np.float64), 1.0))
        self._turnaround_s = float(self._chance.uniform(0.001, 0.02))
        self._slows_at = slows_at

    def __len__(self) -> int:
        return len(self._rate)

    def answering(self, now: float, site: int) -> Answering:
        chance = self._chance
        self._rate[site] *= math.exp(chance.normal(0.0, self._step[site]))
        self._delay_s[site] *= math.exp(chance.normal(0.0, 0.5 * self._step[site]))
        slow = 3.0 if self._slows_at is not None and now >= self._slows_at and site <= len(self) // 2 else 1.0
        delay_s = float(self._delay_s[site]) * math.exp(chance.normal(0.0, _JITTER)) * slow
        return Answering(
            delay_s,
            delay_s,
            float(self._rate[site]) * math.exp(chance.normal(0.0, _JITTER)) / slow,
            self._turnaround_s * float(chance.exponential()),
        )


class Setting(NamedTuple):
    """How a crawl is made."""

    seed: int
    interval_s: float
    bandwidth_share: float
    """The bound, as a share of what the sites could take together."""
    has_deadlines: bool = False
    strategy: str = "length"
    slows: bool = False


class Look(NamedTuple):
    """What was forecast at an instant, as seconds from then; uncorrected."""

    at_s: float
    sites: dict[str, float]
    crawl: float
    ranges: dict[str, tuple[float, float]]
    crawl_range: tuple[float, float]
    planned: dict[str, float]
    """What headway forecast before: the end of each site by the planner's mean rates."""


class Crawl(NamedTuple):
    family: str
    setting: Setting
    looks: list[Look]
    ends: dict[str, float]
    end_s: float
    levels: tuple[float, float]
    """After the crawl."""


def web_of(sites: Sequence[SiteGraph]) -> Web:
    """The sites as one web, each a site of its own."""
    starts, targets, site_of, sizes, seeds = [0], [], [], [], []
    first = 0
    for number, site in enumerate(sites):
        for page, links in enumerate(site.links):
            targets += [first + to for to in links]
            starts.append(len(targets))
            site_of.append(number)
            sizes.append(max(200, site.sizes[page]))
        seeds.append(first + site.start)
        first += len(site.links)
    return Web(
        "sites",
        np.array(starts, dtype=np.int64),
        np.array(targets, dtype=np.int32),
        np.array(site_of, dtype=np.int32),
        np.array(sizes, dtype=np.int64),
        [f"s{number:03}.test" for number in range(len(sites))],
        np.array(seeds, dtype=np.int32),
    )


def job_of(web: Web, setting: Setting, bandwidth: float, typical_s: float) -> Job:
    chance = np.random.default_rng([setting.seed, 0xDE])
    tables = tuple(
        SiteTable(
            url=f"{web.site(number)}/",
            deadline=f"{max(1, round(typical_s * chance.uniform(0.4, 2.0)))} s"
            if setting.has_deadlines
            else None,
        )
        for number in range(len(web.sites))
    )
    crawl = CrawlTable(
        interval=f"{setting.interval_s:g} s",
        bandwidth=f"{max(1, round(bandwidth))} B/s",
        strategy=setting.strategy,
        timezone="UTC",
        respect_robots=False,
    )
    return build_job(JobFile(crawl=crawl, site=tables), Source("a crawl of the benchmark"))


def run(
    sites: Sequence[SiteGraph],
    setting: Setting,
    table: ForecastTable = SHIPPED,
    levels: tuple[float, float] = (WANTED, WANTED),
) -> Crawl:
    """Crawl the sites to the end, looking at the forecasts at times that do not depend on them."""
    web = web_of(sites)
    pages = [len(site.links) for site in sites]
    mean = [float(np.mean(site.sizes)) for site in sites]
    page_s = [setting.interval_s + 0.15 + size / 400_000.0 for size in mean]
    demand = sum(size / each for size, each in zip(mean, page_s, strict=True))
    bandwidth = demand * setting.bandwidth_share
    total = sum(count * size for count, size in zip(pages, mean, strict=True))
    typical_s = max(total / bandwidth, *(count * each for count, each in zip(pages, page_s, strict=True)))
    job = without_what_is_not_simulated(job_of(web, setting, bandwidth, typical_s))
    begin_at = Instant(1_000_000.0)
    servers = DriftingServers(pages, setting.seed, begin_at + 0.5 * typical_s if setting.slows else None)
    world = GraphWorld(
        web,
        servers,
        Trouble.drawn(web.pages, len(web.sites), 0),
        max_connections=256,
        keep_open_s=Seconds(5.0),
    )
    runtime = Runtime.from_job(job, VirtualClock(begin_at), world, Circumstances(links_at_once=None))
    forecaster = Forecaster(
        build_politeness(job), max_connections=job.file.crawl.max_connections, table=table
    )
    forecaster.set_levels(*levels)
    runtime.engine.forecaster = forecaster
    looks: list[Look] = []
    every_s = typical_s / LOOKS * float(np.random.default_rng([setting.seed, 0x10]).uniform(0.5, 1.5))
    due = [begin_at + 0.5 * every_s]

    def on_step(now: Instant, event: Event, commands: Sequence[Command]) -> None:
        if now >= due[0]:
            due[0] = now + every_s
            if (look := look_at(runtime.engine, now, begin_at)) is not None:
                looks.append(look)

    driver = VirtualDriver(runtime.engine, world)
    driver.on_step = on_step
    end_at = driver.run([Seeded(job.tasks(begin_at), seed_pages(web))], start_at=begin_at)
    ends = {
        site: float((state.ended_at or end_at) - begin_at)
        for site, state in runtime.engine.stats.by_site.items()
    }
    forecaster.ended(end_at)
    levels = forecaster.site_level.value, forecaster.crawl_level.value
    return Crawl(sites[0].family, setting, looks, ends, float(end_at - begin_at), levels)


def look_at(engine: Engine, now: Instant, begin_at: Instant) -> Look | None:
    crawl = engine.forecast(now)
    forecaster = engine.forecaster
    if crawl is None or forecaster is None:
        return None
    points, last = forecaster.points()
    sites, ranges, planned = {}, {}, {}
    for queue in engine.frontier.queues():
        if (forecast := forecaster.of(queue)) is not None:
            sites[queue.site] = float(points[queue.number])
            ranges[queue.site] = (forecast.end.from_at - begin_at, forecast.end.to_at - begin_at)
            end_at = None if engine.planner is None else engine.planner._outlook.end_of(queue.number)  # noqa: SLF001
            if end_at is not None and end_at > now:
                planned[queue.site] = end_at - now
    crawl_range = crawl.from_at - begin_at, crawl.to_at - begin_at
    return Look(now - begin_at, sites, last, ranges, crawl_range, planned)
