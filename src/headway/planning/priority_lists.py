"""Allocation by priority list: the first site gets its cap, the next what is left, and so on down the list.

When a site ends, its share passes down the list, so the link is never idle while a site could use it and a
seat is free (a seat allows one open site).

A list is followed as long as no guarded deadline is lost. A site without laxity goes first. When the
mandatory work by some instant fills the link until then, the sites with a part in it go before all others.
Such sets are nested, because a site has mandatory work by tau exactly if its latest start is before tau; so
serving the first set serves the later ones too.
"""

from __future__ import annotations

import bisect
import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from headway.planning.feasibility import TOLERANCE, Work, critical_instants, room_bytes
from headway.planning.problem import BoolArray, FloatArray, IntArray

Row = tuple[int, float, float, float]
"""site, from_s, to_s, rate_bytes_per_s"""

CRUMB = 1e-9
"""A smaller fraction of the link is rounding, and no site is opened for it."""


def rates_in_order(work: Work, order: IntArray, link_now: float) -> FloatArray:
    """The rate of each site now: min(cap, what the sites before it leave), for the first `seats` of the
    list."""
    seated = order[: work.seats]
    caps = work.cap_bytes_per_s[seated]
    rates = np.zeros(len(work))
    left_over = link_now - (np.cumsum(caps) - caps)
    rates[seated] = np.where(left_over > CRUMB * link_now, np.clip(left_over, 0.0, caps), 0.0)
    return rates


def columns_in_order(work: Work, order: IntArray) -> tuple[IntArray, FloatArray, FloatArray, FloatArray]:
    """The segments of following the list to its end, in columns; fast if each site can use the whole link."""
    if work.is_uncapped and work.link.is_constant:
        ends = work.link.time_of(np.cumsum(work.left_bytes[order]))
        starts = np.concatenate(([0.0], ends[:-1]))
        return order, starts, ends, np.full(len(order), work.link.most)
    site, from_s, to_s, rate = zip(*run_in_order(work, order), strict=True)
    return np.array(site, dtype=np.int64), np.array(from_s), np.array(to_s), np.array(rate)


def ends_in_order(work: Work, order: IntArray) -> FloatArray:
    """The end of each site if the list is followed to its end."""
    ends = np.empty(len(work))
    if work.is_uncapped:
        ends[order] = work.link.time_of(np.cumsum(work.left_bytes[order]))
    else:
        for site, _, to_s, _ in run_in_order(work, order):
            ends[site] = to_s
    return ends


def run_in_order(work: Work, order: IntArray, until_s: float = math.inf) -> list[Row]:
    """The segments of following the list until `until_s`, in order of time for each site."""
    run = _ListRun(work, order)
    while run.step(until_s):
        pass
    return run.rows


class _ListRun:
    """Follows a list event by event. Sites are identified by their position in the list.

    Between changes of the timetable only one open site can have less than its cap, so the end of a site costs
    O(log n). A change of the timetable visits all open sites.
    """

    def __init__(self, work: Work, order: IntArray) -> None:
        self.rows: list[Row] = []
        self._link, self._seats = work.link, work.seats
        self._order = order.tolist()
        self._left = work.left_bytes[order].tolist()
        self._cap = work.cap_bytes_per_s[order].tolist()
        self._now_s = 0.0
        self._crumb = CRUMB * self._link.most
        self._free = self._link.at(0.0)
        self._change_s = self._link.next_change_s(0.0)
        self._next = 0
        self._open: dict[int, tuple[float, float]] = {}  # position -> rate, since
        self._below_cap: list[int] = []  # started with less than the cap, in order
        self._ends: list[tuple[float, int, float, float]] = []  # end, position, rate, since
        self._assign()

    def step(self, until_s: float) -> bool:
        """Advance to the next end or change of the timetable. False if all is done or `until_s` is
        reached."""
        while self._ends and self._open.get(self._ends[0][1]) != self._ends[0][2:]:
            heapq.heappop(self._ends)  # its rate has changed since
        end_s = self._ends[0][0] if self._ends else math.inf
        if min(end_s, self._change_s) > until_s or not (
            self._ends or self._below_cap or self._next < len(self._order)
        ):
            self._close_all(until_s)
            return False
        if end_s <= self._change_s:
            self._now_s, position = end_s, heapq.heappop(self._ends)[1]
            self._free += self._set_rate(position, None)
            if position in self._below_cap:
                self._below_cap.remove(position)
            self._assign()
        else:
            self._change_capacity()
        return True

    def _change_capacity(self) -> None:
        self._now_s = self._change_s
        self._change_s = self._link.next_change_s(self._now_s)
        self._free = self._link.at(self._now_s)
        self._below_cap = sorted({*self._open, *self._below_cap})
        self._close_all(self._now_s)
        self._assign()

    def _assign(self) -> None:
        """Give free capacity to started sites below their cap, then to the next of the list."""
        while self._free > self._crumb:
            if self._below_cap:
                position = self._below_cap[0]
                rate = self._open[position][0] if position in self._open else 0.0
                if not rate and len(self._open) >= self._seats:
                    return
            elif self._next < len(self._order) and len(self._open) < self._seats:
                position, rate = self._next, 0.0
                self._next += 1
                bisect.insort(self._below_cap, position)
            else:
                return
            more = min(self._cap[position] - rate, self._free)
            self._free -= more
            self._set_rate(position, rate + more)
            if rate + more >= self._cap[position] - self._crumb:
                self._below_cap.remove(position)

    def _set_rate(self, position: int, rate: float | None) -> float:
        """Set a new rate and record a segment with the old one; None closes the site. Returns the old
        rate."""
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


