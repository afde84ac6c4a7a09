"""Following a list, but never so long that a guarded deadline is lost.

A site with no laxity left goes first. When what must be done by some instant fills the link until then, the
sites that have a part in it go before all others. Such sets are nested, for a site has a part in what must
be done by tau exactly if its latest start is before tau; so serving the first serves the later ones too.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from headway.policy.allocation.capacity import BoolArray, FloatArray, IntArray
from headway.policy.allocation.feasibility import (
    TOLERANCE,
    Work,
    critical_instants,
    slack_bytes,
    tolerance_bytes,
)
from headway.policy.allocation.listing import Row, rates_in_order


def order_now(work: Work, guard_s: FloatArray, place: IntArray, grain_s: float = 0.0) -> IntArray:
    """Who comes first just now. `place` is a site's place in the list, `guard_s` the deadline held for it.

    Laxity, and slack on the link, count as used up when they would be within `grain_s`.
    """
    if not np.any(np.isfinite(guard_s)):
        return np.argsort(place, kind="stable")
    laxity_s = guard_s - work.shortest_s
    urgent = laxity_s <= grain_s + TOLERANCE * np.maximum(guard_s, 1.0)
    at_s = critical_instants(work, guard_s)
    slack = slack_bytes(work, guard_s, at_s)
    full_s = at_s[slack <= 2 * tolerance_bytes(work, at_s) + grain_s * work.link.most]
    rank = np.searchsorted(full_s, laxity_s, side="right")
    first = np.where(urgent, guard_s, math.inf)
    return np.lexsort((place, np.where(urgent, -1, rank), first))


def holds_until_s(work: Work, guard_s: FloatArray, rates: FloatArray, exact: bool = True) -> float:
    """How long these rates may be kept: until a site ends, its laxity is gone, the link turns, or an instant
    is filled. Without `exact` the last is a safe guess instead of a search."""
    with np.errstate(divide="ignore", invalid="ignore"):
        until_s = float(np.min(np.where(rates > 0, work.left_bytes / rates, math.inf), initial=math.inf))
        unserved = 1.0 - rates / work.cap_bytes_per_s
        laxity_s = guard_s - work.shortest_s
        counting = np.isfinite(guard_s) & (unserved > TOLERANCE)
        counting &= laxity_s > TOLERANCE * np.maximum(guard_s, 1.0)
        until_s = min(until_s, float(np.min(laxity_s[counting] / unserved[counting], initial=math.inf)))
    until_s = min(until_s, work.link.next_turn_s(0.0))
    at_s = critical_instants(work, guard_s)
    if not len(at_s):
        return until_s
    slack = slack_bytes(work, guard_s, at_s)
    fastest_loss = work.link.most
    near = slack < fastest_loss * until_s

    def still_fits(after_s: float) -> bool:
        left = np.maximum(work.left_bytes - rates * after_s, 0.0)
        later = replace(work, left_bytes=left, link=work.link.seen_from(after_s))
        to_come = at_s > after_s
        slack_later = slack_bytes(later, guard_s - after_s, at_s[to_come] - after_s)
        # What is overfull already, by rounding or beyond help, need only not get worse.
        least = np.minimum(slack[to_come], 0.0) - tolerance_bytes(work, at_s[to_come])
        return bool(np.all(slack_later >= least))

    if not np.any(near) or still_fits(until_s):
        return until_s
    if not exact:
        open_slack = slack[near & (slack > 2 * tolerance_bytes(work, at_s))]
        return min(until_s, float(np.min(open_slack, initial=math.inf)) / fastest_loss)
    # Slack at each instant is concave in time while rates stand, so "still fits" holds up to one moment.
    low, high = 0.0, until_s
    for _ in range(48):
        middle = (low + high) / 2
        low, high = (middle, high) if still_fits(middle) else (low, middle)
    return low


def run_guarded(work: Work, order: IntArray, guard_s: FloatArray) -> list[Row]:
    """The segments of following the list under guard to the end of all sites."""
    place = np.empty(len(work), dtype=np.int64)
    place[order] = np.arange(len(work))
    site = np.arange(len(work))
    rows: list[Row] = []
    now_s = 0.0
    smallest_step_s = TOLERANCE * max(float(work.left_bytes.sum()) / work.link.most, 1e-9)
    while len(site):
        rates = rates_in_order(work, order_now(work, guard_s, place), work.link.at(0.0))
        step_s = max(holds_until_s(work, guard_s, rates), smallest_step_s)
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
    going = left > TOLERANCE * np.maximum(rates * step_s, 1e-3)
    later = replace(
        work,
        left_bytes=left[going],
        cap_bytes_per_s=work.cap_bytes_per_s[going],
        due_s=work.due_s[going] - step_s,
        weight=work.weight[going],
        link=work.link.seen_from(step_s),
    )
    return later, going
