"""TLS is verified unless somebody says otherwise, and says why where it fails."""

from __future__ import annotations

import asyncio
import ssl

import pytest
import trustme
from tests.support.clock import ManualClock
from tests.support.rawserver import RawServer, page, then_close

from headway.http.client import HttpFetcher
from headway.http.models import ClientOptions, Timeouts
from headway.http.resolve import Address
from headway.http.tls import TlsSessions
from headway.model.page import Kind
from headway.ports import Request

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

    def build(capacity=float("inf"), **options):
        async def loopback(host):
            return [Address(2, "127.0.0.1")]

        settings = ClientOptions(user_agent="test/1", timeouts=TIMEOUTS, allow_private=True, **options)
        fetcher = HttpFetcher(ManualClock(), settings, capacity_bytes_per_s=capacity, lookup=loopback)
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
        fetcher = make(capacity, ca_file=ca_file)
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


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
async def test_a_new_connection_resumes_the_session_of_the_last(authority, ca_file, make, version):
    context = context_for(authority, "www.example.org")
    context.minimum_version = context.maximum_version = version
    async with RawServer({"/": then_close(page(b"hello"))}, tls=context) as server:
        site = server.site_named("www.example.org")
        fetcher = make(ca_file=ca_file)
        for _ in range(4):
            assert (await fetcher.fetch(Request(site + "/", site, close_after=True))).kind is Kind.FETCHED
    assert server.connections == 4
    assert context.session_stats()["hits"] == 3


async def test_a_resumed_handshake_brings_fewer_bytes(authority, ca_file, make):
    context = context_for(authority, "www.example.org")
    async with RawServer({"/": then_close(page(b"hello"))}, tls=context) as server:
        site = server.site_named("www.example.org")
        fetcher = make(5e7, ca_file=ca_file)
        received = []
        for _ in range(3):
            before = fetcher.bytes_received()
            await fetcher.fetch(Request(site + "/", site, close_after=True))
            received.append(fetcher.bytes_received() - before)
    assert max(received[1:]) < 0.8 * received[0]


async def test_a_refused_ticket_leads_to_a_full_handshake(authority, ca_file, make):
    contexts = [context_for(authority, "www.example.org") for _ in range(2)]
    fetcher = make(ca_file=ca_file)
    kinds = []
    port = None
    for context in contexts:
        async with RawServer({"/": then_close(page(b"hello"))}, tls=context, port=port) as server:
            port, site = server.port, server.site_named("www.example.org")
            kinds.append((await fetcher.fetch(Request(site + "/", site, close_after=True))).kind)
    assert kinds == [Kind.FETCHED, Kind.FETCHED]
    assert contexts[1].session_stats()["hits"] == 0


async def test_a_certificate_that_changes_is_verified_although_a_session_is_kept(authority, ca_file, make):
    stranger = trustme.CA()
    fetcher = make(ca_file=ca_file)
    kinds = []
    port = None
    for signer in (authority, stranger):
        context = context_for(signer, "www.example.org")
        async with RawServer({"/": then_close(page(b"hello"))}, tls=context, port=port) as server:
            port, site = server.port, server.site_named("www.example.org")
            kinds.append((await fetcher.fetch(Request(site + "/", site, close_after=True))).kind)
    assert kinds == [Kind.FETCHED, Kind.TLS]


async def test_a_session_of_one_name_is_not_used_for_another_name_of_its_server(authority, ca_file, make):
    context = context_for(authority, "www.example.org")
    async with RawServer({"/": then_close(page(b"hello"))}, tls=context) as server:
        fetcher = make(ca_file=ca_file)
        for name, kind in (("www.example.org", Kind.FETCHED), ("other.example.org", Kind.TLS)):
            site = server.site_named(name)
            assert (await fetcher.fetch(Request(site + "/", site, close_after=True))).kind is kind


async def test_a_server_without_forward_secrecy_is_accepted_as_curl_does(authority, ca_file, make):
    context = context_for(authority, "www.example.org", key_type=trustme.KeyType.RSA)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("AES128-SHA")
    async with RawServer({"/": page(b"hello")}, tls=context) as server:
        site = server.site_named("www.example.org")
        assert (await make(ca_file=ca_file).fetch(Request(site + "/", site))).kind is Kind.FETCHED


def test_no_more_sessions_are_kept_than_allowed():
    sessions = TlsSessions(most=2)

    class Session:
        time, timeout, ticket_lifetime_hint = 4e9, 7200, 0

    for number in range(5):
        sessions.keep("www.example.org", number, Session())
    assert len(sessions) == 2
    assert sessions.take("www.example.org", 0) is None
    assert sessions.take("www.example.org", 4) is not None
    assert sessions.take("www.example.org", 4) is None, "a ticket is used once"
