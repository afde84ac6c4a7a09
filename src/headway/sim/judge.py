"""From the record of a simulated crawl to the figures that it is judged by."""

from __future__ import annotations

import math

import numpy as np

from headway.policy.pagerank import Ranks
from headway.report.sim_result import Curve, SimResult
from headway.sim.record import (
    Floats,
    Record,
    active_robots,
    area_under,
    bandwidth_used,
    rank_curve,
    thin,
)
from headway.sim.setup import Setup
from headway.sim.web import Servers, Web

_SPANS = 120


def judge(web: Web, servers: Servers, setup: Setup, record: Record, ranks: Ranks) -> SimResult:
    pages_fraction, rank_fraction, at = rank_curve(record, ranks, web.pages)
    usual = float(setup.timetable.usual_bytes_per_s)
    seconds = record.seconds
    edges = np.linspace(0.0, seconds or 1.0, _SPANS + 1)
    busy_s = float((record.ended_at - record.started_at).sum())
    return SimResult(
        strategy=setup.strategy,
        web=web.name,
        robots=setup.robots,
        interval_s=float(setup.interval_s),
        pages_per_connection=setup.pages_per_connection,
        bandwidth_bytes_per_s=usual if math.isfinite(usual) else None,
        pages=record.fetched,
        failed=len(record.page) - record.fetched,
        seconds=seconds,
        wire_bytes=record.total_bytes,
        speedup=serial_seconds(web, servers, record, usual) / seconds if seconds else 0.0,
        mean_active_robots=busy_s / seconds if seconds else 0.0,
        pagerank_auc=area_under(pages_fraction, rank_fraction),
        pages_for_half_pagerank=_pages_for(0.5, pages_fraction, rank_fraction),
        pages_for_80_pagerank=_pages_for(0.8, pages_fraction, rank_fraction),
        pagerank_curve=thin([pages_fraction, rank_fraction]),
        pagerank_by_time=thin([at, rank_fraction]),
        robots_by_time=_spans(edges, active_robots(record, edges)),
        bandwidth_by_time=_spans(edges, bandwidth_used(record, edges)),
    )


def serial_seconds(web: Web, servers: Servers, record: Record, link_bytes_per_s: float) -> float:
    """What one robot needs for the same requests on the same link if it never has to wait in between."""
    site = web.site_of[record.page]
    rate = np.minimum(servers.rate_bytes_per_s[site], link_bytes_per_s)
    seconds = servers.connect_s[site] + servers.answer_s[site] + record.wire_bytes / rate
    return float(seconds.sum())


def _pages_for(share: float, pages_fraction: Floats, rank_fraction: Floats) -> float | None:
    place = int(np.searchsorted(rank_fraction, share))
    return float(pages_fraction[place]) if place < len(pages_fraction) else None


def _spans(edges: Floats, levels: Floats) -> Curve:
    return [[float(edge), float(level)] for edge, level in zip(edges[1:], levels, strict=True)]
