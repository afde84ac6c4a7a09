"""The proxy collector of cobweb1999: announced pages that are new or grown old, fetched through the proxy.

It is a second, small crawl beside the main one, with a bound and manners of its own. What it brings is told
to the main crawl, which keeps it and follows its links.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from msgspec import structs

from headway.app.clock import WallClock
from headway.config.job import Job
from headway.crawl.bound import LinkBound
from headway.crawl.machine import Crawl
from headway.fetch.http import HttpFetcher
from headway.fetch.settings import Timeouts
from headway.live.collector import WebCollector
from headway.live.driver import LiveDriver
from headway.live.orders import Fail, Settle
from headway.model.command import FetchPage, FetchRobots, SaveSettled, Saving, SetCapacity, SetRates
from headway.model.copy import Copy
from headway.model.decision import Decision
from headway.model.event import Again, Delivered, Found, PageSettled, RobotsSettled, Seeded
from headway.model.outcome import SUCCESS, Kind, Outcome
from headway.model.page import Page, PageKey
from headway.parse.parsed import ParseOptions
from headway.parse.url import page_of
from headway.policy.ordering import make_ordering
from headway.policy.politeness import NEVER_ASKED, Politeness
from headway.policy.retry import RetryPolicy
from headway.policy.timetable import Timetable
from headway.squid.settings import ProxySettings
from headway.squid.spool import FOLDER, SpoolReader
from headway.squid.tally import Tally, bump, load_tally, save_tally
from headway.store.runfolder import RunFolder
from headway.units import UNBOUNDED, BytesPerSecond, Instant, Seconds

TALLY = "collector.json"
_MOST_WAITING = 10_000
_READ_AT_ONCE = 500
_QUICK_S = 1.0
_LEASE_S = Seconds(3600.0)


class Parasite:
    """`look` now and then; `aclose` in the end. What is not settled by then waits for the next time."""

    def __init__(
        self,
        job: Job,
        folder: RunFolder,
        clock: WallClock,
        settings: ProxySettings,
        main: LiveDriver,
    ) -> None:
        self._scope = job.scope
        self._clock = clock
        self._settings = settings
        self._tell = main.tell
        self._fail = main.fail
        self._find_copy = folder.store.find_copy
        self._tally_path = folder.path / FOLDER / TALLY
        self.tally: Tally = load_tally(self._tally_path)
        self._spool = SpoolReader(folder.path)
        self._pending: dict[PageKey, tuple[int, Copy | None]] = {}
        """Where its line begins, and what there was of the page when it was announced."""
        collector = self._collector = _Forwarding(_collector(job, folder, clock, settings), self)
        self._driver = LiveDriver(_machine(job, settings), collector, _Passing(self), clock, stays=True)
        self._running = asyncio.ensure_future(self._driver.run([Seeded((), ())]))
        self._running.add_done_callback(self._ended)

    def look(self) -> None:
        """Take in what was announced since the last time, as long as there is room."""
        while len(self._pending) < _MOST_WAITING and (lines := self._spool.read(_READ_AT_ONCE)):
            for announced in lines:
                self._consider(announced.at, announced.url, announced.place)
        self._spool.keep(min((place for place, _ in self._pending.values()), default=self._spool.place))
        with suppress(OSError):
            save_tally(self._tally_path, self.tally)

    async def aclose(self) -> None:
        self._driver.stop()
        with suppress(Exception):
            await self._running
        self.look()
        self._spool.close()

    def _ended(self, running: asyncio.Future[None]) -> None:
        if not running.cancelled() and (problem := running.exception()) is not None:
            self._fail(problem)  # the archive cannot be written: nor can the main crawl's

    @property
    def waiting(self) -> int:
        return len(self._pending)

    def _consider(self, announced_at: Instant, url: str, place: int) -> None:
        page = page_of(url)
        if page is None or self._scope.judge(page) is not None:
            bump(self.tally.refused, "out-of-scope")  # the job has changed since it was announced
            return
        if page.key in self._pending:
            bump(self.tally.refused, "repeated")
            return
        copy = self._find_copy(page)
        age_s = self._clock.now() - copy.fetched_at if copy is not None else 0.0
        if copy is not None and copy.was_answered and age_s < self._settings.refresh_after_s:
            self.tally.fresh += 1
            return
        if copy is not None and copy.was_answered:
            page = structs.replace(page, depth=copy.depth)
        self._pending[page.key] = (place, copy)
        due_at = max(self._clock.now(), Instant(announced_at + self._settings.delay_s))
        self._driver.tell(Again((page,), due_at))

    # -- what comes back --------------------------------------------------------------------------------

    def settled(self, event: PageSettled) -> None:
        """An answer of the proxy. Whatever is in the archive is told to the main crawl in the same breath."""
        page, outcome = event.lease.page, event.outcome
        _, copy = self._pending.get(page.key, (0, None))
        is_good = outcome.kind in SUCCESS
        if event.capture is not None or is_good:
            delivered = Delivered(page, outcome, event.links, event.capture, event.sighting, event.was)
            self._tell(delivered)
        if outcome.kind is Kind.CANCELLED:
            return  # we are closing; it is announced again next time
        self._pending.pop(page.key, None)
        self._count(outcome, copy, is_good=is_good)

    def _count(self, outcome: Outcome, copy: Copy | None, *, is_good: bool) -> None:
        tally = self.tally
        tally.asked += 1
        tally.quick += 0 < outcome.duration_s < _QUICK_S
        if not is_good:
            bump(tally.errors, str(outcome.kind))
        elif copy is not None and copy.was_answered:
            tally.updates += 1
            tally.unchanged += outcome.kind is Kind.NOT_MODIFIED
        else:
            tally.new += 1

    def passed_over(self, page: Page, reason: str) -> None:
        """Not asked for after all: robots.txt forbids it, or cannot be had."""
        if self._pending.pop(page.key, None) is not None:
            bump(self.tally.errors, reason)

    def pass_on(self, event: Found | Again) -> None:
        self._tell(event)

    def committed(self) -> None:
        """What was archived until now can be found in the store."""
        self._collector.forget_uncommitted()


class WithParasite:
    """The main crawl's collector, which ends with the parasite's end: what that has archived by then must be
    told before the last commit."""

    def __init__(self, inner: WebCollector, parasite: Callable[[], Parasite | None]) -> None:
        self._parasite = parasite
        self._inner = inner

    def start(self, command: FetchPage | FetchRobots, settle: Settle, fail: Fail) -> None:
        self._inner.start(command, settle, fail)

    def set_rates(self, command: SetRates) -> None:
        self._inner.set_rates(command)

    def set_capacity(self, command: SetCapacity) -> None:
        self._inner.set_capacity(command)

    def committed(self) -> None:
        self._inner.committed()
        if (parasite := self._parasite()) is not None:
            parasite.committed()

    async def aclose(self) -> None:
        if (parasite := self._parasite()) is not None:
            await parasite.aclose()
        await self._inner.aclose()


class _Forwarding:
    """A collector whose answers go to the main crawl; its own crawl hears only that they came."""

    def __init__(self, inner: WebCollector, parasite: Parasite) -> None:
        self._inner = inner
        self._parasite = parasite

    def start(self, command: FetchPage | FetchRobots, settle: Settle, fail: Fail) -> None:
        def forward(event: PageSettled | RobotsSettled | Found | Again) -> None:
            match event:
                case PageSettled():
                    self._parasite.settled(event)
                    settle(PageSettled(event.lease, event.outcome))
                case RobotsSettled():
                    settle(event)
                case _:
                    self._parasite.pass_on(event)

        self._inner.start(command, forward, fail)

    def set_rates(self, command: SetRates) -> None:
        self._inner.set_rates(command)

    def set_capacity(self, command: SetCapacity) -> None:
        self._inner.set_capacity(command)

    def committed(self) -> None:
        """It is the main crawl that commits what this one archives, and then says so."""

    def forget_uncommitted(self) -> None:
        self._inner.committed()

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Passing:
    """The main crawl keeps what is to be kept; only pages that were not even asked for are noted here."""

    def __init__(self, parasite: Parasite) -> None:
        self._parasite = parasite

    def decide(self, decision: Decision) -> None: ...

    def save(self, batch: Sequence[Saving]) -> None:
        for saving in batch:
            if isinstance(saving, SaveSettled) and saving.outcome.kind in NEVER_ASKED:
                self._parasite.passed_over(saving.page, str(saving.outcome.kind))


def _machine(job: Job, settings: ProxySettings) -> Crawl:
    rate = settings.bandwidth_bytes_per_s
    return Crawl(
        ordering=make_ordering("klwf"),
        scope=job.scope,
        politeness=Politeness(interval_s=Seconds(settings.interval_s)),
        retry=RetryPolicy(max_attempts=1),
        max_connections=settings.max_connections,
        lease_s=_LEASE_S,
        asks_robots=job.file.crawl.respect_robots,
        bound=LinkBound(Timetable(UNBOUNDED if rate is None else BytesPerSecond(rate))),
        recrawls=True,
    )


def _collector(job: Job, folder: RunFolder, clock: WallClock, settings: ProxySettings) -> WebCollector:
    crawl = job.file.crawl
    rate = settings.bandwidth_bytes_per_s
    fetcher = HttpFetcher(
        clock,
        crawl.user_agent,
        timeouts=Timeouts(
            connect_s=job.timeouts.connect_s,
            first_byte_s=settings.timeout_s,
            idle_s=job.timeouts.idle_s,
            total_s=job.timeouts.total_s,
        ),
        limits=job.limits,
        capacity_bytes_per_s=UNBOUNDED if rate is None else BytesPerSecond(rate),
        allow_private=crawl.allow_private,
        verify_tls=crawl.verify_tls,
        ca_file=crawl.ca_file,
        proxy=settings.proxy,
    )
    return WebCollector(
        fetcher,
        folder.archive,
        folder.store.find_digest,
        clock,
        user_agent=crawl.user_agent,
        accept_types=job.scope.accept_types,
        parse_options=ParseOptions(user_agent=crawl.user_agent, drop_rel_nofollow=crawl.respect_rel_nofollow),
        find_copy=folder.store.find_copy,
    )
