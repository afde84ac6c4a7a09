"""Coordinates the worker processes of one machine. Only this process has the store open.

It keeps in memory what a fleet keeps in rows on a PostgreSQL server (`postgres`): members, holders of sites,
shares. These need not outlive the process, since workers end when their supervisor does. Everything else is
in the store of the run folder, which looks as if one process had crawled.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from headway.cluster.coordinator import (
    ALL,
    CODECS,
    CommitBatch,
    Coordinator,
    GroupLeases,
    Joined,
    LeaseOver,
    News,
    NewShare,
    Portion,
    Report,
    SiteOutlook,
    Taken,
)
from headway.cluster.leader import Fleet, Leader, Share, Standing, Unheld, is_soon_done, newest_of
from headway.cluster.rpc import Service
from headway.engine.site_queue import pages_held_each
from headway.model.command import AddSite, Copy, Order, Pause, SaveFound, SetDeadline, StopSite, WaitingRecord
from headway.model.page import Page, PageKey, Site
from headway.planning.allocator import SiteDemand
from headway.plugins import PluginError
from headway.ports import Clock, Original, Part
from headway.store.sqlite import SqliteStore
from headway.units import Instant, Seconds

_LEASE_S = Seconds(3600.0)
"""The death of a worker is noticed at once, since its connection ends. So a lease need not be short."""
_SITES_AT_ONCE = 500
_AWAITED_S = 2.0


class _Worker:
    def __init__(self, portion: Portion) -> None:
        self.portion = portion
        self.report = Report()
        self.shares: list[Share] = []
        self.coming: dict[Site, None] = {}
        self.held: set[Site] = set()
        self.asked_back: set[Site] = set()
        self.leaving: set[Site] = set()
        """Asked back, and not returned yet."""
        self.mail: list[Page] = []
        self.orders: list[Order] = []
        self.last_batch = 0


class LocalCoordinator:
    def __init__(
        self,
        started_at: Instant,
        store: SqliteStore,
        leader: Leader,
        save: Callable[[CommitBatch], None],
    ) -> None:
        self._started_at = started_at
        self._store = store
        self._leader = leader
        self._save = save
        self._workers: dict[int, _Worker] = {}
        self._last_worker = 0
        self._last_share = 0
        self._holder: dict[Site, int | None] = dict.fromkeys(store.sites_that_wait())
        self._unclean_until: dict[Site, Instant] = {}
        self._expired_shares: list[Share] = []
        """Shares of workers that have died, which are valid until they expire."""
        self._leases = GroupLeases()
        self._orders: dict[Site, list[Order]] = {}
        """Orders for a site, sent to each holder of it."""
        self._welcome: list[Order] = []
        """Orders sent to every worker that joins."""
        self.is_paused = False
        self.is_over = False
        self.is_closing = False
        """All workers have to leave."""
        self.awaited = 0
        """Until this many workers have joined, no sites are assigned, though not for long: the first worker
        would get all sites, and would have to return half of them."""
        self._awaited_until = Instant(0.0)
        self.wants_round = asyncio.Event()
        """Something has happened for which the next round should come at once."""

    @property
    def reports(self) -> list[Report]:
        return [worker.report for worker in self._workers.values()]

    def readings(self) -> list[tuple[int, int, int]]:
        """Of every worker: a second, and the bytes it had received until then."""
        return [
            (number, worker.report.second, worker.report.received_bytes)
            for number, worker in self._workers.items()
        ]

    def standing(self) -> Iterator[tuple[SiteDemand, SiteOutlook]]:
        """Every site that has a holder, as its holder sees it."""
        for report in self.reports:
            yield from zip(report.demands, report.outlooks, strict=False)

    def order(self, order: Order) -> None:
        """An order for all workers that it concerns, now and later. The pages of an added site are saved
        before."""
        match order:
            case SetDeadline(site) | StopSite(site):
                self._orders.setdefault(site, []).append(order)
                holder = self._workers.get(self._holder.get(site) or 0)
                concerned = [holder] if holder is not None and site in holder.held else []
            case AddSite(task, pages):
                order = AddSite(task, ())
                self._welcome.append(order)
                self._post((SaveFound(pages, is_elsewhere=True),))
                concerned = list(self._workers.values())
            case _:
                self.is_paused = isinstance(order, Pause)
                concerned = list(self._workers.values())
        for worker in concerned:
            worker.orders.append(order)

    # -- calls of workers -------------------------------------------------------------------------------

    def join(self, now: Instant, portion: Portion = ALL) -> Joined:
        self._last_worker += 1
        worker = self._workers[self._last_worker] = _Worker(portion)
        if self._last_worker == 1:
            self._awaited_until = Instant(now + _AWAITED_S)
        self.wants_round.set()
        worker.orders = [*self._welcome, *([Pause()] if self.is_paused else [])]
        return Joined(self._last_worker, self._started_at, now, time.monotonic(), _LEASE_S)

    def beat(self, now: Instant, number: int, report: Report) -> News:
        worker = self._worker(number)
        before, worker.report = worker.report, report
        runs_out = is_soon_done(report) and not is_soon_done(before)
        if runs_out or (before.active and not report.active):
            self.wants_round.set()
        worker.shares = [
            share for share in worker.shares if share.until_at > now and share.number >= report.taken_share
        ]
        mail, worker.mail = tuple(worker.mail), []
        taken = self._take(now, worker)
        orders, worker.orders = tuple(worker.orders), []
        asked_back, worker.asked_back = tuple(sorted(worker.asked_back)), set()
        worker.leaving.update(asked_back)
        granted, recalled = self._leases.exchange(number, report.wanted, report.released)
        newest = newest_of(worker.shares).get(number)
        share = None
        if newest is not None:
            share = NewShare(newest.number, newest.rate_bytes_per_s, Seconds(newest.until_at - now))
        return News(
            _LEASE_S,
            share,
            taken,
            asked_back,
            mail,
            orders,
            is_over=self.is_over,
            is_sent_away=self.is_closing,
            collectors=len(self._workers),
            # The processes of one machine are behind one link.
            link_uses=tuple(
                other.report.link_use
                for each, other in self._workers.items()
                if each != number and other.report.link_use is not None
            ),
            granted=granted,
            recalled=recalled,
        )

    def commit(self, number: int, batch_number: int, batch: CommitBatch) -> bool:
        """True: there is news, so the worker's next heartbeat should follow at once."""
        worker = self._worker(number)
        if batch_number > worker.last_batch:
            self._save(batch)
            worker.last_batch = batch_number
            self._post([saving for saving in batch.savings if isinstance(saving, SaveFound)])
        if not worker.report.active:
            self.wants_round.set()  # this may have been the last batch of the crawl
        has_sites = bool(worker.coming or worker.asked_back)
        return has_sites or self._leases.has_news(number) or self.is_over or self.is_closing

    def give_back(self, number: int, sites: Sequence[Site]) -> None:
        worker = self._worker(number)
        for site in sites:
            if site in worker.held:
                worker.held.discard(site)
                worker.leaving.discard(site)
                self._holder[site] = None
                self.wants_round.set()

    def find_originals(self, digests: Sequence[str]) -> dict[str, tuple[Original, str]]:
        found = {digest: self._store.find_digest(digest) for digest in digests}
        return {
            digest: (original, self._store.payload_digest_of(digest) or digest)
            for digest, original in found.items()
            if original is not None
        }

    def find_copies(self, pages: Sequence[Page]) -> dict[tuple[Site, PageKey], Copy]:
        found = {(page.site, page.key): self._store.find_copy(page) for page in pages}
        return {which: copy for which, copy in found.items() if copy is not None}

    def first_waiting(self, now: Instant, number: int, site: Site, most: int) -> Sequence[WaitingRecord]:
        self._worker(number)
        return self._store.first_waiting(site, most, now)

    def leave(self, now: Instant, number: int) -> None:
        """It receives nothing from now on, so its shares are free."""
        worker = self._worker(number)
        for site in (*worker.held, *worker.coming):
            self._holder[site] = None
        del self._workers[number]
        self._leases.left(now, number)

    def died(self, now: Instant, number: int) -> None:
        """It may have sent requests to its sites until just now. Its shares are valid until they expire."""
        worker = self._workers.pop(number, None)
        if worker is None:
            return
        self._expired_shares += worker.shares
        self._leases.left(now, number)
        for site in worker.held:
            self._holder[site] = None
            self._unclean_until[site] = now
        for site in worker.coming:
            self._holder[site] = None

    # -- leading ----------------------------------------------------------------------------------------

    def round(self, now: Instant) -> None:
        self.wants_round.clear()
        if len(self._workers) < self.awaited and (not self._workers or now < self._awaited_until):
            return
        self.awaited = 0
        numbers = {site: number for number, site in enumerate(self._holder)}
        names = list(self._holder)
        self._expired_shares = [share for share in self._expired_shares if share.until_at > now]
        shares = [
            share for worker in self._workers.values() for share in worker.shares
        ] + self._expired_shares
        fleet = Fleet(
            collectors=[self._standing(number, worker) for number, worker in self._workers.items()],
            shares=shares,
            taken={number: worker.report.taken_share for number, worker in self._workers.items()},
            unheld=[Unheld(numbers[site]) for site, holder in self._holder.items() if holder is None],
        )
        orders = self._leader.decide(now, fleet)
        for share in orders.shares:
            self._last_share += 1
            new = Share(share.collector, share.rate_bytes_per_s, share.until_at, self._last_share)
            self._workers[share.collector].shares.append(new)
        for number, holder in orders.assigned.items():
            self._holder[names[number]] = holder
            self._workers[holder].coming[names[number]] = None
        for holder, sites in orders.asked_back.items():
            worker = self._workers[holder]
            worker.asked_back |= (set(sites) & worker.held) - worker.leaving
        if orders.may_end and self._workers and not self._store.sites_that_wait():
            self.is_over = True

    def _standing(self, number: int, worker: _Worker) -> Standing:
        return Standing(
            number,
            "",
            worker.report,
            worker.report.taken_share,
            coming=len(worker.coming),
            leaving=len(worker.asked_back) + len(worker.leaving),
        )

    def _take(self, now: Instant, worker: _Worker) -> Taken | None:
        if not worker.coming or self.is_closing:
            return None
        sites = list(worker.coming)[:_SITES_AT_ONCE]
        for site in sites:
            del worker.coming[site]
        worker.held.update(sites)
        worker.orders += [order for site in sites for order in self._orders.get(site, ())]
        unclean = {site: self._unclean_until.pop(site) for site in sites if site in self._unclean_until}
        most = worker.portion.most_waiting
        part = None if most is None else Part(pages_held_each(most, len(worker.held)), now)
        snapshot = self._store.load_sites(self._started_at, sites, part)
        histories = self._store.histories(sites) if worker.portion.histories else ()
        return Taken(frozenset(sites), snapshot, unclean, histories)

    def _post(self, found: Sequence[SaveFound]) -> None:
        """Pages for sites of other workers, for their holders; they are in the store already."""
        for saving in found:
            if not saving.is_elsewhere:
                continue
            for page in saving.pages:
                holder = self._holder.setdefault(page.site, None)
                if holder is not None and page.site in self._workers[holder].held:
                    self._workers[holder].mail.append(page)

    def _worker(self, number: int) -> _Worker:
        worker = self._workers.get(number)
        if worker is None:
            raise LeaseOver(f"worker {number} is no longer a member")
        return worker


