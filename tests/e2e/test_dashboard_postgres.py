"""A crawl on a PostgreSQL server, seen in the dashboard: the same picture, and who works on it."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

pytest.importorskip("uvicorn", reason="the dashboard needs the extra 'serve'")
pytest.importorskip("psycopg", reason="PostgreSQL needs the extra 'postgres'")

from tests.support.postgres import TemporaryPostgres, find_postgres

from headway.dashboard.answers import Pause, WatchedRun
from headway.dashboard.application import RefusedError, accept_order
from headway.model.command import PageState, SaveFound, SaveSettled, SaveSite, SaveTasks
from headway.model.page import Kind, Outcome, Page, PageKey, Site, Task
from headway.store.postgres.store import PostgresStore
from headway.store.rows import Gauges, SiteSample
from headway.units import BytesPerSecond, Instant, Seconds

pytestmark = pytest.mark.skipif(find_postgres() is None, reason="PostgreSQL is not installed")
A = Site("http://a.test")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with TemporaryPostgres() as server:
        yield str(server.address("news"))


def begin(address: str, now: float) -> None:
    store = PostgresStore(address)
    try:
        store.create(Instant(now - 10), {"crawl": {}})
        pages = tuple(Page(f"{A}/{number}", A, PageKey(number + 1)) for number in range(5))
        outcome = Outcome(Kind.FETCHED, 200, 1000, Seconds(0.1), "text/html", 900, "sha256:1")
        failed = Outcome(Kind.RESET, detail="gone", duration_s=Seconds(0.1))
        store.commit([SaveTasks((Task(A, deadline_at=Instant(now + 60)),)), SaveFound(pages)], {})
        store.record_sample(Instant(now - 1), 0, BytesPerSecond(5000.0), Gauges(4000.0, 1, 5))
        course = [SiteSample(A, now, 1000, 3, 3000.0, 2000.0, now + 5, now + 9)]
        store.record_sample(Instant(now), 1000, BytesPerSecond(5000.0), Gauges(4000.0, 1, 3, 1, 1), course)
        store.commit(
            [
                SaveSettled(pages[0], outcome, PageState.DONE, 0, Instant(now)),
                SaveSettled(pages[1], failed, PageState.FAILED, 2, Instant(now)),
                SaveSite(A, Instant(now), 0),
            ],
            {},
        )
        store.asked(
            lambda connection: connection.execute(
                "INSERT INTO collector (name, label, version, joined_at, until_at) VALUES "
                "('east', 'eu', '1', %s, %s), ('west', 'us', '1', %s, %s)",
                (now - 5, now + 60, now - 4, now + 60),
            )
        )
    finally:
        store.close()


def test_a_crawl_of_several_collectors_is_seen_and_not_steered(address: str) -> None:
    now = time.time()
    begin(address, now)
    watched = WatchedRun(address, clock=lambda: now)
    try:
        picture = watched.picture()
        assert (picture.run.name, picture.run.state, picture.run.takes_orders) == ("news", "running", False)
        assert [each.name for each in picture.run.collectors] == ["east", "west"]
        assert (picture.run.done, picture.run.failed, picture.run.waiting) == (1, 1, 3)
        assert [point.rate_bytes_per_s for point in picture.link] == [pytest.approx(1000.0)]
        (line,) = picture.sites
        assert (line.site, line.outlook, line.forecast_to_at) == (A, "on-time", pytest.approx(now + 9))
        assert [page.kind for page in watched.failures(5)] == ["reset"]
        assert watched.detail(line.number) is not None
        assert watched.log.newest(5) == []
        with pytest.raises(RefusedError, match="cannot be controlled"):
            accept_order(address, watched, Pause())
    finally:
        watched.close()