def shortest_first(work: Work) -> IntArray:
    """SPT by weight: a site with twice the weight may be twice as long (Smith's ratio)."""
    return np.argsort(work.left_bytes / work.weight, kind="stable")


def earliest_deadline_first(work: Work, due_s: FloatArray) -> IntArray:
    """EDD; the shortest first among sites with the same deadline or none."""
    return np.lexsort((work.left_bytes / work.weight, due_s))


def modified_due_date_at_once(work: Work, due_s: FloatArray) -> IntArray:
    """MDD at the current time: by the deadline, or by the earliest possible end if that is later."""
    key, length = np.maximum(due_s, work.shortest_s), work.left_bytes / work.weight
    open_end = np.isinf(key)
    # A single key for both: sites without a deadline follow after the last deadline, shortest first.
    last = float(np.max(key[~open_end], initial=1.0))
    key[open_end] = last * (1 + length[open_end] / length.max())
    order = np.argsort(key)
    if np.all(np.diff(key[order]) > 0):
        return order
    return np.lexsort((length, key))


def modified_due_date(work: Work, due_s: FloatArray) -> IntArray:
    """MDD step by step: as time passes, more and more sites are ordered by length. O(n^2), for small n."""
    pace = _pace(work)
    open_sites = np.arange(len(work))
    order = np.empty(len(work), dtype=np.int64)
    shortest, length = work.shortest_s, work.left_bytes / work.weight
    now_s = 0.0
    for place in range(len(work)):
        left_s = np.maximum(due_s[open_sites] - now_s, shortest[open_sites]) / work.weight[open_sites]
        least = left_s.min()
        ties = np.flatnonzero(left_s == least)
        pick = int(ties[np.argmin(length[open_sites[ties]])])
        order[place] = site = open_sites[pick]
        open_sites = np.delete(open_sites, pick)
        now_s += work.left_bytes[site] / pace
    return order


def longest_last(work: Work, due_s: FloatArray) -> IntArray:
    """Smith's backward rule: of the sites whose deadline allows the last position, the longest is last, and
    so on.

    It minimises the sum of ends on an uncapped link if all deadlines can be met. If no deadline allows a
    position, the site with the latest deadline gets it.
    """
    by_deadline = np.argsort(-due_s, kind="stable").tolist()
    due, left = due_s.tolist(), work.left_bytes.tolist()
    ratio = (work.left_bytes / work.weight).tolist()
    backward: list[int] = []
    allowed: list[tuple[float, int]] = []
    end_s, pace, following = float(work.left_bytes.sum()) / _pace(work), _pace(work), 0
    for _ in range(len(work)):
        while following < len(by_deadline) and due[by_deadline[following]] >= end_s * (1 - 1e-12):
            site = by_deadline[following]
            heapq.heappush(allowed, (-ratio[site], -site))
            following += 1
        if allowed:
            site = -heapq.heappop(allowed)[1]
        else:
            site = by_deadline[following]
            following += 1
        backward.append(site)
        end_s -= left[site] / pace
    return np.array(backward[::-1], dtype=np.int64)


