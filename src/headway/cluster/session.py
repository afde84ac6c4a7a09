"""A collector's membership in a fleet, from joining to leaving: a crawl of the sites that it holds.

Heartbeats renew the lease. When it ends, because the coordinator cannot be reached or the machine was
suspended, all requests are abandoned: the sites may belong to others already. A new session may follow.
"""

from __future__ import annotations

import asyncio
import enum
import math
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import ParamSpec, TypeVar

import msgspec

from headway.cluster.calls import (
    BEAT_EVERY_S,
    LINK_BEAT_S,
    QUICK_BEAT_S,
    Allowance,
    CommitQueue,
    Heartbeat,
    Lookups,
    Probes,
    SharedClock,
)
from headway.cluster.coordinator import (
    MOST_REPORTED,
    CommitBatch,
    Coordinator,
    LeaseOver,
    News,
    Portion,
    Report,
    Taken,
    demands_of,
)
from headway.engine.machine import Engine
from headway.errors import StoreError
from headway.http.client import HttpFetcher
from headway.http.robots import rules_from_text
from headway.model.command import Decision, LoadPages, Pause, Resume, Saving
from headway.model.event import (
    CapacityChanged,
    CollectorsCounted,
    Found,
    GroupLease,
    GroupsGranted,
    GroupsRecalled,
    Loaded,
    Ordered,
    PagesLoaded,
    Seeded,
    SitesLeft,
    SitesTaken,
    VisitHistories,
)
from headway.model.page import RobotsRules, Site
from headway.policy.politeness import Politeness
from headway.runtime.driver import COMMIT_EVERY_S, LiveDriver, LiveWorld
from headway.runtime.runtime import link_shared
from headway.store.postgres.connection import is_passing
from headway.units import BytesPerSecond, Instant, Seconds

P = ParamSpec("P")
T = TypeVar("T")

_AGAIN_S = 0.2
_REPORT_EVERY_S = 1.0
_CLOCKS_DIFFER_S = 0.1
"""The readings of the shared clock by two collectors may differ by this."""
_HISTORIES_AT_ONCE = 100
"""Ten milliseconds of work: adding a hundred thousand pages at once would cost the lease."""


class End(enum.Enum):
    OVER = "the crawl is done"
    LEFT = "the collector was asked to leave"
    LOST = "the lease ended"


class SessionOptions(msgspec.Struct, frozen=True):
    politeness: Politeness
    user_agent_for: Callable[[Site], str]
    """For the robots.txt rules of sites that come from other holders."""
    is_bounded: bool = False
    """Nothing is received without a share of the bound."""
    learns_from_visits: bool = False
    measures_round_trips: bool = False
    """Reports round trips to sites, its own and others', so that each site goes to a near collector."""
    is_background: bool = False
    """The crawl yields to other users of the link."""
    quickest_beat_s: float = QUICK_BEAT_S
    commit_every_s: Seconds = COMMIT_EVERY_S


