"""The crawls behind each figure and table."""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headway.report.sim_result import SimResult
from headway.sim.judge import judge
from headway.sim.record import Record, active_robots
from headway.sim.run import run_crawl
from headway.sim.setup import Setup
from headway.sim.synthetic import SyntheticSpec, make_web
from headway.units import UNBOUNDED, BytesPerSecond

from .webs import SEED, Ground, ground_of

Floats = NDArray[np.float64]
ROBOTS = (1, 64, 256)
BANDWIDTHS = (20_000_000, 2_000_000, 200_000, 20_000, 2_000, 200)
BATCH_PAGES = 10_000
"""Figure 7: 33 h at 2 KB/s are 240 MB, which is ten thousand pages of the paper's mean size."""


@dataclass(frozen=True)
class Timed:
    result: SimResult
    record: Record
    wall_s: float


def crawl(
    ground: Ground,
    strategy: str,
    *,
    robots: int = 1,
    bandwidth: float = UNBOUNDED,
    per_connection: int = 1,
) -> Timed:
    setup = Setup(
        strategy=strategy,
        robots=robots,
        pages_per_connection=per_connection,
        bandwidth=BytesPerSecond(bandwidth),
        seed=SEED,
    )
    begun = time.perf_counter()
    record = run_crawl(ground.web, ground.servers, setup, ranks=ground.ranks)
    wall_s = time.perf_counter() - begun
    result = judge(ground.web, ground.servers, setup, record, ground.ranks)
    print(f"  {ground.label}: {strategy}, r = {robots}, k = {per_connection}: {wall_s:.1f} s", flush=True)
    return Timed(result, record, wall_s)


def strategies(ground: Ground) -> dict[str, Timed]:
    """Figure 5: one robot, an unbounded link."""
    names = ["optimal", "length", "depth", "random"]
    names += [f"{word}({size})" for word in ("batch", "partial") for size in ground.batches]
    names.append(f"flow({ground.batches[-1]})")
    return {name: crawl(ground, name) for name in names}


def more_robots(ground: Ground, first: dict[str, Timed]) -> dict[str, dict[int, Timed]]:
    """Figure 6: Length and Depth with 1, 64 and 256 robots."""
    return {
        name: {
            robots: first[name] if robots == 1 else crawl(ground, name, robots=robots) for robots in ROBOTS
        }
        for name in ("length", "depth")
    }


@dataclass(frozen=True)
class SpeedUp:
    """Against one robot on the widest link: over the whole crawl, and over its first tenth of the pages."""

    whole: float
    first_tenth: float


