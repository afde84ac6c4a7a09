"""One collector of a fleet, built from the address of a crawl."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from headway.cluster import postgres as sql
from headway.cluster.calls import QUICK_BEAT_S, CommitQueue, Lookups, SharedClock
from headway.cluster.coordinator import Coordinator
from headway.cluster.folder import CollectorFolder, Uploader, WorkerFolder
from headway.cluster.leader import Leader
from headway.cluster.postgres import (
    LEASE_S,
    ROUND_EVERY_S,
    LeaderElection,
    PostgresCoordinator,
    ThreadedCoordinator,
)
from headway.cluster.session import End, Session, SessionOptions
from headway.config.job import Job, build_job, without_password
from headway.config.reading import Source, convert
from headway.config.values import pause
from headway.errors import HeadwayError, StoreError, UnitError
from headway.http.client import HttpFetcher
from headway.model.command import Decision, SaveFound, SaveTasks
from headway.planning.live_policies import make_allocator
from headway.planning.problem import Objective
from headway.policy.ordering import Ordering
from headway.runtime.collector import KnownPages, WebCollector
from headway.runtime.crawling import check_is_same_crawl
from headway.runtime.driver import COMMIT_EVERY_S
from headway.runtime.runtime import (
    Circumstances,
    Runtime,
    build_engine,
    build_fetcher,
    build_politeness,
    check_can_be_shared,
    learnt_ordering,
    page_reading,
    waiting_order,
    warc_info_of,
)
from headway.store.postgres.batch import begin_round_on_server
from headway.store.postgres.connection import Address, is_passing
from headway.store.postgres.reader import PostgresReader
from headway.store.postgres.store import PostgresStore
from headway.store.reader import Sample, open_reader
from headway.store.recrawl import begin_round
from headway.store.repair import shortened
from headway.units import Instant, Seconds
from headway.view.live import EngineMonitor
from headway.view.run import RunView


def build_session(
    job: Job,
    coordinator: Coordinator,
    folder: CollectorFolder | WorkerFolder,
    clock: SharedClock,
    *,
    measures_round_trips: bool = False,
    has_rounds: bool = False,
    may_be_limited: bool = False,
    most_held: int | None = None,
    ordering: Ordering | None = None,
    may_be_known: Callable[[str], bool] | None = None,
    quickest_beat_s: float = QUICK_BEAT_S,
    commit_every_s: Seconds = COMMIT_EVERY_S,
) -> tuple[Session, HttpFetcher]:
    """`has_rounds`: all pages have been queued more than once. `most_held`: about how many waiting pages are
    kept in memory; None: as the job says. `ordering`: that of the job, with what it has learnt so far."""
    fetcher = build_fetcher(job, clock)
    queue = CommitQueue(folder)
    lookups = Lookups(coordinator, folder.contents, may_be_known=may_be_known)
    collector = WebCollector(
        fetcher,
        folder.archive,
        clock,
        reading=page_reading(job, folder.path),
        known=KnownPages(folder.contents.find_digest, lookups.find_copy, lookups.look_up),
        make_room=queue.make_room,
        recrawls=has_rounds or job.revisiting is not None,
    )
    most_held = most_held or job.file.crawl.waiting_in_memory
    circumstances = Circumstances(recrawls=has_rounds, is_part=True, most_held=most_held, ordering=ordering)
    runtime = Runtime.from_job(job, clock, collector, circumstances)
    options = SessionOptions(
        build_politeness(job),
        job.user_agent_for,
        is_bounded=job.is_bounded or bool(job.quotas) or may_be_limited,
        learns_from_visits=job.revisiting is not None and job.revisiting.adapts,
        measures_round_trips=measures_round_trips,
        is_background=job.file.crawl.background,
        quickest_beat_s=quickest_beat_s,
        commit_every_s=commit_every_s,
    )
    session = Session(
        coordinator,
        queue,
        lookups,
        runtime.engine,
        collector,
        fetcher=fetcher,
        clock=clock,
        options=options,
    )
    return session, fetcher


# `begin` creates a crawl on a PostgreSQL server from a job; `CollectRun` works on one, beside other
# collectors.

_REJOIN_AFTER_S = 1.0
_UPLOAD_EVERY_S = 20.0
_LET_GO_S = 2.0
"""At the end, for a connection that may be dead."""


def begin(job: Job, address: Address, now: Instant) -> Instant:
    """Create the crawl, or continue it with this job; returns when it was first begun."""
    check_can_be_shared(job)
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
        job = job.with_secret(store.secret)
        # Known seeds are not queued again, so that a crawl continues with a longer job.
        store.commit([SaveTasks(job.tasks(started_at)), SaveFound(job.first_pages(), is_elsewhere=True)], {})
        store.asked(lambda run: run.execute(sql.BEGIN_AGAIN))
    finally:
        store.close()
    return started_at


def job_of(address: Address) -> Job:
    """The job with which the crawl was begun."""
    with PostgresReader(address) as reader:
        tables: dict[str, Any] = reader.job
    source = Source(f"the job of {address.shown}")
    return build_job(convert(tables, source), source)


def begin_recrawl_on_server(
    address: Address, now: Instant, older_than_s: Seconds, *, cuts: bool = False
) -> int | None:
    """Queue all pages of a finished crawl whose copy is older; returns how many, or None if pages of an
    earlier round still wait, which come first."""
    store = PostgresStore(address, make=False)
    try:
        return store.asked(lambda run: begin_round_on_server(run, now, older_than_s, cuts=cuts))
    finally:
        store.close()


class CollectorOptions(msgspec.Struct, frozen=True):
    """The options that differ between the collectors of a fleet."""

    name: str = ""
    """The name shown to people; by default the name of the machine."""
    label: str = ""
    """The label of its place: sites go to the nearest place. Without one, round trips are not measured."""
    lease_s: Seconds = LEASE_S
    link: str = ""
    """The link to the sites; collectors behind the same one agree on how to yield to its other users. By
    default that of the machine."""
    archive: str | None = None
    """Where finished WARC files are uploaded; without it they stay in the folder."""


_USUAL = CollectorOptions()


def link_of_machine() -> str:
    """The same for all processes of a machine that have its network in common."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{boot} {Path('/proc/self/ns/net').stat().st_ino}"
    except OSError:
        return socket.gethostname()


