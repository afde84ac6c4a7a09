"""Nobody learns what is not theirs: passwords in URLs, headers meant for another host, the proxy's login."""

from __future__ import annotations

import asyncio
import base64
import gzip
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trustme

from headway.archive.warc import ARCHIVE_FOLDER
from headway.http.client import HttpFetcher
from headway.http.models import ClientOptions, parse_proxy
from headway.model.page import Kind, Site
from headway.ports import Request, Response
from headway.runtime.crawling import CrawlRun
from headway.runtime.driver import WallClock

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.soak.crawling import build, settled_by_site  # noqa: E402

LOGIN = base64.b64encode(b"user:hunter2")
PAGE = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 4\r\nSet-Cookie: id=42\r\n\r\npage"


class Listener:
    """Answers as told, by path, and keeps every request that it saw."""

    def __init__(self, answers: dict[str, bytes] | None = None) -> None:
        self.answers = answers or {}
        self.heads: list[bytes] = []
        self.port = 0

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.heads.append(head)
                writer.write(self.answers.get(head.split(b" ")[1].decode(), PAGE))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    @property
    def said(self) -> bytes:
        return b"".join(self.heads).lower()


class TunnelProxy(Listener):
    """Takes CONNECT and passes bytes on; answers plain requests itself."""

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            self.heads.append(head)
            if not head.startswith(b"CONNECT "):
                writer.write(PAGE)
                return
            host, _, port = head.split(b" ")[1].decode().rpartition(":")
            inner_reader, inner_writer = await asyncio.open_connection(host, int(port))
            writer.write(b"HTTP/1.1 200 Connected\r\n\r\n")
            await asyncio.gather(_pass_on(reader, inner_writer), _pass_on(inner_reader, writer))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(4096):
            writer.write(data)
    except ConnectionError:
        pass
    finally:
        writer.close()


@asynccontextmanager
async def opened(listener: Listener, context: ssl.SSLContext | None = None) -> AsyncIterator[Listener]:
    server = await asyncio.start_server(listener.take, "127.0.0.1", 0, ssl=context)
    listener.port = server.sockets[0].getsockname()[1]
    try:
        yield listener
    finally:
        server.close()
        await server.wait_closed()


async def fetch(fetcher: HttpFetcher, url: str) -> Response:
    site = Site(url[: url.index("/", 8)])
    try:
        return await fetcher.fetch(Request(url, site))
    finally:
        await fetcher.aclose()


async def test_a_password_in_a_url_is_neither_sent_nor_kept(tmp_path: Path) -> None:
    async with opened(Listener()) as there:
        origin = f"http://127.0.0.1:{there.port}"
        with_password = f"http://user:hunter2@127.0.0.1:{there.port}"
        body = f"<a href={with_password}/linked>x</a>".encode()
        there.answers["/"] = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n%s" % (
            len(body),
            body,
        )
        there.answers["/linked"] = (
            f"HTTP/1.1 302 Found\r\nLocation: {with_password}/moved\r\nContent-Length: 0\r\n\r\n".encode()
        )
        there.answers["/robots.txt"] = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
        await CrawlRun(build([{"url": f"{origin}/"}]), tmp_path / "run").run()
        settled = settled_by_site(tmp_path / "run", [origin])[origin]
        assert {path: page.kind for path, page in settled.items()} == {
            "/": Kind.FETCHED,
            "/linked": Kind.REDIRECT,
            "/moved": Kind.FETCHED,
        }
        assert b"hunter2" not in there.said
        assert b"authorization" not in there.said
        lists = [tmp_path / "run" / name for name in ("pages.jsonl", "crawl.log", "decisions.jsonl")]
        assert not any(b"hunter2" in path.read_bytes() for path in lists)


async def test_cookies_and_referrers_are_never_sent(tmp_path: Path) -> None:
    async with opened(Listener()) as there:
        origin = f"http://127.0.0.1:{there.port}"
        seeds = [f"{origin}/{number}" for number in range(3)]
        await CrawlRun(build([{"url": f"{origin}/", "seeds": seeds}]), tmp_path / "run").run()
        assert len(there.heads) == 5
        assert b"cookie:" not in there.said
        assert b"referer:" not in there.said


