"""Yielding, tried on a simulated bottleneck: a queue that others and we fill together."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from headway.policy.background import Background
from headway.units import BytesPerSecond, Instant, Seconds

LINK = 1_000_000.0
"""What the simulated bottleneck carries, bytes per second."""
STEP_S = 0.05


def simulate(
    background: Background,
    others: Callable[[float], float],
    seconds: float,
    *,
    rtts_s: tuple[float, ...] = (0.03, 0.12),
    queue_limit_s: float = 0.5,
) -> list[tuple[float, float, float]]:
    """(time, our rate, wait in the queue) as both share the link; others never yield."""
    log = []
    queue_bytes = 0.0
    for number in range(int(seconds / STEP_S)):
        now = number * STEP_S
        path = number % len(rtts_s)
        wait_s = queue_bytes / LINK
        rate = background.sample(Instant(now), f"path {path}", Seconds(rtts_s[path] + wait_s))
        queue_bytes += (rate + others(now) - LINK) * STEP_S
        queue_bytes = min(max(0.0, queue_bytes), queue_limit_s * LINK)
        log.append((now, rate, wait_s))
    return log


def mean_rate(log: list[tuple[float, float, float]], begin: float, end: float) -> float:
    rates = [rate for now, rate, _ in log if begin <= now < end]
    return sum(rates) / len(rates)


def test_on_an_idle_link_the_whole_bound_is_used() -> None:
    background = Background(BytesPerSecond(800_000.0))
    log = simulate(background, lambda _: 0.0, 60)
    assert all(rate == 800_000.0 for _, rate, _ in log)


def test_it_gives_way_when_others_fill_the_link_and_comes_back_when_they_have_gone() -> None:
    background = Background(BytesPerSecond(800_000.0))
    log = simulate(background, lambda now: 700_000.0 if 20 <= now < 60 else 0.0, 100)
    assert mean_rate(log, 0, 20) == pytest.approx(800_000)
    assert mean_rate(log, 35, 60) < 330_000
    assert mean_rate(log, 35, 60) > 200_000, "what others leave is used"
    assert mean_rate(log, 80, 100) > 790_000


def test_the_wait_that_others_see_stays_near_the_target() -> None:
    background = Background(BytesPerSecond(800_000.0), target_s=Seconds(0.06))
    log = simulate(background, lambda now: 700_000.0 if now >= 5 else 0.0, 60)
    waits = sorted(wait for now, _, wait in log if now > 20)
    assert waits[len(waits) // 2] < 0.09
    assert waits[int(len(waits) * 0.95)] < 0.12


def test_it_never_goes_under_its_floor_nor_over_the_bound() -> None:
    background = Background(BytesPerSecond(800_000.0), floor_bytes_per_s=BytesPerSecond(20_000.0))
    log = simulate(background, lambda now: 3 * LINK if now > 5 else 0.0, 60)
    assert all(20_000.0 <= rate <= 800_000.0 for _, rate, _ in log)
    assert log[-1][1] == 20_000.0


def test_its_own_standing_queue_does_not_become_the_new_normal() -> None:
    # Over an hour the shortest round trips of an ever busy link are forgotten unless we look for them.
    background = Background(BytesPerSecond(2 * LINK))
    log = simulate(background, lambda _: 0.0, 3600, queue_limit_s=5.0)
    late = [wait for now, _, wait in log if now > 600]
    assert max(late) < 0.15
    assert mean_rate(log, 600, 3600) > 0.9 * LINK, "and stepping aside costs little"


def test_a_queue_at_one_server_slows_nobody_else() -> None:
    background = Background(BytesPerSecond(800_000.0))
    for number in range(400):
        now = Instant(number * STEP_S)
        background.sample(now, "quick", Seconds(0.02))
        background.sample(now, "overloaded", Seconds(0.02 + 0.01 * number))
    assert background.rate_bytes_per_s == 800_000.0


def test_a_new_bound_takes_effect_at_once_for_one_who_was_not_yielding() -> None:
    background = Background(BytesPerSecond(800_000.0))
    background.set_bound(BytesPerSecond(100_000.0))
    assert background.rate_bytes_per_s == 100_000.0
    background.set_bound(BytesPerSecond(900_000.0))
    assert background.rate_bytes_per_s == 900_000.0


def test_clock_jumps_and_impossible_round_trips_do_no_harm() -> None:
    background = Background(BytesPerSecond(800_000.0))
    for now, rtt_s in [
        (1e9, 0.05),
        (0.0, 0.05),
        (1e9, math.nan),
        (1e9 + 1, -1.0),
        (5e9, math.inf),
        (5e9 + 9, 0.05),
    ]:
        assert 0 < background.sample(Instant(now), "a", Seconds(rtt_s)) <= 800_000.0


def test_it_needs_a_finite_bound() -> None:
    with pytest.raises(ValueError, match="finite"):
        Background(BytesPerSecond(math.inf))
