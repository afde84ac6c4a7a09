"""A crawler is kept on its plan: told more when it is behind, less when it is ahead, and no debt for ever."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

pytest.importorskip("scrapy")

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from headway.model.page import Site
from headway.scrapy.spider import Order, Progress, WorkerTask
from headway.scrapy.steering import AIM
from headway.scrapy.supervisor import SiteRun

RATE = 10_000.0


def new_run() -> SiteRun:
    return SiteRun(Site("http://a.test"), WorkerTask("x", {}, {}, "link"), 7, Path("log"))


def site_run() -> SiteRun:
    run = new_run()
    run.follow_plan(0.0, RATE)
    run.is_released = True
    return run


def received(run: SiteRun, wire_bytes: float) -> None:
    run.progress = msgspec.structs.replace(run.progress, wire_bytes=int(wire_bytes))


def test_on_its_plan_it_is_told_its_rate() -> None:
    run = site_run()
    received(run, RATE)
    assert run.follow_plan(1.0, RATE) == pytest.approx(RATE / AIM)


def test_behind_it_is_told_more_and_ahead_less() -> None:
    behind, ahead = site_run(), site_run()
    received(behind, 0.5 * RATE)
    received(ahead, 1.5 * RATE)
    assert behind.follow_plan(1.0, RATE) > RATE / AIM > ahead.follow_plan(1.0, RATE)


def test_nothing_is_due_before_it_was_let_go() -> None:
    run = new_run()
    run.follow_plan(0.0, RATE)
    assert run.follow_plan(30.0, RATE) == pytest.approx(RATE / AIM)


@given(st.lists(st.floats(0.0, 0.3), min_size=1, max_size=60))
def test_a_server_that_cannot_is_not_asked_for_ever_more(parts: list[float]) -> None:
    run = site_run()
    total = 0.0
    for part in parts:
        total += part * RATE
        received(run, total)
        assert run.follow_plan(1.0, RATE) <= 2.0 * RATE / AIM + 1e-6


def test_a_crawler_that_gives_the_rate_it_is_told_comes_back_to_its_plan() -> None:
    run = site_run()
    total, told = 0.0, RATE / AIM
    for second in range(40):
        total += (0.3 if second < 3 else 1.0) * told * AIM
        received(run, total)
        told = run.follow_plan(1.0, RATE)
    assert total == pytest.approx(40 * RATE, rel=0.02)


def test_a_spider_that_has_not_begun_has_all_its_first_urls_waiting() -> None:
    run = site_run()
    assert run.reported.waiting == 7
    run.progress = Progress(True, 900, 3, 2, 0)
    assert (run.reported.answers, run.reported.wire_bytes, run.reported.waiting) == (3, 900, 2)


class BusySpider:
    """Takes one order at a time, each when the test lets it."""

    def __init__(self) -> None:
        self.orders: list[Order] = []
        self.turns = asyncio.Semaphore(0)

    async def steer(self, order: Order) -> None:
        self.orders.append(order)
        await self.turns.acquire()


async def test_orders_for_a_busy_spider_become_one_with_the_newest_rate_and_all_that_was_ordered() -> None:
    run, spider = site_run(), BusySpider()
    run.steer(Order(rate_bytes_per_s=1.0))
    assert not spider.orders, "nothing is lost that was ordered before it connected"
    run.connected(spider)
    await asyncio.sleep(0)
    for order in (Order(rate_bytes_per_s=2.0), Order(go=True), Order(rate_bytes_per_s=3.0), Order(end=True)):
        run.steer(order)
    spider.turns.release()
    spider.turns.release()
    for _ in range(5):
        await asyncio.sleep(0)
    assert spider.orders == [Order(1.0), Order(3.0, go=True, end=True)]
    run.steer(Order(4.0))
    await asyncio.sleep(0)
    assert spider.orders[-1] == Order(4.0)
    spider.turns.release()
    await asyncio.sleep(0)


async def test_orders_for_a_process_that_has_ended_do_not_reach_the_next_one() -> None:
    run, spider = site_run(), BusySpider()
    run.steer(Order(1.0))
    run.disconnected()
    run.connected(spider)
    await asyncio.sleep(0)
    assert not spider.orders
