"""The sites on which forecasts are fitted, calibrated and judged, as link graphs by family."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from headway.sim.graph import load_graph
from headway.sim.web import SyntheticSpec, Web, make_web

DATA = Path(os.environ.get("HEADWAY_DATA", Path(__file__).parents[3] / "shared" / "data"))
GRAPHS = DATA / "graphs"
_LEAST_PAGES, _MOST_PAGES = 20, 2_500


class SiteGraph(NamedTuple):
    """One site: page i links to the pages in `links[i]`; a crawl begins at `start`."""

    family: str
    name: str
    links: Sequence[Sequence[int]]
    sizes: Sequence[int]
    start: int


def graph_sites(folder: str) -> list[SiteGraph]:
    """The sites of one of the graphs in the data folder; empty if it is not there."""
    path = GRAPHS / folder
    return list(sites_of(load_graph(path), folder)) if path.is_dir() else []


def synthetic_sites(seeds: Sequence[int], pages: int = 20_000) -> list[SiteGraph]:
    """Sites of made-up webs whose shape differs from seed to seed."""
    found = []
    for seed in seeds:
        chance = np.random.default_rng([seed, 0x51])
        spec = SyntheticSpec(
            pages=pages,
            sites=pages // 150,
            max_site_pages=_MOST_PAGES,
            links=float(chance.uniform(3, 25)),
            locality=0.98,
            upward=float(chance.uniform(0.1, 0.8)),
            seed=seed,
        )
        found += sites_of(make_web(spec), f"synthetic-{seed}")
    return found


def sites_of(web: Web, family: str) -> Iterator[SiteGraph]:
    """The sites of a web with a useful number of pages, each from a page that reaches most of it."""
    order = np.argsort(web.site_of, kind="stable")
    bounds = np.searchsorted(web.site_of[order], np.arange(len(web.sites) + 1))
    seeds = set(web.seeds.tolist())
    for site, name in enumerate(web.sites):
        members = order[bounds[site] : bounds[site + 1]]
        if not _LEAST_PAGES <= len(members) <= _MOST_PAGES:
            continue
        number = {int(page): place for place, page in enumerate(members)}
        links = [[number[to] for to in web.links_of(int(page)) if to in number] for page in members]
        starts = [number[page] for page in number if page in seeds] or [0]
        start = max(starts[:8], key=lambda place: len(_reached(links, place)))
        reached = sorted(_reached(links, start))
        if len(reached) < _LEAST_PAGES:
            continue
        place_of = {old: new for new, old in enumerate(reached)}
        yield SiteGraph(
            family,
            name,
            [[place_of[to] for to in links[old] if to in place_of] for old in reached],
            [int(web.size_bytes[members[old]]) for old in reached],
            place_of[start],
        )


def _reached(links: Sequence[Sequence[int]], start: int) -> set[int]:
    seen, line = {start}, [start]
    for page in line:
        for to in links[page]:
            if to not in seen:
                seen.add(to)
                line.append(to)
    return seen
