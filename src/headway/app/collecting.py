"""One collector of a fleet put together: the address of a crawl in, its part of the archive out.

`begin` makes a crawl on a PostgreSQL server out of a job; `CollectRun` works on one, beside others.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from headway.app.building import build_machine
from headway.app.crawling import Meter, check_is_same_crawl
from headway.app.membership import build_session
from headway.app.ordering import waiting_order
from headway.app.view import View, view_of
from headway.config.job import Job, build_job
from headway.config.kept import without_password
from headway.config.reading import Source, convert
from headway.errors import HeadwayError, StoreError
from headway.fetch.http import HttpFetcher
from headway.fleet import statements as sql
from headway.fleet.chair import ROUND_EVERY_S, Chair
from headway.fleet.clock import SharedClock
from headway.fleet.folder import CollectorFolder
from headway.fleet.leader import Leader
from headway.fleet.postgres import LEASE_S, PostgresCoordinator
from headway.fleet.session import End, Session
from headway.fleet.upload import Uploader
from headway.model.command import SaveFound, SaveTasks
from headway.model.decision import Decision
from headway.policy.allocation.allocator import Allocator
from headway.policy.allocation.problem import Objective
from headway.store.postgres.address import Address, is_passing
from headway.store.postgres.again import begin_round
from headway.store.postgres.reader import PostgresReader
from headway.store.postgres.store import PostgresStore
from headway.units import Instant, Seconds

_REJOIN_AFTER_S = 1.0
_UPLOAD_EVERY_S = 20.0
_LET_GO_S = 2.0
"""At the end, for a connection that may be dead."""


def begin(job: Job, address: Address, now: Instant) -> Instant:
    """Make the crawl, or take it up with this job; returns when it was first begun."""
    store = PostgresStore(address)
    try:
        order = waiting_order(job)
        store.order_waiting(order.name, order.rank_of)
        known = store.asked(
            lambda run: run.execute("SELECT site FROM site JOIN task ON id = site_id").fetchall()
        )
        row = store.asked(lambda run: run.execute("SELECT started_at FROM crawl").fetchone())
        sites = {site for (site,) in known}
        check_is_same_crawl(sites, job, address.shown, "give this one another name after the #")
        started_at = now if row is None else Instant(row[0])
        store.create(started_at, without_password(job))
        # Seeds that are known already are not queued again, so that a longer job goes on from here.
        store.commit([SaveTasks(job.tasks(started_at)), SaveFound(job.seeds(), is_elsewhere=True)], {})
        store.asked(lambda run: run.execute(sql.BEGIN_AGAIN))
    finally:
        store.close()
    return started_at


def job_of(address: Address) -> Job:
    """The job as the crawl was begun with."""
    with PostgresReader(address) as reader:
        tables: dict[str, Any] = reader.job
    source = Source(f"the job of {address.shown}")
    return build_job(convert(tables, source), source)


def begin_again(address: Address, now: Instant, older_than_s: Seconds) -> int | None:
    """Queue all pages of a finished crawl whose copy is older; returns how many, or None when pages still
    wait from before, which come first."""
    store = PostgresStore(address, make=False)
    try:
        return store.asked(lambda run: begin_round(run, now, older_than_s))
    finally:
        store.close()


class CollectRun:
    """Build it, `run` it; `view` may be called meanwhile, on the same loop."""

    def __init__(
        self,
        address: Address,
        job: Job,
        folder: Path,
        *,
        label: str = "",
        name: str | None = None,
        on_decision: Callable[[Decision], None] | None = None,
        on_news: Callable[[str], None] | None = None,
        lease_s: Seconds = LEASE_S,
        archive: str | None = None,
    ) -> None:
        """`archive`: where finished WARC files go; without it they stay in the folder."""
        self._address = address
        self._job = job
        self._label = label
        self._on_decision = on_decision
        self._on_news = on_news or (lambda text: None)
        self._lease_s = lease_s
        self._folder = CollectorFolder.claim(folder, name or socket.gethostname())
        self._uploader = None if archive is None else Uploader(folder, archive)
        self._clock = SharedClock()
        self._session: Session | None = None
        self._crawl = build_machine(job, is_part=True)
        self._fetcher: HttpFetcher | None = None
        self._meter = Meter()
        objective = Objective(job.file.crawl.objective)
        self._chair = Chair(address, Leader(job.timetable, lambda: Allocator(objective)), job.quotas)
        self._leads = ThreadPoolExecutor(1, thread_name_prefix="headway-leads")
        self.started_at = self._clock.now()
        self.interrupted = False
        self.is_over = False

    async def run(self, *, on_second: Callable[[], None] | None = None) -> None:
        """Until the crawl is done, or `drain` or `stop` was called."""
        loop = asyncio.get_running_loop()
        helpers = [
            loop.create_task(self._lead()),
            loop.create_task(self._each_second(on_second)),
            loop.create_task(self._upload_now_and_then()),
        ]
        try:
            while not self.interrupted and not self.is_over:
                end = await self._member()
                self.is_over = end is End.OVER
                if end is End.LOST:
                    self._on_news("the lease ended before it could be renewed: joining anew")
        finally:
            for helper in helpers:
                helper.cancel()
            await asyncio.gather(*helpers, return_exceptions=True)
            with suppress(TimeoutError):
                async with asyncio.timeout(_LET_GO_S):
                    await loop.run_in_executor(self._leads, self._chair.close)
            self._leads.shutdown(wait=False, cancel_futures=True)

    def drain(self) -> None:
        self.interrupted = True
        if self._session is not None:
            self._session.leave()

    def stop(self) -> None:
        self.interrupted = True
        if self._session is not None:
            self._session.stop()

    def view(self) -> View:
        now, crawl = self._clock.now(), self._crawl
        return view_of(
            crawl,
            now,
            self.started_at,
            rate_bytes_per_s=self._meter.rate_bytes_per_s,
            site_rates=self._meter.site_rates,
            capacity_bytes_per_s=crawl.bound.capacity_bytes_per_s,
        )

    async def _member(self) -> End:
        """One membership, from joining to its end; waits for the server where it cannot be reached."""
        coordinator: PostgresCoordinator | None = None
        try:
            coordinator = await asyncio.to_thread(self._coordinator)
            self._session = self._build(coordinator)
            if self.interrupted:
                return End.LEFT
            return await self._session.run()
        except StoreError as problem:
            if not is_passing(problem) or self.interrupted:
                raise
            self._on_news(f"waiting for the server: {problem}")
            await asyncio.sleep(_REJOIN_AFTER_S)
            return End.LOST
        finally:
            current = self._folder.current_archive_file
            self._folder.close()
            if coordinator is not None and self._uploader is not None and current is not None:
                await self._try_to_upload()
            if coordinator is not None:
                # A thread that hangs on a dead line would keep us; its connection goes with the process.
                asyncio.get_running_loop().run_in_executor(None, _close_quietly, coordinator)

    async def _upload_now_and_then(self) -> None:
        while self._uploader is not None:
            await asyncio.sleep(_UPLOAD_EVERY_S)
            await self._try_to_upload()

    async def _try_to_upload(self) -> None:
        """What could not be sent stays, and is tried again, also by the next collector in this folder."""
        try:
            await asyncio.to_thread(self._upload)
        except StoreError as problem:
            self._on_news(str(problem))

    def _upload(self) -> None:
        if self._uploader is None:
            return
        store = PostgresStore(self._address, place=self._folder.place, make=False)
        try:
            self._uploader.send_finished(store.committed_lengths(), self._folder.current_archive_file)
        finally:
            store.close()

    def _coordinator(self) -> PostgresCoordinator:
        folder = self._folder
        coordinator = PostgresCoordinator(
            self._address, name=folder.mark.name, label=self._label, place=folder.place, lease_s=self._lease_s
        )
        order = waiting_order(self._job)
        coordinator.store.order_waiting(order.name, order.rank_of)
        if told := coordinator.store.mend(folder.path):
            self._on_news(told)
        folder.open(coordinator.store.committed_lengths())
        return coordinator

    def _build(self, coordinator: PostgresCoordinator) -> Session:
        session, self._fetcher = build_session(
            self._job,
            coordinator,
            self._folder,
            self._clock,
            has_rounds=coordinator.store.has_rounds,
            measures_round_trips=bool(self._label),
            on_decision=self._on_decision,
        )
        self._crawl = session.crawl
        return session

    async def _lead(self) -> None:
        """Take part in the election, and lead when elected."""
        loop = asyncio.get_running_loop()
        while True:
            with suppress(StoreError):
                await loop.run_in_executor(self._leads, self._chair.round)
            await asyncio.sleep(ROUND_EVERY_S)

    async def _each_second(self, on_second: Callable[[], None] | None) -> None:
        while True:
            await asyncio.sleep(1.0)
            if self._session is not None and self._fetcher is not None:
                books = self._session.crawl.ledger.books
                self._meter.read(
                    self._clock.now(),
                    self._fetcher.bytes_received(),
                    {site: book.wire_bytes for site, book in books.items()},
                )
                if on_second is not None:
                    on_second()


def _close_quietly(coordinator: PostgresCoordinator) -> None:
    with suppress(HeadwayError):
        coordinator.close()
