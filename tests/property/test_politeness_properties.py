from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from headway.model.page import Kind, Outcome
from headway.policy.politeness import NEVER_ASKED, GiveUp, Politeness, Retry, RetryPolicy
from headway.units import Instant, Seconds

LENGTHS = st.floats(0, 1e6)
OUTCOMES = st.builds(
    Outcome,
    kind=st.sampled_from(list(Kind)),
    status=st.sampled_from([0, 200, 404, 408, 429, 503]),
    retry_after_s=st.none() | LENGTHS,
    keep_alive=st.booleans(),
)
POLITENESS = st.builds(
    Politeness,
    interval_s=LENGTHS,
    pages_per_connection=st.integers(1, 100),
    max_crawl_delay_s=st.none() | LENGTHS,
    max_retry_after_s=LENGTHS,
    backoff_s=LENGTHS,
    backoff_factor=st.floats(1, 1e9),
    max_backoff_s=LENGTHS,
)
RETRIES = st.builds(
    RetryPolicy,
    max_attempts=st.integers(1, 10),
    penalty_s=LENGTHS,
    penalty_factor=st.floats(1, 1e9),
    max_penalty_s=LENGTHS,
    max_retry_after_s=LENGTHS,
)


@given(POLITENESS, OUTCOMES, st.integers(0, 200), st.integers(0, 10**6), st.none() | LENGTHS)
@settings(deadline=None)
def test_a_site_is_never_free_before_its_pause_unless_the_connection_is_kept(
    politeness: Politeness, outcome: Outcome, pages: int, failures: int, delay_s: Seconds | None
) -> None:
    ended_at = Instant(1e6)
    free_at = politeness.free_at(ended_at, outcome, pages, failures, delay_s)
    assert free_at >= ended_at
    goes_on = outcome.keep_alive and pages < politeness.pages_per_connection and not delay_s
    if not goes_on and outcome.kind not in NEVER_ASKED:
        assert free_at >= ended_at + politeness.pause_s(delay_s)
    limit_s = max(politeness.pause_s(delay_s), politeness.max_backoff_s, politeness.max_retry_after_s)
    assert free_at <= ended_at + limit_s, "no answer may put a site off for longer than the user allows"


@given(POLITENESS, st.integers(1, 100))
@settings(deadline=None)
def test_more_failures_in_a_row_never_shorten_the_wait(politeness: Politeness, failures: int) -> None:
    outcome = Outcome(Kind.SERVER_ERROR, 500)
    first = politeness.free_at(Instant(0.0), outcome, 1, failures)
    second = politeness.free_at(Instant(0.0), outcome, 1, failures + 1)
    assert first <= second


@given(RETRIES, OUTCOMES)
@settings(deadline=None)
def test_a_page_is_asked_for_at_most_max_attempts_times(policy: RetryPolicy, outcome: Outcome) -> None:
    now, attempt = Instant(0.0), 0
    while isinstance(verdict := policy.decide(now, outcome, attempt), Retry):
        assert verdict.at >= now
        assert verdict.at - now <= max(policy.max_penalty_s, policy.max_retry_after_s) * (1 + 1e-9) + 1e-6
        now, attempt = verdict.at, attempt + 1
        if outcome.kind is Kind.CANCELLED:
            return
    assert isinstance(verdict, GiveUp)
    assert attempt < policy.max_attempts
