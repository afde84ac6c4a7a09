"""The webs that the figures are rerun on: two real graphs, and one of the paper's size made from a seed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from headway.policy.ordering.ranked import Ranks, pagerank
from headway.sim.graph import load_graph
from headway.sim.web import Servers, SyntheticSpec, Web, make_web

ROOT = Path(__file__).parents[2]
SMALL, LARGE = ROOT / "examples/graphs/debdoc-small", ROOT.parent / "shared/data/graphs/cnr-2000"
SEED = 2004
# The paper's K of 10,000, 50,000 and 100,000 are 0.3, 1.4 and 2.9% of its web.
SMALL_BATCHES, PAPER_BATCHES = (85, 250, 850), (10_000, 50_000, 100_000)


@dataclass(frozen=True)
class Ground:
    """A web with its servers and ranks, made when they are first asked for, and batch sizes that fit it."""

    label: str
    make: Callable[[], Web]
    batches: tuple[int, ...] = ()

    @cached_property
    def web(self) -> Web:
        begun = time.perf_counter()
        web = self.make()
        took_s = time.perf_counter() - begun
        print(f"{web.name}: {web.pages:,} pages, {web.links:,} links, in {took_s:.0f} s", flush=True)
        return web

    @cached_property
    def servers(self) -> Servers:
        return Servers.drawn(len(self.web.sites), SEED)

    @cached_property
    def ranks(self) -> Ranks:
        return pagerank(self.web.starts, self.web.targets, tolerance=1e-8)


def real_grounds() -> list[Ground]:
    both = ((SMALL, SMALL_BATCHES), (LARGE, PAPER_BATCHES))
    return [
        Ground(folder.name, lambda folder=folder: load_graph(folder, seed=SEED), batches)  # type: ignore[misc]
        for folder, batches in both
        if folder.is_dir()
    ]


def synthetic_ground(pages: int) -> Ground:
    spec = SyntheticSpec(pages=pages, sites=max(1, round(pages / 70)), max_site_pages=25_000, seed=SEED)
    share = pages / 3_500_000
    return Ground(
        "synthetic",
        lambda: make_web(spec),
        tuple(max(1, round(size * share)) for size in PAPER_BATCHES[1:]),
    )