class CollectRun:
    """Build it, then `run` it; `view` may be called meanwhile, on the same loop."""

    def __init__(
        self,
        address: Address,
        job: Job,
        folder: Path,
        *,
        options: CollectorOptions = _USUAL,
        on_decision: Callable[[Decision], None] | None = None,
        on_news: Callable[[str], None] | None = None,
    ) -> None:
        self._address = address
        self._job = check_can_be_shared(job)
        self._options = options
        self._on_news = on_news or (lambda text: None)
        self._folder = CollectorFolder.claim(folder, options.name or socket.gethostname())
        self._folder.on_decision = on_decision
        self._uploader = None if options.archive is None else Uploader(folder, options.archive)
        self._clock = SharedClock()
        self._session: Session | None = None
        self._crawl = build_engine(job, Circumstances(is_part=True))
        self._fetcher: HttpFetcher | None = None
        objective = Objective(job.file.crawl.objective)
        leader = Leader(job.timetable, lambda: make_allocator(job.file.crawl.policy, objective))
        self._election = LeaderElection(address, leader, job.quotas)
        self._leads = ThreadPoolExecutor(1, thread_name_prefix="headway-leads")
        self.started_at = self._clock.now()
        self._monitor = EngineMonitor(folder.name, self.started_at)
        self.interrupted = False
        self.is_over = False

    async def run(self, *, on_second: Callable[[], None] | None = None) -> None:
        """Run until the crawl has finished, or `drain` or `stop` was called."""
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
                    self._on_news("the lease ended before it could be renewed; joining again")
        finally:
            for helper in helpers:
                helper.cancel()
            await asyncio.gather(*helpers, return_exceptions=True)
            with suppress(TimeoutError):
                async with asyncio.timeout(_LET_GO_S):
                    await loop.run_in_executor(self._leads, self._election.close)
            self._leads.shutdown(wait=False, cancel_futures=True)

    def drain(self) -> None:
        self.interrupted = True
        if self._session is not None:
            self._session.leave()

    def stop(self) -> None:
        self.interrupted = True
        if self._session is not None:
            self._session.stop()

    def view(self) -> RunView:
        """The view of the sites that this collector holds."""
        return self._monitor.view(self._crawl, self._clock.now())

    async def _member(self) -> End:
        """One membership, from joining to its end; waits if the server cannot be reached."""
        coordinator: ThreadedCoordinator | None = None
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
                # A thread that hangs on a dead connection would block; the connection is closed with the
                # process.
                asyncio.get_running_loop().run_in_executor(None, _close_quietly, coordinator)

    async def _upload_now_and_then(self) -> None:
        while self._uploader is not None:
            await asyncio.sleep(_UPLOAD_EVERY_S)
            await self._try_to_upload()

    async def _try_to_upload(self) -> None:
        """Files that could not be uploaded stay, and are tried again, also by the next collector in this
        folder."""
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

    def _coordinator(self) -> ThreadedCoordinator:
        """Blocks: it connects to the server."""
        folder = self._folder
        coordinator = PostgresCoordinator(
            self._address,
            name=folder.mark.name,
            label=self._options.label,
            place=folder.place,
            link=self._options.link or link_of_machine(),
            lease_s=self._options.lease_s,
        )
        order = waiting_order(self._job)
        coordinator.store.order_waiting(order.name, order.rank_of)
        if repaired := coordinator.store.repair(folder.path):
            self._on_news(repaired)
        folder.warc_info = warc_info_of(self._job)
        folder.open(coordinator.store.committed_lengths())
        return ThreadedCoordinator(coordinator)

    def _build(self, coordinator: ThreadedCoordinator) -> Session:
        with PostgresReader(coordinator.blocking.store.address) as reader:
            ordering = learnt_ordering(self._job, reader)
        session, self._fetcher = build_session(
            self._job.with_secret(coordinator.blocking.store.secret),
            coordinator,
            self._folder,
            self._clock,
            has_rounds=coordinator.blocking.store.has_rounds,
            ordering=ordering,
            measures_round_trips=bool(self._options.label),
        )
        self._crawl = session.crawl
        return session

    async def _lead(self) -> None:
        """Take part in the election, and lead when elected."""
        loop = asyncio.get_running_loop()
        while True:
            with suppress(StoreError):
                await loop.run_in_executor(self._leads, self._election.round)
            await asyncio.sleep(ROUND_EVERY_S)

    async def _each_second(self, on_second: Callable[[], None] | None) -> None:
        while True:
            await asyncio.sleep(1.0)
            if self._session is not None and self._fetcher is not None:
                bound = self._session.crawl.bound.capacity_bytes_per_s
                self._monitor.add(Sample(self._clock.now(), self._fetcher.bytes_received(), bound))
                if on_second is not None:
                    on_second()


