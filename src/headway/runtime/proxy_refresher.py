"""The proxy collector of cobweb1999: announced pages that are new or outdated, fetched through the proxy.

It is a second, small crawl beside the main one, with its own bound and politeness. Its results are passed to
the main crawl, which stores them and follows the links.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from msgspec import structs

from headway.config.job import Job
from headway.engine.machine import Engine
from headway.http.client import HttpFetcher
from headway.http.models import parse_proxy
from headway.model.command import (
    Copy,
    Decision,
    SaveSettled,
    Saving,
)
from headway.model.event import Again, Delivered, Event, Found, PageSettled, Seeded
from headway.model.page import SUCCESS, Kind, Outcome, Page, PageKey
from headway.pages.parsed import ParseOptions
from headway.pages.url import page_of
from headway.policy.politeness import NEVER_ASKED
from headway.runtime.collector import KnownPages, PageReading, WebCollector
from headway.runtime.commands import WorldCommand
from headway.runtime.driver import EventSink, LiveDriver, WallClock
from headway.runtime.runtime import build_proxy_engine
from headway.squid.spool import (
    FOLDER,
    Counters,
    ProxySettings,
    SpoolReader,
    bump,
    load_counters,
    save_counters,
)
from headway.store.run_folder import RunFolder
from headway.units import UNBOUNDED, BytesPerSecond, Instant, Seconds

COUNTERS = "collector.json"
_MOST_WAITING = 10_000
_READ_AT_ONCE = 500
_QUICK_S = 1.0


class ProxyRefresher:
    """Call `look` now and then, and `aclose` at the end. Pages that have not settled by then wait for the
    next time."""

    def __init__(
        self,
        job: Job,
        folder: RunFolder,
        clock: WallClock,
        settings: ProxySettings,
        main: LiveDriver,
    ) -> None:
        self._scope = job.scope
        self._secret = job.secret
        self._clock = clock
        self._settings = settings
        self._tell = main.tell
        self._fail = main.fail
        self._find_copy = folder.store.find_copy
        self._counters_path = folder.path / FOLDER / COUNTERS
        self.counters: Counters = load_counters(self._counters_path)
        self._spool = SpoolReader(folder.path)
        self._pending: dict[PageKey, tuple[int, Copy | None]] = {}
        """Where its line begins, and the stored state of the page when it was announced."""
        collector = self._collector = _Forwarding(_collector(job, folder, clock, settings), self)
        self._driver = LiveDriver(_engine(job, settings), collector, _Passing(self), clock, stays=True)
        self._running = asyncio.ensure_future(self._driver.run([Seeded((), ())]))
        self._running.add_done_callback(self._ended)

    def look(self) -> None:
        """Take in new announcements, as long as there is room."""
        while len(self._pending) < _MOST_WAITING and (lines := self._spool.read(_READ_AT_ONCE)):
            for announced in lines:
                self._consider(announced.at, announced.url, announced.offset)
        self._spool.settle(min((place for place, _ in self._pending.values()), default=self._spool.offset))
        with suppress(OSError):
            save_counters(self._counters_path, self.counters)

    async def aclose(self) -> None:
        self._driver.stop()
        with suppress(Exception):
            await self._running
        self.look()
        self._spool.close()

    def _ended(self, running: asyncio.Future[None]) -> None:
        if not running.cancelled() and (problem := running.exception()) is not None:
            self._fail(problem)  # the archive cannot be written, and neither can that of the main crawl

    @property
    def waiting(self) -> int:
        return len(self._pending)

    def _consider(self, announced_at: Instant, url: str, place: int) -> None:
        page = page_of(url, secret=self._secret)
        if page is None or self._scope.judge(page) is not None:
            bump(self.counters.refused, "out-of-scope")  # the job has changed since the announcement
            return
        if page.key in self._pending:
            bump(self.counters.refused, "repeated")
            return
        copy = self._find_copy(page)
        age_s = self._clock.now() - copy.fetched_at if copy is not None else 0.0
        if copy is not None and copy.was_answered and age_s < self._settings.refresh_after_s:
            self.counters.fresh += 1
            return
        if copy is not None and copy.was_answered:
            page = structs.replace(page, depth=copy.depth)
        self._pending[page.key] = (place, copy)
        due_at = max(self._clock.now(), Instant(announced_at + self._settings.delay_s))
        self._driver.tell(Again((page,), due_at))

    # -- answers ----------------------------------------------------------------------------------------

    def settled(self, event: PageSettled) -> None:
        """An answer of the proxy. It is reported to the main crawl at once, so that everything in the archive
        has a row."""
        page, outcome = event.lease.page, event.outcome
        _, copy = self._pending.get(page.key, (0, None))
        is_good = outcome.kind in SUCCESS
        if event.capture is not None or is_good:
            delivered = Delivered(page, outcome, event.links, event.capture, event.sighting, event.was)
            self._tell(delivered)
        if outcome.kind is Kind.CANCELLED:
            return  # the refresher is closing; the page is announced again next time
        self._pending.pop(page.key, None)
        self._count(outcome, copy, is_good=is_good)

    def _count(self, outcome: Outcome, copy: Copy | None, *, is_good: bool) -> None:
        counters = self.counters
        counters.asked += 1
        counters.quick += 0 < outcome.duration_s < _QUICK_S
        if not is_good:
            bump(counters.errors, str(outcome.kind))
        elif copy is not None and copy.was_answered:
            counters.updates += 1
            counters.unchanged += outcome.kind is Kind.NOT_MODIFIED
        else:
            counters.new += 1

    def passed_over(self, page: Page, reason: str) -> None:
        """Not requested: robots.txt forbids it, or cannot be fetched."""
        if self._pending.pop(page.key, None) is not None:
            bump(self.counters.errors, reason)

    def pass_on(self, event: Found | Again) -> None:
        self._tell(event)

    def committed(self) -> None:
        """Everything archived until now is in the store."""
        self._collector.forget_uncommitted()


class WithRefresher:
    """The main crawl's collector. It closes the refresher first: everything that the refresher has archived
    must be reported before the last commit."""

    finds_servers = True

    def __init__(self, inner: WebCollector, refresher: Callable[[], ProxyRefresher | None]) -> None:
        self._refresher = refresher
        self._inner = inner

    def attach(self, sink: EventSink) -> None:
        self._inner.attach(sink)

    def start(self, now: Instant, command: WorldCommand) -> None:
        self._inner.start(now, command)

    def committed(self) -> None:
        self._inner.committed()
        if (refresher := self._refresher()) is not None:
            refresher.committed()

    async def aclose(self) -> None:
        if (refresher := self._refresher()) is not None:
            await refresher.aclose()
        await self._inner.aclose()


class _Forwarding:
    """A collector whose answers go to the main crawl; its own crawl only learns that they arrived."""

    def __init__(self, inner: WebCollector, refresher: ProxyRefresher) -> None:
        self._inner = inner
        self._refresher = refresher

        self._own: EventSink

    def attach(self, sink: EventSink) -> None:
        self._own = sink
        self._inner.attach(self)

    def start(self, now: Instant, command: WorldCommand) -> None:
        self._inner.start(now, command)

    def tell(self, event: Event) -> None:
        match event:
            case PageSettled():
                self._refresher.settled(event)
                self._own.tell(PageSettled(event.lease, event.outcome))
            case Found() | Again():
                self._refresher.pass_on(event)
            case _:
                self._own.tell(event)

    def fail(self, problem: BaseException) -> None:
        self._own.fail(problem)

    def committed(self) -> None:
        """The main crawl commits what this one archives, and then confirms it."""

    def forget_uncommitted(self) -> None:
        self._inner.committed()

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Passing:
    """The main crawl stores the results; only pages that were not requested are counted here."""

    def __init__(self, refresher: ProxyRefresher) -> None:
        self._refresher = refresher

    def decide(self, decision: Decision) -> None: ...

    def save(self, batch: Sequence[Saving]) -> None:
        for saving in batch:
            if isinstance(saving, SaveSettled) and saving.outcome.kind in NEVER_ASKED:
                self._refresher.passed_over(saving.page, str(saving.outcome.kind))


def _engine(job: Job, settings: ProxySettings) -> Engine:
    rate = settings.bandwidth_bytes_per_s
    bound = UNBOUNDED if rate is None else BytesPerSecond(rate)
    return build_proxy_engine(job, Seconds(settings.interval_s), settings.max_connections, bound)


def _collector(job: Job, folder: RunFolder, clock: WallClock, settings: ProxySettings) -> WebCollector:
    crawl = job.file.crawl
    rate = settings.bandwidth_bytes_per_s
    fetcher = HttpFetcher(
        clock,
        structs.replace(
            job.client_options(),
            timeouts=structs.replace(job.timeouts, first_byte_s=settings.timeout_s),
            proxy=parse_proxy(settings.proxy),
            no_proxy=(),
        ),
        capacity_bytes_per_s=UNBOUNDED if rate is None else BytesPerSecond(rate),
    )
    return WebCollector(
        fetcher,
        folder.archive,
        clock,
        reading=PageReading(
            ParseOptions(
                user_agent=crawl.user_agent,
                drop_rel_nofollow=crawl.respect_rel_nofollow,
                secret=job.secret,
            ),
            crawl.user_agent,
            job.scope.accept_types,
        ),
        known=KnownPages(folder.store.find_digest, folder.store.find_copy),
    )
