"""What a simulated crawl did, page by page, and the curves that castillo2004 judges a strategy by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Record:
    """Every request, in the order in which they ended."""

    page: NDArray[np.int32]
    started_at: Floats
    answered_at: Floats
    """When the first byte came."""
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
    """Rows at even spacing, the first and the last included: what a plot or a program wants of a curve."""
    count = len(columns[0])
    places = np.unique(np.linspace(0, count - 1, min(most, count)).astype(np.int64))
    return [[float(column[place]) for column in columns] for place in places]


def active_robots(record: Record, edges: Floats) -> Floats:
    """The mean number of connections under way in each span between two edges."""
    weights = np.ones(len(record.started_at))
    return _mean_level(record.started_at, record.ended_at, weights, edges)


def bandwidth_used(record: Record, edges: Floats) -> Floats:
    """Mean bytes per second in each span, a page's bytes being spread evenly over its transfer."""
    length_s = np.maximum(record.ended_at - record.answered_at, 1e-9)
    return _mean_level(record.answered_at, record.answered_at + length_s, record.wire_bytes / length_s, edges)


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
