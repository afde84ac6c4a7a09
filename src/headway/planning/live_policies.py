"""Every policy as an allocator: what a crawl, a simulation, a fleet and `headway run-scrapy` follow.

`make_allocator` makes it by name. headway's own policy is `Allocator`, a user's is `UserAllocator`. The
policies of the papers are followed by `RoundAllocator`: constant rates, in rounds if there are fewer crawlers
than sites, as `planning.baselines` computes them in advance for `headway plan`.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from headway.errors import HeadwayError
from headway.model.page import Site
from headway.planning.allocator import Allocation, Allocator, SiteDemand
from headway.planning.policies import OWN, PUBLISHED, Rounds, UserAllocator, by_deadline, make_policy
from headway.planning.problem import LATE_TOLERANCE, FloatArray, Objective, Problem, Timetable
from headway.plugins import is_reference
from headway.units import FOREVER, BytesPerSecond, Instant, Seconds

DEADLINE_MARGIN = 0.055
"""Part of the time to each deadline that is kept in reserve, if all deadlines can be met with it: a policy of
constant rates may end a site exactly at its deadline. A pacer stays 1.5% below a rate, and no crawl follows a
plan exactly."""

_MOST_LIMITED = 5.0
"""Rates are limits for so many times the time that the link needs for all data at most: a search that looks
at deadlines alone may leave a site without one next to nothing."""


def make_allocator(policy: str, objective: Objective, crawlers: int | None = None) -> Allocator:
    """The allocator of a crawl with this policy. `crawlers`: how many sites get a rate at once; None: all."""
    if policy == OWN:
        return Allocator(objective, seats=crawlers)
    if is_reference(policy):
        return UserAllocator(make_policy(policy), crawlers)
    return RoundAllocator(policy, objective, crawlers)


class RoundAllocator(Allocator):
    """Follows a policy of the papers while the crawl runs.

    The sites of a round share the link at constant rates. When a site ends, its rate passes to the waiting
    site with the earliest deadline. All rates are computed again when the round is over, when the link or a
    deadline changes, and when a site is added for which no rate is free.
    """

    takes_doubt = False

    def __init__(self, policy: str, objective: Objective, crawlers: int | None = None) -> None:
        super().__init__(objective, seats=crawlers)
        self.problem: HeadwayError | None = None
        """Why the policy cannot divide the link. The crawl stops with it."""
        self._policy = PUBLISHED[policy]
        if policy == "de":
            import scipy.optimize  # noqa: F401 - it takes a second to load, which would be the crawl's first
        self._rounds_begun = 0
        self._open: dict[Site, float] = {}
        """The sites that are crawled, with their rates."""
        self._free: dict[Site, float] = {}
        """Sites that have ended, with the rates that no other site has taken."""
        self._first: frozenset[Site] = frozenset()
        """The sites with which the round began."""
        self._round_ends_at = FOREVER
        self._link_bytes_per_s = 0.0
        self._due_at: dict[Site, Instant | None] = {}

    def decide(
        self,
        now: Instant,
        demands: Sequence[SiteDemand],
        capacity: Timetable,
        *,
        at_least_s: Seconds = Seconds(0.0),
    ) -> Allocation:
        wanting = {each.site: each for each in demands if each.remaining_bytes > 0 < each.cap_bytes_per_s}
        # A constant rate has to fit under the lowest bound to come. If the link will be closed at some time,
        # the rates fit under the bound of now, and are computed again when it changes.
        link = capacity.least or capacity.at(0.0)
        if not wanting or link <= 0:
            self._open, self._free = {}, {}
            return Allocation({}, Instant(min(now + capacity.next_change_s(0.0), FOREVER)), {}, ())
        begins = self._has_changed(wanting, link) or not self._continue_round(now, wanting)
        if begins:
            self._begin_round(now, wanting, link)
        rates = {
            site: BytesPerSecond(min(rate, wanting[site].cap_bytes_per_s))
            for site, rate in self._open.items()
            if rate > 0
        }
        ends_at = self._ends_at(now, wanting, rates)
        if begins:
            # What sites hold beyond the expectation does not have to wait for their rates.
            whole_s = sum(each.remaining_bytes for each in wanting.values()) / link
            self.limits_until = min(max(ends_at.values()), Instant(now + _MOST_LIMITED * whole_s))
        end_at = min((ends_at[site] for site in rates), default=FOREVER)
        change_at = min(end_at, self._round_ends_at, now + capacity.next_change_s(0.0))
        return Allocation(
            rates=rates,
            decide_again_at=Instant(min(max(change_at, now + at_least_s), FOREVER)),
            forecast=ends_at,
            late=tuple(
                site
                for site, end_at in ends_at.items()
                if (due_at := wanting[site].deadline_at) is not None
                and end_at - due_at > LATE_TOLERANCE * max(end_at - now, 1.0)
            ),
        )

    def _has_changed(self, wanting: dict[Site, SiteDemand], link: float) -> bool:
        """Whether the link or the deadline of a site is another than at the beginning of the round."""
        due_at = self._due_at
        return abs(link - self._link_bytes_per_s) > LATE_TOLERANCE * link or any(
            due_at.setdefault(site, demand.deadline_at) != demand.deadline_at
            for site, demand in wanting.items()
        )

    def _continue_round(self, now: Instant, wanting: dict[Site, SiteDemand]) -> bool:
        """Pass on the rates of the sites that have ended. False if the round is over."""
        rounds, opened, free = self._policy.rounds, self._open, self._free
        for site in [site for site in opened if site not in wanting]:
            free[site] = opened.pop(site)
        for site in [site for site in free if site in wanting]:
            opened[site] = free.pop(site)  # more of its pages were found at its end
        if now >= self._round_ends_at or (rounds is not Rounds.NONE and self._first.isdisjoint(wanting)):
            return False
        if rounds is Rounds.BATCHES:
            return True
        waiting = by_deadline(each for each in wanting.values() if each.site not in opened)
        for demand, ended in zip(waiting, sorted(free, key=lambda site: -free[site]), strict=False):
            opened[demand.site] = free.pop(ended)
        if len(opened) < min(len(wanting), self._seats or len(wanting)):
            return False  # a site was added, and there is a crawler for it
        return not (free and rounds is Rounds.ALWAYS)

    def _begin_round(self, now: Instant, wanting: dict[Site, SiteDemand], link: float) -> None:
        crawlers = self._seats or len(wanting)
        chosen = list(wanting.values())
        if len(wanting) > crawlers:
            # No site is interrupted, since a crawler works on it.
            kept = [wanting[site] for site in self._open if site in wanting]
            kept += by_deadline(each for each in wanting.values() if each.site not in self._open)
            chosen = kept[:crawlers]
        columns = zip(
            *((each.remaining_bytes, each.cap_bytes_per_s, each.weight) for each in chosen), strict=True
        )
        data_bytes, caps, weights = (np.array(column, dtype=np.float64) for column in columns)
        problem = Problem(
            names=[each.site for each in chosen],
            data_bytes=data_bytes,
            deadline_s=np.array(
                [math.inf if each.deadline_at is None else each.deadline_at - now for each in chosen]
            ),
            cap_bytes_per_s=caps,
            weight=weights,
            capacity=Timetable.constant(link),
            crawlers=len(chosen),
        )
        rates = self._rates(problem)
        self._rounds_begun += 1
        self._open = dict(zip((each.site for each in chosen), rates.tolist(), strict=True))
        self._free = {}
        self._first = frozenset(self._open)
        self._link_bytes_per_s = link
        self._due_at = {site: demand.deadline_at for site, demand in wanting.items()}
        rounds = self._policy.rounds
        ends_by_time = rounds is Rounds.ALWAYS or (rounds is Rounds.IF_NEEDED and len(wanting) > crawlers)
        lasts_s = float((problem.data_bytes / np.maximum(rates, 1e-9)).max())
        self._round_ends_at = Instant(min(now + lasts_s, FOREVER)) if ends_by_time else FOREVER

    def _rates(self, problem: Problem) -> FloatArray:
        due_s = problem.deadline_s
        earlier = replace(problem, deadline_s=np.where(due_s > 0, (1 - DEADLINE_MARGIN) * due_s, due_s))
        if self.problem is None:
            try:
                rates = self._allocate(earlier)
                if np.all(problem.data_bytes <= earlier.deadline_s * rates * (1 + LATE_TOLERANCE)):
                    return rates
                return self._allocate(problem)
            except HeadwayError as failure:
                self.problem = failure
        return np.minimum(problem.cap_bytes_per_s, problem.bandwidth_bytes_per_s / len(problem))

    def _allocate(self, problem: Problem) -> FloatArray:
        chance = np.random.default_rng(self._rounds_begun)
        return self._policy.choose(self._objective, chance)(problem)

    def _ends_at(
        self, now: Instant, wanting: dict[Site, SiteDemand], rates: dict[Site, BytesPerSecond]
    ) -> dict[Site, Instant]:
        """When each site ends if rates are only passed on."""
        ends_at = {
            site: Instant(min(now + wanting[site].remaining_bytes / rate, FOREVER))
            for site, rate in rates.items()
        }
        if len(ends_at) == len(wanting):
            return ends_at
        crawlers = [
            (end_at, number, self._open[site]) for number, (site, end_at) in enumerate(ends_at.items())
        ]
        heapq.heapify(crawlers)
        for demand in by_deadline(each for each in wanting.values() if each.site not in ends_at):
            if not crawlers:
                ends_at[demand.site] = FOREVER
                continue
            free_at, number, rate = crawlers[0]
            lasts_s = demand.remaining_bytes / min(rate, demand.cap_bytes_per_s)
            ends_at[demand.site] = Instant(min(free_at + lasts_s, FOREVER))
            heapq.heapreplace(crawlers, (ends_at[demand.site], number, rate))
        return ends_at
