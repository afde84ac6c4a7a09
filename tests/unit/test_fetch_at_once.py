"""A fetch begun at once, over an open connection, comes to the same as any other."""

from __future__ import annotations

import asyncio
import gzip

import pytest
from tests.support.check_fetcher import FETCHER_CHECKS
from tests.support.clock import ManualClock
from tests.support.rawserver import RawServer, page, silence, then_close, then_silence

from headway.http.client import HttpFetcher
from headway.http.models import ClientOptions, Timeouts
from headway.model.page import Kind
from headway.ports import PromptFetcher, Request, Response
from headway.units import BytesPerSecond

PATIENT = Timeouts(connect_s=5.0, first_byte_s=5.0, idle_s=5.0, total_s=20.0)
HASTY = Timeouts(connect_s=2.0, first_byte_s=0.1, idle_s=0.1, total_s=5.0)


class AtOnce(HttpFetcher):
    """Fetches at once whatever it can."""

    def __init__(self, timeouts: Timeouts = HASTY, capacity: float = float("inf")) -> None:
        super().__init__(
            ManualClock(),
            ClientOptions(user_agent="check/1", timeouts=timeouts, allow_private=True),
            capacity_bytes_per_s=BytesPerSecond(capacity),
        )
        self.at_once = 0

    async def fetch(self, request: Request) -> Response:
        ended = asyncio.get_running_loop().create_future()
        if not self.fetch_at_once(request, ended.set_result):
            return await super().fetch(request)
        self.at_once += 1
        return await asyncio.shield(ended)


@pytest.mark.parametrize("capacity", [float("inf"), 2e7], ids=["unbounded", "bounded"])
@pytest.mark.parametrize("check", FETCHER_CHECKS)
async def test_it_keeps_every_promise_of_a_fetcher(check, capacity):
    await check(lambda: AtOnce(capacity=capacity))


def test_the_fetcher_that_headway_ships_can_do_it():
    assert isinstance(HttpFetcher(ManualClock(), ClientOptions(user_agent="check/1")), PromptFetcher)


@pytest.fixture
async def fetcher():
    made = AtOnce(PATIENT)
    yield made
    await made.aclose()


async def test_it_takes_an_open_connection_and_no_other(fetcher):
    async with RawServer({"/": page(b"x")}) as server:
        assert not fetcher.fetch_at_once(server.request("/"), lambda _: None)
        for _ in range(3):
            assert (await fetcher.fetch(server.request("/"))).kind is Kind.FETCHED
        assert (server.connections, fetcher.at_once) == (1, 2)


async def test_the_answer_is_that_of_a_fetch(fetcher):
    large = gzip.compress(bytes(range(256)) * 4000, compresslevel=0)
    assert len(large) > 200_000  # it is inflated aside
    answers = {
        "/": page(b"x", "Content-Type: text/html", "X-A: b"),
        "/gone": page(b"", status="404 Not Found"),
        "/coded": page(gzip.compress(b"a word " * 100), "Content-Encoding: gzip"),
        "/large": page(large, "Content-Encoding: gzip"),
    }
    async with RawServer(answers) as server:
        for path in answers:
            first = await HttpFetcher.fetch(fetcher, server.request(path))
            second = await fetcher.fetch(server.request(path))
            for name in ("kind", "url", "status", "headers", "head", "payload", "body", "peer", "keep_alive"):
                assert getattr(first, name) == getattr(second, name), (path, name)
        assert (fetcher.at_once, server.connections) == (len(answers), 1)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (then_close(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello"), Kind.RESET),
        (then_close(b""), Kind.RESET),
        (then_close(b"rubbish\r\n\r\n"), Kind.PROTOCOL),
        (silence, Kind.TIMEOUT_FIRST_BYTE),
        (then_silence(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello"), Kind.TIMEOUT_IDLE),
    ],
)
async def test_a_misbehaving_server_is_reported_once_and_requested_again_over_a_new_connection(answer, kind):
    fetcher = AtOnce()
    async with RawServer({"/": page(b"x"), "/odd": answer}) as server:
        await fetcher.fetch(server.request("/"))
        told: list[Response] = []
        assert fetcher.fetch_at_once(server.request("/odd"), told.append)
        while not told:
            await asyncio.sleep(0)
        assert [response.kind for response in told] == [kind]
        assert (await fetcher.fetch(server.request("/"))).kind is Kind.FETCHED
        assert (len(told), server.connections) == (1, 2)
        await fetcher.aclose()


async def test_one_request_to_a_site_at_a_time(fetcher):
    async with RawServer({"/": page(b"x")}) as server:
        await fetcher.fetch(server.request("/"))
        told: list[Response] = []
        assert fetcher.fetch_at_once(server.request("/"), told.append)
        assert not fetcher.fetch_at_once(server.request("/"), told.append)
        assert (await HttpFetcher.fetch(fetcher, server.request("/"))).kind is Kind.FETCHED
        assert len(told) == 1
        assert server.connections == 1


async def test_a_connection_lost_while_its_request_waited_its_turn_is_replaced_unseen():
    closes = asyncio.Event()

    async def until_told(reader, writer):
        writer.write(page(b"x" * 60_000))
        await writer.drain()
        await closes.wait()
        writer.close()

    fetcher = AtOnce(PATIENT, capacity=60_000.0)
    async with RawServer({"/first": until_told, "/": page(b"y")}) as server:
        await fetcher.fetch(server.request("/first"))
        told: list[Response] = []
        connection = fetcher._idle[server.site]
        assert fetcher.fetch_at_once(server.request("/"), told.append)
        assert not connection._turn.done()
        closes.set()
        while not told:
            await asyncio.sleep(0.001)
        assert [(response.kind, response.body) for response in told] == [(Kind.FETCHED, b"y")]
        assert server.connections == 2
        await fetcher.aclose()


async def test_what_is_under_way_when_it_is_closed_is_cancelled():
    fetcher = AtOnce(PATIENT)
    async with RawServer({"/": page(b"x"), "/never": silence}) as server:
        await fetcher.fetch(server.request("/"))
        told: list[Response] = []
        assert fetcher.fetch_at_once(server.request("/never"), told.append)
        await fetcher.aclose()
        assert [response.kind for response in told] == [Kind.CANCELLED]
        assert not fetcher.fetch_at_once(server.request("/"), told.append)


async def test_what_cannot_be_asked_for_is_left_to_a_fetch(fetcher):
    async with RawServer({"/": page(b"x")}) as server:
        await fetcher.fetch(server.request("/"))
        wrong = Request("ftp://127.0.0.1/", server.site)
        assert not fetcher.fetch_at_once(wrong, lambda _: None)
        assert (await fetcher.fetch(wrong)).kind is Kind.PROTOCOL
