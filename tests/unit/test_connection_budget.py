"""Connections as a budget: shares of servers and domains, a reserve for good sites, and who gives way."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.rawserver import RawServer, page, then_silence

from headway.http.client import HttpFetcher
from headway.http.models import ClientOptions, Timeouts
from headway.model.page import Kind, Outcome, Site
from headway.policy.admission import ConnectionBudget, default_share, is_good
from headway.runtime.driver import WallClock
from headway.units import Instant, Seconds

NOW = Instant(1000.0)
STALLED = Outcome(Kind.TIMEOUT_IDLE)


def started(budget: ConnectionBudget, number: int, *, is_proven: bool = False) -> bool:
    """Start a site with its own server and domain, if it may."""
    name = f"s{number}.example"
    if budget.full_group(NOW, name, f"10.0.0.{number}", is_proven=is_proven) is not None:
        return False
    budget.start(Site(f"http://{name}"), name, f"10.0.0.{number}", is_proven=is_proven)
    return True


def test_all_connections_are_for_anybody_while_no_server_has_stalled() -> None:
    budget = ConnectionBudget(64)
    assert all(started(budget, number) for number in range(64))


def test_once_a_server_has_stalled_a_quarter_is_kept_for_sites_with_a_good_record() -> None:
    budget = ConnectionBudget(64)
    budget.learn(NOW, STALLED)
    assert sum(started(budget, number) for number in range(64)) == 48
    assert started(budget, 99, is_proven=True)


def test_the_time_for_which_our_own_bound_holds_an_answer_is_not_slow() -> None:
    slow = Outcome(Kind.FETCHED, 200, 10, Seconds(100.0))
    assert not is_good(slow)
    assert is_good(Outcome(Kind.FETCHED, 200, 10, Seconds(100.0), held_s=Seconds(90.0)))


@pytest.mark.parametrize("group", ["domain", "server"])
def test_no_server_and_no_domain_has_more_than_its_share(group: str) -> None:
    budget = ConnectionBudget(64, 4, 4)
    taken = 0
    for number in range(10):
        domain = "shared.example" if group == "domain" else f"s{number}.example"
        address = "10.0.0.1" if group == "server" else f"10.0.1.{number}"
        full = budget.full_group(NOW, domain, address, is_proven=True)
        if full is None:
            budget.start(Site(f"http://{number}.x"), domain, address, is_proven=True)
            taken += 1
        else:
            budget.wait(full, float(-number), number, Site(f"http://{number}.x"))
    assert taken == 4
    # The best of those that wait come first, two at a time, so that a share that has grown is used.
    assert budget.end(Site("http://0.x")) == ["http://9.x", "http://8.x"]


def test_connections_may_make_no_progress_as_long_as_nobody_waits() -> None:
    budget = ConnectionBudget(64)
    assert budget.most_stalled(is_full=False) is None
    assert budget.most_stalled(is_full=True) == 16


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 4), st.integers(0, 4), st.booleans())))
def test_every_site_that_waits_is_released_when_connections_end(
    asked: list[tuple[int, int, int, bool]],
) -> None:
    budget = ConnectionBudget(8, 2, 3)
    budget.learn(NOW, STALLED)
    running: list[Site] = []
    ready = [(Site(f"http://s{number}"), f"d{d}", f"a{a}", good) for number, d, a, good in asked]
    ready = list({each[0]: each for each in ready}.values())
    waiting: dict[Site, tuple[Site, str, str, bool]] = {}
    done = 0
    total = len(ready)
    while done < total:
        while ready and len(running) < 8:
            each = ready.pop(0)
            site, domain, address, is_proven = each
            group = budget.full_group(NOW, domain, address, is_proven=is_proven)
            if group is None:
                budget.start(site, domain, address, is_proven=is_proven)
                running.append(site)
            else:
                budget.wait(group, 0.0, len(waiting), site)
                waiting[site] = each
        assert running, "sites wait, and nothing runs that could release them"
        ended = running.pop(0)
        done += 1
        ready += [waiting.pop(site) for site in budget.end(ended)]
    assert not waiting
    assert budget.most_stalled(is_full=False) is None


def test_a_share_is_never_less_than_sixteen_connections() -> None:
    assert default_share(1) == 16
    assert default_share(256) == 64


async def test_an_answer_that_stays_slow_is_given_up_and_a_steady_one_is_not() -> None:
    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.02)

    async def steady(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 30000\r\n\r\n")
        for _ in range(30):
            writer.write(b"x" * 1000)
            await writer.drain()
            await asyncio.sleep(0.02)

    timeouts = Timeouts(idle_s=0.2, low_speed_bytes_per_s=2000.0, low_speed_s=0.3)
    options = ClientOptions(user_agent="test/1", timeouts=timeouts, allow_private=True)
    async with RawServer({"/drip": drip}) as slow, RawServer({"/steady": steady}) as fast:
        fetcher = HttpFetcher(WallClock(), options)
        try:
            given_up, kept = await asyncio.gather(
                fetcher.fetch(slow.request("/drip")), fetcher.fetch(fast.request("/steady"))
            )
        finally:
            await fetcher.aclose()
    assert given_up.kind is Kind.TIMEOUT_IDLE
    assert given_up.detail == "slower than 2000 bytes/s for 0.3 s"
    assert kept.kind is Kind.FETCHED


async def test_those_without_progress_for_longest_give_way_when_sites_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("headway.http.client._STALLED_AFTER_S", 0.1)
    monkeypatch.setattr("headway.http.client._LOOK_FOR_STALLED_EVERY_S", 0.05)
    options = ClientOptions(user_agent="test/1", allow_private=True)
    begun = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nx"
    async with RawServer({"/": then_silence(begun)}) as one, RawServer({"/": then_silence(begun)}) as two:
        fetcher = HttpFetcher(WallClock(), options)
        first = asyncio.ensure_future(fetcher.fetch(one.request("/")))
        while not one.requests:
            await asyncio.sleep(0.01)
        second = asyncio.ensure_future(fetcher.fetch(two.request("/")))
        fetcher.set_contention(1)
        response = await first
        assert response.kind is Kind.TIMEOUT_IDLE
        assert "while other sites waited for a connection" in response.detail
        assert not second.done()
        fetcher.set_contention(None)
        await fetcher.aclose()
        assert (await second).kind is Kind.CANCELLED


async def test_a_page_that_comes_quickly_never_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headway.http.client._STALLED_AFTER_S", 0.0)
    options = ClientOptions(user_agent="test/1", allow_private=True)
    async with RawServer({"/": page(b"x" * 10_000)}) as server:
        fetcher = HttpFetcher(WallClock(), options)
        fetcher.set_contention(0)
        responses = [await fetcher.fetch(server.request("/")) for _ in range(20)]
        await fetcher.aclose()
    assert {response.kind for response in responses} == {Kind.FETCHED}
