"""Allocation policies of users: functions from the sites with their data and deadlines to rates.

The function is called when a site is added or ends, when a deadline or the link changes, and at least once a
second. The same function serves the live crawl, `headway plan` and simulations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from headway import plugins
from headway.errors import HeadwayError, JobError
from headway.model.page import Site
from headway.planning.allocator import Allocation, Allocator, SiteDemand
from headway.planning.baselines import Seats
from headway.planning.problem import LATE_TOLERANCE, FloatArray, Problem, Schedule, Timetable
from headway.units import FOREVER, BytesPerSecond, Instant, Seconds

OWN = "headway"
_OVER = 1e-6
"""A relative excess of the sum of rates over the link that counts as rounding."""
_LEFT_OVER = 1e-9


class AllocationPolicy(Protocol):
    """Divides the link among the sites. `problem` has the sites in columns, and the current capacity."""

    def __call__(self, problem: Problem) -> Sequence[float] | FloatArray:
        """The rate of each site in bytes per second, in the order of `problem.names`. A site with rate 0
        waits."""
        ...


class UserPolicy:
    """A user's policy with checked results. Raises PluginError if the policy fails or returns invalid
    rates."""

    def __init__(self, inner: Callable[[Problem], Any], name: str) -> None:
        self.name = name
        self._inner = inner

    def __call__(self, problem: Problem) -> FloatArray:
        try:
            rates = np.array(self._inner(problem), dtype=np.float64)
            _check(rates, problem)
        except (Exception, SystemExit) as failure:
            doing = f"dividing the link among {len(problem)} sites"
            raise plugins.failure(f"the policy {self.name}", doing, failure) from failure
        return np.minimum(rates, problem.cap_bytes_per_s)

    def schedule(self, problem: Problem, actual: FloatArray | None) -> Schedule:
        """The schedule of following the policy to the end. `actual` is the real size of the sites."""
        seats = Seats(problem, actual)
        now_s, sites = 0.0, seats.next_sites(problem.crawlers)
        while sites:
            link, change_s = problem.capacity.at(now_s), problem.capacity.next_change_s(now_s)
            if link > 0:
                seen = replace(seats.seen_at(now_s, sites), capacity=Timetable.constant(link))
                rates = self(seen)
            else:
                rates = np.zeros(len(sites))
            left = seats.left[np.array(sites)]
            lasts_s = np.divide(left, rates, out=np.full(len(sites), math.inf), where=rates > 0)
            until_s = min(now_s + float(lasts_s.min()), change_s)
            if not math.isfinite(until_s):
                raise plugins.PluginError(
                    f"the policy {self.name} gives every site a rate of 0, so the crawl would never end"
                )
            for site, rate in zip(sites, rates.tolist(), strict=True):
                if rate > 0:
                    seats.download(site, now_s, until_s, rate)
            sites = [site for site in sites if seats.left[site] > _LEFT_OVER * problem.data_bytes[site]]
            sites += seats.next_sites(problem.crawlers - len(sites))
            now_s = until_s
        return seats.schedule()


class UserAllocator(Allocator):
    """An allocator that uses a user's policy. Failures are handled as in `UserOrdering`."""

    def __init__(self, policy: UserPolicy, crawlers: int | None = None) -> None:
        """`crawlers`: how many sites it divides the link among at once; None: all."""
        super().__init__(seats=crawlers)
        self.problem: HeadwayError | None = None
        self._policy = policy
        self._open: frozenset[Site] = frozenset()

    def decide(
        self,
        now: Instant,
        demands: Sequence[SiteDemand],
        capacity: Timetable,
        *,
        at_least_s: Seconds = Seconds(0.0),
    ) -> Allocation:
        wanting = self._served([each for each in demands if each.remaining_bytes > 0 < each.cap_bytes_per_s])
        link = capacity.at(0.0)
        if not wanting or link <= 0:
            return Allocation({}, Instant(now + capacity.next_change_s(0.0)), {}, ())
        caps = np.array([each.cap_bytes_per_s for each in wanting])
        left = np.array([each.remaining_bytes for each in wanting])
        due_s = np.array(
            [math.inf if each.deadline_at is None else each.deadline_at - now for each in wanting]
        )
        problem = Problem(
            names=[each.site for each in wanting],
            data_bytes=left,
            deadline_s=due_s,
            cap_bytes_per_s=caps,
            weight=np.array([each.weight for each in wanting]),
            capacity=Timetable.constant(link),
            crawlers=len(wanting),
        )
        rates = self._rates(problem)
        ends_s = np.divide(left, rates, out=np.full(len(wanting), math.inf), where=rates > 0)
        # A waiting site gets the link after those that are served, at the latest when all others are done.
        ends_s = np.where(rates > 0, ends_s, float(left.sum()) / link + ends_s[rates > 0].min(initial=0.0))
        late = ends_s > due_s + LATE_TOLERANCE * np.maximum(ends_s, 1.0)
        until_s = max(min(float(ends_s.min()), capacity.next_change_s(0.0)), float(at_least_s))
        return Allocation(
            rates={
                each.site: BytesPerSecond(rate)
                for each, rate in zip(wanting, rates.tolist(), strict=True)
                if rate > 0
            },
            decide_again_at=Instant(min(now + until_s, FOREVER)),
            forecast={
                each.site: Instant(now + end_s) for each, end_s in zip(wanting, ends_s.tolist(), strict=True)
            },
            late=tuple(wanting[number].site for number in np.flatnonzero(late).tolist()),
        )

    def _served(self, wanting: list[SiteDemand]) -> list[SiteDemand]:
        """At most as many sites as there are crawlers: the open ones, then by deadline."""
        if self._seats is not None and len(wanting) > self._seats:
            others = by_deadline(each for each in wanting if each.site not in self._open)
            wanting = [each for each in wanting if each.site in self._open] + others
            wanting = wanting[: self._seats]
        self._open = frozenset(each.site for each in wanting)
        return wanting

    def _rates(self, problem: Problem) -> FloatArray:
        if self.problem is None:
            try:
                return self._policy(problem)
            except HeadwayError as failure:
                self.problem = failure
        return np.minimum(problem.cap_bytes_per_s, problem.bandwidth_bytes_per_s / len(problem))


def make_policy(name: str) -> UserPolicy:
    """The policy at a dotted path. JobError if it is not a function of one problem."""
    what = "an allocation policy"
    made = plugins.make(name, is_made=plugins.is_function, what=what)
    try:
        plugins.check_method(made, "__call__", ("problem",), what)
    except JobError as problem:
        raise JobError(f"{name!r} cannot be used: {problem}") from None
    return UserPolicy(made, name)


def by_deadline(demands: Iterable[SiteDemand]) -> list[SiteDemand]:
    """The earliest deadline first, sites without one last."""
    return sorted(demands, key=lambda each: FOREVER if each.deadline_at is None else each.deadline_at)


def _check(rates: FloatArray, problem: Problem) -> None:
    if rates.shape != (len(problem),):
        raise ValueError(f"it returned rates of shape {rates.shape} for {len(problem)} sites")
    if not (np.all(np.isfinite(rates)) and np.all(rates >= 0)):
        number = int(np.flatnonzero(~(np.isfinite(rates) & (rates >= 0)))[0])
        raise ValueError(f"it returned {rates[number]} for {problem.names[number]}; a rate must be 0 or more")
    link, together = problem.bandwidth_bytes_per_s, float(np.minimum(rates, problem.cap_bytes_per_s).sum())
    if together > link * (1 + _OVER):
        raise ValueError(f"its rates add up to {together:.0f} bytes/s, but the link has {link:.0f}")
