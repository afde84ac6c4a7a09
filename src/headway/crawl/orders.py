"""What becomes of a person's orders: they change the books, the queue or the bound, and are noted."""

from __future__ import annotations

from msgspec import structs

from headway.crawl.bound import LinkBound
from headway.crawl.discovery import Discovery
from headway.crawl.doors import Doors
from headway.crawl.ledger import Ledger
from headway.frontier.frontier import Frontier
from headway.model.command import Command, Obeyed, PageState, SaveAgain, SaveSettled, SaveTasks
from headway.model.order import AddSite, Order, Pause, Resume, SetDeadline, StopSite
from headway.model.outcome import Kind, Outcome
from headway.model.page import AGAIN, Site
from headway.units import Instant

_STOPPED = Outcome(Kind.CANCELLED, detail="the site was stopped by order")


class Orders:
    def __init__(
        self, ledger: Ledger, frontier: Frontier, bound: LinkBound, discovery: Discovery, doors: Doors
    ) -> None:
        self._ledger = ledger
        self._frontier = frontier
        self._bound = bound
        self._discovery = discovery
        self._doors = doors

    def carry_out(self, now: Instant, order: Order, commands: list[Command]) -> None:
        if isinstance(order, SetDeadline | StopSite) and order.site not in self._ledger.books:
            commands.append(Obeyed(order, f"there is no site {order.site} in this crawl"))
            return
        commands.append(Obeyed(order))
        match order:
            case Pause():
                self._bound.pause(is_paused=True)
            case Resume():
                self._bound.pause(is_paused=False)
            case SetDeadline(site, deadline_at):
                task = structs.replace(self._ledger.book(site).task, deadline_at=deadline_at)
                self._ledger.open(task)
                commands.append(SaveTasks((task,)))
            case StopSite(site):
                self._stop(now, site, commands)
            case AddSite():
                self._add(now, order, commands)

    def _add(self, now: Instant, order: AddSite, commands: list[Command]) -> None:
        task = order.task
        is_new = task.site not in self._ledger.books
        self._discovery.welcome(task.site)
        self._ledger.open(task)
        commands.append(SaveTasks((task,)))
        known = {page.key for page in order.pages if page.key in self._discovery.seen}
        self._discovery.found(now, [page for page in order.pages if page.key not in known], commands)
        # A site that was out of scope until now: what was passed over then is wanted after all.
        again = tuple(
            page for page in order.pages if is_new and page.key in known and self._discovery.is_in_scope(page)
        )
        for page in again:
            self._frontier.put(page, AGAIN, now)
        if again:
            commands.append(SaveAgain(again, now))

    def _stop(self, now: Instant, site: Site, commands: list[Command]) -> None:
        book = self._ledger.book(site)
        # No pages at all: what is found from now on is passed over as beyond the site's limit.
        task = structs.replace(book.task, max_pages=0)
        self._ledger.open(task)
        commands.append(SaveTasks((task,)))
        everyone = self._frontier.take_all(site)
        for waiting in everyone:
            self._ledger.count(now, book, _STOPPED, PageState.EXCLUDED)
            commands.append(SaveSettled(waiting.page, _STOPPED, PageState.EXCLUDED, waiting.attempt, now))
        if everyone:
            commands.append(self._doors.close_if_over(now, book, self._frontier.room(site).free_at))
