"""Through a proxy: whole URLs for http, a tunnel for https, and the password for the proxy alone."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ssl

import pytest
import trustme
from tests.support.clock import ManualClock
from tests.support.rawserver import RawServer, page

from headway.errors import JobError
from headway.http.client import HttpFetcher
from headway.http.models import ClientOptions, Timeouts, bypasses_proxy, parse_proxy
from headway.model.page import Kind
from headway.ports import Request

TIMEOUTS = Timeouts(connect_s=5.0, first_byte_s=5.0, idle_s=5.0)


def tunnel_to(port: int):
    """What a proxy does with CONNECT: bytes to and fro."""

    async def pump(reader, writer):
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
        writer.close()

    async def answer(reader, writer):
        there, back = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"HTTP/1.1 200 Connection established\r\nProxy-Agent: test\r\n\r\n")
        try:
            await asyncio.gather(pump(reader, back), pump(there, writer))
        finally:
            back.close()
            with contextlib.suppress(OSError):
                await back.wait_closed()

    return answer


@pytest.fixture
async def make():
    made = []

    def build(proxy, **options):
        settings = ClientOptions(user_agent="test/1", timeouts=TIMEOUTS, proxy=parse_proxy(proxy), **options)
        fetcher = HttpFetcher(ManualClock(), settings)
        made.append(fetcher)
        return fetcher

    yield build
    for fetcher in made:
        await fetcher.aclose()


async def test_http_goes_to_the_proxy_as_a_whole_url(make):
    url = "http://www.example.org/a?b"
    async with RawServer({url: page(b"from the proxy")}) as proxy:
        fetcher = make(f"http://me:p%40ss@127.0.0.1:{proxy.port}")
        response = await fetcher.fetch(Request(url, "http://www.example.org"))
        assert (response.kind, response.body, response.peer) == (Kind.FETCHED, b"from the proxy", "127.0.0.1")
        login = base64.b64encode(b"me:p@ss")
        assert proxy.requests[0].startswith(
            b"GET http://www.example.org/a?b HTTP/1.1\r\nHost: www.example.org\r\n"
        )
        assert b"Proxy-Authorization: Basic " + login in proxy.requests[0]


async def test_https_goes_through_a_tunnel_and_is_verified_at_its_end(make, tmp_path):
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("www.example.org").configure_cert(context)
    async with RawServer({"/": page(b"secret")}, tls=context) as server:
        site = f"https://www.example.org:{server.port}"
        async with RawServer({site.removeprefix("https://"): tunnel_to(server.port)}) as proxy:
            fetcher = make(f"http://me:word@127.0.0.1:{proxy.port}", ca_file=tmp_path / "ca.pem")
            for _ in range(2):
                response = await fetcher.fetch(Request(site + "/", site))
                assert (response.kind, response.body) == (Kind.FETCHED, b"secret")
            assert proxy.connections == 1
            assert proxy.requests[0].startswith(
                f"CONNECT www.example.org:{server.port} HTTP/1.1\r\n".encode()
            )
            assert b"Proxy-Authorization: Basic" in proxy.requests[0]
            assert all(b"uthorization" not in request for request in server.requests)


async def test_a_proxy_that_refuses_is_a_failed_connection_saying_why(make):
    refusal = page(b"who are you?", status="407 Proxy Authentication Required")
    async with RawServer({"www.example.org:443": refusal}) as proxy:
        fetcher = make(f"http://127.0.0.1:{proxy.port}")
        response = await fetcher.fetch(Request("https://www.example.org/", "https://www.example.org"))
    assert response.kind is Kind.CONNECT
    assert "407" in response.detail


async def test_some_hosts_go_past_the_proxy(make):
    async with RawServer({"/": page(b"direct")}) as server:
        fetcher = make("http://127.0.0.1:9", no_proxy=("127.0.0.1",), allow_private=True)
        assert (await fetcher.fetch(server.request("/"))).body == b"direct"


async def test_a_proxy_is_no_way_round_the_guard(make):
    async with RawServer({"http://169.254.169.254/": page(b"keys")}) as proxy:
        fetcher = make(f"http://127.0.0.1:{proxy.port}")
        response = await fetcher.fetch(Request("http://169.254.169.254/", "http://169.254.169.254"))
        assert (response.kind, proxy.connections) == (Kind.FORBIDDEN_ADDRESS, 0)


@pytest.mark.parametrize(
    ("host", "entries", "past"),
    [
        ("example.org", ("example.org",), True),
        ("www.example.org", ("example.org",), True),
        ("www.example.org", (".example.org",), True),
        ("www.example.org", ("*.example.org",), True),
        ("badexample.org", ("example.org",), False),
        ("EXAMPLE.org.", ("example.org",), True),
        ("anything", ("*",), True),
        ("anything", ("", " "), False),
        ("anything", (), False),
    ],
)
def test_hosts_that_need_no_proxy(host, entries, past):
    assert bypasses_proxy(host, entries) is past


@pytest.mark.parametrize("url", ["socks5://a:1", "https://a:1", "nonsense", ""])
def test_a_proxy_that_cannot_be_used_is_named(url):
    with pytest.raises(JobError, match="proxy"):
        parse_proxy(url)
