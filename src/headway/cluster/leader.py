"""What a leader decides each round, as a pure function of rows: collectors, shares, sites without a holder.

Both coordinators pass it their rows and carry out its orders: `local` for the worker processes of one
machine, `election` for a fleet on a PostgreSQL server. It decides on the shares of the bound, on the holders
of sites, and on when the crawl may have finished.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise

import msgspec

from headway.cluster.coordinator import Report
from headway.engine.bandwidth import capacity_ahead
from headway.model.page import Site
from headway.planning.allocator import Allocation, Allocator
from headway.policy.timetable import Timetable
from headway.units import BytesPerSecond, Instant, Seconds

SHARE_S = Seconds(4.0)
_HORIZON_S = Seconds(14 * 86400.0)
_SATURATED = 0.7
"""A collector that uses this part of its share may be able to use more."""
_SECONDS_JUDGED, _ROUNDS_JUDGED = 4, 16
"""A pause is not the end: only a collector that has not used its share for this many seconds lends some of
it."""
_HEADROOM = 1.5
_LEAST_OF_EQUAL = 0.2
_STEADY_S = 8.0
"""The time constant with which shares follow the plans. The plan serves one site after the other, and what is
known of sites grows, so from one moment to the next the whole bound may be planned for another collector."""
_MOVED = 0.03
"""Of the bound: smaller changes are not worth the moment in which the transferred rate is unused."""
_BOUNDS_KEPT = 64
"""Stored changes of the bound: more than there are rounds in the seconds that samples are late."""
_HEARD_OF_WITHIN_S = 1.5 * SHARE_S
_LEAST_BYTES_PER_S = 1000.0
_RENEWED_S = 1.0
"""An unchanged share is renewed this long after it was given."""


_SOON_S = 1.0
"""Longer than the transfer of sites takes: a collector with pages for less time gets more in advance."""
_GIVES_S = 0.3
"""A collector with pages for less time returns no sites: it would have fetched them before the transfer."""
_LEAST_PART = 0.05
"""Of an equal share: a collector that has no work yet must be able to begin."""
_BUSIER = 1.25
"""A collector with more than this multiple of the mean gets no more sites, however near it is."""
_IDLE = 0.5
"""A collector with less than this part of the mean gets some sites of the others."""
_MUCH_NEARER = 0.5
_KEPT = 4
_LATE_S = 2
"""A reading is reported at most this long after its second."""


# -- rows ---------------------------------------------------------------------------------------------------


class Share(msgspec.Struct, frozen=True, gc=False):
    collector: int
    rate_bytes_per_s: BytesPerSecond
    until_at: Instant
    number: int = 0
    """Increasing: of two shares of a collector, the one with the greater number is valid once it is taken."""


class Member(msgspec.Struct, frozen=True):
    number: int
    label: str
    load: float
    """Sites held that have waiting pages."""


class Unheld(msgspec.Struct, frozen=True):
    site: int
    round_trips_s: Mapping[str, float] = {}
    """Round trips by the label of the collectors that have measured them."""


class Sample(msgspec.Struct, frozen=True):
    """Of the whole crawl: all bytes received until a second, and the bound in that second."""

    at: Instant
    received_bytes: int
    bound_bytes_per_s: BytesPerSecond


class Standing(msgspec.Struct, frozen=True):
    """A collector: its row, and the numbers of its sites."""

    number: int
    label: str
    report: Report
    taken_share: int
    coming: int = 0
    """Sites assigned to it that it has not taken yet."""
    leaving: int = 0
    """Sites asked back that it has not returned yet."""


class Fleet(msgspec.Struct, frozen=True):
    """The rows on which a round decides."""

    collectors: Sequence[Standing]
    shares: Sequence[Share]
    """Including valid shares of collectors that have left."""
    taken: Mapping[int, int]
    unheld: Sequence[Unheld]
    round_trips_s: Mapping[Site, Mapping[str, float]] = {}
    """Of sites that have a holder."""


class Orders(msgspec.Struct, frozen=True):
    shares: Sequence[Share] = ()
    assigned: Mapping[int, int] = {}
    """The new holder of each site."""
    asked_back: Mapping[int, Sequence[Site]] = {}
    may_end: bool = False
    """No collector has any work. A page in flight still waits in the store, and its links are committed with
    it: if nothing waits there, the crawl has finished."""


class Leader:
    """Between rounds it keeps only what smooths its plans; another leader may take over at any time."""

    def __init__(self, timetable: Timetable, make_allocator: Callable[[], Allocator]) -> None:
        self._usual_timetable = self._timetable = timetable
        self._allocator = make_allocator()
        self._had: dict[int, list[float]] = {}
        """The shares of the last rounds."""
        self._planned: dict[int, float] = {}
        """Smoothed, as parts of the bound."""
        self._planned_at = -math.inf
        self._last_requested: dict[int, float] = {}
        self.plan: Allocation | None = None
        """The last plan for all sites that have a holder; None if there is nothing to divide."""
        self.usage = Usage()
        self._bounds: deque[tuple[Instant, float]] = deque(maxlen=_BOUNDS_KEPT)
        self.left_bytes = math.inf
        """What the quotas have left, as the coordinator last computed it."""

    def decide(self, now: Instant, fleet: Fleet) -> Orders:
        self._note_bound(now)
        members = [Member(each.number, each.label, _load(each)) for each in fleet.collectors]
        assigned = assign(fleet.unheld, members)
        # While sites are being transferred, it is not known which collectors will have too few.
        is_settled = not assigned and not any(each.coming or each.leaving for each in fleet.collectors)
        return Orders(
            self._shares(now, fleet),
            assigned,
            self._moves(fleet, members) if is_settled else {},
            may_end=not any(each.report.active or each.coming for each in fleet.collectors),
        )

    def samples(self, now: Instant, readings: Iterable[tuple[int, int, int]]) -> list[Sample]:
        """Samples of complete seconds that were not returned before. `readings`: for each collector its
        number, a second, and all bytes it had received until then."""
        self.usage.note(readings)
        return [
            Sample(Instant(second), received, BytesPerSecond(self.bound_then(Instant(second))))
            for second, received in self.usage.sums(now)
        ]

    def set_limit(self, limit_bytes_per_s: BytesPerSecond | None) -> None:
        """Set the limit of a person, which holds until it is removed with None."""
        limit = limit_bytes_per_s
        self._timetable = self._usual_timetable if limit is None else self._usual_timetable.with_rate(limit)

    def bound_then(self, at: Instant) -> float:
        """The bound at an instant of the last seconds: samples are written later."""
        known = next((bound for since_at, bound in reversed(self._bounds) if since_at <= at), None)
        return self.bound_at(at) if known is None else known

    def _note_bound(self, now: Instant) -> None:
        bound = self.bound_at(now)
        if not self._bounds or self._bounds[-1][1] != bound:
            self._bounds.append((now, bound))

    def bound_at(self, now: Instant) -> float:
        """The least bound while a share lasts that is given now. Of a quota that runs out, no more is given
        than can be received before the coordinator learns of it, so that the quota is never exceeded."""
        segments = self._timetable.segments(now, SHARE_S)
        bound = min((float(rate) for _, _, rate in segments), default=math.inf)
        safe = self.left_bytes / _HEARD_OF_WITHIN_S
        return min(bound, safe if safe >= _LEAST_BYTES_PER_S else 0.0)

    def _shares(self, now: Instant, fleet: Fleet) -> list[Share]:
        bound = self.bound_at(now)
        until_at = Instant(now + SHARE_S)
        held = reserved(now, fleet.shares, fleet.taken)
        given = divide_bound(bound, held, self._steady(bound, self._requested(now, bound, fleet.collectors)))
        self._remember(given)
        newest = newest_of(fleet.shares)
        return [
            Share(collector, rate, until_at)
            for collector, rate in given.items()
            if collector not in newest
            or newest[collector].rate_bytes_per_s != rate
            or newest[collector].until_at < until_at - _RENEWED_S
        ]

    def _steady(self, bound: float, requested: dict[int, float]) -> dict[int, float]:
        """The previous rates, unless one has changed much."""
        before = self._last_requested
        if before.keys() == requested.keys() and all(
            abs(request - before[collector]) <= _MOVED * bound for collector, request in requested.items()
        ):
            return before
        self._last_requested = requested
        return requested

    def _requested(self, now: Instant, bound: float, collectors: Sequence[Standing]) -> dict[int, float]:
        """The rates that the allocation gives to the sites of each collector."""
        demands = [demand for each in collectors for demand in each.report.demands]
        if math.isinf(bound) or not demands:
            self.plan = None
            return {each.number: float(each.report.active_sites) for each in collectors}
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
            number: max(request, least if planned[number] or most[number] else 0.0)
            for number, request in lend(bound, planned, most).items()
        }

    def _steadied(self, now: Instant, bound: float, planned: Mapping[int, float]) -> dict[int, float]:
        passed_s = max(0.0, now - self._planned_at)
        part = 1.0 if math.isinf(passed_s) else -math.expm1(-passed_s / _STEADY_S)
        self._planned_at = now
        # A new collector begins with an equal part.
        before = {collector: self._planned.get(collector, 1.0 / len(planned)) for collector in planned}
        self._planned = {
            collector: before[collector] + part * (rate / bound - before[collector])
            for collector, rate in planned.items()
        }
        return {collector: share * bound for collector, share in self._planned.items()}

    def _most_of(self, each: Standing, bound: float, members: int) -> float:
        """The most a collector can use: the sum of its sites' caps, unless it has not used its share."""
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
        """Sites to ask back: for collectors with too little work, and for much nearer ones."""
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
    """The number of its sites, weighted by how long they will keep it busy."""
    left_s = each.report.left_s
    part = 1.0 if left_s is None else min(1.0, left_s / _SOON_S)
    return part * each.report.active_sites + each.coming


