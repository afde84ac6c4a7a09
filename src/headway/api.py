"""headway from Python: `Plan`, `Task`, `open` and `crawl`, built from the same parts as the command line."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, Unpack

import msgspec

from headway.config.job import Job, build_job, load_job
from headway.config.keys import child_of, meant, root_of
from headway.config.reading import Source, convert
from headway.config.schema import CrawlTable, JobFile
from headway.errors import HeadwayError, JobError
from headway.model import command as orders
from headway.model.page import Site
from headway.options import (
    CrawlOptions,
    Deadline,
    Duration,
    Extract,
    Group,
    Login,
    OptionError,
    Rate,
    ScrapyOptions,
    SiteOptions,
    Size,
    Window,
    as_table,
    as_text,
    checked_by,
    checks_keywords,
    no_such_argument,
)
from headway.planning.estimate import SiteAssumptions
from headway.report.plan_text import verdict_lines
from headway.runtime.collector import Collected
from headway.runtime.control import write_limit, write_order
from headway.runtime.crawling import CrawlRun
from headway.runtime.driver import WallClock
from headway.runtime.plan import make_outlook, plan_from_job
from headway.view.run import RunView

_PAGES_AHEAD = 64
"""Pages that wait for the reader before the crawl waits too: each holds its whole body."""
_SOURCE = "plan"


@dataclass(frozen=True)
class Task:
    """A site to crawl: the keys of a `[[site]]` table."""

    url: str
    deadline: Deadline | None = None
    weight: float | None = None
    seeds: Sequence[str] = ()
    max_pages: int | None = None
    max_bytes: Size | None = None
    data: Size | None = None
    cap: Rate | None = None
    extract: Sequence[Extract] = ()
    spider: str | None = None
    arguments: Mapping[str, str] | None = None
    group: str | None = None
    stop_at_deadline: bool | None = None
    interval: Duration | None = None
    strategy: str | None = None
    prefix: str | None = None
    allow: Sequence[str] = ()
    deny: Sequence[str] = ()
    max_depth: int | None = None
    queries: bool | None = None
    ports: Sequence[int] = ()
    sitemaps: Sequence[str] = ()
    respect_robots: bool | None = None
    robots_reason: str | None = None
    user_agent: str | None = None
    headers: Mapping[str, str] | None = None
    cookies: bool | None = None
    basic_auth: str | None = None
    bearer_token: str | None = None
    login: Login | None = None
    archive_secrets: bool | None = None
    window: Sequence[Window] = ()

    def table(self) -> dict[str, Any]:
        """As a `[[site]]` table of a job file."""
        given = {key: value for key, value in vars(self).items() if value is not None}
        return as_table(given, SiteOptions)


Task.__init__ = checks_keywords(Task.__init__)  # type: ignore[method-assign]


class Page(msgspec.Struct, frozen=True):
    """A fetched page."""

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


class SiteForecast(msgspec.Struct, frozen=True):
    """What the planner expects of one site. Times are seconds from the start."""

    site: str
    end_s: float
    deadline_s: float | None
    on_time: bool
    first_rate_bytes_per_s: float
    """The site's rate at the start; 0 if its turn is later."""
    assumed: SiteAssumptions
    """The values that the planner computes with: data, page size, rate and pause, each with its source."""


class Forecast(msgspec.Struct, frozen=True):
    """What the planner decides at the start. `print` shows it as text."""

    on_time: bool
    required_bytes_per_s: float
    """The least bandwidth that meets all deadlines; infinity if there is none."""
    ends_s: dict[str, float]
    """When each site would end, in seconds from the start."""
    sites: tuple[SiteForecast, ...]
    text: str

    def __str__(self) -> str:
        return self.text