class Session:
    def __init__(
        self,
        coordinator: Coordinator,
        queue: CommitQueue,
        lookups: Lookups,
        crawl: Engine,
        collector: LiveWorld,
        *,
        fetcher: HttpFetcher,
        clock: SharedClock,
        options: SessionOptions,
    ) -> None:
        self._coordinator = coordinator
        self._queue = queue
        self._lookups = lookups
        self._clock = clock
        self.crawl = crawl
        self._fetcher = fetcher
        self._options = options
        self._probes = Probes(fetcher.measure_round_trip if options.measures_round_trips else None)
        self._driver = LiveDriver(
            crawl,
            collector,
            self,
            clock,
            commit_every_s=options.commit_every_s,
            load_later=queue.ask_for_more,
        )
        self._link = fetcher.background if options.is_background else None
        # Collectors behind one link have to know soon what the others do.
        self._heartbeat = Heartbeat(
            options.quickest_beat_s, BEAT_EVERY_S if self._link is None else LINK_BEAT_S
        )
        self._portion = Portion(crawl.frontier.most_held, options.learns_from_visits)
        self._learning: set[asyncio.Task[None]] = set()
        self._collectors = 1
        self._number = 0
        self._allowance = Allowance(
            self._lost, lambda rate: self._driver.tell(CapacityChanged(rate)), fetcher.set_asks_until
        )
        self._leaving: dict[Site, int | None] = {}
        """Sites asked back; with the number of the batch that has the last result of each, once it is
        quiet."""
        self._released: tuple[tuple[str, Instant], ...] = ()
        """Servers and domains that were released since the last answer of the coordinator."""
        self._end: End | None = None
        self._is_stopped = False
        self._is_held = False
        self._loop: asyncio.AbstractEventLoop
        self._at_second = (0, 0)
        self._second_timer: asyncio.TimerHandle | None = None

    # -- live.driver.Journal ----------------------------------------------------------------------------

    def decide(self, decision: Decision) -> None:
        self._queue.folder.decide(decision)

    def save(self, batch: Sequence[Saving]) -> None:
        """Written here at once; committed in order, while the crawl goes on."""
        self._queue.put(batch)
        self._heartbeat.saved(self._loop.time(), batch, self._pages_left)

    # -- the session ------------------------------------------------------------------------------------

    def leave(self) -> None:
        """Finish the requests in flight, commit their results, and return everything."""
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
            self._lookups.close()
            self._probes.close()
            if self._second_timer is not None:
                self._second_timer.cancel()

    async def _run(self) -> End:
        loop = self._loop = asyncio.get_running_loop()
        asked_at = loop.time()
        joined = await self._coordinator.join(self._portion)
        self._number = joined.collector
        self._clock.follow(joined.now, joined.read_at)
        self._allowance.lease_until(asked_at + joined.lease_s)
        self._read_meter()
        opening = [CapacityChanged(BytesPerSecond(0.0))] if self._options.is_bounded else []
        beating = loop.create_task(self._beat())
        committing = loop.create_task(self._commit())
        driving = loop.create_task(self._driver.run([*opening, Seeded((), ())]))
        sensing = loop.create_task(self._report_sharing())
        for helper in (beating, committing):
            helper.add_done_callback(self._helper_ended)
        try:
            await driving
            # Also after the lease has ended: while the sites have no other holder, their results are
            # accepted.
            self._queue.end()
            await committing
            beating.cancel()
            await self._until_done(self._coordinator.leave)
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
        """Heartbeats and commits end with the session. If they end earlier, they end the session."""
        if task.cancelled():
            return
        problem = task.exception()
        if isinstance(problem, LeaseOver):
            self._lost()
        elif problem is not None:
            self._driver.stop()

    def _lost(self) -> None:
        self._end = End.LOST
        self._queue.let_all_in()
        self._driver.stop()

    async def _commit(self) -> None:
        """Commit batches until the queue has ended."""
        while (item := await self._queue.next()) is not None:
            if isinstance(item, CommitBatch):
                number = self._queue.committed + 1
                has_news = await self._until_done(self._coordinator.commit, number, item)
                self._queue.committed = number
                if has_news:
                    self._heartbeat.beat_now()
            else:
                await self._load(item)

    async def _load(self, requests: Sequence[LoadPages]) -> None:
        loads = []
        for request in requests:
            # A site that was returned meanwhile may have another holder.
            if self.crawl.owned is None or request.site not in self.crawl.owned.sites:
                continue
            found = await self._until_done(self._coordinator.first_waiting, request.site, request.most)
            loads.append(Loaded(request.site, tuple(found), is_all=len(found) < request.most))
        if loads:
            self._driver.tell(PagesLoaded(tuple(loads)))

    async def _until_done(self, call: Callable[P, Awaitable[T]], *args: P.args, **named: P.kwargs) -> T:
        """Repeat the call while its error is temporary. The end of the lease ends the repetition."""
        while True:
            try:
                answer = await call(*args, **named)
            except StoreError as problem:
                if not is_passing(problem) or self._is_stopped:
                    raise
                self._hold(True)
            else:
                self._hold(False)
                return answer
            await asyncio.sleep(_AGAIN_S)

    def _hold(self, is_held: bool) -> None:
        """While nothing can be committed, no more is fetched: it might have to be fetched again."""
        if is_held != self._is_held:
            self._is_held = is_held
            self._driver.tell(Ordered(Pause() if is_held else Resume()))

    # -- beating ----------------------------------------------------------------------------------------

    async def _beat(self) -> None:
        while True:
            asked_at = self._loop.time()
            try:
                news = await self._coordinator.beat(self._report())
            except StoreError as problem:
                if not is_passing(problem):
                    raise
                self._hold(True)
                await asyncio.sleep(_AGAIN_S)
                continue
            self._hold(False)
            self._released = ()
            self._allowance.lease_until(asked_at + news.lease_s)
            self._hear(asked_at, news)
            await self._give_back()
            is_waiting = self._leaving or self._allowance.has_shrunk or not self.crawl.frontier.waiting
            is_waiting = is_waiting or self._exchanges_groups
            await self._heartbeat.pause(asked_at, self._pages_left, is_waiting=bool(is_waiting))

    @property
    def _pages_left(self) -> int:
        return self.crawl.frontier.waiting + self.crawl.in_flight

    def _report(self) -> Report:
        crawl = self.crawl
        assert crawl.owned is not None
        demands, outlooks = demands_of(self._clock.now(), crawl, self._number)
        number_of, active = crawl.frontier.number_of, crawl.frontier.active()
        leaving = sum(number_of(site) in active for site in self._leaving)
        return Report(
            tuple(site for site in crawl.frontier.next_active(MOST_REPORTED) if site not in self._leaving),
            demands,
            (*self._round_trips(), *self._probes.take()),
            outlooks,
            crawl.frontier.waiting,
            crawl.in_flight,
            *self._at_second,
            self._allowance.share_number,
            self._heartbeat.left_s(self._loop.time(), self._pages_left),
            None if self._link is None else self._link.use(self._clock.now()),
            *self._group_report(),
            active_in_all=len(active) - leaving,
        )

    def _group_report(self) -> tuple[tuple[str, ...], tuple[tuple[str, Instant], ...]]:
        groups = self.crawl.groups
        if groups is None:
            return (), ()
        self._released += groups.take_released(self._clock.now())
        return groups.take_wanted(), self._released

    @property
    def _exchanges_groups(self) -> bool:
        """Whether servers are wanted here or elsewhere, so that heartbeats should follow soon."""
        return self.crawl.groups is not None and self.crawl.groups.is_exchanging

    def _hear(self, asked_at: float, news: News) -> None:
        if self._options.is_bounded:
            self._allowance.keep_to(asked_at, news.share)
        if self._link is not None:
            self._link.hear(self._clock.now(), news.link_uses)
        if news.taken is not None and self._end is None:
            now = self._clock.now()
            self._driver.tell(sites_taken(now, news.taken, self._options))
            learning = asyncio.get_running_loop().create_task(self._learn(news.taken.histories))
            self._learning.add(learning)
            learning.add_done_callback(self._learning.discard)
        if news.collectors != self._collectors:
            self._collectors = news.collectors
            self._driver.tell(CollectorsCounted(news.collectors))
        if news.granted:
            later = (
                GroupLease(lease.key, Instant(lease.not_before + _CLOCKS_DIFFER_S), lease.is_unclean)
                for lease in news.granted
            )
            self._driver.tell(GroupsGranted(tuple(later)))
        if news.recalled:
            self._driver.tell(GroupsRecalled(news.recalled))
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
        for part in visit_parts(histories):
            self._driver.tell(part)
            await asyncio.sleep(0)

    def _round_trips(self) -> Iterator[tuple[Site, float]]:
        """Round trips to the sites with connections."""
        by_peer = dict(self._fetcher.round_trips()) if self._options.measures_round_trips else {}
        for site, site_stats in self.crawl.stats.by_site.items() if by_peer else ():
            seconds = by_peer.get(site_stats.server.partition(" ")[0])
            if seconds is not None:
                yield site, seconds

    async def _report_sharing(self) -> None:
        while self._options.is_background:
            if (shared := link_shared(self._fetcher)) is not None:
                self._driver.tell(shared)
            await asyncio.sleep(_REPORT_EVERY_S)

    def _read_meter(self) -> None:
        """At every whole second of the shared clock, so that the readings of all collectors can be added
        up."""
        now = self._clock.now()
        self._at_second = (round(now), self._fetcher.bytes_received())
        until_next_s = math.floor(now + 0.5) + 1 - now
        self._second_timer = asyncio.get_running_loop().call_later(until_next_s, self._read_meter)

    async def _give_back(self) -> None:
        """Return quiet sites once all their results are committed."""
        crawl = self.crawl
        assert crawl.owned is not None
        next_batch = self._queue.packed + self._driver.has_unsaved
        busy = []
        for site, number in self._leaving.items():
            if not crawl.owned.is_quiet(site):
                busy.append(site)
            elif number is None:
                self._leaving[site] = next_batch
        if busy:
            self._driver.tell(SitesLeft(tuple(busy)))
        ready = [
            site
            for site, number in self._leaving.items()
            if number is not None and number <= self._queue.committed
        ]
        if ready:
            for site in ready:
                del self._leaving[site]
            await self._until_done(self._coordinator.give_back, ready)