# -- shares: leases of the bound ----------------------------------------------------------------------------
#
# A share is valid until it expires, whether or not its collector is still there. Its rate is given to another
# collector only then, or when the collector has taken a newer share in its place. So the sum never exceeds
# the bound, whichever collectors join, leave or die, and whichever leads.


def reserved(now: Instant, shares: Iterable[Share], taken: Mapping[int, int]) -> dict[int, float]:
    """The most that each collector may be receiving with its shares; `taken` is the newest that each is known
    to have taken."""
    most: dict[int, float] = {}
    for share in shares:
        if share.until_at > now and share.number >= taken.get(share.collector, 0):
            most[share.collector] = max(most.get(share.collector, 0.0), share.rate_bytes_per_s)
    return most


def newest_of(shares: Iterable[Share]) -> dict[int, Share]:
    newest: dict[int, Share] = {}
    for share in shares:
        if share.collector not in newest or share.number > newest[share.collector].number:
            newest[share.collector] = share
    return newest


def divide_bound(
    bound_bytes_per_s: float, reservations: Mapping[int, float], requested: Mapping[int, float]
) -> dict[int, BytesPerSecond]:
    """The rate of each collector from now on.

    A smaller share is valid at once. A larger one is given only as far as no other collector can be using the
    difference.
    """
    if math.isinf(bound_bytes_per_s):
        return {collector: BytesPerSecond(math.inf) for collector in requested}
    targets = _targets(bound_bytes_per_s, requested)
    free = max(0.0, bound_bytes_per_s - math.fsum(reservations.values()))
    rises = {
        collector: target - reservations.get(collector, 0.0)
        for collector, target in targets.items()
        if target > reservations.get(collector, 0.0)
    }
    wanted = math.fsum(rises.values())
    part = min(1.0, free / wanted) if wanted > 0 else 0.0
    # Rounded down, so that a thousand roundings do not add up to a byte too much.
    return {
        collector: BytesPerSecond(
            _rounded_down(reservations.get(collector, 0.0) + part * rises[collector])
            if collector in rises
            else _rounded_down(target)
        )
        for collector, target in targets.items()
    }


