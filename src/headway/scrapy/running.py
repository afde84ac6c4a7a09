"""`headway run-scrapy` put together: master, task configuration, allocation, crawlers."""

from __future__ import annotations

import asyncio
import json
import math
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from headway.config.job import Job
from headway.errors import JobError
from headway.fetch.http import HttpFetcher
from headway.model.command import SaveTasks
from headway.model.page import Site
from headway.policy.allocation.capacity import Timetable
from headway.policy.allocation.policies import POLICIES
from headway.policy.allocation.problem import Objective, Problem
from headway.scrapy.beforehand import EVENTS, check_spiders, take_folder
from headway.scrapy.course import AIM, Course
from headway.scrapy.crew import Crew, SiteRun
from headway.scrapy.ledger import Ledger
from headway.scrapy.mastering import SiteTask, collect_urls, configure
from headway.scrapy.neighbours import Neighbours
from headway.scrapy.worker import WorkerTask
from headway.store.reader import DATABASE
from headway.store.sqlite import SqliteStore
from headway.units import Instant, Seconds

RESULT = "scrapy.json"
NEIGHBOURS = "link"
"""While it runs: what all crawlers together have on their way."""
BUILT_IN = "headway.scrapy.spider.SiteSpider"
_HORIZON_S = Seconds(28 * 86_400.0)
_MARGIN = 0.04


class SiteResult(msgspec.Struct, frozen=True):
    """Times are seconds since the crawlers were let go."""

    site: str
    planned_end_s: float
    end_s: float | None
    deadline_s: float | None
    planned_bytes: float
    wire_bytes: int
    items: int
    restarts: int
    is_met: bool


class RunResult(msgspec.Struct, frozen=True):
    policy: str
    sites: list[SiteResult]
    is_interrupted: bool

    @property
    def are_all_met(self) -> bool:
        return all(site.is_met for site in self.sites if site.deadline_s is not None)

    @property
    def given_up(self) -> list[str]:
        return [site.site for site in self.sites if site.end_s is None]


class _Clock:
    def now(self) -> Instant:
        return Instant(time.time())


