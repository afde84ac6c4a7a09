"""Crawlers on one link see one another's bytes: together they stay under the bound, and nobody waits for
one that is gone."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.model.page import Site
from headway.pacing.grants import SLOT_S, PeakGuard
from headway.pacing.shared_window import SharedGuard, SharedRateWindow, SpiderPacer

BOUND = 100_000.0


def supervisor(folder: Path, crawlers: int) -> tuple[SharedRateWindow, list[SharedGuard]]:
    master = SharedRateWindow(folder / "link", crawlers=crawlers)
    master.bound_bytes_per_s = BOUND
    # Each opens the file for itself, as processes do.
    return master, [SharedGuard(0.0, SharedRateWindow(folder / "link"), row) for row in range(crawlers)]


def greedy(guards: list[SharedGuard], sizes: list[float], latency_s: float) -> list[tuple[float, float]]:
    """All want more all the time; what was granted arrives after the latency. What arrived when."""
    due: list[tuple[float, int, float]] = []
    arrived: list[tuple[float, float]] = []
    for tick in range(800):
        now = tick * 0.005
        for number, guard in enumerate(guards):
            came = sum(size for at, row, size in due if row == number and at <= now)
            due = [one for one in due if one[1] != number or one[0] > now]
            if came:
                arrived.append((now, came))
            guard.observe(now, came, sum(size for _, row, size in due if row == number))
            if guard.fits(now, now + latency_s, sizes[number]):
                guard.reserve(now, now + latency_s, sizes[number])
                due.append((now + latency_s, number, sizes[number]))
    return arrived


def fullest_second(arrived: list[tuple[float, float]]) -> float:
    return max(sum(size for at, size in arrived if begin <= at < begin + 1.0) for begin, _ in arrived)


@given(
    sizes=st.lists(st.floats(500.0, 9_000.0), min_size=1, max_size=5),
    latency_s=st.floats(0.0, 0.2),
)
@settings(max_examples=15, deadline=None)
def test_all_together_stay_under_the_bound_and_use_it(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[float], latency_s: float
) -> None:
    _, guards = supervisor(tmp_path_factory.mktemp("link"), len(sizes))
    arrived = greedy(guards, sizes, latency_s)
    # A lump may come in the slot behind the one in which it was booked, and so into another second.
    assert fullest_second(arrived) <= 1.02 * BOUND + max(sizes)
    later = sum(size for at, size in arrived if 1.0 <= at < 4.0) / 3.0
    assert later > BOUND - 2 * max(sizes)


def test_one_alone_decides_as_the_usual_guard_does(tmp_path: Path) -> None:
    _, (shared,) = supervisor(tmp_path, 1)
    usual = PeakGuard(0.0, BOUND, 0.02)
    for step in range(400):
        now = step * 0.007
        size = 700.0 + 613.0 * (step % 7)
        arrives_at = now + 0.03 * (step % 4)
        fits = usual.fits(now, arrives_at, size)
        assert shared.fits(now, arrives_at, size) == fits
        if fits:
            usual.reserve(now, arrives_at, size)
            shared.reserve(now, arrives_at, size)
        if step % 3 == 0:
            usual.observe(now, 1_200.0, 30_000.0)
            shared.observe(now, 1_200.0, 30_000.0)


def test_what_another_has_on_its_way_is_not_granted_again(tmp_path: Path) -> None:
    _, (one, other) = supervisor(tmp_path, 2)
    one.reserve(0.0, 0.05, 95_000.0)
    assert other.fits(0.0, 0.05, 5_000.0)
    assert not other.fits(0.0, 0.05, 9_900.0)
    assert other.fits(1.2, 1.25, 9_900.0)


def test_no_crawler_waits_for_one_that_is_gone(tmp_path: Path) -> None:
    master, (one, other) = supervisor(tmp_path, 2)
    one.reserve(0.0, 0.5, 100_000.0)
    assert not other.fits(0.1, 0.2, 5_000.0)
    master.clear(0)
    assert other.fits(0.1, 0.2, 5_000.0)


def test_what_came_for_one_that_is_gone_is_still_part_of_the_second(tmp_path: Path) -> None:
    master, (one, other) = supervisor(tmp_path, 2)
    one.reserve(0.0, 0.1, 95_000.0)
    one.observe(0.1, 95_000.0, 0.0)
    master.clear(0)
    assert not other.fits(0.3, 0.3, 9_900.0)
    assert other.fits(1.2, 1.2, 9_900.0)


def test_the_successor_in_a_row_counts_what_arrived_for_the_one_before(tmp_path: Path) -> None:
    master, (one, other) = supervisor(tmp_path, 2)
    one.observe(0.5, 60_000.0, 0.0)
    one.observe(0.9, 35_000.0, 0.0)
    master.clear(0)
    successor = SharedGuard(1.0, SharedRateWindow(tmp_path / "link"), 0)
    successor.observe(1.0, 0.0, 0.0)
    assert not other.fits(1.0, 1.0, 9_900.0)
    assert not successor.fits(1.0, 1.0, 9_900.0)
    assert other.fits(1.6, 1.6, 9_900.0)


def test_a_crawler_that_ends_reports_its_last_bytes(tmp_path: Path) -> None:
    master, _ = supervisor(tmp_path, 1)

    async def crawl() -> float:
        pacer = SpiderPacer(BOUND)
        pacer.share_link(SharedRateWindow(tmp_path / "link"), 0)
        pacer.share_bytes_per_s(Site("http://a.test"))  # makes the scheduler
        pacer.arrived_bytes = 5_000.0
        pacer.close()
        return asyncio.get_running_loop().time()

    slot = int(asyncio.run(crawl()) / SLOT_S)
    assert master.arrived_bytes(slot - 50, slot + 1) == 5_000.0


def test_a_lower_bound_of_the_link_holds_at_once_for_all(tmp_path: Path) -> None:
    master, (one, other) = supervisor(tmp_path, 2)
    one.reserve(0.0, 0.0, 30_000.0)
    assert other.fits(0.0, 0.0, 4_000.0)
    master.bound_bytes_per_s = BOUND / 4
    assert not other.fits(0.0, 0.0, 2_400.0)
