"""A run of `headway run-scrapy`: checks the job, reads sitemaps, plans the rates, and runs the spiders.

These are the parts of zhu2020's figure 1: the master collects URLs into the run folder's database, the task
configuration predicts each site's data, the allocation is that of the engine (`steering`), and the
`supervisor` runs a crawler process for each site.
"""

from __future__ import annotations

import asyncio
import math
import os
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from headway.archive.files import clear_errors
from headway.config.job import Job, SiteWish, without_password
from headway.config.schema import CrawlTable
from headway.config.tables import SharedTable
from headway.errors import JobError, StoreError
from headway.http.client import HttpFetcher
from headway.model.command import SaveFound, SaveTasks
from headway.model.page import Page, Site
from headway.pacing.shared_window import SharedRateWindow
from headway.pages.url import keyed
from headway.planning.estimate import PRIOR_PAGE_BYTES
from headway.planning.policies import check_policy
from headway.policy.scope import Scope
from headway.runtime.control import SPIDERS_LOG
from headway.runtime.driver import WallClock
from headway.runtime.plan import Listed, read_sitemaps
from headway.runtime.process import INTERRUPTS
from headway.runtime.runtime import build_fetcher
from headway.scrapy.project import check_spiders
from headway.scrapy.spider import WorkerTask
from headway.scrapy.steering import SiteTask, SpiderWorld, Steering
from headway.scrapy.supervisor import EventLog, PageLog, SiteRun, Supervisor
from headway.store.reader import DATABASE, LiveReader
from headway.store.sqlite import SqliteStore
from headway.units import Instant

RESULT = "scrapy.json"
WINDOW = "link"
"""While the run lasts, the file of the `SharedRateWindow` of all spider processes."""
BUILT_IN = "headway.scrapy.spider.SiteSpider"


def take_folder(folder: Path) -> None:
    """Make the run folder, or check that it is empty or of an earlier run of run-scrapy."""
    with clear_errors(folder):
        if folder.is_dir() and any(folder.iterdir()) and not (folder / SPIDERS_LOG).exists():
            what = "a run of another command" if (folder / DATABASE).exists() else "other files"
            raise StoreError(f"{folder} contains {what}; give a new or empty folder with --out")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / SPIDERS_LOG).touch()


async def collect_urls(job: Job, fetcher: HttpFetcher) -> dict[Site, list[Page]]:
    """The pages in the sitemaps of each site; none if the site does not answer."""
    found = await asyncio.gather(*(_pages_of(wish, job, fetcher) for wish in job.sites))
    return {wish.site: pages for wish, pages in zip(job.sites, found, strict=True)}


def configure(
    started_at: Instant,
    job: Job,
    collected: Mapping[Site, Sequence[Page]],
    measured_bytes: Mapping[str, int],
    store: SqliteStore,
) -> list[SiteTask]:
    """Make the task of each site, and save tasks and URLs. `measured_bytes`: the data of sites in an earlier
    run."""
    snapshot = store.load()
    if snapshot is None:
        store.create(started_at, without_password(job))
    secret = store.secret
    # A run that continues keeps its deadlines, also the ones that have passed.
    tasks = job.tasks(started_at if snapshot is None else snapshot.started_at)
    pages = tuple(
        {
            page.key: page
            for wish in job.sites
            for page in keyed((*wish.seeds, *collected[wish.site]), secret)
        }.values()
    )
    seen = set() if snapshot is None else set(snapshot.seen)
    store.commit([SaveTasks(tasks), SaveFound(tuple(page for page in pages if page.key not in seen))], {})
    made = []
    for wish in job.sites:
        urls = tuple(dict.fromkeys(page.url for page in (*wish.seeds, *collected[wish.site])))
        data = _data_bytes(wish, len(collected[wish.site]), measured_bytes.get(wish.site, 0))
        made.append(SiteTask(wish, urls, data))
    return made


def _data_bytes(wish: SiteWish, listed: int, measured_bytes: int) -> float | None:
    if measured_bytes or not listed:
        return measured_bytes or None
    return min(listed, wish.max_pages or listed) * PRIOR_PAGE_BYTES


