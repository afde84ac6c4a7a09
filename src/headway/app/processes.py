"""A crawl by several worker processes on one machine, each on sites of its own, into one run folder.

This process fetches nothing: it has the store, gives the workers sites and shares of the bound, and commits
what they send. The run folder looks as if one process had crawled.
"""

from __future__ import annotations

import asyncio
import math
import os
import subprocess
import sys
from collections.abc import Callable
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

import msgspec
from msgspec.structs import replace

from headway.app.clock import WallClock
from headway.app.cores import Cores, keep_to
from headway.app.counts import Counts
from headway.app.crawling import check_is_same_folder, quotas_so_far
from headway.app.limit import LimitWatch
from headway.app.orderfile import OrderWatch, with_known_pages
from headway.app.ordering import waiting_order
from headway.app.view import View
from headway.app.worker import Order
from headway.config.job import Job
from headway.config.kept import without_password
from headway.errors import HeadwayError
from headway.fleet.coordinator import Parcel
from headway.fleet.desk import Desk
from headway.fleet.leader import Leader
from headway.fleet.office import Office
from headway.fleet.outlook import FleetChronicle
from headway.fleet.wire import pack
from headway.live.driver import COMMIT_EVERY_S
from headway.model.command import PageState, SaveAgain, SaveFound, SaveSettled, SaveTasks, Saving
from headway.model.order import AddSite, SetDeadline
from headway.model.order import Order as PersonsOrder
from headway.model.page import is_again
from headway.policy.allocation.allocator import Allocator
from headway.policy.allocation.problem import Objective
from headway.store.course import Gauges
from headway.store.runfolder import RunFolder
from headway.units import BytesPerSecond, Instant, Seconds

_ROUND_EVERY_S = 0.25
_MOST_RESTARTS = 5
_RAREST_COMMIT_S = 0.5


