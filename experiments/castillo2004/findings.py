"""What the crawls gave, as values that are kept: figures and verdicts can be made again without crawling."""

from __future__ import annotations

import msgspec

from headway.sim.study import SimResult
from headway.sim.web import SyntheticSpec


class Outcome(msgspec.Struct, frozen=True):
    result: SimResult
    wall_s: float
    """What the simulation took: nearly all of it is computing the order."""


class Lengths(msgspec.Struct, frozen=True):
    """How long a crawl took, and how long its first tenth of the pages."""

    whole_s: float
    tenth_s: float


class SpeedUp(msgspec.Struct, frozen=True):
    """Against one robot on the widest link: over the whole crawl, and over its first tenth of the pages."""

    whole: float
    first_tenth: float


class BatchRun(msgspec.Struct, frozen=True):
    bandwidth: int
    per_connection: int
    hours: float
    edges_h: list[float]
    robots: list[float]


class Batch(msgspec.Struct, frozen=True):
    pages: int
    largest_site: int
    runs: list[BatchRun]

    def run(self, bandwidth: int, per_connection: int) -> BatchRun:
        return next(r for r in self.runs if (r.bandwidth, r.per_connection) == (bandwidth, per_connection))


class RealCrawl(msgspec.Struct, frozen=True):
    """Figures 8 and 9: the crawl that the paper ran, at eighty instants."""

    days: list[float]
    pages_fraction: list[float]
    rank_fraction: list[float]
    mean_rank: list[float]
    """Of the pages fetched in each span, times the number of pages: 1 is the mean of the web."""


class RankByDepth(msgspec.Struct, frozen=True):
    """Figure 10. Depth is the number of links from a home page; 1 is the mean rank of the web."""

    mean_rank: list[float]
    pages: list[int]


class Shape(msgspec.Struct, frozen=True):
    """What is known of a web without crawling it."""

    site_sizes: list[int]
    depth: RankByDepth


class OnWeb(msgspec.Struct, frozen=True):
    label: str
    pages: int
    site_sizes: list[int]
    """Largest first."""
    strategies: dict[str, Outcome]
    left_out: list[str]
    """Strategies and figures for which there was no time."""
    robots: dict[str, dict[int, SimResult]] | None
    speed_ups: dict[int, dict[int, SpeedUp]] | None
    real: RealCrawl | None
    depth: RankByDepth
    batch: Batch | None


class Trial(msgspec.Struct, frozen=True):
    """Length and Depth with one robot on a made-up web whose links are drawn otherwise."""

    spec: SyntheticSpec
    length: float
    depth: float
    home_rank: float


class Findings(msgspec.Struct, frozen=True):
    webs: list[OnWeb]
    trials: list[Trial]