async def _pages_of(wish: SiteWish, job: Job, fetcher: HttpFetcher) -> list[Page]:
    if not job.file.crawl.sitemaps:
        return []
    listed = Listed({})
    await read_sitemaps(wish, job, fetcher, listed, tries_usual=False)
    return list(listed.pages.values())


_FOR_SPIDERS = frozenset(
    ("deadline", "weight", "max_pages", "max_bytes", "cap", "interval", "user_agent", "respect_robots")
) | {"robots_reason"}
"""What a site has of its own that is passed on to its spider."""


def check_own_settings(job: Job) -> None:
    """JobError for a key of a site that a spider would not follow."""
    for where, tables in (("site", job.file.site), ("group", job.file.group)):
        for table in tables:
            for key in sorted(set(SharedTable.__struct_fields__) - _FOR_SPIDERS):
                if getattr(table, key) not in (None, (), {}):
                    raise JobError(
                        f"{where}.{key}: run-scrapy cannot pass it on to a spider; remove it, or set it in"
                        " [scrapy.settings] or in the spider itself"
                    )


def _scope_of(job: Job, wish: SiteWish) -> Scope:
    """The scope for the built-in spider: a start URL that is a folder is the site."""
    own = None if wish.own is None else wish.own.scope
    if own is None or not own.prefixes or job.scope.allow:
        return job.scope
    return msgspec.structs.replace(job.scope, allow=own.prefixes)


def _own_settings(wish: SiteWish) -> dict[str, Any]:
    """Scrapy's settings for what a site has of its own."""
    settings: dict[str, Any] = {}
    if wish.identity is not None and wish.identity.user_agent is not None:
        settings["USER_AGENT"] = wish.identity.user_agent
        settings["ROBOTSTXT_USER_AGENT"] = wish.identity.user_agent.partition("/")[0]
    if wish.own is not None and wish.own.politeness is not None:
        interval_s = wish.own.politeness.interval_s
        settings["DOWNLOAD_DELAY"] = interval_s
        settings["CONCURRENT_REQUESTS_PER_DOMAIN"] = 1 if interval_s else 4
    if wish.own is not None and wish.own.ignores_robots is not None:
        settings["ROBOTSTXT_OBEY"] = not wish.own.ignores_robots
    return settings


class SiteResult(msgspec.Struct, frozen=True):
    """What was planned for a site and what was measured. Times are seconds since the spiders were
    released."""

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


