"""What a leader decides each round, from how the fleet stands: shares of the bound, and who gets which site.

The same for every fleet, whoever keeps its books; no I/O.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import msgspec

from headway.crawl.steward import capacity_ahead
from headway.fleet.assignment import Member, Unheld, ask_back, assign, much_nearer
from headway.fleet.coordinator import Report
from headway.fleet.shares import Share, hand_out, lend, newest_of, reserved
from headway.fleet.usage import Usage
from headway.model.page import Site
from headway.policy.allocation.allocator import Allocation, Allocator
from headway.policy.timetable import Timetable
from headway.units import BytesPerSecond, Instant, Seconds

SHARE_S = Seconds(4.0)
_HORIZON_S = Seconds(14 * 86400.0)
_SATURATED = 0.7
"""Who uses so much of its share may have use for more."""
_SECONDS_JUDGED, _ROUNDS_JUDGED = 4, 16
"""A pause is not the end: only who has not used its share for some seconds lends of it."""
_HEADROOM = 1.5
_LEAST_OF_EQUAL = 0.2
_STEADY_S = 8.0
"""The plan serves one site after the other, and what is known of sites grows: from one moment to the next all
of the bound may be planned for another collector. A share follows the mean of the plans over so long."""
_MOVED = 0.03
"""Of the bound: changes that are smaller are not worth the moment in which nobody has what is handed on."""
_HEARD_OF_WITHIN_S = 1.5 * SHARE_S
_LEAST_BYTES_PER_S = 1000.0
_RENEWED_S = 1.0
"""A share that stays the same is renewed so long after it was given."""


_SOON_S = 1.0
"""Longer than it takes to hand sites on: who has pages for less is given more in time."""
_GIVES_S = 0.3
"""Who has pages for less gives nothing back: it would be done before they are handed on."""


class Standing(msgspec.Struct, frozen=True):
    """A collector, as the leader sees it."""

    number: int
    label: str
    report: Report
    taken_share: int
    coming: int = 0
    """Sites given to it that it has not taken up yet."""
    leaving: int = 0
    """Sites asked back that it has not given back yet."""


class Fleet(msgspec.Struct, frozen=True):
    """All that a round is decided by."""

    collectors: Sequence[Standing]
    shares: Sequence[Share]
    """Those of collectors that have gone included, while their time is not over."""
    taken: Mapping[int, int]
    unheld: Sequence[Unheld]
    round_trips_s: Mapping[Site, Mapping[str, float]] = {}
    """Of sites that are held."""


class Orders(msgspec.Struct, frozen=True):
    shares: Sequence[Share] = ()
    assigned: Mapping[int, int] = {}
    """Site to collector."""
    asked_back: Mapping[int, Sequence[Site]] = {}


class Leader:
    """Keeps between rounds only what makes its plans steady; another may take over at any time."""

    def __init__(self, timetable: Timetable, make_allocator: Callable[[], Allocator]) -> None:
        self._usual_timetable = self._timetable = timetable
        self._allocator = make_allocator()
        self._had: dict[int, list[float]] = {}
        """The shares of the last rounds."""
        self._planned: dict[int, float] = {}
        """As parts of the bound, steadied."""
        self._planned_at = -math.inf
        self._wished: dict[int, float] = {}
        self.plan: Allocation | None = None
        """The last for all the sites that are held; None where there is nothing to share out."""
        self.usage = Usage()
        self.left_bytes = math.inf
        """Of the quotas, as whoever keeps the books last knew."""

    def decide(self, now: Instant, fleet: Fleet) -> Orders:
        members = [Member(each.number, each.label, _load(each)) for each in fleet.collectors]
        assigned = assign(fleet.unheld, members)
        # While sites are on their way it is not clear yet who will have too few.
        is_settled = not assigned and not any(each.coming or each.leaving for each in fleet.collectors)
        return Orders(self._shares(now, fleet), assigned, self._moves(fleet, members) if is_settled else {})

    def set_limit(self, limit_bytes_per_s: BytesPerSecond | None) -> None:
        """A person's word counts until taken back with None."""
        limit = limit_bytes_per_s
        self._timetable = self._usual_timetable if limit is None else Timetable(limit)

    def bound_at(self, now: Instant) -> float:
        """The least that holds while a share lasts that is handed out now. Of a quota that runs out no more
        is handed out than can be read before anybody hears of it, so that it is never exceeded."""
        segments = self._timetable.segments(now, SHARE_S)
        bound = min((float(rate) for _, _, rate in segments), default=math.inf)
        safe = self.left_bytes / _HEARD_OF_WITHIN_S
        return min(bound, safe if safe >= _LEAST_BYTES_PER_S else 0.0)

    def _shares(self, now: Instant, fleet: Fleet) -> list[Share]:
        bound = self.bound_at(now)
        until_at = Instant(now + SHARE_S)
        held = reserved(now, fleet.shares, fleet.taken)
        given = hand_out(bound, held, self._steady(bound, self._wishes(now, bound, fleet.collectors)))
        self._remember(given)
        newest = newest_of(fleet.shares)
        return [
            Share(collector, rate, until_at)
            for collector, rate in given.items()
            if collector not in newest
            or newest[collector].rate_bytes_per_s != rate
            or newest[collector].until_at < until_at - _RENEWED_S
        ]

    def _steady(self, bound: float, wishes: dict[int, float]) -> dict[int, float]:
        """The wishes of before, as long as none has changed much."""
        before = self._wished
        if before.keys() == wishes.keys() and all(
            abs(wish - before[collector]) <= _MOVED * bound for collector, wish in wishes.items()
        ):
            return before
        self._wished = wishes
        return wishes

    def _wishes(self, now: Instant, bound: float, collectors: Sequence[Standing]) -> dict[int, float]:
        """What the allocation gives to the sites that each of them holds."""
        demands = [demand for each in collectors for demand in each.report.demands]
        if math.isinf(bound) or not demands:
            self.plan = None
            return {each.number: float(len(each.report.active)) for each in collectors}
        segments = self._timetable.segments(now, _HORIZON_S)
        capacity = capacity_ahead(segments)
        self.plan = self._allocator.decide(now, demands, capacity)
        rates = self.plan.rates
        planned = self._steadied(
            now,
            bound,
            {
                each.number: math.fsum(rates.get(demand.site, 0.0) for demand in each.report.demands)
                for each in collectors
            },
        )
        most = {each.number: self._most_of(each, bound, len(collectors)) for each in collectors}
        least = _LEAST_OF_EQUAL * bound / len(collectors)
        return {
            number: max(wish, least if planned[number] or most[number] else 0.0)
            for number, wish in lend(bound, planned, most).items()
        }

    def _steadied(self, now: Instant, bound: float, planned: Mapping[int, float]) -> dict[int, float]:
        passed_s = max(0.0, now - self._planned_at)
        part = 1.0 if math.isinf(passed_s) else -math.expm1(-passed_s / _STEADY_S)
        self._planned_at = now
        # Who is new begins with the part that everybody would have if all had the same.
        before = {collector: self._planned.get(collector, 1.0 / len(planned)) for collector in planned}
        self._planned = {
            collector: before[collector] + part * (rate / bound - before[collector])
            for collector, rate in planned.items()
        }
        return {collector: share * bound for collector, share in self._planned.items()}

    def _most_of(self, each: Standing, bound: float, members: int) -> float:
        """What a collector can use: all that its sites can give, unless it has not used what it had."""
        able = math.fsum(demand.cap_bytes_per_s for demand in each.report.demands)
        used, had = self.usage.rates_bytes_per_s(each.number), self._had.get(each.number, ())
        if len(used) < _SECONDS_JUDGED or len(had) < _ROUNDS_JUDGED or max(used) > _SATURATED * min(had):
            return able
        return min(able, max(_HEADROOM * max(used), _LEAST_OF_EQUAL * bound / members))

    def _remember(self, given: Mapping[int, float]) -> None:
        self._had = {
            collector: [*self._had.get(collector, ()), float(rate)][-_ROUNDS_JUDGED:]
            for collector, rate in given.items()
        }

    def _moves(self, fleet: Fleet, members: Sequence[Member]) -> dict[int, list[Site]]:
        """Sites to be given back: for who has too little to do, and for who is much nearer."""
        back: dict[int, list[Site]] = {}
        counts = ask_back(members)
        labels = sorted({each.label for each in fleet.collectors})
        for each in fleet.collectors:
            left_s = each.report.left_s
            spare = counts.get(each.number, 0) if left_s is None or left_s > _GIVES_S else 0
            sites = list(each.report.active[:spare])
            sites += [
                site
                for site in each.report.active
                if site in fleet.round_trips_s
                and much_nearer(fleet.round_trips_s[site], each.label, labels) is not None
            ]
            if sites:
                back[each.number] = sites
        return back


def is_soon_done(report: Report) -> bool:
    return report.left_s is not None and report.left_s < _SOON_S


def _load(each: Standing) -> float:
    """Its sites; those that it will be done with in a moment count for the less."""
    left_s = each.report.left_s
    part = 1.0 if left_s is None else min(1.0, left_s / _SOON_S)
    return part * len(each.report.active) + each.coming