class Plan:
    """The sites to crawl, their deadlines, and the bandwidth. Further arguments are the keys of `[crawl]`.

    Durations are text ("15 s"), numbers of seconds or `timedelta`; sizes and rates are text ("1 GB", "5
    Mbit/s") or numbers of bytes and of bytes per second.
    """

    job: Job
    """The plan after all checks, as the command line would read it from a job file."""

    def __init__(
        self,
        *,
        tasks: Sequence[Task | str],
        scrapy: ScrapyOptions | None = None,
        groups: Sequence[Group] = (),
        windows: Sequence[Window] = (),
        **options: Unpack[CrawlOptions],
    ) -> None:
        given = {key: value for key, value in options.items() if value is not None}
        tables = {
            "crawl": as_table(given, CrawlOptions),
            "site": [_site_table(task) for task in _listed(tasks)],
            "group": [as_table(group, Group) for group in groups],
            "window": [as_table(window, Window) for window in windows],
            "scrapy": as_table(scrapy or {}, ScrapyOptions),
        }
        source = Source(_SOURCE)
        self.job = build_job(convert(tables, source), source, now=WallClock().now())

    @classmethod
    def from_file(cls, path: str | Path) -> Self:
        """The plan of a job file."""
        plan = cls.__new__(cls)
        plan.job = load_job(Path(path), WallClock().now())
        return plan

    def forecast(self) -> Forecast:
        """Whether all deadlines can be met, and with which bandwidth: the planner's decision at the start."""
        plan = plan_from_job(self.job, WallClock().now())
        problem = plan.problem
        outlook = make_outlook(problem, plan.policy, plan.objective)
        schedule = outlook.schedule
        sites = tuple(
            SiteForecast(
                assumed.site,
                float(schedule.end_s[number]),
                float(problem.deadline_s[number]) if problem.has_deadline[number] else None,
                not schedule.tardiness_s[number] > 0,
                float(plan.first_rates.get(assumed.site, 0.0)),
                assumed,
            )
            for number, assumed in enumerate(plan.assumptions)
        )
        return Forecast(
            schedule.on_time,
            outlook.required_bytes_per_s,
            {site.site: site.end_s for site in sites},
            sites,
            "\n".join(verdict_lines(outlook, plan.assumptions)),
        )


class Run:
    """A running crawl: read its pages, control it, view it. Use `headway.open` to create one.

    The crawl waits for a slow reader. Leaving the block stops it, whatever the reason; the same call resumes
    it. Pages that were fetched but not read are in the run folder.
    """

    def __init__(self, plan: Plan, out: str | Path) -> None:
        self._plan = plan
        self.folder = Path(out)
        self._pages: asyncio.Queue[Page | None] = asyncio.Queue()
        self._room = asyncio.Semaphore(_PAGES_AHEAD)
        self._crawl: CrawlRun | None = None
        self._crawling: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        if self._crawl is not None:
            raise HeadwayError("this run was opened before; call headway.open again to resume the crawl")
        self._crawl = CrawlRun(
            self._plan.job,
            self.folder,
            on_page=lambda collected: self._pages.put_nowait(_page_of(collected)),
            make_room=lambda: _Room(self._room),
        )
        self._crawling = asyncio.get_running_loop().create_task(self._crawl.run())
        self._crawling.add_done_callback(lambda _: self._pages.put_nowait(None))
        await asyncio.sleep(0)  # the crawl begins before it can be given orders
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        crawl, crawling = self._opened()
        if not crawling.done():
            crawl.stop()
        cancelled = None
        while not crawling.done():
            try:
                # Not `await crawling`: a cancel here would end the crawl before it has written everything and
                # closed its connections. Stopping does not take long, and then the cancel is passed on.
                await asyncio.wait([crawling])
            except asyncio.CancelledError as again:
                cancelled = again
        if cancelled is not None:
            raise cancelled
        if crawling.cancelled():
            return
        failure = crawling.exception()
        if failure is None or failure is problem:
            return
        if problem is None:
            raise failure
        problem.add_note(f"The crawl ended with an error as well: {failure}")

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Page:
        """The next page, as soon as it is fetched and archived."""
        _, crawling = self._opened()
        page = await self._pages.get()
        if page is not None:
            self._room.release()
            return page
        self._pages.put_nowait(None)  # for others that iterate over the same run
        await crawling
        raise StopAsyncIteration

    # -- views ------------------------------------------------------------------------------------------

    @property
    def is_running(self) -> bool:
        """Whether the crawl has begun and has not ended."""
        return self._crawling is not None and not self._crawling.done()

    def view(self) -> RunView:
        """The crawl now: its rates, its counts, and all its sites."""
        crawl, _ = self._opened()
        return crawl.view(most_sites=None)

    # -- control ----------------------------------------------------------------------------------------

    async def limit(self, bandwidth: Rate | None) -> None:
        """Change the bound on the link; None resets it to that of the plan. Like `headway limit`."""
        self._running()
        text = as_text(bandwidth, Rate)
        if text is not None and not isinstance(text, str):
            raise JobError(f"limit: {bandwidth!r} is not a rate such as '5 Mbit/s' or 625000")
        write_limit(self.folder, text)
        await self._carry_out()

    async def pause(self) -> None:
        """Send no more requests until `resume`; requests in flight may finish."""
        await self._order(orders.Pause())

    async def resume(self) -> None:
        """End a pause."""
        await self._order(orders.Resume())

    @checks_keywords
    async def add(
        self,
        url: str,
        *,
        deadline: Deadline | None = None,
        weight: float = 1.0,
        seeds: Sequence[str] = (),
        max_pages: int | None = None,
        max_bytes: Size | None = None,
        data: Size | None = None,
        cap: Rate | None = None,
    ) -> None:
        """Add a site while the crawl runs. Its deadline counts from now."""
        task = Task(url, deadline, weight, seeds, max_pages, max_bytes, data, cap)
        source, now = Source("add"), WallClock().now()
        crawl = msgspec.to_builtins(self._plan.job.file.crawl)
        job = build_job(convert({"crawl": crawl, "site": [task.table()]}, source), source, now=now)
        (site,) = job.tasks(now)
        await self._order(orders.AddSite(site, job.seeds()))

    async def set_deadline(self, site: str, deadline: Deadline | None) -> None:
        """Change the deadline of a site; a duration counts from now."""
        task = Task(site, deadline)
        source, now = Source("set_deadline"), WallClock().now()
        zone = {"timezone": self._plan.job.file.crawl.timezone}
        job = build_job(convert({"crawl": zone, "site": [task.table()]}, source), source, now=now)
        (asked,) = job.tasks(now)
        await self._order(orders.SetDeadline(asked.site, asked.deadline_at))

    async def stop(self, site: str | None = None) -> None:
        """End the crawl, or only one site of it: requests in flight finish, and their pages can still be
        read."""
        crawl = self._running()
        if site is None:
            crawl.drain()
        else:
            await self._order(orders.StopSite(_site_of(site)))

    async def _order(self, order: orders.Order) -> None:
        self._running()
        write_order(self.folder, WallClock().now(), order)
        await self._carry_out()

    async def _carry_out(self) -> None:
        """Carry out an order at once, before the crawl next reads its folder."""
        crawl, _ = self._opened()
        crawl.look_for_orders()
        await asyncio.sleep(0)

    def _opened(self) -> tuple[CrawlRun, asyncio.Task[None]]:
        if self._crawl is None or self._crawling is None:
            raise HeadwayError("the run is not open: use it as 'async with headway.open(plan) as run:'")
        return self._crawl, self._crawling

    def _running(self) -> CrawlRun:
        crawl, crawling = self._opened()
        if crawling.done():
            raise HeadwayError("the crawl has ended; open it again to resume it")
        return crawl


