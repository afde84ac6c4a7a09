"""A crawl connects to public addresses only, unless the job allows others: the address that was checked."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from headway.errors import JobError
from headway.http import dial
from headway.http.client import HttpFetcher
from headway.http.models import ClientOptions, Timeouts, parse_proxy
from headway.http.resolve import Address, Lookup, why_forbidden
from headway.model.page import Kind, Site
from headway.pages.url import page_of
from headway.ports import Request, Response
from headway.runtime.crawling import CrawlRun
from headway.runtime.driver import WallClock

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.soak.crawling import build, settled_by_site  # noqa: E402

PUBLIC_FOR_NOW = "127.0.0.2"
"""Tests may not leave the machine, so one loopback address plays the public web where a test says so."""
PAGE = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 4\r\n\r\npage"

FORBIDDEN = {
    "loopback": ["127.0.0.1", "127.255.255.254", "::1"],
    "unspecified": ["0.0.0.0", "::"],
    "private": [
        "10.0.0.1",
        "172.16.0.1",
        "172.31.255.255",
        "192.168.1.1",
        "fc00::1",
        "fd12:3456::1",
        "fec0::1",
    ],
    "carrier": ["100.64.0.1", "100.127.255.255"],
    "link-local": ["169.254.1.1", "fe80::1", "fe80::1%eth0"],
    "metadata": ["169.254.169.254", "168.63.129.16", "fd00:ec2::254", "100.100.100.200"],
    "multicast": ["224.0.0.1", "239.255.255.250", "ff02::1"],
    "broadcast": ["255.255.255.255", "240.0.0.1"],
    "documentation": ["192.0.2.1", "198.51.100.1", "203.0.113.1", "2001:db8::1"],
    "mapped": ["::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::ffff:0:7f00:1"],
    "embedded": ["64:ff9b::7f00:1", "2002:7f00:1::", "2002:a9fe:a9fe::1", "::127.0.0.1", "64:ff9b:1::1"],
    "tunnels": ["2001::1", "2001:0:7f00:1::"],
    "nonsense": ["", "localhost", "1.2.3", "::1::"],
}
ALLOWED = ["1.1.1.1", "8.8.8.8", "93.184.216.34", "172.15.0.1", "172.32.0.1", "100.63.0.1", "100.128.0.1"]
ALLOWED += ["2606:4700::1111", "2a00:1450::1", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1"]


@pytest.mark.parametrize("address", [address for some in FORBIDDEN.values() for address in some])
def test_an_address_that_is_not_public_is_refused(address: str) -> None:
    assert why_forbidden(address)


@pytest.mark.parametrize("address", ALLOWED)
def test_a_public_address_is_allowed(address: str) -> None:
    assert why_forbidden(address) is None


OTHER_SCHEMES = ["file:///etc/passwd", "ftp://127.0.0.1/", "gopher://127.0.0.1:25/", "data:text/html,x"]
OTHER_SCHEMES += ["javascript:alert(1)", "unix:///run/docker.sock", "ws://127.0.0.1/", "//127.0.0.1/"]
OTHER_SCHEMES += ["/etc/passwd", "http:", "about:blank"]


class Door:
    """A listener that counts who comes, and answers each with the same octets."""

    def __init__(self, answer: bytes = PAGE) -> None:
        self.answer = answer
        self.requests: list[bytes] = []
        self.visits = 0
        self.port = 0

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.visits += 1
        try:
            while True:
                self.requests.append(await reader.readuntil(b"\r\n\r\n"))
                writer.write(self.answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def opened(door: Door, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[Door]:
    server = await asyncio.start_server(door.take, host, port)
    door.port = server.sockets[0].getsockname()[1]
    try:
        yield door
    finally:
        server.close()
        await server.wait_closed()


async def fetch(url: str, lookup: Lookup | None = None, *, allow_private: bool = False) -> Response:
    timeouts = Timeouts(connect_s=5, first_byte_s=5, idle_s=5, total_s=5)
    options = ClientOptions(user_agent="headway/test", timeouts=timeouts, allow_private=allow_private)
    fetcher = HttpFetcher(WallClock(), options, lookup=lookup)
    try:
        page = page_of(url)
        return await fetcher.fetch(Request(url, page.site if page else Site(url)))
    finally:
        await fetcher.aclose()


def answers(*turns: Sequence[str]) -> Lookup:
    """Names resolve to these addresses, one turn a question, the last one for ever."""
    asked = 0

    async def lookup(_: str) -> Sequence[Address]:
        nonlocal asked
        turn = turns[min(asked, len(turns) - 1)]
        asked += 1
        return [Address(socket.AF_INET6 if ":" in ip else socket.AF_INET, ip) for ip in turn]

    return lookup


@pytest.fixture
def second_loopback_is_public(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dial, "why_forbidden", lambda ip: None if ip == PUBLIC_FOR_NOW else why_forbidden(ip))


SPELLINGS = ["127.0.0.1", "localhost", "127.1", "0x7f000001", "2130706433", "017700000001", "0177.0.0.1"]
SPELLINGS += [
    "0.0.0.0",
    "0",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "①②⑦.⓪.⓪.①",
    "127。0。0。1",
    "LOCALHOST.",
]
SPELLINGS += ["user:pw@127.0.0.1", "example.org@127.0.0.1"]


@pytest.mark.parametrize("host", SPELLINGS)
async def test_no_spelling_of_loopback_gets_through(host: str) -> None:
    async with opened(Door()) as door:
        response = await fetch(f"http://{host}:{door.port}/")
        assert response.kind is Kind.FORBIDDEN_ADDRESS, response.detail
        assert door.visits == 0


async def test_the_option_lets_a_crawl_of_one_s_own_machine_through() -> None:
    async with opened(Door()) as door:
        response = await fetch(f"http://127.0.0.1:{door.port}/", allow_private=True)
        assert (response.kind, response.body) == (Kind.FETCHED, b"page")


@pytest.mark.parametrize(
    "ip", ["127.0.0.1", "::ffff:127.0.0.1", "::1", "169.254.169.254", "10.1.2.3", "0.0.0.0"]
)
async def test_a_public_name_with_a_private_address_is_refused(ip: str) -> None:
    async with opened(Door()) as door:
        response = await fetch(f"http://looks-public.example:{door.port}/", answers([ip]))
        assert response.kind is Kind.FORBIDDEN_ADDRESS
        assert response.peer == ip
        assert door.visits == 0


@pytest.mark.usefixtures("second_loopback_is_public")
@pytest.mark.parametrize("order", [["127.0.0.1", PUBLIC_FOR_NOW], [PUBLIC_FOR_NOW, "127.0.0.1"]])
async def test_of_several_addresses_only_public_ones_are_tried(order: list[str]) -> None:
    async with opened(Door()) as inner, opened(Door(), PUBLIC_FOR_NOW, inner.port) as outer:
        response = await fetch(f"http://both.example:{inner.port}/", answers(order))
        assert (response.kind, response.peer) == (Kind.FETCHED, PUBLIC_FOR_NOW)
        assert (inner.visits, outer.visits) == (0, 1)


@pytest.mark.usefixtures("second_loopback_is_public")
async def test_when_the_public_address_is_dead_the_private_one_is_still_not_tried() -> None:
    async with opened(Door()) as inner:
        response = await fetch(f"http://both.example:{inner.port}/", answers([PUBLIC_FOR_NOW, "127.0.0.1"]))
        assert response.kind is Kind.CONNECT
        assert inner.visits == 0


@pytest.mark.usefixtures("second_loopback_is_public")
async def test_a_name_that_changes_its_address_is_not_followed_inside() -> None:
    """Rebinding: public when it is checked, private when it is asked for again."""
    lookup = answers([PUBLIC_FOR_NOW], ["127.0.0.1"])
    async with opened(Door()) as inner, opened(Door(), PUBLIC_FOR_NOW, inner.port) as outer:
        url = f"http://rebinding.example:{inner.port}/"
        first = await fetch(url, lookup)
        second = await fetch(url, lookup)
        assert (first.kind, first.peer) == (Kind.FETCHED, PUBLIC_FOR_NOW)
        assert b"Host: rebinding.example" in outer.requests[0]
        assert second.kind is Kind.FORBIDDEN_ADDRESS
        assert inner.visits == 0


@pytest.mark.usefixtures("second_loopback_is_public")
@pytest.mark.parametrize("respect_robots", [True, False])
async def test_a_redirect_does_not_lead_inside(tmp_path: Path, *, respect_robots: bool) -> None:
    """Neither that of a page nor that of robots.txt."""
    async with opened(Door()) as inner:
        location = f"http://127.0.0.1:{inner.port}/secret".encode()
        moved = b"HTTP/1.1 302 Found\r\nLocation: " + location + b"\r\nContent-Length: 0\r\n\r\n"
        async with opened(Door(moved), PUBLIC_FOR_NOW) as outer:
            origin = f"http://{PUBLIC_FOR_NOW}:{outer.port}"
            job = build(
                [{"url": f"{origin}/"}],
                allow_private=False,
                respect_robots=respect_robots,
                scope={"hosts": ["127.0.0.1", PUBLIC_FOR_NOW]},
            )
            await CrawlRun(job, tmp_path / "run").run()
        assert outer.visits
        assert inner.visits == 0
    inside = f"http://127.0.0.1:{inner.port}"
    settled = settled_by_site(tmp_path / "run", [origin, inside])
    if respect_robots:
        assert settled[origin]["/"].kind is Kind.FORBIDDEN_ADDRESS
        assert "127.0.0.1" in settled[origin]["/"].detail
    else:
        assert settled[origin]["/"].kind is Kind.REDIRECT
        assert settled[inside]["/secret"].kind is Kind.FORBIDDEN_ADDRESS


async def test_a_proxy_is_not_asked_for_a_private_address() -> None:
    async with opened(Door()) as proxy:
        way = parse_proxy(f"http://127.0.0.1:{proxy.port}")
        fetcher = HttpFetcher(WallClock(), ClientOptions(user_agent="headway/test", proxy=way))
        response = await fetcher.fetch(
            Request("http://169.254.169.254/latest/", Site("http://169.254.169.254"))
        )
        await fetcher.aclose()
        assert response.kind is Kind.FORBIDDEN_ADDRESS
        assert proxy.visits == 0


@pytest.mark.parametrize("url", OTHER_SCHEMES)
async def test_only_http_and_https_are_fetched(url: str) -> None:
    assert (await fetch(url, allow_private=True)).kind is Kind.PROTOCOL
    with pytest.raises(JobError):
        build([{"url": url}])


async def test_silent_name_servers_do_not_keep_other_sites_from_being_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    silence = asyncio.Event()
    loop = asyncio.get_running_loop()

    def getaddrinfo(host: str, *args: object, **options: object) -> list[object]:
        if host.startswith("silent"):
            asyncio.run_coroutine_threadsafe(silence.wait(), loop).result()
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0))]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    async with opened(Door()) as door:
        timeouts = Timeouts(connect_s=30)
        options = ClientOptions(user_agent="headway/test", timeouts=timeouts, allow_private=True)
        fetcher = HttpFetcher(WallClock(), options)
        silent = [
            asyncio.ensure_future(fetcher.fetch(Request(f"{site}/", Site(site))))
            for site in (f"http://silent-{number}.example:{door.port}" for number in range(30))
        ]
        site = f"http://good.example:{door.port}"
        good = await fetcher.fetch(Request(f"{site}/", Site(site)))
        assert good.kind is Kind.FETCHED
        assert not any(task.done() for task in silent)
        silence.set()
        assert {response.kind for response in await asyncio.gather(*silent)} == {Kind.FETCHED}
        await fetcher.aclose()
