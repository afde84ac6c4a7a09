"""The crawl as a machine without I/O: `step(now, event) -> commands`.

Facts go in, orders come out; the driver that carries them out may live in real time, in virtual time, or
on many machines. The same events at the same instants always give the same commands in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from headway.crawl.bound import LinkBound
from headway.crawl.discovery import Discovery
from headway.crawl.doors import Doors
from headway.crawl.handout import HandOut
from headway.crawl.holdings import Holdings
from headway.crawl.leases import Leases
from headway.crawl.ledger import Ledger, SiteBook
from headway.crawl.orders import Orders
from headway.crawl.revisits import Revisits
from headway.crawl.steward import Steward
from headway.crawl.takeup import believable, believable_waiting
from headway.frontier.frontier import Frontier
from headway.frontier.seen import SeenSet, seen_set
from headway.model.command import (
    Command,
    Finished,
    LoadPages,
    PageState,
    SaveServers,
    SaveSettled,
    SaveTasks,
    SetCapacity,
    SetRates,
    WakeAt,
)
from headway.model.event import (
    Again,
    CapacityChanged,
    CollectorsCounted,
    DelaySensed,
    Delivered,
    Draining,
    Event,
    Found,
    FromOutside,
    Ordered,
    PageSettled,
    PagesLoaded,
    Restored,
    RobotsSettled,
    Seeded,
    SitesLeft,
    SitesTaken,
    Tick,
    VisitsTold,
)
from headway.model.outcome import SUCCESS, Kind, Outcome
from headway.model.page import Lease, Site
from headway.policy.admission import Admission
from headway.policy.ordering.base import Ordering
from headway.policy.ordering.deadline import Deadline
from headway.policy.politeness import Politeness
from headway.policy.retry import GiveUp, RetryPolicy
from headway.policy.revisit import RevisitPolicy
from headway.policy.scope import Scope
from headway.policy.traps import TrapWatch
from headway.units import FOREVER, Instant, Seconds

_LEASE_EXPIRED = Outcome(Kind.LEASE_EXPIRED, keep_alive=False)


class Crawl:
    """One crawl. `ledger` and `frontier` may be read by whoever shows progress; only `step` changes them."""

    def __init__(
        self,
        *,
        ordering: Ordering,
        scope: Scope,
        politeness: Politeness,
        retry: RetryPolicy,
        max_connections: int,
        lease_s: Seconds,
        asks_robots: bool = True,
        bound: LinkBound | None = None,
        steward: Steward | None = None,
        admission: Admission[Site] | None = None,
        most_held: int | None = None,
        revisit: RevisitPolicy | None = None,
        recrawls: bool = False,
        is_part: bool = False,
        watch: TrapWatch | None = None,
        links_at_once: int | None = None,
    ) -> None:
        """`recrawls`: known pages are fetched again, which the sites' limits do not count twice. `is_part`:
        of a crawl that several work on, each on the sites that it holds. `links_at_once`: a step looks at so
        many links of a page, and later ones at the rest; until then a page and its links are not all told."""
        self.ledger = Ledger()
        self.frontier = Frontier(ordering, most_held)
        self.leases = Leases(lease_s)
        self.bound = bound or LinkBound()
        self.steward = steward
        self.holdings = Holdings(self.ledger, self.frontier) if is_part else None
        self.watch = watch
        self.discovery = Discovery(
            scope, self.frontier, self.ledger, self.holdings, watch, links_at_once=links_at_once
        )
        self._doors = Doors(self.frontier, politeness, steward, recrawls=revisit is not None)
        self._orders = Orders(self.ledger, self.frontier, self.bound, self.discovery, self._doors)
        self._revisits = Revisits(self.ledger, self.frontier, self.discovery, revisit)
        self._handout = HandOut(
            self.ledger,
            self.frontier,
            self.leases,
            doors=self._doors,
            bound=self.bound,
            politeness=politeness,
            max_connections=max_connections,
            asks_robots=asks_robots,
            admission=admission,
            prediction=steward.prediction if steward is not None else None,
            overtaken=self._revisits.overtaken,
            recrawls=recrawls or revisit is not None,
            watch=watch,
        )
        self._retry = retry
        self._politeness = politeness
        if steward is not None and isinstance(ordering, Deadline):
            ordering.follow(lambda site: steward.latest_start_of(self.ledger.book(site)))
        self._commands: list[Command] = []
        self._wake_at = FOREVER
        self._begun = False
        self._draining = False
        self._finished = False

    @property
    def in_flight(self) -> int:
        """Connections in use: pages lent out, and robots.txt being asked for."""
        return self._handout.in_flight

    @property
    def seen(self) -> SeenSet:
        return self.discovery.seen

    @property
    def has_rest(self) -> bool:
        """Links of settled pages are still to be told: nothing of those pages is to be saved without them."""
        return self.discovery.has_rest

    def step(self, now: Instant, event: Event) -> Sequence[Command]:
        self._commands = []
        self.discovery.go_on(now, self._commands)
        self._take_in(now, event)
        if now >= self.bound.changes_at and self.bound.look(now):
            self._commands.append(SetCapacity(self.bound.capacity_bytes_per_s))
            self._disturb(now)
        for lease in self.leases.expired(now):
            self._settle(now, lease, PageSettled(lease, _LEASE_EXPIRED))
        if self._begun:
            self._allocate(now)
            if not self._draining:
                self._handout.hand_out(now, self._commands)
                if self.frontier.is_short:
                    wishes = self.frontier.wishes(self.leases.pages())
                    self._commands += [LoadPages(site, most) for site, most in wishes]
            self._look_ahead(now)
        return self._commands

    # -- facts ------------------------------------------------------------------------------------------

    def _take_in(self, now: Instant, event: Event) -> None:
        match event:
            case PageSettled():
                self._page_settled(now, event)
            case RobotsSettled():
                self._robots_settled(now, event)
            case PagesLoaded(loads):
                lent = self.leases.pages()
                for load in loads:
                    waiting = [believable_waiting(now, record, self._retry) for record in load.waiting]
                    if self.holdings is None or self.holdings.may_load(load, self.discovery.seen):
                        self.frontier.load(load.site, waiting, lent, is_all=load.is_all)
            case Tick():
                self._wake_at = FOREVER
            case _:
                self._hear(now, event)

    def _hear(self, now: Instant, event: FromOutside) -> None:
        match event:
            case Seeded(tasks, pages):
                for task in tasks:
                    self.ledger.open(task)
                self._commands.append(SaveTasks(tasks))
                self.discovery.found(now, pages, self._commands)
                self._begun = True
                self._disturb(now)
            case Restored():
                self._restore(now, event)
            case SitesTaken() | SitesLeft() | CollectorsCounted() | VisitsTold():
                self._hear_of_the_fleet(now, event)
            case Draining():
                self._draining = True
                self._finished = False
            case Found(pages):
                self.discovery.found(now, pages, self._commands)
            case Again(pages, not_before):
                self._revisits.again(self.discovery.ours(pages), not_before, self._commands)
            case Delivered():
                self._revisits.delivered(now, event, self._commands)
            case Ordered(order):
                self._orders.carry_out(now, order, self._commands)
                self._disturb(now)
            case CapacityChanged(capacity):
                self.bound.set(now, capacity)
            case DelaySensed(path, round_trip_s):
                self.bound.sense(now, path, round_trip_s)

    def _hear_of_the_fleet(
        self, now: Instant, event: SitesTaken | SitesLeft | CollectorsCounted | VisitsTold
    ) -> None:
        assert self.holdings is not None
        if isinstance(event, SitesTaken | SitesLeft):
            self.holdings.hear(event, self.discovery.seen)
            self._disturb(now)
        if isinstance(event, VisitsTold) and event.site not in self.holdings.sites:
            return
        if not isinstance(event, SitesTaken):
            self._revisits.hear(event)

    def _restore(self, now: Instant, event: Restored) -> None:
        snapshot = believable(now, event.snapshot, event.rules, self._politeness, self._retry)
        self.discovery.seen = seen_set(snapshot.seen)
        for task in snapshot.tasks:
            self.ledger.open(task)
        for record in snapshot.sites:
            self.ledger.restore(record, event.rules.get(record.site))
            self.frontier.free(record.site, record.free_at)
        if self.steward is not None:
            self.steward.restore(snapshot.servers)
        if self.watch is not None:
            self.watch.restore(snapshot.notices)
        for waiting in snapshot.waiting:
            self.frontier.put(waiting.page, waiting.attempt, waiting.retry_at)
        for site, count in snapshot.unloaded.items():
            self.frontier.left_in_store(site, count)

    def _page_settled(self, now: Instant, event: PageSettled) -> None:
        lease = self.leases.settle(event.lease.number)
        if lease is not None:
            self._settle(now, lease, event)

    def _settle(self, now: Instant, lease: Lease, event: PageSettled) -> None:
        page, book = lease.page, self.ledger.book(lease.page.site)
        outcome, links = event.outcome, event.links
        book.in_flight -= 1
        self.frontier.settled(page, links)
        succeeded = outcome.kind in SUCCESS
        verdict = None if succeeded else self._retry.decide(now, outcome, lease.attempt)
        if succeeded:
            state, retry_at = PageState.DONE, None
        elif isinstance(verdict, GiveUp):
            state, retry_at = verdict.state, None
        else:
            assert verdict is not None
            state, retry_at = PageState.WAITING, verdict.at
            self.frontier.put(page, lease.attempt + 1, retry_at)
        self.ledger.count(now, book, outcome, state, event.was)
        self.bound.spend(now, outcome.wire_bytes)
        if self.steward is not None:
            self.steward.learn(now, book, outcome)
        settled = SaveSettled(
            page, outcome, state, lease.attempt, now, retry_at, event.capture, links, event.sighting
        )
        self._commands.append(settled)
        self.discovery.found_lists(now, event.lists, self._commands)
        self.discovery.linked(now, book, settled, self._commands)
        self._revisits.settled(now, settled, self._commands)
        self._answered(now, book, outcome)

    def _robots_settled(self, now: Instant, event: RobotsSettled) -> None:
        if not self._handout.robots_settled(event.site):
            return
        book = self.ledger.book(event.site)
        book.count_answer(now, event.outcome)
        self.ledger.wire_bytes += event.outcome.wire_bytes
        self.bound.spend(now, event.outcome.wire_bytes)
        gave_up = False
        if event.rules is None:
            verdict = self._retry.decide(now, event.outcome, book.robots_attempts)
            gave_up = isinstance(verdict, GiveUp)
        text = book.learn_robots(event, gave_up=gave_up)
        self.discovery.found_lists(now, event.lists, self._commands)
        self._answered(now, book, event.outcome, robots_text=text, robots_bytes=event.outcome.wire_bytes)

    def _answered(
        self,
        now: Instant,
        book: SiteBook,
        outcome: Outcome,
        *,
        robots_text: str | None = None,
        robots_bytes: int = 0,
    ) -> None:
        self._handout.ended(book.site)
        save = self._doors.answered(now, book, outcome, robots_text=robots_text)
        self._commands.append(structs.replace(save, robots_bytes=robots_bytes) if robots_bytes else save)

    def _disturb(self, now: Instant) -> None:
        if self.steward is not None:
            self.steward.disturb(now)

    # -- orders -----------------------------------------------------------------------------------------

    def _allocate(self, now: Instant) -> None:
        """Share the link out anew when it is time to."""
        steward = self.steward
        if steward is None or now < steward.next_at or self._draining:
            return
        rates = steward.allocate(now, self.ledger, self.frontier, self.bound)
        if rates is not None:
            self._commands.append(SetRates(rates))
            self.frontier.sites_changed()
        self._revisits.spare(now, steward.spare_bytes_per_s(self.ledger, self.bound.capacity_bytes_per_s))
        self._commands += steward.news(now, self.ledger, self.frontier)
        if servers := steward.learnt():
            self._commands.append(SaveServers(servers))

    def _look_ahead(self, now: Instant) -> None:
        """Say when to be woken, and whether there is anything left to wait for."""
        is_over = not self.frontier.waiting and self.holdings is None
        has_rest = self.discovery.has_rest
        if not self.in_flight and (self._draining or is_over) and not has_rest:
            if not self._finished:
                self._finished = True
                self._commands.append(Finished())
            return
        self._finished = False
        at = now if has_rest else min(self.leases.next_expiry_at(), self.bound.changes_at)
        if self.steward is not None and not self._draining:
            at = min(at, self.steward.next_at)
        if self._handout.is_spent and not self._draining:
            at = min(at, self.bound.renews_at(now))
        elif not self._draining and not self._handout.is_full:
            at = min(at, self.frontier.next_ready_at(now))
        if at < self._wake_at:
            self._wake_at = at
            self._commands.append(WakeAt(at))