@checks_keywords
def open(plan: Plan, out: str | Path = "run") -> Run:  # noqa: A001 - as users read it: headway.open
    """A crawl into a run folder, for `async with`. A folder with a part of the crawl is continued."""
    return Run(plan, out)


async def crawl(plan: Plan, out: str | Path = "run") -> AsyncIterator[Page]:
    """Crawl into a run folder, and yield each page as it is fetched: `open` without a handle.

    The crawl waits for a slow reader. Leaving the loop stops it, and the same call resumes it; to be sure
    that it has stopped before you continue, use `open`, or `contextlib.aclosing(hw.crawl(...))`.
    """
    async with open(plan, out) as run:
        async for page in run:
            yield page


class _Room:
    """Room for one more page. Not a coroutine, since a crawl that is stopped may never await it."""

    def __init__(self, room: asyncio.Semaphore) -> None:
        self._room = room

    def __await__(self) -> Generator[object, None, bool]:
        return self._room.acquire().__await__()


def _listed(tasks: Sequence[Task | str]) -> Sequence[Task | str]:
    if isinstance(tasks, str):
        raise JobError(f"{_SOURCE}: tasks is a list of Task or of URLs: write tasks=[{tasks!r}]")
    return tasks


def _site_table(task: object) -> Any:
    if isinstance(task, str):
        return {"url": task}
    return task.table() if isinstance(task, Task) else task  # the check of the job reports it


def _site_of(url: str) -> Site:
    source = Source("site")
    return build_job(convert({"site": [{"url": url}]}, source), source).sites[0].site


def _no_such_option(key: str) -> HeadwayError:
    """Suggest the right place for the key of another table or of a site, and for other names."""
    crawl = child_of(root_of(JobFile).keys["crawl"])
    found = meant(key, crawl, JobFile)
    if found is not None:
        name, path = found[0].name, found[0].table.path
        if path == ("site",):
            return OptionError(f"Plan() has no argument {key!r}; it belongs to a site: Task(url, {name}=...)")
        if path[:1] == ("crawl",) and len(path) == 2 and not found[0].table.is_list:
            return OptionError(f"Plan() has no argument {key!r}; write {path[1]}={{{name!r}: ...}}")
        if path == ("crawl",):
            return OptionError(f"Plan() has no argument {key!r}; did you mean {name!r}?")
    return no_such_argument("Plan()", key, _PLAN_OPTIONS)


_PLAN_OPTIONS = frozenset(
    {
        "tasks",
        "scrapy",
        "groups",
        "windows",
        *(field.encode_name for field in msgspec.structs.fields(CrawlTable)),
    }
)
Plan.__init__ = checked_by(Plan.__init__, _PLAN_OPTIONS, _no_such_option)  # type: ignore[method-assign]


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
