"""The steward of the link: which site gets which share, when each will end, and which will be late.

It turns the books into demands (data left, the most that the site can give, deadline, weight), lets the
allocation decide, and says when to look again: when a share would change, or after a while, since what is
known of the sites grows. Nothing here touches the link; the machine hands the shares on as an order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set

from msgspec import structs

from headway.crawl.bound import LinkBound
from headway.crawl.ledger import Ledger, SiteBook
from headway.frontier.frontier import Frontier
from headway.frontier.room import Room
from headway.model.command import Foresee
from headway.model.outcome import Outcome
from headway.model.page import Site
from headway.policy.allocation.allocator import Allocation, Allocator, SiteDemand, advise
from headway.policy.allocation.capacity import Timetable as Capacity
from headway.policy.estimate import (
    PRIOR_PAGE_BYTES,
    Evidence,
    Remaining,
    cap_bytes_per_s,
    forecast_range,
    page_bytes,
    remaining_bytes,
)
from headway.policy.politeness import Politeness
from headway.policy.prediction import Prediction
from headway.policy.timetable import Segment
from headway.units import FOREVER, UNBOUNDED, BytesPerSecond, Instant, Seconds

_LOOK_AGAIN_S = 1.0
_SITES_A_SECOND = 2000
"""Looking at many sites takes time, so it is done less often: once a second for each so many."""
_HORIZON_S = Seconds(14 * 86400.0)
_ALL_IT_CAN = 0.95
_TURN_S = Seconds(0.02)
"""What a page waits for its turn on a busy link, even where its site comes first."""
_HELD_BACK = 0.1
"""A download that waited longer for the link than this part of its time had a small receive window as well,
and shows only that the server is no slower."""
_SEEN_ENOUGH = 10
_TIMES_IN_A_ROW = 3
_MARGINS = (0.4, 0.25, 0.1)
"""Parts of the time that is left to a deadline, to be kept in hand: the largest that the link allows."""
_NOTHING = Allocation({}, FOREVER, {}, ())


class Steward:
    def __init__(self, allocator: Allocator, politeness: Politeness, prediction: Prediction) -> None:
        self._allocator = allocator
        self._politeness = politeness
        self.prediction = prediction
        self._allocation = _NOTHING
        self._demands: list[SiteDemand] = []
        self._capacity: Capacity | None = None
        self._known: dict[Site, tuple[object, SiteDemand, Remaining]] = {}
        self._most_bytes_per_s = UNBOUNDED
        self._claims: dict[Site, BytesPerSecond] = {}
        self._told_late: set[Site] = set()
        self._doubtful: dict[Site, int] = {}
        self.next_at = Instant(-FOREVER)
        """When to look again at the latest; `disturb` brings it forward."""

    def disturb(self, now: Instant) -> None:
        """Something has changed that shares hang on: a site came or ended, or the capacity did."""
        self.next_at = now

    def restore(self, servers: Sequence[tuple[str, bytes]]) -> None:
        self.prediction.restore(servers)

    def learn(self, now: Instant, book: SiteBook, outcome: Outcome) -> None:
        """Take in how fast a server was. Where our own share set the pace, it may be faster than that."""
        if not (outcome.peer and outcome.wire_bytes and outcome.duration_s > 0):
            return
        book.server = _server_of(outcome.peer, book.site)
        own_s = max(outcome.duration_s - outcome.held_s, 1e-6)
        held_back = outcome.waited_s + outcome.held_s > _HELD_BACK * outcome.duration_s
        rate = BytesPerSecond(outcome.wire_bytes / own_s)
        self.prediction.learn(now, book.server, rate, held_back=held_back)

    def learnt(self) -> tuple[tuple[str, bytes], ...]:
        """What is new of servers, to be kept."""
        return tuple(self.prediction.changed_rows())

    def allocate(
        self, now: Instant, ledger: Ledger, frontier: Frontier, bound: LinkBound
    ) -> dict[Site, BytesPerSecond] | None:
        """The shares from now on, or None when they stay as they are."""
        before = self._claims
        self._most_bytes_per_s = bound.capacity_bytes_per_s
        self._demands = list(self._demanded(now, ledger, frontier))
        self._capacity = capacity_ahead(bound.ahead(now, _HORIZON_S))
        pause_s = _LOOK_AGAIN_S * max(1.0, len(self._demands) / _SITES_A_SECOND)
        demands = self._with_time_to_spare(now, bound.capacity_bytes_per_s)
        self._allocation = self._allocator.decide(
            now, demands, self._capacity, at_least_s=Seconds(pause_s / 10)
        )
        self.next_at = min(self._allocation.decide_again_at, Instant(now + pause_s))
        self._claims = self._claims_of(ledger, bound.capacity_bytes_per_s)
        return None if _alike(before, self._claims) else self._claims

    def spare_bytes_per_s(self, ledger: Ledger, capacity_bytes_per_s: BytesPerSecond) -> BytesPerSecond:
        """What those with a deadline leave of the link."""
        rates = self._allocation.rates.items()
        taken = sum(rate for site, rate in rates if ledger.book(site).task.deadline_at is not None)
        return BytesPerSecond(max(0.0, capacity_bytes_per_s - taken))

    def _claims_of(self, ledger: Ledger, capacity_bytes_per_s: BytesPerSecond) -> dict[Site, BytesPerSecond]:
        """What each site must be able to read while it reads, so that it has its rate over time.

        A polite site pauses after every page and lends its share meanwhile, so its pages have to come faster
        than its rate: a page of S bytes with a pause of p has the rate r when S / x + p = S / r. A site that
        is to have all that it can take is not held back at all; it holds itself back.
        """
        claims = {}
        caps = {demand.site: demand.cap_bytes_per_s for demand in self._demands}
        for site, rate in self._allocation.rates.items():
            book = ledger.book(site)
            if rate >= _ALL_IT_CAN * caps[site]:
                claims[site] = capacity_bytes_per_s
                continue
            size = max(1.0, book.wire_bytes / book.answers) if book.answers else PRIOR_PAGE_BYTES
            reading = 1 - rate * self._pause_s(book) / size
            claim = rate / reading if reading > 0 else capacity_bytes_per_s
            claims[site] = BytesPerSecond(min(claim, capacity_bytes_per_s))
        return claims

    def _with_time_to_spare(self, now: Instant, capacity_bytes_per_s: BytesPerSecond) -> list[SiteDemand]:
        """The demands with their deadlines drawn nearer, as far as the link allows.

        A plan that is exact leaves each site until the last moment at which it can still be met, and what it
        is made from is never exact. What is not needed of the margin comes back as the deadline nears.
        """
        assert self._capacity is not None
        for margin in _MARGINS:
            nearer = [
                demand
                if demand.deadline_at is None or demand.deadline_at <= now
                else structs.replace(
                    demand, deadline_at=Instant(demand.deadline_at - margin * (demand.deadline_at - now))
                )
                for demand in self._demands
            ]
            needed = advise(now, nearer, self._capacity).bandwidth_bytes_per_s
            if needed is not None and needed <= capacity_bytes_per_s:
                return nearer
        return self._demands

    def news(self, now: Instant, ledger: Ledger, frontier: Frontier) -> list[Foresee]:
        """Deadlines that will be missed and were not known to be, and those that can be met after all.

        A verdict counts when it has come out the same way some times in a row.
        """
        late = {
            demand.site
            for demand in self._demands
            if demand.deadline_at is not None and self._misses(now, demand, ledger, frontier)
        }
        # A site that is done is beyond foresight.
        self._told_late &= {demand.site for demand in self._demands}
        self._doubtful = {site: self._doubtful.get(site, 0) + 1 for site in late ^ self._told_late}
        confirmed = {site for site, times in self._doubtful.items() if times >= _TIMES_IN_A_ROW}
        if not confirmed:
            return []
        needed, out_of_reach = self._needed(now, ledger)
        told = []
        for site in sorted(confirmed):
            deadline_at = ledger.book(site).task.deadline_at
            forecast_at = self._allocation.forecast.get(site, now)
            if deadline_at is not None:
                is_late = site in late
                would_help = needed if is_late and site not in out_of_reach else None
                told.append(Foresee(site, deadline_at, forecast_at, is_late, would_help))
        self._told_late ^= confirmed
        return told

    def _misses(self, now: Instant, demand: SiteDemand, ledger: Ledger, frontier: Frontier) -> bool:
        """Late even if there is no more than is surely there; not said of a site that is hardly known, and
        said of one already called late until it is foreseen to be in time."""
        book = ledger.book(demand.site)
        ends = self.range_of(now, book, frontier)
        if ends is None or demand.deadline_at is None or book.answers < _SEEN_ENOUGH:
            return False
        return ends[demand.site in self._told_late] > demand.deadline_at

    def _needed(self, now: Instant, ledger: Ledger) -> tuple[BytesPerSecond | None, Set[Site]]:
        """The least bandwidth that would meet all deadlines, with the caps of sites on a faster link; but for
        the sites that no bandwidth would help."""
        assert self._capacity is not None
        on_a_faster_link = self.on_a_faster_link(now, ledger)
        out_of_reach = advise(now, on_a_faster_link, self._capacity).out_of_reach.keys()
        others = [demand for demand in on_a_faster_link if demand.site not in out_of_reach]
        return advise(now, others, self._capacity).bandwidth_bytes_per_s, out_of_reach

    def on_a_faster_link(self, now: Instant, ledger: Ledger) -> list[SiteDemand]:
        """What the sites could use, were our own link no limit."""
        demands = []
        for demand in self._demands:
            book = ledger.book(demand.site)
            size = max(1.0, book.wire_bytes / book.answers) if book.answers else PRIOR_PAGE_BYTES
            cap = self._cap(now, book, size, most_bytes_per_s=UNBOUNDED)
            demands.append(structs.replace(demand, cap_bytes_per_s=max(cap, demand.cap_bytes_per_s)))
        return demands

    def latest_start_of(self, book: SiteBook) -> Instant:
        """The instant at which a site's remaining data needs all the time that is left to its deadline."""
        known = self._known.get(book.site)
        if book.task.deadline_at is None or known is None:
            return FOREVER if book.task.deadline_at is None else book.task.deadline_at
        demand = known[1]
        return Instant(book.task.deadline_at - demand.remaining_bytes / demand.cap_bytes_per_s)

    def share_of(self, site: Site) -> BytesPerSecond | None:
        """The rate that the last allocation gave it; None when it had none to give."""
        return self._allocation.rates.get(site)

    def left_of(self, site: Site) -> float | None:
        """The bytes that the site is thought to hold still, with a margin for what is not known."""
        known = self._known.get(site)
        return known[1].remaining_bytes if known is not None else None

    def remaining_of(self, site: Site) -> Remaining | None:
        """The same with how little and how much it may turn out to be."""
        known = self._known.get(site)
        return known[2] if known is not None else None

    def range_of(self, now: Instant, book: SiteBook, frontier: Frontier) -> tuple[Instant, Instant] | None:
        """Between which instants a site will probably end."""
        end_at = self._allocation.forecast.get(book.site)
        if end_at is None:
            return None
        return forecast_range(now, end_at, remaining_bytes(_evidence(book, frontier.room(book.site))))

    def _demanded(self, now: Instant, ledger: Ledger, frontier: Frontier) -> Iterator[SiteDemand]:
        for room in frontier.rooms():
            if room.due or room.busy:
                yield self._demand(now, ledger.book(room.site), room)

    def _demand(self, now: Instant, book: SiteBook, room: Room) -> SiteDemand:
        """Reckoned anew only when something of the site has changed: most have not, most of the time."""
        stamp = (book.answers, room.due, book.in_flight, book.task, book.rules)
        known = self._known.get(book.site)
        if known is not None and known[0] == stamp:
            return known[1]
        evidence = _evidence(book, room)
        # A page under way is worth a page's bytes, even when none waits behind it.
        remaining = remaining_bytes(evidence)
        left = remaining.guarded() + book.in_flight * page_bytes(evidence)
        # A link that is shut for the moment says nothing of the site.
        cap = self._cap(now, book, page_bytes(evidence), self._most_bytes_per_s or UNBOUNDED)
        demand = SiteDemand(book.site, left, book.task.deadline_at, cap, book.task.weight)
        self._known[book.site] = (stamp, demand, remaining)
        return demand

    def _cap(
        self, now: Instant, book: SiteBook, size_bytes: float, most_bytes_per_s: BytesPerSecond
    ) -> BytesPerSecond:
        """The most that the site can give: its own speed, less the pauses that manners ask for."""
        cap = cap_bytes_per_s(
            size_bytes,
            pause_s=self._pause_s(book),
            latency_s=_TURN_S,
            # A predicted rate is reckoned from request to end, so that it has the server's latency in it. No
            # page comes faster than the whole link.
            server_rate_bytes_per_s=min(self.prediction.predict(now, book.server), most_bytes_per_s),
        )
        return cap if book.task.cap_bytes_per_s is None else min(cap, book.task.cap_bytes_per_s)

    def _pause_s(self, book: SiteBook) -> Seconds:
        """What manners cost each page."""
        delay_s = book.rules.crawl_delay_s if book.rules is not None else None
        pages = 1 if delay_s else self._politeness.pages_per_connection
        return Seconds(self._politeness.pause_s(delay_s) / pages)


def _server_of(peer: str, site: Site) -> str:
    """The paper's server is an address; two ports of it may be two machines behind it."""
    return f"{peer} {site.rpartition(':')[2]}"


def _evidence(book: SiteBook, room: Room) -> Evidence:
    task = book.task
    return Evidence(
        book.answers,
        book.wire_bytes,
        room.due,
        book.links_seen,
        book.links_new,
        book.new_per_page,
        0,
        task.expected_bytes,
        task.max_pages,
        task.max_bytes,
    )


def capacity_ahead(segments: Sequence[Segment]) -> Capacity:
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
