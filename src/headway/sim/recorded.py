"""The servers of a recorded run: how they answered, apart from what our own bound and our own work added.

Delays and turnarounds are drawn with replacement from the site's own. Rates are log-normal; an answer that
our bound held back says only that the server is no slower, so they are fitted as censored values (a Tobit
model). Fitted to the whole durations instead, the pacing of the recorded run would be taken for the
servers' own.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from headway.sim.web import Answering, Floats, Numbers, Servers
from headway.store.rows import AnswerTiming

_FASTEST_BYTES_PER_S = 1e9
_SHORTEST_S = 1e-5
_LEAST_FREE = 3
_ROUNDS = 60
_MOST_DEVIATION = 1.5
_DRAWN_AT_ONCE = 512


def fit_rates(rates: Floats, is_limited: NDArray[np.bool_]) -> tuple[float, float]:
    """Mean and deviation of the logarithm of log-normal rates, of which the limited ones are known to be no
    lower; by expectation and maximisation. With too few others only the best rate is known, and twice that
    is taken."""
    from scipy.special import (
        log_ndtr,
    )  # importing it takes a third of a second, which a crawl need not wait for

    seen = np.log(np.maximum(rates, 1.0))
    free, bound = seen[~is_limited], seen[is_limited]
    if len(free) < _LEAST_FREE:
        return math.log(2.0) + float(seen.max()), 0.0
    mean, deviation = float(seen.mean()), max(float(seen.std()), 0.05)
    for _ in range(_ROUNDS if len(bound) else 1):
        z = (bound - mean) / deviation
        hazard = np.exp(-0.5 * z * z - 0.5 * math.log(2 * math.pi) - log_ndtr(-z))
        likely = mean + deviation * hazard
        variance = deviation**2 * np.maximum(1.0 + z * hazard - hazard**2, 0.0)
        mean = float(np.concatenate((free, likely)).mean())
        squares = np.concatenate(((free - mean) ** 2, (likely - mean) ** 2 + variance))
        deviation = min(max(math.sqrt(float(squares.mean())), 1e-3), _MOST_DEVIATION)
    return mean, deviation


class RecordedServers:
    """A server for each site of a recorded run, which answers as it did then (`sim.web.ServerModel`)."""

    def __init__(
        self,
        site_of: Numbers,
        sizes: NDArray[np.int64],
        timings: Sequence[AnswerTiming | None],
        usual: Servers,
        seed: int,
    ) -> None:
        """`usual`: for sites without measured answers."""
        self._sites = [_Recorded(usual, site) for site in range(len(usual))]
        self._chance = np.random.default_rng([seed, 0x9C])
        by_site: dict[int, list[tuple[int, AnswerTiming]]] = {}
        for site, size, timing in zip(site_of.tolist(), sizes.tolist(), timings, strict=True):
            if timing is not None:
                by_site.setdefault(site, []).append((size, timing))
        for site, answers in by_site.items():
            self._sites[site].fit(answers)
        kept = [timing.is_kept for answers in by_site.values() for _, timing in answers]
        self.keeps_connections = not kept or sum(kept) >= len(kept) / 2
        """Whether most requests found their connection open."""

    def __len__(self) -> int:
        return len(self._sites)

    def answering(self, now: float, site: int) -> Answering:
        return self._sites[site].draw(self._chance)

    def constant(self) -> Servers:
        """The mean of each server, for simulations without chance."""
        columns = zip(*(site.mean() for site in self._sites), strict=True)
        connect, first_byte, rate = (np.array(column) for column in columns)
        return Servers(connect, first_byte, rate)

    def only(self, sites: NDArray[np.int64]) -> RecordedServers:
        part = copy.copy(self)
        part._sites = [self._sites[site] for site in sites.tolist()]  # noqa: SLF001  a copy of this object
        return part


class _Recorded:
    """The answers of one server, and its law of rates."""

    def __init__(self, usual: Servers, site: int) -> None:
        whole = usual.answering(0.0, site)
        self._connect_s = np.array([whole.connect_s])
        self._first_byte_s = np.array([whole.first_byte_s])
        self._turnaround_s = np.array([0.0])
        self._mean, self._deviation = math.log(whole.rate_bytes_per_s), 0.0
        self._drawn: list[Answering] = []

    def fit(self, answers: Sequence[tuple[int, AnswerTiming]]) -> None:
        timings = [timing for _, timing in answers]
        opened = [timing.connect_s + timing.tls_s for timing in timings if not timing.is_kept]
        if opened:
            self._connect_s = np.array(opened)
        self._first_byte_s = np.array([timing.first_byte_s for timing in timings])
        self._turnaround_s = np.array([timing.turnaround_s for timing in timings])
        sizes = np.array([size for size, _ in answers], dtype=np.float64)
        limited = np.array([timing.is_limited for timing in timings])
        # What arrives during a pause is read at once afterwards, so the pauses belong to a limited transfer.
        length_s = np.array([timing.transfer_s + timing.held_s * timing.is_limited for timing in timings])
        # Nearly all of the time of small answers is delay, which says nothing about the rate.
        large = sizes >= np.median(sizes)
        rates = sizes[large] / np.maximum(length_s[large], _SHORTEST_S)
        self._mean, self._deviation = fit_rates(rates, limited[large])

    def draw(self, chance: np.random.Generator) -> Answering:
        if not self._drawn:
            count = _DRAWN_AT_ONCE
            rates = np.exp(self._mean + self._deviation * chance.standard_normal(count))
            columns = (
                chance.choice(self._connect_s, count).tolist(),
                chance.choice(self._first_byte_s, count).tolist(),
                np.clip(rates, 1.0, _FASTEST_BYTES_PER_S).tolist(),
                chance.choice(self._turnaround_s, count).tolist(),
            )
            self._drawn = [Answering(*row) for row in zip(*columns, strict=True)]
        return self._drawn.pop()

    def mean(self) -> tuple[float, float, float]:
        """Time to connect, time until the first byte with our turnaround, rate."""
        rate = math.exp(self._mean - self._deviation**2 / 2)
        delay_s = float(self._first_byte_s.mean() + self._turnaround_s.mean())
        return float(self._connect_s.mean()), delay_s, min(max(rate, 1.0), _FASTEST_BYTES_PER_S)
