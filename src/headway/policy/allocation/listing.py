"""Following a list: the first site takes all it can, the next what is left, and so on down the list.

Whoever ends hands its share on down the list, so the link never idles while a site could use it and a
seat is free.
"""

from __future__ import annotations

import bisect
import heapq
import math

import numpy as np

from headway.policy.allocation.capacity import FloatArray, IntArray
from headway.policy.allocation.feasibility import Work

Row = tuple[int, float, float, float]
"""site, from_s, to_s, rate_bytes_per_s"""

CRUMB = 1e-9
"""Less than this part of the link is rounding, and not worth opening a site for."""


def rates_in_order(work: Work, order: IntArray, link_now: float) -> FloatArray:
    """What each site gets now: min(cap, what those before it leave), for the first `seats` of the list."""
    seated = order[: work.seats]
    caps = work.cap_bytes_per_s[seated]
    rates = np.zeros(len(work))
    left_over = link_now - (np.cumsum(caps) - caps)
    rates[seated] = np.where(left_over > CRUMB * link_now, np.clip(left_over, 0.0, caps), 0.0)
    return rates


def columns_in_order(work: Work, order: IntArray) -> tuple[IntArray, FloatArray, FloatArray, FloatArray]:
    """The segments of following the list to its end, in columns; quick where a site takes the whole link."""
    if work.is_uncapped and work.link.is_constant:
        ends = work.link.time_of(np.cumsum(work.left_bytes[order]))
        starts = np.concatenate(([0.0], ends[:-1]))
        return order, starts, ends, np.full(len(order), work.link.most)
    site, from_s, to_s, rate = zip(*run_in_order(work, order), strict=True)
    return np.array(site, dtype=np.int64), np.array(from_s), np.array(to_s), np.array(rate)


def ends_in_order(work: Work, order: IntArray) -> FloatArray:
    """When each site ends if the list is followed to its end."""
    ends = np.empty(len(work))
    if work.is_uncapped:
        ends[order] = work.link.time_of(np.cumsum(work.left_bytes[order]))
    else:
        for site, _, to_s, _ in run_in_order(work, order):
            ends[site] = to_s
    return ends


def run_in_order(work: Work, order: IntArray, until_s: float = math.inf) -> list[Row]:
    """The segments of following the list from now until then, each site's in order of time."""
    run = _ListRun(work, order)
    while run.step(until_s):
        pass
    return run.rows


class _ListRun:
    """Between turns of the timetable only one open site can have less than its cap, so that an end costs
    O(log n); a turn walks the open sites anew. Sites are known by their position in the list."""

    def __init__(self, work: Work, order: IntArray) -> None:
        self.rows: list[Row] = []
        self._link, self._seats = work.link, work.seats
        self._order = order.tolist()
        self._left = work.left_bytes[order].tolist()
        self._cap = work.cap_bytes_per_s[order].tolist()
        self._now_s = 0.0
        self._crumb = CRUMB * self._link.most
        self._free = self._link.at(0.0)
        self._turn_s = self._link.next_turn_s(0.0)
        self._next = 0
        self._open: dict[int, tuple[float, float]] = {}  # position -> rate, since
        self._wanting: list[int] = []  # begun with less than the cap, in order
        self._ends: list[tuple[float, int, float, float]] = []  # end, position, rate, since
        self._hand_out()

    def step(self, until_s: float) -> bool:
        """Go on to the next end or turn; False when all is done or `until_s` is reached."""
        while self._ends and self._open.get(self._ends[0][1]) != self._ends[0][2:]:
            heapq.heappop(self._ends)  # its rate has changed since
        end_s = self._ends[0][0] if self._ends else math.inf
        if min(end_s, self._turn_s) > until_s or not (
            self._ends or self._wanting or self._next < len(self._order)
        ):
            self._close_all(until_s)
            return False
        if end_s <= self._turn_s:
            self._now_s, position = end_s, heapq.heappop(self._ends)[1]
            self._free += self._set_rate(position, None)
            if position in self._wanting:
                self._wanting.remove(position)
            self._hand_out()
        else:
            self._turn()
        return True

    def _turn(self) -> None:
        self._now_s = self._turn_s
        self._turn_s = self._link.next_turn_s(self._now_s)
        self._free = self._link.at(self._now_s)
        self._wanting = sorted({*self._open, *self._wanting})
        self._close_all(self._now_s)
        self._hand_out()

    def _hand_out(self) -> None:
        """Give what is free to those that began and want more, then to the next of the list."""
        while self._free > self._crumb:
            if self._wanting:
                position = self._wanting[0]
                rate = self._open[position][0] if position in self._open else 0.0
                if not rate and len(self._open) >= self._seats:
                    return
            elif self._next < len(self._order) and len(self._open) < self._seats:
                position, rate = self._next, 0.0
                self._next += 1
                bisect.insort(self._wanting, position)
            else:
                return
            more = min(self._cap[position] - rate, self._free)
            self._free -= more
            self._set_rate(position, rate + more)
            if rate + more >= self._cap[position] - self._crumb:
                self._wanting.remove(position)

    def _set_rate(self, position: int, rate: float | None) -> float:
        """Write down what the old rate has done; None closes the site. Returns the old rate."""
        old_rate, since_s = self._open.pop(position, (0.0, self._now_s))
        if self._now_s > since_s:
            self.rows.append((self._order[position], since_s, self._now_s, old_rate))
            self._left[position] -= old_rate * (self._now_s - since_s)
        if rate is not None:
            self._open[position] = (rate, self._now_s)
            end_s = self._now_s + max(self._left[position], 0.0) / rate
            heapq.heappush(self._ends, (end_s, position, rate, self._now_s))
        return old_rate

    def _close_all(self, at_s: float) -> None:
        self._now_s = at_s
        for position in list(self._open):
            self._set_rate(position, None)
