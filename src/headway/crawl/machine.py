"""The crawl as a machine without I/O: `step(now, event) -> commands`.

Facts go in, orders come out; the driver that carries them out may live in real time, in virtual time, or
on many machines. The same events at the same instants always give the same commands in the same order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headway.crawl.bound import LinkBound
from headway.crawl.leases import Leases
from headway.crawl.ledger import Ledger, SiteBook
from headway.crawl.steward import Steward
from headway.frontier.frontier import Frontier
from headway.frontier.room import Room, Waiting
from headway.frontier.seen import SeenSet
from headway.model.command import (
    Command,
    FetchPage,
    FetchRobots,
    Finished,
    PageState,
    SaveFound,
    SaveServers,
    SaveSettled,
    SaveSite,
    SaveTasks,
    SetCapacity,
    SetRates,
    WakeAt,
)
from headway.model.event import (
    CapacityChanged,
    DelaySensed,
    Draining,
    Event,
    PageSettled,
    Restored,
    RobotsSettled,
    Seeded,
    Tick,
)
from headway.model.outcome import SUCCESS, Capture, Kind, Outcome
from headway.model.page import Lease, Page, PageKey, Site
from headway.policy.ordering.base import Ordering
from headway.policy.ordering.deadline import Deadline
from headway.policy.politeness import TROUBLE, Politeness
from headway.policy.retry import GiveUp, RetryPolicy
from headway.policy.scope import Exclusion, Scope
from headway.units import FOREVER, Instant, Seconds

_MOST_REDIRECTS = 20
"""In a row: redirects cost no depth, so that without a limit a chain of ever new places would never end."""
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
    ) -> None:
        self.ledger = Ledger()
        self.frontier = Frontier(ordering)
        self.leases = Leases(lease_s)
        self.seen = SeenSet()
        self._scope = scope
        self._politeness = politeness
        self._retry = retry
        self._max_connections = max_connections
        self._asks_robots = asks_robots
        self._asking_robots: set[Site] = set()
        self._redirects: dict[PageKey, int] = {}
        """How many in a row led to a waiting page, where there were any."""
        self._commands: list[Command] = []
        self._wake_at = FOREVER
        self.bound = bound or LinkBound()
        self.steward = steward
        if steward is not None and isinstance(ordering, Deadline):
            ordering.follow(lambda site: steward.latest_start_of(self.ledger.book(site)))
        self._begun = False
        self._spent = False
        self._draining = False
        self._finished = False

    @property
    def in_flight(self) -> int:
        """Connections in use: pages lent out, and robots.txt being asked for."""
        return len(self.leases) + len(self._asking_robots)

    def step(self, now: Instant, event: Event) -> Sequence[Command]:
        self._commands = []
        self._take_in(now, event)
        if now >= self.bound.changes_at and self.bound.look(now):
            self._commands.append(SetCapacity(self.bound.capacity_bytes_per_s))
            self._disturb(now)
        for lease in self.leases.expired(now):
            self._settle(now, lease, _LEASE_EXPIRED)
        if self._begun:
            self._allocate(now)
            self._hand_out(now)
            self._look_ahead(now)
        return self._commands

    # -- facts ------------------------------------------------------------------------------------------

    def _take_in(self, now: Instant, event: Event) -> None:
        match event:
            case PageSettled():
                self._page_settled(now, event)
            case RobotsSettled():
                self._robots_settled(now, event)
            case Seeded(tasks, pages):
                for task in tasks:
                    self.ledger.open(task)
                self._commands.append(SaveTasks(tasks))
                self._found(now, pages)
                self._begun = True
                self._disturb(now)
            case Restored():
                self._restore(event)
            case Draining():
                self._draining = True
            case Tick():
                self._wake_at = FOREVER
            case CapacityChanged(capacity):
                self.bound.set(now, capacity)
            case DelaySensed(path, round_trip_s):
                self.bound.sense(now, path, round_trip_s)

    def _restore(self, event: Restored) -> None:
        snapshot = event.snapshot
        self.seen = SeenSet(snapshot.seen)
        for task in snapshot.tasks:
            self.ledger.open(task)
        for record in snapshot.sites:
            self.ledger.restore(record, event.rules.get(record.site))
            self.frontier.free(record.site, record.free_at)
        if self.steward is not None:
            self.steward.restore(snapshot.servers)
        for waiting in snapshot.waiting:
            self.frontier.put(waiting.page, waiting.attempt, waiting.retry_at)

    def _found(
        self, now: Instant, pages: Sequence[Page], source: SiteBook | None = None, redirects: int = 0
    ) -> None:
        """Queue what is new and in scope; what is new and out of scope is counted, never asked for."""
        welcome: list[Page] = []
        for position in self.seen.add_all([page.key for page in pages]):
            page = pages[position]
            exclusion = Exclusion.REDIRECT_CHAIN if redirects > _MOST_REDIRECTS else self._scope.judge(page)
            if exclusion is None:
                if redirects:
                    self._redirects[page.key] = redirects
                welcome.append(page)
                self.frontier.put(page)
            else:
                self._exclude(now, page, Outcome(Kind.OUT_OF_SCOPE, detail=exclusion))
        if welcome:
            self._commands.append(SaveFound(tuple(welcome)))
        if source is not None:
            site = source.site
            own = sum(page.site == site for page in pages)
            source.count_links(own, sum(page.site == site for page in welcome))

    def _page_settled(self, now: Instant, event: PageSettled) -> None:
        lease = self.leases.settle(event.lease.number)
        if lease is not None:
            self._settle(now, lease, event.outcome, event.links, event.capture)

    def _settle(
        self,
        now: Instant,
        lease: Lease,
        outcome: Outcome,
        links: Sequence[Page] = (),
        capture: Capture | None = None,
    ) -> None:
        page, book = lease.page, self.ledger.book(lease.page.site)
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
        self.ledger.count(now, book, outcome, state)
        self.bound.spend(now, outcome.wire_bytes)
        if self.steward is not None:
            self.steward.learn(now, book, outcome)
        self._commands.append(
            SaveSettled(page, outcome, state, lease.attempt, now, retry_at, capture, tuple(links))
        )
        redirects = 0 if state is PageState.WAITING else self._redirects.pop(page.key, 0)
        self._found(now, links, book, redirects + 1 if outcome.kind is Kind.REDIRECT else 0)
        self._answered(now, book, outcome)

    def _robots_settled(self, now: Instant, event: RobotsSettled) -> None:
        if event.site not in self._asking_robots:
            return
        self._asking_robots.discard(event.site)
        book = self.ledger.book(event.site)
        book.count_answer(now, event.outcome)
        self.ledger.wire_bytes += event.outcome.wire_bytes
        self.bound.spend(now, event.outcome.wire_bytes)
        gave_up = False
        if event.rules is None:
            verdict = self._retry.decide(now, event.outcome, book.robots_attempts)
            gave_up = isinstance(verdict, GiveUp)
        text = book.learn_robots(event, gave_up=gave_up)
        self._answered(now, book, event.outcome, robots_text=text)

    def _answered(
        self, now: Instant, book: SiteBook, outcome: Outcome, *, robots_text: str | None = None
    ) -> None:
        """Reckon from the end of an answer when its site may be asked again."""
        book.failures_in_a_row = book.failures_in_a_row + 1 if outcome.kind in TROUBLE else 0
        book.pages_on_connection = book.pages_on_connection + 1 if outcome.keep_alive else 0
        delay_s = book.rules.crawl_delay_s if book.rules is not None else None
        free_at = self._politeness.free_at(
            now, outcome, book.pages_on_connection, book.failures_in_a_row, delay_s
        )
        if free_at > now:
            book.pages_on_connection = 0
        self.frontier.free(book.site, free_at)
        self._close_if_over(now, book, free_at, robots_text)

    def _close_if_over(
        self, now: Instant, book: SiteBook, free_at: Instant, robots_text: str | None = None
    ) -> None:
        was_over = book.ended_at is not None
        book.ended_at = now if not self.frontier.room(book.site).waiting else None
        if was_over != (book.ended_at is not None):
            self._disturb(now)
        expires_at = book.robots_expires_at if robots_text is not None else None
        self._commands.append(
            SaveSite(book.site, free_at, book.failures_in_a_row, robots_text, expires_at, book.ended_at)
        )

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
        self._commands += steward.news(now, self.ledger, self.frontier)
        if servers := steward.learnt():
            self._commands.append(SaveServers(servers))

    def _hand_out(self, now: Instant) -> None:
        self._spent = False
        while not self._draining and self.in_flight < self._max_connections:
            room = self.frontier.next_site(now)
            if room is None:
                break
            if not self.bound.allows(now, (self.in_flight + 1) * self.ledger.page_bytes):
                self._spent = True  # nothing more until a quota is renewed
                break
            self._visit(now, room)

    def _visit(self, now: Instant, room: Room) -> None:
        """Ask a free site for its next page, or for its rules first, or pass over what may not be asked."""
        book = self.ledger.book(room.site)
        if book.is_full:
            self._drop(now, book, self.frontier.take_all(room.site), Outcome(Kind.LIMIT), PageState.EXCLUDED)
        elif self._asks_robots and book.robots_expires_at <= now:
            self.frontier.occupy(room.site)
            self._asking_robots.add(room.site)
            self._commands.append(FetchRobots(room.site, book.robots_url))
        elif self._asks_robots and book.robots_unreachable:
            everyone = self.frontier.take_all(room.site)
            unreachable = Outcome(Kind.ROBOTS_UNREACHABLE, detail=book.robots_problem)
            self._drop(now, book, everyone, unreachable, PageState.FAILED)
        else:
            waiting = self.frontier.take(room)
            if book.rules is not None and not book.rules.allows(waiting.page.url):
                self._drop(now, book, [waiting], Outcome(Kind.ROBOTS_DENIED), PageState.EXCLUDED)
            else:
                self._lend(now, book, waiting)

    def _lend(self, now: Instant, book: SiteBook, waiting: Waiting) -> None:
        self.frontier.occupy(book.site)
        book.in_flight += 1
        lease = self.leases.lend(now, waiting.page, waiting.attempt)
        delay_s = book.rules.crawl_delay_s if book.rules is not None else None
        close_after = self._politeness.closes_after(book.pages_on_connection + 1, delay_s)
        self._commands.append(FetchPage(lease, close_after))

    def _drop(
        self, now: Instant, book: SiteBook, everyone: Iterable[Waiting], outcome: Outcome, state: PageState
    ) -> None:
        for waiting in everyone:
            self.ledger.count(now, book, outcome, state)
            self._commands.append(SaveSettled(waiting.page, outcome, state, waiting.attempt, now))
        room = self.frontier.room(book.site)
        if not room.waiting:
            self._close_if_over(now, book, room.free_at)

    def _exclude(self, now: Instant, page: Page, outcome: Outcome) -> None:
        self.ledger.outcomes[f"{outcome.kind}: {outcome.detail}"] += 1
        self._commands.append(SaveSettled(page, outcome, PageState.EXCLUDED, 0, now))

    def _look_ahead(self, now: Instant) -> None:
        """Say when to be woken, and whether there is anything left to wait for."""
        if not self.in_flight and (self._draining or not self.frontier.waiting):
            if not self._finished:
                self._finished = True
                self._commands.append(Finished())
            return
        self._finished = False
        at = min(self.leases.next_expiry_at(), self.bound.changes_at)
        if self.steward is not None and not self._draining:
            at = min(at, self.steward.next_at)
        if self._spent:
            at = min(at, self.bound.renews_at(now))
        elif not self._draining and self.in_flight < self._max_connections:
            at = min(at, self.frontier.next_ready_at(now))
        if at < self._wake_at:
            self._wake_at = at
            self._commands.append(WakeAt(at))
