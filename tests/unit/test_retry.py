from __future__ import annotations

import pytest

from headway.model.command import PageState
from headway.model.page import SUCCESS, Kind, Outcome
from headway.policy.politeness import OUR_CHOICE, PASSING, GiveUp, Retry, RetryPolicy
from headway.units import Instant, Seconds

NOW = Instant(5000.0)
POLICY = RetryPolicy(max_attempts=4, penalty_s=Seconds(10.0), penalty_factor=3.0, max_penalty_s=Seconds(60.0))


@pytest.mark.parametrize("kind", sorted(PASSING))
def test_temporary_failures_are_retried_with_a_growing_penalty_and_not_forever(kind: Kind) -> None:
    outcome = Outcome(kind)
    assert POLICY.decide(NOW, outcome, 0) == Retry(Instant(NOW + 10))
    assert POLICY.decide(NOW, outcome, 1) == Retry(Instant(NOW + 30))
    assert POLICY.decide(NOW, outcome, 2) == Retry(Instant(NOW + 60))
    assert POLICY.decide(NOW, outcome, 3) == GiveUp(PageState.FAILED, kind)


def test_every_time_out_and_every_lost_connection_may_pass() -> None:
    assert {kind for kind in Kind if kind.startswith("timeout")} <= PASSING
    assert {Kind.RESET, Kind.CONNECT, Kind.DNS, Kind.SERVER_ERROR, Kind.THROTTLED} <= PASSING


@pytest.mark.parametrize("kind", [Kind.MISSING, Kind.REFUSED, Kind.TLS, Kind.TOO_LARGE, Kind.BOMB])
def test_what_will_not_pass_is_final(kind: Kind) -> None:
    assert POLICY.decide(NOW, Outcome(kind), 0) == GiveUp(PageState.FAILED, kind)


@pytest.mark.parametrize("kind", sorted(OUR_CHOICE))
def test_what_a_rule_leaves_out_is_excluded_and_not_failed(kind: Kind) -> None:
    assert POLICY.decide(NOW, Outcome(kind), 0) == GiveUp(PageState.EXCLUDED, kind)


@pytest.mark.parametrize("status", [408, 425])
def test_the_two_refusals_that_mean_later_are_tried_again(status: int) -> None:
    assert POLICY.decide(NOW, Outcome(Kind.REFUSED, status), 0) == Retry(Instant(NOW + 10))


def test_retry_after_is_honoured_up_to_a_limit() -> None:
    policy = RetryPolicy(penalty_s=Seconds(10.0), max_retry_after_s=Seconds(100.0))

    def at(seconds: float) -> float:
        verdict = policy.decide(NOW, Outcome(Kind.THROTTLED, 503, retry_after_s=Seconds(seconds)), 0)
        assert isinstance(verdict, Retry)
        return verdict.at - NOW

    assert (at(5), at(50), at(5000)) == (10, 50, 100)


def test_a_page_given_back_unasked_waits_for_nothing() -> None:
    assert POLICY.decide(NOW, Outcome(Kind.CANCELLED), 99) == Retry(NOW)


def test_every_kind_of_outcome_is_decided() -> None:
    for kind in Kind:
        verdict = RetryPolicy(max_attempts=1).decide(NOW, Outcome(kind), 0)
        if kind in SUCCESS:
            assert verdict == GiveUp(PageState.DONE, kind)
        elif kind is Kind.CANCELLED:
            assert verdict == Retry(NOW)
        else:
            state = PageState.EXCLUDED if kind in OUR_CHOICE else PageState.FAILED
            assert verdict == GiveUp(state, kind)
