"""A crawl's clock goes on evenly, whatever becomes of the machine's."""

from __future__ import annotations

import time

from headway.runtime.driver import WallClock


def test_a_clock_that_is_set_meanwhile_moves_nothing() -> None:
    machine = {"time_of_day": 1_800_000_000.0, "running_s": 50.0}
    clock = WallClock(lambda: machine["time_of_day"], lambda: machine["running_s"])
    assert clock.now() == 1_800_000_000.0
    machine.update(time_of_day=1_799_996_400.0, running_s=51.0)
    assert clock.now() == 1_800_000_001.0
    machine.update(time_of_day=1_900_000_000.0, running_s=52.0)
    assert clock.now() == 1_800_000_002.0


def test_it_begins_with_the_time_of_day() -> None:
    before = time.time()
    now = WallClock().now()
    assert before - 0.1 <= now <= time.time() + 0.1
