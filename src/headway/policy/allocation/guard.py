"""Following a list, but never so long that a guarded deadline is lost.

A site with no laxity left goes first. When what must be done by some instant fills the link until then, the
sites that have a part in it go before all others. Such sets are nested, for a site has a part in what must
be done by tau exactly if its latest start is before tau; so serving the first serves the later ones too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from headway.policy.allocation.capacity import BoolArray, FloatArray, IntArray
from headway.policy.allocation.feasibility import (
    TOLERANCE,
    Work,
    critical_instants,
    room_bytes,
)
from headway.policy.allocation.listing import Row, rates_in_order

NEAR = 1e-11
"""Moments that differ by this part of the time that all the work takes are one moment."""


@dataclass(frozen=True, eq=False, slots=True)
class Watch:
    """What the guards look like just now: when the link could be overfull, and how much room is left."""

    work: Work
    guard_s: FloatArray
    """The deadline that is held for each site; infinity for none."""
    laxity_s: FloatArray
    at_s: FloatArray
    room: FloatArray
    """Bytes to spare by each of these instants: a row for the link, and one for seats if they are short."""
    near_s: float
    """Closer than this, rounding would cut time ever finer."""

    @staticmethod
    def of(work: Work, guard_s: FloatArray) -> Watch:
        at_s = critical_instants(work, guard_s)
        near_s = NEAR * float(work.left_bytes.sum()) / work.link.most
        return Watch(work, guard_s, guard_s - work.shortest_s, at_s, room_bytes(work, guard_s, at_s), near_s)

    def stretched(self, stretch_s: float) -> Watch:
        """The same with every guard so much later."""
        work = self.work
        if not stretch_s:
            return self
        if not work.link.is_constant:
            return Watch.of(work, self.guard_s + stretch_s)
        # What must be done by tau must now be done by tau + L, and the link runs for that much longer.
        room = self.room + work.link.most * stretch_s
        return replace(
            self,
            guard_s=self.guard_s + stretch_s,
            laxity_s=self.laxity_s + stretch_s,
            at_s=self.at_s + stretch_s,
            room=room,
        )

    def least_stretch_s(self) -> float:
        """The least delay of all guards that lets them hold together."""
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
        """Full, and its sites, though they come first, cannot use all of the link (or of the seats) now.

        It happens because the test for seats is necessary and not sufficient; watching it would not help.
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
    """Who comes first just now; `place` is a site's place in the list.

    Laxity, and room on the link, count as used up when they would be within `grain_s`.
    """
    if not len(watch.at_s):
        return np.argsort(place, kind="stable")
    urgent = watch.laxity_s <= watch.near_s + grain_s
    full_at_s = watch.at_s[np.any(watch.full(grain_s), axis=0)]
    key = place
    if len(full_at_s):
        # A site whose part in what must be done by then is all but done has no part in it any more.
        rank = np.searchsorted(full_at_s - watch.near_s, watch.laxity_s, side="right")
        key = place + rank * (int(place.max()) + 1)
    if np.any(urgent):
        first = np.flatnonzero(urgent)
        key = key.copy()
        key[first[np.lexsort((place[first], watch.guard_s[first]))]] = np.arange(-len(first), 0)
    return np.argsort(key)


def holds_until_s(watch: Watch, rates: FloatArray, exact: bool = True) -> float:
    """How long these rates may be kept: until a site ends, its laxity is gone, the link turns, or an instant
    is filled. Without `exact` the last is a safe guess instead of a search."""
    work, at_s = watch.work, watch.at_s
    served = rates > 0
    until_s = float(np.min(work.left_bytes[served] / rates[served], initial=math.inf))
    until_s = min(until_s, work.link.next_turn_s(0.0))
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
    # What is overfull already need only not get worse.
    least = np.where(watched, np.minimum(watch.room, 0.0), -math.inf) - watch.near_s * fastest_loss

    def room(after_s: float) -> float:
        left = np.maximum(work.left_bytes - rates * after_s, 0.0)
        later = replace(work, left_bytes=left, link=work.link.seen_from(after_s))
        to_come = at_s > after_s
        later_room = room_bytes(later, watch.guard_s - after_s, at_s[to_come] - after_s)
        return float(np.min(later_room - least[:, to_come], initial=math.inf))

    return _last_with_room(room, until_s, watch.near_s / 10)


def _last_with_room(room: Callable[[float], float], until_s: float, precision_s: float) -> float:
    """The last moment at which there is room. While rates stand, room is concave in time: so a line through
    two moments without any never cuts zero too early, and cuts it exactly where room is straight."""
    low, high, room_high = 0.0, until_s, room(until_s)
    if room_high >= 0:
        return until_s
    while high - low > precision_s:
        middle = (low + high) / 2
        room_middle = room(middle)
        if room_middle >= 0:
            low = middle
            continue
        cut = middle - room_middle * (high - middle) / (room_high - room_middle)
        high, room_high = middle, room_middle
        if low < cut - precision_s < middle:
            if room(cut - precision_s) >= 0:
                return cut - precision_s
            high, room_high = cut - precision_s, room(cut - precision_s)
    return low


def run_guarded(work: Work, order: IntArray, guard_s: FloatArray) -> list[Row]:
    """The segments of following the list under guard to the end of all sites."""
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
    """The work that is left a step later, and which sites still have any."""
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
    """The sum of the first 0, 1, 2... values."""
    return np.concatenate(([0.0], np.cumsum(values)))
