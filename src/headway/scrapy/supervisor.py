"""Supervises the spider processes of `headway run-scrapy`: one for each site, at the rates that the engine
decides.

A `SiteRun` is one site from its first process to its end. The `Supervisor` starts the processes, releases
them when they are due, sends each its rate, restarts spiders that fail, and reports their progress to the
engine. `PageLog` stores the results of their requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TextIO

import msgspec

from headway.cluster.rpc import Offer, RpcError, connect
from headway.model.command import PageState, SaveSettled, SaveSite, Saving
from headway.model.event import SiteProgress
from headway.model.page import SUCCESS, Kind, Outcome, Page, Site
from headway.pacing.grants import SLOT_S
from headway.pacing.shared_window import SharedRateWindow
from headway.pages.url import page_of
from headway.scrapy.project import is_normal_end
from headway.scrapy.spider import (
    SPIDER_CALLS,
    SUPERVISOR_CALLS,
    Answer,
    Order,
    Progress,
    SpiderCalls,
    WorkerTask,
)
from headway.scrapy.steering import AIM, Steering
from headway.store.rows import Gauges, SiteSample
from headway.store.sqlite import SqliteStore
from headway.units import BytesPerSecond, Instant

_SAMPLE_EVERY_S = 1.0
_SETTLES_S = 0.2
"""This long after an instant all processes have written what they received until then."""
_PAGES_PER_COMMIT = 1000
_NOT_REQUESTED = Outcome(Kind.OUT_OF_SCOPE, detail="the spider did not request it")
_MOST_RESTARTS = 3
_RESTART_AFTER_S = 2.0
_POLL_EVERY_S = 0.5
_CATCH_UP_S = 4.0
"""Time in which a site is to be back at what its plan says."""
_MOST_BEHIND_S = 4.0
"""A site is treated as at most this far behind or ahead of its plan."""
_NOTICEABLE = 0.01
"""A rate that changes by less is not sent."""
_WORTH_NOTING = 0.05
"""A rate that changes by less is not shown."""


class PageLog:
    """Stores the results of the spiders' requests in the run folder's database, so that `headway status`,
    `report` and `serve` show a run of `headway run-scrapy` like any other crawl.
    """

    def __init__(self, store: SqliteStore, window: SharedRateWindow) -> None:
        self._store = store
        self._window = window
        self._batch: list[Saving] = []
        self._wire_bytes = 0.0
        self._slot = int(time.monotonic() / SLOT_S)
        self._sampled_slot = self._slot
        self._samples: dict[Site, SiteSample] = {}
        self.in_flight = 0
        self.is_paused = False
        self._done = self._failed = 0

    def begin(self, now: Instant, sites: Iterable[Site]) -> None:
        self._batch += [SaveSite(site, now, 0) for site in sites]

    def save(self, batch: Sequence[Saving]) -> None:
        """Save what the engine wants saved."""
        self._batch += batch

    def note(self, answers: Iterable[Answer]) -> None:
        """Add results of requests. If Scrapy sends a request again, the last result counts."""
        for answer in answers:
            page = page_of(answer.url, depth=answer.depth, secret=self._store.secret)
            if page is None:
                continue
            outcome = answer.outcome
            if page.url == f"{page.site}/robots.txt":
                self._batch.append(SaveSite(page.site, answer.at, 0, robots_bytes=outcome.wire_bytes))
                continue
            state = PageState.DONE if outcome.kind in SUCCESS else PageState.FAILED
            self._done += state is PageState.DONE
            self._failed += state is PageState.FAILED
            self._batch.append(SaveSettled(page, outcome, state, 1, answer.at))

    def end(self, now: Instant, site: Site) -> None:
        """The spider of a site has finished: exclude the pages that it did not request."""
        self.commit()
        while waiting := self._store.first_waiting(site, _PAGES_PER_COMMIT):
            self._store.commit([_excluded(now, record.page) for record in waiting], {})
        self._batch.append(SaveSite(site, now, 0, ended_at=now))

    def update(self, samples: Iterable[SiteSample] = ()) -> None:
        """Read what the spiders received since the last call, and save about once a second. Must be called
        before a row of the shared window is cleared."""
        to_slot = int((time.monotonic() - _SETTLES_S) / SLOT_S)
        if to_slot > self._slot:
            self._wire_bytes += self._window.arrived_bytes(self._slot, to_slot)
            self._slot = to_slot
        self._samples |= {sample.site: sample for sample in samples}
        if (to_slot - self._sampled_slot) * SLOT_S >= _SAMPLE_EVERY_S:
            self._sampled_slot = to_slot
            self._sample(Instant(time.time() - _SETTLES_S))
            self.commit()

    def commit(self) -> None:
        self._store.commit(self._batch, {})
        self._batch = []

    def close(self) -> None:
        self._sample(Instant(time.time()))
        self.commit()
        self._store.close()

    def _sample(self, at: Instant) -> None:
        samples = list(self._samples.values())
        self._samples = {}
        waiting = sum(sample.waiting for sample in samples)
        gauges = Gauges(None, self.in_flight, waiting, self._done, self._failed, self.is_paused)
        bound = BytesPerSecond(self._window.bound_bytes_per_s)
        self._store.record_sample(at, round(self._wire_bytes), bound, gauges, samples)


def _excluded(now: Instant, page: Page) -> SaveSettled:
    return SaveSettled(page, _NOT_REQUESTED, PageState.EXCLUDED, 0, now)


class SiteRun:
    """One site from its first process to its end."""

    def __init__(self, name: Site, task: WorkerTask, first_urls: int, log: Path) -> None:
        self.name = name
        self.task = task
        self.first_urls = first_urls
        self.log = log
        self.process: asyncio.subprocess.Process | None = None
        self.spider: SpiderCalls | None = None
        """Its process's calls, while it is connected."""
        self._orders: list[Order] = []
        self._steering: asyncio.Task[None] | None = None
        self.progress = Progress(False, 0, 0, 0, 0)
        self.earlier_bytes = self.earlier_answers = 0
        """What its earlier processes received."""
        self.restarts = 0
        self.row = 0
        self.rate_bytes_per_s = 0.0
        """At which data should arrive by the engine's decision."""
        self.noted_bytes_per_s = 0.0
        """The rate that was shown last."""
        self.sent_bytes_per_s = 0.0
        """The rate that was sent last: the planned one, corrected by how far the site is behind or ahead."""
        self.due_bytes = 0.0
        """How much should have arrived by now according to the plan."""
        self.is_released = False
        self.started_s: float | None = None
        self.ended_s: float | None = None
        self.is_given_up = False

    @property
    def received_bytes(self) -> int:
        return self.earlier_bytes + self.progress.wire_bytes

    @property
    def is_active(self) -> bool:
        return self.process is not None and self.ended_s is None and self.progress.is_ready

    @property
    def reported(self) -> SiteProgress:
        """What the engine is to know of the site."""
        answers = self.earlier_answers + self.progress.answers
        waiting = self.progress.waiting if answers else max(self.progress.waiting, self.first_urls)
        return SiteProgress(
            self.name, answers, self.received_bytes, waiting, has_ended=self.ended_s is not None
        )

    def follow_plan(self, lasted_s: float, rate_bytes_per_s: float) -> float:
        """Set the planned rate from now on. Returns the bound with which the site catches up with its plan.

        `lasted_s`: time since the last call, during which the previous rate was planned.
        """
        if self.is_released:
            self.due_bytes += lasted_s * self.rate_bytes_per_s
        self.rate_bytes_per_s = rate_bytes_per_s
        most_bytes = _MOST_BEHIND_S * rate_bytes_per_s
        behind_bytes = min(max(self.due_bytes - self.received_bytes, -most_bytes), most_bytes)
        # A site whose server is too slow for the plan does not fall further and further behind.
        self.due_bytes = self.received_bytes + behind_bytes
        return max(0.5 * rate_bytes_per_s, rate_bytes_per_s + behind_bytes / _CATCH_UP_S) / AIM

    def steer(self, order: Order) -> None:
        """Send an order as soon as the process has taken the previous one. Does not wait, so a busy spider
        does not delay the others. Orders that wait are merged into one."""
        self._orders.append(order)
        if self._steering is None and self.spider is not None:
            self._steering = asyncio.get_running_loop().create_task(self._steer(self.spider))

    def connected(self, spider: SpiderCalls) -> None:
        self.spider = spider
        if self._orders:
            self._steering = asyncio.get_running_loop().create_task(self._steer(spider))

    def disconnected(self) -> None:
        """Its process has ended."""
        self.process = self.spider = None
        self._orders.clear()

    async def _steer(self, spider: SpiderCalls) -> None:
        try:
            while self._orders:
                rates = [each.rate_bytes_per_s for each in self._orders if each.rate_bytes_per_s is not None]
                order = Order(
                    rates[-1] if rates else None,
                    go=any(each.go for each in self._orders),
                    end=any(each.end for each in self._orders),
                )
                self._orders.clear()
                await spider.steer(order)
        except RpcError:
            pass  # the process has ended; `Supervisor._watch` handles it
        finally:
            self._steering = None


