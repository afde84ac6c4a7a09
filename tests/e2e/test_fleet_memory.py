"""However many pages wait, a collector holds a few of each site and asks for more when it runs low."""

from __future__ import annotations

import asyncio
import socket
import time
from collections import Counter
from contextlib import ExitStack

import pytest
from tests.support.fleetweb import FleetWeb

from headway.cluster.calls import SharedClock
from headway.cluster.collecting import CollectorOptions, CollectRun, begin, build_session
from headway.cluster.folder import WorkerFolder
from headway.cluster.leader import Leader
from headway.cluster.local import WORKER_CALLS, LocalCoordinator, WorkerSession, WorkerTask
from headway.cluster.rpc import Offer, connect
from headway.config.job import build_job
from headway.config.reading import Source, convert
from headway.model.command import SaveFound, SaveTasks
from headway.planning.allocator import Allocator
from headway.runtime.driver import WallClock
from headway.store.postgres.connection import Address
from headway.store.sqlite import SqliteStore

SITES, PAGES, MOST_HELD = 3, 300, 24
AT_MOST = 2 * MOST_HELD


@pytest.fixture
def web():
    # The first page of a site links to all others of it, and each page to one of another site.
    with FleetWeb(sites=SITES, pages=PAGES, fan=PAGES, latency_s=0.001) as served:
        yield served


def job_of(web, **settings):
    source = Source("test")
    crawl = {"interval": "1 ms", "allow_private": True, "waiting_in_memory": MOST_HELD, **settings}
    tables = {"crawl": crawl, "site": [{"url": seed} for seed in web.seeds]}
    return build_job(convert(tables, source), source)


class Watch:
    """The pages that a crawl knew to wait, and those of them that it held, at its fullest."""

    def __init__(self):
        self.most_waiting = self.most_held = 0

    def look(self, crawl):
        queues = list(crawl.frontier.queues())
        self.most_waiting = max(self.most_waiting, sum(queue.waiting for queue in queues))
        self.most_held = max(self.most_held, sum(queue.waiting - queue.spilled for queue in queues))


def check(web, watches):
    assert web.judge(0.0)[:3] == (SITES * PAGES, 0, 0)
    assert max(watch.most_waiting for watch in watches) > 2 * AT_MOST, "there was something to hold"
    assert max(watch.most_held for watch in watches) <= AT_MOST


async def test_a_collector_on_a_server_holds_a_few_pages_of_many(web, postgres_store, tmp_path):
    address = Address.parse(postgres_store)
    job = job_of(web)
    begin(job, address, time.time())
    watches = [Watch(), Watch()]
    runs = [
        CollectRun(
            address,
            job,
            tmp_path / str(number),
            options=CollectorOptions(f"c{number}"),
            on_decision=lambda _, number=number, watch=watch: watch.look(runs[number]._crawl),
        )
        for number, watch in enumerate(watches)
    ]
    await asyncio.wait_for(asyncio.gather(*(run.run() for run in runs)), 60)
    check(web, watches)


class WatchedFolder(WorkerFolder):
    """Looks at the crawl at each decision."""

    look = staticmethod(lambda: None)

    def decide(self, decision):
        super().decide(decision)
        self.look()


class Machine:
    """A coordinator as `headway crawl --processes` has it, and workers in the same process."""

    def __init__(self, job, folder):
        self.job = job
        self.folder = folder
        self.store = SqliteStore(folder / "crawl.sqlite")
        self.store.create(time.time(), {})
        self.store.commit([SaveTasks(job.tasks(time.time())), SaveFound(job.seeds())], {})
        leader = Leader(job.timetable, Allocator)
        self.coordinator = LocalCoordinator(time.time(), self.store, leader, self._save)

    def _save(self, batch):
        self.store.commit(batch.savings, batch.file_lengths, batch.notes)

    async def worker(self, watch, opened):
        ours, theirs = socket.socketpair()
        session = WorkerSession(self.coordinator, WallClock(), WorkerTask({}, "", False, 1, 0.1))
        opened.callback((await connect(theirs, Offer(WORKER_CALLS, session))).close)
        connection = await connect(ours)
        opened.callback(connection.close)
        folder = WatchedFolder(self.folder)
        opened.callback(folder.close)
        session, _ = build_session(self.job, connection.remote(WORKER_CALLS), folder, SharedClock())
        folder.look = lambda: watch.look(session.crawl)
        return session

    async def rounds(self):
        while True:
            self.coordinator.round(time.time())
            await asyncio.sleep(0.05)


async def test_a_worker_process_holds_a_few_pages_of_many(web, tmp_path):
    (tmp_path / "archive").mkdir()
    machine, watches = Machine(job_of(web), tmp_path), [Watch(), Watch()]
    rounds = asyncio.ensure_future(machine.rounds())
    with ExitStack() as opened:
        opened.callback(machine.store.close)
        workers = [await machine.worker(watch, opened) for watch in watches]
        await asyncio.wait_for(asyncio.gather(*(worker.run() for worker in workers)), 60)
        rounds.cancel()
        await asyncio.gather(rounds, return_exceptions=True)
        assert Counter(record.done for record in machine.store.load().sites) == {PAGES: SITES}
    check(web, watches)
