"""TLS is verified unless somebody says otherwise, and says why where it fails."""

from __future__ import annotations

import asyncio
import ssl

import pytest
import trustme

from headway.fetch.http import HttpFetcher
from headway.fetch.resolve import Address
from headway.fetch.settings import Timeouts
from headway.model.outcome import Kind
from headway.ports import Request
from headway.testing.clock import ManualClock
from headway.testing.rawserver import RawServer, page, then_close

TIMEOUTS = Timeouts(connect_s=5.0, first_byte_s=5.0, idle_s=5.0)


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture
def ca_file(authority, tmp_path):
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    return tmp_path / "ca.pem"


def context_for(authority, *names, **options) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names, **options).configure_cert(context)
    return context


@pytest.fixture
async def make():
    made = []

    def build(**options):
        async def loopback(host):
            return [Address(2, "127.0.0.1")]

        fetcher = HttpFetcher(
            ManualClock(), "test/1", timeouts=TIMEOUTS, allow_private=True, lookup=loopback, **options
        )
        made.append(fetcher)
        return fetcher

    yield build
    for fetcher in made:
        await fetcher.aclose()


@pytest.mark.parametrize("capacity", [float("inf"), 5e7], ids=["unbounded", "bounded"])
async def test_a_page_comes_over_tls_and_the_connection_is_kept(authority, ca_file, make, capacity):
    context = context_for(authority, "www.example.org")
    bodies = {"/": page(b"hello"), "/large": page(b"x" * 300_000)}
    async with RawServer(bodies, tls=context) as server:
        site = server.site_named("www.example.org")
        fetcher = make(ca_file=ca_file, capacity_bytes_per_s=capacity)
        for _ in range(2):
            response = await fetcher.fetch(Request(site + "/", site))
            assert (response.kind, response.body, response.peer) == (Kind.FETCHED, b"hello", "127.0.0.1")
            response = await fetcher.fetch(Request(site + "/large", site))
            assert (response.kind, len(response.body)) == (Kind.FETCHED, 300_000)
        assert server.connections == 1
        assert b"Host: www.example.org:" in server.requests[0]


async def test_the_name_is_sent_and_http_1_1_agreed(authority, ca_file, make):
    names = []
    context = context_for(authority, "www.example.org")
    context.sni_callback = lambda _socket, name, _context: names.append(name)
    context.set_alpn_protocols(["h2", "http/1.1"])
    async with RawServer({"/": page(b"x")}, tls=context) as server:
        site = server.site_named("www.example.org")
        assert (await make(ca_file=ca_file).fetch(Request(site + "/", site))).kind is Kind.FETCHED
    assert names == ["www.example.org"]


@pytest.mark.parametrize(
    ("name", "trusted", "why"),
    [
        ("www.example.org", False, "certificate"),
        ("other.example.org", True, "hostname mismatch|not valid for"),
    ],
    ids=["an unknown authority", "another name"],
)
async def test_a_certificate_that_proves_nothing_is_refused(authority, ca_file, make, name, trusted, why):
    context = context_for(authority, name)
    async with RawServer({"/": page(b"x")}, tls=context) as server:
        site = server.site_named("www.example.org")
        response = await make(ca_file=ca_file if trusted else None).fetch(Request(site + "/", site))
        assert (response.kind, response.payload) == (Kind.TLS, b"")
        assert any(word in response.detail.lower() for word in why.split("|"))
        assert server.requests == []


async def test_verification_can_be_switched_off(authority, make):
    context = context_for(authority, "other.example.org")
    async with RawServer({"/": page(b"x")}, tls=context) as server:
        site = server.site_named("www.example.org")
        assert (await make(verify_tls=False).fetch(Request(site + "/", site))).kind is Kind.FETCHED


async def test_an_address_can_have_a_certificate_too(authority, ca_file, make):
    context = context_for(authority, "127.0.0.1")
    async with RawServer({"/": page(b"x")}, tls=context) as server:
        assert (await make(ca_file=ca_file).fetch(server.request("/"))).kind is Kind.FETCHED


async def test_a_plain_server_behind_https_is_a_tls_failure(make):
    async def plain(reader, writer):
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        await reader.read()
        writer.close()

    server = await asyncio.start_server(plain, "127.0.0.1", 0)
    async with server:
        site = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        response = await make(verify_tls=False).fetch(Request(site + "/", site))
    assert response.kind is Kind.TLS
    assert response.detail


async def test_a_body_cut_under_tls_is_a_reset(authority, ca_file, make):
    context = context_for(authority, "www.example.org")
    short = then_close(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello")
    async with RawServer({"/": short}, tls=context) as server:
        site = server.site_named("www.example.org")
        response = await make(ca_file=ca_file).fetch(Request(site + "/", site))
    assert (response.kind, response.payload) == (Kind.RESET, b"hello")
