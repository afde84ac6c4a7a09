"""Waiting costs nothing, happens in order, and never for ever."""

from __future__ import annotations

import asyncio
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.clock import LoopClock, ManualClock
from tests.support.virtualtime import DeadlockError, VirtualTimeLoop, run_in_virtual_time


def test_a_year_of_sleep_passes_at_once() -> None:
    async def sleep_a_year() -> float:
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        await asyncio.sleep(365 * 86400)
        return loop.time() - began_at

    # Slept in earnest, it would end this test by the limit that all tests have.
    assert run_in_virtual_time(sleep_a_year()) == 365 * 86400


@given(
    start_at=st.floats(0, 4e9),
    delays_s=st.lists(st.floats(0, 1e7), min_size=1, max_size=20),
)
def test_every_timer_fires_exactly_at_its_instant_and_in_order(
    start_at: float, delays_s: list[float]
) -> None:
    async def watch() -> list[tuple[float, float]]:
        loop = asyncio.get_running_loop()
        fired: list[tuple[float, float]] = []
        dues = [start_at + delay_s for delay_s in delays_s]
        done = asyncio.Event()

        def fire(due: float) -> None:
            fired.append((due, loop.time()))
            if len(fired) == len(dues):
                done.set()

        for due in dues:
            loop.call_at(due, fire, due)
        await done.wait()
        return fired

    fired = run_in_virtual_time(watch(), start_at=start_at)
    assert [due for due, _ in fired] == sorted(due for due, _ in fired)
    for due, at in fired:
        assert at == pytest.approx(due, rel=1e-15, abs=2e-9)


@pytest.mark.parametrize("start_at", [0.0, 1.7e9, 1_789_000_000.123])
def test_timers_of_one_instant_fire_in_one_iteration(start_at: float) -> None:
    async def watch() -> list[str]:
        loop = asyncio.get_running_loop()
        happened: list[str] = []

        def fire() -> None:
            happened.append("timer")
            loop.call_soon(happened.append, "next iteration")

        for _ in range(5):
            loop.call_at(start_at + 0.1, fire)
        await asyncio.sleep(1)
        return happened

    assert run_in_virtual_time(watch(), start_at=start_at) == ["timer"] * 5 + ["next iteration"] * 5


def test_waiting_for_nothing_raises_instead_of_hanging() -> None:
    async def wait_for_nothing() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(DeadlockError, match="nothing is scheduled"):
        run_in_virtual_time(wait_for_nothing())


def test_a_busy_loop_is_ended() -> None:
    async def spin() -> None:
        while True:
            await asyncio.sleep(0)

    with (
        asyncio.Runner(loop_factory=lambda: VirtualTimeLoop(max_turns_at_an_instant=500)) as runner,
        pytest.raises(RuntimeError, match="busy loop"),
    ):
        runner.run(spin())


def test_a_call_in_a_thread_takes_no_virtual_time() -> None:
    async def ask_a_thread() -> tuple[str, float, bool]:
        loop = asyncio.get_running_loop()
        overtaken = loop.call_later(0.001, lambda: None)
        answer = await asyncio.to_thread(lambda: time.sleep(0.01) or "done")
        return answer, loop.time(), overtaken.when() > loop.time()

    assert run_in_virtual_time(ask_a_thread(), start_at=5) == ("done", 5.0, True)


def test_timeouts_are_kept_in_virtual_time() -> None:
    async def time_out() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(30):
                await asyncio.sleep(60)
        return LoopClock().now()

    assert run_in_virtual_time(time_out(), start_at=100) == 130


def test_the_order_of_events_is_the_same_every_time() -> None:
    async def race() -> list[tuple[int, float]]:
        finished: list[tuple[int, float]] = []

        async def run(number: int) -> None:
            for step in range(1, 6):
                await asyncio.sleep((number * step) % 7)
            finished.append((number, asyncio.get_running_loop().time()))

        await asyncio.gather(*(run(number) for number in range(40)))
        return finished

    assert run_in_virtual_time(race()) == run_in_virtual_time(race())


def test_a_manual_clock_moves_only_when_told() -> None:
    clock = ManualClock(10)
    assert clock.now() == clock.now() == 10
    assert clock.advance(2.5) == clock.now() == 12.5
    assert clock.advance_to(0.1 + 0.2 + 20) == 0.1 + 0.2 + 20


@pytest.mark.parametrize(
    "move", [lambda c: c.advance(-1), lambda c: c.advance(float("nan")), lambda c: c.advance_to(9)]
)
def test_a_manual_clock_never_runs_backwards(move) -> None:  # type: ignore[no-untyped-def]
    clock = ManualClock(10)
    with pytest.raises(ValueError, match="backwards"):
        move(clock)
    assert clock.now() == 10
