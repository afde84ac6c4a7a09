"""Coordinates the worker processes of one machine: it alone has the store open, and knows who holds what.

The same as the rows of a PostgreSQL server are for machines, kept in memory: what must outlive the process is
in the store of the run folder, which looks as if one process had crawled.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from headway.fleet.assignment import Unheld
from headway.fleet.coordinator import (
    ALL,
    Joined,
    LeaseOver,
    News,
    NewShare,
    Parcel,
    Portion,
    Report,
    Taken,
)
from headway.fleet.leader import Fleet, Leader, Standing, is_soon_done
from headway.fleet.outlook import SiteOutlook
from headway.fleet.shares import Share
from headway.fleet.wire import Consignment
from headway.frontier.spilling import pages_held_each
from headway.model.command import SaveFound
from headway.model.copy import Copy
from headway.model.order import AddSite, Order, Pause, SetDeadline, StopSite
from headway.model.page import Page, PageKey, Site
from headway.model.snapshot import Snapshot, WaitingRecord
from headway.policy.allocation.demand import SiteDemand
from headway.ports import Original, Part
from headway.units import Instant, Seconds

_LEASE_S = Seconds(3600.0)
"""A worker that dies is heard to: its pipes close. So a lease need not be short."""
_SITES_AT_ONCE = 500
_AWAITED_S = 2.0


class Books(Protocol):
    """The part of a store that the office needs."""

    def load_sites(
        self, started_at: Instant, sites: Sequence[Site], part: Part | None = None
    ) -> Snapshot: ...

    def first_waiting(
        self, site: Site, most: int, due_by: Instant | None = None
    ) -> Sequence[WaitingRecord]: ...

    def histories(self, sites: Sequence[Site] | None = None) -> Sequence[tuple[Site, bytes]]: ...

    def find_copy(self, page: Page) -> Copy | None: ...

    def sites_that_wait(self) -> list[Site]: ...

    def find_digest(self, digest: str) -> Original | None: ...

    def payload_digest_of(self, digest: str) -> str | None: ...


class _Worker:
    def __init__(self, portion: Portion) -> None:
        self.portion = portion
        self.report = Report()
        self.shares: list[Share] = []
        self.coming: dict[Site, None] = {}
        self.held: set[Site] = set()
        self.asked_back: set[Site] = set()
        self.leaving: set[Site] = set()
        """Asked back, told so, and not given back yet."""
        self.mail: list[Page] = []
        self.orders: list[Order] = []
        self.last_batch = 0


class Office:
    def __init__(
        self,
        started_at: Instant,
        books: Books,
        leader: Leader,
        save: Callable[[Parcel], None],
    ) -> None:
        self._started_at = started_at
        self._books = books
        self._leader = leader
        self._save = save
        self._workers: dict[int, _Worker] = {}
        self._last_worker = 0
        self._last_share = 0
        self._holder: dict[Site, int | None] = dict.fromkeys(books.sites_that_wait())
        self._soiled_until: dict[Site, Instant] = {}
        self._graves: list[Share] = []
        """Shares of workers that have gone, which count until their time is over."""
        self._orders: dict[Site, list[Order]] = {}
        """What was ordered of a site: whoever takes it up is told."""
        self._welcome: list[Order] = []
        """What everybody who joins is told."""
        self.is_paused = False
        self.is_over = False
        self.is_closing = False
        """Everybody is sent away."""
        self.awaited = 0
        """Until so many have joined nothing is handed out, though not for long: who is first would have all,
        and would have to give the half of it back."""
        self._awaited_until = Instant(0.0)
        self.wants_round = False
        """Something has happened that the next round need not be waited for."""

    @property
    def reports(self) -> list[Report]:
        return [worker.report for worker in self._workers.values()]

    def readings(self) -> list[tuple[int, int, int]]:
        """Of every worker: at which second it had read how much."""
        return [
            (number, worker.report.second, worker.report.received_bytes)
            for number, worker in self._workers.items()
        ]

    def standing(self) -> Iterator[tuple[SiteDemand, SiteOutlook]]:
        """Every site that is held, as whoever holds it sees it."""
        for report in self.reports:
            yield from zip(report.demands, report.outlooks, strict=False)

    def order(self, order: Order) -> None:
        """To whom it concerns, now and later. The pages of a site that is added are saved before this."""
        match order:
            case SetDeadline(site) | StopSite(site):
                self._orders.setdefault(site, []).append(order)
                holder = self._workers.get(self._holder.get(site) or 0)
                told = [holder] if holder is not None and site in holder.held else []
            case AddSite(task, pages):
                order = AddSite(task, ())
                self._welcome.append(order)
                self._post((SaveFound(pages, is_elsewhere=True),))
                told = list(self._workers.values())
            case _:
                self.is_paused = isinstance(order, Pause)
                told = list(self._workers.values())
        for worker in told:
            worker.orders.append(order)

    # -- what workers ask -------------------------------------------------------------------------------

    def join(self, now: Instant, portion: Portion = ALL) -> Joined:
        self._last_worker += 1
        worker = self._workers[self._last_worker] = _Worker(portion)
        if self._last_worker == 1:
            self._awaited_until = Instant(now + _AWAITED_S)
        self.wants_round = True
        worker.orders = [*self._welcome, *([Pause()] if self.is_paused else [])]
        return Joined(self._last_worker, self._started_at, now, time.monotonic(), _LEASE_S)

    def beat(self, now: Instant, number: int, report: Report) -> News:
        worker = self._worker(number)
        before, worker.report = worker.report, report
        self.wants_round |= is_soon_done(report) and not is_soon_done(before)
        self.wants_round |= bool(before.active) and not report.active
        worker.shares = [
            share for share in worker.shares if share.until_at > now and share.number >= report.taken_share
        ]
        mail, worker.mail = tuple(worker.mail), []
        taken = self._take(now, worker)
        orders, worker.orders = tuple(worker.orders), []
        asked_back, worker.asked_back = tuple(sorted(worker.asked_back)), set()
        worker.leaving.update(asked_back)
        newest = max(worker.shares, key=lambda share: share.number, default=None)
        share = None
        if newest is not None:
            lasts_s = Seconds(newest.until_at - now)
            share = NewShare(newest.number, newest.rate_bytes_per_s, lasts_s)
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
        )

    def commit(self, number: int, consignment: Consignment) -> bool:
        """True: there is news that the worker need not wait for until its next beat."""
        worker = self._worker(number)
        if consignment.number > worker.last_batch:
            self._save(consignment.unpack())
            worker.last_batch = consignment.number
            self._post(consignment.found)
        # This may have been the last that was to come.
        self.wants_round |= not worker.report.active
        return bool(worker.coming or worker.asked_back or self.is_over or self.is_closing)

    def give_back(self, number: int, sites: Sequence[Site]) -> None:
        worker = self._worker(number)
        for site in sites:
            if site in worker.held:
                worker.held.discard(site)
                worker.leaving.discard(site)
                self._holder[site] = None
                self.wants_round = True

    def find_originals(self, digests: Sequence[str]) -> dict[str, tuple[Original, str]]:
        found = {digest: self._books.find_digest(digest) for digest in digests}
        return {
            digest: (original, self._books.payload_digest_of(digest) or digest)
            for digest, original in found.items()
            if original is not None
        }

    def find_copies(self, pages: Sequence[Page]) -> dict[tuple[Site, PageKey], Copy]:
        found = {(page.site, page.key): self._books.find_copy(page) for page in pages}
        return {which: copy for which, copy in found.items() if copy is not None}

    def first_waiting(self, now: Instant, number: int, site: Site, most: int) -> Sequence[WaitingRecord]:
        self._worker(number)
        return self._books.first_waiting(site, most, now)

    def leave(self, number: int) -> None:
        """It reads no more, so its shares are free."""
        worker = self._worker(number)
        for site in (*worker.held, *worker.coming):
            self._holder[site] = None
        del self._workers[number]

    def died(self, now: Instant, number: int) -> None:
        """What it held may have been asked until just now. Its shares are over only when their time is."""
        worker = self._workers.pop(number, None)
        if worker is None:
            return
        self._graves += worker.shares
        for site in worker.held:
            self._holder[site] = None
            self._soiled_until[site] = now
        for site in worker.coming:
            self._holder[site] = None

    # -- leading ----------------------------------------------------------------------------------------

    def round(self, now: Instant) -> None:
        self.wants_round = False
        if len(self._workers) < self.awaited and (not self._workers or now < self._awaited_until):
            return
        self.awaited = 0
        numbers = {site: number for number, site in enumerate(self._holder)}
        names = list(self._holder)
        self._graves = [share for share in self._graves if share.until_at > now]
        shares = [share for worker in self._workers.values() for share in worker.shares] + self._graves
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
        self._look_for_the_end()

    def _look_for_the_end(self) -> None:
        """A page under way still waits in the store, and its links are committed with it: when nothing waits
        there, nothing is to come."""
        is_busy = any(worker.report.active or worker.coming for worker in self._workers.values())
        if not is_busy and self._workers and not self._books.sites_that_wait():
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
        soiled = {site: self._soiled_until.pop(site) for site in sites if site in self._soiled_until}
        most = worker.portion.most_waiting
        part = None if most is None else Part(pages_held_each(most, len(worker.held)), now)
        snapshot = self._books.load_sites(self._started_at, sites, part)
        histories = self._books.histories(sites) if worker.portion.histories else ()
        return Taken(frozenset(sites), snapshot, soiled, histories)

    def _post(self, found: Sequence[SaveFound]) -> None:
        """Pages of others' sites, for whoever holds those; they are in the store already."""
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
            raise LeaseOver(f"worker {number} is no member any more")
        return worker
