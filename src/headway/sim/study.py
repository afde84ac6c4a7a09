"""An ordering study: its parameters, the record of a simulated crawl page by page, and its figures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from headway.errors import JobError
from headway.policy.ordering import parse_ordering
from headway.policy.ordering.ranked import Ranks
from headway.policy.politeness import Politeness
from headway.policy.timetable import Timetable
from headway.sim.web import Servers, Web
from headway.units import UNBOUNDED, BytesPerSecond, Seconds


class Setup(msgspec.Struct, frozen=True):
    """castillo2004's parameters: strategy, r robots, w seconds between connections, k pages on each."""

    strategy: str = "length"
    robots: int = 64
    interval_s: Seconds = Seconds(15.0)
    pages_per_connection: int = 1
    bandwidth: Timetable | BytesPerSecond = UNBOUNDED
    seed: int = 0
    asks_robots_txt: bool = False

    def check(self, web: Web) -> None:
        """Raise JobError for parameters that cannot be simulated on this web."""
        self.check_numbers()
        _, size = parse_ordering(self.strategy)
        if size is not None and size > web.pages:
            raise JobError(f"{self.strategy}: the web {web.name} has only {web.pages} pages")

    def check_numbers(self) -> None:
        if self.robots < 1:
            raise JobError(f"{self.robots} robots cannot fetch anything; give at least one")
        if not (self.interval_s >= 0 and math.isfinite(self.interval_s)):
            raise JobError(f"an interval of {self.interval_s} s is not valid; give zero or more seconds")
        if self.pages_per_connection < 1:
            raise JobError(f"{self.pages_per_connection} pages per connection are too few; give at least one")
        rates = [self.timetable.usual_bytes_per_s, *(e.rate_bytes_per_s for e in self.timetable.entries)]
        if not max(rates) > 0 or min(rates) < 0:
            raise JobError("the bandwidth must be above zero")

    @property
    def timetable(self) -> Timetable:
        return self.bandwidth if isinstance(self.bandwidth, Timetable) else Timetable(self.bandwidth)

    @property
    def politeness(self) -> Politeness:
        return Politeness(self.interval_s, self.pages_per_connection)


Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Record:
    """Every request, in the order of their ends."""

    page: NDArray[np.int32]
    started_at: Floats
    answered_at: Floats
    """When the first byte arrived."""
    ended_at: Floats
    wire_bytes: NDArray[np.int64]
    is_fetched: NDArray[np.bool_]

    @classmethod
    def of(cls, log: Sequence[tuple[int, float, float, float, int, bool]]) -> Record:
        page, started_at, answered_at, ended_at, wire_bytes, fetched = (
            zip(*log, strict=True) if log else [()] * 6
        )
        return cls(
            np.array(page, dtype=np.int32),
            np.array(started_at, dtype=np.float64),
            np.array(answered_at, dtype=np.float64),
            np.array(ended_at, dtype=np.float64),
            np.array(wire_bytes, dtype=np.int64),
            np.array(fetched, dtype=np.bool_),
        )

    @property
    def seconds(self) -> float:
        return float(self.ended_at[-1]) if len(self.ended_at) else 0.0

    @property
    def fetched(self) -> int:
        return int(self.is_fetched.sum())

    @property
    def total_bytes(self) -> int:
        return int(self.wire_bytes.sum())


def rank_curve(record: Record, ranks: Floats, pages: int) -> tuple[Floats, Floats, Floats]:
    """Fractions of the web's pages and of its PageRank after each page fetched, and the instants."""
    order = record.page[record.is_fetched]
    rank_so_far = np.concatenate(([0.0], np.cumsum(ranks[order])))
    at = np.concatenate(([0.0], record.ended_at[record.is_fetched]))
    return np.arange(len(order) + 1) / pages, np.minimum(rank_so_far, 1.0), at


def area_under(pages_fraction: Floats, rank_fraction: Floats) -> float:
    """The mean PageRank fraction over the pages fraction from 0 to 1: 0.5 for a random order."""
    if len(pages_fraction) < 2:
        return 0.0
    area = float(np.trapezoid(rank_fraction, pages_fraction))
    # A crawl that ends early keeps what it has.
    return area + float((1.0 - pages_fraction[-1]) * rank_fraction[-1])


def thin(columns: Sequence[Floats], most: int = 400) -> list[list[float]]:
    """Evenly spaced rows, including the first and the last: enough for a plot or a program."""
    count = len(columns[0])
    places = np.unique(np.linspace(0, count - 1, min(most, count)).astype(np.int64))
    return [[float(column[place]) for column in columns] for place in places]


