from __future__ import annotations

import pytest

from headway.model.page import Kind, Outcome
from headway.policy.politeness import NEVER_ASKED, Politeness
from headway.units import Instant, Seconds

ENDED_AT = Instant(1000.0)
FETCHED = Outcome(Kind.FETCHED, 200)
POLITE = Politeness(interval_s=Seconds(15.0))


def wait_s(
    politeness: Politeness = POLITE,
    outcome: Outcome = FETCHED,
    pages: int = 1,
    failures: int = 0,
    crawl_delay_s: float | None = None,
) -> float:
    delay_s = None if crawl_delay_s is None else Seconds(crawl_delay_s)
    return politeness.free_at(ENDED_AT, outcome, pages, failures, delay_s) - ENDED_AT


def test_the_interval_counts_from_the_end_of_the_answer() -> None:
    assert wait_s() == 15


@pytest.mark.parametrize(("delay_s", "expected_s"), [(1.0, 15), (60.0, 60), (0.0, 15), (None, 15)])
def test_the_longer_of_interval_and_crawl_delay_holds(delay_s: float | None, expected_s: float) -> None:
    assert wait_s(crawl_delay_s=delay_s) == expected_s


def test_a_crawl_delay_beyond_the_limit_counts_as_the_limit() -> None:
    politeness = Politeness(interval_s=Seconds(5.0), max_crawl_delay_s=Seconds(30.0))
    assert wait_s(politeness, crawl_delay_s=86400.0) == 30
    assert wait_s(politeness, crawl_delay_s=20.0) == 20
    assert (
        wait_s(Politeness(interval_s=Seconds(40.0), max_crawl_delay_s=Seconds(30.0)), crawl_delay_s=99.0)
        == 40
    )


def test_pages_of_a_connection_follow_at_once_and_the_interval_lies_between_connections() -> None:
    politeness = Politeness(interval_s=Seconds(15.0), pages_per_connection=3)
    assert [wait_s(politeness, pages=pages) for pages in (1, 2, 3, 4)] == [0, 0, 15, 15]
    assert [politeness.closes_after(pages) for pages in (1, 2, 3)] == [False, False, True]


def test_a_closed_connection_or_a_failure_ends_the_run_of_pages() -> None:
    politeness = Politeness(interval_s=Seconds(15.0), pages_per_connection=3)
    assert wait_s(politeness, Outcome(Kind.FETCHED, 200, keep_alive=False)) == 15
    assert wait_s(politeness, Outcome(Kind.RESET)) == 15


def test_a_crawl_delay_holds_between_pages_of_a_connection_too() -> None:
    politeness = Politeness(interval_s=Seconds(15.0), pages_per_connection=3)
    assert wait_s(politeness, pages=1, crawl_delay_s=2.0) == 15
    assert politeness.closes_after(1, Seconds(2.0))


def test_a_connection_is_kept_over_a_short_pause() -> None:
    assert not Politeness(interval_s=Seconds(1.0)).closes_after(1)
    assert Politeness(interval_s=Seconds(1.0)).closes_after(1, Seconds(60.0))
    assert POLITE.closes_after(1)


def test_a_site_in_trouble_is_left_alone_longer_each_time_up_to_a_limit() -> None:
    politeness = Politeness(
        interval_s=Seconds(15.0), backoff_s=Seconds(10.0), backoff_factor=3.0, max_backoff_s=Seconds(200.0)
    )
    failed = Outcome(Kind.SERVER_ERROR, 500)
    waits = [wait_s(politeness, failed, failures=failures) for failures in (0, 1, 2, 3, 4, 5, 1000)]
    assert waits == [15, 15, 30, 90, 200, 200, 200]


def test_retry_after_is_honoured_up_to_a_limit() -> None:
    def throttled(seconds: float) -> Outcome:
        return Outcome(Kind.THROTTLED, 429, retry_after_s=Seconds(seconds))

    politeness = Politeness(interval_s=Seconds(15.0), max_retry_after_s=Seconds(600.0))
    assert wait_s(politeness, throttled(120)) == 120
    assert wait_s(politeness, throttled(1)) == 15
    assert wait_s(politeness, throttled(10**9)) == 600


def test_a_site_that_throttles_without_a_word_is_backed_off_from() -> None:
    politeness = Politeness(interval_s=Seconds(1.0), backoff_s=Seconds(30.0))
    assert wait_s(politeness, Outcome(Kind.THROTTLED, 429)) == 30
    assert wait_s(politeness, Outcome(Kind.THROTTLED, 429, retry_after_s=Seconds(5.0))) == 5


@pytest.mark.parametrize("kind", sorted(NEVER_ASKED))
def test_a_site_that_was_not_asked_is_free_at_once(kind: Kind) -> None:
    assert wait_s(outcome=Outcome(kind), failures=5, crawl_delay_s=99.0) == 0
