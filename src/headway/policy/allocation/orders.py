"""Lists that a schedule may follow, most urgent first. Ties keep the order of the input."""

from __future__ import annotations

import heapq
import math

import numpy as np

from headway.policy.allocation.capacity import BoolArray, FloatArray, IntArray
from headway.policy.allocation.feasibility import Work, first_overfull_s


def shortest_first(work: Work) -> IntArray:
    """SPT; by weight, a site worth twice as much may be twice as long (Smith's ratio)."""
    return np.argsort(work.left_bytes / work.weight, kind="stable")


def earliest_deadline_first(work: Work, due_s: FloatArray) -> IntArray:
    """EDD; the shortest first among those due together or at no time."""
    return np.lexsort((work.left_bytes / work.weight, due_s))


def modified_due_date_at_once(work: Work, due_s: FloatArray) -> IntArray:
    """MDD as it looks now: by the deadline, or by the earliest possible end where that is later."""
    key, length = np.maximum(due_s, work.shortest_s), work.left_bytes / work.weight
    open_end = np.isinf(key)
    # One number does for both keys: sites at no time follow after the last deadline, shortest first.
    last = float(np.max(key[~open_end], initial=1.0))
    key[open_end] = last * (1 + length[open_end] / length.max())
    order = np.argsort(key)
    if np.all(np.diff(key[order]) > 0):
        return order
    return np.lexsort((length, key))


def modified_due_date(work: Work, due_s: FloatArray) -> IntArray:
    """MDD step by step: as time goes on, more and more sites count by their length. O(n^2), for small n."""
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
    """Smith's backward rule: of the sites whose deadline allows being last, the longest is last, and so on.

    The least sum of ends on an uncapped link where all deadlines can be met. Where no site's deadline
    allows the place, the latest deadline takes it.
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


def keepable(work: Work, due_s: FloatArray) -> BoolArray:
    """Moore-Hodgson with caps: which deadlines to keep so that few are missed.

    Deadlines are added from the earliest on; when they no longer fit together, the site with the most
    work that must be done by then is given up (for its weight, if weights differ).
    """
    if work.is_uncapped and work.link.is_constant:
        return _keepable_uncapped(work, due_s)
    kept = np.zeros(len(work), dtype=bool)
    out_of_reach = work.hopeless(due_s)
    for site in np.argsort(due_s, kind="stable").tolist():
        if out_of_reach[site] or not math.isfinite(due_s[site]):
            continue
        kept[site] = True
        while (
            np.any(kept)
            and (overfull_s := first_overfull_s(work, np.where(kept, due_s, math.inf))) is not None
        ):
            put_off = work.cap_bytes_per_s * np.maximum(due_s - overfull_s, 0.0)
            must = np.where(kept, (work.left_bytes - put_off) / work.weight, -math.inf)
            kept[int(np.argmax(must))] = False
    return kept


def _keepable_uncapped(work: Work, due_s: FloatArray) -> BoolArray:
    kept = np.zeros(len(work), dtype=bool)
    due, length = due_s.tolist(), (work.left_bytes / work.link.most).tolist()
    weight = work.weight.tolist()
    longest: list[tuple[float, int]] = []
    end_s = 0.0
    for site in np.argsort(due_s, kind="stable").tolist():
        if not math.isfinite(due[site]):
            break
        heapq.heappush(longest, (-length[site] / weight[site], site))
        kept[site] = True
        end_s += length[site]
        if end_s > due[site] * (1 + 1e-12):
            dropped = heapq.heappop(longest)[1]
            kept[dropped] = False
            end_s -= length[dropped]
    return kept


def _pace(work: Work) -> float:
    """Bytes a second that the link carries on average until all is done."""
    total = float(work.left_bytes.sum())
    end_s = float(work.link.time_of(np.array([total]))[0])
    return total / end_s if end_s > 0 else work.link.most