def _rounded_down(rate: float) -> float:
    """Round down to a thousandth, so that on the slowest link every collector still gets something."""
    return math.floor(rate * 1000) / 1000


def lend(
    bound_bytes_per_s: float, planned: Mapping[int, float], most: Mapping[int, float]
) -> dict[int, float]:
    """Rate that is planned for a collector that cannot use it goes to those that can, in proportion to what
    each could still use."""
    requested = {collector: min(rate, most[collector]) for collector, rate in planned.items()}
    left = bound_bytes_per_s - math.fsum(requested.values())
    could = {collector: most[collector] - request for collector, request in requested.items()}
    whole = math.fsum(could.values())
    if left <= 0 or not whole or not math.isfinite(whole):
        return requested
    part = min(1.0, left / whole)
    return {collector: request + part * could[collector] for collector, request in requested.items()}


def _targets(bound_bytes_per_s: float, requested: Mapping[int, float]) -> dict[int, float]:
    """The bound in proportion to the wanted rates. All of it: a collector may grow into what nobody
    wanted."""
    if not requested:
        return {}
    least = _LEAST_PART * bound_bytes_per_s / len(requested)
    raised = {
        collector: min(max(request, least), bound_bytes_per_s) if request == request else least  # noqa: PLR0124 - NaN
        for collector, request in requested.items()
    }
    whole = math.fsum(raised.values())
    if not whole:
        return dict.fromkeys(requested, 0.0)
    return {collector: bound_bytes_per_s * request / whole for collector, request in raised.items()}


