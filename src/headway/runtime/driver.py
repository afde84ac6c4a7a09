"""The drivers: they pass the engine's commands on to a world, and what happens in the world to the engine as
events, in real time (`LiveDriver`) or in virtual time (`VirtualDriver`)."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

from headway.engine.decisions import decision_of, in_order
from headway.engine.machine import Engine
from headway.errors import HeadwayError, OutOfMemoryError, lacks_memory
from headway.model.command import (
    Command,
    CutRequests,
    Decision,
    FetchPage,
    FetchRobots,
    FindServer,
    LoadPages,
    SetCapacity,
    SetRates,
    WaitingRecord,
    WakeAt,
)
from headway.model.event import Draining, Event, FromOutside, Loaded, PagesLoaded, Seeded, Tick
from headway.model.page import Site
from headway.ports import Clock
from headway.runtime.commands import CommandRouter, Journal, World, spread
from headway.units import FOREVER, Instant, Seconds


def _running_s() -> float:
    """Time that has passed, including suspends of the machine, independent of changes of the system clock."""
    counts_suspends = hasattr(time, "CLOCK_BOOTTIME")
    return time.clock_gettime(time.CLOCK_BOOTTIME) if counts_suspends else time.monotonic()


class WallClock:
    """The time of day at its creation, plus the time that has passed since. If the system clock were set back
    by an hour, every site would otherwise get no request for an hour."""

    def __init__(
        self, time_of_day: Callable[[], float] = time.time, running_s: Callable[[], float] = _running_s
    ) -> None:
        self._running_s = running_s
        self._began_at = time_of_day() - running_s()

    def now(self) -> Instant:
        return Instant(self._began_at + self._running_s())


# The live driver is `VirtualDriver` plus waiting. Everything runs on one event loop: a collector calls
# `settle` when an answer has arrived, the pump passes on everything that has arrived since the last turn,
# and savings are committed in groups, the archive before the rows that refer to it.

FirstWaiting = Callable[[Site, int], Sequence[WaitingRecord]]
OnStep = Callable[[Instant, Event, Sequence[Command]], None]
LoadLater = Callable[[Sequence[LoadPages]], None]
COMMIT_EVERY_S = Seconds(0.1)
_LONGEST_PUT_OFF_S = 1.0
_OPENING_AT_ONCE_S = 0.01
"""The opening of a crawl of many sites has many events. Between slices of it, requests are started, answers
are taken in, and what was seeded is saved."""


class EventSink(Protocol):
    """Receives the events of a live world, on the event loop: the driver, or an object in front of it."""

    def tell(self, event: Event) -> None: ...

    def fail(self, problem: BaseException) -> None:
        """The result of a command cannot be stored; the crawl ends with this error."""
        ...


class LiveWorld(World, Protocol):
    """The web in real time. Each request for a page or robots.txt ends with one event, or with `fail`."""

    def attach(self, sink: EventSink) -> None:
        """Called once, before the first command."""
        ...

    def committed(self) -> None:
        """Everything that has settled until now is in the store."""
        ...

    async def aclose(self) -> None:
        """Abandon the requests in flight."""
        ...


class LiveDriver:
    def __init__(
        self,
        crawl: Engine,
        world: LiveWorld,
        journal: Journal,
        clock: Clock,
        *,
        commit_every_s: Seconds = COMMIT_EVERY_S,
        stays: bool = False,
        first_waiting: FirstWaiting | None = None,
        load_later: LoadLater | None = None,
    ) -> None:
        """`stays`: when everything is fetched it waits for more, until it is drained or stopped. If waiting
        pages spill to the store, `first_waiting` reads them from the store, or `load_later` requests them
        once the store has all earlier savings; their event follows later."""
        self._stays = stays
        self._first_waiting = first_waiting
        self._load_later = load_later
        self._crawl = crawl
        self._world = world
        world.attach(self)
        self._journal = journal
        self._clock = clock
        self._commit_every_s = commit_every_s
        self._inbox: list[Event] = []
        self._router = CommandRouter(world, journal)
        self._pump_scheduled = False
        self._is_commit_due = False
        self._commit_by = Instant(-FOREVER)
        self._wake_timer: asyncio.TimerHandle | None = None
        self._commit_timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._over: asyncio.Future[None] | None = None
        self._is_stopped = False
        self._is_draining = False
        self._opening: Iterator[Event] | None = None
        """The events with which the crawl begins, as far as they have not been applied yet."""
        self.on_step: OnStep | None = None
        """Called with each step of the engine, in order: the same events at the same instants, passed to a
        new engine, give the same commands."""

    async def run(self, opening: Iterable[Event]) -> None:
        """Run until the engine has finished, or `stop`; then everything is stored."""
        self._loop = asyncio.get_running_loop()
        self._over = self._loop.create_future()
        self._loop.set_exception_handler(self._on_lost_exception)
        self._opening = iter(opening)
        self._schedule_pump()
        try:
            if self._is_stopped:
                self._open()
                self.stop()
            await self._over
        finally:
            self._loop.set_exception_handler(None)
            for timer in (self._wake_timer, self._commit_timer):
                if timer is not None:
                    timer.cancel()
            await self._world.aclose()
            self._take_in_the_rest()
            self._commit(is_last=True)

    def tell(self, event: Event) -> None:
        """Pass on an event from outside: the capacity has changed, a person wants to drain the crawl."""
        self._inbox.append(event)
        self._schedule_pump()

    def drain(self) -> None:
        self._stays = False
        self._is_draining = True
        self.tell(Draining())

    def stop(self) -> None:
        """Stop at once: requests in flight are abandoned and repeated by the next run."""
        self._is_stopped = True  # perhaps before the first turn of `run`
        if self._over is not None and not self._over.done():
            self._over.set_result(None)

    @property
    def has_unsaved(self) -> bool:
        """Whether the engine has decided on anything that the journal has not saved: then a commit follows.

        Events that the engine has not seen do not count: most of them save nothing, so that a commit might
        never come. A page whose answer is among them is still busy for the engine."""
        return bool(self._router.batch)

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
            self._open()
            self._take_in()
            # Only here is the inbox empty: the archive is committed as far as it is written, and each page in
            # it must have its row.
            if self._is_commit_due and self._has_all_links():
                self._commit()
                self._load_requested()
            if self._crawl.is_finished and not self._stays and self._opening is None:
                self.stop()
        except Exception as problem:
            # Any error ends the crawl, after everything known has been saved.
            self.fail(problem)

    def _open(self) -> None:
        """Apply the next part of the opening."""
        if self._opening is None:
            return
        until_s = time.perf_counter() + _OPENING_AT_ONCE_S
        for event in self._opening:
            now = self._clock.now()
            self._carry_out(now, self._step(now, event))
            if self._is_draining and isinstance(event, Seeded):
                break  # what is not in the store yet is added by the next run
            if time.perf_counter() >= until_s:
                self._is_commit_due = True
                self._commit_by = now
                self._schedule_pump()
                return
        self._opening = None

    def _take_in(self) -> None:
        events, self._inbox = in_order(self._inbox), []
        now = self._clock.now()
        for event in events:
            self._carry_out(now, self._step(now, event))
        if (problem := self._crawl.problem) is not None:
            self.fail(problem)

    def _carry_out(self, now: Instant, commands: Sequence[Command]) -> None:
        router = self._router
        router.carry_out(now, commands)
        if router.batch or router.to_load:
            self._schedule_commit()
        if router.wake_at is not None:
            self._set_alarm(now, router.wake_at)
            router.wake_at = None

    def _step(self, now: Instant, event: Event) -> Sequence[Command]:
        commands = self._crawl.step(now, event)
        if self.on_step is not None:
            self.on_step(now, event, commands)
        return commands

    def _has_all_links(self) -> bool:
        """A page with very many links is saved with all of them. They are added over several turns, within a
        time limit."""
        if self._crawl.has_pending_links and self._clock.now() < self._commit_by:
            return False
        self._add_pending_links()
        return True

    def _add_pending_links(self) -> None:
        while self._crawl.has_pending_links:
            now = self._clock.now()
            self._carry_out(now, self._step(now, Tick()))

    def _take_in_the_rest(self) -> None:
        """Answers of the last moment are in the archive: without rows they would be fetched twice."""
        assert self._over is not None
        failed_by_us = not self._over.cancelled() and not isinstance(
            self._over.exception(), HeadwayError | None
        )
        if not failed_by_us:
            self._add_pending_links()
            self._step(self._clock.now(), Draining())
            self._take_in()
            self._add_pending_links()

    def _set_alarm(self, now: Instant, at: Instant) -> None:
        assert self._loop is not None
        if self._wake_timer is not None:
            self._wake_timer.cancel()
        self._wake_timer = None
        if at < FOREVER:
            self._wake_timer = self._loop.call_later(max(0.0, at - now), self.tell, Tick())

    # -- saving -----------------------------------------------------------------------------------------

    def _schedule_commit(self) -> None:
        if self._commit_timer is None and self._loop is not None:
            self._commit_timer = self._loop.call_later(self._commit_every_s, self._commit_soon)

    def _commit_soon(self) -> None:
        self._is_commit_due = True
        self._commit_by = Instant(self._clock.now() + _LONGEST_PUT_OFF_S)
        self._schedule_pump()

    def _commit(self, *, is_last: bool = False) -> None:
        self._commit_timer = None
        self._is_commit_due = False
        if self._router.batch:
            batch, later = (self._router.batch, []) if is_last else spread(self._router.batch)
            # Savings that could not be written stay first in the queue: later rows may depend on them.
            self._journal.save(batch)
            self._router.batch = later
            self._world.committed()
            if later:
                self._schedule_commit()

    def _load_requested(self) -> None:
        """Here the journal has saved all waiting pages, so that a local store has them, too."""
        if not self._router.to_load:
            return
        if self._load_later is not None:
            to_load, self._router.to_load = self._router.to_load, []
            self._load_later(to_load)
            return
        assert self._first_waiting is not None
        loads = []
        for wish in self._router.to_load:
            waiting = tuple(self._first_waiting(wish.site, wish.most))
            loads.append(Loaded(wish.site, waiting, is_all=len(waiting) < wish.most))
        self._router.to_load = []
        now = self._clock.now()
        self._carry_out(now, self._step(now, PagesLoaded(tuple(loads))))

    def _on_lost_exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Without memory a callback may end in the middle, and its page would never settle."""
        if lacks_memory(context.get("exception")):
            self.fail(OutOfMemoryError())
        else:
            loop.default_exception_handler(context)

    def fail(self, problem: BaseException) -> None:
        """End the crawl because of an error, in the driver or outside."""
        assert self._over is not None
        if lacks_memory(problem):
            problem = OutOfMemoryError()
        if not self._over.done():
            self._over.set_exception(problem)


