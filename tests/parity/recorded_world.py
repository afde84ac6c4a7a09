"""A world in virtual time that answers as a recorded crawl was answered, at the same instants."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence

from headway.engine.machine import Engine
from headway.model.command import Decision, FetchPage, FetchRobots
from headway.model.event import Event, PageSettled, RobotsSettled
from headway.runtime.commands import WorldCommand
from headway.runtime.driver import VirtualDriver
from headway.units import FOREVER, Instant

from recording import Recording


class RecordedWorld:
    """Pages and robots.txt are answered if they were asked for; the rest came from people and timers."""

    def __init__(self, events: Sequence[tuple[Instant, Event]]) -> None:
        self._coming = deque(events)
        self._asked: Counter[tuple[object, ...]] = Counter()

    def start(self, now: Instant, command: WorldCommand) -> None:
        match command:
            case FetchPage(lease):
                self._asked[lease.number, lease.page.url, lease.attempt] += 1
            case FetchRobots(site):
                self._asked[site,] += 1
            case _:
                pass  # the answers came at the recorded instants, whatever the rates

    def next_at(self) -> Instant:
        return self._coming[0][0] if self._coming else FOREVER

    def settle(self, now: Instant) -> Sequence[Event]:
        at, event = self._coming.popleft()
        match event:
            case PageSettled(lease):
                self._take((lease.number, lease.page.url, lease.attempt), at)
            case RobotsSettled(site):
                self._take((site,), at)
            case _:
                pass
        return [event]

    def _take(self, request: tuple[object, ...], at: Instant) -> None:
        assert self._asked[request], f"the live crawl asked for {request} before {at}, the simulator did not"
        self._asked[request] -= 1


def simulated_decisions(recording: Recording, engine: Engine, *, until: Instant = FOREVER) -> list[Decision]:
    """What the simulator's driver decides in the world of a recording."""
    decisions: list[Decision] = []
    events = recording.events()
    driver = VirtualDriver(engine, RecordedWorld(events), log=decisions.append)
    driver.alarm = lambda now, at: FOREVER
    driver.run([], start_at=events[0][0], until=until)
    return decisions
