"""Several processes of one crawl that yield behind the same link.

Each process has a controller of its own, and each controller stands for the whole crawl: all see the same
queue at the same time, so that they decide nearly alike. A few times a second they tell each other what they
do, and agree on the rate and on the part that each takes of it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from headway.policy.yielding import USED_FROM, QueueDelay, Yield
from headway.units import BytesPerSecond, Instant

_HEARD_S = 2.0
"""A process that has said nothing for so long is not counted."""
_SETTLES_S = 0.3
"""What a process says within this time of our own cut was said without knowing of it."""
_LEAST_CLAIM = 0.1
"""Of what a process that uses nothing is entitled to, so that it can begin."""


class LinkUse(msgspec.Struct, frozen=True):
    """What one of the processes behind a link does."""

    at: float
    """By the clock that all of them follow."""
    bound_bytes_per_s: float
    """Its share of the bound."""
    rate_bytes_per_s: float
    """What its controller lets all processes receive together."""
    pace_bytes_per_s: float
    """Its own part of that."""
    delivered_bytes_per_s: float
    queue_s: float | None
    is_starting: bool

    def claim(self, all_bounds_bytes_per_s: float) -> float:
        """Its weight among the processes: its share of the bound, or less if it does not use its part."""
        if self.delivered_bytes_per_s >= USED_FROM * self.pace_bytes_per_s:
            return self.bound_bytes_per_s
        due = self.rate_bytes_per_s * self.bound_bytes_per_s / max(all_bounds_bytes_per_s, 1.0)
        used = self.delivered_bytes_per_s / max(USED_FROM * due, 1.0)
        return self.bound_bytes_per_s * min(1.0, max(_LEAST_CLAIM, used))


class Companions:
    """The other processes behind the link, as they last reported."""

    def __init__(self) -> None:
        self._uses: list[LinkUse] = []

    def hear(self, uses: Sequence[LinkUse]) -> None:
        self._uses = list(uses)

    def at(self, now: Instant) -> list[LinkUse]:
        """`now`: by the clock that all of them follow."""
        return [use for use in self._uses if abs(now - use.at) < _HEARD_S]

    def bound_bytes_per_s(self, now: Instant) -> float:
        return sum(use.bound_bytes_per_s for use in self.at(now))

    def delivered_bytes_per_s(self, now: Instant, rate_bytes_per_s: float) -> float:
        """What arrives for them, if they have followed when the common rate fell."""
        return sum(
            use.delivered_bytes_per_s * min(1.0, rate_bytes_per_s / max(use.rate_bytes_per_s, 1.0))
            for use in self.at(now)
        )

    def queue_s(self, now: Instant) -> float | None:
        """The wait as the last of them to measure it has seen it."""
        measured = [(use.at, use.queue_s) for use in self.at(now) if use.queue_s is not None]
        return max(measured)[1] if measured else None

    def part(self, now: Instant, own: LinkUse) -> float:
        """The part of the common rate that is our own."""
        others = self.at(now)
        bounds = own.bound_bytes_per_s + sum(use.bound_bytes_per_s for use in others)
        claims = sum(use.claim(bounds) for use in others)
        mine = own.claim(bounds)
        return mine / (mine + claims) if mine > 0.0 else 0.0

    def agreed(self, now: Instant, own: LinkUse, since_cut_s: float) -> float | None:
        """The rate for all: the mean of what they say, by what arrives for each. None: keep our own."""
        known = [use for use in self.at(now) if now - use.at < since_cut_s - _SETTLES_S]
        if not known:
            return None
        known.append(own)
        arrives = sum(use.delivered_bytes_per_s for use in known)
        if arrives <= 0.0:
            return None
        return sum(use.delivered_bytes_per_s * use.rate_bytes_per_s for use in known) / arrives

    def have_started(self, now: Instant) -> bool:
        """Whether one of them has found the rate of the link."""
        return any(not use.is_starting for use in self.at(now))


class GroupYield:
    """The controller of one process, in agreement with those of the others."""

    def __init__(self, bound_bytes_per_s: BytesPerSecond, start_bytes_per_s: float | None = None) -> None:
        self.control = Yield(bound_bytes_per_s, start_bytes_per_s=start_bytes_per_s)
        self._bound = bound_bytes_per_s
        self._others = Companions()
        self._others_bound = 0.0
        self._ahead_s = 0.0
        """The clock that all processes follow, less our own."""
        self._part = 1.0
        self._own_bytes_per_s = 0.0
        self.delivered_bytes_per_s = 0.0
        """What arrives over the link, for all processes."""

    @property
    def pace_bytes_per_s(self) -> float:
        """At which this process may receive."""
        return self._part * self.control.rate_bytes_per_s

    def set_bound(self, bound_bytes_per_s: BytesPerSecond) -> None:
        """The share of the bound that this process has."""
        self._bound = bound_bytes_per_s
        self.control.set_bound(BytesPerSecond(bound_bytes_per_s + self._others_bound))

    def step(
        self, now: Instant, delay: QueueDelay, delivered_bytes_per_s: float, *, has_lost: bool = False
    ) -> None:
        """As `Yield.step`; `delivered_bytes_per_s` is what arrives for this process."""
        there = Instant(now + self._ahead_s)
        others = self._others.delivered_bytes_per_s(there, self.control.rate_bytes_per_s)
        self._own_bytes_per_s = delivered_bytes_per_s
        self.delivered_bytes_per_s = delivered_bytes_per_s + others
        self.control.step(
            now,
            delay,
            self.delivered_bytes_per_s,
            has_lost=has_lost,
            elsewhere_s=self._others.queue_s(there),
        )

    def use(self, there: Instant) -> LinkUse:
        """What this process does, for the others. `there`: the time by the clock that all follow."""
        return LinkUse(
            there,
            self._bound,
            self.control.rate_bytes_per_s,
            self.pace_bytes_per_s,
            self._own_bytes_per_s,
            self.control.measured_s,
            self.control.is_starting,
        )

    def hear(self, now: Instant, there: Instant, others: Sequence[LinkUse]) -> None:
        """Agree with the others. `now` and `there`: the time by our own clock, and by that of all."""
        self._ahead_s = there - now
        self._others.hear(others)
        self._others_bound = self._others.bound_bytes_per_s(there)
        self.control.set_bound(BytesPerSecond(self._bound + self._others_bound))
        own = self.use(there)
        self._part = self._others.part(there, own)
        agreed = self._others.agreed(there, own, self.control.since_cut_s(now))
        if agreed is not None:
            self.control.follow(agreed)
        if self._others.have_started(there):
            self.control.end_start()