def _pace(work: Work) -> float:
    """The average capacity of the link in bytes per second until everything is done."""
    total = float(work.left_bytes.sum())
    end_s = float(work.link.time_of(np.array([total]))[0])
    return total / end_s if end_s > 0 else work.link.most


NEAR = 1e-11
"""Instants that differ by this fraction of the time for all work count as equal."""


@dataclass(frozen=True, eq=False, slots=True)
class Watch:
    """The state of the guards now: when the link could be overfull, and how much room is left."""

    work: Work
    guard_s: FloatArray
    """The guarded deadline of each site; infinity for none."""
    laxity_s: FloatArray
    at_s: FloatArray
    room: FloatArray
    """Spare bytes by each of these instants: a row for the link, and one for the seats if they are
    limited."""
    near_s: float
    """Shorter intervals are ignored: with rounding, steps would become ever smaller."""

    @staticmethod
    def of(work: Work, guard_s: FloatArray) -> Watch:
        at_s = critical_instants(work, guard_s)
        near_s = NEAR * float(work.left_bytes.sum()) / work.link.most
        return Watch(work, guard_s, guard_s - work.shortest_s, at_s, room_bytes(work, guard_s, at_s), near_s)

    def stretched(self, stretch_s: float) -> Watch:
        """A copy with every guard later by `stretch_s`."""
        work = self.work
        if not stretch_s:
            return self
        if not work.link.is_constant:
            return Watch.of(work, self.guard_s + stretch_s)
        # The mandatory work by tau is now due by tau + stretch_s, and the link runs that much longer.
        room = self.room + work.link.most * stretch_s
        return replace(
            self,
            guard_s=self.guard_s + stretch_s,
            laxity_s=self.laxity_s + stretch_s,
            at_s=self.at_s + stretch_s,
            room=room,
        )

    def least_stretch_s(self) -> float:
        """The least common delay with which all guards can be met together."""
        timed = np.isfinite(self.guard_s)
        if not np.any(timed):
            return 0.0
        own = float(-self.laxity_s[timed].min())
        must = self.work.link.amount_until(self.at_s) - self.room[0]
        together = float((self.work.link.time_of(np.maximum(must, 0.0)) - self.at_s).max())
        seats = float(-self.room[-1].min()) / self.work.link.most if len(self.room) > 1 else 0.0
        stretch_s = max(own, together, seats)
        return stretch_s if stretch_s > self.near_s else 0.0

    def full(self, grain_s: float = 0.0) -> BoolArray:
        return self.room <= (2 * self.near_s + grain_s) * self.work.link.most

    def lost(self, rates: FloatArray) -> BoolArray:
        """Instants that are full, but whose sites cannot use the whole link (or all seats) now.

        This occurs because the test for seats is necessary and not sufficient. Watching them would not help.
        """
        order = np.argsort(self.laxity_s)
        members = np.searchsorted(self.laxity_s[order], self.at_s - self.near_s)
        unused = self.work.link.at(0.0) - _sums(rates[order])[members]
        losing = (unused > 1e-6 * self.work.link.most)[np.newaxis]
        if len(self.room) > 1:
            seats_used = _sums((rates / self.work.cap_bytes_per_s)[order])[members]
            losing = np.stack((losing[0], seats_used < (1 - 1e-6) * self.work.seats))
        return self.full() & losing


def order_now(watch: Watch, place: IntArray, grain_s: float = 0.0) -> IntArray:
    """The order of the sites now, with urgent ones first; `place` is the position of each site in the list.

    Laxity and room on the link count as used up if they would be within `grain_s`.
    """
    if not len(watch.at_s):
        return np.argsort(place, kind="stable")
    urgent = watch.laxity_s <= watch.near_s + grain_s
    full_at_s = watch.at_s[np.any(watch.full(grain_s), axis=0)]
    key = place
    if len(full_at_s):
        # A site whose mandatory work by then is almost done does not count.
        rank = np.searchsorted(full_at_s - watch.near_s, watch.laxity_s, side="right")
        key = place + rank * (int(place.max()) + 1)
    if np.any(urgent):
        first = np.flatnonzero(urgent)
        key = key.copy()
        key[first[np.lexsort((place[first], watch.guard_s[first]))]] = np.arange(-len(first), 0)
    return np.argsort(key)


