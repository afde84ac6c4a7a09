"""Passes the engine's commands on: to the world, to the next commit, to the decision log."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, get_args

from headway.engine.decisions import decision_of
from headway.model.command import (
    Command,
    CutRequests,
    Decision,
    FetchPage,
    FetchRobots,
    FindServer,
    LoadPages,
    PageState,
    SaveSettled,
    Saving,
    SetCapacity,
    SetContention,
    SetRates,
    WakeAt,
)
from headway.policy.scope import Exclusion
from headway.units import Instant

# A commit that is too large for one turn of the event loop is split: rows on which nothing depends can wait.
#
# A page with ten thousand links to other hosts leaves ten thousand rows that say so. Writing them at once
# would delay every site by half a second; and if they were lost, nothing would be fetched twice.

AT_ONCE = 100
"""Rows in one commit that delay no site noticeably: three of the hundred milliseconds between two commits."""
_SHARE = 100
"""At least one row in this many waiting rows goes into each commit, so that their number is bounded."""

_NEVER_QUEUED = frozenset(Exclusion)


def spread(batch: Sequence[Saving]) -> tuple[Sequence[Saving], list[Saving]]:
    """The savings for this commit, and those for a later one."""
    if len(batch) <= AT_ONCE:
        return batch, []
    can_wait = [saving for saving in batch if _can_wait(saving)]
    taken = max(AT_ONCE, len(can_wait) // _SHARE)
    if len(can_wait) <= taken:
        return batch, []
    later = can_wait[taken:]
    kept = set(map(id, later))
    return [saving for saving in batch if id(saving) not in kept], later


def _can_wait(saving: Saving) -> bool:
    return (
        isinstance(saving, SaveSettled)
        and saving.state is PageState.EXCLUDED
        and saving.outcome.detail in _NEVER_QUEUED
    )


_SAVINGS = frozenset(get_args(Saving))
WorldCommand = FetchPage | FetchRobots | FindServer | CutRequests | SetRates | SetCapacity | SetContention

_FOR_WORLDS = frozenset(get_args(WorldCommand))


class World(Protocol):
    """Carries out commands: the live web, a graph, a recorded run, a script of a test.

    A live world (`runtime.driver.LiveWorld`) reports an event when it happens. A virtual world
    (`runtime.driver.VirtualWorld`) says when the next one will happen.
    """

    def start(self, now: Instant, command: WorldCommand) -> None:
        """Begin to carry out a command. The result of a request is reported later as an event."""
        ...


class Journal(Protocol):
    """Stores what must outlive the process."""

    def decide(self, decision: Decision) -> None: ...

    def save(self, batch: Sequence[Saving]) -> None: ...


class CommandRouter:
    """Passes the engine's commands on: to the world, to the decision log, to the next commit."""

    def __init__(self, world: World, journal: Journal) -> None:
        self._world = world
        self._journal = journal
        self.batch: list[Saving] = []
        """For the next commit."""
        self.to_load: list[LoadPages] = []
        """To be read from the store after that commit."""
        self.wake_at: Instant | None = None
        """When the engine asked for a tick; the driver takes it."""

    def carry_out(self, now: Instant, commands: Iterable[Command]) -> None:
        for command in commands:
            decision = decision_of(now, command)
            if decision is not None:
                self._journal.decide(decision)
            if type(command) in _SAVINGS:
                self.batch.append(command)  # type: ignore[arg-type]
            elif type(command) in _FOR_WORLDS:
                self._world.start(now, command)  # type: ignore[arg-type]
            elif isinstance(command, WakeAt):
                self.wake_at = command.at
            elif isinstance(command, LoadPages):
                self.to_load.append(command)
