"""What every Fetcher promises, as functions that a user can run on an own one.

Each check takes a function that makes a fetcher which may connect to loopback addresses, with time-outs of
well under a second.

    @pytest.mark.parametrize("check", FETCHER_CHECKS)
    async def test_my_fetcher_keeps_its_promises(check):
        await check(lambda: MyFetcher(...))
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
from collections.abc import AsyncIterator, Awaitable, Callable

from tests.support.rawserver import RawServer, page, silence, then_close, then_silence

from headway.model.page import Kind, Site
from headway.ports import Fetcher, Request
from headway.units import BytesPerSecond

MakeFetcher = Callable[[], Fetcher]
Check = Callable[[MakeFetcher], Awaitable[None]]


async def check_a_page_comes_whole(make: MakeFetcher) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\nX-Two: a\r\nX-Two: b\r\n\r\n"
    async with RawServer({"/": head + b"hello"}) as server, _made(make) as fetcher:
        response = await fetcher.fetch(server.request("/"))
    _expect((response.kind, response.status), (Kind.FETCHED, 200), "an answer is FETCHED with its status")
    _expect((response.payload, response.body), (b"hello", b"hello"), "its content is there")
    _expect(response.head, head, "its head is kept as it came")
    pairs = [pair for pair in response.headers if pair[0] == "x-two"]
    _expect(pairs, [("x-two", "a"), ("x-two", "b")], "headers are in order, repeated ones kept")
    _expect(response.peer, "127.0.0.1", "the server's address is told")
    _expect(response.wire_bytes >= len(head) + 5, True, "what crossed the link is at least what came")


async def check_any_status_is_an_answer(make: MakeFetcher) -> None:
    answers = {f"/{status}": page(b"x", status=f"{status} So") for status in (301, 404, 429, 500, 503)}
    async with RawServer(answers) as server, _made(make) as fetcher:
        for path in answers:
            response = await fetcher.fetch(server.request(path))
            _expect((response.kind, response.status), (Kind.FETCHED, int(path[1:])), "any status is FETCHED")


async def check_one_connection_serves_many_requests(make: MakeFetcher) -> None:
    async with RawServer({"/": page(b"x")}) as server, _made(make) as fetcher:
        for _ in range(3):
            response = await fetcher.fetch(server.request("/"))
            _expect(response.keep_alive, True, "the connection is kept")
        _expect(server.connections, 1, "one site, one connection")
        response = await fetcher.fetch(server.request("/", close_after=True))
        _expect(response.keep_alive, False, "it is closed when asked")
        await fetcher.fetch(server.request("/"))
        _expect(server.connections, 2, "and the next request opens another")


async def check_coded_content_is_decoded_and_kept_coded(make: MakeFetcher) -> None:
    text = b"<html>" + b"a word " * 500
    coded = gzip.compress(text)
    async with RawServer({"/": page(coded, "Content-Encoding: gzip")}) as server, _made(make) as fetcher:
        response = await fetcher.fetch(server.request("/"))
    _expect(response.body, text, "the parser gets the content")
    _expect(response.payload, coded, "the archive gets what was sent")


async def check_unwanted_types_end_after_the_head(make: MakeFetcher) -> None:
    image = page(b"x" * 100_000, "Content-Type: image/png")
    wanted = frozenset({"text/html"})
    answers = {"/": image, "/404": image.replace(b"200 OK", b"404 No")}
    async with RawServer(answers) as server, _made(make) as fetcher:
        response = await fetcher.fetch(server.request("/", accept_types=wanted))
        _expect((response.kind, response.status), (Kind.UNWANTED_TYPE, 200), "another type is not read")
        _expect(response.payload, b"", "nothing of it is kept")
        _expect(response.header("content-type"), "image/png", "but its head is")
        response = await fetcher.fetch(server.request("/404", accept_types=wanted))
        _expect(response.kind, Kind.FETCHED, "what is no success is an answer whatever its type")


async def check_a_body_is_cut_where_asked(make: MakeFetcher) -> None:
    async with RawServer({"/": page(b"x" * 10_000)}) as server, _made(make) as fetcher:
        response = await fetcher.fetch(server.request("/", max_body_bytes=100))
        _expect((response.kind, response.truncated), (Kind.FETCHED, True), "a cut body is FETCHED, truncated")
        _expect(response.payload, b"x" * 100, "and ends at the limit")
        response = await fetcher.fetch(server.request("/", max_body_bytes=10_000))
        _expect((len(response.payload), response.truncated), (10_000, False), "one that fits is whole")


async def check_a_short_body_is_a_reset(make: MakeFetcher) -> None:
    short = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello"
    async with RawServer({"/": then_close(short)}) as server, _made(make) as fetcher:
        response = await fetcher.fetch(server.request("/"))
    _expect((response.kind, response.truncated), (Kind.RESET, True), "a body that stops short is a RESET")
    _expect((response.status, response.payload), (200, b"hello"), "and what there is, is kept")


async def check_rubbish_is_a_protocol_error(make: MakeFetcher) -> None:
    async with RawServer({"/": then_close(b"SSH-2.0-OpenSSH_9.6\r\n\r\n")}) as server, _made(make) as fetcher:
        response = await fetcher.fetch(server.request("/"))
    _expect(response.kind, Kind.PROTOCOL, "what is not HTTP is a protocol error")


async def check_a_silent_server_times_out(make: MakeFetcher) -> None:
    begun = then_silence(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello")
    async with RawServer({"/never": silence, "/half": begun}) as server, _made(make) as fetcher:
        response = await fetcher.fetch(server.request("/never"))
        _expect(response.kind, Kind.TIMEOUT_FIRST_BYTE, "no answer is a time-out")
        response = await fetcher.fetch(server.request("/half"))
        _expect((response.kind, response.payload), (Kind.TIMEOUT_IDLE, b"hello"), "no more is another")


async def check_a_closed_port_is_an_outcome(make: MakeFetcher) -> None:
    async with RawServer({}) as server:
        site = server.site
    async with _made(make) as fetcher:
        response = await fetcher.fetch(Request(site + "/", site))
    _expect(response.kind, Kind.CONNECT, "a port without a server is no exception")


async def check_only_the_web_is_fetched(make: MakeFetcher) -> None:
    async with _made(make) as fetcher:
        for url in ("ftp://127.0.0.1/", "file:///etc/passwd", "javascript:1", "http://", "no url"):
            response = await fetcher.fetch(Request(url, Site("http://127.0.0.1")))
            _expect((response.kind, response.head), (Kind.PROTOCOL, b""), f"{url} is not fetched")


async def check_bytes_are_counted(make: MakeFetcher) -> None:
    async with RawServer({"/": page(b"x" * 50_000)}) as server, _made(make) as fetcher:
        before = fetcher.bytes_received()
        response = await fetcher.fetch(server.request("/"))
        _expect(fetcher.bytes_received() - before >= 50_000, True, "what came was counted")
        _expect(response.wire_bytes >= 50_000, True, "for the page as well")


async def check_bounds_and_rates_may_change_at_any_time(make: MakeFetcher) -> None:
    async with RawServer({"/": page(b"x" * 20_000)}) as server, _made(make) as fetcher:
        for capacity in (5e7, float("inf"), 1e7, 5e7):
            fetcher.set_capacity(BytesPerSecond(capacity))
            fetcher.set_rates({server.site: BytesPerSecond(1e5), Site("http://other"): BytesPerSecond(1.0)})
            response = await fetcher.fetch(server.request("/"))
            _expect((response.kind, len(response.body)), (Kind.FETCHED, 20_000), "pages come as before")
        fetcher.set_rates({})
        _expect((await fetcher.fetch(server.request("/"))).kind, Kind.FETCHED, "without any claim, too")


async def check_a_cancelled_fetch_leaves_the_site_usable(make: MakeFetcher) -> None:
    async with RawServer({"/": page(b"x"), "/never": silence}) as server, _made(make) as fetcher:
        fetching = asyncio.ensure_future(fetcher.fetch(server.request("/never")))
        while not server.requests:
            await asyncio.sleep(0)
        fetching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await fetching
        _expect(fetching.cancelled(), True, "a cancelled fetch is cancelled")
        _expect((await fetcher.fetch(server.request("/"))).kind, Kind.FETCHED, "and the next one works")


async def check_closing_ends_what_is_under_way(make: MakeFetcher) -> None:
    async with RawServer({"/never": silence}) as server:
        fetcher = make()
        fetching = asyncio.ensure_future(fetcher.fetch(server.request("/never")))
        while not server.requests:
            await asyncio.sleep(0)
        await fetcher.aclose()
        _expect((await fetching).kind, Kind.CANCELLED, "what was under way is CANCELLED")
        _expect((await fetcher.fetch(server.request("/never"))).kind, Kind.CANCELLED, "and what comes after")


FETCHER_CHECKS: tuple[Check, ...] = tuple(
    value for name, value in list(globals().items()) if name.startswith("check_")
)


@contextlib.asynccontextmanager
async def _made(make: MakeFetcher) -> AsyncIterator[Fetcher]:
    fetcher = make()
    try:
        yield fetcher
    finally:
        await fetcher.aclose()


def _expect(found: object, wanted: object, claim: str) -> None:
    if found != wanted:
        raise AssertionError(f"{claim}: expected {wanted!r}, found {found!r}")
