"""When a site may be requested again, and whether and when a failed page is retried."""

from __future__ import annotations

import msgspec

from headway.model.command import PageState
from headway.model.page import SUCCESS, Kind, Outcome, tries_before
from headway.units import Instant, Seconds

_MOST_STEPS = 64


def growing_delay_s(step: int, first_s: Seconds, factor: float, most_s: Seconds) -> Seconds:
    """`first_s` at step 0, `factor` times longer at each step, at most `most_s`."""
    delay_s: float = first_s
    # Multiplication, because a float product overflows to infinity and a power raises OverflowError.
    for _ in range(min(step, _MOST_STEPS)):
        delay_s *= factor
    return Seconds(min(delay_s, most_s))


NEVER_ASKED = frozenset(
    {Kind.ROBOTS_DENIED, Kind.ROBOTS_UNREACHABLE, Kind.LIMIT, Kind.OUT_OF_SCOPE, Kind.FORBIDDEN_ADDRESS}
)
"""Outcomes without a request to the site, after which no interval is needed."""

UNREACHABLE = frozenset({Kind.DNS, Kind.CONNECT, Kind.TIMEOUT_CONNECT, Kind.THROTTLED})
"""Trouble of the server: no page of the site can be fetched now."""
DOUBTFUL = frozenset(
    {Kind.SERVER_ERROR, Kind.RESET, Kind.PROTOCOL}
    | {Kind.TIMEOUT_FIRST_BYTE, Kind.TIMEOUT_IDLE, Kind.TIMEOUT_TOTAL}
)
"""Trouble of the page, or of the server if several pages in a row have it."""
TROUBLE = UNREACHABLE | DOUBTFUL | {Kind.TLS}
_DNS_BACKOFF_S = Seconds(2.0)
"""The first wait after a lookup that failed: it costs a server nothing."""


class Politeness(msgspec.Struct, frozen=True):
    """When a site may be requested again.

    The interval starts at the end of the last answer (cobweb1999). Up to k pages may follow one another on a
    connection, and the interval is kept between connections (castillo2004). After consecutive failures the
    wait grows.
    """

    interval_s: Seconds = Seconds(15.0)
    """Between the end of an answer and the next connection (castillo2004's w)."""
    pages_per_connection: int = 1
    """castillo2004's k."""
    max_crawl_delay_s: Seconds | None = None
    """A longer Crawl-delay is reduced to this; None: no limit."""
    max_retry_after_s: Seconds = Seconds(3600.0)
    backoff_s: Seconds = Seconds(30.0)
    """Wait after the first failure; a Retry-After or the interval counts if it is longer."""
    backoff_factor: float = 2.0
    max_backoff_s: Seconds = Seconds(1800.0)
    keep_open_s: Seconds = Seconds(5.0)
    """A connection stays open over a pause up to this long; servers close idle ones after about this time."""
    keep_open_secure_s: Seconds = Seconds(60.0)
    """The same with TLS, where a new connection costs both sides a handshake. A server that wants to close it
    earlier does so, or says when."""

    def free_at(
        self,
        ended_at: Instant,
        outcome: Outcome,
        pages_on_connection: int,
        failures_in_a_row: int,
        crawl_delay_s: Seconds | None = None,
    ) -> Instant:
        """When the site may be requested again after an answer that ended at `ended_at`."""
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
            first_s = min(self.backoff_s, _DNS_BACKOFF_S) if outcome.kind is Kind.DNS else self.backoff_s
            backoff_s = growing_delay_s(step, first_s, self.backoff_factor, self.max_backoff_s)
            wait_s = max(wait_s, backoff_s)
        if outcome.retry_after_s is not None:
            wait_s = max(wait_s, min(outcome.retry_after_s, self.max_retry_after_s))
        return Instant(ended_at + wait_s)

    def pause_s(self, crawl_delay_s: Seconds | None = None) -> Seconds:
        """The least time between connections: the interval, or the Crawl-delay if that is longer."""
        if crawl_delay_s is None:
            return self.interval_s
        if self.max_crawl_delay_s is not None:
            crawl_delay_s = min(crawl_delay_s, self.max_crawl_delay_s)
        return max(self.interval_s, crawl_delay_s)

    def longest_wait_s(self, failures_in_a_row: int, crawl_delay_s: Seconds | None = None) -> Seconds:
        """The longest time that `free_at` waits after this many consecutive failures."""
        pause_s = self.pause_s(crawl_delay_s)
        return max(pause_s, self.max_backoff_s, self.max_retry_after_s) if failures_in_a_row else pause_s

    def closes_after(
        self, pages_on_connection: int, crawl_delay_s: Seconds | None = None, *, is_secure: bool = False
    ) -> bool:
        """Whether to close the connection after its `pages_on_connection`-th page."""
        is_last = pages_on_connection >= self.pages_per_connection or bool(crawl_delay_s)
        return is_last and self.pause_s(crawl_delay_s) > (
            self.keep_open_secure_s if is_secure else self.keep_open_s
        )


