"""How often pages change, and how often it pays to look: Cho and Garcia-Molina's estimator and optimum.

Changes of a page are taken for a Poisson process, of which a visit sees only whether there was any since the
visit before. From that the rate is estimated, and for a given price of a visit the interval follows that
makes the most of the time during which the copy is like the original. Some pages change so often that no
visit pays: a copy of them is out of date as soon as it is made.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

KEPT_VISITS = 32
"""Of each page: enough to tell its rate within a factor of two, and to notice when it has another."""
BIAS = 0.5
_STEPS = 60
_SAME_RATE = 1e-9
_NEAR_BRANCH = 1e-5

Floats = NDArray[np.float64]


def add_visit(history: bytes, interval_s: float, *, is_changed: bool) -> bytes:
    """The history with one more visit: how long after the one before, and whether the page had changed."""
    visits = array("f")
    visits.frombytes(history[: len(history) // 4 * 4])
    length_s = max(interval_s, 1.0)
    visits.append(-length_s if is_changed else length_s)
    return visits[-KEPT_VISITS:].tobytes()


def visits_of(history: bytes) -> list[tuple[float, bool]]:
    """Interval in seconds and whether there was a change, oldest first."""
    visits = array("f")
    visits.frombytes(history[: len(history) // 4 * 4])
    return [(abs(each), each < 0) for each in visits]


def change_rate(visits: Sequence[tuple[float, bool]]) -> float | None:
    """Changes a second, or None of a page that was seen only once.

    For equal intervals I this is the estimator of Cho and Garcia-Molina, -log((n - X + 0.5) / (n + 0.5)) / I
    with X changes in n visits: the most likely rate if half a visit more had found no change, without which a
    page that changed at every visit would be taken for infinitely fast. In that form it holds for unequal
    intervals as well: the sum over visits with a change of I / (exp(rate * I) - 1) equals the sum of the
    intervals without one.
    """
    if not visits:
        return None
    changed = [interval_s for interval_s, is_changed in visits if is_changed]
    total_s = sum(interval_s for interval_s, _ in visits)
    mean_s = total_s / len(visits)
    quiet_s = total_s - sum(changed) + BIAS * mean_s
    if not changed:
        return 0.0
    if min(changed) >= max(changed) * (1 - _SAME_RATE):
        return math.log1p(sum(changed) / quiet_s) / changed[0]
    # The sum falls with the rate and is convex, so that Newton's steps from below never go too far.
    rate = len(changed) / (total_s + BIAS * mean_s) / 2
    for _ in range(_STEPS):
        excess, slope = -quiet_s, 0.0
        for interval_s in changed:
            expected = min(700.0, rate * interval_s)
            more = math.expm1(expected)
            excess += interval_s / more
            slope += interval_s * interval_s * (more + 1.0) / (more * more)
        step = excess / slope
        rate += step
        if step <= _SAME_RATE * rate:
            break
    return rate


def freshness(rate: float, interval_s: float) -> float:
    """The part of the time during which a copy renewed at this interval is like the original."""
    expected = rate * interval_s
    return 1.0 if expected < 1e-12 else -math.expm1(-expected) / expected


def best_interval_s(rate: float, price: float) -> float:
    """The interval at which one more visit a second would gain just its price; infinite when none pays.

    Freshness gains (1 - (1 + r) exp(-r)) / rate from each visit more a second, with r = rate * interval.
    """
    if rate <= 0.0:
        return math.inf
    worth = price * rate
    if worth >= 1.0:
        return math.inf
    return float(_expected_changes(np.array([worth]))[0]) / rate


def price_within(rates: Floats, counts: Floats, costs: Floats, budget: float, shortest_s: float) -> float:
    """The price of a unit of cost at which visits to all these pages cost no more than the budget a second.

    `counts` pages each have a rate and a cost a visit (bytes, or 1 to count requests). Nobody is visited
    more often than every `shortest_s`. Zero when everybody can be.
    """
    if not math.isfinite(budget) or not len(rates):
        return 0.0
    known = rates > 0

    def spent(price: float) -> float:
        worth = np.minimum(price * costs[known] * rates[known], 1.0)
        interval_s = np.maximum(_expected_changes(worth) / rates[known], max(shortest_s, 1e-9))
        visits = np.where(worth < 1.0, 1.0 / interval_s, 0.0)
        return float(np.sum(counts[known] * costs[known] * visits))

    if not known.any() or spent(0.0) <= budget:
        return 0.0
    high = 1.0 / float(np.min(costs[known] * rates[known]))  # at which nobody is visited
    low = high * 1e-18
    for _ in range(_STEPS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if spent(middle) > budget else (low, middle)
    return high


def _expected_changes(worth: Floats) -> Floats:
    """The r at which 1 - (1 + r) exp(-r) is this much, by the lower branch of Lambert's function."""
    from scipy.special import lambertw  # half a second, which a crawl without visits again can do without

    inside = -(1.0 - np.clip(worth, _NEAR_BRANCH, 1.0 - 1e-15)) / math.e
    exact = -1.0 - np.real(lambertw(inside, k=-1))
    # Near its branch point the function loses half of its digits, and the series needs but three terms.
    root = np.sqrt(2.0 * worth)
    return np.where(worth < _NEAR_BRANCH, root * (1.0 + root * (1.0 / 3.0 + root * (11.0 / 72.0))), exact)