class ScrapyRun:
    def __init__(
        self, job: Job, folder: Path, *, policy: str | None = None, crawlers: int | None = None
    ) -> None:
        self._job = job
        self._folder = folder
        self._policy = policy or job.file.scrapy.policy
        self._crawlers = crawlers or job.file.scrapy.crawlers
        self._crew: Crew | None = None
        self._is_interrupted = False
        if self._policy not in POLICIES:
            raise JobError(f"scrapy.policy: {self._policy!r} is none of {', '.join(POLICIES)}")
        if not job.is_bounded:
            raise JobError("run-scrapy shares out a bandwidth, and the job names none; set crawl.bandwidth")

    async def run(self, tell: Callable[[str], None]) -> RunResult:
        started_at = Instant(time.time())
        check_spiders(self._job, Path.cwd())
        take_folder(self._folder)
        tell("master: looking for sitemaps")
        fetcher = self._fetcher()
        try:
            collected = await collect_urls(self._job, fetcher)
        finally:
            await fetcher.aclose()
        store = SqliteStore(self._folder / DATABASE)
        try:
            tasks = configure(started_at, self._job, collected, self._measured_bytes(), store)
        except BaseException:
            store.close()
            raise
        found = sum(map(len, collected.values()))
        tell(f"master: {found} URLs in sitemaps of {len(tasks)} sites")
        runs = [self._site_run(number, task) for number, task in enumerate(tasks)]

        due_at: list[Instant | None] = []

        def plan() -> Course:
            """With a little in hand where that can be had: no crawl goes to the second as planned.

            Made anew when the crawlers are let go: "2 h" is reckoned from then, "07:30" by the clock.
            """
            now = Instant(time.time())
            due_at[:] = [task.deadline_at for task in self._job.tasks(now)]
            store.commit([SaveTasks(self._job.tasks(now))], {})
            with_margin = self._course(self._problem(now, tasks, due_at, margin=_MARGIN))
            if with_margin.planned.on_time:
                return with_margin
            return self._course(self._problem(now, tasks, due_at))

        course = await self._crawl(runs, plan, store, tell)
        return self._result(course, runs, due_at)

    def _course(self, problem: Problem) -> Course:
        return Course(self._policy, Objective(self._job.file.crawl.objective), problem)

    async def _crawl(
        self,
        runs: list[SiteRun],
        plan: Callable[[], Course],
        store: SqliteStore,
        tell: Callable[[str], None],
    ) -> Course:
        seats = self._crawlers or len(runs)
        neighbours = Neighbours(self._folder / NEIGHBOURS, crawlers=seats)
        ledger = Ledger(store, neighbours)
        ledger.begin(Instant(time.time()), [Site(run.name) for run in runs])
        with (self._folder / EVENTS).open("a", encoding="utf-8") as log:

            def note(now_s: float, text: str) -> None:
                log.write(json.dumps({"at_s": round(now_s, 3), "event": text}) + "\n")
                log.flush()
                tell(f"{now_s:8.1f} s  {text}")

            self._crew = Crew(
                runs,
                plan,
                neighbours=neighbours,
                ledger=ledger,
                seats=seats,
                tell=note,
                environment=self._environment(),
            )
            if self._is_interrupted:
                self._crew.drain()
            try:
                await self._crew.run()
            finally:
                ledger.close()
                (self._folder / NEIGHBOURS).unlink(missing_ok=True)
        return self._crew.course

    def drain(self) -> None:
        """Let every crawler finish what it has under way, and keep the rest for the next time."""
        self._is_interrupted = True
        if self._crew is not None:
            self._crew.drain()

    def _measured_bytes(self) -> dict[str, int]:
        """What the sites held when they were last crawled to their end in this folder."""
        try:
            earlier = msgspec.json.decode((self._folder / RESULT).read_bytes(), type=RunResult)
        except (OSError, msgspec.DecodeError):
            return {}
        return {site.site: site.wire_bytes for site in earlier.sites if site.end_s is not None}

    def _fetcher(self) -> HttpFetcher:
        crawl = self._job.file.crawl
        return HttpFetcher(
            _Clock(),
            crawl.user_agent,
            timeouts=self._job.timeouts,
            limits=self._job.limits,
            capacity_bytes_per_s=self._job.timetable.capacity_at(Instant(time.time())),
            allow_private=crawl.allow_private,
            verify_tls=crawl.verify_tls,
            ca_file=crawl.ca_file,
            proxy=crawl.proxy,
            no_proxy=crawl.no_proxy,
        )

    def _problem(
        self, now: Instant, tasks: list[SiteTask], due_at: list[Instant | None], margin: float = 0.0
    ) -> Problem:
        segments = self._job.timetable.segments(now, _HORIZON_S)
        return Problem.of(
            [task.data_bytes for task in tasks],
            Timetable([(float(from_s), AIM * float(rate)) for from_s, _, rate in segments]),
            deadline_s=[
                math.inf if deadline_at is None else max(1e-3, (1 - margin) * (deadline_at - now))
                for deadline_at in due_at
            ],
            cap_bytes_per_s=[float(task.wish.cap_bytes_per_s or math.inf) for task in tasks],
            weight=[task.wish.weight for task in tasks],
            names=[task.wish.site for task in tasks],
            crawlers=self._crawlers,
        )

    def _site_run(self, number: int, task: SiteTask) -> SiteRun:
        wish, table = task.wish, self._job.file.site[number]
        name = self._file_name(wish.site)
        arguments: dict[str, Any] = dict(table.arguments)
        if table.spider is None:
            rules = msgspec.json.encode(wish.rules).decode()
            scope = msgspec.json.encode(self._job.scope).decode()
            arguments |= {
                "urls": list(task.urls),
                "rules": rules,
                "scope": scope,
                "max_pages": wish.max_pages,
            }
        spider = table.spider or BUILT_IN
        return SiteRun(
            number,
            wish.site,
            WorkerTask(spider, arguments, self._settings(name), str((self._folder / NEIGHBOURS).absolute())),
            task.data_bytes,
            self._folder / "logs" / f"{name}.log",
        )

    def _file_name(self, site: Site) -> str:
        """By its host; where http and https of one host are two sites, by both."""
        host = site.partition("://")[2]
        is_shared = sum(wish.site.endswith(f"://{host}") for wish in self._job.sites) > 1
        return re.sub(r"[^A-Za-z0-9.-]+", "-", site if is_shared else host)

    def _settings(self, name: str) -> dict[str, Any]:
        """What the job says in its own words, then what it says in Scrapy's."""
        crawl = self._job.file.crawl
        folder = self._folder.absolute()
        settings: dict[str, Any] = {
            "BOT_NAME": name,
            "USER_AGENT": crawl.user_agent,
            "ROBOTSTXT_OBEY": crawl.respect_robots,
            "ROBOTSTXT_USER_AGENT": crawl.user_agent.partition("/")[0],
            "DOWNLOAD_DELAY": self._job.interval_s,
            "CONCURRENT_REQUESTS_PER_DOMAIN": 1 if self._job.interval_s else 4,
            "DOWNLOAD_VERIFY_CERTIFICATES": crawl.verify_tls,
            "DOWNLOAD_TIMEOUT": self._job.timeouts.total_s,
            "DOWNLOAD_MAXSIZE": self._job.limits.max_body_bytes,
            "RETRY_TIMES": crawl.max_attempts - 1,
            "LOG_LEVEL": "INFO",
            "TELNETCONSOLE_ENABLED": False,
            "REMOTE_CONTROL_ENABLED": False,
            "JOBDIR": str(folder / "jobs" / name),
            "HEADWAY_DIR": str(folder / "learnt"),
            "HEADWAY_ALLOW_PRIVATE": crawl.allow_private,
            "FEEDS": {str(folder / "items" / f"{name}.jsonl"): {"format": "jsonlines"}},
            "FEED_EXPORTERS": {"parquet": "headway.scrapy.parquet.ParquetItemExporter"},
        }
        own = dict(self._job.file.scrapy.settings)
        if "FEEDS" in own:
            own["FEEDS"] = {
                str(folder / uri.replace("%(site)s", name)) if "://" not in uri else uri: options
                for uri, options in own["FEEDS"].items()
            }
        return settings | own

    def _environment(self) -> dict[str, str]:
        """Scrapy takes its proxy and its authorities from the environment."""
        crawl = self._job.file.crawl
        environment = dict(os.environ)
        if crawl.proxy is not None:
            environment |= {"http_proxy": crawl.proxy, "https_proxy": crawl.proxy}
            environment["no_proxy"] = ",".join(crawl.no_proxy)
        if crawl.ca_file is not None:
            environment["SSL_CERT_FILE"] = str(Path(crawl.ca_file).absolute())
        return environment

    def _result(self, course: Course, runs: list[SiteRun], due_at: list[Instant | None]) -> RunResult:
        sites = []
        began_at = time.time() - self._crew.now_s() if self._crew is not None else 0.0
        for run, end_s, deadline_at in zip(runs, course.planned.end_s.tolist(), due_at, strict=True):
            due_s = math.inf if deadline_at is None else deadline_at - began_at
            is_done = run.ended_s is not None and not run.is_given_up
            sites.append(
                SiteResult(
                    run.name,
                    end_s,
                    run.ended_s if is_done else None,
                    due_s if math.isfinite(due_s) else None,
                    run.data_bytes,
                    run.received_bytes,
                    run.progress.items,
                    run.restarts,
                    is_done and (run.ended_s or 0.0) <= due_s,
                )
            )
        result = RunResult(self._policy, sites, self._is_interrupted)
        (self._folder / RESULT).write_bytes(msgspec.json.format(msgspec.json.encode(result)))
        return result


async def run_with_signals(run: ScrapyRun, tell: Callable[[str], None]) -> RunResult:
    """The first interrupt drains; the second ends everything at once, as it would without us."""
    import signal

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, _first_time(loop, run))
    try:
        return await run.run(tell)
    finally:
        loop.remove_signal_handler(signal.SIGINT)


def _first_time(loop: asyncio.AbstractEventLoop, run: ScrapyRun) -> Callable[[], None]:
    import signal

    def drain() -> None:
        loop.remove_signal_handler(signal.SIGINT)
        run.drain()

    return drain
