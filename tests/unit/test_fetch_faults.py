"""Fetching from servers that misbehave: every end is an outcome, and the next page fares no worse for it."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import resource
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.clock import ManualClock
from tests.support.rawserver import RawServer, page, silence, then_close, then_silence

from headway.http.client import HttpFetcher
from headway.http.models import ClientOptions, Limits, Timeouts
from headway.http.resolve import Address, ResolveError
from headway.model.page import Kind
from headway.ports import Request

PATIENT = Timeouts(connect_s=5.0, first_byte_s=5.0, idle_s=5.0, total_s=20.0)
HASTY = Timeouts(connect_s=0.1, first_byte_s=0.1, idle_s=0.1, total_s=0.3)


@pytest.fixture
async def make():
    made = []

    def build(timeouts=PATIENT, lookup=None, **options):
        options = {"user_agent": "test/1", "allow_private": True, **options}
        settings = ClientOptions(timeouts=timeouts, **options)
        fetcher = HttpFetcher(ManualClock(1000.0), settings, lookup=lookup)
        made.append(fetcher)
        return fetcher

    yield build
    for fetcher in made:
        await fetcher.aclose()


async def reset(reader, writer):
    writer.transport.get_extra_info("socket").setsockopt(
        socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0"
    )
    writer.transport.abort()


async def test_a_connection_that_died_while_idle_is_replaced_unseen(make):
    async with RawServer({"/": page(b"x"), "/bye": then_close(page(b"bye"))}) as server:
        fetcher = make()
        for _ in range(3):
            assert (await fetcher.fetch(server.request("/bye"))).kind is Kind.FETCHED
            while next(iter(fetcher._idle.values())).reusable:
                await asyncio.sleep(0)
        assert (await fetcher.fetch(server.request("/"))).kind is Kind.FETCHED
        assert server.connections == 4


async def test_a_new_connection_that_is_reset_is_not_tried_again(make):
    async with RawServer({"/": reset}) as server:
        response = await make().fetch(server.request("/"))
    assert (response.kind, response.status, server.connections) == (Kind.RESET, 0, 1)
    assert response.request_head.startswith(b"GET / HTTP/1.1\r\n")


async def test_a_reset_in_the_middle_keeps_what_came(make):
    async def half(reader, writer):
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello")
        await writer.drain()
        await reader.read(1)
        await reset(reader, writer)

    async with RawServer({"/": half}) as server:
        fetcher = make()
        fetching = asyncio.ensure_future(fetcher.fetch(server.request("/")))
        while not any(connection._answered for connection in fetcher._connections.open):
            await asyncio.sleep(0)
        for connection in fetcher._connections.open:
            connection._transport.write(b"!")
        response = await fetching
    assert (response.kind, response.payload, response.truncated) == (Kind.RESET, b"hello", True)


async def test_a_trickle_ends_at_the_total(make):
    async def trickle(reader, writer):
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b"x")
            await asyncio.sleep(0.02)

    async with RawServer({"/": trickle}) as server:
        response = await make(HASTY).fetch(server.request("/"))
    assert response.kind is Kind.TIMEOUT_TOTAL
    assert response.payload.startswith(b"x")


async def test_a_handshake_that_hangs_is_a_connect_time_out(make):
    async with RawServer({"/": silence}) as server:
        site = server.site.replace("http:", "https:")
        response = await make(HASTY).fetch(Request(site + "/", site))
    assert response.kind is Kind.TIMEOUT_CONNECT


async def test_an_address_that_does_not_answer_is_a_connect_time_out(make):
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        waiting = []
        for _ in range(4):
            waiting.append(socket.socket())
            waiting[-1].setblocking(False)
            waiting[-1].connect_ex(full.getsockname())
        site = f"http://127.0.0.1:{full.getsockname()[1]}"
        response = await make(HASTY).fetch(Request(site + "/", site))
        for sock in waiting:
            sock.close()
    assert response.kind is Kind.TIMEOUT_CONNECT


async def test_a_name_without_an_address_is_a_dns_failure(make):
    async def nobody(host):
        raise ResolveError(f"{host} is unknown")

    response = await make(lookup=nobody).fetch(Request("http://nowhere.example/", "http://nowhere.example"))
    assert (response.kind, response.detail) == (Kind.DNS, "nowhere.example is unknown")


async def test_a_name_server_that_hangs_is_a_dns_failure(make):
    async def never(host):
        await asyncio.Event().wait()

    response = await make(HASTY, lookup=never).fetch(Request("http://a.example/", "http://a.example"))
    assert response.kind is Kind.DNS


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "0x7f.1", "2130706433"]
)
async def test_nothing_inside_is_reached_unless_allowed(make, host):
    async with RawServer({"/": page(b"secret")}) as server:
        site = server.site_named(host)
        response = await make(allow_private=False).fetch(Request(site + "/", site))
        assert (response.kind, response.payload) == (Kind.FORBIDDEN_ADDRESS, b"")
        assert server.connections == 0


async def test_the_address_that_was_checked_is_the_one_connected(make):
    """A name server that says a public address first and loopback ever after gains nothing."""
    said = []

    async def rebinding(host):
        said.append(host)
        return [Address(socket.AF_INET, "203.0.113.1" if len(said) == 1 else "127.0.0.1")]

    async with RawServer({"/": page(b"secret")}) as server:
        site = server.site_named("evil.example")
        response = await make(HASTY, allow_private=False, lookup=rebinding).fetch(Request(site + "/", site))
        assert response.kind is not Kind.FETCHED
        assert (len(said), server.connections) == (1, 0)


async def test_only_the_public_ones_of_several_addresses_are_tried(make):
    async def mixed(host):
        return [Address(socket.AF_INET, "127.0.0.1"), Address(socket.AF_INET, "10.0.0.1")]

    async with RawServer({"/": page(b"secret")}) as server:
        site = server.site_named("evil.example")
        response = await make(allow_private=False, lookup=mixed).fetch(Request(site + "/", site))
    assert (response.kind, response.peer) == (Kind.FORBIDDEN_ADDRESS, "127.0.0.1")


async def test_addresses_are_tried_in_turn(make):
    async def several(host):
        return [Address(socket.AF_INET, "127.0.0.9"), Address(socket.AF_INET, "127.0.0.1")]

    async with RawServer({"/": page(b"x")}) as server:
        site = server.site_named("two.example")
        response = await make(lookup=several).fetch(Request(site + "/", site))
        assert (response.kind, response.peer) == (Kind.FETCHED, "127.0.0.1")
        assert b"Host: two.example:" in server.requests[0]


async def test_a_bomb_is_an_outcome_and_costs_little(make):
    bomb = page(gzip.compress(b"\0" * 20_000_000), "Content-Encoding: gzip")
    async with RawServer({"/": bomb, "/next": page(b"x")}) as server:
        fetcher = make(limits=Limits(max_decoded_bytes=1_000_000))
        response = await fetcher.fetch(server.request("/"))
        assert (response.kind, response.status) == (Kind.BOMB, 200)
        assert len(response.body) <= 1_000_000
        assert (await fetcher.fetch(server.request("/next"))).kind is Kind.FETCHED


async def test_a_large_coded_body_is_decoded_whole(make):
    text = b"".join(b"%d\n" % (number * 7919) for number in range(200_000))
    async with RawServer({"/": page(gzip.compress(text), "Content-Encoding: gzip")}) as server:
        assert (await make().fetch(server.request("/"))).body == text


async def test_what_comes_unasked_is_never_taken_for_an_answer(make):
    async with RawServer({"/": page(b"x") + page(b"evil"), "/next": page(b"next")}) as server:
        fetcher = make()
        assert (await fetcher.fetch(server.request("/"))).body == b"x"
        assert (await fetcher.fetch(server.request("/next"))).body == b"next"
        assert server.connections == 2


async def test_a_line_break_in_a_header_sends_nothing(make):
    async with RawServer({"/": page(b"x")}) as server:
        response = await make().fetch(server.request("/", headers=(("Referer", "a\r\nX-Evil: b"),)))
        assert (response.kind, server.connections) == (Kind.PROTOCOL, 0)


async def test_a_password_in_the_url_is_not_sent(make):
    async with RawServer({"/": page(b"x")}) as server:
        site = server.site
        url = site.replace("http://", "http://user:secret@") + "/"
        assert (await make().fetch(Request(url, site))).kind is Kind.FETCHED
        assert b"secret" not in server.requests[0]
        assert b"uthorization" not in server.requests[0]


async def test_one_site_has_one_connection_even_if_asked_twice_at_once(make):
    async with RawServer({"/": page(b"x")}) as server:
        fetcher = make()
        responses = await asyncio.gather(*(fetcher.fetch(server.request("/")) for _ in range(5)))
        assert {response.kind for response in responses} == {Kind.FETCHED}
        assert server.connections == 1


async def test_a_url_elsewhere_counts_against_its_site_but_gets_its_own_server(make):
    async with RawServer({"/": page(b"one")}) as one, RawServer({"/": page(b"two")}) as two:
        fetcher = make()
        assert (await fetcher.fetch(one.request("/"))).body == b"one"
        assert (await fetcher.fetch(Request(two.site + "/", one.site))).body == b"two"
        assert (await fetcher.fetch(one.request("/"))).body == b"one"


async def test_idle_connections_are_closed_in_the_end(make):
    async with RawServer({"/": page(b"x")}) as server:
        fetcher = make(Timeouts(keep_idle_s=0.05))
        await fetcher.fetch(server.request("/"))
        (connection,) = fetcher._connections.open
        await connection.closed
        assert not connection.reusable
        assert (await fetcher.fetch(server.request("/"))).kind is Kind.FETCHED


async def test_no_more_connections_lie_idle_than_allowed(make):
    async with RawServer({"/": page(b"x")}) as one, RawServer({"/": page(b"x")}) as two:
        fetcher = make(limits=Limits(max_idle_connections=1))
        await fetcher.fetch(one.request("/"))
        (first,) = fetcher._connections.open
        await fetcher.fetch(two.request("/"))
        await first.closed
        assert [connection.peer for connection in fetcher._connections.open] == ["127.0.0.1"]


async def test_closing_ends_a_fetch_that_waits_for_its_connection(make):
    asked = asyncio.Event()

    async def never(host):
        asked.set()
        await asyncio.Event().wait()

    fetcher = make(lookup=never)
    fetching = asyncio.ensure_future(fetcher.fetch(Request("http://a.example/", "http://a.example")))
    await asked.wait()
    await fetcher.aclose()
    assert (await fetching).kind is Kind.CANCELLED


async def test_the_times_and_sizes_of_a_fetch_are_reported(make):
    async with RawServer({"/": page(b"x" * 5000)}) as server:
        fetcher = make()
        response = await fetcher.fetch(server.request("/"))
        assert response.requested_at == 1000.0
        assert response.duration_s > 0
        assert 5000 < response.wire_bytes < 8000
        assert fetcher.bytes_received() == response.wire_bytes
        assert fetcher.bytes_sent() > len(response.request_head)


async def test_thousands_of_cookies_are_a_limit_not_a_crash(make):
    head = "HTTP/1.1 200 OK\r\n" + "".join(f"Set-Cookie: a{n}=b\r\n" for n in range(3000))
    flood = head.encode() + b"Content-Length: 1\r\n\r\nx"
    async with RawServer({"/": flood}) as server:
        assert (await make().fetch(server.request("/"))).kind is Kind.PROTOCOL
        assert (
            await make(limits=Limits(max_head_bytes=1000)).fetch(server.request("/"))
        ).kind is Kind.TOO_LARGE


async def test_an_endless_body_is_cut_and_the_server_left(make):
    async def endless(reader, writer):
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while not writer.is_closing():
            writer.write(b"x" * 65536)
            await writer.drain()

    async with RawServer({"/": endless}) as server:
        response = await make(limits=Limits(max_body_bytes=100_000)).fetch(server.request("/"))
    assert (response.kind, len(response.payload), response.keep_alive) == (Kind.TOO_LARGE, 100_000, False)


async def test_a_half_answer_then_silence_is_an_idle_time_out(make):
    async with RawServer({"/": then_silence(b"HTTP/1.1 200 OK\r\nContent-Le")}) as server:
        response = await make(HASTY).fetch(server.request("/"))
    assert (response.kind, response.truncated) == (Kind.TIMEOUT_IDLE, True)


KEEPING_SERVER = """
import http.server
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "1")
        self.end_headers()
        self.wfile.write(b"x")
    def log_message(self, *args): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"""


async def test_when_files_run_out_idle_connections_make_room(make):
    async def loopback(host):
        return [Address(socket.AF_INET, "127.0.0.1")]

    # In a process of its own, so that only our end runs out.
    with subprocess.Popen(
        [sys.executable, "-c", KEEPING_SERVER], stdout=subprocess.PIPE, text=True
    ) as server:
        port = server.stdout.readline().strip()
        sites = [f"http://site{n}.example:{port}" for n in range(12)]
        fetcher = make(lookup=loopback)
        in_use = {int(entry.name) for entry in Path("/proc/self/fd").iterdir()}
        free = itertools.islice((number for number in itertools.count() if number not in in_use), 5)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(free) + 1, hard))
        try:
            kinds = [(await fetcher.fetch(Request(site + "/", site))).kind for site in sites]
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            server.kill()
        assert set(kinds) == {Kind.FETCHED}
        assert len(fetcher._connections.open) < len(sites)
