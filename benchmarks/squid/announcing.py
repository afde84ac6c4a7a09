"""How many announcements a second the listener takes, at a steady rate and as fast as a helper can send them:
none may go uncounted."""

from __future__ import annotations

import asyncio
import multiprocessing
import tempfile
import time
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path

from headway.policy.scope import Scope
from headway.runtime.driver import WallClock
from headway.squid import helper
from headway.squid.listener import HelperSocket, Listener
from headway.squid.spool import Counters, Intake, PrivacyRules


def _send(path: str, count: int, rate: float, took_s: Synchronized[float]) -> None:
    announcer = helper.Announcer(path)
    began = time.perf_counter()
    for begin in range(0, count, 10):  # as they come from a busy Squid: a few at a time
        if rate:
            time.sleep(max(0.0, began + begin / rate - time.perf_counter()))
        announcer.announce([b"GET http://a.test/%d" % number for number in range(begin, begin + 10)])
    while announcer.backlog:
        announcer.flush()
        time.sleep(0.001)
    announcer.finish()
    took_s.value = time.perf_counter() - began


async def measure(count: int, rate: float = 0.0) -> dict[str, float]:
    """At so many a second, or as fast as it goes."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        intake = Intake(Scope(), PrivacyRules(), Counters())
        async with Listener(folder, [HelperSocket(folder / "s")], intake, WallClock()):
            spawning = multiprocessing.get_context("spawn")
            # By the sender's own watch: while it takes in what came, nobody here looks at one.
            took_s = spawning.Value("d", 0.0)
            sender = spawning.Process(target=_send, args=(str(folder / "s"), count, rate, took_s))
            sender.start()
            while sender.is_alive():
                await asyncio.sleep(0.005)
            sender.join()
        counters = intake.counters
        lost = sum(counters.lost.values())
    return {
        "announced_per_s": (counters.announced + lost) / took_s.value,
        "taken": counters.accepted,
        "lost_and_counted": lost,
        "uncounted": count - counters.announced - lost,
    }