# -- sites that come from other holders, as events for the engine -------------------------------------------


def sites_taken(now: Instant, taken: Taken, options: SessionOptions) -> SitesTaken:
    """From when on each site may be requested, and its rules."""
    rules: dict[Site, RobotsRules] = {}
    not_before: dict[Site, Instant] = {}
    for record in taken.snapshot.sites:
        if record.robots_text is not None and (record.robots_expires_at or 0) > now:
            rules[record.site] = rules_from_text(record.robots_text, options.user_agent_for(record.site))
        not_before[record.site] = Instant(record.free_at + _CLOCKS_DIFFER_S)
    for site, until in taken.unclean_until.items():
        delay_s = rules[site].crawl_delay_s if site in rules else None
        free_at = Instant(until + options.politeness.of(site).pause_s(delay_s))
        not_before[site] = max(free_at, not_before.get(site, free_at))
    return SitesTaken(taken.sites, taken.snapshot, rules, not_before)


def visit_parts(histories: Sequence[tuple[Site, bytes]]) -> Iterator[VisitHistories]:
    """Site by site, in parts."""
    of_site: dict[Site, list[bytes]] = {}
    for site, history in histories:
        of_site.setdefault(site, []).append(history)
    for site, visits in of_site.items():
        for begin in range(0, len(visits), _HISTORIES_AT_ONCE):
            yield VisitHistories(site, tuple(visits[begin : begin + _HISTORIES_AT_ONCE]))
