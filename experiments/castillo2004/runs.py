"""The crawls behind each figure and table."""

from __future__ import annotations

import itertools
import time

import numpy as np
from numpy.typing import NDArray

from headway.report.sim_result import SimResult
from headway.sim.judge import judge
from headway.sim.record import Record, active_robots
from headway.sim.run import run_crawl
from headway.sim.setup import Setup
from headway.sim.synthetic import SyntheticSpec, make_web
from headway.units import UNBOUNDED, BytesPerSecond

from .findings import Batch, BatchRun, OnWeb, Outcome, RankByDepth, RealCrawl, SpeedUp, Trial
from .webs import SEED, Ground, ground_of

ROBOTS = (1, 64, 256)
BANDWIDTHS = (20_000_000, 2_000_000, 200_000, 20_000, 2_000, 200)
BATCH_PAGES = 10_000
"""Figure 7: 33 h at 2 KB/s are 240 MB, which is ten thousand pages of the paper's mean size."""


def crawl(
    ground: Ground,
    strategy: str,
    *,
    robots: int = 1,
    bandwidth: float = UNBOUNDED,
    per_connection: int = 1,
) -> tuple[Record, Outcome]:
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
    return record, Outcome(result, wall_s)


def run_all(ground: Ground) -> OnWeb:
    outcomes = strategies(ground)
    robots, record = more_robots(ground, {name: outcome.result for name, outcome in outcomes.items()})
    return OnWeb(
        ground.label,
        ground.web.pages,
        np.sort(ground.web.site_sizes())[::-1].tolist(),
        outcomes,
        robots,
        speed_ups(ground),
        real_crawl(ground),
        rank_by_depth(ground),
        batch_of(ground, record) if ground.web.pages >= 10 * BATCH_PAGES else None,
    )


def strategies(ground: Ground) -> dict[str, Outcome]:
    """Figure 5: one robot, an unbounded link."""
    names = ["optimal", "length", "depth", "random"]
    names += [f"{word}({size})" for word in ("batch", "partial") for size in ground.batches]
    names.append(f"flow({ground.batches[-1]})")
    return {name: crawl(ground, name)[1] for name in names}


def more_robots(
    ground: Ground, alone: dict[str, SimResult]
) -> tuple[dict[str, dict[int, SimResult]], Record]:
    """Figure 6: Length and Depth with 1, 64 and 256 robots; and the record of Length with the most."""
    by_name: dict[str, dict[int, SimResult]] = {}
    for name in ("depth", "length"):
        by_name[name] = {1: alone[name]}
        for robots in ROBOTS[1:]:
            record, outcome = crawl(ground, name, robots=robots)
            by_name[name][robots] = outcome.result
    return by_name, record


def speed_ups(ground: Ground) -> dict[int, dict[int, SpeedUp]]:
    """Table 1, by bandwidth and robots."""
    lengths = {}
    for bandwidth, robots in itertools.product(BANDWIDTHS, ROBOTS):
        record, _ = crawl(ground, "length", robots=robots, bandwidth=bandwidth)
        lengths[bandwidth, robots] = (record.seconds, float(record.ended_at[len(record.page) // 10]))
    whole, tenth = lengths[BANDWIDTHS[0], 1]
    table: dict[int, dict[int, SpeedUp]] = {}
    for (bandwidth, robots), (whole_s, tenth_s) in lengths.items():
        table.setdefault(bandwidth, {})[robots] = SpeedUp(whole / whole_s, tenth / tenth_s)
    return table


def batch_of(ground: Ground, record: Record) -> Batch:
    """Figure 7: one batch at small and large bandwidth, with one page and a hundred pages a connection."""
    batch = middle_batch(ground, record)
    runs = []
    for bandwidth, per_connection in itertools.product((2_000, 20_000), (1, 100)):
        record, _ = crawl(batch, "length", robots=256, bandwidth=bandwidth, per_connection=per_connection)
        edges = np.linspace(0.0, record.seconds, 201)
        robots = active_robots(record, edges).tolist()
        hours = record.seconds / 3600
        runs.append(BatchRun(bandwidth, per_connection, hours, (edges / 3600).tolist(), robots))
    by_site = np.bincount(batch.web.site_of[batch.web.seeds])
    return Batch(len(batch.web.seeds), int(by_site.max()), runs)


def middle_batch(ground: Ground, record: Record) -> Ground:
    """The best pages that are known and not fetched when a crawl is half done, as a web without links."""
    web = ground.web
    is_fetched = np.zeros(web.pages, dtype=np.bool_)
    is_fetched[record.page[: len(record.page) // 2]] = True
    is_known = np.zeros(web.pages, dtype=np.bool_)
    is_known[web.targets[np.repeat(is_fetched, np.diff(web.starts))]] = True
    is_known[web.seeds] = True
    waiting = np.flatnonzero(is_known & ~is_fetched)
    best = waiting[np.argsort(-ground.ranks[waiting], kind="stable")[:BATCH_PAGES]]
    batch = web.without_links(best.astype(np.int32))
    return Ground(f"{ground.label}, a batch", batch, ground.servers, ground.ranks, ())


def real_crawl(ground: Ground) -> RealCrawl:
    """The paper's own crawl had a thousand robots."""
    record, _ = crawl(ground, "length", robots=1000)
    edges = np.linspace(0.0, record.seconds, 81)
    counts = np.searchsorted(record.ended_at, edges, side="right")
    gathered = np.concatenate(([0.0], np.cumsum(ground.ranks[record.page])))[counts]
    pages = ground.web.pages
    mean = np.diff(gathered) / np.maximum(np.diff(counts), 1) * pages
    return RealCrawl((edges / 86_400).tolist(), (counts / pages).tolist(), gathered.tolist(), mean.tolist())


def rank_by_depth(ground: Ground) -> RankByDepth:
    depth = depths(ground)
    counts = np.bincount(depth)
    sums = np.bincount(depth, weights=ground.ranks)
    mean = sums / np.maximum(counts, 1) * ground.web.pages
    return RankByDepth(mean.tolist(), counts.tolist())


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
        before = np.concatenate(([0], np.cumsum(degree[coming])))
        offsets = np.repeat(web.starts[coming] - before[:-1], degree[coming])
        found = np.unique(web.targets[offsets + np.arange(before[-1])]).astype(np.int64)
        coming = found[depth[found] < 0]
        depth[coming] = level
    return depth


def trials(pages: int = 200_000) -> list[Trial]:
    """What decides between Length and Depth: how links favour home pages and large sites."""
    found = []
    for attraction, home, upward in itertools.product((0.5, 1.0), (0.6, 0.1), (0.4, 0.0)):
        for seed in (SEED, SEED + 1):
            drawn = {"attraction": attraction, "home": home, "upward": upward, "seed": seed}
            spec = SyntheticSpec(pages=pages, sites=round(pages / 70), **drawn)
            ground = ground_of("trial", make_web(spec), ())
            areas = {name: crawl(ground, name)[1].result.pagerank_auc for name in ("length", "depth")}
            home_rank = float(ground.ranks[ground.web.seeds].mean() * pages)
            found.append(Trial(spec, areas["length"], areas["depth"], home_rank))
    return found