# -- holders of sites ---------------------------------------------------------------------------------------
#
# A site goes to the nearest collector that is not busier than the others, and stays there, with its
# connections, its politeness and its order. It moves only when a collector joins that would have no work
# otherwise, or when another place is much nearer.


def assign(sites: Sequence[Unheld], members: Sequence[Member]) -> dict[int, int]:
    """A holder for each site that has none; empty if there is no member."""
    if not members:
        return {}
    loads = {member.number: member.load for member in members}
    chosen: dict[int, int] = {}
    total = sum(loads.values())
    for site in sites:
        total += 1
        limit = max(1.0, _BUSIER * total / len(members))
        able = [member for member in members if loads[member.number] < limit]
        best = min(
            able or members,
            key=lambda member: (_distance(site, member), loads[member.number], member.number),
        )
        chosen[site.site] = best.number
        loads[best.number] += 1
    return chosen


def ask_back(members: Sequence[Member]) -> dict[int, int]:
    """How many sites each collector has to return, so that a collector with hardly any gets its part."""
    if len(members) < 2:
        return {}
    mean = sum(member.load for member in members) / len(members)
    missing = int(sum(int(mean) - member.load for member in members if member.load < _IDLE * mean))
    asked: dict[int, int] = {}
    for member in sorted(members, key=lambda member: (-member.load, member.number)):
        spare = min(missing, int(member.load - mean))
        if spare > 0:
            asked[member.number] = spare
            missing -= spare
    return asked


def much_nearer(round_trips_s: Mapping[str, float], label: str, labels: Sequence[str]) -> str | None:
    """Another place from which the round trip is less than half as long, if there is one."""
    here = round_trips_s.get(label)
    there = [(round_trips_s[other], other) for other in labels if other in round_trips_s and other != label]
    if here is None or not there:
        return None
    nearest_s, nearest = min(there)
    return nearest if nearest_s < _MUCH_NEARER * here else None


def _distance(site: Unheld, member: Member) -> float:
    """The round trip measured from its place; without a measurement, the median of the other places."""
    known = site.round_trips_s
    if member.label in known or not known:
        return known.get(member.label, 0.0)
    return sorted(known.values())[len(known) // 2]


# -- what the fleet has received ----------------------------------------------------------------------------


class Usage:
    """The readings of all collectors. A new leader knows only their last ones, so its sums begin with the
    second of its first round: for an earlier second, bytes of collectors that are known later would be
    missing, and the next sum would show them as received within that second."""

    def __init__(self) -> None:
        self._readings: dict[int, dict[int, int]] = {}
        self._summed = 0
        self._is_begun = False

    def note(self, readings: Iterable[tuple[int, int, int]]) -> None:
        """Collector, second, bytes until then."""
        for collector, second, received in readings:
            known = self._readings.setdefault(collector, {})
            known[second] = received
            while len(known) > _LATE_S + _KEPT + 1:
                del known[min(known)]

    def sums(self, now: Instant) -> list[tuple[int, int]]:
        """Complete seconds that were not returned before, with all bytes received until then."""
        last = int(now) - _LATE_S
        if not self._is_begun:
            self._is_begun, self._summed = True, int(now) - 1
        first = max(self._summed + 1, last - 1)
        found = [
            (second, sum(self._at(each, second) for each in self._readings))
            for second in range(first, last + 1)
        ]
        self._summed = max(self._summed, last)
        return found

    def rates_bytes_per_s(self, collector: int) -> list[float]:
        """The rates in the last few known seconds."""
        known = sorted(self._readings.get(collector, {}).items())
        return [(after - before) / (last - first) for (first, before), (last, after) in pairwise(known)][
            -_KEPT:
        ]

    def _at(self, collector: int, second: int) -> int:
        known = self._readings[collector]
        earlier = [each for each in known if each <= second]
        return known[max(earlier)] if earlier else 0
