"""The crawls behind each figure and table."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from headway.runtime.simulation import run_crawl
from headway.sim.study import Record, Setup, SimResult, active_robots, judge
from headway.sim.web import SyntheticSpec, make_web
from headway.units import UNBOUNDED, BytesPerSecond

from .findings import (
    Batch,
    BatchRun,
    Lengths,
    OnWeb,
    Outcome,
    RankByDepth,
    RealCrawl,
    Shape,
    SpeedUp,
    Trial,
)
from .kept import Keeper, OutOfTimeError
from .webs import SEED, Ground

T = TypeVar("T")
PLAIN = ("optimal", "length", "depth", "random")
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


def run_all(ground: Ground, keeper: Keeper) -> OnWeb:
    """Each crawl is kept by itself; only those that are not there yet are made."""
    kept = Crawls(ground, keeper)
    shape = keeper.get(kept.name("shape"), Shape, lambda: shape_of(ground))
    plain = {name: kept.outcome(name) for name in PLAIN}
    alone = {name: outcome.result for name, outcome in plain.items()}
    is_large = sum(shape.site_sizes) >= 10 * BATCH_PAGES
    robots = kept.wish("figure 6", lambda: kept.more_robots(alone))
    real = kept.wish("figures 8 and 9", kept.real_crawl)
    batch = kept.wish("figure 7", kept.batch) if is_large else None
    speed_ups = kept.wish("table 1", kept.speed_ups)
    # Those that rank the web again and again come last: they take by far the longest.
    learning = kept.learning()
    return OnWeb(
        ground.label,
        sum(shape.site_sizes),
        shape.site_sizes,
        plain | learning,
        kept.left_out,
        robots,
        speed_ups,
        real,
        shape.depth,
        batch,
    )


class Crawls:
    def __init__(self, ground: Ground, keeper: Keeper) -> None:
        self._ground = ground
        self._keeper = keeper
        self.left_out: list[str] = []

    def wish(self, what: str, make: Callable[[], T]) -> T | None:
        """As far as time allows; what it does not allow is named."""
        try:
            return make()
        except OutOfTimeError:
            self.left_out.append(what)
            return None

    def name(self, what: str) -> str:
        return f"{self._ground.label}-{what}"

    def outcome(self, strategy: str, robots: int = 1) -> Outcome:
        name = self.name(f"{strategy}-r{robots}")
        return self._keeper.get(name, Outcome, lambda: crawl(self._ground, strategy, robots=robots)[1])

    def learning(self) -> dict[str, Outcome]:
        """Figure 5: one robot, an unbounded link. One size of each is a must; more, as far as time allows."""
        batches = self._ground.batches
        musts = [f"{word}({batches[0]})" for word in ("batch", "partial")]
        wishes = [f"{word}({size})" for size in batches[1:] for word in ("batch", "partial")]
        outcomes = {name: self.outcome(name) for name in musts}
        for name in [*wishes, f"flow({batches[-1]})"]:
            outcome = self.wish(name, lambda name=name: self.outcome(name))  # type: ignore[misc]
            if outcome is not None:
                outcomes[name] = outcome
        return outcomes

    def real_crawl(self) -> RealCrawl:
        return self._keeper.get(self.name("real-crawl"), RealCrawl, lambda: real_crawl(self._ground))

    def more_robots(self, alone: dict[str, SimResult]) -> dict[str, dict[int, SimResult]]:
        """Figure 6: Length and Depth with 1, 64 and 256 robots."""
        return {
            name: {1: alone[name], **{robots: self.outcome(name, robots).result for robots in ROBOTS[1:]}}
            for name in ("depth", "length")
        }

    def speed_ups(self) -> dict[int, dict[int, SpeedUp]]:
        """Table 1, by bandwidth and robots."""
        lengths = {both: self._lengths(*both) for both in itertools.product(BANDWIDTHS, ROBOTS)}
        first = lengths[BANDWIDTHS[0], 1]
        table: dict[int, dict[int, SpeedUp]] = {}
        for (bandwidth, robots), mine in lengths.items():
            speed_up = SpeedUp(first.whole_s / mine.whole_s, first.tenth_s / mine.tenth_s)
            table.setdefault(bandwidth, {})[robots] = speed_up
        return table

    def _lengths(self, bandwidth: int, robots: int) -> Lengths:
        def measured() -> Lengths:
            record, _ = crawl(self._ground, "length", robots=robots, bandwidth=bandwidth)
            return Lengths(record.seconds, float(record.ended_at[len(record.page) // 10]))

        return self._keeper.get(self.name(f"length-r{robots}-{bandwidth}"), Lengths, measured)

    def batch(self) -> Batch:
        return self._keeper.get(self.name("batch"), Batch, lambda: batch_of(self._ground))


def shape_of(ground: Ground) -> Shape:
    sizes = np.sort(ground.web.site_sizes())[::-1]
    return Shape(sizes.tolist(), rank_by_depth(ground))


def batch_of(ground: Ground) -> Batch:
    """Figure 7: one batch at small and large bandwidth, with one page and a hundred pages a connection."""
    record, _ = crawl(ground, "length", robots=256)
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
    return Ground(f"{ground.label}, a batch", lambda: batch)


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


def trials(keeper: Keeper, pages: int = 200_000) -> list[Trial]:
    """What decides between Length and Depth: how links favour home pages and large sites."""
    found = []
    for attraction, home, upward in itertools.product((0.5, 1.0), (0.6, 0.1), (0.4, 0.0)):
        for seed in (SEED, SEED + 1):
            drawn = {"attraction": attraction, "home": home, "upward": upward, "seed": seed}
            spec = SyntheticSpec(pages=pages, sites=round(pages / 70), **drawn)
            name = f"trial-{attraction}-{home}-{upward}-{seed}"
            found.append(keeper.get(name, Trial, lambda spec=spec: trial(spec)))  # type: ignore[misc]
    return found


def trial(spec: SyntheticSpec) -> Trial:
    ground = Ground("trial", lambda: make_web(spec))
    areas = {name: crawl(ground, name)[1].result.pagerank_auc for name in ("length", "depth")}
    home_rank = float(ground.ranks[ground.web.seeds].mean() * spec.pages)
    return Trial(spec, areas["length"], areas["depth"], home_rank)
