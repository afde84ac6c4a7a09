"""What a crawl writes down of itself: every site in its turn, never more in a second than it may cost."""

from __future__ import annotations

from itertools import pairwise

import pytest

from headway.engine.bandwidth import BandwidthPlanner, LinkBound
from headway.engine.forecast import Forecaster
from headway.engine.machine import Engine
from headway.engine.scheduler import EngineSettings, Policies
from headway.model.command import FetchPage
from headway.model.event import PageSettled, Seeded
from headway.model.page import Kind, Lease, Outcome, Page, PageKey, Site, Task
from headway.planning.allocator import Allocator
from headway.policy.ordering.simple import Depth
from headway.policy.politeness import Politeness, RetryPolicy
from headway.policy.prediction import Prediction
from headway.policy.scope import Scope
from headway.policy.timetable import Timetable
from headway.runtime.crawling import Chronicle
from headway.units import BytesPerSecond, Instant, Seconds

BOUND = BytesPerSecond(100_000.0)


def crawl_of(sites: int, *, is_planned: bool) -> Engine:
    politeness = Politeness(interval_s=Seconds(1.0))
    prediction = Prediction(BytesPerSecond(20_000.0))
    crawl = Engine(
        Policies(ordering=Depth(), scope=Scope(), politeness=politeness, retry=RetryPolicy()),
        EngineSettings(max_connections=4, lease_s=Seconds(1e6), asks_robots=False),
        bound=LinkBound(Timetable(BOUND)) if is_planned else None,
        planner=BandwidthPlanner(Allocator(), politeness, prediction) if is_planned else None,
        forecaster=Forecaster(politeness, max_connections=4) if is_planned else None,
    )
    names = [Site(f"http://site{number}.test") for number in range(sites)]
    pages = tuple(
        Page(f"{site}/{page}", site, PageKey(place * 10 + page))
        for place, site in enumerate(names)
        for page in (0, 1)
    )
    tasks = tuple(Task(site, deadline_at=Instant(1e5)) for site in names)
    crawl.step(Instant(0.0), Seeded(tasks, pages))
    return crawl


@pytest.mark.parametrize("is_planned", [True, False])
def test_every_site_comes_up_and_no_second_has_too_many(is_planned: bool) -> None:
    chronicle = Chronicle(crawl_of(400, is_planned=is_planned))
    seen: set[str] = set()
    for second in range(6):
        rows = chronicle.course(Instant(float(second)))
        assert len(rows) <= 150
        seen |= {row.site for row in rows}
    assert len(seen) == 400


def test_the_longer_it_lasts_the_further_apart_are_the_rows() -> None:
    chronicle = Chronicle(crawl_of(1, is_planned=True))
    at = [second for second in range(2000) if chronicle.course(Instant(float(second)))]
    gaps = [after - before for before, after in pairwise(at)]
    assert gaps[0] == 1
    assert gaps[-1] >= 50
    assert gaps == sorted(gaps)


def test_a_site_that_has_not_changed_is_not_written_again_at_the_end() -> None:
    crawl = crawl_of(3, is_planned=False)
    chronicle = Chronicle(crawl)
    assert len(chronicle.end(Instant(1.0))) == 3
    assert chronicle.end(Instant(2.0)) == []


def test_a_planned_site_has_its_share_and_its_forecast() -> None:
    chronicle = Chronicle(crawl_of(2, is_planned=True))
    rows = chronicle.course(Instant(1.0))
    assert len(rows) == 2
    for row in rows:
        assert row.forecast_from_at is not None
        assert row.forecast_to_at is not None
        assert row.forecast_at is not None
        assert 0 < row.forecast_from_at <= row.forecast_at <= row.forecast_to_at
        assert row.deadline_chance is not None
        assert 0 <= row.deadline_chance <= 1
        assert row.left_bytes is not None
        assert row.share_bytes_per_s is not None


def test_the_gauges_predict_no_more_than_the_bound() -> None:
    crawl = crawl_of(50, is_planned=True)
    gauges = Chronicle(crawl).gauges(Instant(0.0))
    assert gauges.in_flight == 4
    assert gauges.waiting == 96
    assert gauges.predicted_bytes_per_s == pytest.approx(min(4 * 20_000.0, BOUND))
    assert Chronicle(crawl_of(5, is_planned=False)).gauges(Instant(0.0)).predicted_bytes_per_s is None


def test_a_site_that_has_ended_has_nothing_left() -> None:
    crawl = crawl_of(1, is_planned=True)
    chronicle = Chronicle(crawl)
    now = 0.0
    outcome = Outcome(Kind.FETCHED, 200, 1000, Seconds(0.1))
    lease: Lease | None = crawl.leases._open[1]
    while lease is not None:
        commands = crawl.step(Instant(now), PageSettled(lease, outcome))
        now += 2.0
        commands = [*commands, *crawl.step(Instant(now), Seeded((), ()))]
        lease = next((command.lease for command in commands if isinstance(command, FetchPage)), None)
    (row,) = chronicle.end(Instant(now))
    assert (row.waiting, row.left_bytes, row.forecast_to_at) == (0, 0.0, None)
