"""When a page is visited again: after a fixed time, or by its estimated rate of change.

Changes of a page are modelled as a Poisson process; a visit shows only whether there was a change since the
last one. The change rate is estimated by the method of Cho and Garcia-Molina. Given a price of a visit, it
determines the interval that maximises freshness, the time during which the copy equals the original. Pages
that change very often get no visits: a copy of them is out of date immediately.

`AdaptiveRevisit` counts how many pages there are of each class. The price of a visit follows from the counts:
at that price all visits together use just the bandwidth that is left, and the visits to one site just the
requests that politeness leaves. To schedule a page, only the price is needed.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Sequence
from typing import Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from headway.model.page import Site
from headway.units import UNBOUNDED, BytesPerSecond, Instant, Seconds

KEPT_VISITS = 32
"""Per page: enough to estimate its rate within a factor of two, and to notice that it has changed."""
BIAS = 0.5
_BISECTIONS = 60
_SAME_RATE = 1e-9
_NEAR_BRANCH = 1e-5

Floats = NDArray[np.float64]


def add_visit(history: bytes, interval_s: float, *, is_changed: bool) -> bytes:
    """The history with one more visit, `interval_s` after the previous one."""
    visits = array("f")
    visits.frombytes(history[: len(history) // 4 * 4])
    length_s = max(interval_s, 1.0)
    visits.append(-length_s if is_changed else length_s)
    return visits[-KEPT_VISITS:].tobytes()


def visits_of(history: bytes) -> list[tuple[float, bool]]:
    """Interval in seconds and whether the page had changed, oldest first."""
    visits = array("f")
    visits.frombytes(history[: len(history) // 4 * 4])
    return [(abs(each), each < 0) for each in visits]


def change_rate(visits: Sequence[tuple[float, bool]]) -> float | None:
    """Changes per second, or None for a page that was visited only once.

    For equal intervals I this is the estimator of Cho and Garcia-Molina, -log((n - X + 0.5) / (n + 0.5)) / I
    with X changes in n visits. It is the maximum likelihood estimate with half a visit without a change
    added; otherwise a page that changed at every visit would have an infinite rate. The generalisation to
    unequal intervals: the sum of I / (exp(rate * I) - 1) over visits with a change equals the sum of the
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
    # The sum decreases with the rate and is convex, so Newton's method from below never overshoots.
    rate = len(changed) / (total_s + BIAS * mean_s) / 2
    for _ in range(_BISECTIONS):
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
    """The share of the time during which a copy refreshed at this interval equals the original."""
    expected = rate * interval_s
    return 1.0 if expected < 1e-12 else -math.expm1(-expected) / expected


def best_interval_s(rate: float, price: float) -> float:
    """The interval at which one more visit per second gains just its price; infinite if no visit pays.

    Each additional visit per second gains a freshness of (1 - (1 + r) exp(-r)) / rate, with r = rate *
    interval.
    """
    if rate <= 0.0:
        return math.inf
    worth = price * rate
    if worth >= 1.0:
        return math.inf
    return float(_expected_changes(np.array([worth]))[0]) / rate


