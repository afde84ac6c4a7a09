"""One crawl of many sites, without a network: what its control costs. Prints one line of JSON.

    python -m benchmarks.sites.crawling SITES deadlines|bound|unbounded

The engine, the planner, the store and the views are those of a crawl; the servers are a queue of answers that
arrive as fast as the bound allows. All costs are CPU seconds of this process.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush
from itertools import chain
from pathlib import Path
from typing import Any

from headway.config.job import Job, build_job
from headway.config.reading import Source
from headway.config.schema import CrawlTable, JobFile, SiteTable
from headway.dashboard.answers import SiteQuestion, WatchedRun
from headway.engine.bandwidth import BandwidthPlanner
from headway.engine.machine import Engine
from headway.model.command import Command, FetchPage, FetchRobots, LoadPages, Saving, WakeAt
from headway.model.event import Event, Loaded, PageSettled, PagesLoaded, Restored, Tick, parts_of
from headway.model.page import Kind, Outcome
from headway.runtime.crawling import Chronicle
from headway.runtime.driver import VirtualClock
from headway.runtime.process import look_for_garbage_seldom
from headway.runtime.runtime import Circumstances, Runtime, waiting_order
from headway.store.sqlite import SqliteStore
from headway.units import FOREVER, Instant, Seconds
from headway.view.live import EngineMonitor

SEEDS = 10
"""Of every other site; the rest have one page, so that sites end all the time."""
PAGE_BYTES = 20_000
PAGES_PER_S = 500
"""What the bound lets through. It is the same for all sizes, as is a link."""
PAGES = 4_000
LATENCY_S = 0.1
SLICE_S = 0.01
MOST_STEPS_OF_A_PLAN = 5000
START = Instant(0.0)


class QueueWorld:
    """Pages come one after the other, at the rate of the link."""

    def __init__(self) -> None:
        self.requests = 0
        self._free_at = 0.0
        self._coming: list[tuple[float, int, FetchPage]] = []

    def start(self, now: Instant, command: Command) -> None:
        if isinstance(command, FetchPage):
            self.requests += 1
            self._free_at = max(self._free_at, now + LATENCY_S) + 1 / PAGES_PER_S
            heappush(self._coming, (self._free_at, command.lease.number, command))
        assert not isinstance(command, FetchRobots)

    def next_at(self) -> Instant:
        return Instant(self._coming[0][0]) if self._coming else FOREVER

    def settle(self, now: Instant) -> Sequence[Event]:
        events = []
        while self._coming and self._coming[0][0] <= now:
            lease = heappop(self._coming)[2].lease
            peer = f"192.0.2.{lease.page.key % 250}"
            outcome = Outcome(Kind.FETCHED, 200, PAGE_BYTES, Seconds(LATENCY_S), "text/html", peer=peer)
            events.append(PageSettled(lease, outcome))
        return events


class Enough(Exception):  # noqa: N818  it is no error
    """The measured part of the crawl is over."""


class TimedEngine:
    """Counts the CPU time of the steps, and of loading the pages that they ask for."""

    def __init__(self, engine: Engine, store: SqliteStore) -> None:
        self._engine = engine
        self._store = store
        self.pages = 0
        self.cpu_s = self.longest_s = 0.0
        self.now = START
        self.savings: list[Saving] = []

    def step(self, now: Instant, event: Event) -> Sequence[Command]:
        if self.pages >= PAGES:
            raise Enough
        begun_s = time.thread_time()
        commands = list(self._engine.step(now, event))
        took_s = time.thread_time() - begun_s
        self.now = now
        self.pages += isinstance(event, PageSettled)
        self.savings += [command for command in commands if isinstance(command, Saving)]
        if wished := [command for command in commands if isinstance(command, LoadPages)]:
            self._store.commit(self.savings, {})
            self.savings.clear()
            begun_s = time.thread_time()
            commands += self._engine.step(now, loaded(self._store, wished))
            took_s += time.thread_time() - begun_s
        self.cpu_s += took_s
        self.longest_s = max(self.longest_s, took_s)
        return commands

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


def pages_of(sites: int) -> int:
    return sites // 2 * SEEDS + (sites + 1) // 2


def job_of(sites: int, kind: str) -> Job:
    whole_s = 1.5 * pages_of(sites) / PAGES_PER_S
    tables = tuple(
        SiteTable(
            url=f"https://www.site{number}.test/",
            seeds=tuple(f"https://www.site{number}.test/{page}" for page in range(1, SEEDS) if number % 2),
            deadline=f"{60 + whole_s * (number + 1) / sites:.0f} s" if kind == "deadlines" else None,
            max_pages=SEEDS if number % 2 else 1,
        )
        for number in range(sites)
    )
    crawl = CrawlTable(
        bandwidth=None if kind == "unbounded" else f"{PAGE_BYTES * PAGES_PER_S} B/s",
        interval="1 s",
        strategy=None if kind == "deadlines" else "random",
        max_connections=1000,
        respect_robots=False,
        timezone="UTC",
    )
    return build_job(JobFile(crawl=crawl, site=tables), Source("the benchmark"))


def cpu_s(work: Callable[[], object], times: int = 1) -> float:
    """The CPU time of one call."""
    begun_s = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - begun_s) / times


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def steps(
    engine: Engine, store: SqliteStore, now: Instant, events: Iterable[Event]
) -> tuple[list[Command], float]:
    """The requests of the opening, and the longest slice of it: as `LiveDriver` does, in slices of 10 ms with
    a commit after each, and then the first plan."""
    commands: list[Command] = []
    savings: list[Saving] = []
    longest_s, coming, is_over = 0.0, iter(events), False
    while not is_over:
        begun_s, is_over = time.thread_time(), True
        for event in coming:
            commands += pages_of_commands(answered(engine, store, now, engine.step(now, event), savings))
            if time.thread_time() - begun_s >= SLICE_S:
                is_over = False
                break
        store.commit(savings, {})
        savings.clear()
        longest_s = max(longest_s, time.thread_time() - begun_s)
    if engine.planner is not None:
        engine.planner.replan(now)
    for _ in range(MOST_STEPS_OF_A_PLAN):
        if engine.planner is None or engine.planner.next_at > now:
            break
        begun_s = time.thread_time()
        commands += pages_of_commands(answered(engine, store, now, engine.step(now, Tick()), savings))
        longest_s = max(longest_s, time.thread_time() - begun_s)
    store.commit(savings, {})
    return commands, longest_s


def pages_of_commands(commands: Iterable[Command]) -> list[Command]:
    return [command for command in commands if isinstance(command, FetchPage)]


def answered(
    engine: Engine, store: SqliteStore, now: Instant, commands: Sequence[Command], savings: list[Saving]
) -> list[Command]:
    """The commands of a step, and those that follow when the pages that it asks for are loaded."""
    told = list(commands)
    savings += [command for command in told if isinstance(command, Saving)]
    if wished := [command for command in told if isinstance(command, LoadPages)]:
        store.commit(savings, {})
        savings.clear()
        told += answered(engine, store, now, engine.step(now, loaded(store, wished)), savings)
    return told


def loaded(store: SqliteStore, wished: Sequence[LoadPages]) -> PagesLoaded:
    loads = []
    for wish in wished:
        waiting = tuple(store.first_waiting(wish.site, wish.most))
        loads.append(Loaded(wish.site, waiting, is_all=len(waiting) < wish.most))
    return PagesLoaded(tuple(loads))


def measure(sites: int, kind: str, folder: Path) -> dict[str, float]:
    measured: dict[str, float] = {"sites": sites}
    begun_s = time.process_time()
    job = job_of(sites, kind)
    measured["job_s"] = time.process_time() - begun_s
    look_for_garbage_seldom()
    ended_at = measure_first_run(job, folder, measured)
    watching = WatchedRun(folder)
    measured["dashboard_s"] = cpu_s(lambda: (watching.picture(), watching.page(SiteQuestion())))
    watching.close()
    measure_restart(job, folder, measured, Instant(ended_at + 10_000.0))
    return measured


def measure_first_run(job: Job, folder: Path, measured: dict[str, float]) -> Instant:
    before_bytes, begun_s = resident_bytes(), time.process_time()
    order = waiting_order(job)
    store = SqliteStore(folder / "crawl.sqlite")
    store.order_waiting(order.name, order.rank_of)
    store.create(START, {})
    runtime = build(job, order.most_loaded)
    commands, measured["opening_step_s"] = steps(runtime.engine, store, START, runtime.seeded_in_parts(START))
    measured["start_s"] = time.process_time() - begun_s
    measured["memory_bytes"] = resident_bytes() - before_bytes
    timed = TimedEngine(runtime.engine, store)
    for command in commands:
        if isinstance(command, FetchPage):
            runtime.world.start(START, command)
    play(timed, runtime.world)
    measured["page_s"] = timed.cpu_s / timed.pages
    measured["longest_step_s"] = timed.longest_s
    store.commit(timed.savings, {})
    store.close()
    if runtime.engine.planner is not None:
        measure_planning(runtime.engine, runtime.engine.planner, timed.now, measured)
    measure_views(runtime.engine, Instant(timed.now + 10_000.0), measured)
    return timed.now


def measure_planning(
    engine: Engine, planner: BandwidthPlanner, now: Instant, measured: dict[str, float]
) -> None:
    plans, later = planner.plans_made, iter(range(1, 1000))

    def replan() -> None:
        at = Instant(now + 1000.0 * next(later))
        before = planner.plans_made
        planner.replan(at)
        engine.step(at, Tick())
        while planner.next_at <= at:
            engine.step(at, Tick())
        assert planner.plans_made == before + 1

    measured["replan_s"] = cpu_s(replan, 3)
    measured["planning_share"] = plans * measured["replan_s"] / max(now - START, 1.0)


def measure_views(engine: Engine, now: Instant, measured: dict[str, float]) -> None:
    monitor, chronicle, seconds = EngineMonitor("run", START), Chronicle(engine), iter(range(1000))

    def look() -> None:
        later = Instant(now + next(seconds))
        chronicle.gauges(later)
        chronicle.course(later)
        monitor.view(engine, later)

    measured["view_s"] = cpu_s(look, 30)


def measure_restart(job: Job, folder: Path, measured: dict[str, float], now: Instant) -> None:
    begun_s = time.process_time()
    order = waiting_order(job)
    store = SqliteStore(folder / "crawl.sqlite")
    snapshot = store.load(order.most_loaded)
    assert snapshot is not None
    runtime = build(job, order.most_loaded)
    restored = (Restored(part, {}) for part in parts_of(snapshot))
    events = chain(restored, runtime.seeded_in_parts(START))
    commands, measured["reopening_step_s"] = steps(runtime.engine, store, now, events)
    measured["restart_s"] = time.process_time() - begun_s
    assert any(isinstance(command, FetchPage) for command in commands)
    assert runtime.engine.frontier.waiting >= pages_of(len(job.sites)) - 2 * PAGES - 2000
    store.close()


def build(job: Job, most_held: int | None) -> Runtime[QueueWorld]:
    return Runtime.from_job(job, VirtualClock(START), QueueWorld(), Circumstances(most_held=most_held))


def play(engine: TimedEngine, world: QueueWorld) -> None:
    """As `VirtualDriver` does, without its log."""
    wake_at = START
    while True:
        now = Instant(max(engine.now, min(world.next_at(), wake_at)))
        assert now < FOREVER
        events = list(world.settle(now))
        if wake_at <= now:
            wake_at = FOREVER
            events.append(Tick())
        try:
            for event in events:
                for command in engine.step(now, event):
                    world.start(now, command)
                    if isinstance(command, WakeAt):
                        wake_at = command.at
        except Enough:
            return
        if engine.is_finished:
            return


def main() -> None:
    sites, kind = int(sys.argv[1]), sys.argv[2]
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(measure(sites, kind, Path(folder))))


if __name__ == "__main__":
    main()
