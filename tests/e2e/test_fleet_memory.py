"""However many pages wait, a collector holds a few of each site and asks for more when it runs low."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from contextlib import ExitStack
from multiprocessing import Pipe

import pytest

from headway.app.collecting import CollectRun, begin
from headway.app.membership import build_session
from headway.config.job import build_job
from headway.config.reading import Source, convert
from headway.fleet.clock import SharedClock
from headway.fleet.desk import Desk
from headway.fleet.folder import WorkerFolder
from headway.fleet.leader import Leader
from headway.fleet.office import Office
from headway.fleet.pipe import PipeCoordinator
from headway.model.command import SaveFound, SaveTasks
from headway.policy.allocation.allocator import Allocator
from headway.store.postgres.address import Address
from headway.store.sqlite import SqliteStore
from headway.testing.fleetweb import FleetWeb

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
        rooms = list(crawl.frontier.rooms())
        self.most_waiting = max(self.most_waiting, sum(room.waiting for room in rooms))
        self.most_held = max(self.most_held, sum(room.waiting - room.spilled for room in rooms))


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
            name=f"c{number}",
            on_decision=lambda _, number=number, watch=watch: watch.look(runs[number]._crawl),
        )
        for number, watch in enumerate(watches)
    ]
    await asyncio.wait_for(asyncio.gather(*(run.run() for run in runs)), 60)
    check(web, watches)


class Machine:
    """An office in threads, as `headway crawl --processes` has it in a process, and two workers beside it."""

    def __init__(self, job, folder):
        self.job = job
        self.folder = folder
        self.store = SqliteStore(folder / "crawl.sqlite")
        self.store.create(time.time(), {})
        self.store.commit([SaveTasks(job.tasks(time.time())), SaveFound(job.seeds())], {})
        self.office = Office(time.time(), self.store, Leader(job.timetable, Allocator), self._save)
        self.lock = threading.Lock()

    def _save(self, parcel):
        self.store.commit(parcel.batch, parcel.file_lengths, parcel.notes)

    def _serve(self, desk, pipe):
        with pipe:
            while True:
                try:
                    asked = pipe.recv_bytes()
                except EOFError:
                    return
                with self.lock:
                    answer = desk.answer(asked)
                pipe.send_bytes(answer)

    def worker(self, watch, opened):
        ours, theirs = zip(Pipe(), Pipe(), strict=True)
        desk = Desk(self.office, time.time)
        for pipe in theirs:
            threading.Thread(target=self._serve, args=(desk, pipe), daemon=True).start()
        folder, coordinator = WorkerFolder(self.folder), PipeCoordinator(*ours)
        opened.callback(folder.close)
        opened.callback(coordinator.close)
        session, _ = build_session(
            self.job,
            coordinator,
            folder,
            SharedClock(),
            on_decision=lambda _: watch.look(session.crawl),
        )
        return session

    async def rounds(self):
        while True:
            with self.lock:
                self.office.round(time.time())
            await asyncio.sleep(0.05)


async def test_a_worker_process_holds_a_few_pages_of_many(web, tmp_path):
    (tmp_path / "archive").mkdir()
    machine, watches = Machine(job_of(web), tmp_path), [Watch(), Watch()]
    rounds = asyncio.ensure_future(machine.rounds())
    with ExitStack() as opened:
        opened.callback(machine.store.close)
        workers = [machine.worker(watch, opened) for watch in watches]
        await asyncio.wait_for(asyncio.gather(*(worker.run() for worker in workers)), 60)
        rounds.cancel()
        await asyncio.gather(rounds, return_exceptions=True)
        assert Counter(record.done for record in machine.store.load().sites) == {PAGES: SITES}
    check(web, watches)
