"""When a site is free again.

The interval is reckoned from the end of the last answer (cobweb1999); up to k pages may follow one another
on a connection, and the interval lies between connections (castillo2004). A site in trouble is left alone
longer each time.
"""

from __future__ import annotations

import msgspec

from headway.model.outcome import SUCCESS, Kind, Outcome
from headway.policy.backoff import growing_delay_s
from headway.units import Instant, Seconds

NEVER_ASKED = frozenset(
    {Kind.ROBOTS_DENIED, Kind.ROBOTS_UNREACHABLE, Kind.LIMIT, Kind.OUT_OF_SCOPE, Kind.FORBIDDEN_ADDRESS}
)
"""Outcomes for which the site saw no request, so that there is nothing to wait for."""

TROUBLE = frozenset(
    {Kind.THROTTLED, Kind.SERVER_ERROR, Kind.DNS, Kind.CONNECT, Kind.TLS, Kind.RESET, Kind.PROTOCOL}
    | {Kind.TIMEOUT_CONNECT, Kind.TIMEOUT_FIRST_BYTE, Kind.TIMEOUT_IDLE, Kind.TIMEOUT_TOTAL}
)
"""Outcomes that say something is wrong with the site, not with the page: those that count in a row."""


class Politeness(msgspec.Struct, frozen=True):
    interval_s: Seconds = Seconds(15.0)
    """Between the end of an answer and the next connection (castillo2004's w)."""
    pages_per_connection: int = 1
    """castillo2004's k."""
    max_crawl_delay_s: Seconds | None = None
    """A longer Crawl-delay counts as this much; None takes robots.txt at its word."""
    max_retry_after_s: Seconds = Seconds(3600.0)
    backoff_s: Seconds = Seconds(30.0)
    """After the first failure; the site's word or the interval counts if longer."""
    backoff_factor: float = 2.0
    max_backoff_s: Seconds = Seconds(1800.0)
    keep_open_s: Seconds = Seconds(5.0)
    """A connection is kept over a pause up to this long: servers close idle ones after about that time."""

    def free_at(
        self,
        ended_at: Instant,
        outcome: Outcome,
        pages_on_connection: int,
        failures_in_a_row: int,
        crawl_delay_s: Seconds | None = None,
    ) -> Instant:
        """When the site may be asked again after an answer that ended at `ended_at`."""
        if outcome.kind in NEVER_ASKED:
            return ended_at
        if (
            outcome.kind in SUCCESS
            and outcome.keep_alive
            and pages_on_connection < self.pages_per_connection
            and not crawl_delay_s
        ):
            return ended_at
        wait_s: float = self.pause_s(crawl_delay_s)
        if outcome.kind is Kind.THROTTLED and outcome.retry_after_s is None:
            failures_in_a_row = max(failures_in_a_row, 1)
        if failures_in_a_row > 0:
            step = failures_in_a_row - 1
            backoff_s = growing_delay_s(step, self.backoff_s, self.backoff_factor, self.max_backoff_s)
            wait_s = max(wait_s, backoff_s)
        if outcome.retry_after_s is not None:
            wait_s = max(wait_s, min(outcome.retry_after_s, self.max_retry_after_s))
        return Instant(ended_at + wait_s)

    def pause_s(self, crawl_delay_s: Seconds | None = None) -> Seconds:
        """The least time between connections: ours, or the longer one that robots.txt asks for."""
        if crawl_delay_s is None:
            return self.interval_s
        if self.max_crawl_delay_s is not None:
            crawl_delay_s = min(crawl_delay_s, self.max_crawl_delay_s)
        return max(self.interval_s, crawl_delay_s)

    def longest_wait_s(self, failures_in_a_row: int, crawl_delay_s: Seconds | None = None) -> Seconds:
        """A site that has failed so often is never left alone for longer."""
        pause_s = self.pause_s(crawl_delay_s)
        return max(pause_s, self.max_backoff_s, self.max_retry_after_s) if failures_in_a_row else pause_s

    def closes_after(self, pages_on_connection: int, crawl_delay_s: Seconds | None = None) -> bool:
        """Whether the connection should end with the page that is its `pages_on_connection`-th."""
        is_last = pages_on_connection >= self.pages_per_connection or bool(crawl_delay_s)
        return is_last and self.pause_s(crawl_delay_s) > self.keep_open_s
