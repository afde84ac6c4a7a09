"""Hostile pages are read in a worker thread, one at a time, and the switch interval is restored."""

from __future__ import annotations

import asyncio
import sys
import threading

import pytest

from headway.runtime.isolated import WorkerThread


async def test_the_loop_turns_while_a_worker_thread_works() -> None:
    worker, turned = WorkerThread(), threading.Event()
    asyncio.get_running_loop().call_soon(turned.set)
    assert await worker.run(turned.wait, 10.0), "the loop did not turn while the work waited for it"
    worker.close()


async def test_pieces_of_work_are_done_one_at_a_time() -> None:
    worker, at_once, most = WorkerThread(), 0, 0

    def work() -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        threading.Event().wait(0.001)
        at_once -= 1

    await asyncio.gather(*(worker.run(work) for _ in range(8)))
    worker.close()
    assert most == 1


async def test_a_failure_in_the_thread_is_raised_and_the_switch_interval_restored() -> None:
    before, worker = sys.getswitchinterval(), WorkerThread()
    with pytest.raises(ValueError, match="no number"):
        await worker.run(int, "no number")
    assert sys.getswitchinterval() == before
    worker.close()
