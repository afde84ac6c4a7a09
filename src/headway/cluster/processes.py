"""A crawl by several worker processes on one machine, each with its own sites, into one run folder.

The supervisor (`ProcessRun`) fetches nothing: it has the store, assigns sites and shares of the bound to the
workers, and commits their results. The run folder looks as if one process had crawled. Each worker is this
module started by the supervisor (`main`), whose calls it answers over one socket.
"""

from __future__ import annotations

import asyncio
import math
import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec.structs import replace

from headway.cluster.calls import SharedClock
from headway.cluster.collecting import build_session
from headway.cluster.coordinator import CommitBatch, Coordinator, FleetChronicle, LeaseOver
from headway.cluster.folder import WorkerFolder
from headway.cluster.leader import Leader
from headway.cluster.local import WORKER_CALLS, LocalCoordinator, WorkerSession, WorkerTask
from headway.cluster.rpc import Connection, Offer, RpcError, connect
from headway.cluster.session import End, Session
from headway.config.job import Job, build_job, without_password
from headway.config.reading import Source, convert
from headway.errors import HeadwayError
from headway.model.command import (
    AddSite,
    Order,
    PageState,
    SaveAgain,
    SaveFound,
    SaveSettled,
    SaveTasks,
    Saving,
    SetDeadline,
    SiteRecord,
)
from headway.model.page import Site, is_again
from headway.pages.url import keyed
from headway.planning.live_policies import make_allocator
from headway.planning.problem import Objective
from headway.plugins import PluginError
from headway.runtime.control import LimitWatch, OrderWatch, with_known_pages
from headway.runtime.crawling import check_is_same_folder, quotas_so_far
from headway.runtime.driver import COMMIT_EVERY_S, WallClock
from headway.runtime.process import (
    Cores,
    die_with_parent,
    keep_freed_memory,
    keep_to,
    look_for_garbage_seldom,
)
from headway.runtime.runtime import check_can_be_shared, learnt_ordering, waiting_order, warc_info_of
from headway.store.reader import RunReader
from headway.store.recrawl import KnownContents
from headway.store.rows import Gauges, fingerprint_of
from headway.store.run_folder import RunFolder
from headway.units import Instant, Seconds
from headway.view.run import RunMonitor, RunView

_ROUND_EVERY_S = 0.25
_MOST_RESTARTS = 5
_RAREST_COMMIT_S = 0.5
_QUICKEST_BEAT_S = 0.02
"""A call between two processes costs little."""