async def test_a_header_for_one_host_goes_to_no_other() -> None:
    """The fetcher follows no redirect: a caller who does decides again what to send."""
    async with opened(Listener()) as other, opened(Listener()) as there:
        location = f"http://127.0.0.1:{other.port}/".encode()
        there.answers["/"] = b"HTTP/1.1 302 Found\r\nLocation: " + location + b"\r\nContent-Length: 0\r\n\r\n"
        fetcher = HttpFetcher(WallClock(), ClientOptions(user_agent="headway/test", allow_private=True))
        site = Site(f"http://127.0.0.1:{there.port}")
        response = await fetcher.fetch(Request(f"{site}/", site, (("Authorization", "Bearer hunter2"),)))
        after = await fetcher.fetch(Request(f"{site}/after", site))
        await fetcher.aclose()
        assert (response.status, after.status) == (302, 200)
        assert [b"hunter2" in head for head in there.heads] == [True, False]
        assert other.heads == []


@pytest.mark.parametrize("value", ["x\r\nInjected: yes", "x\nInjected: yes", "x\0y", "x\rInjected: yes"])
async def test_no_header_value_can_add_a_line_to_a_request(value: str) -> None:
    async with opened(Listener()) as there:
        fetcher = HttpFetcher(WallClock(), ClientOptions(user_agent="headway/test", allow_private=True))
        site = Site(f"http://127.0.0.1:{there.port}")
        response = await fetcher.fetch(Request(f"{site}/", site, (("X-Note", value),)))
        await fetcher.aclose()
        assert response.kind is Kind.PROTOCOL
        assert there.heads == []


async def test_the_proxy_s_login_is_for_the_proxy_alone() -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with authority.cert_pem.tempfile() as ca_file:
        async with (
            opened(TunnelProxy()) as proxy,
            opened(Listener(), context) as secure,
            opened(Listener()) as plain,
        ):
            login = f"http://user:hunter2@127.0.0.1:{proxy.port}"

            def fetcher(no_proxy: tuple[str, ...] = ()) -> HttpFetcher:
                return HttpFetcher(
                    WallClock(),
                    ClientOptions(
                        user_agent="headway/test",
                        allow_private=True,
                        ca_file=ca_file,
                        proxy=parse_proxy(login),
                        no_proxy=no_proxy,
                    ),
                )

            tunnelled = await fetch(fetcher(), f"https://127.0.0.1:{secure.port}/")
            relayed = await fetch(fetcher(), "http://elsewhere.example/")
            direct = await fetch(fetcher(("127.0.0.1",)), f"http://127.0.0.1:{plain.port}/")
            assert {tunnelled.kind, relayed.kind, direct.kind} == {Kind.FETCHED}
            assert [LOGIN in head for head in proxy.heads] == [True, True]
            assert LOGIN.lower() not in secure.said
            assert LOGIN.lower() not in plain.said
            assert b"proxy-authorization" not in secure.said + plain.said
            assert LOGIN not in tunnelled.request_head + relayed.request_head + direct.request_head
            assert relayed.request_head.endswith(b"\r\n\r\n")


async def test_the_proxy_s_login_is_not_in_the_archive(tmp_path: Path) -> None:
    async with opened(TunnelProxy()) as proxy:
        job = build(
            [{"url": "http://elsewhere.example/"}], proxy=f"http://user:hunter2@127.0.0.1:{proxy.port}"
        )
        await CrawlRun(job, tmp_path / "run").run()
        archived = [
            gzip.decompress(path.read_bytes()) for path in (tmp_path / "run" / ARCHIVE_FOLDER).iterdir()
        ]
        assert archived
        assert b"GET http://elsewhere.example/" in archived[0]
        assert not any(LOGIN in octets or b"hunter2" in octets for octets in archived)


async def test_a_name_that_no_certificate_can_have_is_a_failed_page(tmp_path: Path) -> None:
    """Behind a proxy names are not resolved here, so that such a one gets as far as TLS."""

    class Yielding(TunnelProxy):
        async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.heads.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(b"HTTP/1.1 200 Connected\r\n\r\n")
            await reader.read()
            writer.close()

    async with opened(Yielding()) as proxy:
        job = build(
            [{"url": "https://.example.org/"}, {"url": f"https://{'a' * 64}.example.org/"}],
            proxy=f"http://127.0.0.1:{proxy.port}",
            respect_robots=False,
        )
        await CrawlRun(job, tmp_path / "run").run()
    origins = [wish.site for wish in job.sites]
    settled = settled_by_site(tmp_path / "run", origins)
    assert [settled[origin]["/"].kind for origin in origins] == [Kind.TLS, Kind.TLS]