def holds_until_s(watch: Watch, rates: FloatArray, exact: bool = True) -> float:
    """How long these rates may be kept: until a site ends, its laxity is used up, the link changes, or an
    instant becomes full. Without `exact` the last is a safe lower bound instead of a search."""
    work, at_s = watch.work, watch.at_s
    served = rates > 0
    until_s = float(np.min(work.left_bytes[served] / rates[served], initial=math.inf))
    until_s = min(until_s, work.link.next_change_s(0.0))
    if not len(at_s):
        return until_s
    unserved = 1.0 - rates / work.cap_bytes_per_s
    counting = (unserved > TOLERANCE) & (watch.laxity_s > watch.near_s)
    until_s = min(until_s, float(np.min(watch.laxity_s[counting] / unserved[counting], initial=math.inf)))
    fastest_loss = work.link.most
    watched = (watch.room < fastest_loss * until_s) & ~watch.lost(rates)
    if not np.any(watched):
        return until_s
    if not exact:
        open_room = watch.room[watched & ~watch.full()]
        return min(until_s, float(np.min(open_room, initial=math.inf)) / fastest_loss)
    # An instant that is already overfull must only not get worse.
    least = np.where(watched, np.minimum(watch.room, 0.0), -math.inf) - watch.near_s * fastest_loss

    def room(after_s: float) -> float:
        left = np.maximum(work.left_bytes - rates * after_s, 0.0)
        later = replace(work, left_bytes=left, link=work.link.seen_from(after_s))
        to_come = at_s > after_s
        later_room = room_bytes(later, watch.guard_s - after_s, at_s[to_come] - after_s)
        return float(np.min(later_room - least[:, to_come], initial=math.inf))

    return _last_with_room(room, until_s, watch.near_s / 10)


def _last_with_room(room: Callable[[float], float], until_s: float, precision_s: float) -> float:
    """The last instant at which there is room. While rates are constant, room is concave in time. So the line
    through two instants without room never crosses zero too early, and is exact where room is linear."""
    low, high, room_high = 0.0, until_s, room(until_s)
    if room_high >= 0:
        return until_s
    # Days ahead, neighbouring floats may be further apart than the requested precision.
    precision_s = max(precision_s, 2 * math.ulp(until_s))
    while high - low > precision_s:
        middle = (low + high) / 2
        room_middle = room(middle)
        if room_middle >= 0:
            low = middle
            continue
        # While the link is closed, room is constant and the line has no zero.
        is_falling = room_high < room_middle
        cut = middle - room_middle * (high - middle) / (room_high - room_middle) if is_falling else high
        high, room_high = middle, room_middle
        if low < cut - precision_s < middle:
            if room(cut - precision_s) >= 0:
                return cut - precision_s
            high, room_high = cut - precision_s, room(cut - precision_s)
    return low


def run_guarded(work: Work, order: IntArray, guard_s: FloatArray) -> list[Row]:
    """The segments of following the list with guards, to the end of all sites."""
    place = np.empty(len(work), dtype=np.int64)
    place[order] = np.arange(len(work))
    site = np.arange(len(work))
    rows: list[Row] = []
    now_s = 0.0
    smallest_step_s = NEAR / 10 * float(work.left_bytes.sum()) / work.link.most
    while len(site):
        watch = Watch.of(work, guard_s)
        rates = rates_in_order(work, order_now(watch, place), work.link.at(0.0))
        step_s = max(holds_until_s(watch, rates), smallest_step_s)
        served = np.flatnonzero(rates)
        until_s = now_s + step_s
        rows.extend(
            (index, now_s, until_s, rate)
            for index, rate in zip(site[served].tolist(), rates[served].tolist(), strict=True)
        )
        now_s = until_s
        work, going = advanced(work, rates, step_s)
        guard_s = guard_s[going] - step_s
        site, place = site[going], place[going]
    return rows


def advanced(work: Work, rates: FloatArray, step_s: float) -> tuple[Work, BoolArray]:
    """The remaining work after `step_s`, and which sites still have any."""
    left = work.left_bytes - rates * step_s
    going = left > 1e-9 * rates * step_s
    later = replace(
        work,
        left_bytes=left[going],
        cap_bytes_per_s=work.cap_bytes_per_s[going],
        due_s=work.due_s[going] - step_s,
        weight=work.weight[going],
        link=work.link.seen_from(step_s),
    )
    return later, going


def _sums(values: FloatArray) -> FloatArray:
    """The sums of the first 0, 1, 2... values."""
    return np.concatenate(([0.0], np.cumsum(values)))