class ProcessRun:
    """Build it, `run` it; `view` may be called meanwhile, on the same loop."""

    def __init__(self, job: Job, folder: Path, processes: int) -> None:
        self._job = job
        self._processes = processes
        self._clock = WallClock()
        now = self._clock.now()
        self.folder = RunFolder.open(folder, without_password(job), now, waiting_order=waiting_order(job))
        try:
            check_is_same_folder(self.folder.snapshot, job, folder)
            snapshot = self.folder.snapshot
            self.started_at = snapshot.started_at if snapshot is not None else now
            # Seeds that are known already are not queued again, so that a longer job file goes on from here.
            self.folder.save((SaveTasks(job.tasks(self.started_at)), SaveFound(job.seeds())))
            self._quotas = quotas_so_far(now, job, folder)
            self._limit = LimitWatch(folder)
            self._orders = OrderWatch(folder)
            leader = Leader(job.timetable, lambda: Allocator(Objective(job.file.crawl.objective)))
            self._office = Office(self.started_at, self.folder.store, leader, self._save)
        except BaseException:
            self.folder.close()
            raise
        self._leader = leader
        self._counts = Counts(snapshot.sites if snapshot is not None else ())
        self._chronicle = FleetChronicle(self.started_at, self._counts.wire_bytes_of)
        for order in self._orders.lasting():
            self._obey(now, order)
        self._workers: dict[int, _WorkerProcess] = {}
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
        try:
            self._office.awaited = self._processes
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
        self.folder.write_index()
        if isinstance(trouble, Exception):
            raise trouble

    def drain(self) -> None:
        self.interrupted = True
        self._office.is_closing = True

    def stop(self) -> None:
        """At once: what is under way is abandoned and will be fetched again by the next run."""
        self.interrupted = True
        self._finish()

    def view(self) -> View:
        reports = self._office.reports
        return self._counts.view(
            self._clock.now(),
            self.started_at,
            waiting=sum(report.waiting for report in reports),
            in_flight=sum(report.in_flight for report in reports),
            active={site for report in reports for site in report.active},
            rate_bytes_per_s=self._counts.rate_bytes_per_s,
            capacity_bytes_per_s=self._job.timetable.capacity_at(self._clock.now()),
        )

    # -- workers ----------------------------------------------------------------------------------------

    def _start_worker(self) -> None:
        loop = asyncio.get_running_loop()
        # They share the memory of one machine.
        most_held = max(1, self._job.file.crawl.waiting_in_memory // self._processes)
        order = Order(
            msgspec.to_builtins(self._job.file),
            str(self.folder.path.absolute()),
            self.folder.store.has_rounds,
            most_held,
            # One store takes it all in: as many commits as with one process, and a worker that is killed has
            # about as much to fetch again.
            Seconds(min(_RAREST_COMMIT_S, self._processes * COMMIT_EVERY_S)),
        )
        worker = _WorkerProcess(order, Desk(self._office, self._clock.now), self._known_fd)
        self._workers[worker.process.pid] = worker
        keep_to(worker.process.pid, self._cores.take(worker.process.pid))
        for pipe in (worker.beats, worker.commits):
            loop.add_reader(pipe.fileno(), self._hear, worker, pipe)

    def _hear(self, worker: _WorkerProcess, pipe: Connection) -> None:
        try:
            asked = pipe.recv_bytes()
        except (EOFError, OSError):
            self._gone(worker)
            return
        try:
            pipe.send_bytes(worker.desk.answer(asked))
            if self._office.wants_round:
                self._office.round(self._clock.now())
        except (BrokenPipeError, ConnectionError):
            self._gone(worker)
        except Exception as problem:
            # What cannot be kept ends the crawl, as it does with one process.
            self._finish(problem)

    def _gone(self, worker: _WorkerProcess) -> None:
        """A worker has ended, in good order or not. Its sites are given to the others."""
        if self._workers.pop(worker.process.pid, None) is None:
            return
        loop = asyncio.get_running_loop()
        for pipe in (worker.beats, worker.commits):
            loop.remove_reader(pipe.fileno())
        worker.end()
        self._cores.give_back(worker.process.pid)
        worker.desk.died()
        if self._office.is_over or self._office.is_closing:
            if not self._workers:
                self._finish()
        elif self._restarts < _MOST_RESTARTS:
            self._restarts += 1
            self._start_worker()
        elif not self._workers:
            self._finish(HeadwayError("all worker processes have died; the same command goes on from here"))

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
            self._office.round(now)
            self._sample(now)
            if loop.time() >= next_second_at:
                next_second_at += 1.0
                # For those who look on, also where no page settles: who has paused the crawl wants to see it.
                self.folder.store.commit((), {})
                if on_second is not None:
                    on_second()
            await asyncio.sleep(_ROUND_EVERY_S)

    def _sample(self, now: Instant) -> None:
        usage = self._leader.usage
        usage.note(self._office.readings())
        for second, received in usage.sums(now):
            bound = BytesPerSecond(self._leader.bound_at(Instant(second)))
            course = self._chronicle.course(now, self._office.standing(), self._leader.plan)
            self.folder.store.record_sample(Instant(second), received, bound, self._gauges(), course)
            for tally in self._quotas:
                tally.spend(now, self._counts.news_of(received))
            self._counts.received(second, received)

    def _gauges(self) -> Gauges:
        return Gauges(
            in_flight=sum(report.in_flight for report in self._office.reports),
            waiting=None,
            done=self._counts.done,
            failed=self._counts.failed,
            is_paused=self._office.is_paused,
        )

    def _obey(self, now: Instant, order: PersonsOrder) -> None:
        """What the store must know is saved here, whether or not anybody holds the site just now."""
        match order:
            case SetDeadline(site, deadline_at):
                tasks = self.folder.store.load_sites(self.started_at, [site]).tasks
                self.folder.save([SaveTasks((replace(task, deadline_at=deadline_at),)) for task in tasks])
            case AddSite(task, pages):
                known = with_known_pages(self.folder.path, order)
                assert isinstance(known, AddSite)
                passed_over = tuple(page for page in known.pages if page not in pages)
                batch: list[Saving] = [SaveTasks((task,)), SaveFound(pages)]
                batch += [SaveAgain(passed_over, now)] if passed_over else []
                self.folder.save(batch)
        self._office.order(order)

    def _save(self, parcel: Parcel) -> None:
        lines = (parcel.lines.pages, parcel.lines.log, parcel.lines.decisions)
        settled = [saving for saving in parcel.batch if isinstance(saving, SaveSettled)]
        was = [self._state_before(saving) for saving in settled]
        self.folder.save_parcel(parcel.batch, lines, parcel.file_lengths, parcel.notes)
        for saving, state in zip(settled, was, strict=True):
            self._counts.count(saving, state)

    def _state_before(self, saving: SaveSettled) -> PageState | None:
        """What earlier visits had made of a page, if there were any."""
        copy = self.folder.store.find_copy(saving.page) if is_again(saving.attempt) else None
        return None if copy is None or copy.kind is None else copy.state


class _WorkerProcess:
    def __init__(self, order: Order, desk: Desk, known_fd: int) -> None:
        self.desk = desk
        self.beats, beats = Pipe()
        self.commits, commits = Pipe()
        with beats, commits:
            fds = (beats.fileno(), commits.fileno(), known_fd)
            self.process = subprocess.Popen(  # noqa: S603 - our own module
                [sys.executable, "-m", "headway.app.worker", *map(str, fds)],
                pass_fds=fds,
                stdin=subprocess.DEVNULL,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            )
        self.beats.send_bytes(pack(order))

    def end(self) -> None:
        """It has nothing that counts any more."""
        self.beats.close()
        self.commits.close()
        self.process.kill()
        self.process.wait()
