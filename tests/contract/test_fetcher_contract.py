"""The fetcher that headway ships keeps the promises of the port, bounded or not, on both event loops."""

from __future__ import annotations

import asyncio

import pytest
import uvloop
from tests.support.check_fetcher import FETCHER_CHECKS
from tests.support.clock import ManualClock

from headway.http.client import HttpFetcher
from headway.http.models import ClientOptions, Timeouts

TIMEOUTS = Timeouts(connect_s=2.0, first_byte_s=0.1, idle_s=0.1, total_s=5.0)


def make(capacity: float = float("inf")) -> HttpFetcher:
    options = ClientOptions(user_agent="check/1", timeouts=TIMEOUTS, allow_private=True)
    return HttpFetcher(ManualClock(), options, capacity_bytes_per_s=capacity)


@pytest.mark.parametrize("capacity", [float("inf"), 2e7], ids=["unbounded", "bounded"])
@pytest.mark.parametrize("check", FETCHER_CHECKS)
async def test_http_fetcher_keeps_every_promise(check, capacity):
    await check(lambda: make(capacity))


@pytest.mark.parametrize("check", FETCHER_CHECKS)
def test_http_fetcher_keeps_every_promise_under_uvloop(check):
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(check(make))


def test_there_are_checks():
    assert len(FETCHER_CHECKS) >= 14
