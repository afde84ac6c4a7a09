"""A collector's membership in a fleet, from joining to leaving: a crawl over the sites that it holds.

The lease is renewed by beating. When it ends, because the coordinator cannot be reached or we were asleep,
everything under way is abandoned: others may be asking these sites already. Whoever runs the session may
begin another.
"""

from __future__ import annotations

import asyncio
import enum
import math
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from headway.crawl.machine import Crawl
from headway.errors import StoreError
from headway.fleet.allowance import Allowance
from headway.fleet.clock import SharedClock
from headway.fleet.coordinator import Coordinator, LeaseOver, News, Portion, Report
from headway.fleet.folder import Folder
from headway.fleet.outbox import Outbox
from headway.fleet.outlook import SiteOutlook, outlooks_of
from headway.fleet.probing import Measure, Probes
from headway.fleet.rhythm import QUICK_BEAT_S, Rhythm
from headway.fleet.takeover import sites_taken, visits_told
from headway.live.driver import COMMIT_EVERY_S, Collector, LiveDriver
from headway.model.command import LoadPages, Saving
from headway.model.decision import Decision
from headway.model.event import (
    CapacityChanged,
    CollectorsCounted,
    DelaySensed,
    Found,
    Ordered,
    Seeded,
    SitesLeft,
)
from headway.model.order import Pause, Resume
from headway.model.page import Site
from headway.model.robots import RobotsRules
from headway.policy.allocation.demand import SiteDemand
from headway.policy.politeness import Politeness
from headway.store.postgres.address import is_passing
from headway.units import BytesPerSecond, Seconds

T = TypeVar("T")

_AGAIN_S = 0.2
_SENSE_EVERY_S = 0.25
_DEMANDS_REPORTED = 2000


class End(enum.Enum):
    OVER = "the crawl is done"
    LEFT = "we were asked to leave"
    LOST = "the lease ended"