class ProcessRun:
    """Build it, then `run` it; `view` may be called meanwhile, on the same loop."""

    def __init__(self, job: Job, folder: Path, processes: int) -> None:
        self._job = check_can_be_shared(job)
        self._processes = processes
        self._clock = WallClock()
        now = self._clock.now()
        self.folder = RunFolder.open(
            folder, without_password(job), now, waiting_order=waiting_order(job), limits_of=job.limits_of
        )
        job = self._job = self._job.with_secret(self.folder.store.secret)
        try:
            check_is_same_folder(self.folder.snapshot, job, folder)
            snapshot = self.folder.snapshot
            self.started_at = snapshot.started_at if snapshot is not None else now
            # Known seeds are not queued again, so that a crawl continues with a longer job file.
            self.folder.save((SaveTasks(job.tasks(self.started_at)), SaveFound(job.first_pages())))
            self._quotas = quotas_so_far(now, job, folder)
            self._limit = LimitWatch(folder)
            self._orders = OrderWatch(folder)
            leader = Leader(
                job.timetable,
                lambda: make_allocator(job.file.crawl.policy, Objective(job.file.crawl.objective)),
            )
            self._coordinator = LocalCoordinator(self.started_at, self.folder.store, leader, self._save)
        except BaseException:
            self.folder.close()
            raise
        self._leader = leader
        self._counters = Counters(snapshot.sites if snapshot is not None else ())
        self._monitor: RunMonitor | None = None
        self._chronicle = FleetChronicle(self.started_at, self._counters.wire_bytes_of)
        for order in self._orders.lasting():
            self._obey(now, order)
        self._received = 0
        self._workers: dict[int, _WorkerProcess] = {}
        self._served: set[asyncio.Task[None]] = set()
        self._cores = Cores(processes)
        self._restarts = 0
        self._over: asyncio.Future[None] | None = None
        self._known_fd = -1
        """Which contents may be known, for the workers."""
        self.interrupted = False

    async def run(self, *, on_second: Callable[[], None] | None = None) -> None:
        loop = asyncio.get_running_loop()
        self._over = loop.create_future()
        self._known_fd = self.folder.store.share_known()
        rounds = loop.create_task(self._rounds(on_second))
        rounds.add_done_callback(lambda _: self._finish())  # they end first only if they fail
        try:
            self._coordinator.awaited = self._processes
            for _ in range(self._processes):
                self._start_worker()
            await self._over
        finally:
            rounds.cancel()
            (trouble,) = await asyncio.gather(rounds, return_exceptions=True)
            for worker in list(self._workers.values()):
                worker.end()
            os.close(self._known_fd)
            self.folder.close()
            if self._monitor is not None:
                self._monitor.close()
                self._monitor = None
        self.folder.write_index()
        if isinstance(trouble, Exception):
            raise trouble

    def drain(self) -> None:
        self.interrupted = True
        self._coordinator.is_closing = True

    def stop(self) -> None:
        """End at once: requests in flight are abandoned and repeated by the next run."""
        self.interrupted = True
        self._finish()

    def view(self) -> RunView:
        """From the run folder; the numbers of waiting pages and requests in flight are those of the workers'
        last reports."""
        if self._monitor is None:
            self._monitor = RunMonitor(self.folder.path)
        reports = self._coordinator.reports
        return replace(
            self._monitor.view(),
            waiting=sum(report.waiting for report in reports),
            in_flight=sum(report.in_flight for report in reports),
        )

    # -- workers ----------------------------------------------------------------------------------------

    def _start_worker(self) -> None:
        # They share the memory of one machine.
        most_held = max(1, self._job.file.crawl.waiting_in_memory // self._processes)
        task = WorkerTask(
            msgspec.to_builtins(self._job.file),
            str(self.folder.path.absolute()),
            self.folder.store.has_rounds,
            most_held,
            # One store receives everything: as many commits as with one process, and a worker that is killed
            # has about as much to fetch again.
            Seconds(min(_RAREST_COMMIT_S, self._processes * COMMIT_EVERY_S)),
            self._job.secret,
        )
        worker = _WorkerProcess(WorkerSession(self._coordinator, self._clock, task), self._known_fd)
        self._workers[worker.process.pid] = worker
        keep_to(worker.process.pid, self._cores.take(worker.process.pid))
        serving = asyncio.get_running_loop().create_task(self._serve(worker))
        self._served.add(serving)
        serving.add_done_callback(self._served.discard)

    async def _serve(self, worker: _WorkerProcess) -> None:
        """Answer its calls until it ends. An error of the store ends the crawl, as with one process."""
        try:
            await worker.serve()
        except Exception as problem:
            self._finish(problem)
        else:
            self._gone(worker)

    def _gone(self, worker: _WorkerProcess) -> None:
        """A worker has ended, in good order or not. Its sites go to the others."""
        if self._workers.pop(worker.process.pid, None) is None:
            return
        worker.end()
        self._cores.give_back(worker.process.pid)
        worker.session.died()
        if self._coordinator.is_over or self._coordinator.is_closing:
            if not self._workers:
                self._finish()
        elif self._restarts < _MOST_RESTARTS:
            self._restarts += 1
            self._start_worker()
        elif not self._workers:
            self._finish(HeadwayError("all worker processes have died; run the same command again to resume"))

    def _finish(self, problem: Exception | None = None) -> None:
        assert self._over is not None
        if self._over.done():
            return
        if problem is None:
            self._over.set_result(None)
        else:
            self._over.set_exception(problem)

    # -- rounds -----------------------------------------------------------------------------------------

    async def _rounds(self, on_second: Callable[[], None] | None) -> None:
        loop = asyncio.get_running_loop()
        next_second_at = loop.time() + 1.0
        while True:
            now = self._clock.now()
            if self._limit.has_changed():
                self._leader.set_limit(self._limit.limit_bytes_per_s)
            for order in self._orders.fresh():
                self._obey(now, order)
            self._leader.left_bytes = min(
                (float(tally.remaining_bytes(now)) for tally in self._quotas), default=math.inf
            )
            self._coordinator.round(now)
            self._sample(now)
            if loop.time() >= next_second_at:
                next_second_at += 1.0
                # For people who watch the crawl, also while no page settles: a person who has paused it wants
                # to see it.
                self.folder.store.commit((), {})
                if on_second is not None:
                    on_second()
            await self._rounds_for_news(loop.time() + _ROUND_EVERY_S)

    async def _rounds_for_news(self, until_s: float) -> None:
        """Rounds of the coordinator that should not wait, up to an instant on the loop's clock."""
        with suppress(TimeoutError):
            async with asyncio.timeout_at(until_s):
                while True:
                    await self._coordinator.wants_round.wait()
                    self._coordinator.round(self._clock.now())

    def _sample(self, now: Instant) -> None:
        for sample in self._leader.samples(now, self._coordinator.readings()):
            course = self._chronicle.course(now, self._coordinator.standing(), self._leader.plan)
            self.folder.store.record_sample(
                sample.at, sample.received_bytes, sample.bound_bytes_per_s, self._gauges(), course
            )
            for tally in self._quotas:
                tally.spend(now, max(0, sample.received_bytes - self._received))
            self._received = sample.received_bytes

    def _gauges(self) -> Gauges:
        return Gauges(
            in_flight=sum(report.in_flight for report in self._coordinator.reports),
            waiting=None,
            done=self._counters.done,
            failed=self._counters.failed,
            is_paused=self._coordinator.is_paused,
        )

    def _obey(self, now: Instant, order: Order) -> None:
        """Save here what the store must know of an order, whether or not the site has a holder now."""
        match order:
            case SetDeadline(site, deadline_at):
                tasks = self.folder.store.load_sites(self.started_at, [site]).tasks
                self.folder.save([SaveTasks((replace(task, deadline_at=deadline_at),)) for task in tasks])
            case AddSite(task):
                known = with_known_pages(self.folder.path, order, self._job.secret)
                assert isinstance(known, AddSite)
                pages = keyed(order.pages, self._job.secret)
                passed_over = tuple(page for page in known.pages if page not in pages)
                batch: list[Saving] = [SaveTasks((task,)), SaveFound(pages)]
                batch += [SaveAgain(passed_over, now)] if passed_over else []
                self.folder.save(batch)
        self._coordinator.order(order)

    def _save(self, batch: CommitBatch) -> None:
        lines = (batch.lines.pages, batch.lines.log, batch.lines.decisions)
        settled = [saving for saving in batch.savings if isinstance(saving, SaveSettled)]
        was = [self._state_before(saving) for saving in settled]
        self.folder.save_parcel(batch.savings, lines, batch.file_lengths, batch.notes)
        for saving, state in zip(settled, was, strict=True):
            self._counters.count(saving, state)

    def _state_before(self, saving: SaveSettled) -> PageState | None:
        """The state of a page after earlier visits, if there were any."""
        copy = self.folder.store.find_copy(saving.page) if is_again(saving.attempt) else None
        return None if copy is None or copy.kind is None else copy.state


class Counters:
    """Sums over everything that the workers have committed."""

    def __init__(self, sites: Sequence[SiteRecord]) -> None:
        self.done = sum(record.done for record in sites)
        self.failed = sum(record.failed for record in sites)
        self._wire_bytes = Counter({record.site: record.wire_bytes for record in sites})

    def count(self, saving: SaveSettled, was: PageState | None) -> None:
        """A page that settles again counts with its new state, no longer as `was`."""
        if saving.state is PageState.WAITING:
            was = None
        self.done += (saving.state is PageState.DONE) - (was is PageState.DONE)
        self.failed += (saving.state is PageState.FAILED) - (was is PageState.FAILED)
        self._wire_bytes[saving.page.site] += saving.outcome.wire_bytes

    def wire_bytes_of(self, site: Site) -> int:
        return self._wire_bytes[site]


class _WorkerProcess:
    def __init__(self, session: WorkerSession, known_fd: int) -> None:
        self.session = session
        self._ours, theirs = socket.socketpair()
        self._connection: Connection | None = None
        with theirs:
            fds = (theirs.fileno(), known_fd)
            self.process = subprocess.Popen(  # noqa: S603 - our own module
                [sys.executable, "-m", "headway.cluster.processes", *map(str, fds)],
                pass_fds=fds,
                stdin=subprocess.DEVNULL,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            )

    async def serve(self) -> None:
        """Serve it until its end of the connection is closed; raises the error of a failed call."""
        self._connection = await connect(self._ours, Offer(WORKER_CALLS, self.session))
        await self._connection.ended()

    def end(self) -> None:
        """It has no results left that count."""
        if self._connection is not None:
            self._connection.close()
        self._ours.close()
        self.process.kill()
        self.process.wait()


def main() -> int:
    ours = socket.socket(fileno=int(sys.argv[1]))
    known = KnownContents.shared(int(sys.argv[2]))
    # Interrupts are for the supervisor, which asks the workers to leave.
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, signal.SIG_IGN)
    die_with_parent()
    keep_freed_memory()
    look_for_garbage_seldom()
    return asyncio.run(_work(ours, known))