class EventLog:
    """Shows what happens in the run to the user, and writes it to a file as lines of JSON."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self.show = show
        self._file: TextIO | None = None

    def open(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8")

    def note(self, now_s: float, text: str) -> None:
        """Show an event, and write it to the file."""
        assert self._file is not None
        self._file.write(json.dumps({"at_s": round(now_s, 3), "event": text}) + "\n")
        self._file.flush()
        self.show(f"{now_s:8.1f} s  {text}")

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class Reports:
    """The calls of one spider's process. Implements `SupervisorCalls`."""

    def __init__(self, supervisor: Supervisor, run: SiteRun) -> None:
        self._supervisor = supervisor
        self._run = run

    async def report(self, progress: Progress) -> None:
        self._supervisor.receive(self._run, progress)


class Supervisor:
    """Runs the spiders of all sites, at most `most_processes` at once. Use `run`; `drain` may be called
    meanwhile."""

    def __init__(
        self,
        runs: list[SiteRun],
        steering: Steering,
        *,
        window: SharedRateWindow,
        page_log: PageLog,
        most_processes: int,
        events: EventLog,
        environment: Mapping[str, str],
    ) -> None:
        self._runs = runs
        self._steering = steering
        self._news = steering.world.has_decided
        self._window = window
        self._page_log = page_log
        self._free_rows = list(range(most_processes))
        self._events = events
        self._environment = environment
        self._watches: set[asyncio.Task[None]] = set()
        self._began = 0.0
        self._steered_s = 0.0
        self._is_draining = False
        self._problem: Exception | None = None
        """Why a report could not be stored."""

    def now_s(self) -> float:
        """Time since the spiders were released."""
        return asyncio.get_running_loop().time() - self._began

    async def run(self) -> None:
        """Run until every site has ended, or `drain` was called and all processes have ended."""
        self._began = asyncio.get_running_loop().time()
        first = self._steering.plan().first_rates
        try:
            # Processes need time to start; the crawl's time begins when the first ones are ready.
            await self._start_processes(first)
            await self._until_ready()
            self._began = asyncio.get_running_loop().time()
            self._steering.begin()
            while any(run.ended_s is None for run in self._runs) and not self._has_drained():
                self._steering.look()
                self._steer()
                active = [run for run in self._runs if run.is_active]
                self._page_log.in_flight = sum(run.progress.in_flight for run in active)
                self._page_log.is_paused = self._steering.is_paused
                self._page_log.update(self._steering.sample(run.reported) for run in active)
                self._news.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._news.wait(), _POLL_EVERY_S)
                await self._start_processes(self._steering.world.rates)
                if self._problem is not None:
                    raise self._problem
        finally:
            await self._steering.aclose()
            await self._end_processes()

    def drain(self) -> None:
        """Let every spider finish its requests in flight, and end."""
        self._is_draining = True
        for run in self._runs:
            run.steer(Order(end=True))
        self._news.set()

    def _has_drained(self) -> bool:
        return self._is_draining and all(run.process is None for run in self._runs)

    def _steer(self) -> None:
        """Send each spider its rate, and release those that are due."""
        now_s = self.now_s()
        lasted_s, self._steered_s = now_s - self._steered_s, now_s
        capacity = self._steering.world.capacity_bytes_per_s
        self._window.bound_bytes_per_s = capacity
        rates = self._rates()
        for run, rate in rates.items():
            if abs(rate - run.noted_bytes_per_s) > _WORTH_NOTING * rate:
                run.noted_bytes_per_s = rate
                self._events.note(now_s, f"{run.name}: {rate:.0f} B/s")
        wanted = {run: run.follow_plan(lasted_s, AIM * rate) for run, rate in rates.items()}
        # Catching up may only use what pacers leave of the bound.
        part = min(1.0, capacity / AIM / max(sum(wanted.values()), 1.0))
        for run, rate in wanted.items():
            if abs(part * rate - run.sent_bytes_per_s) > _NOTICEABLE * part * rate:
                run.sent_bytes_per_s = part * rate
                run.steer(Order(rate_bytes_per_s=part * rate))
            if rate > 0 and not run.is_released:
                run.is_released = True
                run.started_s = now_s if run.started_s is None else run.started_s
                run.steer(Order(go=True))

    def _rates(self) -> dict[SiteRun, float]:
        """The rate of each site whose spider runs."""
        rates = {run: self._steering.rate_of(run.name) for run in self._runs if run.is_active}
        idle = [run for run, rate in rates.items() if not rate]
        if idle and not self._free_rows:
            # A policy may prefer sites whose spiders cannot start before another ends: that one takes the
            # rate.
            coming = (run for run in self._runs if run.process is None and run.ended_s is None)
            unused = sum(self._steering.rate_of(run.name) for run in coming)
            rates |= dict.fromkeys(idle, unused / len(idle))
        return rates

    async def _start_processes(self, due: Mapping[Site, float]) -> None:
        """Start processes while fewer than allowed are running; first for sites that have a rate."""
        waiting = [
            run for run in self._runs if run.process is None and run.ended_s is None and not self._is_draining
        ]
        waiting.sort(key=lambda run: run.name not in due)
        for run in waiting[: len(self._free_rows)]:
            run.row = self._free_rows.pop(0)
            await self._start(run)

    async def _start(self, run: SiteRun) -> None:
        run.log.parent.mkdir(parents=True, exist_ok=True)
        with run.log.open("ab") as log:
            ours, theirs = socket.socketpair()
            with theirs:
                run.process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-m",
                    "headway.scrapy.spider",
                    str(theirs.fileno()),
                    pass_fds=[theirs.fileno()],
                    stdin=asyncio.subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    env=self._environment,
                )
        run.is_released = False
        run.sent_bytes_per_s = 0.0
        assert run.process.stdin is not None
        task = msgspec.structs.replace(run.task, row=run.row)
        run.process.stdin.write(msgspec.json.encode(task))
        run.process.stdin.close()
        watch = asyncio.get_running_loop().create_task(self._watch(run, run.process, ours))
        self._watches.add(watch)
        watch.add_done_callback(self._watches.discard)

    async def _watch(self, run: SiteRun, process: asyncio.subprocess.Process, ours: socket.socket) -> None:
        connection = await connect(ours, Offer(SUPERVISOR_CALLS, Reports(self, run)))
        run.connected(connection.remote(SPIDER_CALLS))
        try:
            await connection.ended()
        except RpcError:
            pass  # it sent an invalid message; the connection is closed, which ends the process
        except Exception as problem:
            self._problem = problem
        connection.close()
        code = await process.wait()
        run.disconnected()
        self._page_log.update()
        self._window.clear(run.row)
        self._free_rows.append(run.row)
        if run.ended_s is None and not self._is_draining:
            await self._restart(run, code)
        self._news.set()

    def receive(self, run: SiteRun, progress: Progress) -> None:
        """Handle the report of a spider."""
        run.progress = progress
        self._page_log.note(progress.answers_since)
        if is_normal_end(progress.finish_reason) and run.ended_s is None:
            self._end(run)
        elif run.ended_s is None and progress.is_ready:
            self._steering.tell(run.reported)
        if progress.finish_reason is not None or not run.is_released:
            self._news.set()

    def _end(self, run: SiteRun) -> None:
        run.ended_s = self.now_s()
        if not run.is_given_up:
            self._page_log.end(Instant(time.time()), run.name)
            self._events.note(run.ended_s, f"{run.name}: done, {run.received_bytes} bytes")
        self._steering.tell(run.reported)

    async def _restart(self, run: SiteRun, code: int) -> None:
        run.earlier_bytes = run.received_bytes
        run.earlier_answers += run.progress.answers
        run.progress = Progress(False, 0, 0, 0, 0)
        run.restarts += 1
        if run.restarts > _MOST_RESTARTS:
            run.is_given_up = True
            text = f"{run.name}: given up after {run.restarts} failures; see {run.log}"
            self._events.note(self.now_s(), text)
            self._end(run)
            return
        text = f"{run.name}: the process ended with exit code {code}; started again, see {run.log}"
        self._events.note(self.now_s(), text)
        await asyncio.sleep(_RESTART_AFTER_S)

    async def _until_ready(self) -> None:
        while any(run.process is not None and not run.progress.is_ready for run in self._runs):
            self._news.clear()
            await self._news.wait()

    async def _end_processes(self) -> None:
        """Ask all processes to end, and kill those that have not after 10 s."""
        for run in self._runs:
            if run.process is not None:
                run.steer(Order(end=True))
        if self._watches:
            _, late = await asyncio.wait(self._watches, timeout=10.0)
            for run in self._runs:
                if run.process is not None:
                    with contextlib.suppress(ProcessLookupError):
                        run.process.kill()
            if late:
                await asyncio.wait(late)
