"""The steward of the link: which site gets which share, when each will end, and which will be late.

It turns the books into demands (data left, the most that the site can give, deadline, weight), lets the
allocation decide, and says when to look again: when a share would change, or after a while, since what is
known of the sites grows. Nothing here touches the link; the machine hands the shares on as an order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headway.crawl.bound import LinkBound
from headway.crawl.ledger import Ledger, SiteBook
from headway.frontier.frontier import Frontier
from headway.frontier.room import Room
from headway.model.command import Foresee
from headway.model.page import Site
from headway.policy.allocation.allocator import Allocation, Allocator, SiteDemand, advise
from headway.policy.allocation.capacity import Timetable as Capacity
from headway.policy.estimate import (
    Evidence,
    cap_bytes_per_s,
    forecast_range,
    page_bytes,
    remaining_bytes,
)
from headway.policy.politeness import Politeness
from headway.policy.timetable import Segment
from headway.units import FOREVER, BytesPerSecond, Instant, Seconds

_LOOK_AGAIN_S = 1.0
_SITES_A_SECOND = 2000
"""Looking at many sites takes time, so it is done less often: once a second for each so many."""
_HORIZON_S = Seconds(14 * 86400.0)
_NEW_SERVER = BytesPerSecond(1_000_000.0)
_NEW_LATENCY_S = Seconds(0.1)
_SEEN_ENOUGH = 5
_NOTHING = Allocation({}, FOREVER, {}, ())


class Steward:
    def __init__(self, allocator: Allocator, politeness: Politeness) -> None:
        self._allocator = allocator
        self._politeness = politeness
        self._allocation = _NOTHING
        self._demands: list[SiteDemand] = []
        self._capacity: Capacity | None = None
        self._known: dict[Site, tuple[object, SiteDemand]] = {}
        self._told_late: set[Site] = set()
        self._doubtful: set[Site] = set()
        self.next_at = Instant(-FOREVER)
        """When to look again at the latest; `disturb` brings it forward."""

    def disturb(self, now: Instant) -> None:
        """Something has changed that shares hang on: a site came or ended, or the capacity did."""
        self.next_at = now

    def allocate(
        self, now: Instant, ledger: Ledger, frontier: Frontier, bound: LinkBound
    ) -> dict[Site, BytesPerSecond] | None:
        """The shares from now on, or None when they stay as they are."""
        before = self._allocation.rates
        self._demands = list(self._demanded(ledger, frontier))
        self._capacity = _capacity_ahead(bound.ahead(now, _HORIZON_S))
        pause_s = _LOOK_AGAIN_S * max(1.0, len(self._demands) / _SITES_A_SECOND)
        self._allocation = self._allocator.decide(
            now, self._demands, self._capacity, at_least_s=Seconds(pause_s / 10)
        )
        self.next_at = min(self._allocation.decide_again_at, Instant(now + pause_s))
        return None if _alike(before, self._allocation.rates) else self._allocation.rates

    def news(self, now: Instant, ledger: Ledger) -> list[Foresee]:
        """Deadlines that will be missed and were not known to be, and those that can be met after all.

        A verdict counts once it has come out the same way twice, and not before something of the site is
        known: the first guesses are about a site of which not a page has been seen.
        """
        late = {site for site in self._allocation.late if ledger.book(site).answers >= _SEEN_ENOUGH}
        confirmed = {site for site in late ^ self._told_late if site in self._doubtful}
        self._doubtful = (late ^ self._told_late) - confirmed
        if not confirmed:
            return []
        advice = advise(now, self._demands, self._capacity) if self._capacity is not None else None
        needed = advice.bandwidth_bytes_per_s if advice is not None else None
        told = []
        for site in sorted(confirmed):
            deadline_at = ledger.book(site).task.deadline_at
            forecast_at = self._allocation.forecast.get(site, now)
            if deadline_at is not None:
                is_late = site in late
                told.append(Foresee(site, deadline_at, forecast_at, is_late, needed if is_late else None))
        self._told_late ^= confirmed
        return told

    def latest_start_of(self, book: SiteBook, frontier: Frontier) -> Instant:
        """The instant at which a site's remaining data needs all the time that is left to its deadline."""
        if book.task.deadline_at is None:
            return FOREVER
        demand = self._demand(book, frontier.room(book.site))
        return Instant(book.task.deadline_at - demand.remaining_bytes / demand.cap_bytes_per_s)

    def range_of(self, now: Instant, book: SiteBook, frontier: Frontier) -> tuple[Instant, Instant] | None:
        """Between which instants a site will probably end."""
        end_at = self._allocation.forecast.get(book.site)
        if end_at is None:
            return None
        return forecast_range(now, end_at, remaining_bytes(_evidence(book, frontier.room(book.site))))

    def _demanded(self, ledger: Ledger, frontier: Frontier) -> Iterator[SiteDemand]:
        for room in frontier.rooms():
            if room.waiting or room.busy:
                yield self._demand(ledger.book(room.site), room)

    def _demand(self, book: SiteBook, room: Room) -> SiteDemand:
        """Reckoned anew only when something of the site has changed: most have not, most of the time."""
        stamp = (book.answers, room.waiting, book.in_flight, book.task, book.rules)
        known = self._known.get(book.site)
        if known is not None and known[0] == stamp:
            return known[1]
        evidence = _evidence(book, room)
        # A page under way is worth a page's bytes, even when none waits behind it.
        left = remaining_bytes(evidence).guarded() + book.in_flight * page_bytes(evidence)
        cap = self._cap(book, page_bytes(evidence))
        demand = SiteDemand(book.site, left, book.task.deadline_at, cap, book.task.weight)
        self._known[book.site] = (stamp, demand)
        return demand

    def _cap(self, book: SiteBook, size_bytes: float) -> BytesPerSecond:
        """The most that the site can give: its own speed, less the pauses that manners ask for."""
        is_known = bool(book.wire_bytes and book.transfer_s)
        delay_s = book.rules.crawl_delay_s if book.rules is not None else None
        cap = cap_bytes_per_s(
            size_bytes,
            pause_s=self._politeness.pause_s(delay_s),
            pages_per_connection=1 if delay_s else self._politeness.pages_per_connection,
            # What a page took from request to end has the latency in it.
            latency_s=Seconds(0.0) if is_known else _NEW_LATENCY_S,
            server_rate_bytes_per_s=(
                BytesPerSecond(book.wire_bytes / book.transfer_s) if is_known else _NEW_SERVER
            ),
        )
        return cap if book.task.cap_bytes_per_s is None else min(cap, book.task.cap_bytes_per_s)


def _evidence(book: SiteBook, room: Room) -> Evidence:
    task = book.task
    return Evidence(
        book.answers,
        book.wire_bytes,
        room.waiting,
        book.links_seen,
        book.links_new,
        0,
        task.expected_bytes,
        task.max_pages,
        task.max_bytes,
    )


def _capacity_ahead(segments: Sequence[Segment]) -> Capacity:
    steps = [(float(from_s), float(rate)) for from_s, _, rate in segments]
    if not any(rate for _, rate in steps[-1:]):
        # Some day the link is free again; the allocation needs to see that day.
        steps.append((float(segments[-1][1]), max(rate for _, rate in steps) or 1.0))
    return Capacity(steps)


def _alike(before: dict[Site, BytesPerSecond], after: dict[Site, BytesPerSecond]) -> bool:
    """Whether two allocations differ by less than anybody would notice."""
    if before.keys() != after.keys():
        return False
    return all(abs(after[site] - rate) <= 0.01 * rate for site, rate in before.items())