def _close_quietly(coordinator: ThreadedCoordinator) -> None:
    with suppress(HeadwayError):
        coordinator.close()


def has_shortened_files(address: Address, folder: Path) -> bool:
    """Whether a power cut has shortened files of the collector in this folder."""
    if not CollectorFolder.is_at(folder):
        return False
    place = CollectorFolder.claim(folder, "").place
    store = PostgresStore(address, place=place, make=False)
    try:
        return bool(shortened(folder, store.committed_lengths()))
    finally:
        store.close()


def job_tables(run: Path | str) -> dict[str, Any]:
    """The job as it is stored in the run folder or on the server."""
    with open_reader(run) as reader:
        return reader.job


def begin_recrawl(
    run: Path | str, now: Instant, older_than: str | None = None, *, cuts: bool = False
) -> int | None:
    """Queue all pages whose copy is older; returns how many, or None if pages of an earlier round still wait,
    which come first."""
    try:
        age_s = pause(older_than) if older_than is not None else Seconds(0.0)
    except UnitError as problem:
        raise UnitError(f"--older-than: {problem}") from None
    if isinstance(run, str):
        from headway.store.postgres.connection import Address

        return begin_recrawl_on_server(Address.parse(run), now, age_s, cuts=cuts)
    return begin_round(run, now, age_s, cuts=cuts)
