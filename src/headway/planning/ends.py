"""When sites end: mean value analysis of the shared link, and ranges by the errors of earlier forecasts.

Each site has one request at a time: overhead (connection, first byte, our own turnaround, pause), then the
transfer, whose rate is that of the server or its share of the link. Sites leave the link to each other
during their overhead, which a sum of mean rates cannot see. `expected_ends` is the approximation of Bard
and Schweitzer for such closed networks, phase by phase: from now to the first end, then without that site,
and so on.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]

_MOST_PHASES = 100
"""With more sites, several end in one phase."""
_TOLERANCE = 1e-3
_MOST_ROUNDS = 40
_PHASES_AT_ONCE = 25
_SOON_S = 1e-6
_FOREVER_S = 1e12


class Workload(NamedTuple):
    """The sites that are not complete, in columns."""

    pages: Floats
    """Still to be fetched."""
    page_bytes: Floats
    overhead_s: Floats
    """Per page, without the transfer and without the pause."""
    pause_s: Floats
    """Between the pages of a site; its connection is free for others meanwhile."""
    server_bytes_per_s: Floats
    sites: Floats | float = 1.0
    """How many sites each row stands for."""


def alike(work: Workload, step: float) -> tuple[Workload, Numbers]:
    """The work with one row for all sites whose columns differ by less than about this factor, and the row of
    each site."""
    key = np.zeros(len(work.pages), dtype=np.int64)
    for column in work[:5]:
        level = np.rint(np.log(np.maximum(column, 1e-3)) / math.log(step)).astype(np.int64)
        key = key * (int(np.ptp(level)) + 1) + level - level.min()
    _, rows, sites = np.unique(key, return_inverse=True, return_counts=True)
    means = [np.bincount(rows, weights=column) / sites for column in work[:5]]
    return Workload(*means)._replace(sites=sites.astype(np.float64)), rows


def expected_ends(
    work: Workload, link: Sequence[tuple[float, float]], connections: float = math.inf
) -> Floats:
    """Seconds from now to the end of each site. `link`: the capacity in bytes per second, since when in
    seconds from now; the last one holds for ever. Sites that end never, behind a closed link, have a very
    long time."""
    steps = expected_ends_in_steps(work, link, connections)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            ends: Floats = done.value
            return ends


def expected_ends_in_steps(
    work: Workload, link: Sequence[tuple[float, float]], connections: float = math.inf
) -> Generator[None, None, Floats]:
    """As `expected_ends`, with pauses in between."""
    count, phases = len(work.pages), 0
    if isinstance(work.sites, float):
        work = work._replace(sites=np.full(count, work.sites))
    ends = np.full(count, _FOREVER_S)
    active = np.arange(count)
    left = work.pages.astype(np.float64).copy()
    busy: Floats = np.full(count, 0.5)
    at_s, step = 0.0, 0
    while len(active):
        while step + 1 < len(link) and link[step + 1][0] <= at_s + _SOON_S:
            step += 1
        until_s = link[step + 1][0] if step + 1 < len(link) else math.inf
        capacity = link[step][1]
        if capacity <= 0:
            if math.isinf(until_s):
                break
            at_s = until_s
            continue
        phases += 1
        if phases % _PHASES_AT_ONCE == 0:
            yield
        page_s, busy_now = _page_times(work, active, busy[active], capacity, connections)
        busy[active] = busy_now
        needed_s = left[active] * page_s
        batch = max(1, math.ceil(len(active) / _MOST_PHASES)) if count > _MOST_PHASES else 1
        length_s = min(float(np.partition(needed_s, batch - 1)[batch - 1]), until_s - at_s)
        over = needed_s <= length_s * (1 + 1e-9) + _SOON_S
        ends[active[over]] = at_s + needed_s[over]
        left[active] = np.maximum(0.0, left[active] - length_s / page_s)
        active = active[~over]
        at_s += length_s
    return ends


def _page_times(
    work: Workload, active: Numbers, busy: Floats, capacity: float, connections: float
) -> tuple[Floats, Floats]:
    """The time from page to page of each active site, and the part of it in which it uses the link."""
    assert not isinstance(work.sites, float)
    size, sites = work.page_bytes[active], work.sites[active]
    server = work.server_bytes_per_s[active]
    own_s, pause_s = work.overhead_s[active], work.pause_s[active]
    think_s = own_s + pause_s
    transfer_s = size / server
    if not math.isinf(capacity):
        share: Floats = np.full(len(active), capacity)
        for _ in range(_MOST_ROUNDS):
            weight = busy * np.minimum(1.0, server / share)
            share = capacity / (1.0 + np.maximum(0.0, (sites * weight).sum() - weight))
            transfer_s = size / np.minimum(server, share)
            new = (busy + transfer_s / np.maximum(think_s + transfer_s, _SOON_S)) / 2
            moved = float(np.abs(new - busy).max())
            busy = new
            if moved < _TOLERANCE:
                break
    page_s = np.maximum(think_s + transfer_s, _SOON_S)
    stretch = max(1.0, float((sites * size / page_s).sum()) / capacity)
    if math.isfinite(connections):
        stretch = max(stretch, float((sites * (own_s + transfer_s) / page_s).sum()) / connections)
    return page_s * stretch, busy


# Ranges: the forecast left, times the factors by which like forecasts were wrong (split conformal
# prediction).  Forecasts are alike if they foresee the same progress, time passed / (time passed + time
# left): the true progress cannot be seen. Draws of a simulation are no ranges: they hold 66% of the time
# where 80% is wanted.

_COLUMNS_KEPT = 64
BUCKETS = 5
"""Of foreseen progress, from 0 to 1."""
WANTED = 0.8
LEAST_LEVEL, MOST_LEVEL = 0.3, 0.98
_BY_SITE, _BY_CRAWL = 0.03, 0.05
"""By how much a level moves after a site or a crawl has ended: (WANTED - share of its forecasts that
held)."""
_FIRST_SITES = 20
"""Short sites end first, and their forecasts say little of the others."""


class EndRange(NamedTuple):
    """The forecast of an end, in seconds from a start."""

    from_s: float
    middle_s: float
    """As many ends come before as after."""
    to_s: float
    """Four of five ends lie between `from_s` and this."""
    chance: float | None = None
    """That the deadline holds; None without one."""


class ForecastTable(NamedTuple):
    """What forecasts are computed with; `forecast_table.SHIPPED` is the one that headway comes with."""

    pages: tuple[str, float, Sequence[float], Sequence[float], Sequence[Sequence[float]]]
    """The arguments of `PagesModel`."""
    probabilities: Sequence[float]
    sites: Sequence[Sequence[float]]
    """For each bucket of progress the quantiles of (true left / forecast left), at these probabilities."""
    crawls: Sequence[Sequence[float]]


def read_rows(text: str) -> list[list[float]]:
    """Rows of numbers, with a semicolon between rows."""
    return [[float(each) for each in row.split()] for row in text.split(";")]


class Factors:
    """Quantiles of (true left / forecast left) for each bucket of foreseen progress."""

    def __init__(self, probabilities: Sequence[float], rows: Sequence[Sequence[float]]) -> None:
        self._probabilities = np.array(probabilities)
        self._rows = np.array(rows)
        self._middles = (np.arange(BUCKETS) + 0.5) / BUCKETS
        self._columns: dict[float, Floats] = {}
        """By probability: the factor in each bucket."""

    def of(self, progress: Floats, probability: float) -> Floats:
        """The factor that a true time left stays below with this probability; between the buckets' middles
        it is interpolated."""
        column = self._columns.get(probability)
        if column is None:
            if len(self._columns) >= _COLUMNS_KEPT:
                self._columns.clear()
            column = np.array([np.interp(probability, self._probabilities, row) for row in self._rows])
            self._columns[probability] = column
        factor: Floats = np.interp(progress, self._middles, column)
        return factor

    def chance(self, progress: float, factor: float) -> float:
        """The probability that the true time left is at most `factor` times the forecast."""
        place = min(max(progress * BUCKETS - 0.5, 0.0), BUCKETS - 1.0)
        low = min(int(place), BUCKETS - 2)
        row = self._rows[low] + (place - low) * (self._rows[low + 1] - self._rows[low])
        return float(np.interp(factor, row, self._probabilities, left=0.0, right=1.0))


class Level:
    """How wide the ranges must be for four of five to hold; it adapts to what has held."""

    def __init__(self, value: float = WANTED) -> None:
        self.value = min(max(value, LEAST_LEVEL), MOST_LEVEL)
        self._ended = 0

    @property
    def tails(self) -> tuple[float, float]:
        return (1 - self.value) / 2, (1 + self.value) / 2

    def crawl_ended(self, held: float) -> None:
        """`held`: the share of the crawl's own forecasts in whose range its end was."""
        self._move(_BY_CRAWL, held)

    def site_ended(self, held: float) -> None:
        self._ended += 1
        if self._ended > _FIRST_SITES:
            self._move(_BY_SITE, held)

    def _move(self, step: float, held: float) -> None:
        self.value = min(max(self.value + step * (WANTED - held), LEAST_LEVEL), MOST_LEVEL)
