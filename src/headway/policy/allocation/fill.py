"""Sharing a link out in proportion, between a floor and a ceiling for each: the one piece of mathematics
behind M-MAXT, M-SUMT, M-STET and the proportional baselines."""

from __future__ import annotations

import numpy as np

from headway.policy.allocation.capacity import FloatArray


def fill(low: FloatArray, high: FloatArray, shape: FloatArray, total: float) -> FloatArray:
    """clip(s * shape, low, high) with the one s that hands out `total`; O(n log n).

    When the floors alone exceed the total they are scaled down to it; when the ceilings do not reach it,
    everyone gets the ceiling.
    """
    low = np.minimum(low, high)
    floors = float(low.sum())
    if floors >= total:
        return low * (total / floors) if floors > 0 else low
    if float(high.sum()) <= total:
        return high.copy()
    # Each site leaves its floor at one value of s and meets its ceiling at another. The sum only grows
    # with s, so bisect over those values; between two neighbours it is linear and solved exactly.
    leaves, meets = low / shape, high / shape
    turns = np.concatenate((leaves, meets[np.isfinite(meets)]))
    turns.sort()
    below, above = 0, len(turns)  # at turns[below] no more than the total is handed out, as at s = 0
    rates = np.empty_like(shape)  # used again and again: fresh arrays of this size cost more than the sums
    while above - below > 1:
        middle = (below + above) // 2
        np.multiply(shape, turns[middle], out=rates)
        np.clip(rates, low, high, out=rates)
        if float(rates.sum()) <= total:
            below = middle
        else:
            above = middle
    s = turns[below]
    at_low, at_high = leaves > s, meets <= s
    free = ~(at_low | at_high)
    fixed = float(low[at_low].sum()) + float(high[at_high].sum())
    free_shape = float(shape[free].sum())
    if free_shape > 0:
        s = (total - fixed) / free_shape
    return _without_excess(np.clip(s * shape, low, high), total)


def _without_excess(rates: FloatArray, total: float) -> FloatArray:
    """Rounding may leave the sum a hair above the total; the link's bound is a promise, so keep below."""
    handed_out = float(rates.sum())
    return rates * (total / handed_out) if handed_out > total else rates
