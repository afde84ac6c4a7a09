"""Whether a page that failed is tried again.

What may pass (time-outs, resets, server errors, throttling, names and connections that failed) goes back
to the queue with a growing penalty (cobweb1999); a missing document is removed; the rest is final.
"""

from __future__ import annotations

import msgspec

from headway.model.command import PageState
from headway.model.outcome import SUCCESS, Kind, Outcome
from headway.model.page import tries_before
from headway.policy.backoff import growing_delay_s
from headway.units import Instant, Seconds

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
"""Failures that another attempt may not meet."""

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
"""Pages left out by a rule of ours or of the site: excluded, not failed."""

_PASSING_STATUSES = frozenset({408, 425})  # Request Timeout, Too Early: the two 4xx that say "again"


class Retry(msgspec.Struct, frozen=True):
    at: Instant


class GiveUp(msgspec.Struct, frozen=True):
    state: PageState
    reason: str


class RetryPolicy(msgspec.Struct, frozen=True):
    max_attempts: int = 3
    """Requests for a page, the first included."""
    penalty_s: Seconds = Seconds(60.0)
    """How long the first retry waits at least."""
    penalty_factor: float = 4.0
    max_penalty_s: Seconds = Seconds(3600.0)
    max_retry_after_s: Seconds = Seconds(3600.0)
    """A longer Retry-After counts as this much: one header must not put a page off for ever."""

    @property
    def longest_wait_s(self) -> Seconds:
        """No page is ever put off for longer."""
        return max(self.max_penalty_s, self.max_retry_after_s, self.penalty_s)

    def decide(self, now: Instant, outcome: Outcome, attempt: int) -> Retry | GiveUp:
        """What becomes of a page whose attempt number `attempt` (the first is 0) ended like this."""
        kind, attempt = outcome.kind, tries_before(attempt)
        if kind in SUCCESS:
            return GiveUp(PageState.DONE, kind)
        if kind is Kind.CANCELLED:
            return Retry(now)
        if kind in OUR_CHOICE:
            return GiveUp(PageState.EXCLUDED, kind)
        if not _may_pass(outcome) or attempt + 1 >= self.max_attempts:
            return GiveUp(PageState.FAILED, kind)
        delay_s = growing_delay_s(attempt, self.penalty_s, self.penalty_factor, self.max_penalty_s)
        if outcome.retry_after_s is not None:
            delay_s = max(delay_s, min(outcome.retry_after_s, self.max_retry_after_s))
        return Retry(Instant(now + delay_s))


def _may_pass(outcome: Outcome) -> bool:
    return outcome.kind in PASSING or (outcome.kind is Kind.REFUSED and outcome.status in _PASSING_STATUSES)
