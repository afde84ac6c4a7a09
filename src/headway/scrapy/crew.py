"""The crawlers of `headway run-scrapy`: a process a site, at most m at once, each at the rate of the plan,
started again when it breaks down."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from headway.model.page import Site
from headway.scrapy.course import AIM, Course
from headway.scrapy.ledger import Ledger
from headway.scrapy.neighbours import Neighbours
from headway.scrapy.worker import Order, Progress, WorkerTask
from headway.store.course import SiteCourse
from headway.units import Instant

_MOST_RESTARTS = 3
_RESTART_AFTER_S = 2.0
_OFF_BY = 1.05
"""A site that has given so much more than was planned, and has not ended, makes a new plan worth while."""
_PLAN_EVERY_S = 5.0
_LOOK_EVERY_S = 0.5
_MOST_LINE_BYTES = 1 << 20
_CATCH_UP_S = 4.0
"""In so much time a site is brought back to where its plan wants it to be."""
_MOST_BEHIND_S = 4.0
_TOLD_AGAIN = 0.01
"""A rate that moves by less is not told."""


class SiteRun:
    """One site from its first process to its end."""

    def __init__(self, number: int, name: str, task: WorkerTask, data_bytes: float, log: Path) -> None:
        self.number = number
        self.name = name
        self.task = task
        self.data_bytes = data_bytes
        self.log = log
        self.process: asyncio.subprocess.Process | None = None
        self.progress = Progress(False, 0, 0, 0, 0)
        self.earlier_bytes = 0
        """What processes before this one received."""
        self.restarts = 0
        self.row = 0
        self.rate_bytes_per_s = 0.0
        """As planned for now; what the crawler is told differs by what it is behind or ahead."""
        self.told_bytes_per_s = 0.0
        self.due_bytes = 0.0
        """What the plan wants to have arrived by now."""
        self.has_gone = False
        self.started_s: float | None = None
        self.ended_s: float | None = None
        self.is_given_up = False

    @property
    def received_bytes(self) -> int:
        return self.earlier_bytes + self.progress.wire_bytes

    @property
    def is_at_work(self) -> bool:
        return self.process is not None and self.ended_s is None and self.progress.is_ready

    def left_bytes(self) -> float:
        """What is planned and has not come; while requests wait there is always something."""
        waiting = self.progress.waiting * self.received_bytes / max(1, self.progress.answers)
        return max(self.data_bytes - self.received_bytes, 0.1 * waiting, 1.0)

    def follow_plan(self, lasted_s: float, rate_bytes_per_s: float) -> float:
        """The bound with which it will be where the plan wants it, given its rate from now on."""
        if self.has_gone:
            self.due_bytes += lasted_s * self.rate_bytes_per_s
        self.rate_bytes_per_s = rate_bytes_per_s
        most_bytes = _MOST_BEHIND_S * rate_bytes_per_s
        behind_bytes = min(max(self.due_bytes - self.received_bytes, -most_bytes), most_bytes)
        # What a server could not give is not asked of it for ever after.
        self.due_bytes = self.received_bytes + behind_bytes
        return max(0.5 * rate_bytes_per_s, rate_bytes_per_s + behind_bytes / _CATCH_UP_S) / AIM

    def course(self) -> SiteCourse:
        """How it stands, for those who look on."""
        left_bytes, rate = self.left_bytes(), self.rate_bytes_per_s
        now = time.time()
        end_at = now + left_bytes / rate if rate else None
        return SiteCourse(
            Site(self.name), now, self.received_bytes, self.progress.waiting, left_bytes, rate, end_at, end_at
        )

    def tell(self, order: Order) -> None:
        if self.process is not None and self.process.stdin is not None:
            with contextlib.suppress(ConnectionError):
                self.process.stdin.write(msgspec.json.encode(order) + b"\n")


class Crew:
    def __init__(
        self,
        runs: list[SiteRun],
        plan: Callable[[], Course],
        *,
        neighbours: Neighbours,
        ledger: Ledger,
        seats: int,
        tell: Callable[[float, str], None],
        environment: Mapping[str, str],
    ) -> None:
        self._runs = runs
        self._plan = plan
        self.course = plan()
        self._neighbours = neighbours
        self._ledger = ledger
        self._free_rows = list(range(seats))
        self._tell = tell
        self._environment = environment
        self._watches: set[asyncio.Task[None]] = set()
        self._news = asyncio.Event()
        self._began = 0.0
        self._planned_s = 0.0
        self._steered_s = 0.0
        self._is_draining = False

    def now_s(self) -> float:
        """Since the first crawlers were let go."""
        return asyncio.get_running_loop().time() - self._began

    async def run(self) -> None:
        """Until every site has ended, or `drain` was called and all have let go."""
        self._began = asyncio.get_running_loop().time()
        try:
            # Processes take a moment to start; the clock begins when those that are due first are ready.
            await self._man_seats(0.0)
            await self._until_ready()
            self._began = asyncio.get_running_loop().time()
            self.course = self._plan()
            while any(run.ended_s is None for run in self._runs) and not self._has_drained():
                self._steer()
                self._ledger.look(run.course() for run in self._runs if run.is_at_work)
                self._news.clear()
                pause_s = min(_LOOK_EVERY_S, self.course.next_change_s(self.now_s()) - self.now_s())
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._news.wait(), max(0.01, pause_s))
                await self._man_seats(self.now_s())
                self._look_at_plan()
        finally:
            await self._let_go()

    def drain(self) -> None:
        self._is_draining = True
        for run in self._runs:
            run.tell(Order(end=True))
        self._news.set()

    def _has_drained(self) -> bool:
        return self._is_draining and all(run.process is None for run in self._runs)

    def _steer(self) -> None:
        """Give each crawler its rate of this moment, and let those go that are due."""
        now_s = self.now_s()
        lasted_s, self._steered_s = now_s - self._steered_s, now_s
        planned = self.course.rates(now_s)
        capacity = self.course.capacity(now_s)
        self._neighbours.bound_bytes_per_s = capacity / AIM
        at_work = [run for run in self._runs if run.is_at_work]
        for run in at_work:
            rate = planned.get(run.number, 0.0)
            if abs(rate - run.rate_bytes_per_s) > 0.001 * rate:
                self._tell(now_s, f"{run.name}: {rate:.0f} B/s")
        wanted = {run: run.follow_plan(lasted_s, planned.get(run.number, 0.0)) for run in at_work}
        # Catching up may use what a pacer leaves of its bound, and no more.
        part = min(1.0, capacity / AIM**2 / max(sum(wanted.values()), 1.0))
        for run, rate in wanted.items():
            if abs(part * rate - run.told_bytes_per_s) > _TOLD_AGAIN * part * rate:
                run.told_bytes_per_s = part * rate
                run.tell(Order(rate_bytes_per_s=part * rate))
            if rate > 0 and not run.has_gone:
                run.has_gone = True
                run.started_s = now_s if run.started_s is None else run.started_s
                run.tell(Order(go=True))

    async def _man_seats(self, now_s: float) -> None:
        due = self.course.rates(now_s)
        waiting = [
            run for run in self._runs if run.process is None and run.ended_s is None and not self._is_draining
        ]
        waiting.sort(key=lambda run: run.number not in due)
        for run in waiting[: len(self._free_rows)]:
            run.row = self._free_rows.pop(0)
            await self._start(run)

    async def _start(self, run: SiteRun) -> None:
        run.log.parent.mkdir(parents=True, exist_ok=True)
        with run.log.open("ab") as log:
            run.process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "headway.scrapy.worker",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                limit=_MOST_LINE_BYTES,
                env=self._environment,
            )
        run.has_gone = False
        run.told_bytes_per_s = 0.0
        assert run.process.stdin is not None
        task = msgspec.structs.replace(run.task, row=run.row)
        run.process.stdin.write(msgspec.json.encode(task) + b"\n")
        watch = asyncio.get_running_loop().create_task(self._watch(run))
        self._watches.add(watch)
        watch.add_done_callback(self._watches.discard)

    async def _watch(self, run: SiteRun) -> None:
        process = run.process
        assert process is not None
        assert process.stdout is not None
        async for line in process.stdout:
            with contextlib.suppress(msgspec.DecodeError):  # a spider may print
                run.progress = msgspec.json.decode(line, type=Progress)
                self._ledger.note(run.progress.news)
            if run.progress.finish_reason == "finished" and run.ended_s is None:
                self._end(run)
            if run.progress.finish_reason is not None or not run.has_gone:
                self._news.set()
        code = await process.wait()
        run.process = None
        self._ledger.look(())
        self._neighbours.forget(run.row)
        self._free_rows.append(run.row)
        if run.ended_s is None and not self._is_draining:
            await self._restart(run, code)
        self._news.set()

    def _end(self, run: SiteRun) -> None:
        run.ended_s = self.now_s()
        if not run.is_given_up:
            self._ledger.end(Instant(time.time()), Site(run.name))
            self._tell(run.ended_s, f"{run.name}: done, {run.received_bytes} bytes")
        self._plan_again()

    async def _restart(self, run: SiteRun, code: int) -> None:
        run.earlier_bytes = run.received_bytes
        run.progress = Progress(False, 0, 0, 0, 0)
        run.restarts += 1
        if run.restarts > _MOST_RESTARTS:
            run.is_given_up = True
            self._tell(self.now_s(), f"{run.name}: broke down {run.restarts} times, given up; see {run.log}")
            self._end(run)
            return
        self._tell(self.now_s(), f"{run.name}: its process ended with {code}; started again, see {run.log}")
        await asyncio.sleep(_RESTART_AFTER_S)

    def _plan_again(self) -> None:
        left = {run.number: run.left_bytes() for run in self._runs if run.ended_s is None}
        self._planned_s = self.now_s()
        self.course.go_on(self._planned_s, left)
        if self.course.can_change:
            for run in self._runs:
                run.due_bytes = run.received_bytes

    def _look_at_plan(self) -> None:
        if not self.course.can_change or self.now_s() < self._planned_s + _PLAN_EVERY_S:
            return
        if any(run.ended_s is None and run.received_bytes > _OFF_BY * run.data_bytes for run in self._runs):
            self._plan_again()

    async def _until_ready(self) -> None:
        while any(run.process is not None and not run.progress.is_ready for run in self._runs):
            self._news.clear()
            await self._news.wait()

    async def _let_go(self) -> None:
        for run in self._runs:
            if run.process is not None:
                run.tell(Order(end=True))
        if self._watches:
            _, late = await asyncio.wait(self._watches, timeout=10.0)
            for run in self._runs:
                if run.process is not None:
                    with contextlib.suppress(ProcessLookupError):
                        run.process.kill()
            if late:
                await asyncio.wait(late)
