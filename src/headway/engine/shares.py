"""What a plan leaves behind: the rates of the sites, handed on as sites end, and forecasts of their ends."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np

from headway.engine.demands import (
    CAP,
    DUE_AT,
    EXPECTED,
    FAST_CAP,
    IS_CAPPED,
    IS_KNOWN,
    LEFT,
    LOW,
    RUDE_CAP,
    TOLD_DUE_AT,
    DemandTable,
    mean_page_bytes,
)
from headway.engine.stats import SiteStats
from headway.model.command import DeadlineForecast, Limit
from headway.planning.allocator import least_bandwidth
from headway.planning.priority_lists import CRUMB
from headway.planning.problem import USABLE, BoolArray, FloatArray, IntArray
from headway.units import BytesPerSecond, Instant

_CONFIRMATIONS = 3
"""A site that was reported as late is reported as on time when so many plans in a row say so."""
_TIME_TO_ACT = 0.5
"""When this part of the time to a deadline is left, an estimate is good enough to be reported: a warning that
comes later helps less."""


class Shares:
    """The rates of the last plan by row, and the order in which the next sites get what is handed on."""

    def __init__(self) -> None:
        self.rates: dict[int, float] = {}
        self.has_order = False
        self._order: IntArray = np.zeros(0, dtype=np.int64)
        self._later: list[int] = []
        """Rows that come after all of `_order`."""
        self._place: IntArray = np.zeros(0, dtype=np.int64)
        """By row, its place in the order; -1 for none."""
        self._next = 0
        self._spare = 0.0
        self._crumb = 0.0
        self._seats = math.inf

    def set(
        self,
        rates: dict[int, float],
        order: IntArray | None = None,
        link_bytes_per_s: float = 0.0,
        seats: int | None = None,
    ) -> None:
        """Take the rates of a plan. `order`: the rows in the order in which they are served; None: what a
        site leaves is not handed on before the next plan. `seats`: how many sites may be served at once."""
        self.rates = rates
        self._seats = math.inf if seats is None else seats
        self.has_order = order is not None
        # All sites before the last one that is served have all that they can take.
        self._next = 0 if order is None else max(len(rates) - 1, 0)
        self._order = np.zeros(0, dtype=np.int64) if order is None else order[self._next :]
        self._later = []
        self._place = np.full(int(self._order.max(initial=-1)) + 1, -1, dtype=np.int64)
        self._place[self._order] = np.arange(len(self._order))
        self._next = 0
        self._spare = link_bytes_per_s - math.fsum(rates.values())
        self._crumb = CRUMB * link_bytes_per_s

    def next_rows(self, count: int, table: DemandTable, is_late: Callable[[int], bool]) -> list[int]:
        """The first sites of the plan that have no rate, of those whose deadlines are kept."""
        rows = (*self._order.tolist(), *self._later)
        others = (row for row in rows if row not in self.rates and table.is_wanting(row))
        kept = (row for row in others if math.isfinite(table.value(DUE_AT, row)) and not is_late(row))
        return list(islice(kept, count))

    def open_rows(self, table: DemandTable) -> frozenset[int]:
        """The sites that are open if only so many may be: those with a rate, then the next of the plan. While
        a site with the whole link is asked for its next page, the others use the link."""
        known = len(self._order)
        opened = list(self.rates)
        for place in range(self._next, known + len(self._later)):
            if len(opened) >= self._seats:
                break
            row = int(self._order[place]) if place < known else self._later[place - known]
            if row not in self.rates and table.is_wanting(row):
                opened.append(row)
        return frozenset(opened)

    def hand_on(self, changed: Sequence[int], table: DemandTable) -> None:
        """Give the shares of sites that have ended to the next ones of the plan, and then to new sites. The
        cost is that of the sites that have changed."""
        for row in changed:
            if row in self.rates:
                if not table.is_wanting(row):
                    self._spare += self.rates.pop(row)
            elif table.is_wanting(row) and self._place_of(row) < self._next:
                self._put_last(row)
        known = len(self._order)
        while self._spare > self._crumb and self._next < known + len(self._later):
            row = int(self._order[self._next]) if self._next < known else self._later[self._next - known]
            if table.is_wanting(row):
                if row not in self.rates and len(self.rates) >= self._seats:
                    return
                cap, rate = table.value(CAP, row), self.rates.get(row, 0.0)
                more = min(cap - rate, self._spare)
                if more > 0:
                    self.rates[row] = rate + more
                    self._spare -= more
                if rate + more < cap - self._crumb:
                    return
            self._next += 1

    def _place_of(self, row: int) -> int:
        return int(self._place[row]) if row < len(self._place) else -1

    def _put_last(self, row: int) -> None:
        if row >= len(self._place):
            more = max(row + 1, len(self._place) * 5 // 4) - len(self._place)
            self._place = np.concatenate((self._place, np.full(more, -1, dtype=np.int64)))
        self._place[row] = len(self._order) + len(self._later)
        self._later.append(row)


class Arrived:
    """How much of the pages in flight has arrived, by the rates of their sites: the engine sees a page only
    when it is complete, and one large page can be a good part of what is left of a site."""

    _MOST_OF_LEFT = 0.9

    def __init__(self) -> None:
        self._by_row: dict[int, tuple[Instant, float]] = {}
        self._at = Instant(0.0)

    def advance(self, now: Instant, rates: dict[int, float], stats_of: Callable[[int], SiteStats]) -> None:
        """Take in what the sites with a rate have received since the last call."""
        before, since, self._by_row = self._by_row, self._at, {}
        for row, rate in rates.items():
            site_stats = stats_of(row)
            if not site_stats.in_flight:
                continue
            asked_at, arrived = before.get(row, (site_stats.asked_at, 0.0))
            if asked_at != site_stats.asked_at:
                arrived = 0.0
            arrived += rate * max(0.0, now - max(since, site_stats.asked_at))
            # If the size of the site is an estimate by its pages, a page counts as an average one.
            is_given = site_stats.task.expected_bytes is not None
            most = math.inf if is_given else mean_page_bytes(site_stats)
            self._by_row[row] = (site_stats.asked_at, min(arrived, most))
        self._at = now

    def less(self, rows: IntArray, left_bytes: FloatArray) -> FloatArray:
        """What is left of these rows without what has arrived of their pages in flight."""
        if not self._by_row:
            return left_bytes
        arrived = np.zeros(int(rows.max(initial=0)) + 1)
        for row, (_, count) in self._by_row.items():
            if row < len(arrived):
                arrived[row] = count
        return np.maximum(left_bytes - arrived[rows], (1 - self._MOST_OF_LEFT) * left_bytes)


class Advice(NamedTuple):
    """On a site that will be late."""

    needed_bytes_per_s: BytesPerSecond | None
    """The bandwidth that would meet its deadline and all others that can be met; None if none would."""
    limited_by: Limit


def advice_on(
    now: Instant, late_rows: Sequence[int], table: DemandTable, seats: int | None
) -> Sequence[Advice]:
    """For each late site: what limits it, and the bandwidth that would help. Sites are limited as they would
    be on a faster link."""
    if not late_rows:
        return ()
    rows = table.wanting_rows()
    left, expected = table.column(LEFT, rows), table.column(EXPECTED, rows)
    caps, due_s = table.column(FAST_CAP, rows), table.column(DUE_AT, rows) - now
    beyond = expected / caps > due_s
    within = ~beyond & np.isfinite(due_s)
    # With a margin for the sizes, if the sites can be that fast.
    least = least_bandwidth(left[within], caps[within], due_s[within], seats)
    if least is None:
        least = least_bandwidth(expected[within], caps[within], due_s[within], seats)
    needed = None if least is None else BytesPerSecond(least / USABLE)
    is_beyond = dict(zip(rows.tolist(), beyond.tolist(), strict=True))
    advice = []
    for row in late_rows:
        if not is_beyond[row]:
            advice.append(Advice(needed, Limit.BANDWIDTH))
            continue
        if table.value(IS_CAPPED, row):
            advice.append(Advice(None, Limit.CAP))
            continue
        without_pauses_s = table.value(EXPECTED, row) / table.value(RUDE_CAP, row)
        is_polite = without_pauses_s <= table.value(DUE_AT, row) - now
        advice.append(Advice(None, Limit.INTERVAL if is_polite else Limit.SERVER))
    return advice


Advise = Callable[[Instant, Sequence[int]], Sequence[Advice]]


class Outlook:
    """When each site will end by the last plan, and which deadlines are reported as missed, in columns."""

    def __init__(self) -> None:
        self._ends_at: FloatArray = np.zeros(0)
        self._plans_late: BoolArray = np.zeros(0, dtype=bool)
        """Late by the last plan."""
        self._is_late: BoolArray = np.zeros(0, dtype=bool)
        """Reported as late."""
        self._unconfirmed: IntArray = np.zeros(0, dtype=np.int64)
        """In how many plans in a row the forecast was another than the reported one."""
        self._since: FloatArray = np.zeros(0)
        """When each site was in a plan for the first time."""

    def foresee(self, now: Instant, rows: IntArray, ends_at: FloatArray, late: BoolArray) -> None:
        """Take the ends of a plan, and which sites are late by it. Sites that are not in it have no end."""
        size = int(rows.max(initial=-1)) + 1
        if size > len(self._is_late):
            more = max(size, 2 * len(self._is_late)) - len(self._is_late)
            self._is_late = np.concatenate((self._is_late, np.zeros(more, dtype=bool)))
            self._unconfirmed = np.concatenate((self._unconfirmed, np.zeros(more, dtype=np.int64)))
            self._since = np.concatenate((self._since, np.full(more, now)))
        self._ends_at = np.full(len(self._is_late), math.nan)
        self._ends_at[rows] = ends_at
        self._plans_late = np.zeros(len(self._is_late), dtype=bool)
        self._plans_late[rows] = late

    def is_late(self, row: int) -> bool:
        """Whether the last plan gives the deadline of a site up."""
        return row < len(self._plans_late) and bool(self._plans_late[row])

    def end_of(self, row: int) -> Instant | None:
        end_at = float(self._ends_at[row]) if row < len(self._ends_at) else math.nan
        return None if math.isnan(end_at) else Instant(end_at)

    def changed(
        self, now: Instant, rows: IntArray, table: DemandTable, advise: Advise
    ) -> list[DeadlineForecast]:
        """The forecasts that differ from the reported ones, for deadlines that are still to come.

        If the size of a site is known, its deadline is reported in the moment in which the plan gives it up;
        if it is estimated, when half of the time to the deadline has passed.
        """
        due_at = table.column(DUE_AT, rows)
        to_come = np.isfinite(due_at) & (due_at > now)
        reported, late = self._is_late[rows], self._plans_late[rows]
        # A complete site has no forecast.
        kept_late, kept_unconfirmed = self._is_late, self._unconfirmed
        self._is_late, self._unconfirmed = np.zeros_like(kept_late), np.zeros_like(kept_unconfirmed)
        unconfirmed = np.where(late != reported, kept_unconfirmed[rows] + 1, 0)
        since = self._since[rows]
        # A site that has too little time even for the pages that are known of it needs no estimate.
        is_known = (table.column(IS_KNOWN, rows) > 0) | (
            now + table.column(LOW, rows) / table.column(FAST_CAP, rows) > due_at
        )
        is_known |= due_at - now <= _TIME_TO_ACT * (due_at - since)
        confirmed = to_come & np.where(late, is_known & ~reported, unconfirmed >= _CONFIRMATIONS)
        self._unconfirmed[rows] = np.where(confirmed, 0, unconfirmed)
        self._is_late[rows] = reported ^ confirmed
        places = np.flatnonzero(confirmed)
        told_at = table.column(TOLD_DUE_AT, rows)
        news = [(int(rows[place]), float(told_at[place]), bool(late[place])) for place in places.tolist()]
        advice = iter(advise(now, [row for row, _, is_late in news if is_late]))
        forecasts = []
        for row, due, is_late in news:
            needed, limit = next(advice) if is_late else Advice(None, Limit.NONE)
            end_at = self.end_of(row) or now
            forecasts.append(
                DeadlineForecast(
                    table.site(row),
                    Instant(due),
                    max(end_at, Instant(due)) if is_late else end_at,
                    is_late,
                    needed,
                    limit,
                )
            )
        return sorted(forecasts, key=lambda forecast: forecast.site)
