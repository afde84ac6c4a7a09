"""Which site of a spider gets which part of the link, and when each will be done.

zhu2020's constant rates, reckoned anew as the spider goes on: from what is left of each site, the most that
it can give, its deadline and its weight. Without deadlines or wishes all sites have the same claim; what one
does not use the pacer lends to the others at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from headway.model.page import Site
from headway.policy.allocation.constant import m_maxt, m_stet, m_sumt
from headway.policy.allocation.problem import Objective, Problem
from headway.policy.estimate import cap_bytes_per_s, page_bytes, remaining_bytes
from headway.policy.prediction import Prediction
from headway.scrapy.settings import LinkSettings
from headway.scrapy.tally import SiteTally
from headway.units import FOREVER, BytesPerSecond, Instant, Seconds

_MARGIN = 0.1
"""Of the time left to a deadline, kept in hand: what a plan is made from is never exact."""
_TURN_S = 0.02
_POLICIES = {Objective.SUM_COMPLETION: m_sumt, Objective.TARDINESS: m_stet}
_NOTICED = 0.1
"""A share that moves by less is left as it is: every change makes connections fit themselves anew."""


class Sharing:
    def __init__(self, settings: LinkSettings, prediction: Prediction) -> None:
        self._settings = settings
        self._prediction = prediction
        self._allocate = _POLICIES.get(settings.objective, m_maxt)
        self._has_wishes = bool(settings.sites) or settings.deadline_at is not None
        self._rates: dict[Site, BytesPerSecond] = {}
        self._ends_at: dict[Site, Instant] = {}

    def decide(
        self, now: Instant, tallies: Iterable[SiteTally], capacity_bytes_per_s: BytesPerSecond
    ) -> dict[Site, BytesPerSecond] | None:
        """Claims from now on; None when they stay as they are."""
        busy = [tally for tally in tallies if tally.is_busy]
        if not busy or not 0 < capacity_bytes_per_s < math.inf:
            self._ends_at = {}
            return None
        left = np.array([self._left_bytes(tally) for tally in busy])
        due_s = np.array([self._due_s(now, tally.site) for tally in busy])
        caps = np.array([min(self._cap(now, tally), capacity_bytes_per_s) for tally in busy])
        weights = np.array([self._settings.wish_for(tally.site).weight for tally in busy])
        # A site without a deadline has its part by its data; its weight makes that part larger.
        problem = Problem.of(
            np.where(np.isfinite(due_s), left, left * weights),
            capacity_bytes_per_s,
            deadline_s=due_s,
            cap_bytes_per_s=caps,
        )
        rates = self._allocate(problem)
        ends_s = left / np.maximum(rates, 1.0)
        self._ends_at = {
            tally.site: Instant(now + end_s) for tally, end_s in zip(busy, ends_s.tolist(), strict=True)
        }
        if not self._has_wishes:
            return None
        found = {tally.site: BytesPerSecond(rate) for tally, rate in zip(busy, rates.tolist(), strict=True)}
        if _alike(self._rates, found):
            return None
        self._rates = found
        return found

    def ends_at(self) -> Instant | None:
        """When the last site will be done, as far as is known; None when nothing is to come."""
        return max(self._ends_at.values(), default=None)

    def late(self) -> tuple[Site, ...]:
        """Sites foreseen to miss their deadline."""
        return tuple(
            site for site, end_at in self._ends_at.items() if end_at > (self.deadline_of(site) or FOREVER)
        )

    def deadline_of(self, site: Site) -> Instant | None:
        return self._settings.wish_for(site).deadline_at or self._settings.deadline_at

    def _left_bytes(self, tally: SiteTally) -> float:
        evidence = tally.evidence(self._settings.wish_for(tally.site).data_bytes)
        return max(remaining_bytes(evidence).guarded() + tally.in_flight * page_bytes(evidence), 1.0)

    def _due_s(self, now: Instant, site: Site) -> float:
        deadline_at = self.deadline_of(site)
        if deadline_at is None or deadline_at <= now:
            return math.inf  # what is late already gets its part like the others
        return (1 - _MARGIN) * (deadline_at - now)

    def _cap(self, now: Instant, tally: SiteTally) -> float:
        """The most that the site can give to all requests that may be under way together."""
        size_bytes = page_bytes(tally.evidence(None))
        one = cap_bytes_per_s(
            size_bytes,
            pause_s=Seconds(0.0),
            latency_s=Seconds(_TURN_S),
            server_rate_bytes_per_s=self._prediction.predict(now, tally.server),
        )
        delay_s = self._settings.delay_s
        return max(1.0, min(one * self._settings.lanes, size_bytes / delay_s if delay_s > 0 else math.inf))


def _alike(before: dict[Site, BytesPerSecond], after: dict[Site, BytesPerSecond]) -> bool:
    if before.keys() != after.keys():
        return False
    return all(abs(after[site] - rate) <= _NOTICED * rate for site, rate in before.items())