# -- worker processes ---------------------------------------------------------------------------------------


class WorkerTask(msgspec.Struct, frozen=True):
    """The first request of a worker process."""

    job: dict[str, Any]
    folder: str
    has_rounds: bool
    most_held: int
    commit_every_s: Seconds
    secret: bytes = b""
    """For the keys of pages."""


class WorkerCalls(Coordinator, Protocol):
    """All calls of a worker process."""

    async def task(self) -> WorkerTask: ...

    async def fail(self, reason: str) -> None:
        """A user's object has failed, as it would in any other worker: the crawl has to end."""
        ...


WORKER_CALLS = Service(WorkerCalls, raises=(LeaseOver,), gone=LeaseOver, codecs=CODECS)


class WorkerSession:
    """The calls of one worker process. Implements `WorkerCalls`."""

    def __init__(self, coordinator: LocalCoordinator, clock: Clock, task: WorkerTask) -> None:
        self._coordinator = coordinator
        self._clock = clock
        self._task = task
        self._number = 0

    async def task(self) -> WorkerTask:
        return self._task

    async def fail(self, reason: str) -> None:
        raise PluginError(reason)  # not raised in the worker: it ends the serving of this worker

    async def join(self, portion: Portion = ALL) -> Joined:
        joined = self._coordinator.join(self._clock.now(), portion)
        self._number = joined.collector
        return joined

    async def beat(self, report: Report) -> News:
        return self._coordinator.beat(self._clock.now(), self._number, report)

    async def commit(self, number: int, batch: CommitBatch) -> bool:
        return self._coordinator.commit(self._number, number, batch)

    async def first_waiting(self, site: Site, most: int) -> Sequence[WaitingRecord]:
        return self._coordinator.first_waiting(self._clock.now(), self._number, site, most)

    async def find_originals(self, digests: Sequence[str]) -> Mapping[str, tuple[Original, str]]:
        return self._coordinator.find_originals(digests)

    async def find_copies(self, pages: Sequence[Page]) -> Mapping[tuple[Site, PageKey], Copy]:
        return self._coordinator.find_copies(pages)

    async def give_back(self, sites: Sequence[Site]) -> None:
        self._coordinator.give_back(self._number, sites)

    async def leave(self) -> None:
        self._coordinator.leave(self._clock.now(), self._number)

    def died(self) -> None:
        """Its connection has ended, in good order or not."""
        self._coordinator.died(self._clock.now(), self._number)