class Session:
    def __init__(
        self,
        coordinator: Coordinator,
        folder: Folder,
        clock: SharedClock,
        crawl: Crawl,
        collector: Collector,
        *,
        politeness: Politeness,
        is_bounded: bool,
        rules_of: Callable[[str], RobotsRules],
        received_bytes: Callable[[], int] = lambda: 0,
        set_asks_until: Callable[[float], None] = lambda at: None,
        round_trips: Callable[[], Iterable[tuple[Site, float]]] = lambda: (),
        on_decision: Callable[[Decision], None] | None = None,
        on_end: Callable[[], None] = lambda: None,
        delays: Callable[[], Iterable[tuple[str, float]]] | None = None,
        measure: Measure | None = None,
        learns_from_visits: bool = False,
        quickest_beat_s: float = QUICK_BEAT_S,
        commit_every_s: Seconds = COMMIT_EVERY_S,
    ) -> None:
        self._coordinator = coordinator
        self._folder = folder
        self._clock = clock
        self.crawl = crawl
        self._politeness = politeness
        self._is_bounded = is_bounded
        self._rules_of = rules_of
        self._received_bytes = received_bytes
        self._round_trips = round_trips
        self._on_decision = on_decision
        self._on_end = on_end
        self._probes = Probes(measure)
        self._delays = delays
        self._driver = LiveDriver(
            crawl, collector, self, clock, commit_every_s=commit_every_s, load_later=self._load_later
        )
        self._beats = ThreadPoolExecutor(1, thread_name_prefix="headway-beats")
        self._rhythm = Rhythm(quickest_beat_s)
        self._outbox = Outbox(
            coordinator,
            self._until_done,
            is_ours=self._is_ours,
            tell=self._driver.tell,
            on_news=self._rhythm.beat_now,
        )
        self.make_room = self._outbox.make_room
        self._portion = Portion(crawl.frontier.most_held, learns_from_visits)
        self._learning: set[asyncio.Task[None]] = set()
        self._collectors = 1
        self._allowance = Allowance(
            self._lost, lambda rate: self._driver.tell(CapacityChanged(rate)), set_asks_until
        )
        self._leaving: dict[Site, int | None] = {}
        """Sites asked back; with the parcel that has the last of each, once it is quiet."""
        self._end: End | None = None
        self._is_stopped = False
        self._is_held = False
        self._loop: asyncio.AbstractEventLoop
        self._at_second = (0, 0)
        self._second_timer: asyncio.TimerHandle | None = None

    # -- live.driver.Journal ----------------------------------------------------------------------------

    def decide(self, decision: Decision) -> None:
        self._folder.decide(decision)
        if self._on_decision is not None:
            self._on_decision(decision)

    def save(self, batch: Sequence[Saving]) -> None:
        """Written here at once; committed in turn, while the crawl goes on."""
        self._outbox.put(self._folder.pack(batch))
        self._rhythm.saved(self._loop.time(), batch, self._pages_left)

    # -- the session ------------------------------------------------------------------------------------

    def leave(self) -> None:
        """Finish what is under way, commit it, give everything back."""
        if self._end is None:
            self._end = End.LEFT
            self._driver.drain()

    def stop(self) -> None:
        self._end = self._end or End.LEFT
        self._is_stopped = True
        self._driver.stop()

    async def run(self) -> End:
        try:
            return await self._run()
        finally:
            self._allowance.close()
            self._on_end()
            self._probes.close()
            if self._second_timer is not None:
                self._second_timer.cancel()
            self._beats.shutdown(wait=False, cancel_futures=True)
            self._outbox.close()

    async def _run(self) -> End:
        loop = self._loop = asyncio.get_running_loop()
        asked_at = loop.time()
        joined = await loop.run_in_executor(self._beats, self._coordinator.join, self._portion)
        self._clock.follow(joined.now, joined.read_at)
        self._allowance.lease_until(asked_at + joined.lease_s)
        self._read_meter()
        opening = [CapacityChanged(BytesPerSecond(0.0))] if self._is_bounded else []
        beating = loop.create_task(self._beat())
        committing = loop.create_task(self._outbox.run())
        driving = loop.create_task(self._driver.run([*opening, Seeded((), ())]))
        sensing = loop.create_task(self._sense())
        for helper in (beating, committing):
            helper.add_done_callback(self._helper_ended)
        try:
            await driving
            # Also after the lease has ended: as long as nobody else has the sites, what came of them counts.
            self._outbox.end()
            await committing
            beating.cancel()
            await self._outbox.ask(self._coordinator.leave)
        except LeaseOver:
            self._end = End.LOST
        finally:
            for task in (beating, committing, driving, sensing, *self._learning):
                task.cancel()
            results = await asyncio.gather(beating, committing, driving, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception) and not isinstance(result, LeaseOver):
                raise result
        return self._end or End.LEFT

    def _helper_ended(self, task: asyncio.Task[None]) -> None:
        """Beating and committing end when the session does. Ended before, they take it with them."""
        if task.cancelled():
            return
        problem = task.exception()
        if isinstance(problem, LeaseOver):
            self._lost()
        elif problem is not None:
            self._driver.stop()

    def _lost(self) -> None:
        self._end = End.LOST
        self._outbox.let_all_in()
        self._driver.stop()

    def _until_done(self, ask: Callable[..., T], *args: object) -> T:
        """In a thread: asked again while the trouble is one that passes. The lease's end ends it at last."""
        while True:
            try:
                answer = ask(*args)
            except StoreError as problem:
                if not is_passing(problem) or self._is_stopped:
                    raise
                self._loop.call_soon_threadsafe(self._hold, True)
            else:
                if self._is_held:
                    self._loop.call_soon_threadsafe(self._hold, False)
                return answer
            time.sleep(_AGAIN_S)

    def _hold(self, is_held: bool) -> None:
        """While nothing can be committed nothing more is asked for: it might have to be fetched again."""
        if is_held != self._is_held:
            self._is_held = is_held
            self._driver.tell(Ordered(Pause() if is_held else Resume()))

    def _load_later(self, wishes: Sequence[LoadPages]) -> None:
        self._outbox.ask_for_more(wishes)

    def _is_ours(self, site: Site) -> bool:
        return self.crawl.holdings is not None and site in self.crawl.holdings.sites

    # -- beating ----------------------------------------------------------------------------------------

    async def _beat(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            asked_at = loop.time()
            try:
                news = await loop.run_in_executor(self._beats, self._coordinator.beat, self._report())
            except StoreError as problem:
                if not is_passing(problem):
                    raise
                self._hold(True)
                await asyncio.sleep(_AGAIN_S)
                continue
            self._hold(False)
            self._allowance.lease_until(asked_at + news.lease_s)
            self._hear(asked_at, news)
            await self._give_back()
            is_waiting = self._leaving or self._allowance.has_shrunk or not self.crawl.frontier.waiting
            await self._rhythm.pause(asked_at, self._pages_left, is_waiting=bool(is_waiting))

    @property
    def _pages_left(self) -> int:
        return self.crawl.frontier.waiting + self.crawl.in_flight

    def _report(self) -> Report:
        crawl = self.crawl
        assert crawl.holdings is not None
        active = [room.site for room in crawl.frontier.rooms() if room.waiting or room.busy]
        demands: tuple[SiteDemand, ...] = ()
        outlooks: tuple[SiteOutlook, ...] = ()
        if crawl.steward is not None and len(active) <= _DEMANDS_REPORTED:
            demands = tuple(crawl.steward.on_a_faster_link(self._clock.now(), crawl.ledger))
            outlooks = outlooks_of(crawl, demands)
        return Report(
            tuple(site for site in active if site not in self._leaving),
            demands,
            (*self._round_trips(), *self._probes.take()),
            outlooks,
            crawl.frontier.waiting,
            crawl.in_flight,
            *self._at_second,
            self._allowance.share_number,
            self._rhythm.left_s(self._loop.time(), self._pages_left),
        )

    def _hear(self, asked_at: float, news: News) -> None:
        if self._is_bounded:
            self._allowance.keep_to(asked_at, news.share)
        if news.taken is not None and self._end is None:
            now = self._clock.now()
            self._driver.tell(sites_taken(now, news.taken, self._rules_of, self._politeness))
            learning = asyncio.get_running_loop().create_task(self._learn(news.taken.histories))
            self._learning.add(learning)
            learning.add_done_callback(self._learning.discard)
        if news.collectors != self._collectors:
            self._collectors = news.collectors
            self._driver.tell(CollectorsCounted(news.collectors))
        self._probes.ask(news.to_measure)
        if news.mail:
            self._driver.tell(Found(news.mail))
        for order in news.orders:
            self._driver.tell(Ordered(order))
        back = [site for site in news.asked_back if site not in self._leaving]
        if back:
            self._leaving.update(dict.fromkeys(back, None))
            self._driver.tell(SitesLeft(tuple(back)))
        if news.is_sent_away:
            self.leave()
        if news.is_over and self._end is None:
            self._end = End.OVER
            self._driver.drain()

    async def _learn(self, histories: Sequence[tuple[Site, bytes]]) -> None:
        for part in visits_told(histories):
            self._driver.tell(part)
            await asyncio.sleep(0)

    async def _sense(self) -> None:
        while self._delays is not None:
            for peer, round_trip_s in self._delays():
                self._driver.tell(DelaySensed(peer, Seconds(round_trip_s)))
            await asyncio.sleep(_SENSE_EVERY_S)

    def _read_meter(self) -> None:
        """At every whole second of the shared clock, so that the readings of all can be added up."""
        now = self._clock.now()
        self._at_second = (round(now), self._received_bytes())
        until_next_s = math.floor(now + 0.5) + 1 - now
        self._second_timer = asyncio.get_running_loop().call_later(until_next_s, self._read_meter)

    async def _give_back(self) -> None:
        """Sites that are quiet, once everything that came of them is committed."""
        crawl = self.crawl
        assert crawl.holdings is not None
        next_parcel = self._outbox.packed + self._driver.has_unsaved
        busy = []
        for site, parcel in self._leaving.items():
            if not crawl.holdings.is_quiet(site):
                busy.append(site)
            elif parcel is None:
                self._leaving[site] = next_parcel
        if busy:
            self._driver.tell(SitesLeft(tuple(busy)))
        ready = [
            site
            for site, parcel in self._leaving.items()
            if parcel is not None and parcel <= self._outbox.committed
        ]
        if ready:
            for site in ready:
                del self._leaving[site]
            await self._outbox.ask(self._coordinator.give_back, ready)