class ScrapyRun:
    """One run, into a run folder. `policy` and `crawlers` replace those of the job."""

    def __init__(
        self,
        job: Job,
        folder: Path,
        events: EventLog,
        *,
        policy: str | None = None,
        crawlers: int | None = None,
    ) -> None:
        self._job = job
        self._folder = folder
        self._events = events
        self._policy = policy or job.file.scrapy.policy or job.file.crawl.policy
        self._crawlers = crawlers or job.file.scrapy.crawlers or job.file.crawl.crawlers
        self._supervisor: Supervisor | None = None
        self._is_interrupted = False
        check_policy(self._policy)
        if not job.is_bounded:
            raise JobError("run-scrapy needs a bandwidth to allocate to the sites; set crawl.bandwidth")

    async def run(self) -> RunResult:
        """Run until every site has ended, or `drain` was called and all spiders have ended."""
        started_at = Instant(time.time())
        self._check_spiders()
        check_own_settings(self._job)
        take_folder(self._folder)
        self._events.show("reading the sitemaps")
        fetcher = build_fetcher(self._job, WallClock())
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
        self._events.show(f"{found} URLs in the sitemaps of {len(tasks)} sites")
        runs = [self._site_run(number, task) for number, task in enumerate(tasks)]
        return self._result(await self._crawl(runs, tasks, store), runs)

    async def _crawl(self, runs: list[SiteRun], tasks: list[SiteTask], store: SqliteStore) -> Steering:
        most_processes = self._crawlers or len(runs)
        window = SharedRateWindow(self._folder / WINDOW, crawlers=most_processes)
        page_log = PageLog(store, window)
        page_log.begin(Instant(time.time()), [run.name for run in runs])
        world = SpiderWorld(page_log.save, self._note)
        job = self._job.with_crawl(policy=self._policy, crawlers=self._crawlers)
        steering = Steering(job, tasks, self._folder, world)
        self._events.open(self._folder / SPIDERS_LOG)
        with closing(self._events):
            self._supervisor = Supervisor(
                runs,
                steering,
                window=window,
                page_log=page_log,
                most_processes=most_processes,
                events=self._events,
                environment=self._environment(),
            )
            if self._is_interrupted:
                self._supervisor.drain()
            try:
                await self._supervisor.run()
            finally:
                page_log.close()
                (self._folder / WINDOW).unlink(missing_ok=True)
        return steering

    def _check_spiders(self) -> None:
        tables = [table for table in self._job.file.site if table.spider is not None]
        problems = check_spiders([str(table.spider) for table in tables], Path.cwd())
        for table in tables:
            if table.spider in problems:
                raise JobError(
                    f"site.spider of {table.url}: {table.spider!r}: {problems[table.spider]}; give the name "
                    "of a spider of the Scrapy project in this folder, or the path of a class that can be "
                    "imported from here, such as 'shop.spiders.Books'"
                )

    def _note(self, text: str) -> None:
        if self._supervisor is not None:
            self._events.note(self._supervisor.now_s(), text)

    def drain(self) -> None:
        """Let every spider finish its requests in flight, and keep the other requests for the next run."""
        self._is_interrupted = True
        if self._supervisor is not None:
            self._supervisor.drain()

    def _earlier(self) -> dict[str, SiteResult]:
        """The sites that the previous run in this folder crawled to their end."""
        try:
            earlier = msgspec.json.decode((self._folder / RESULT).read_bytes(), type=RunResult)
        except (OSError, msgspec.DecodeError):
            return {}
        return {site.site: site for site in earlier.sites if site.end_s is not None}

    def _measured_bytes(self) -> dict[str, int]:
        return {name: site.wire_bytes for name, site in self._earlier().items()}

    def _site_run(self, number: int, task: SiteTask) -> SiteRun:
        wish, table = task.wish, self._job.file.site[number]
        name = self._file_name(wish.site)
        arguments: dict[str, Any] = dict(table.arguments)
        if table.spider is None:
            rules = msgspec.json.encode(wish.rules).decode()
            scope = msgspec.json.encode(_scope_of(self._job, wish)).decode()
            arguments |= {
                "urls": list(task.urls),
                "rules": rules,
                "scope": scope,
                "max_pages": wish.max_pages,
            }
        spider = table.spider or BUILT_IN
        settings, defaults = self._settings(name, wish)
        window = str((self._folder / WINDOW).absolute())
        return SiteRun(
            wish.site,
            WorkerTask(spider, arguments, settings, window, defaults=defaults),
            task.at_start().waiting,
            self._folder / "logs" / f"{name}.log",
        )

    def _file_name(self, site: Site) -> str:
        """The site's host; with the scheme if http and https of one host are two sites of the job."""
        host = site.partition("://")[2]
        is_shared = sum(wish.site.endswith(f"://{host}") for wish in self._job.sites) > 1
        return re.sub(r"[^A-Za-z0-9.-]+", "-", site if is_shared else host)

    def _settings(self, name: str, wish: SiteWish) -> tuple[dict[str, Any], dict[str, Any]]:
        """Scrapy's settings by the job, with its `scrapy.settings`; and defaults for what neither the job nor
        the Scrapy project says."""
        crawl, usual = self._job.file.crawl, CrawlTable()
        folder = self._folder.absolute()
        by_key: dict[str, dict[str, Any]] = {
            "user_agent": {
                "USER_AGENT": crawl.user_agent,
                "ROBOTSTXT_USER_AGENT": crawl.user_agent.partition("/")[0],
            },
            "respect_robots": {"ROBOTSTXT_OBEY": crawl.respect_robots},
            "interval": {
                "DOWNLOAD_DELAY": self._job.interval_s,
                "CONCURRENT_REQUESTS_PER_DOMAIN": 1 if self._job.interval_s else 4,
            },
            "verify_tls": {"DOWNLOAD_VERIFY_CERTIFICATES": crawl.verify_tls},
            "timeouts": {"DOWNLOAD_TIMEOUT": self._job.timeouts.total_s},
            "limits": {"DOWNLOAD_MAXSIZE": self._job.limits.max_body_bytes},
            "max_attempts": {"RETRY_TIMES": crawl.max_attempts - 1},
        }
        settings: dict[str, Any] = {
            "TELNETCONSOLE_ENABLED": False,
            "REMOTE_CONTROL_ENABLED": False,
            "JOBDIR": str(folder / "jobs" / name),
            "HEADWAY_DIR": str(folder / "learnt"),
            "HEADWAY_ALLOW_PRIVATE": crawl.allow_private,
        }
        defaults: dict[str, Any] = {
            "BOT_NAME": name,
            "LOG_LEVEL": "INFO",
            "FEEDS": {str(folder / "items" / f"{name}.jsonl"): {"format": "jsonlines"}},
            "FEED_EXPORTERS": {"parquet": "headway.scrapy.spider.ParquetItemExporter"},
        }
        for key, values in by_key.items():
            is_usual = getattr(crawl, key) == getattr(usual, key)
            (defaults if is_usual else settings).update(values)
        settings |= _own_settings(wish)
        own = dict(self._job.file.scrapy.settings)
        if "FEEDS" in own:
            own["FEEDS"] = {
                str(folder / uri.replace("%(site)s", name)) if "://" not in uri else uri: options
                for uri, options in own["FEEDS"].items()
            }
        return settings | own, defaults

    def _environment(self) -> dict[str, str]:
        """The environment of the spiders: Scrapy reads proxy and CA file from it."""
        crawl = self._job.file.crawl
        environment = dict(os.environ)
        if crawl.proxy is not None:
            environment |= {"http_proxy": crawl.proxy, "https_proxy": crawl.proxy}
            environment["no_proxy"] = ",".join(crawl.no_proxy)
        if crawl.ca_file is not None:
            environment["SSL_CERT_FILE"] = str(Path(crawl.ca_file).absolute())
        return environment

    def _result(self, steering: Steering, runs: list[SiteRun]) -> RunResult:
        sites = []
        began_at = time.time() - self._supervisor.now_s() if self._supervisor is not None else 0.0
        earlier = self._earlier()
        with LiveReader(self._folder) as reader:
            with_content = {row.site for row in reader.sites() if row.has_content}
        for run in runs:
            if run.name in earlier and not run.is_given_up and not run.received_bytes:
                # Nothing was left to fetch: what the run before came to still holds.
                sites.append(earlier[run.name])
                continue
            deadline_at = steering.task_of(run.name).deadline_at
            due_s = math.inf if deadline_at is None else deadline_at - began_at
            is_done = run.ended_s is not None and not run.is_given_up
            sites.append(
                SiteResult(
                    run.name,
                    steering.planned_ends_s[run.name],
                    run.ended_s if is_done else None,
                    due_s if math.isfinite(due_s) else None,
                    steering.planned_bytes[run.name],
                    run.received_bytes,
                    run.progress.items,
                    run.restarts,
                    is_done and (run.ended_s or 0.0) <= due_s and run.name in with_content,
                )
            )
        result = RunResult(self._policy, sites, self._is_interrupted)
        (self._folder / RESULT).write_bytes(msgspec.json.format(msgspec.json.encode(result)))
        return result


async def run_with_signals(run: ScrapyRun) -> RunResult:
    """Run, and drain at the first interrupt; the second ends the spiders and this process."""
    loop = asyncio.get_running_loop()
    running = loop.create_task(run.run())

    def on_signal(count: int) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(run.drain if count == 1 else running.cancel)
        elif count == 1:
            raise KeyboardInterrupt

    INTERRUPTS.handle(on_signal)
    try:
        return await running
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
