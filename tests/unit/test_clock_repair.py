"""After the clock was set back, a crawl goes on as soon as its own rules allow."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headway.engine.stats import plausible
from headway.model.command import SiteRecord, Snapshot, WaitingRecord
from headway.model.page import AllowAll, Page, PageKey, Site
from headway.policy.politeness import Politeness, RetryPolicy
from headway.units import Instant, Seconds

SITE = Site("https://a.example")
PAGE = Page("https://a.example/x", SITE, PageKey(1))
NOW = Instant(1_800_000_000.0)
POLITENESS = Politeness(interval_s=Seconds(15.0))


class Slow(AllowAll):
    crawl_delay_s = Seconds(120.0)


def taken_up(record: SiteRecord, *waiting: WaitingRecord, slow: bool = False) -> Snapshot:
    rules = {SITE: Slow() if slow else AllowAll()}
    return plausible(NOW, Snapshot(NOW, (), [record], waiting, []), rules, POLITENESS, RetryPolicy())


@given(st.floats(0, 1e9), st.integers(0, 5), st.booleans())
def test_no_site_waits_longer_than_politeness_asks(ahead_s: float, failures: int, slow: bool) -> None:
    record = SiteRecord(SITE, Instant(NOW + ahead_s), failures)
    (site,) = taken_up(record, slow=slow).sites
    longest = POLITENESS.longest_wait_s(failures, Seconds(120.0) if slow else None)
    assert site.free_at == min(record.free_at, NOW + longest)


@given(st.floats(-1e9, 1e9), st.integers(0, 3))
def test_no_page_is_put_off_longer_than_a_retry(ahead_s: float, attempt: int) -> None:
    waiting = WaitingRecord(PAGE, attempt, Instant(NOW + ahead_s))
    (kept,) = taken_up(SiteRecord(SITE, NOW), waiting).waiting
    assert kept.retry_at is not None
    assert kept.retry_at == min(waiting.retry_at or NOW, NOW + RetryPolicy().longest_wait_s)


def test_rules_are_believed_for_a_day_at_most() -> None:
    record = SiteRecord(SITE, NOW, robots_text="", robots_expires_at=Instant(NOW + 1e8))
    (site,) = taken_up(record).sites
    assert site.robots_expires_at == NOW + 86400


def test_what_lies_near_is_left_as_it_is() -> None:
    record = SiteRecord(SITE, Instant(NOW + 10), 0, "", Instant(NOW + 3600))
    waiting = WaitingRecord(PAGE, 1, Instant(NOW + 60))
    snapshot = taken_up(record, waiting)
    assert (list(snapshot.sites), list(snapshot.waiting)) == ([record], [waiting])
