"""Which page is asked for next: sites that are free, in the ordering's turn, as far as the bound allows.

With admission (diligenti2004) a site is asked only where its predicted rate still fits under the bound
beside those of all the downloads under way; the sites next in turn are looked through to a fixed depth.
"""

from __future__ import annotations

from collections.abc import Iterable

from headway.crawl.bound import LinkBound
from headway.crawl.doors import Doors
from headway.crawl.leases import Leases
from headway.crawl.ledger import Ledger, SiteBook
from headway.frontier.frontier import Frontier
from headway.frontier.room import Room, Waiting
from headway.model.command import Command, FetchPage, FetchRobots, PageState, SaveSettled
from headway.model.outcome import Kind, Outcome
from headway.model.page import PageKey, Site, is_again
from headway.policy.admission import Admission
from headway.policy.politeness import Politeness
from headway.policy.prediction import Prediction
from headway.policy.traps import TrapWatch
from headway.units import BytesPerSecond, Instant


class HandOut:
    def __init__(
        self,
        ledger: Ledger,
        frontier: Frontier,
        leases: Leases,
        *,
        doors: Doors,
        bound: LinkBound,
        politeness: Politeness,
        max_connections: int,
        asks_robots: bool,
        admission: Admission[Site] | None = None,
        prediction: Prediction | None = None,
        overtaken: set[PageKey] | None = None,
        recrawls: bool = False,
        watch: TrapWatch | None = None,
    ) -> None:
        self._ledger = ledger
        self._frontier = frontier
        self._leases = leases
        self._doors = doors
        self._bound = bound
        self._politeness = politeness
        self._max_connections = max_connections
        self._asks_robots = asks_robots
        self._admission = admission
        self._prediction = prediction
        self._overtaken = overtaken if overtaken is not None else set()
        self._recrawls = recrawls
        self._watch = watch
        self._asking_robots: set[Site] = set()
        self.is_spent = False
        """A quota is used up: nothing more until it is renewed."""

    @property
    def in_flight(self) -> int:
        """Connections in use: pages lent out, and robots.txt being asked for."""
        return len(self._leases) + len(self._asking_robots)

    @property
    def is_full(self) -> bool:
        return self.in_flight >= self._max_connections

    def robots_settled(self, site: Site) -> bool:
        """Whether this site was being asked for its robots.txt; it is not any more."""
        was_asked = site in self._asking_robots
        self._asking_robots.discard(site)
        return was_asked

    def ended(self, site: Site) -> None:
        """A site has answered: what it takes of the link is free for others."""
        if self._admission is not None:
            self._admission.ended(site)

    def hand_out(self, now: Instant, commands: list[Command]) -> None:
        self.is_spent = False
        while not self.is_full:
            room = self._next(now)
            if room is None:
                break
            if not self._bound.allows(now, (self.in_flight + 1) * self._ledger.page_bytes):
                self.is_spent = True
                break
            self._visit(now, room, commands)

    def _next(self, now: Instant) -> Room | None:
        if self._admission is None:
            return self._frontier.next_site(now)
        rooms = self._frontier.next_sites(now, self._admission.max_depth)
        self._admission.bound_bytes_per_s = self._bound.capacity_bytes_per_s
        chosen = self._admission.admit(now, [(room.site, self._predict(now, room)) for room in rooms])
        return rooms[chosen[0]] if chosen else None

    def _predict(self, now: Instant, room: Room) -> BytesPerSecond:
        assert self._prediction is not None
        return self._prediction.predict(now, self._ledger.book(room.site).server)

    def _visit(self, now: Instant, room: Room, commands: list[Command]) -> None:
        """Ask a free site for its next page, or for its rules first, or pass over what may not be asked."""
        book = self._ledger.book(room.site)
        if book.is_full and (book.task.max_pages == 0 or not self._recrawls):
            everyone = self._frontier.take_all(room.site)
            self._drop(now, book, everyone, (Outcome(Kind.LIMIT), PageState.EXCLUDED), commands)
        elif self._asks_robots and book.robots_expires_at <= now:
            self._occupy(now, room)
            self._asking_robots.add(room.site)
            commands.append(FetchRobots(room.site, book.robots_url))
        elif self._asks_robots and book.robots_unreachable:
            everyone = self._frontier.take_all(room.site)
            self._drop(now, book, everyone, (book.without_rules, PageState.FAILED), commands)
        else:
            waiting = self._frontier.take(room)
            if waiting.page.key in self._overtaken:
                self._overtaken.discard(waiting.page.key)
                self._drop(now, book, (), (Outcome(Kind.CANCELLED), PageState.EXCLUDED), commands)
            elif book.is_full and not is_again(waiting.attempt):
                self._drop(now, book, [waiting], (Outcome(Kind.LIMIT), PageState.EXCLUDED), commands)
            elif book.rules is not None and not book.rules.allows(waiting.page.url):
                self._drop(now, book, [waiting], (Outcome(Kind.ROBOTS_DENIED), PageState.EXCLUDED), commands)
            elif self._watch is not None and (trap := self._watch.judge_waiting(waiting.page)):
                out = (Outcome(Kind.OUT_OF_SCOPE, detail=trap), PageState.EXCLUDED)
                self._drop(now, book, [waiting], out, commands)
            else:
                self._occupy(now, room)
                commands.append(self._lend(now, book, waiting))

    def _occupy(self, now: Instant, room: Room) -> None:
        if self._admission is not None:
            self._admission.started(room.site, self._predict(now, room))
        self._frontier.occupy(room.site)

    def _lend(self, now: Instant, book: SiteBook, waiting: Waiting) -> FetchPage:
        book.in_flight += 1
        lease = self._leases.lend(now, waiting.page, waiting.attempt)
        delay_s = book.rules.crawl_delay_s if book.rules is not None else None
        close_after = self._politeness.closes_after(book.pages_on_connection + 1, delay_s)
        return FetchPage(lease, close_after)

    def _drop(
        self,
        now: Instant,
        book: SiteBook,
        everyone: Iterable[Waiting],
        why: tuple[Outcome, PageState],
        commands: list[Command],
    ) -> None:
        outcome, state = why
        for waiting in everyone:
            self._ledger.count(now, book, outcome, state)
            commands.append(SaveSettled(waiting.page, outcome, state, waiting.attempt, now))
        room = self._frontier.room(book.site)
        if not room.waiting:
            commands.append(self._doors.close_if_over(now, book, room.free_at))
