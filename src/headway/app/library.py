"""headway from Python: `Plan`, `Task` and `crawl`. The same parts as the command line, nothing else."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Generator
from pathlib import Path
from typing import Any

import msgspec

from headway.app.clock import WallClock
from headway.app.crawling import CrawlRun
from headway.app.planning import make_outlook, problem_from_job
from headway.config.job import Job, build_job
from headway.config.reading import Source, convert
from headway.live.collector import Collected
from headway.policy.allocation.problem import Objective
from headway.report.plan_table import verdict_lines

_PAGES_AHEAD = 64
"""Pages that wait for the reader before the crawl waits too: each holds its whole body."""


class Task(msgspec.Struct, frozen=True):
    """A site that is wanted: the keys of a `[[site]]` table."""

    url: str
    deadline: str | None = None
    weight: float = 1.0
    seeds: tuple[str, ...] = ()
    max_pages: int | None = None
    max_bytes: str | None = None
    data: str | None = None
    cap: str | None = None


class Page(msgspec.Struct, frozen=True):
    """A page as it was fetched."""

    url: str
    site: str
    status: int
    outcome: str
    content_type: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    title: str
    depth: int
    links: tuple[str, ...]
    wire_bytes: int
    warc_file: str | None
    warc_offset: int | None


class Forecast(msgspec.Struct, frozen=True):
    """Printed, it says the same in words."""

    on_time: bool
    required_bytes_per_s: float
    """The least bandwidth that meets all deadlines; infinity when none would."""
    ends_s: dict[str, float]
    """When each site would end, in seconds from the start."""
    text: str

    def __str__(self) -> str:
        return self.text


class Plan:
    """What is wanted, by when, within which bandwidth. Further options are the keys of `[crawl]`."""

    def __init__(self, *, tasks: list[Task], bandwidth: str | None = None, **options: Any) -> None:
        crawl = {**options, **({} if bandwidth is None else {"bandwidth": bandwidth})}
        tables = {"crawl": crawl, "site": [msgspec.to_builtins(task) for task in tasks]}
        source = Source("plan")
        self.job: Job = build_job(convert(tables, source), source, now=WallClock().now())

    def forecast(self) -> Forecast:
        """Will it finish in time, and which bandwidth would do? Sizes are the tasks' own, or guesses."""
        problem = problem_from_job(self.job, WallClock().now())
        outlook = make_outlook(problem, "headway", Objective(self.job.file.crawl.objective))
        schedule = outlook.schedule
        ends_s = dict(zip(problem.names, (float(end_s) for end_s in schedule.end_s), strict=True))
        return Forecast(
            schedule.on_time, outlook.required_bytes_per_s, ends_s, "\n".join(verdict_lines(outlook))
        )


async def crawl(plan: Plan, out: str | Path = "run") -> AsyncIterator[Page]:
    """Crawl into a run folder, and hand on each page as it is fetched.

    The crawl waits for a slow reader. Leaving the loop stops it, and the same call takes it up again; to
    be sure that it has stopped before you go on, leave through `contextlib.aclosing(hw.crawl(...))`.
    """
    pages: asyncio.Queue[Page | None] = asyncio.Queue()
    room = asyncio.Semaphore(_PAGES_AHEAD)

    def hand_on(collected: Collected) -> None:
        pages.put_nowait(_page_of(collected))

    run = CrawlRun(plan.job, Path(out), on_page=hand_on, make_room=lambda: _Room(room))
    crawling = asyncio.get_running_loop().create_task(run.run())
    crawling.add_done_callback(lambda _: pages.put_nowait(None))
    try:
        while (page := await pages.get()) is not None:
            room.release()
            yield page
        await crawling
    finally:
        if not crawling.done():
            run.stop()
        with contextlib.suppress(asyncio.CancelledError):
            await crawling


class _Room:
    """For one page more. A crawl that is stopped may never come to wait for it, as a coroutine must be."""

    def __init__(self, room: asyncio.Semaphore) -> None:
        self._room = room

    def __await__(self) -> Generator[object, None, bool]:
        return self._room.acquire().__await__()


def _page_of(collected: Collected) -> Page:
    page, response, parsed, capture = collected.page, collected.response, collected.parsed, collected.capture
    return Page(
        page.url,
        page.site,
        response.status,
        collected.outcome.kind,
        collected.outcome.content_type,
        response.headers,
        response.body,
        parsed.title if parsed is not None else "",
        page.depth,
        tuple(link.url for link in parsed.links) if parsed is not None else (),
        response.wire_bytes,
        capture.warc_file if capture is not None else None,
        capture.warc_offset if capture is not None else None,
    )
