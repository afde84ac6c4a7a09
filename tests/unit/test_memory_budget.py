"""Memory as a budget: the limit holds where anything can go on within it, and nobody waits for ever."""

from __future__ import annotations

import asyncio
import errno
import gc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.rawserver import RawServer, page

from headway.errors import lacks_memory
from headway.http.client import HttpFetcher
from headway.http.memory import STEP_BYTES, MemoryBudget, answers_bytes
from headway.http.models import ClientOptions, Limits
from headway.model.page import Kind
from headway.runtime.driver import WallClock

LIMIT = 10


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 4)), max_size=30))
def test_all_that_take_memory_get_it_in_the_end(works: list[tuple[int, int]]) -> None:
    """Each takes some steps and then gives all back; nothing else gives anything back."""
    budget = MemoryBudget(LIMIT)
    left = {owner: steps for owner, (_, steps) in enumerate(works)}
    ready = list(left)
    running: set[int] = set()

    def granted(owner: int) -> None:
        left[owner] -= 1
        running.add(owner)

    for owner in ready:
        if budget.take(owner, works[owner][0], lambda owner=owner: granted(owner)):
            granted(owner)
    while running:
        owner = running.pop()
        if left[owner] == 0:
            budget.release(owner)
        elif budget.take(owner, works[owner][0], lambda owner=owner: granted(owner)):
            granted(owner)
        if len(running) > 1:
            assert budget.held_bytes <= LIMIT + 6
    assert not any(left.values())
    assert budget.held_bytes == 0
    assert not budget.is_short


def test_the_limit_holds_while_anybody_who_holds_memory_can_go_on() -> None:
    budget = MemoryBudget(LIMIT)
    granted: list[str] = []
    assert budget.take("a", 8, lambda: granted.append("a"))
    assert not budget.take("b", 8, lambda: granted.append("b"))
    assert budget.is_short
    assert (budget.held_bytes, granted) == (8, [])
    budget.release("a")
    assert (budget.held_bytes, granted) == (8, ["b"])


def test_the_default_follows_the_machine() -> None:
    assert answers_bytes() >= 64 << 20
    assert answers_bytes(1) == 64 << 20


@pytest.mark.parametrize("framing", ["sized", "chunked"])
async def test_answers_hold_no_more_than_the_limit_together(
    framing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight answers of 6 MB at once, with room for two and a half: all arrive, a few at a time."""
    body = b"x" * (6 * STEP_BYTES)
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (
        len(body),
        body,
    )
    limits = Limits()
    monkeypatch.setattr("headway.http.client.answers_bytes", lambda _: 30 * STEP_BYTES)
    options = ClientOptions(user_agent="test/1", allow_private=True, limits=limits)
    async with RawServer({"/": page(body) if framing == "sized" else chunked}) as server:
        fetcher = HttpFetcher(WallClock(), options)
        highest = 0

        async def watch() -> None:
            nonlocal highest
            while True:
                highest = max(highest, fetcher._memory.held_bytes)
                await asyncio.sleep(0)

        async def fetch(number: int) -> Kind:
            request = server.request("/")
            site = f"http://127.0.0.{number + 1}:{server.port}"
            response = await fetcher.fetch(type(request)(f"{server.site}/", site))  # type: ignore[arg-type]
            return response.kind if len(response.body) == len(body) else Kind.RESET

        watching = asyncio.ensure_future(watch())
        async with asyncio.timeout(30):
            kinds = await asyncio.gather(*map(fetch, range(8)))
        watching.cancel()
        assert set(kinds) == {Kind.FETCHED}
        gc.collect()
        await asyncio.sleep(0.01)
        assert fetcher._memory.held_bytes == 0
        await fetcher.aclose()
    assert 2 * len(body) <= highest <= 30 * STEP_BYTES + 2 * len(body)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("problem", "is_memory"),
    [
        (MemoryError(), True),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), True),
        (RuntimeError("can't start new thread"), True),
        (ImportError("libx.so: failed to map segment from shared object"), True),
        (OSError(errno.ENOSPC, "No space left on device"), False),
        (RuntimeError("the loop is closed"), False),
        (None, False),
    ],
)
def test_the_ways_in_which_memory_is_refused_are_one(problem: BaseException | None, is_memory: bool) -> None:
    assert lacks_memory(problem) is is_memory
