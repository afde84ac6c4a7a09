"""A crawl put together: a job and a run folder in, a finished (or interrupted) run folder out."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence, Set
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

from headway.app.building import build_collector, build_fetcher, build_machine, build_revisit
from headway.app.chronicle import Chronicle
from headway.app.clock import WallClock
from headway.app.limit import LimitWatch
from headway.app.orderfile import OrderWatch, with_known_pages
from headway.app.ordering import waiting_order
from headway.app.parasite import Parasite, WithParasite
from headway.app.view import View, view_of
from headway.config.job import Job
from headway.config.kept import without_password
from headway.errors import HeadwayError
from headway.fetch.robots import rules_from_text
from headway.live.collector import Collected, MakeRoom
from headway.live.driver import LiveDriver
from headway.model.command import Saving
from headway.model.decision import Decision
from headway.model.event import CapacityChanged, DelaySensed, Event, Ordered, Restored, Seeded
from headway.model.order import AddSite
from headway.model.outcome import Kind
from headway.model.page import Site
from headway.model.robots import RobotsRules
from headway.model.snapshot import Snapshot
from headway.policy.quota import QuotaTally
from headway.policy.revisit import AdaptiveRevisit, RevisitPolicy
from headway.squid.settings import load_settings
from headway.store.reader import RunReader
from headway.store.runfolder import RunFolder
from headway.units import Instant, Seconds

_SAMPLE_EVERY_S = 1.0
_LOOK_EVERY_S = 0.25


class CrawlRun:
    """One crawl in one run folder. Build it, `run` it; `view` may be called meanwhile, on the same loop."""

    def __init__(
        self,
        job: Job,
        folder: Path,
        *,
        on_page: Callable[[Collected], None] | None = None,
        make_room: MakeRoom | None = None,
        on_decision: Callable[[Decision], None] | None = None,
        stays: bool = False,
    ) -> None:
        """`stays`: with everything fetched it waits for announcements of a proxy, until drained."""
        self._job = job
        self._clock = WallClock()
        now = self._clock.now()
        self._fetcher = build_fetcher(job, self._clock)
        self.folder = RunFolder.open(folder, without_password(job), now, waiting_order=waiting_order(job))
        snapshot = self.folder.snapshot
        self.started_at = snapshot.started_at if snapshot is not None else now
        self._limit = LimitWatch(folder)
        self._orders = OrderWatch(folder)
        with ExitStack() as opened:
            opened.callback(self.folder.close)
            check_is_same_folder(snapshot, job, folder)
            recrawls = self.folder.store.has_rounds or job.revisiting is not None
            self.crawl = build_machine(
                job,
                quotas_so_far(now, job, folder),
                most_held=job.file.crawl.waiting_in_memory,
                revisit=self._revisit_policy(),
                recrawls=recrawls,
            )
            opened.pop_all()
        self._collector = build_collector(
            job,
            self._fetcher,
            self.folder.archive,
            self.folder.store.find_digest,
            self._clock,
            on_page=self._with_items(on_page),
            make_room=make_room,
            find_copy=self.folder.store.find_copy if recrawls else None,
        )
        self._driver = LiveDriver(
            self.crawl,
            WithParasite(self._collector, lambda: self.parasite),
            _Journal(self.folder, on_decision),
            self._clock,
            stays=stays,
            first_waiting=self.folder.store.first_waiting,
        )
        self.parasite: Parasite | None = None
        """The proxy collector, once somebody has listened to a proxy for this run."""
        self._meter = Meter()
        self._chronicle = Chronicle(self.crawl)
        self.interrupted = False

    async def run(self, *, on_second: Callable[[], None] | None = None) -> None:
        """Until everything is fetched, or `drain` or `stop` was called; StoreError if it cannot be kept."""
        watch = asyncio.get_running_loop().create_task(self._watch(on_second))
        try:
            await self._driver.run(self._opening())
        finally:
            watch.cancel()
            (trouble,) = await asyncio.gather(watch, return_exceptions=True)
            self._sample(is_last=True)
            self.folder.close()
        self.folder.write_index()
        if isinstance(trouble, Exception):
            raise trouble

    def drain(self) -> None:
        self.interrupted = True
        self._driver.drain()

    def stop(self) -> None:
        self.interrupted = True
        self._driver.stop()

    def view(self) -> View:
        now = self._clock.now()
        return view_of(
            self.crawl,
            now,
            self.started_at,
            rate_bytes_per_s=self._meter.rate_bytes_per_s,
            site_rates=self._meter.site_rates,
            capacity_bytes_per_s=self.crawl.bound.capacity_bytes_per_s,
        )

    def _with_items(self, on_page: Callable[[Collected], None] | None) -> Callable[[Collected], None] | None:
        if not self._job.extractor():
            return on_page

        def collected(page: Collected) -> None:
            if page.outcome.kind in {Kind.FETCHED, Kind.DUPLICATE}:
                for item in page.items:
                    self.folder.add_item(item)
            if on_page is not None:
                on_page(page)

        return collected

    # -- start ------------------------------------------------------------------------------------------

    def _opening(self) -> Sequence[Event]:
        now = self._clock.now()
        events: list[Event] = []
        if self._limit.has_changed():
            events.append(CapacityChanged(self._limit.limit_bytes_per_s))
        snapshot = self.folder.snapshot
        if snapshot is not None:
            events.append(Restored(snapshot, self._fresh_rules(snapshot, now)))
        # Sites that were added come first: a crawl that has nothing else to do would end before them. The
        # rest comes last, since it overrules the job.
        orders = self._orders.lasting()
        added = [order for order in orders if isinstance(order, AddSite)]
        events += [Ordered(with_known_pages(self.folder.path, order)) for order in added]
        # Seeds that are known already are not queued again, so that a longer job file goes on from here.
        events.append(Seeded(self._job.tasks(self.started_at), self._job.seeds()))
        events += [Ordered(order) for order in orders if not isinstance(order, AddSite)]
        return events

    def _revisit_policy(self) -> RevisitPolicy | None:
        policy = build_revisit(self._job)
        if isinstance(policy, AdaptiveRevisit):
            for site, history in self.folder.store.histories():
                policy.learn(site, history)
        return policy

    def _fresh_rules(self, snapshot: Snapshot, now: Instant) -> dict[Site, RobotsRules]:
        user_agent = self._job.file.crawl.user_agent
        return {
            record.site: rules_from_text(record.robots_text, user_agent)
            for record in snapshot.sites
            if record.robots_text is not None and (record.robots_expires_at or 0) > now
        }

    # -- once a second ----------------------------------------------------------------------------------

    async def _watch(self, on_second: Callable[[], None] | None) -> None:
        await asyncio.sleep(0)  # the driver's first turn sets the capacity
        loop = asyncio.get_running_loop()
        next_sample_at = loop.time()
        while True:
            if self._limit.has_changed():
                self._driver.tell(CapacityChanged(self._limit.limit_bytes_per_s))
            for order in self._orders.fresh():
                self._driver.tell(Ordered(with_known_pages(self.folder.path, order)))
            if self._job.file.crawl.background:
                for peer, round_trip_s in self._fetcher.round_trips():
                    self._driver.tell(DelaySensed(peer, Seconds(round_trip_s)))
            self._look_at_announcements()
            if loop.time() >= next_sample_at:
                next_sample_at = max(next_sample_at + _SAMPLE_EVERY_S, loop.time())
                self._sample()
                self._make_known()
                if on_second is not None:
                    on_second()
            await asyncio.sleep(min(_LOOK_EVERY_S, max(0.0, next_sample_at - loop.time())))

    def _look_at_announcements(self) -> None:
        if self.parasite is None:
            settings = load_settings(self.folder.path)
            if settings is None:
                return
            self.parasite = Parasite(self._job, self.folder, self._clock, settings, self._driver)
        self.parasite.look()

    def _sample(self, *, is_last: bool = False) -> None:
        now = self._clock.now()
        received = self._fetcher.bytes_received()
        self._meter.read(
            now, received, {site: book.wire_bytes for site, book in self.crawl.ledger.books.items()}
        )
        course = self._chronicle.end(now) if is_last else self._chronicle.course(now)
        self.folder.store.record_sample(
            now, received, self.crawl.bound.capacity_bytes_per_s, self._chronicle.gauges(now), course
        )

    def _make_known(self) -> None:
        """For those who look on: samples and decisions, also where no page has settled for a while. The
        archive is left to the driver, which alone knows which of its pages have their rows."""
        self.folder.store.commit((), {})
        self.folder.decisions.flush()


class _Journal:
    """Implements `live.driver.Journal` in a run folder."""

    def __init__(self, folder: RunFolder, on_decision: Callable[[Decision], None] | None) -> None:
        self._folder = folder
        self._on_decision = on_decision

    def decide(self, decision: Decision) -> None:
        self._folder.decisions.append(decision)
        if self._on_decision is not None:
            self._on_decision(decision)

    def save(self, batch: Sequence[Saving]) -> None:
        self._folder.save(batch)


class Meter:
    """Rates over the last few seconds, of the link and of each site."""

    def __init__(self) -> None:
        self.rate_bytes_per_s = 0.0
        self.site_rates: dict[Site, float] = {}
        self._readings: deque[tuple[Instant, int, dict[Site, int]]] = deque(maxlen=4)

    def read(self, now: Instant, received: int, sites: dict[Site, int]) -> None:
        if self._readings:
            last_at, last_received, _ = self._readings[-1]
            self.rate_bytes_per_s = (received - last_received) / max(1e-6, now - last_at)
            first_at, _, first_sites = self._readings[0]
            span_s = max(1e-6, now - first_at)
            self.site_rates = {
                site: (count - first_sites.get(site, 0)) / span_s
                for site, count in sites.items()
                if count > first_sites.get(site, 0)
            }
        self._readings.append((now, received, sites))


def check_is_same_folder(snapshot: Snapshot | None, job: Job, folder: Path) -> None:
    known = {task.site for task in snapshot.tasks} if snapshot is not None else set()
    check_is_same_crawl(known, job, str(folder), "give another folder with --out")


def check_is_same_crawl(known: Set[str], job: Job, where: str, cure: str) -> None:
    """A job may grow or shrink from run to run; with no site in common it is another one."""
    if known and known.isdisjoint(wish.site for wish in job.sites):
        others = " and others" if len(known) > 1 else ""
        raise HeadwayError(f"{where} holds a crawl of other sites ({min(known)}{others}); {cure}")


def quotas_so_far(now: Instant, job: Job, folder: Path) -> list[QuotaTally]:
    """The job's quotas, with what this run has used of them since they were last renewed."""
    if not job.quotas:
        return []
    with RunReader(folder) as reader:
        samples = reader.samples()
    tallies = []
    for quota in job.quotas:
        begin_at = quota.window(now)[0]
        since = [sample for sample in samples if sample.at >= begin_at]
        used = sum(max(0, after.wire_bytes - before.wire_bytes) for before, after in pairwise(since))
        tallies.append(QuotaTally(quota, used_bytes=used, period_from=begin_at))
    return tallies
