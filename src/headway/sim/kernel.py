"""Virtual time: the machine run against a world that is only described, as fast as it can be reckoned.

`live.driver` is this loop plus waiting: both feed what happened at one instant in the same order (answers
by the number of their lease, robots.txt by site, the tick last), so both take the same decisions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from headway.crawl.decisions import decision_of
from headway.crawl.machine import Crawl
from headway.errors import HeadwayError
from headway.model.command import Command, FetchPage, FetchRobots, Finished, SetCapacity, SetRates, WakeAt
from headway.model.decision import Decision
from headway.model.event import Event, Tick
from headway.units import FOREVER, Instant


class World(Protocol):
    """A web and a link, as a simulation knows them."""

    def start(self, now: Instant, command: FetchPage | FetchRobots | SetRates | SetCapacity) -> None: ...

    def next_at(self) -> Instant:
        """When something will have happened; FOREVER when nothing is under way."""
        ...

    def settle(self, now: Instant) -> Sequence[Event]:
        """What has happened by now, in the order of `crawl.inbox.in_order`."""
        ...


def simulate(
    crawl: Crawl,
    world: World,
    opening: Sequence[Event],
    *,
    start_at: Instant = Instant(0.0),
    log: Callable[[Decision], None] | None = None,
    on_command: Callable[[Instant, Command], None] | None = None,
) -> Instant:
    """Run to the end of the crawl and return when that was."""
    now, wake_at, events = start_at, FOREVER, list(opening)
    while True:
        for event in events:
            for command in crawl.step(now, event):
                if log is not None and (decision := decision_of(now, command)) is not None:
                    log(decision)
                if on_command is not None:
                    on_command(now, command)
                match command:
                    case FetchPage() | FetchRobots() | SetRates() | SetCapacity():
                        world.start(now, command)
                    case WakeAt(at):
                        wake_at = at
                    case Finished():
                        return now
                    case _:
                        pass
        now = max(now, min(world.next_at(), wake_at))
        if now == FOREVER:
            raise HeadwayError("the simulated crawl waits for something that will never happen")
        events = list(world.settle(now))
        if wake_at <= now:
            wake_at = FOREVER
            events.append(Tick())