def price_within(rates: Floats, counts: Floats, costs: Floats, budget: float, shortest_s: float) -> float:
    """The price per unit of cost at which the visits to all pages cost at most `budget` per second.

    `counts` says how many pages have each rate and cost per visit (bytes, or 1 to count requests). No page is
    visited more often than every `shortest_s`. The price is zero if all pages can be visited that often.
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
    high = 1.0 / float(np.min(costs[known] * rates[known]))  # at which no page is visited
    low = high * 1e-18
    for _ in range(_BISECTIONS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if spent(middle) > budget else (low, middle)
    return high


def _expected_changes(worth: Floats) -> Floats:
    """The r at which 1 - (1 + r) exp(-r) is `worth`, by the lower branch of the Lambert W function."""
    from scipy.special import lambertw  # half a second to import, only for crawls with revisits

    inside = -(1.0 - np.clip(worth, _NEAR_BRANCH, 1.0 - 1e-15)) / math.e
    exact = -1.0 - np.real(lambertw(inside, k=-1))
    # Near its branch point the function loses half of its digits; a series of three terms is enough there.
    root = np.sqrt(2.0 * worth)
    return np.where(worth < _NEAR_BRANCH, root * (1.0 + root * (1.0 / 3.0 + root * (11.0 / 72.0))), exact)


_STEPS_PER_OCTAVE = 2
_INTERVALS_PER_OCTAVE = 8
_BEYOND = 4.0
"""How far the grid of rates extends beyond the rates that the allowed intervals can resolve, as a factor."""
_OPEN_MINDED = 0.1
"""The share of the prior that is uniform, so that no rate is excluded."""
_BELIEF_FADE = 0.02
_RATE_STEPS = 50
UNKNOWN = -1


class Beliefs:
    """The posterior distribution of a page's change rate, and what one more visit gains under it.

    Pages are classified by the estimate of Cho and Garcia-Molina. But after few visits many rates are
    possible: a page that had changed each time may change daily or hourly. So the gain of a visit is computed
    with a distribution over a grid of rates: the likelihood of the visits times the share of pages that have
    the rate.
    """

    def __init__(self, shortest_s: Seconds, longest_s: Seconds) -> None:
        octaves = (math.log2(1 / (_BEYOND * longest_s)), math.log2(_BEYOND / shortest_s))
        self.rates: Floats = np.exp2(np.arange(*octaves, 1 / _STEPS_PER_OCTAVE))
        count = max(2, math.ceil(_INTERVALS_PER_OCTAVE * math.log2(longest_s / shortest_s)) + 1)
        self._intervals_s: Floats = np.geomspace(shortest_s, longest_s, count)
        expected = np.outer(self.rates, self._intervals_s)
        self._gain: Floats = (1.0 - (1.0 + expected) * np.exp(-expected)) / self.rates[:, None]
        """The gain of one more visit per second, by rate (rows) and interval (columns)."""
        flat = np.full(len(self.rates), 1.0 / len(self.rates))
        self._prior: Floats = flat
        self._typical: Floats = np.tile(flat, (len(self.rates) + 1, 1))
        """The typical distribution of the pages in each class; the last row is for unknown pages."""
        self._is_met = np.zeros(len(self.rates) + 1, dtype=bool)

    def posterior(self, history: bytes) -> Floats:
        """The posterior probability of each rate for a page with this history."""
        visits = visits_of(history)
        if not visits:
            return self._prior
        changed = np.array([interval_s for interval_s, is_changed in visits if is_changed])
        total_s = sum(interval_s for interval_s, _ in visits)
        likelihood = -self.rates * (total_s - float(changed.sum()))
        if len(changed):
            seen = -np.expm1(-np.outer(self.rates, changed))
            likelihood = likelihood + np.log(seen).sum(axis=1)
        belief: Floats = np.exp(likelihood - likelihood.max()) * self._prior
        belief /= belief.sum()
        return belief

    def step_of(self, history: bytes) -> int:
        """The class in which a page with this history is counted."""
        visits = visits_of(history)
        rate = change_rate(visits)
        if rate is None:
            return UNKNOWN
        # A page never seen to change is known only not to have changed in the time observed.
        rate = rate or BIAS / sum(interval_s for interval_s, _ in visits)
        octaves = math.log2(rate / self.rates[0])
        return min(max(0, round(_STEPS_PER_OCTAVE * octaves)), len(self.rates) - 1)

    def observe(self, step: int, belief: Floats) -> None:
        """Move the typical distribution of this class towards that of one of its pages."""
        weight = _BELIEF_FADE if self._is_met[step] else 1.0
        self._typical[step] += weight * (belief - self._typical[step])
        self._is_met[step] = True

    def learn_from(self, pages: dict[int, int]) -> None:
        """Estimate the prior, how common each rate is, from the number of pages in each class."""
        if not pages.keys() - {UNKNOWN}:
            return
        common = sum(count * self._typical[step] for step, count in pages.items() if step != UNKNOWN)
        flat = _OPEN_MINDED / len(self.rates)
        self._prior = (1.0 - _OPEN_MINDED) * common / np.sum(common) + flat
        self._typical[UNKNOWN] = self._prior

    def interval_s(self, belief: Floats, price: float) -> float:
        """The interval at which one more visit gains just its price; the longest one if no visit gains that
        much."""
        gain = belief @ self._gain
        return float(np.interp(price, gain, self._intervals_s))

    def price_within(self, pages: dict[tuple[int, float], int], budget: float) -> float:
        """The price per unit of cost at which the visits to all pages cost just `budget` per second.

        `pages` says how many pages there are of each class and cost per visit (bytes, or 1 to count visits).
        The price is zero if all pages can be visited as often as is allowed, and so high that no page is
        visited if the budget does not even cover visits at the longest interval.
        """
        if not pages or not math.isfinite(budget):
            return 0.0
        costs = np.array([cost for _, cost in pages])
        counts = np.array(list(pages.values()), dtype=np.float64)
        gains = self._typical[[step for step, _ in pages]] @ self._gain / costs[:, None]

        def spent(price: float) -> float:
            places = np.minimum((gains < price).sum(axis=1), len(self._intervals_s) - 1)
            return float(np.sum(counts * costs / self._intervals_s[places]))

        if spent(0.0) <= budget:
            return 0.0
        high = float(gains.max()) * 2.0
        low = max(float(gains.min()), high * 1e-18) / 2.0
        for _ in range(_RATE_STEPS):
            middle = math.sqrt(low * high)
            low, high = (middle, high) if spent(middle) > budget else (low, middle)
        return high


FIRST_LOOKS = (1 / 32, 1 / 8, 1 / 2)
"""The first visits to a new page, as fractions of the usual interval. They separate pages that change in
hours from those that change in days; with a single interval, all that change within it look the same."""
_PRICED_FOR_S = 3600.0
_NEW_VISIT_BYTES = 20_000.0
_FADE = 0.1
_GROWTH = 2.0
"""Growth of the interval of a page that never changed, if visits cost nothing."""
_BYTES_OF_ONE_VISIT = 4


class RevisitPolicy(Protocol):
    def next_at(self, now: Instant, site: Site, visit_bytes: int, history: bytes) -> Instant | None:
        """When to visit a page again that was just visited; `history` has its visits. None: never."""
        ...

    @property
    def longest_s(self) -> float:
        """The longest interval between two visits to a page."""
        ...

    def spare(self, now: Instant, bytes_per_s: BytesPerSecond) -> None:
        """Set the bandwidth that the sites with deadlines leave unused."""
        ...

    def learn(self, site: Site, history: bytes) -> None:
        """Count a page known from earlier visits, so that it gets its share of the budget."""
        ...

    def forget(self, site: Site) -> None:
        """Stop counting a site: another collector visits it from now on, with its own budget."""
        ...

    def work_beside(self, collectors: int) -> None:
        """Set how many collectors, including this one, share the budget of the crawl."""
        ...


_MOST_LATER = 4.0
"""A page may put off its next visit to so many times the interval that the crawl would choose."""


def not_while_fresh(now: Instant, at: Instant, fresh_s: float | None, policy: RevisitPolicy) -> Instant:
    """When to visit a page that says it stays as it is for `fresh_s`: later, but within limits, since many
    servers name the same long time for all they have. No page is visited earlier than the crawl wants."""
    if fresh_s is None:
        return at
    wanted_s = at - now
    most_s = max(wanted_s, min(_MOST_LATER * wanted_s, policy.longest_s))
    return Instant(now + min(max(wanted_s, fresh_s), most_s))


class FixedRevisit(msgspec.Struct, frozen=True):
    every_s: Seconds

    @property
    def longest_s(self) -> float:
        return math.inf

    def next_at(self, now: Instant, site: Site, visit_bytes: int, history: bytes) -> Instant | None:
        return Instant(now + self.every_s)

    def spare(self, now: Instant, bytes_per_s: BytesPerSecond) -> None:
        """Not used: the interval is fixed."""

    def learn(self, site: Site, history: bytes) -> None:
        """Not used: the interval is fixed."""

    def forget(self, site: Site) -> None:
        """Not used: no state is kept per site."""

    def work_beside(self, collectors: int) -> None:
        """Not used: there is no budget."""


class _SiteTally:
    __slots__ = ("pages", "price", "priced_at", "visit_bytes")

    def __init__(self) -> None:
        self.pages: Counter[int] = Counter()
        """By class of change rate (`Beliefs.step_of`)."""
        self.visit_bytes = _NEW_VISIT_BYTES
        self.price = 0.0
        self.priced_at = -math.inf

    def take_out(self, step: int) -> None:
        """Remove a page of the class, or of the nearest one: the class changes as old visits are dropped."""
        if self.pages:
            nearest = min(self.pages, key=lambda each: abs(each - step))
            self.pages[nearest] -= 1
            if not self.pages[nearest]:
                del self.pages[nearest]


class AdaptiveRevisit:
    def __init__(
        self,
        *,
        every_s: Seconds = Seconds(86400.0),
        shortest_s: Seconds = Seconds(3600.0),
        longest_s: Seconds = Seconds(30 * 86400.0),
        visits_per_s: float = math.inf,
        bytes_per_s: BytesPerSecond = UNBOUNDED,
    ) -> None:
        """`every_s` is the usual interval, for pages with few visits. `visits_per_s` is the limit of each
        site, `bytes_per_s` the limit of all sites together, even if more bandwidth is left."""
        self._every_s = every_s
        self._shortest_s = shortest_s
        self._longest_s = longest_s
        self._visits_per_s = visits_per_s
        self._bytes_per_s_of_all = bytes_per_s
        self._most_bytes_per_s = bytes_per_s
        self._left_bytes_per_s = UNBOUNDED
        self._beliefs = Beliefs(shortest_s, longest_s)
        self._sites: dict[Site, _SiteTally] = {}
        self._price = 0.0
        self._round_s = 0.0
        """How long one visit to every page occupies the link."""
        self._priced_at = -math.inf

    def spare(self, now: Instant, bytes_per_s: BytesPerSecond) -> None:
        self._left_bytes_per_s = bytes_per_s

    def learn(self, site: Site, history: bytes) -> None:
        tally = self._tally(site)
        self._count(tally, history)
        tally.priced_at = self._priced_at = -math.inf

    def forget(self, site: Site) -> None:
        self._sites.pop(site, None)
        self._priced_at = -math.inf

    def work_beside(self, collectors: int) -> None:
        self._priced_at = -math.inf
        # Equal shares, although the sites differ: the sum is right without any communication.
        self._most_bytes_per_s = BytesPerSecond(self._bytes_per_s_of_all / max(1, collectors))

    @property
    def longest_s(self) -> float:
        return self._longest_s

    def next_at(self, now: Instant, site: Site, visit_bytes: int, history: bytes) -> Instant | None:
        tally = self._tally(site)
        if history:
            tally.take_out(self._beliefs.step_of(history[:-_BYTES_OF_ONE_VISIT]))
        belief = self._count(tally, history)
        tally.visit_bytes += _FADE * (visit_bytes - tally.visit_bytes)
        wanted_s = self._interval_s(now, tally, history, belief)
        return Instant(now + min(max(wanted_s, self._shortest_s), self._longest_s))

    def _count(self, tally: _SiteTally, history: bytes) -> Floats:
        step, belief = self._beliefs.step_of(history), self._beliefs.posterior(history)
        tally.pages[step] += 1
        if step != UNKNOWN:
            self._beliefs.observe(step, belief)
        return belief

    def _interval_s(self, now: Instant, tally: _SiteTally, history: bytes, belief: Floats) -> float:
        price = self._price_of(now, tally)
        visits = visits_of(history)
        if len(visits) < len(FIRST_LOOKS):
            return FIRST_LOOKS[len(visits)] * self._usual_s(tally)
        if price == 0.0:
            is_steady = not any(is_changed for _, is_changed in visits)
            return _GROWTH * visits[-1][0] if is_steady else self._shortest_s
        return self._beliefs.interval_s(belief, price)

    def _usual_s(self, tally: _SiteTally) -> float:
        """The interval at which all pages could be visited equally often."""
        return max(self._every_s, self._round_s, tally.pages.total() / self._visits_per_s)

    def _price_of(self, now: Instant, tally: _SiteTally) -> float:
        """The price of a visit: its bytes at the link's price, plus one request at the site's price."""
        if now >= self._priced_at + _PRICED_FOR_S:
            self._priced_at = now
            self._price_link()
        if now >= tally.priced_at + _PRICED_FOR_S:
            tally.priced_at = now
            pages = {(step, 1.0): count for step, count in tally.pages.items()}
            tally.price = self._beliefs.price_within(pages, self._visits_per_s)
        return self._price * tally.visit_bytes + tally.price

    def _price_link(self) -> None:
        together: Counter[tuple[int, float]] = Counter()
        by_step: Counter[int] = Counter()
        for tally in self._sites.values():
            # Rounded to a power of two to limit the number of different sizes.
            visit_bytes = 2.0 ** round(math.log2(max(1.0, tally.visit_bytes)))
            for step, count in tally.pages.items():
                together[step, visit_bytes] += count
                by_step[step] += count
        self._beliefs.learn_from(by_step)
        spare_bytes_per_s = min(self._left_bytes_per_s, self._most_bytes_per_s)
        self._price = self._beliefs.price_within(together, spare_bytes_per_s)
        round_bytes = sum(count * visit_bytes for (_, visit_bytes), count in together.items())
        self._round_s = round_bytes / max(spare_bytes_per_s, 1e-9)

    def _tally(self, site: Site) -> _SiteTally:
        tally = self._sites.get(site)
        if tally is None:
            tally = self._sites[site] = _SiteTally()
        return tally
