"""A collector beats in time: as soon as there is news, before its pages run out, and seldom otherwise."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.virtualtime import run_in_virtual_time

from headway.cluster.calls import BEAT_EVERY_S, QUICK_BEAT_S, Heartbeat
from headway.model.command import PageState, SaveSettled
from headway.model.page import Kind, Outcome
from headway.pages.url import page_of
from headway.units import Instant, Seconds


def settled(state: PageState = PageState.DONE) -> SaveSettled:
    page = page_of("http://h.example/x")
    assert page is not None
    return SaveSettled(page, Outcome(Kind.FETCHED, 200, 10, Seconds(0.1)), state, 0, Instant(1.0))


async def paused_s(heartbeat: Heartbeat, pages_left: int, *, is_waiting: bool) -> float:
    loop = asyncio.get_running_loop()
    began = loop.time()
    await heartbeat.pause(began, pages_left, is_waiting=is_waiting)
    return loop.time() - began


def test_pages_last_as_long_as_they_settle_lately() -> None:
    heartbeat = Heartbeat()
    assert heartbeat.left_s(0.0, 50) is None
    for tenth in range(4):
        heartbeat.saved(tenth / 10, [settled()] * 10, 100)
    assert heartbeat.left_s(0.4, 50) == pytest.approx(0.5)
    assert heartbeat.left_s(0.4, 0) == 0
    assert heartbeat.left_s(60.0, 50) is None


def test_what_was_never_asked_for_is_no_page_that_settles() -> None:
    heartbeat = Heartbeat()
    for tenth in range(4):
        heartbeat.saved(tenth / 10, [settled(PageState.EXCLUDED)] * 10, 100)
    assert heartbeat.left_s(0.4, 50) is None


def test_who_waits_asks_soon_and_then_more_slowly() -> None:
    heartbeat = Heartbeat(0.01)
    assert run_in_virtual_time(paused_s(heartbeat, 0, is_waiting=True)) == 0.01
    for _ in range(30):
        heartbeat._pause_s(1.0, 0, is_waiting=True)
    assert heartbeat._pause_s(1.0, 0, is_waiting=True) == QUICK_BEAT_S
    assert heartbeat._pause_s(1.0, 9, is_waiting=False) == BEAT_EVERY_S
    assert heartbeat._pause_s(1.0, 0, is_waiting=True) == 0.01


def test_news_and_the_end_of_the_pages_end_a_pause() -> None:
    async def pauses_s() -> list[float]:
        heartbeat, loop = Heartbeat(), asyncio.get_running_loop()
        undisturbed_s = await paused_s(heartbeat, 9, is_waiting=False)
        loop.call_later(0.25, heartbeat.beat_now)
        news_s = await paused_s(heartbeat, 9, is_waiting=False)
        loop.call_later(0.125, heartbeat.saved, 1.0, [settled()], 0)
        return [undisturbed_s, news_s, await paused_s(heartbeat, 9, is_waiting=False)]

    assert run_in_virtual_time(pauses_s()) == [BEAT_EVERY_S, 0.25, 0.125]