def active_robots(record: Record, edges: Floats) -> Floats:
    """The mean number of connections in use in each interval between two edges."""
    weights = np.ones(len(record.started_at))
    return _mean_level(record.started_at, record.ended_at, weights, edges)


def bandwidth_used(record: Record, edges: Floats) -> Floats:
    """Mean bytes per second in each interval; a page's bytes are spread evenly over its transfer."""
    length_s = np.maximum(record.ended_at - record.answered_at, 1e-9)
    return _mean_level(record.answered_at, record.answered_at + length_s, record.wire_bytes / length_s, edges)


def mean_level(steps: Sequence[tuple[float, float]], edges: Floats) -> Floats:
    """The mean of a level in each interval between two edges; a step holds from its instant to the next
    one."""
    at = np.array([step[0] for step in steps] or [0.0])
    changes = np.diff(np.array([step[1] for step in steps] or [0.0]), prepend=0.0)
    return np.diff(_integral(at, changes, edges)) / np.diff(edges)


def _mean_level(begins: Floats, ends: Floats, heights: Floats, edges: Floats) -> Floats:
    integral = _integral(begins, heights, edges) - _integral(ends, heights, edges)
    return np.diff(integral) / np.diff(edges)


def _integral(at: Floats, heights: Floats, edges: Floats) -> Floats:
    """The integral up to each edge of a sum of steps, each rising by its height at its instant."""
    order = np.argsort(at, kind="stable")
    heights_before = np.concatenate(([0.0], np.cumsum(heights[order])))
    moments_before = np.concatenate(([0.0], np.cumsum(heights[order] * at[order])))
    places = np.searchsorted(at[order], edges, side="right")
    level: Floats = heights_before[places] * edges - moments_before[places]
    return level


Curve = list[list[float]]

ENGINE, ACCELERATOR = "engine", "accelerator"


class SiteEnd(msgspec.Struct, frozen=True, kw_only=True):
    """A site in one simulated crawl. Times are seconds since the start."""

    site: str
    deadline_s: float | None
    start_s: float | None
    """None: never requested."""
    end_s: float | None
    """None: not complete when the simulation was cut off."""
    pages: int
    wire_bytes: int

    @property
    def is_met(self) -> bool | None:
        """None without a deadline."""
        if self.deadline_s is None:
            return None
        return self.end_s is not None and self.end_s <= self.deadline_s


class SimResult(msgspec.Struct, frozen=True, kw_only=True):
    strategy: str
    web: str
    robots: int
    interval_s: float
    pages_per_connection: int
    bandwidth_bytes_per_s: float | None
    """None: unbounded; with a timetable, the usual bandwidth."""
    pages: int
    """Fetched pages; failed ones are in `failed`."""
    failed: int
    seconds: float
    wire_bytes: int
    speedup: float
    """Against one robot that waits only for answers."""
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
    simulated_by: str = ENGINE
    """"accelerator": the link is shared evenly, and there are no deadlines."""
    sites: list[SiteEnd] = []
    """Of a recorded run: how each of its sites ends."""

    @property
    def mean_bytes_per_s(self) -> float:
        return self.wire_bytes / self.seconds if self.seconds else 0.0


_SPANS = 120


def judge(
    web: Web, servers: Servers, setup: Setup, record: Record, ranks: Ranks, *, simulated_by: str = ENGINE
) -> SimResult:
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
        robots_by_time=spans(edges, active_robots(record, edges)),
        bandwidth_by_time=spans(edges, bandwidth_used(record, edges)),
        simulated_by=simulated_by,
    )


def serial_seconds(web: Web, servers: Servers, record: Record, link_bytes_per_s: float) -> float:
    """The time that one robot needs for the same requests on the same link if it never has to wait in
    between."""
    site = web.site_of[record.page]
    rate = np.minimum(servers.rate_bytes_per_s[site], link_bytes_per_s)
    seconds = servers.connect_s[site] + servers.answer_s[site] + record.wire_bytes / rate
    return float(seconds.sum())


def _pages_for(share: float, pages_fraction: Floats, rank_fraction: Floats) -> float | None:
    place = int(np.searchsorted(rank_fraction, share))
    return float(pages_fraction[place]) if place < len(pages_fraction) else None


def spans(edges: Floats, levels: Floats) -> Curve:
    """The end and the mean level of each interval between two edges."""
    return [[float(edge), float(level)] for edge, level in zip(edges[1:], levels, strict=True)]
