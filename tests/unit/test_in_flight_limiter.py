"""The gate: answers under way fit into a part of the link's time, and nobody is shut out for good."""

from __future__ import annotations

import asyncio
import ssl

import pytest

from headway.model.page import Site
from headway.pacing.in_flight import InFlightLimiter
from headway.pacing.pacer import Pacer
from headway.pacing.shared_window import SpiderPacer
from headway.scrapy.fetcher import SpiderFetcher

A, B = Site("http://a.invalid"), Site("http://b.invalid")


class Silent:
    def silent_s(self) -> float:
        return 10.0


async def admitted(waits: list[asyncio.Task]) -> list[asyncio.Task]:
    for _ in range(5):
        await asyncio.sleep(0)
    return [wait for wait in waits if wait.done()]


@pytest.fixture
async def limiter():
    limiter = InFlightLimiter(Pacer(140_000.0))
    yield limiter
    limiter.close()


async def test_without_a_bound_everybody_is_let_in() -> None:
    limiter = InFlightLimiter(Pacer())
    assert len({await limiter.enter(A) for _ in range(100)}) == 100


async def test_a_narrow_link_has_few_answers_under_way_but_always_two(limiter) -> None:
    waits = [asyncio.ensure_future(limiter.enter(A)) for _ in range(50)]
    inside = await admitted(waits)
    assert 2 <= len(inside) <= 12
    narrow = InFlightLimiter(Pacer(1_000.0))
    tight = [asyncio.ensure_future(narrow.enter(A)) for _ in range(50)]
    assert len(await admitted(tight)) == 2
    narrow.close()
    for wait in [*waits, *tight]:
        wait.cancel()


async def test_a_bound_that_rises_lets_in_more_at_once() -> None:
    pacer = SpiderPacer(0.0)
    fetcher = SpiderFetcher(pacer, "test", ssl.create_default_context())
    waits = [asyncio.ensure_future(fetcher._limiter.enter(A)) for _ in range(4)]
    assert len(await admitted(waits)) == 2
    pacer.set_capacity(125_000.0)
    assert len(await admitted(waits)) == 4
    await fetcher.aclose()
    pacer.close()


async def test_a_response_that_ends_makes_room_for_the_next(limiter) -> None:
    waits = [asyncio.ensure_future(limiter.enter(A)) for _ in range(50)]
    before = await admitted(waits)
    for wait in before:
        limiter.leave(wait.result())
    after = await admitted(waits)
    assert len(after) >= len(before) + 2
    for wait in waits:
        wait.cancel()


async def test_the_site_with_less_under_way_goes_first(limiter) -> None:
    many = [asyncio.ensure_future(limiter.enter(A)) for _ in range(50)]
    first = await admitted(many)
    late = asyncio.ensure_future(limiter.enter(B))
    await asyncio.sleep(0)
    limiter.leave(first[0].result())
    limiter.leave(first[1].result())
    await admitted(many)
    assert late.done()
    for wait in many:
        wait.cancel()


async def test_one_that_is_cancelled_in_the_queue_takes_no_place(limiter) -> None:
    waits = [asyncio.ensure_future(limiter.enter(A)) for _ in range(20)]
    inside = await admitted(waits)
    waiting = [wait for wait in waits if not wait.done()]
    for wait in waiting[:-1]:
        wait.cancel()
    for wait in inside:
        limiter.leave(wait.result())
    assert waiting[-1] in await admitted(waiting)


async def test_a_silent_server_loses_its_place(limiter) -> None:
    waits = [asyncio.ensure_future(limiter.enter(A)) for _ in range(50)]
    inside = await admitted(waits)
    for wait in inside:
        wait.result().connection = Silent()
    limiter._drop_silent()
    assert len(await admitted(waits)) > len(inside)
    for wait in waits:
        wait.cancel()
