"""Pages that are fetched more than once: because a visit is due again, or somebody asked for it, or because a
copy came another way than by asking the site."""

from __future__ import annotations

from collections.abc import Sequence

from headway.crawl.discovery import Discovery
from headway.crawl.ledger import Ledger
from headway.frontier.frontier import Frontier
from headway.model.command import Command, PageState, SaveAgain, SaveSettled
from headway.model.event import CollectorsCounted, Delivered, SitesLeft, VisitsTold
from headway.model.outcome import SUCCESS, Kind
from headway.model.page import AGAIN, Page, PageKey, Site
from headway.policy.revisit import RevisitPolicy
from headway.units import BytesPerSecond, Instant

_WORTH_ANOTHER_VISIT = SUCCESS | {Kind.MISSING, Kind.LISTING}


class Revisits:
    def __init__(
        self, ledger: Ledger, frontier: Frontier, discovery: Discovery, policy: RevisitPolicy | None
    ) -> None:
        self._ledger = ledger
        self._frontier = frontier
        self._discovery = discovery
        self._policy = policy
        self.overtaken: set[PageKey] = set()
        """Pages that waited when a copy came another way: to be passed over when their turn comes."""
        self._queued: dict[Site, set[PageKey]] = {}

    def again(self, pages: Sequence[Page], not_before: Instant, commands: list[Command]) -> None:
        """Queue pages that do not wait; asked twice for one, it is queued once."""
        fresh = tuple(page for page in pages if page.key not in self._queued.get(page.site, ()))
        for page in fresh:
            self._queued.setdefault(page.site, set()).add(page.key)
            self._discovery.seen.add(page.key)
            self._frontier.put(page, AGAIN, not_before)
        if fresh:
            commands.append(SaveAgain(fresh, not_before))

    def spare(self, now: Instant, bytes_per_s: BytesPerSecond) -> None:
        if self._policy is not None:
            self._policy.spare(now, bytes_per_s)

    def hear(self, event: CollectorsCounted | VisitsTold | SitesLeft) -> None:
        """What changes where several work on the crawl: each decides for the sites that it holds."""
        match event:
            case SitesLeft(sites):
                for site in sites:
                    self._queued.pop(site, None)
                    if self._policy is not None:
                        self._policy.forget(site)
            case VisitsTold(site, histories) if self._policy is not None:
                for history in histories:
                    self._policy.learn(site, history)
            case CollectorsCounted(collectors) if self._policy is not None:
                self._policy.work_beside(collectors)

    def settled(self, now: Instant, settled: SaveSettled, commands: list[Command]) -> None:
        """A page came to an end for now: when is it due again?"""
        if settled.state is PageState.WAITING:
            return
        page, outcome = settled.page, settled.outcome
        self.overtaken.discard(page.key)
        if page.site in self._queued:
            self._queued[page.site].discard(page.key)
        if self._policy is not None and outcome.kind in _WORTH_ANOTHER_VISIT:
            history = settled.sighting.history if settled.sighting is not None else b""
            at = self._policy.next_at(now, page.site, outcome.wire_bytes, history)
            if at is not None:
                self.again((page,), at, commands)

    def delivered(self, now: Instant, event: Delivered, commands: list[Command]) -> None:
        page, outcome = event.page, event.outcome
        book = self._ledger.book(page.site)
        is_new = self._discovery.seen.add(page.key)
        if not is_new and event.was is None:
            self.overtaken.add(page.key)
        state = PageState.DONE if outcome.kind in SUCCESS else PageState.FAILED
        self._ledger.count(now, book, outcome, state, event.was)
        settled = SaveSettled(page, outcome, state, 0, now, None, event.capture, event.links, event.sighting)
        commands.append(settled)
        self._discovery.linked(now, book, settled, commands)
