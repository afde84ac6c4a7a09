"""What calls between a worker process and its supervisor cost both of them, in microseconds of CPU.

python -m benchmarks.fleet.calls [pages a batch ...]
A batch is what a worker commits: pages with twenty links each, their captures, and the lines of the logs. The
supervisor takes it in and stores nothing, so that only the call itself is measured. Linux only: the CPU of
the other process is read from /proc.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from headway.cluster.coordinator import CommitBatch, Lines, Report
from headway.cluster.leader import Leader
from headway.cluster.local import WORKER_CALLS, LocalCoordinator, WorkerSession, WorkerTask
from headway.cluster.rpc import Offer, connect
from headway.model.command import PageState, SaveFound, SaveSettled, SaveSite, Saving
from headway.model.page import Capture, Kind, Outcome, Page, PageKey, Sighting, Site
from headway.planning.allocator import Allocator
from headway.policy.timetable import Timetable
from headway.ports import CaptureNote
from headway.runtime.driver import WallClock
from headway.store.sqlite import SqliteStore
from headway.units import BytesPerSecond, Instant, Seconds

SITES, LINKS, REPEATS = 8, 20, 100
PAGE_LINE, LOG_LINE = b"p" * 450, b"l" * 200
WARC = "archive/HEADWAY-20260101000000-00000.warc.gz"


def page(number: int) -> Page:
    site = Site(f"http://site{number % SITES}.example")
    url = f"{site}/articles/2026/some-longer-path-{number:06d}.html"
    return Page(url, site, PageKey(number * 7919 + 1), 3, 0.5)


def batch_of(first: int, pages: int) -> CommitBatch:
    savings: list[Saving] = []
    notes = {}
    for number in range(first, first + pages):
        outcome = Outcome(Kind.FETCHED, 200, 15_000, Seconds(0.02), "text/html", 15_000, "sha256:" + "a" * 64)
        links = tuple(page(number * LINKS + each) for each in range(LINKS))
        capture, at = Capture(WARC, number * 4000, 3900), Instant(1e9 + number)
        sighting = Sighting('"abc"', "Mon, 01 Jan 2024 00:00:00 GMT")
        savings.append(SaveFound(links[:2]))
        savings.append(
            SaveSettled(page(number), outcome, PageState.DONE, 0, at, None, capture, links, sighting)
        )
        savings.append(SaveSite(page(number).site, at, 0))
        notes[WARC, number * 4000] = CaptureNote(at, "sha256:" + "b" * 64, "response")
    return CommitBatch(savings, {WARC: 4000 * first}, notes, Lines(PAGE_LINE * pages, LOG_LINE * pages))


async def supervise(theirs: socket.socket, folder: Path) -> None:
    store = SqliteStore(folder / "crawl.sqlite")
    leader = Leader(Timetable(BytesPerSecond(1e6)), Allocator)
    coordinator = LocalCoordinator(Instant(1.0), store, leader, lambda batch: None)
    session = WorkerSession(coordinator, WallClock(), WorkerTask({}, "", False, 1, Seconds(0.1)))
    await (await connect(theirs, Offer(WORKER_CALLS, session))).ended()


def cpu_s(pid: int) -> float:
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


async def measure(call: Callable[[int], Awaitable[object]], pid: int) -> tuple[float, float]:
    """Of the worker, whose `call` prepares nothing, and of the supervisor."""
    await call(0)
    spent = []
    there = cpu_s(pid)
    for number in range(1, REPEATS + 1):
        here = time.process_time()
        await call(number)
        spent.append(time.process_time() - here)
    await asyncio.sleep(0.1)
    return 1e6 * statistics.median(spent), 1e6 * (cpu_s(pid) - there) / REPEATS


async def work(ours: socket.socket, pid: int, sizes: list[int]) -> None:
    connection = await connect(ours)
    supervisor = connection.remote(WORKER_CALLS)
    await supervisor.join()
    report = Report(tuple(Site(f"http://site{number}.example") for number in range(50)), waiting=100)
    show("heartbeat of 50 sites", *await measure(lambda number: supervisor.beat(report), pid))
    sent = 0
    for size in sizes:
        batches = [batch_of(number * size, size) for number in range(REPEATS + 1)]

        async def commit(number: int, before: int = sent, batches: list[CommitBatch] = batches) -> None:
            await supervisor.commit(before + number + 1, batches[number])

        worker_us, supervisor_us = await measure(commit, pid)
        sent += len(batches)
        show(f"commit of {size} pages", worker_us, supervisor_us)
    connection.close()


def show(what: str, worker_us: float, supervisor_us: float) -> None:
    whole_us = worker_us + supervisor_us
    print(f"{what}: worker {worker_us:.0f} us, supervisor {supervisor_us:.0f} us, together {whole_us:.0f} us")


def main() -> None:
    sizes = [int(text) for text in sys.argv[1:]] or [60, 200]
    ours, theirs = socket.socketpair()
    with tempfile.TemporaryDirectory() as folder:
        pid = os.fork()
        if pid == 0:
            ours.close()
            asyncio.run(supervise(theirs, Path(folder)))
            os._exit(0)
        theirs.close()
        try:
            asyncio.run(work(ours, pid, sizes))
        finally:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
