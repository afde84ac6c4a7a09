"""When a site may be asked again, and when it is over: reckoned from the end of each of its answers."""

from __future__ import annotations

from headway.crawl.ledger import SiteBook
from headway.crawl.steward import Steward
from headway.frontier.frontier import Frontier
from headway.model.command import SaveSite
from headway.model.outcome import Outcome
from headway.policy.politeness import TROUBLE, Politeness
from headway.units import Instant


class Doors:
    def __init__(
        self, frontier: Frontier, politeness: Politeness, steward: Steward | None, *, recrawls: bool = False
    ) -> None:
        self._recrawls = recrawls
        self._frontier = frontier
        self._politeness = politeness
        self._steward = steward

    def answered(
        self, now: Instant, book: SiteBook, outcome: Outcome, *, robots_text: str | None = None
    ) -> SaveSite:
        book.failures_in_a_row = book.failures_in_a_row + 1 if outcome.kind in TROUBLE else 0
        book.pages_on_connection = book.pages_on_connection + 1 if outcome.keep_alive else 0
        delay_s = book.rules.crawl_delay_s if book.rules is not None else None
        free_at = self._politeness.free_at(
            now, outcome, book.pages_on_connection, book.failures_in_a_row, delay_s
        )
        if free_at > now:
            book.pages_on_connection = 0
        self._frontier.free(book.site, free_at)
        return self.close_if_over(now, book, free_at, robots_text)

    def close_if_over(
        self, now: Instant, book: SiteBook, free_at: Instant, robots_text: str | None = None
    ) -> SaveSite:
        was_over = book.ended_at is not None
        is_over = not self._frontier.room(book.site).due
        if is_over or not self._recrawls:
            # A site that was complete once stays so while its pages are looked after.
            book.ended_at = (book.ended_at or now if self._recrawls else now) if is_over else None
        if was_over != (book.ended_at is not None) and self._steward is not None:
            self._steward.disturb(now)
        expires_at = book.robots_expires_at if robots_text is not None else None
        return SaveSite(book.site, free_at, book.failures_in_a_row, robots_text, expires_at, book.ended_at)