def speed_ups(ground: Ground) -> dict[int, dict[int, SpeedUp]]:
    """Table 1, by bandwidth and robots."""
    lengths = {}
    for bandwidth in BANDWIDTHS:
        for robots in ROBOTS:
            record = crawl(ground, "length", robots=robots, bandwidth=bandwidth).record
            lengths[bandwidth, robots] = (record.seconds, float(record.ended_at[len(record.page) // 10]))
    whole, tenth = lengths[BANDWIDTHS[0], 1]
    return {
        bandwidth: {
            robots: SpeedUp(whole / lengths[bandwidth, robots][0], tenth / lengths[bandwidth, robots][1])
            for robots in ROBOTS
        }
        for bandwidth in BANDWIDTHS
    }


@dataclass(frozen=True)
class BatchRun:
    bandwidth: int
    per_connection: int
    hours: float
    edges_h: Floats
    robots: Floats


def middle_batch(ground: Ground, record: Record) -> Ground:
    """The best pages that are known and not fetched when a crawl is half done: one batch, without links."""
    web = ground.web
    half = len(record.page) // 2
    is_fetched = np.zeros(web.pages, dtype=np.bool_)
    is_fetched[record.page[:half]] = True
    sources = np.repeat(is_fetched, np.diff(web.starts))
    is_known = np.zeros(web.pages, dtype=np.bool_)
    is_known[web.targets[sources]] = True
    is_known[web.seeds] = True
    waiting = np.flatnonzero(is_known & ~is_fetched)
    size = min(BATCH_PAGES, len(waiting))
    best = waiting[np.argsort(-ground.ranks[waiting], kind="stable")[:size]]
    batch = web.without_links(best.astype(np.int32))
    return Ground(f"{ground.label}, a batch", batch, ground.servers, ground.ranks, ())


def batch_runs(batch: Ground, robots: int = 256) -> list[BatchRun]:
    """Figure 7: one batch at small and large bandwidth, with one page and a hundred pages a connection."""
    runs = []
    for bandwidth in (2_000, 20_000):
        for per_connection in (1, 100):
            timed = crawl(batch, "length", robots=robots, bandwidth=bandwidth, per_connection=per_connection)
            edges = np.linspace(0.0, timed.record.seconds, 201)
            runs.append(
                BatchRun(
                    bandwidth,
                    per_connection,
                    timed.record.seconds / 3600,
                    edges / 3600,
                    active_robots(timed.record, edges),
                )
            )
    return runs


@dataclass(frozen=True)
class RealCrawl:
    """Figures 8 and 9: the crawl that the paper ran, by tenths of a day."""

    days: Floats
    pages_fraction: Floats
    rank_fraction: Floats
    mean_rank: Floats
    """Of the pages fetched in each span, times the number of pages: 1 is the mean of the web."""


def real_crawl(ground: Ground, robots: int = 1000) -> RealCrawl:
    record = crawl(ground, "length", robots=robots).record
    span_s = max(record.seconds / 80, 1.0)
    edges = np.arange(0.0, record.seconds + span_s, span_s)
    counts = np.searchsorted(record.ended_at, edges, side="right")
    gathered = np.concatenate(([0.0], np.cumsum(ground.ranks[record.page])))[counts]
    pages = ground.web.pages
    fresh = np.maximum(np.diff(counts), 1)
    return RealCrawl(edges / 86_400, counts / pages, gathered, np.diff(gathered) / fresh * pages)


def rank_by_depth(ground: Ground) -> tuple[NDArray[np.int64], Floats, NDArray[np.int64]]:
    """Figure 10: depth (links from a home page), the mean rank of its pages times the number of all pages,
    and how many there are."""
    depth = depths(ground)
    levels = np.arange(int(depth.max()) + 1)
    counts = np.bincount(depth, minlength=len(levels))
    sums = np.bincount(depth, weights=ground.ranks, minlength=len(levels))
    return levels, sums / np.maximum(counts, 1) * ground.web.pages, counts


@dataclass(frozen=True)
class Trial:
    """Length and Depth with one robot on a made-up web whose links are drawn otherwise."""

    spec: SyntheticSpec
    length: float
    depth: float
    home_rank: float


def trials(pages: int = 200_000) -> list[Trial]:
    """What decides between Length and Depth: how links favour home pages and large sites."""
    found = []
    for attraction, home, upward in itertools.product((0.5, 1.0), (0.6, 0.1), (0.4, 0.0)):
        for seed in (SEED, SEED + 1):
            spec = SyntheticSpec(
                pages=pages,
                sites=round(pages / 70),
                attraction=attraction,
                home=home,
                upward=upward,
                seed=seed,
            )
            ground = ground_of("trial", make_web(spec), ())
            areas = {name: crawl(ground, name).result.pagerank_auc for name in ("length", "depth")}
            home_rank = float(ground.ranks[ground.web.seeds].mean() * pages)
            found.append(Trial(spec, areas["length"], areas["depth"], home_rank))
    return found


def depths(ground: Ground) -> NDArray[np.int64]:
    """The least number of links from any of the pages that the crawl begins with."""
    web = ground.web
    depth = np.full(web.pages, -1, dtype=np.int64)
    coming = np.asarray(web.seeds, dtype=np.int64)
    depth[coming] = 0
    degree = np.diff(web.starts)
    level = 0
    while len(coming):
        level += 1
        total = int(degree[coming].sum())
        before = np.concatenate(([0], np.cumsum(degree[coming])))[:-1]
        offsets = np.repeat(web.starts[coming] - before, degree[coming])
        found = np.unique(web.targets[offsets + np.arange(total)]) if total else np.zeros(0, dtype=np.int64)
        coming = found[depth[found] < 0].astype(np.int64)
        depth[coming] = level
    return depth
