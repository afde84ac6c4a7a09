"""The machine's orders passed on: to the collector, the batch that is saved next, and the decision log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, get_args

from headway.crawl.decisions import decision_of
from headway.model.command import (
    Command,
    FetchPage,
    FetchRobots,
    Finished,
    LoadPages,
    Saving,
    SetCapacity,
    SetRates,
    WakeAt,
)
from headway.model.decision import Decision
from headway.model.event import Again, Found, PageSettled, RobotsSettled
from headway.units import Instant

Settle = Callable[[PageSettled | RobotsSettled | Found | Again], None]
Fail = Callable[[BaseException], None]
_SAVINGS = frozenset(get_args(Saving))


class Hands(Protocol):
    """Carry out the orders that need the network. On the loop, `settle` is called once for each order,
    or `fail` if what came of it cannot be kept."""

    def start(self, command: FetchPage | FetchRobots, settle: Settle, fail: Fail) -> None: ...

    def set_rates(self, command: SetRates) -> None: ...

    def set_capacity(self, command: SetCapacity) -> None: ...


class Journal(Protocol):
    """Where what must outlive the process is written."""

    def decide(self, decision: Decision) -> None: ...

    def save(self, batch: Sequence[Saving]) -> None: ...


class Master(Protocol):
    """Who waits, commits and ends."""

    def schedule_commit(self) -> None: ...

    def set_alarm(self, now: Instant, at: Instant) -> None: ...

    def finish(self) -> None: ...


class Orders:
    def __init__(self, hands: Hands, journal: Journal, master: Master, settle: Settle, fail: Fail) -> None:
        self._hands = hands
        self._journal = journal
        self._master = master
        self._settle = settle
        self._fail = fail
        self.batch: list[Saving] = []
        """To be saved with the next commit."""
        self.wished: list[LoadPages] = []
        """To be read from the store after it."""

    def carry_out(self, now: Instant, commands: Iterable[Command]) -> None:
        for command in commands:
            decision = decision_of(now, command)
            if decision is not None:
                self._journal.decide(decision)
            if type(command) in _SAVINGS:
                if not self.batch:
                    self._master.schedule_commit()
                self.batch.append(command)  # type: ignore[arg-type]
            elif isinstance(command, FetchPage | FetchRobots):
                self._hands.start(command, self._settle, self._fail)
            elif isinstance(command, WakeAt):
                self._master.set_alarm(now, command.at)
            else:
                self._carry_out_rare(command)

    def _carry_out_rare(self, command: Command) -> None:
        match command:
            case LoadPages():
                self.wished.append(command)
                self._master.schedule_commit()
            case SetRates():
                self._hands.set_rates(command)
            case SetCapacity():
                self._hands.set_capacity(command)
            case Finished():
                self._master.finish()
            case _:
                pass  # it is in the decision log, from which whoever watches is told