# A world carries out the engine's commands: the live web, a graph, a recorded run, a script.
#
# The engine asks for four things: a page, a robots.txt, rates for sites, a capacity for the link. A world
# turns these into events. A live world reports an event when it happens; a virtual world says when the next
# one will happen, and returns it when the driver's clock has reached that time. Both drivers pass on the
# events of one instant in the order of `engine.decisions.in_order`, so the same events give the same commands
# in both.


class VirtualWorld(World, Protocol):
    """A web and a link in virtual time."""

    def next_at(self) -> Instant:
        """When the next event happens; FOREVER if nothing is in progress."""
        ...

    def settle(self, now: Instant) -> Sequence[Event]:
        """The events until now."""
        ...


# In virtual time the engine runs as fast as the world can be computed. `LiveDriver` is this loop plus
# waiting: both pass on the events of one instant in the same order, so both make the same decisions.


class VirtualClock:
    """The clock of a crawl that begins at a given instant."""

    def __init__(self, at: Instant) -> None:
        self._at = at

    def now(self) -> Instant:
        return self._at


class VirtualDriver:
    def __init__(
        self,
        engine: Engine,
        world: VirtualWorld,
        *,
        log: Callable[[Decision], None] | None = None,
        on_command: Callable[[Instant, Command], None] | None = None,
    ) -> None:
        self._engine = engine
        self._world = world
        self._log = log
        self._on_command = on_command
        self._wake_at = FOREVER
        self.alarm: Callable[[Instant, Instant], Instant] = lambda now, at: at
        """When a timer that is set now for an instant fires: then. Real timers are late; a world with
        recorded answers brings its own ticks, and lets no timer fire."""
        self.on_step: OnStep | None = None
        """Called with each step of the engine, as by the live driver."""

    def run(
        self,
        opening: Sequence[Event],
        *,
        start_at: Instant = Instant(0.0),
        outside: Iterable[tuple[Instant, FromOutside]] = (),
        until: Instant = FOREVER,
    ) -> Instant:
        """Run to the end of the crawl, or `until`, and return when that was. Later events from outside do not
        happen."""
        coming = deque(sorted(outside, key=lambda timed: timed[0]))
        now, events = start_at, list(opening)
        while True:
            for event in events:
                commands = self._engine.step(now, event)
                if self.on_step is not None:
                    self.on_step(now, event, commands)
                for command in commands:
                    self._carry_out(now, command)
            if (problem := self._engine.problem) is not None:
                raise problem
            if self._engine.is_finished:
                return now
            from_outside = min(self._world.next_at(), coming[0][0] if coming else FOREVER)
            next_at = min(from_outside, self._wake_at)
            if next_at > until:
                return until
            # The planner of a paused crawl looks again each second, forever.
            is_idle = not self._engine.in_flight and from_outside == FOREVER
            is_stuck = self._engine.bound.is_paused and is_idle
            if next_at == FOREVER or is_stuck:
                raise HeadwayError("the simulated crawl waits for something that will never happen")
            now = max(now, next_at)
            events = list(self._world.settle(now))
            while coming and coming[0][0] <= now:
                events.append(coming.popleft()[1])
            if self._wake_at <= now:
                self._wake_at = FOREVER
                events.append(Tick())
            events = in_order(events)

    def _carry_out(self, now: Instant, command: Command) -> None:
        if self._log is not None and (decision := decision_of(now, command)) is not None:
            self._log(decision)
        if self._on_command is not None:
            self._on_command(now, command)
        match command:
            case FetchPage() | FetchRobots() | FindServer() | CutRequests() | SetRates() | SetCapacity():
                self._world.start(now, command)
            case WakeAt(at):
                self._wake_at = self.alarm(now, at)
            case _:
                pass  # what a run folder would store


def simulate(
    engine: Engine,
    world: VirtualWorld,
    opening: Sequence[Event],
    *,
    start_at: Instant = Instant(0.0),
    log: Callable[[Decision], None] | None = None,
    on_command: Callable[[Instant, Command], None] | None = None,
) -> Instant:
    """Run an engine that was built without a job."""
    return VirtualDriver(engine, world, log=log, on_command=on_command).run(opening, start_at=start_at)
