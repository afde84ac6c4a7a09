"""The web of an earlier run, as far as it was fetched: what would another strategy or bandwidth have done?

Pages whose way is not recorded (a sitemap, a link on a page of an earlier crawl) are there from the start.
Each site's latency and rate are fitted to the answers of the run; a bound that held then counts into them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headway.errors import HeadwayError
from headway.model.page import PageKey, Site
from headway.policy.pagerank import pagerank
from headway.sim.web import Numbers, Servers, Web
from headway.store import rows, schema
from headway.store.failures import clear_errors
from headway.store.reader import database_of

_ANSWERED = """
    SELECT site.site, page.key, page.path, page.wire_bytes, page.duration_s, page.links
    FROM page JOIN site ON site.id = page.site_id
    WHERE page.state = 'done' OR page.status > 0 ORDER BY page.id"""
_FEW = 8
_FASTEST_BYTES_PER_S = 1e9


def web_of_run(path: Path, *, seed: int = 0) -> tuple[Web, Servers]:
    last = _last_answers(path)
    starts, targets = _links(last)
    sites = list(dict.fromkeys(site for site, _ in last))
    site_number = {site: place for place, site in enumerate(sites)}
    site_of = np.array([site_number[site] for site, _ in last], dtype=np.int32)
    sizes = np.array([answer.wire_bytes for answer in last.values()], dtype=np.int64)
    lengths_s = np.array([answer.duration_s for answer in last.values()], dtype=np.float64)
    web = Web(
        f"{path.resolve().name} (recorded)",
        starts,
        targets,
        site_of,
        np.maximum(sizes, 1),
        sites,
        _beginnings(starts, targets),
        [rows.url_of(answer.path, site) for (site, _), answer in last.items()],
    )
    return web, fit_servers(site_of, sizes, lengths_s, len(sites), seed)


def ranks_of_run(path: Path) -> dict[PageKey, float]:
    """The PageRank of every page that a run fetched: for its report, and for the ordering "optimal"."""
    last = _last_answers(path)
    ranks = pagerank(*_links(last)).tolist()
    return {key: rank for (_, key), rank in zip(last, ranks, strict=True)}


class _Answer(NamedTuple):
    path: str
    wire_bytes: int
    duration_s: float
    links: bytes | None


def _last_answers(path: Path) -> dict[tuple[Site, PageKey], _Answer]:
    """A page that was asked for again counts as it was the last time."""
    database = database_of(path)
    connection = schema.open_for_reading(database)
    try:
        with clear_errors(database):
            last = {(site, key): _Answer(*row) for site, key, *row in connection.execute(_ANSWERED)}
    finally:
        connection.close()
    if not last:
        raise HeadwayError(f"{path}: the run has fetched nothing yet, so there is no web in it")
    return last


def _links(last: dict[tuple[Site, PageKey], _Answer]) -> tuple[NDArray[np.int64], Numbers]:
    """The links among the pages, in rows; one to itself does not count."""
    number = {key: place for place, (_, key) in enumerate(last)}
    links = []
    for own, answer in enumerate(last.values()):
        keys = np.frombuffer(answer.links, dtype="<i8").tolist() if answer.links else []
        links.append(sorted({number[key] for key in keys if key in number} - {own}))
    starts = np.zeros(len(last) + 1, dtype=np.int64)
    np.cumsum([len(row) for row in links], out=starts[1:])
    return starts, np.array([target for row in links for target in row], dtype=np.int32)


def fit_servers(
    site_of: Numbers,
    sizes: NDArray[np.int64],
    lengths_s: NDArray[np.float64],
    count: int,
    seed: int,
) -> Servers:
    """Length = latency + size / rate, by least squares where a site has pages enough to tell."""
    usual = Servers.drawn(count, seed)
    latency_s = usual.connect_s + usual.answer_s
    rate = usual.rate_bytes_per_s.copy()
    for site in range(count):
        mine = site_of == site
        size, length_s = sizes[mine].astype(np.float64), lengths_s[mine]
        if not size.sum() or not length_s.sum():
            continue
        rate[site] = size.sum() / length_s.sum()
        latency_s[site] = float(np.median(length_s)) / 2
        spread = size.var()
        slope = (
            float(np.cov(size, length_s, bias=True)[0, 1] / spread) if len(size) >= _FEW and spread else 0.0
        )
        if slope > 0:
            rate[site] = 1.0 / slope
            latency_s[site] = max(0.0, float(length_s.mean() - slope * size.mean()))
    rate = np.clip(rate, 1.0, _FASTEST_BYTES_PER_S)
    return Servers(latency_s / 2, latency_s / 2, rate)


def _beginnings(starts: NDArray[np.int64], targets: Numbers) -> Numbers:
    """The least of the pages, in the order of the run, from which all are reached."""
    reached = np.zeros(len(starts) - 1, dtype=np.bool_)
    seeds: list[int] = []
    for page in range(len(reached)):
        if reached[page]:
            continue
        seeds.append(page)
        coming: Sequence[int] = [page]
        reached[page] = True
        while coming:
            rows_of = [targets[starts[one] : starts[one + 1]] for one in coming]
            found = np.unique(np.concatenate(rows_of))
            coming = found[~reached[found]].tolist()
            reached[found] = True
    return np.array(seeds, dtype=np.int32)
