"""The webs that the figures are rerun on: two real graphs, and one of the paper's size made from a seed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from headway.policy.pagerank import Ranks, pagerank
from headway.sim.graph import load_graph
from headway.sim.synthetic import SyntheticSpec, make_web
from headway.sim.web import Servers, Web

ROOT = Path(__file__).parents[2]
REAL_GRAPHS = (ROOT / "examples/graphs/debdoc-small", ROOT.parent / "shared/data/graphs/cnr-2000")
SEED = 2004


@dataclass(frozen=True)
class Ground:
    """A web with its servers and ranks, and the batch sizes that fit it."""

    label: str
    web: Web
    servers: Servers
    ranks: Ranks
    batches: tuple[int, ...]


def real_grounds() -> Iterator[Ground]:
    for folder in REAL_GRAPHS:
        if folder.is_dir():
            web = load_graph(folder, seed=SEED)
            # The paper's K of 10,000, 50,000 and 100,000 are 0.3, 1.4 and 2.9% of its web.
            batches = (10_000, 50_000, 100_000) if web.pages > 300_000 else (85, 250, 850)
            yield ground_of(web.name, web, batches)


def synthetic_ground(pages: int, sites: int) -> Ground:
    begun = time.perf_counter()
    web = make_web(SyntheticSpec(pages=pages, sites=sites, max_site_pages=25_000, seed=SEED))
    print(f"{web.name}: made in {time.perf_counter() - begun:.0f} s, {web.links:,} links", flush=True)
    share = pages / 3_500_000
    return ground_of("synthetic", web, tuple(max(1, round(k * share)) for k in (50_000, 100_000)))


def ground_of(label: str, web: Web, batches: tuple[int, ...]) -> Ground:
    ranks = pagerank(web.starts, web.targets, tolerance=1e-8)
    return Ground(label, web, Servers.drawn(len(web.sites), SEED), ranks, batches)
