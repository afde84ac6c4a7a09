"""Real time: the machine's orders turned into requests, and what comes of them into facts.

This is `sim.kernel` plus waiting. Everything runs on one event loop: a collector calls `settle` when an
answer is in, the pump feeds what has come since the last turn, and what is to be kept is committed in
groups, the archive before the rows that point into it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from headway.crawl.inbox import in_order
from headway.crawl.machine import Crawl
from headway.errors import HeadwayError
from headway.live.orders import Hands, Journal, Orders
from headway.live.spreading import spread
from headway.model.command import LoadPages
from headway.model.event import Draining, Event, Loaded, PagesLoaded, Tick
from headway.model.page import Site
from headway.model.snapshot import WaitingRecord
from headway.ports import Clock
from headway.units import FOREVER, Instant, Seconds

FirstWaiting = Callable[[Site, int], Sequence[WaitingRecord]]
LoadLater = Callable[[Sequence[LoadPages]], None]
COMMIT_EVERY_S = Seconds(0.1)
_LONGEST_PUT_OFF_S = 1.0


class Collector(Hands, Protocol):
    def committed(self) -> None:
        """Everything settled until now is in the store."""
        ...

    async def aclose(self) -> None:
        """Abandon what is under way."""
        ...


class LiveDriver:
    def __init__(
        self,
        crawl: Crawl,
        collector: Collector,
        journal: Journal,
        clock: Clock,
        *,
        commit_every_s: Seconds = COMMIT_EVERY_S,
        stays: bool = False,
        first_waiting: FirstWaiting | None = None,
        load_later: LoadLater | None = None,
    ) -> None:
        """`stays`: with nothing left to fetch it waits for what may come, until it is drained or stopped.
        Where pages that wait spill to the store, `first_waiting` reads it, or `load_later` has it read when
        it has what the journal was told, and tells of it then."""
        self._stays = stays
        self._first_waiting = first_waiting
        self._load_later = load_later
        self._crawl = crawl
        self._collector = collector
        self._journal = journal
        self._clock = clock
        self._commit_every_s = commit_every_s
        self._inbox: list[Event] = []
        self._orders = Orders(collector, journal, self, self.tell, self.fail)
        self._pump_scheduled = False
        self._is_commit_due = False
        self._commit_by = Instant(-FOREVER)
        self._wake_timer: asyncio.TimerHandle | None = None
        self._commit_timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._over: asyncio.Future[None] | None = None
        self._is_stopped = False

    async def run(self, opening: Sequence[Event]) -> None:
        """Until the machine says that it has finished, or `stop`; then everything is on disk."""
        self._loop = asyncio.get_running_loop()
        self._over = self._loop.create_future()
        for event in opening:
            self.tell(event)
        if self._is_stopped:
            self.stop()
        try:
            await self._over
        finally:
            for timer in (self._wake_timer, self._commit_timer):
                if timer is not None:
                    timer.cancel()
            await self._collector.aclose()
            self._take_in_the_rest()
            self._commit(is_last=True)

    def tell(self, event: Event) -> None:
        """A fact from outside: the capacity has changed, somebody wants the crawl to drain."""
        self._inbox.append(event)
        self._schedule_pump()

    def drain(self) -> None:
        self._stays = False
        self.tell(Draining())

    def stop(self) -> None:
        """At once: what is under way is abandoned and will be fetched again by the next run."""
        self._is_stopped = True  # perhaps before the first turn of `run`
        if self._over is not None and not self._over.done():
            self._over.set_result(None)

    @property
    def has_unsaved(self) -> bool:
        """Whether anything has come that the journal has not been told of."""
        return bool(self._inbox or self._orders.batch)

    def finish(self) -> None:
        """The machine says that there is nothing left."""
        if not self._stays:
            self.stop()

    # -- the pump ---------------------------------------------------------------------------------------

    def _schedule_pump(self) -> None:
        if not self._pump_scheduled and self._loop is not None:
            self._pump_scheduled = True
            self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        self._pump_scheduled = False
        assert self._over is not None
        if self._over.done():
            return
        try:
            self._take_in()
            # Only here is the inbox empty: the archive is committed as far as it is written, and each page
            # in it must have its row.
            if self._is_commit_due and self._is_all_told():
                self._commit()
                self._load_wished()
        except Exception as problem:
            # Whatever it is ends the crawl, after what is known has been saved.
            self.fail(problem)

    def _take_in(self) -> None:
        events, self._inbox = in_order(self._inbox), []
        now = self._clock.now()
        for event in events:
            self._orders.carry_out(now, self._crawl.step(now, event))

    def _is_all_told(self) -> bool:
        """A page of very many links is saved with all of them. They come by and by, but not for ever."""
        if self._crawl.has_rest and self._clock.now() < self._commit_by:
            return False
        self._hear_the_rest()
        return True

    def _hear_the_rest(self) -> None:
        while self._crawl.has_rest:
            now = self._clock.now()
            self._orders.carry_out(now, self._crawl.step(now, Tick()))

    def _take_in_the_rest(self) -> None:
        """Answers that came in the last moment are in the archive: without rows they would come twice."""
        assert self._over is not None
        failed_by_us = not self._over.cancelled() and not isinstance(
            self._over.exception(), HeadwayError | None
        )
        if not failed_by_us:
            self._hear_the_rest()
            self._crawl.step(self._clock.now(), Draining())
            self._take_in()
            self._hear_the_rest()

    def set_alarm(self, now: Instant, at: Instant) -> None:
        assert self._loop is not None
        if self._wake_timer is not None:
            self._wake_timer.cancel()
        self._wake_timer = None
        if at < FOREVER:
            self._wake_timer = self._loop.call_later(max(0.0, at - now), self.tell, Tick())

    # -- keeping ----------------------------------------------------------------------------------------

    def schedule_commit(self) -> None:
        if self._commit_timer is None and self._loop is not None:
            self._commit_timer = self._loop.call_later(self._commit_every_s, self._commit_soon)

    def _commit_soon(self) -> None:
        self._is_commit_due = True
        self._commit_by = Instant(self._clock.now() + _LONGEST_PUT_OFF_S)
        self._schedule_pump()

    def _commit(self, *, is_last: bool = False) -> None:
        self._commit_timer = None
        self._is_commit_due = False
        if self._orders.batch:
            batch, later = (self._orders.batch, []) if is_last else spread(self._orders.batch)
            # What could not be saved stays first in line: later rows may build on it.
            self._journal.save(batch)
            self._orders.batch = later
            self._collector.committed()
            if later:
                self.schedule_commit()

    def _load_wished(self) -> None:
        """Here the journal knows of all that waits; a store that is at hand has it, too."""
        if not self._orders.wished:
            return
        if self._load_later is not None:
            wished, self._orders.wished = self._orders.wished, []
            self._load_later(wished)
            return
        assert self._first_waiting is not None
        loads = []
        for wish in self._orders.wished:
            waiting = tuple(self._first_waiting(wish.site, wish.most))
            loads.append(Loaded(wish.site, waiting, is_all=len(waiting) < wish.most))
        self._orders.wished = []
        now = self._clock.now()
        self._orders.carry_out(now, self._crawl.step(now, PagesLoaded(tuple(loads))))

    def fail(self, problem: BaseException) -> None:
        """Something went wrong, here or beside the crawl, that it cannot go on without."""
        assert self._over is not None
        if not self._over.done():
            self._over.set_exception(problem)
