"""An asyncio event loop on which waiting takes no time.

When no callback is ready the loop jumps to the next timer instead of sleeping, so an hour of timers runs
in milliseconds and the same way every time. It is for code that waits on timers, futures and queues; a
call in an executor takes no virtual time, and real sockets have no place here, since the jump would
overtake their answers.

    def test_three_pages_take_two_intervals() -> None:
        assert run_in_virtual_time(crawl_three_pages(interval_s=15)) == 30
"""

from __future__ import annotations

import asyncio
import math
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, TypeVar, TypeVarTuple, Unpack

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class DeadlockError(RuntimeError):
    """The loop has no timer, no ready callback and no call in an executor: it would wait for ever."""


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """`loop.time()` starts at `start_at` and moves only by jumps, each exactly to a timer's instant.

    Timers of one instant become ready in one iteration. `max_turns_at_an_instant` ends a program that
    keeps itself busy without ever letting time pass.
    """

    def __init__(self, start_at: float = 0.0, max_turns_at_an_instant: int = 1_000_000) -> None:
        self._now = float(start_at)
        self._calls_in_executor = 0
        super().__init__(_JumpingSelector(self, max_turns_at_an_instant))
        self._jump_to(self._now)

    def time(self) -> float:
        return self._now

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[Unpack[Ts]], T], *args: *Ts
    ) -> asyncio.Future[T]:
        future = super().run_in_executor(executor, func, *args)
        self._calls_in_executor += 1
        future.add_done_callback(self._left_executor)
        return future

    async def shutdown_default_executor(self, *args: Any, **kwargs: Any) -> None:
        self._calls_in_executor += 1  # it waits for a thread of its own
        try:
            await super().shutdown_default_executor(*args, **kwargs)
        finally:
            self._calls_in_executor -= 1

    def waits_for_a_thread(self) -> bool:
        return self._calls_in_executor > 0

    def jump_to_next_timer(self) -> None:
        # asyncio has no public way to ask for the next timer; now + timeout would miss it by a rounding.
        scheduled: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        self._jump_to(max(self._now, scheduled[0].when()))

    def _jump_to(self, instant: float) -> None:
        self._now = instant
        # asyncio runs a timer when `when < now + resolution`: exactly those that are due, however near the
        # next ones are. The usual 1 ns would run those early, and is lost in rounding at Unix times.
        self._clock_resolution = math.ulp(instant)

    def _left_executor(self, _: asyncio.Future[Any]) -> None:
        self._calls_in_executor -= 1


def run_in_virtual_time(coro: Coroutine[Any, Any, T], *, start_at: float = 0.0) -> T:
    """Like `asyncio.run`, on a new `VirtualTimeLoop`."""
    with asyncio.Runner(loop_factory=lambda: VirtualTimeLoop(start_at)) as runner:
        return runner.run(coro)


class _JumpingSelector(selectors.DefaultSelector):
    def __init__(self, loop: VirtualTimeLoop, max_turns_at_an_instant: int) -> None:
        super().__init__()
        self._loop = loop
        self._max_turns = max_turns_at_an_instant
        self._turns = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout > 0:
            if self._loop.waits_for_a_thread():
                return super().select(None)
            if events := super().select(0):
                return events
            if timeout is None:
                raise DeadlockError(
                    "nothing is scheduled and nothing is ready: some task waits for what nobody will do"
                )
            self._loop.jump_to_next_timer()
            self._turns = 0
            return []
        self._turns += 1
        if self._turns > self._max_turns:
            self._turns = 0  # the loop has yet to cancel its tasks
            raise RuntimeError(f"{self._max_turns} turns of the loop without time moving on: a busy loop")
        return super().select(0)
