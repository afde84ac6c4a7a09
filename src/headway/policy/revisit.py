"""When a page is due for another visit: after a fixed time, or when a visit gains the most freshness.

The adaptive policy keeps a tally of how many pages of which kind there are, from which the price of a visit
follows: the price at which all visits together take just what is left of the link, and those of one site just
their part of the turns that manners leave it. A page then needs to know only the price.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Protocol

import msgspec

from headway.model.page import Site
from headway.policy.beliefs import UNKNOWN, Beliefs
from headway.policy.freshness import Floats, visits_of
from headway.units import UNBOUNDED, BytesPerSecond, Instant, Seconds

FIRST_LOOKS = (1 / 32, 1 / 8, 1 / 2)
"""After these parts of the usual time a new page is visited, which tells what changes in hours from what
changes in days; pages visited at one interval alone cannot be told apart once they change within it."""
_PRICED_FOR_S = 3600.0
_NEW_VISIT_BYTES = 20_000.0
_FADE = 0.1
_GROWTH = 2.0
"""From one visit to the next of a page that never changed, where visits cost nothing."""
_BYTES_OF_ONE_VISIT = 4


class RevisitPolicy(Protocol):
    def next_at(self, now: Instant, site: Site, visit_bytes: int, history: bytes) -> Instant | None:
        """When to come again to a page just visited, with the visits until now; None: never."""
        ...

    def spare(self, now: Instant, bytes_per_s: BytesPerSecond) -> None:
        """So much of the link is left over by those who have a deadline."""
        ...

    def learn(self, site: Site, history: bytes) -> None:
        """A page known from before, not visited just now: it takes its part of the budget."""
        ...

    def forget(self, site: Site) -> None:
        """Somebody else visits this site from now on, out of another budget."""
        ...

    def work_beside(self, collectors: int) -> None:
        """So many, with this one, have the crawl's budget together."""
        ...


class FixedRevisit(msgspec.Struct, frozen=True):
    every_s: Seconds

    def next_at(self, now: Instant, site: Site, visit_bytes: int, history: bytes) -> Instant | None:
        return Instant(now + self.every_s)

    def spare(self, now: Instant, bytes_per_s: BytesPerSecond) -> None:
        """What is left makes no difference."""

    def learn(self, site: Site, history: bytes) -> None:
        """Nor does what a page was like."""

    def forget(self, site: Site) -> None:
        """Nothing is known of any site."""

    def work_beside(self, collectors: int) -> None:
        """There is no budget to share."""


class _SiteTally:
    __slots__ = ("pages", "price", "priced_at", "visit_bytes")

    def __init__(self) -> None:
        self.pages: Counter[int] = Counter()
        """By class of what is believed of their change rate."""
        self.visit_bytes = _NEW_VISIT_BYTES
        self.price = 0.0
        self.priced_at = -math.inf

    def take_out(self, step: int) -> None:
        """One page of the class, or of that nearest: a page's oldest visits are forgotten, its class too."""
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
        """`every_s` is for pages of which little is known yet; `visits_per_s` is for each site, and
        `bytes_per_s` the most for all of them, also when more is left over."""
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
        """What one visit to every page takes of the link."""
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
        # Equal parts, though their sites are not equal: so the sum is right without anybody being asked.
        self._most_bytes_per_s = BytesPerSecond(self._bytes_per_s_of_all / max(1, collectors))

    def next_at(self, now: Instant, site: Site, visit_bytes: int, history: bytes) -> Instant | None:
        tally = self._tally(site)
        if history:
            tally.take_out(self._beliefs.step_of(history[:-_BYTES_OF_ONE_VISIT]))
        belief = self._count(tally, history)
        tally.visit_bytes += _FADE * (visit_bytes - tally.visit_bytes)
        wanted_s = self._interval_s(now, tally, history, belief)
        return Instant(now + min(max(wanted_s, self._shortest_s), self._longest_s))

    def _count(self, tally: _SiteTally, history: bytes) -> Floats:
        step, belief = self._beliefs.step_of(history), self._beliefs.about(history)
        tally.pages[step] += 1
        if step != UNKNOWN:
            self._beliefs.met(step, belief)
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
        """The interval at which all pages could be visited alike."""
        return max(self._every_s, self._round_s, tally.pages.total() / self._visits_per_s)

    def _price_of(self, now: Instant, tally: _SiteTally) -> float:
        """What a visit to this site must gain: its bytes at the link's price, and its turn at the site's."""
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
            # To the next power of two: sites are many, and their sizes need not be told apart further.
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
