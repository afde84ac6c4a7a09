"""When a page is due for another visit: after a fixed time, or when a visit gains the most freshness.

The adaptive policy keeps a tally of how many pages of which change rate there are, from which the price of a
visit follows: the price at which all visits together take just what is left of the link, and those of one
site just their part of the turns that manners leave it. A page then needs to know only the price.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Protocol

import msgspec
import numpy as np

from headway.model.page import Site
from headway.policy.freshness import best_interval_s, change_rate, price_within, visits_of
from headway.units import UNBOUNDED, BytesPerSecond, Instant, Seconds

_STEPS_PER_OCTAVE = 2
_PRICED_FOR_S = 3600.0
_NEW_VISIT_BYTES = 20_000.0
_FADE = 0.1
_MOST_GROWTH = 2.0
"""From one visit to the next: a few quiet visits are no proof that a page never changes."""

_UNKNOWN = -(10**6)


class RevisitPolicy(Protocol):
    def next_at(self, now: Instant, site: Site, visit_bytes: int, history: bytes) -> Instant | None:
        """When to come again to a page just visited, with the visits until now; None: never."""
        ...

    def spare(self, now: Instant, bytes_per_s: BytesPerSecond) -> None:
        """So much of the link is left over by those who have a deadline."""
        ...


class FixedRevisit(msgspec.Struct, frozen=True):
    every_s: Seconds

    def next_at(self, now: Instant, site: Site, visit_bytes: int, history: bytes) -> Instant | None:
        return Instant(now + self.every_s)

    def spare(self, now: Instant, bytes_per_s: BytesPerSecond) -> None:
        """What is left makes no difference."""


class _SiteTally:
    __slots__ = ("pages", "price", "priced_at", "visit_bytes")

    def __init__(self) -> None:
        self.pages: Counter[int] = Counter()
        """By step of change rate."""
        self.visit_bytes = _NEW_VISIT_BYTES
        self.price = 0.0
        self.priced_at = -math.inf


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
        """`every_s` is for pages of which nothing is known yet; `visits_per_s` is for each site, and
        `bytes_per_s` the most for all of them, also when more is left over."""
        self._every_s = every_s
        self._shortest_s = shortest_s
        self._longest_s = longest_s
        self._visits_per_s = visits_per_s
        self._most_bytes_per_s = bytes_per_s
        self._spare_bytes_per_s = bytes_per_s
        self._sites: dict[Site, _SiteTally] = {}
        self._price = 0.0
        self._priced_at = -math.inf

    def spare(self, now: Instant, bytes_per_s: BytesPerSecond) -> None:
        self._spare_bytes_per_s = min(bytes_per_s, self._most_bytes_per_s)

    def learn(self, site: Site, history: bytes) -> None:
        """A page known from before, not visited just now: it takes its part of the budget."""
        self._tally(site).pages[self._step(history)] += 1

    def next_at(self, now: Instant, site: Site, visit_bytes: int, history: bytes) -> Instant | None:
        tally = self._tally(site)
        before = self._step(history[:-4])
        if tally.pages[before] > 0 and history:
            tally.pages[before] -= 1
        tally.pages[self._step(history)] += 1
        tally.visit_bytes += _FADE * (visit_bytes - tally.visit_bytes)
        return Instant(now + self._interval_s(now, tally, history))

    def _interval_s(self, now: Instant, tally: _SiteTally, history: bytes) -> float:
        visits = visits_of(history)
        rate = change_rate(visits)
        if rate is None:
            return self._every_s
        wanted_s = best_interval_s(rate, self._price_of(now, tally))
        wanted_s = min(wanted_s, _MOST_GROWTH * visits[-1][0]) if rate == 0.0 else wanted_s
        return min(max(wanted_s, self._shortest_s), self._longest_s)

    def _price_of(self, now: Instant, tally: _SiteTally) -> float:
        """What a visit to this site must gain: its bytes at the link's price, and its turn at the site's."""
        if now >= self._priced_at + _PRICED_FOR_S:
            self._priced_at = now
            self._price = self._link_price()
        if now >= tally.priced_at + _PRICED_FOR_S:
            tally.priced_at = now
            rates, counts = _arrays(tally.pages, self._every_s)
            tally.price = price_within(
                rates, counts, np.ones_like(rates), self._visits_per_s, self._shortest_s
            )
        return self._price * tally.visit_bytes + tally.price

    def _link_price(self) -> float:
        if not math.isfinite(self._spare_bytes_per_s):
            return 0.0
        together: Counter[tuple[int, int]] = Counter()
        for tally in self._sites.values():
            octave = round(math.log2(max(1.0, tally.visit_bytes)))
            for step, count in tally.pages.items():
                together[step, octave] += count
        steps = np.array([step for step, _ in together], dtype=np.float64)
        counts = np.array(list(together.values()), dtype=np.float64)
        costs = np.exp2([octave for _, octave in together])
        return price_within(
            _rates(steps, self._every_s), counts, costs, self._spare_bytes_per_s, self._shortest_s
        )

    def _tally(self, site: Site) -> _SiteTally:
        tally = self._sites.get(site)
        if tally is None:
            tally = self._sites[site] = _SiteTally()
        return tally

    def _step(self, history: bytes) -> int:
        rate = change_rate(visits_of(history))
        if rate is None:
            return _UNKNOWN
        # A page never seen to change is visited ever more rarely, and then costs as much as a slow one.
        return round(_STEPS_PER_OCTAVE * math.log2(max(rate, 1.0 / self._longest_s)))


def _arrays(pages: Counter[int], every_s: float) -> tuple[np.ndarray, np.ndarray]:
    steps = np.array(list(pages), dtype=np.float64)
    return _rates(steps, every_s), np.array(list(pages.values()), dtype=np.float64)


def _rates(steps: np.ndarray, every_s: float) -> np.ndarray:
    """Of a page that nothing is known of it is assumed that it changes about as often as it is looked at."""
    return np.where(steps == _UNKNOWN, 1.0 / every_s, np.exp2(np.maximum(steps, -200.0) / _STEPS_PER_OCTAVE))