# Retries. A page with a temporary failure (time-out, reset, server error, throttling, failed lookup or
# connection) returns to the queue with a growing penalty (cobweb1999). All other failures are final.

PASSING = frozenset(
    {
        Kind.THROTTLED,
        Kind.SERVER_ERROR,
        Kind.DNS,
        Kind.CONNECT,
        Kind.TIMEOUT_CONNECT,
        Kind.TIMEOUT_FIRST_BYTE,
        Kind.TIMEOUT_IDLE,
        Kind.TIMEOUT_TOTAL,
        Kind.RESET,
        Kind.PROTOCOL,
        Kind.ROBOTS_UNREACHABLE,
        Kind.LEASE_EXPIRED,
    }
)
"""Temporary failures: another attempt may succeed."""

OUR_CHOICE = frozenset(
    {
        Kind.UNWANTED_TYPE,
        Kind.LISTING,
        Kind.FORBIDDEN_ADDRESS,
        Kind.ROBOTS_DENIED,
        Kind.LIMIT,
        Kind.OUT_OF_SCOPE,
    }
)
"""Pages left out by a rule of the crawl or of the site. They count as excluded, not failed."""

_PASSING_STATUSES = frozenset({408, 425})  # Request Timeout, Too Early: the temporary 4xx


class Retry(msgspec.Struct, frozen=True):
    at: Instant
    forgiven: int = 0
    """How many of the attempts do not count, because the server was in trouble."""


class GiveUp(msgspec.Struct, frozen=True):
    state: PageState
    reason: str


class RetryPolicy(msgspec.Struct, frozen=True):
    max_attempts: int = 3
    """Requests for a page, including the first."""
    penalty_s: Seconds = Seconds(60.0)
    """The least wait before the first retry."""
    penalty_factor: float = 4.0
    max_penalty_s: Seconds = Seconds(3600.0)
    max_retry_after_s: Seconds = Seconds(3600.0)
    """A longer Retry-After is reduced to this, so that one header cannot delay a page forever."""

    @property
    def longest_wait_s(self) -> Seconds:
        """The longest time that a retry can be delayed."""
        return max(self.max_penalty_s, self.max_retry_after_s, self.penalty_s)

    def decide(self, now: Instant, outcome: Outcome, attempt: int) -> Retry | GiveUp:
        """Retry or give up a page whose attempt number `attempt` (the first is 0) had this outcome."""
        kind, attempt = outcome.kind, tries_before(attempt)
        if kind in SUCCESS:
            return GiveUp(PageState.DONE, kind)
        if kind is Kind.CANCELLED:
            return Retry(now)
        if kind in OUR_CHOICE:
            return GiveUp(PageState.EXCLUDED, kind)
        if not may_pass(outcome) or attempt + 1 >= self.max_attempts:
            return GiveUp(PageState.FAILED, kind)
        delay_s = growing_delay_s(attempt, self.penalty_s, self.penalty_factor, self.max_penalty_s)
        if outcome.retry_after_s is not None:
            delay_s = max(delay_s, min(outcome.retry_after_s, self.max_retry_after_s))
        return Retry(Instant(now + delay_s))


def may_pass(outcome: Outcome) -> bool:
    """Whether another attempt may succeed."""
    return outcome.kind in PASSING or (outcome.kind is Kind.REFUSED and outcome.status in _PASSING_STATUSES)
