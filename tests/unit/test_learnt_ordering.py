"""What batch, partial and flow have learnt of the links of a web survives a restart."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import msgspec
import pytest

from headway.cluster.folder import WorkerFolder
from headway.cluster.leader import Leader
from headway.cluster.local import LocalCoordinator, WorkerSession, WorkerTask
from headway.cluster.processes import worker_session
from headway.config.job import Job, build_job
from headway.config.reading import Source, convert
from headway.model.command import PageState, SaveFound, SaveSettled
from headway.model.page import Kind, Outcome, Page, PageKey, Site
from headway.planning.allocator import Allocator
from headway.policy.ordering import LearningOrdering
from headway.policy.ordering.ranked import RankedOrdering
from headway.policy.timetable import Timetable
from headway.runtime.driver import WallClock
from headway.runtime.runtime import build_ordering, learnt_ordering, warc_info_of
from headway.store.postgres.reader import PostgresReader
from headway.store.postgres.store import PostgresStore
from headway.store.reader import DATABASE, RunReader
from headway.store.recrawl import KnownContents
from headway.store.sqlite import SqliteStore
from headway.units import UNBOUNDED, Instant, Seconds

NOW = Instant(1000.0)
SITE = Site("https://a.test")
FETCHED = Outcome(Kind.FETCHED, 200, 1000, Seconds(0.1), "text/html")


def job_with(strategy: str) -> Job:
    source = Source("the test")
    tables = {"crawl": {"strategy": strategy}, "site": [{"url": f"{SITE}/"}]}
    return build_job(convert(tables, source), source)


def web() -> list[tuple[Page, tuple[Page, ...]]]:
    """The pages that were fetched, each with its links."""
    chance = random.Random(7)
    pages = [Page(f"{SITE}/{number}", SITE, PageKey(number * 7919 - 200_000)) for number in range(120)]
    return [(page, tuple(chance.sample(pages, chance.randrange(12)))) for page in pages[:60]]


def fill(store: SqliteStore | PostgresStore) -> None:
    store.create(NOW, {})
    known = {page.key: page for fetched, links in web() for page in (fetched, *links)}
    store.commit([SaveFound(tuple(known.values()))], {})
    for page, links in web():
        store.commit([SaveSettled(page, FETCHED, PageState.DONE, 0, NOW, links=links)], {})
    store.close()


def keys_after(ordering: object, waiting: list[Page]) -> list[float]:
    assert isinstance(ordering, LearningOrdering)
    ordering.reorder(waiting)
    return [ordering.page_key(page) for page in waiting]


def keys_without_a_restart(job: Job, waiting: list[Page]) -> list[float]:
    ordering = build_ordering(job)
    assert isinstance(ordering, LearningOrdering)
    for page, links in web():
        ordering.settled(page, links)
    return keys_after(ordering, waiting)


def waiting_pages() -> list[Page]:
    fetched = {page.key for page, _ in web()}
    found = {link.key: link for _, links in web() for link in links if link.key not in fetched}
    return list(found.values())


@pytest.mark.parametrize("strategy", ["batch(20)", "partial(5)", "flow(5)"])
def test_an_ordering_goes_on_after_a_restart_as_if_there_had_been_none(tmp_path: Path, strategy: str) -> None:
    fill(SqliteStore(tmp_path / DATABASE))
    job = job_with(strategy)
    with RunReader(tmp_path) as reader:
        ordering = learnt_ordering(job, reader)
    assert isinstance(ordering, RankedOrdering)
    assert ordering.web.links == sum(len(links) for _, links in web()) > 100
    assert keys_after(ordering, waiting_pages()) == pytest.approx(
        keys_without_a_restart(job, waiting_pages()), rel=1e-3
    )


def test_the_links_are_read_from_postgresql_too(postgres_store: str) -> None:
    fill(PostgresStore(postgres_store))
    with PostgresReader(postgres_store) as reader:
        ordering = learnt_ordering(job_with("flow(5)"), reader)
    assert isinstance(ordering, RankedOrdering)
    assert ordering.web.links == sum(len(links) for _, links in web())


@pytest.mark.parametrize("strategy", ["batch(20)", "partial(5)", "flow(5)"])
def test_a_worker_process_goes_on_with_the_links_that_all_have_fetched(tmp_path: Path, strategy: str) -> None:
    fill(SqliteStore(tmp_path / DATABASE))
    job = job_with(strategy)
    task = WorkerTask(msgspec.to_builtins(job.file), str(tmp_path), False, 1000, Seconds(1.0))

    async def ordering_of_a_worker() -> object:
        store = SqliteStore(tmp_path / DATABASE)
        coordinator = LocalCoordinator(NOW, store, Leader(Timetable(UNBOUNDED), Allocator), print)
        folder = WorkerFolder(tmp_path, warc_info_of(job))
        try:
            known = KnownContents()
            session = worker_session(task, WorkerSession(coordinator, WallClock(), task), folder, known)
            return session.crawl.frontier._learning
        finally:
            folder.close()
            store.close()

    ordering = asyncio.run(ordering_of_a_worker())
    assert isinstance(ordering, RankedOrdering)
    assert ordering.web.links == sum(len(links) for _, links in web()) > 100
    assert keys_after(ordering, waiting_pages()) == pytest.approx(
        keys_without_a_restart(job, waiting_pages()), rel=1e-3
    )


def test_an_ordering_that_does_not_learn_reads_nothing(tmp_path: Path) -> None:
    fill(SqliteStore(tmp_path / DATABASE))
    with RunReader(tmp_path) as reader:
        assert learnt_ordering(job_with("depth"), reader) is None
