"""The bound on the link: a timetable, a person's word, quotas, and giving way to others."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

from headway.engine.bandwidth import LinkBound
from headway.engine.machine import Engine
from headway.engine.scheduler import EngineSettings, Policies
from headway.errors import StoreError, UnitError
from headway.model.command import FetchPage, SetCapacity, WakeAt
from headway.model.event import CapacityChanged, PageSettled, Seeded, Tick
from headway.model.page import Kind, Outcome, Page, PageKey, Site, Task
from headway.policy.ordering.simple import Depth
from headway.policy.politeness import Politeness, RetryPolicy
from headway.policy.scope import Scope
from headway.policy.timetable import Entry, Period, Quota, QuotaTally, Timetable
from headway.runtime.control import LimitWatch, write_limit
from headway.units import Bytes, BytesPerSecond, Instant, Seconds

SITE = Site("http://a.test")
MONDAY = Instant(dt.datetime(2026, 11, 16, 7, 0, tzinfo=dt.UTC).timestamp())
OFFICE = Timetable(BytesPerSecond(1000.0), (Entry.parse("mon-fri", "08:00-18:00", BytesPerSecond(100.0)),))


def crawl_with(bound: LinkBound) -> Engine:
    return Engine(
        Policies(
            ordering=Depth(),
            scope=Scope(),
            politeness=Politeness(interval_s=Seconds(0.0)),
            retry=RetryPolicy(),
        ),
        EngineSettings(max_connections=1, lease_s=Seconds(1e6), asks_robots=False),
        bound=bound,
    )


def pages(count: int) -> tuple[Page, ...]:
    return tuple(Page(f"{SITE}/{number}", SITE, PageKey(number)) for number in range(count))


def test_the_machine_turns_with_the_timetable() -> None:
    crawl = crawl_with(LinkBound(OFFICE))
    first = crawl.step(MONDAY, Seeded((Task(SITE),), pages(1)))
    assert [c for c in first if isinstance(c, SetCapacity)] == [SetCapacity(BytesPerSecond(1000.0))]
    (wake,) = [c for c in first if isinstance(c, WakeAt)]
    assert wake.at == MONDAY + 3600
    assert SetCapacity(BytesPerSecond(100.0)) in crawl.step(wake.at, Tick())


def test_a_persons_word_counts_until_it_is_taken_back() -> None:
    crawl = crawl_with(LinkBound(OFFICE))
    crawl.step(MONDAY, Seeded((Task(SITE),), pages(1)))
    said = crawl.step(Instant(MONDAY + 1), CapacityChanged(BytesPerSecond(7.0)))
    assert SetCapacity(BytesPerSecond(7.0)) in said
    assert not [c for c in crawl.step(Instant(MONDAY + 7200), Tick()) if isinstance(c, SetCapacity)]
    back = crawl.step(Instant(MONDAY + 7201), CapacityChanged(None))
    assert SetCapacity(BytesPerSecond(100.0)) in back


def test_nothing_is_fetched_beyond_a_quota_until_it_is_renewed() -> None:
    tally = QuotaTally(Quota(Bytes(2500), Period.DAY))
    crawl = crawl_with(LinkBound(Timetable(BytesPerSecond(1e6)), [tally]))
    commands = list(crawl.step(MONDAY, Seeded((Task(SITE),), pages(5))))
    fetched = 0
    while orders := [c for c in commands if isinstance(c, FetchPage)]:
        fetched += 1
        outcome = Outcome(Kind.FETCHED, 200, 1000, Seconds(0.1))
        commands = list(crawl.step(Instant(MONDAY + fetched), PageSettled(orders[0].lease, outcome)))
    assert fetched == 2, "a third page would go beyond"
    (wake,) = [c for c in commands if isinstance(c, WakeAt) and c.at < MONDAY + 86400]
    assert wake.at == MONDAY + 17 * 3600, "midnight"
    assert [c for c in crawl.step(wake.at, Tick()) if isinstance(c, FetchPage)]


def test_plans_count_on_what_other_users_leave_and_the_bound_stays() -> None:
    bound = LinkBound(Timetable(BytesPerSecond(1e6)))
    bound.look(Instant(0.0))
    assert bound.ahead(Instant(0.0), Seconds(60.0))[0][2] == 1e6
    for _ in range(50):
        bound.share(BytesPerSecond(2e5))
    assert bound.ahead(Instant(0.0), Seconds(60.0))[0][2] == pytest.approx(2e5, rel=0.01)
    assert bound.capacity_bytes_per_s == 1e6
    for _ in range(50):
        bound.share(BytesPerSecond(1e6))
    assert bound.ahead(Instant(0.0), Seconds(60.0))[0][2] == 1e6


def test_a_limit_in_the_run_folder_is_noticed_and_a_slip_of_the_pen_changes_nothing(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="not a run folder"):
        write_limit(tmp_path, "2 Mbit/s")
    (tmp_path / "crawl.sqlite").touch()
    watch = LimitWatch(tmp_path)
    assert not watch.has_changed()
    write_limit(tmp_path, "2 Mbit/s")
    assert watch.has_changed()
    assert watch.limit_bytes_per_s == 250_000
    assert not watch.has_changed()
    (tmp_path / "bandwidth").write_text("fast")
    assert not watch.has_changed()
    assert watch.limit_bytes_per_s == 250_000
    with pytest.raises(UnitError):
        write_limit(tmp_path, "0 B/s")
    write_limit(tmp_path, None)
    assert watch.has_changed()
    assert watch.limit_bytes_per_s is None
