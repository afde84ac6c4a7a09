"""A hostile page is read beside the event loop, one at a time, and everything is put back after."""

from __future__ import annotations

import asyncio
import sys
import threading

import pytest

from headway.live.aside import Aside


async def test_the_loop_turns_while_work_is_done_aside() -> None:
    aside, turned = Aside(), threading.Event()
    asyncio.get_running_loop().call_soon(turned.set)
    assert await aside.run(turned.wait, 10.0), "the loop did not turn while the work waited for it"
    aside.close()


async def test_pieces_of_work_are_done_one_at_a_time() -> None:
    aside, at_once, most = Aside(), 0, 0

    def work() -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        threading.Event().wait(0.001)
        at_once -= 1

    await asyncio.gather(*(aside.run(work) for _ in range(8)))
    aside.close()
    assert most == 1


async def test_a_failure_aside_is_the_caller_s_and_the_switch_interval_is_put_back() -> None:
    before, aside = sys.getswitchinterval(), Aside()
    with pytest.raises(ValueError, match="no number"):
        await aside.run(int, "no number")
    assert sys.getswitchinterval() == before
    aside.close()
