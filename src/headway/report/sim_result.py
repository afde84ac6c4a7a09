"""What is told of one simulated crawl: its figures and curves, as JSON, table and plot read them."""

from __future__ import annotations

import msgspec

Curve = list[list[float]]


class SimResult(msgspec.Struct, frozen=True, kw_only=True):
    strategy: str
    web: str
    robots: int
    interval_s: float
    pages_per_connection: int
    bandwidth_bytes_per_s: float | None
    """None: unbounded; with a timetable, what usually holds."""
    pages: int
    """Fetched; those that failed are in `failed`."""
    failed: int
    seconds: float
    wire_bytes: int
    speedup: float
    """Against one robot that never waits for anything but the answers."""
    mean_active_robots: float
    pagerank_auc: float
    """The mean fraction of the PageRank over the fraction of the pages: one half for a random order."""
    pages_for_half_pagerank: float | None
    """The fraction of the pages that has half of the PageRank; None if the crawl did not get that far."""
    pages_for_80_pagerank: float | None
    pagerank_curve: Curve
    """[fraction of the pages, fraction of the PageRank]"""
    pagerank_by_time: Curve
    """[seconds, fraction of the PageRank]"""
    robots_by_time: Curve
    """[seconds, mean robots active since the row before]"""
    bandwidth_by_time: Curve
    """[seconds, mean bytes per second since the row before]"""

    @property
    def mean_bytes_per_s(self) -> float:
        return self.wire_bytes / self.seconds if self.seconds else 0.0
