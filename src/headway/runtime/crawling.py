"""One crawl in one run folder, built from a job."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import ExitStack
from heapq import heappop, heappush
from itertools import pairwise
from pathlib import Path

from msgspec import structs

from headway.config.job import Job, without_password
from headway.engine.machine import Engine
from headway.engine.stats import SiteStats
from headway.errors import HeadwayError
from headway.http.robots import rules_from_text
from headway.model.command import AddSite, Decision, Saving, Snapshot
from headway.model.event import CapacityChanged, Event, Ordered, Restored, parts_of
from headway.model.page import Kind, RobotsRules, Site
from headway.planning.estimate import NOTHING_LEARNT
from headway.policy.ordering import Ordering
from headway.policy.timetable import QuotaTally
from headway.runtime.collector import Collected, KnownPages, MakeRoom, WebCollector
from headway.runtime.control import LimitWatch, LinkFinder, OrderWatch, with_known_pages
from headway.runtime.driver import WallClock
from headway.runtime.proxy_refresher import ProxyRefresher, WithRefresher
from headway.runtime.runtime import (
    Circumstances,
    Runtime,
    build_fetcher,
    learnt_ordering,
    link_shared,
    page_reading,
    waiting_order,
    warc_info_of,
)
from headway.squid.spool import load_settings
from headway.store.learnt import LearntStore, Levels
from headway.store.reader import RunReader, Sample
from headway.store.rows import Gauges, SiteSample
from headway.store.run_folder import RunFolder
from headway.units import BytesPerSecond, Instant
from headway.view.live import SITES_SHOWN, EngineMonitor, earlier_sittings
from headway.view.run import RunView

_ROWS_A_SECOND = 150
_NEW_SITES_A_SECOND = 1000
_PART_OF_ELAPSED = 0.05
_LEAST_S = 1.0


class Chronicle:
    """Records the progress of a crawl: the sums each second, each site now and then.

    The longer a crawl has lasted, the longer the time between two rows of a site, so that their number grows
    with the logarithm of time; and the rows of a second are limited, so that recording costs next to nothing.
    """

    def __init__(self, crawl: Engine) -> None:
        self._crawl = crawl
        self._due: list[tuple[Instant, int, Site]] = []
        self._known = 0
        self._began_at: Instant | None = None
        self._stamps: dict[Site, tuple[object, ...]] = {}

    def gauges(self, now: Instant) -> Gauges:
        crawl, forecast = self._crawl, self._crawl.forecast(now)
        return Gauges(
            self._predicted(now),
            crawl.in_flight,
            crawl.frontier.waiting,
            crawl.stats.done,
            crawl.stats.failed,
            crawl.bound.is_paused,
            *((None,) * 3 if forecast is None else forecast[:3]),
        )

    def course(self, now: Instant) -> list[SiteSample]:
        """Samples of the sites that are due."""
        if self._began_at is None:
            self._began_at = now
        self._take_in_new(now)
        pause_s = max(_LEAST_S, _PART_OF_ELAPSED * (now - self._began_at))
        turns = 0
        sites = []
        while self._due and turns < _ROWS_A_SECOND and self._due[0][0] <= now:
            _, number, site = heappop(self._due)
            heappush(self._due, (Instant(now + pause_s), number, site))
            sites.append(site)
            turns += 1
        return self._rows(now, sites)

    def end(self, now: Instant) -> list[SiteSample]:
        """Samples of all sites that have changed since their last row."""
        return self._rows(now, self._crawl.stats.by_site)

    def _rows(self, now: Instant, sites: Iterable[Site]) -> list[SiteSample]:
        by_site = self._crawl.stats.by_site
        self._crawl.forecast(now)
        return [row for site in sites if (row := self._row(now, by_site[site])) is not None]

    def _take_in_new(self, now: Instant) -> None:
        for site in self._crawl.stats.opened[self._known : self._known + _NEW_SITES_A_SECOND]:
            self._known += 1
            heappush(self._due, (now, self._known, site))

    def _row(self, now: Instant, site_stats: SiteStats) -> SiteSample | None:
        """None if nothing has changed since the last row."""
        crawl, planner, site = self._crawl, self._crawl.planner, site_stats.site
        queue = crawl.frontier.peek(site)
        waiting = 0 if queue is None else queue.due
        share = planner.share_of(site) or 0.0 if planner is not None else None
        stamp = (site_stats.answers, waiting, site_stats.in_flight, share, site_stats.task)
        is_over = not waiting and not site_stats.in_flight
        forecast = crawl.forecast_of(site)
        # The forecast of a waiting site changes with the progress of the others.
        if self._stamps.get(site) == stamp and (is_over or (planner is None and forecast is None)):
            return None
        self._stamps[site] = stamp
        if is_over:
            return SiteSample(site, now, site_stats.wire_bytes, waiting, 0.0)
        left = None if planner is None else planner.left_of(site)
        sample = SiteSample(site, now, site_stats.wire_bytes, waiting, left, share)
        if forecast is None:
            return sample
        end = forecast.end
        return structs.replace(
            sample,
            forecast_from_at=end.from_at,
            forecast_to_at=end.to_at,
            forecast_at=end.at,
            deadline_chance=forecast.chance,
        )

    def _predicted(self, now: Instant) -> float | None:
        planner = self._crawl.planner
        if planner is None:
            return None
        if (committed := self._crawl.committed_bytes_per_s) is not None:
            return committed
        predict, site_stats = planner.prediction.predict, self._crawl.stats.site_stats
        total = sum(predict(now, site_stats(page.site).server) for page in self._crawl.leases.in_flight())
        return min(total, self._crawl.bound.capacity_bytes_per_s)


_SAMPLE_EVERY_S = 1.0
_LOOK_EVERY_S = 0.25


class CrawlRun:
    """One crawl in one run folder. Build it, then `run` it; `view` may be called meanwhile, on the same
    loop."""

    def __init__(
        self,
        job: Job,
        folder: Path,
        *,
        on_page: Callable[[Collected], None] | None = None,
        make_room: MakeRoom | None = None,
        on_decision: Callable[[Decision], None] | None = None,
        stays: bool = False,
        learnt: LearntStore | None = None,
    ) -> None:
        """`learnt`: what earlier runs of this user have learnt, to start from and to add to. `stays`: when
        everything is fetched it waits for announcements of a proxy, until drained."""
        self._job = job
        self._clock = WallClock()
        now = self._clock.now()
        self._fetcher = build_fetcher(job, self._clock)
        self.folder = RunFolder.open(
            folder,
            without_password(job),
            now,
            warc_info=warc_info_of(job),
            waiting_order=waiting_order(job),
            limits_of=job.limits_of,
        )
        snapshot = self.folder.snapshot
        self.started_at = snapshot.started_at if snapshot is not None else now
        self._learnt = learnt
        knowledge, levels = NOTHING_LEARNT, Levels()
        if learnt is not None:
            knowledge, levels = learnt.read([wish.site for wish in job.sites])
        self._limit = LimitWatch(folder)
        self._orders = OrderWatch(folder)
        job = self._job = job.with_secret(self.folder.store.secret)
        with ExitStack() as opened:
            opened.callback(self.folder.close)
            # A page that is passed on has its place in the archive.
            self.folder.archive.defers = on_page is None and not job.extractor()
            check_is_same_folder(snapshot, job, folder)
            has_rounds = self.folder.store.has_rounds
            circumstances = Circumstances(
                quotas=quotas_so_far(now, job, folder),
                recrawls=has_rounds,
                histories=self._histories(),
                most_held=job.file.crawl.waiting_in_memory,
                ordering=self._learnt_ordering(),
                knowledge=knowledge,
            )
            recrawls = has_rounds or job.revisiting is not None
            self._collector = WebCollector(
                self._fetcher,
                self.folder.archive,
                self._clock,
                reading=page_reading(job, folder),
                known=KnownPages(
                    self.folder.store.find_digest, self.folder.store.find_copy if recrawls else None
                ),
                on_page=self._with_items(on_page),
                make_room=make_room,
            )
            world = WithRefresher(self._collector, lambda: self.refresher)
            runtime = self._runtime = Runtime.from_job(job, self._clock, world, circumstances)
            self.crawl = runtime.engine
            if self.crawl.forecaster is not None:
                self.crawl.forecaster.set_levels(levels.sites, levels.crawls)
            self._driver = runtime.live_driver(
                _Journal(self.folder, self._decided),
                stays=stays,
                first_waiting=self.folder.store.first_waiting,
            )
            opened.pop_all()
        self._on_decision = on_decision
        self._link_finder = LinkFinder.of(job, folder, self._fetcher, self._driver)
        self._bound_bytes_per_s: BytesPerSecond | None = None
        """The bound in the last sample; None before the first."""
        self.refresher: ProxyRefresher | None = None
        """The proxy refresher, if a proxy has been listened to for this run."""
        earlier = earlier_sittings(folder) if snapshot is not None else None
        self._monitor = EngineMonitor(folder.resolve().name, self.started_at, earlier)
        self._chronicle = Chronicle(self.crawl)
        self.interrupted = False

    async def run(self, *, on_second: Callable[[], None] | None = None) -> None:
        """Run until everything is fetched, or `drain` or `stop` was called; StoreError if it cannot be
        stored."""
        watch = asyncio.get_running_loop().create_task(self._watch(on_second))
        try:
            await self._driver.run(self._opening())
        finally:
            watch.cancel()
            (trouble,) = await asyncio.gather(watch, return_exceptions=True)
            self._sample(is_last=True)
            self.folder.close()
        self.folder.write_index()
        self._learn()
        if isinstance(trouble, Exception):
            raise trouble

    def _learn(self) -> None:
        """Keep what this crawl has learnt for later ones."""
        if self._learnt is None:
            return
        levels, forecaster = None, self.crawl.forecaster
        if forecaster is not None and not self.interrupted:
            forecaster.ended(self._clock.now())
            levels = Levels(forecaster.site_level.value, forecaster.crawl_level.value)
        self._learnt.learn(self.folder.path, levels)

    def drain(self) -> None:
        self.interrupted = True
        self._driver.drain()

    def stop(self) -> None:
        self.interrupted = True
        self._driver.stop()

    def view(self, most_sites: int | None = SITES_SHOWN) -> RunView:
        """The crawl now, with the most important sites; None: with all."""
        return self._monitor.view(self.crawl, self._clock.now(), most_sites)

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

    def _opening(self) -> Iterator[Event]:
        """The events with which the crawl begins. Each is applied before the next is made."""
        if self._limit.has_changed():
            yield CapacityChanged(self._limit.limit_bytes_per_s)
        yield from self._restored()
        # Added sites come first: a crawl that has nothing else to do would end before them. The other orders
        # come last, since they override the job.
        orders = self._orders.lasting()
        for order in orders:
            if isinstance(order, AddSite):
                yield Ordered(with_known_pages(self.folder.path, order, self._job.secret))
        # Known seeds are not queued again, so that a crawl continues with a longer job file.
        yield from self._runtime.seeded_in_parts(self.started_at)
        for order in orders:
            if not isinstance(order, AddSite):
                yield Ordered(order)

    def _restored(self) -> Iterator[Event]:
        """What the run folder holds, in parts. Of very many sites it takes half a gigabyte, so it is not kept
        after that."""
        now, snapshot = self._clock.now(), self.folder.snapshot
        if snapshot is not None:
            self.folder.snapshot = Snapshot(snapshot.started_at, (), (), (), ())
            for part in parts_of(snapshot):
                yield Restored(part, self._fresh_rules(part, now))

    def _learnt_ordering(self) -> Ordering | None:
        """The ordering as far as it had got before a restart."""
        if self.folder.snapshot is None:
            return None
        with RunReader(self.folder.path) as reader:
            return learnt_ordering(self._job, reader)

    def _histories(self) -> Sequence[tuple[Site, bytes]]:
        revisiting = self._job.revisiting
        return self.folder.store.histories() if revisiting is not None and revisiting.adapts else ()

    def _fresh_rules(self, snapshot: Snapshot, now: Instant) -> dict[Site, RobotsRules]:
        return {
            record.site: rules_from_text(record.robots_text, self._job.user_agent_for(record.site))
            for record in snapshot.sites
            if record.robots_text is not None and (record.robots_expires_at or 0) > now
        }

    # -- once a second ----------------------------------------------------------------------------------

    async def _watch(self, on_second: Callable[[], None] | None) -> None:
        await asyncio.sleep(0)  # the first turn of the driver sets the capacity
        loop = asyncio.get_running_loop()
        next_sample_at = loop.time()
        while True:
            self.look_for_orders()
            if self._link_finder is not None and self._limit.limit_bytes_per_s is None:
                self._link_finder.step(self._clock.now())
            self._look_at_announcements()
            if loop.time() >= next_sample_at:
                next_sample_at = max(next_sample_at + _SAMPLE_EVERY_S, loop.time())
                if self._job.file.crawl.background and (shared := link_shared(self._fetcher)) is not None:
                    self._driver.tell(shared)
                self._sample()
                self._make_known()
                if on_second is not None:
                    on_second()
            await asyncio.sleep(min(_LOOK_EVERY_S, max(0.0, next_sample_at - loop.time())))

    def look_for_orders(self) -> None:
        """Carry out what was written into the run folder since the last call."""
        if self._limit.has_changed():
            limit = self._limit.limit_bytes_per_s
            if self._link_finder is not None:
                limit = self._link_finder.interrupt(limit)
            self._driver.tell(CapacityChanged(limit))
        for order in self._orders.fresh():
            self._driver.tell(Ordered(with_known_pages(self.folder.path, order, self._job.secret)))

    def _look_at_announcements(self) -> None:
        if self.refresher is None:
            settings = load_settings(self.folder.path)
            if settings is None:
                return
            self.refresher = ProxyRefresher(self._job, self.folder, self._clock, settings, self._driver)
        self.refresher.look()

    def _decided(self, decision: Decision) -> None:
        if decision.decision == "set-capacity":
            self._mark_new_bound(decision.at)
        elif decision.decision == "yield":
            self._monitor.share(decision)
        if self._on_decision is not None:
            self._on_decision(decision)

    def _mark_new_bound(self, now: Instant) -> None:
        """Two samples at the instant of the change, so that each second is compared with its own bound."""
        before, after = self._bound_bytes_per_s, self.crawl.bound.capacity_bytes_per_s
        if before is not None and before != after:
            for bound in (before, after):
                self._record(now, bound)

    def _sample(self, *, is_last: bool = False) -> None:
        now = self._clock.now()
        course = self._chronicle.end(now) if is_last else self._chronicle.course(now)
        self._record(now, self.crawl.bound.capacity_bytes_per_s, course)

    def _record(self, now: Instant, bound: BytesPerSecond, course: Sequence[SiteSample] = ()) -> None:
        self._bound_bytes_per_s = bound
        received, gauges = self._fetcher.bytes_received(), self._chronicle.gauges(now)
        self.folder.store.record_sample(now, received, bound, gauges, course)
        self._monitor.add(
            Sample(now, received, bound, gauges.predicted_bytes_per_s, is_paused=gauges.is_paused)
        )

    def _make_known(self) -> None:
        """Write samples and decisions for other processes, also while no page settles. Only the driver
        flushes the archive, since it knows which pages have their rows."""
        self.folder.store.commit((), {})
        self.folder.decisions.flush()


class _Journal:
    """Implements `runtime.driver.Journal` in a run folder."""

    def __init__(self, folder: RunFolder, on_decision: Callable[[Decision], None] | None) -> None:
        self._folder = folder
        self._on_decision = on_decision

    def decide(self, decision: Decision) -> None:
        self._folder.decisions.append(decision)
        if self._on_decision is not None:
            self._on_decision(decision)

    def save(self, batch: Sequence[Saving]) -> None:
        self._folder.save(batch)


def check_is_same_folder(snapshot: Snapshot | None, job: Job, folder: Path) -> None:
    known = {task.site for task in snapshot.tasks} if snapshot is not None else set()
    check_is_same_crawl(known, job, str(folder), "give another folder with --out")


def check_is_same_crawl(known: Set[str], job: Job, where: str, cure: str) -> None:
    """A job may grow or shrink from run to run; a job without a site in common is another crawl."""
    if known and known.isdisjoint(wish.site for wish in job.wishes()):
        others = " and others" if len(known) > 1 else ""
        raise HeadwayError(f"{where} holds a crawl of other sites ({min(known)}{others}); {cure}")


def quotas_so_far(now: Instant, job: Job, folder: Path) -> list[QuotaTally]:
    """The job's quotas, with what this run has used of them since their last renewal."""
    if not job.quotas:
        return []
    with RunReader(folder) as reader:
        samples = list(reader.samples())
    tallies = []
    for quota in job.quotas:
        begin_at = quota.window(now)[0]
        since = [sample for sample in samples if sample.at >= begin_at]
        used = sum(max(0, after.wire_bytes - before.wire_bytes) for before, after in pairwise(since))
        tallies.append(QuotaTally(quota, used_bytes=used, period_from=begin_at))
    return tallies
