"""How often a page may change, given what visits saw, and what one more visit would gain by that.

Pages are classed by the estimate of Cho and Garcia-Molina. But a few visits leave many rates possible: a page
that had changed each time may change daily or hourly. So what a visit gains is reckoned with a belief: each
rate of a grid, with the likelihood that the visits give it times the share of pages that have it.
"""

from __future__ import annotations

import math

import numpy as np

from headway.policy.freshness import BIAS, Floats, change_rate, visits_of
from headway.units import Seconds

_STEPS_PER_OCTAVE = 2
_INTERVALS_PER_OCTAVE = 8
_BEYOND = 4.0
"""How much slower and faster pages may be than any visits could follow."""
_OPEN_MINDED = 0.1
"""The part of the prior that any rate has, however rare it seems to be."""
_FADE = 0.02
_STEPS = 50
UNKNOWN = -1


class Beliefs:
    def __init__(self, shortest_s: Seconds, longest_s: Seconds) -> None:
        octaves = (math.log2(1 / (_BEYOND * longest_s)), math.log2(_BEYOND / shortest_s))
        self.rates: Floats = np.exp2(np.arange(*octaves, 1 / _STEPS_PER_OCTAVE))
        count = max(2, math.ceil(_INTERVALS_PER_OCTAVE * math.log2(longest_s / shortest_s)) + 1)
        self._intervals_s: Floats = np.geomspace(shortest_s, longest_s, count)
        expected = np.outer(self.rates, self._intervals_s)
        self._gain: Floats = (1.0 - (1.0 + expected) * np.exp(-expected)) / self.rates[:, None]
        """Of one more visit a second to a page of that rate, at that interval."""
        flat = np.full(len(self.rates), 1.0 / len(self.rates))
        self._prior: Floats = flat
        self._typical: Floats = np.tile(flat, (len(self.rates) + 1, 1))
        """What is believed of a page in each step; in the last, of one that nothing is known of."""
        self._is_met = np.zeros(len(self.rates) + 1, dtype=bool)

    def about(self, history: bytes) -> Floats:
        """The share that each rate has in what is believed of a page with this history."""
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
        """The class of pages that one with this history is tallied in."""
        visits = visits_of(history)
        rate = change_rate(visits)
        if rate is None:
            return UNKNOWN
        # Of a page never seen to change it is known only that it does not do so within the time it was seen.
        rate = rate or BIAS / sum(interval_s for interval_s, _ in visits)
        octaves = math.log2(rate / self.rates[0])
        return min(max(0, round(_STEPS_PER_OCTAVE * octaves)), len(self.rates) - 1)

    def met(self, step: int, belief: Floats) -> None:
        """A page of this class is believed to be like that; so are, for now, others of it."""
        weight = _FADE if self._is_met[step] else 1.0
        self._typical[step] += weight * (belief - self._typical[step])
        self._is_met[step] = True

    def learn_from(self, pages: dict[int, int]) -> None:
        """So many pages are in each class: how common each rate is follows from it."""
        if not pages.keys() - {UNKNOWN}:
            return
        common = sum(count * self._typical[step] for step, count in pages.items() if step != UNKNOWN)
        flat = _OPEN_MINDED / len(self.rates)
        self._prior = (1.0 - _OPEN_MINDED) * common / np.sum(common) + flat
        self._typical[UNKNOWN] = self._prior

    def interval_s(self, belief: Floats, price: float) -> float:
        """At which one more visit would gain just its price; the longest where none gains so much."""
        gain = belief @ self._gain
        return float(np.interp(price, gain, self._intervals_s))

    def price_within(self, pages: dict[tuple[int, float], int], budget: float) -> float:
        """The price of a unit of cost at which visits to all these pages cost just the budget a second.

        `pages` says how many there are of each class and cost a visit (bytes, or 1 to count visits). Zero
        when all can be visited as often as is allowed; so high that nobody is when not even rare visits can
        be paid.
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
        for _ in range(_STEPS):
            middle = math.sqrt(low * high)
            low, high = (middle, high) if spent(middle) > budget else (low, middle)
        return high