def _job_of(task: WorkerTask) -> Job:
    source = Source("the job")
    return build_job(convert(task.job, source), source).with_secret(task.secret)


def worker_session(
    task: WorkerTask, supervisor: Coordinator, folder: WorkerFolder, known: KnownContents
) -> Session:
    job = _job_of(task)
    with RunReader(task.folder) as reader:
        ordering = learnt_ordering(job, reader)
    session, _ = build_session(
        job,
        supervisor,
        folder,
        SharedClock(),
        has_rounds=task.has_rounds,
        may_be_limited=True,
        most_held=task.most_held,
        ordering=ordering,
        quickest_beat_s=_QUICKEST_BEAT_S,
        commit_every_s=task.commit_every_s,
        may_be_known=lambda digest: known.may_have(fingerprint_of(digest)),
    )
    return session


async def _work(ours: socket.socket, known: KnownContents) -> int:
    connection = await connect(ours)
    try:
        supervisor = connection.remote(WORKER_CALLS)
        task = await supervisor.task()
        job = _job_of(task)
        folder = WorkerFolder(Path(task.folder), warc_info_of(job))
        try:
            end = await worker_session(task, supervisor, folder, known).run()
        except PluginError as problem:
            with suppress(RpcError, LeaseOver):  # the supervisor ends because of it
                await supervisor.fail(str(problem))
            return problem.exit_code
        finally:
            folder.close()
    finally:
        connection.close()
    return 0 if end is not End.LOST else 1


if __name__ == "__main__":
    sys.exit(main())
