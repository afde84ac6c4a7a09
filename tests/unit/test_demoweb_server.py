"""Over real sockets the demo web answers as its design says, at its pace, and remembers what it saw."""

from __future__ import annotations

import asyncio
import gzip
import http.client
import json
import signal
import socket
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit
from xml.etree import ElementTree as ET

import brotlicffi
import pytest
import uvloop
import zstandard

from headway.demoweb import QUICK, Answer, Place, Scope, Served, ServedProcess, Tempo, design_web, serve
from headway.demoweb.model import STATUS_OF, CharsetHint, Framing, Layout, PageDesign
from headway.errors import HeadwayError

UNDO: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.decompress,
    "br": brotlicffi.decompress,
    "zstd": lambda data: zstandard.ZstdDecompressor().decompressobj().decompress(data),
    "deflate": zlib.decompress,
}


class Got(NamedTuple):
    status: int
    headers: http.client.HTTPMessage
    body: bytes


@pytest.fixture(scope="module")
def web() -> Iterator[ServedProcess]:
    with ServedProcess(design_web(7, 0.2, tempo=QUICK)) as served:
        yield served


def connect(origin: str) -> http.client.HTTPConnection:
    parts = urlsplit(origin)
    assert parts.hostname is not None
    return http.client.HTTPConnection(parts.hostname, parts.port, timeout=20)


def ask(origin: str, path: str, method: str = "GET", **headers: str) -> Got:
    connection = connect(origin)
    try:
        connection.request(method, path, headers={k.replace("_", "-"): v for k, v in headers.items()})
        answer = connection.getresponse()
        return Got(answer.status, answer.headers, answer.read())
    finally:
        connection.close()


def ask_raw(origin: str, request: bytes) -> bytes:
    parts = urlsplit(origin)
    with socket.create_connection((parts.hostname, parts.port), timeout=20) as raw:
        raw.sendall(request)
        raw.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: raw.recv(65536), b""))


def seen_of(origin: str, page: PageDesign) -> Answer | int:
    """What one request for the page comes to, in the design's own words."""
    try:
        got = ask(origin, page.path)
    except http.client.IncompleteRead:
        return Answer.CUT
    except http.client.BadStatusLine:
        return Answer.GARBAGE
    except ConnectionResetError:
        return Answer.RESET
    return Answer.AS_DESIGNED if got.status == page.status else got.status


def test_every_page_answers_as_designed_from_the_first_request_to_the_last() -> None:
    resets = {Answer.STALL, Answer.STALL_MIDWAY}
    with ServedProcess(design_web(3, 0.1, tempo=QUICK)) as web:
        for site in web.design.sites.values():
            for page in site.pages.values():
                for answer in (*page.answers, page.answers[-1])[: len(page.answers) + 1]:
                    designed = STATUS_OF.get(answer, Answer.RESET if answer in resets else answer)
                    assert seen_of(web.sites[site.name], page) == designed, page.path


def test_every_url_of_the_answer_key_has_its_status_type_and_size(web: ServedProcess) -> None:
    expected = web.expected(Scope(respect_robots=False, respect_tags=False, types=None))
    assert len(expected) > 250
    for url, key in expected.items():
        if key.status not in {200, 403, 410, 302, 404}:
            continue
        parts = urlsplit(url)
        path = url.removeprefix(f"{parts.scheme}://{parts.netloc}")
        got = ask_until_settled(f"{parts.scheme}://{parts.netloc}", path, key.status)
        assert got.headers.get_content_type() == key.content_type.lower()
        if key.content_bytes and key.location is None:
            assert len(got.body) == key.content_bytes, url
        if key.location is not None:
            joined = http.client.urlsplit(got.headers["Location"])
            assert joined.path.removeprefix("..") == key.location.path


def ask_until_settled(origin: str, path: str, status: int) -> Got:
    for _ in range(3):
        try:
            got = ask(origin, path)
        except (http.client.HTTPException, ConnectionResetError):
            continue
        if got.status == status:
            return got
    return ask(origin, path)


def test_coded_pages_are_coded_for_those_who_accept_it_only(web: ServedProcess) -> None:
    coded = [page for page in web.design.sites["gazette"].pages.values() if page.coding]
    assert {page.coding for page in coded} == set(UNDO)
    for page in coded:
        plain = ask(web.sites["gazette"], page.path)
        got = ask(web.sites["gazette"], page.path, Accept_Encoding=f"identity, {page.coding};q=0.5")
        assert "Content-Encoding" not in plain.headers
        assert got.headers["Content-Encoding"] == page.coding
        assert UNDO[page.coding](got.body) == plain.body
        assert len(got.body) < len(plain.body)
        refused = ask(web.sites["gazette"], page.path, Accept_Encoding=f"{page.coding};q=0")
        assert refused.body == plain.body


def test_bodies_end_by_length_by_chunks_and_by_closing(web: ServedProcess) -> None:
    pages = [(s, p) for s in web.design.sites.values() for p in s.pages.values() if p.status == 200]
    found = set()
    for site, page in pages:
        if page.framing in found or page.answers != (Answer.AS_DESIGNED,):
            continue
        found.add(page.framing)
        got = ask(web.sites[site.name], page.path)
        assert ("Content-Length" in got.headers) == (page.framing is Framing.LENGTH)
        assert (got.headers.get("Transfer-Encoding") == "chunked") == (page.framing is Framing.CHUNKED)
        assert (got.headers.get("Connection") == "close") == (page.framing is Framing.CLOSE)
        assert not page.size_bytes or len(got.body) == page.size_bytes
    assert found >= {Framing.LENGTH, Framing.CHUNKED}


def test_an_http_1_0_client_gets_no_chunks(web: ServedProcess) -> None:
    page = next(p for p in web.design.sites["library"].pages.values() if p.framing is Framing.CHUNKED)
    data = ask_raw(web.sites["library"], f"GET {page.path} HTTP/1.0\r\n\r\n".encode())
    head, _, body = data.partition(b"\r\n\r\n")
    assert b"chunked" not in head
    assert len(body) == page.size_bytes


def test_a_connection_is_kept_and_its_pipelined_requests_are_answered_in_order(web: ServedProcess) -> None:
    paths = ["/", "/about.html", "/guide/", "/nowhere.html"]
    request = b"".join(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode() for path in paths)
    before = len(web.connections("library"))
    data = ask_raw(web.sites["library"], request)
    assert len(web.connections("library")) == before + 1
    statuses = [part[:3] for part in data.split(b"HTTP/1.1 ")[1:]]
    assert statuses == [b"200", b"200", b"200", b"404"]
    log = web.requests("library")[-4:]
    assert [exchange.path for exchange in log] == paths
    assert len({exchange.connection for exchange in log}) == 1
    assert sum(exchange.sent_bytes for exchange in log) == len(data)


def test_a_page_is_found_by_every_spelling_of_its_path(web: ServedProcess) -> None:
    for one, other in (
        ("/odd/%7Etilde.html", "/odd/~tilde.html"),
        ("/odd/%C3%BCber.html", "/odd/%c3%bcber.html"),
        ("/about.html", "/%61bout.html"),
    ):
        assert ask(web.sites["registry"], one).body == ask(web.sites["registry"], other).body
        assert ask(web.sites["registry"], other).status == 200


def test_head_has_the_same_head_and_no_body(web: ServedProcess) -> None:
    get, head = (ask(web.sites["library"], "/about.html", method) for method in ("GET", "HEAD"))
    assert head.headers.items() == get.headers.items()
    assert head.body == b""


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"POST / HTTP/1.1\r\n\r\n", b"405"),
        (b"GET / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", b"400"),
        (b"nonsense\r\n\r\n", b"400"),
        (b"GET / SPDY/3\r\n\r\n", b"400"),
        (b"GET /" + b"x" * 70_000, b"431"),
        (b"GET http://127.0.0.1:1/about.html HTTP/1.1\r\n\r\n", b"200"),
    ],
)
def test_odd_requests_get_an_error(web: ServedProcess, request_bytes: bytes, status: bytes) -> None:
    assert ask_raw(web.sites["registry"], request_bytes)[9:12] == status


@pytest.mark.parametrize("site", ["library", "observatory"])
def test_who_has_the_page_already_gets_304(web: ServedProcess, site: str) -> None:
    first = ask(web.sites[site], "/about.html")
    for condition in (
        {"If_None_Match": first.headers["ETag"]},
        {"If_None_Match": f'"other", {first.headers["ETag"]}'},
        {"If_Modified_Since": first.headers["Last-Modified"]},
    ):
        again = ask(web.sites[site], "/about.html", **condition)
        assert (again.status, again.body) == (304, b"")
        assert again.headers["ETag"] == first.headers["ETag"]
    for condition in (
        {"If_None_Match": '"other"', "If_Modified_Since": first.headers["Last-Modified"]},
        {"If_Modified_Since": "Mon, 02 Nov 2015 08:00:00 GMT"},
        {"If_Modified_Since": "yesterday"},
    ):
        assert ask(web.sites[site], "/about.html", **condition).status == 200


def test_sitemaps_list_what_the_design_says_absolute_and_in_gzip_too(web: ServedProcess) -> None:
    namespace = "{http://www.sitemaps.org/schemas/sitemap/0.9}"

    def locations(data: bytes) -> list[str]:
        root = ET.fromstring(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
        return [str(node.text) for node in root.iter(f"{namespace}loc")]

    library = web.sites["library"]
    assert f"Sitemap: {library}/sitemap.xml" in ask(library, "/robots.txt").body.decode()
    index = locations(ask(library, "/sitemap.xml").body)
    listed = [url for part in index for url in locations(ask(library, part.removeprefix(library)).body)]
    assert listed == [library + path for path in web.design.sites["library"].sitemap_pages]
    feed = ET.fromstring(ask(web.sites["gazette"], "/feed.xml").body)
    assert len(list(feed.iter("{http://www.w3.org/2005/Atom}entry"))) > 0


def test_robots_txt_behind_a_redirect_can_be_fetched(web: ServedProcess) -> None:
    moved = ask(web.sites["harbour"], "/robots.txt")
    assert (moved.status, moved.headers["Location"]) == (301, f"{web.sites['harbour']}/static/robots.txt")
    assert b"User-agent: *" in ask(web.sites["harbour"], "/static/robots.txt").body


def test_charsets_are_named_where_the_design_says(web: ServedProcess) -> None:
    for page in web.design.sites["museum"].pages.values():
        if page.path.startswith("/charsets/") and page.path.endswith((".html",)) and "-by-" in page.path:
            got = ask(web.sites["museum"], page.path)
            named = got.headers.get_content_charset()
            assert (named == page.charset) == (page.charset_hint is CharsetHint.HEADER)
            codec = "utf-8-sig" if page.charset == "utf-8" else page.charset
            assert page.title in got.body.decode(codec)
    assert ask(web.sites["museum"], "/tags/header-noindex.html").headers["X-Robots-Tag"] == "noindex"


def test_the_calendar_has_no_end(web: ServedProcess) -> None:
    path = "/calendar/2026/11/"
    for _ in range(40):
        page = web.design.page(Place("almanac", path))
        assert page is not None
        assert page.links[0].to is not None
        got = ask(web.sites["almanac"], path)
        path = page.links[0].to.path
        assert got.status == 200
        assert f'href="{path}"'.encode() in got.body
    assert path == "/calendar/2030/03/"
    assert b"/calendar/10000/01/" in ask(web.sites["almanac"], "/calendar/9999/12/").body
    for nowhere in ("/calendar/2026/10/", "/calendar/2026/13/", "/calendar/2026/11/32.html", "/calendar/"):
        assert ask(web.sites["almanac"], nowhere).status == 404


async def at_once(*calls: Callable[[], object]) -> list[object]:
    return list(await asyncio.gather(*(asyncio.to_thread(call) for call in calls)))


async def test_the_rate_holds_over_all_connections_together() -> None:
    rate = 300_000
    design = design_web(7, 0.3, roster=("harbour",), tempo=Tempo(rate_bytes_per_s=rate))
    pages = sorted(design.sites["harbour"].documents(), key=lambda page: -page.size_bytes)[:6]
    async with serve(design) as served:
        origin = served.sites["harbour"]
        await at_once(*(lambda path=page.path: ask(origin, path) for page in pages))
        log = served.requests("harbour")
        took_s = max(e.answered_at for e in log) - min(e.received_at for e in log)
        assert served.most_connections("harbour") == len(pages)
        assert sum(e.sent_bytes for e in log) / took_s <= 1.25 * rate
        assert sum(e.sent_bytes for e in log) / took_s >= 0.3 * rate


async def test_the_slow_site_takes_its_time_before_each_answer_and_the_others_do_not_wait() -> None:
    design = design_web(7, 0.2, roster=("observatory", "plain"), tempo=Tempo(latency_s=0.15))
    slow = design.sites["observatory"].documents()[:6]
    assert min(page.latency_s for page in slow) > 0.03
    async with serve(design) as served:
        await at_once(*(lambda path=p.path: ask(served.sites["observatory"], path) for p in slow))
        await at_once(lambda: ask(served.sites["plain"], "/"))
        by_path = {e.path: e for e in served.requests("observatory")}
        for page in slow:
            exchange = by_path[page.path]
            assert exchange.answered_at - exchange.received_at >= 0.99 * page.latency_s
        (plain,) = served.requests("plain")
        assert plain.answered_at - plain.received_at < min(page.latency_s for page in slow)


async def test_a_stall_is_silent_for_its_time_and_then_a_reset() -> None:
    design = design_web(7, 0.1, roster=("workshop",), tempo=Tempo(stall_s=0.2))

    def stalled(path: str) -> bytes:
        received = b""
        parts = urlsplit(origin)
        with socket.create_connection((parts.hostname, parts.port), timeout=20) as raw:
            raw.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            try:
                while data := raw.recv(65536):
                    received += data
            except ConnectionResetError:
                return received
        pytest.fail("an orderly end")

    async with serve(design) as served:
        origin = served.sites["workshop"]
        assert await asyncio.to_thread(stalled, "/failures/stall-once.html") == b""
        half = await asyncio.to_thread(stalled, "/failures/stall-midway-once.html")
        assert half.startswith(b"HTTP/1.1 200 OK")
        for exchange in served.requests():
            assert exchange.answered_at - exchange.received_at >= 0.2
            assert not exchange.complete


def test_busy_and_limited_answers_say_when_to_come_again() -> None:
    with ServedProcess(design_web(7, 0.1, roster=("workshop",), tempo=Tempo(retry_after_s=3))) as web:
        for path, status in (("/failures/503-once.html", 503), ("/failures/429-once.html", 429)):
            got = ask(web.sites["workshop"], path)
            assert (got.status, got.headers["Retry-After"]) == (status, "3")
            assert ask(web.sites["workshop"], path).status == 200


async def test_the_log_tells_gaps_and_connections_apart() -> None:
    async with serve(design_web(7, 0.1, roster=("plain",))) as served:

        def two_at_once_then_one() -> None:
            first, second = connect(served.sites["plain"]), connect(served.sites["plain"])
            for connection in (first, second, first):
                connection.request("GET", "/about.html", headers={"User-Agent": "tester/1"})
                connection.getresponse().read()
            first.close()
            second.close()
            ask(served.sites["plain"], "/")

        await asyncio.to_thread(two_at_once_then_one)
        log = served.requests("plain")
        assert [e.connection - log[0].connection for e in log] == [0, 1, 0, 2]
        assert [e.user_agent for e in log[:3]] == ["tester/1"] * 3
        assert served.most_connections("plain") == 2
        assert all(gap_s > 0 for gap_s in served.gaps_s("plain"))
        assert len(served.gaps_s("plain")) == 3


async def test_closing_cuts_open_connections_and_frees_the_ports() -> None:
    design = design_web(
        7, 0.1, roster=("workshop", "harbour"), tempo=Tempo(stall_s=600, rate_bytes_per_s=2_000)
    )
    async with serve(design) as served:
        ports = [urlsplit(url).port for url in served.urls]
        clients = []
        for site, path in (("workshop", "/failures/stall-once.html"), ("harbour", "/"), ("harbour", "")):
            reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(served.sites[site]).port)
            writer.write(f"GET {path} HTTP/1.1\r\n\r\n".encode() if path else b"GET")
            clients.append((reader, writer))
        while len(served.connections()) < 3:
            await asyncio.sleep(0)
        await clients[1][0].readexactly(1)
    for reader, writer in clients:
        with suppress(ConnectionResetError):
            await reader.read()
        writer.close()
    assert all(connection.closed_at is not None for connection in served.connections())
    base = min(port for port in ports if port is not None)
    async with serve(design_web(7, 0.1, roster=("plain",)), base) as again:
        assert again.urls == (f"http://127.0.0.1:{base}/",)


async def test_it_runs_on_uvloop_alike() -> None:
    async def crawl() -> set[str]:
        async with serve(design_web(7, 0.1, roster=("workshop", "library"), tempo=QUICK)) as served:
            workshop = served.design.sites["workshop"].pages
            seen = [await asyncio.to_thread(seen_of, served.sites["workshop"], p) for p in workshop.values()]
            library = served.design.sites["library"].pages
            for page in library.values():
                got = await asyncio.to_thread(ask, served.sites["library"], page.path)
                assert got.status == page.status
            assert len(served.requests("library")) == len(library)
            return {str(answer) for answer in seen}

    def run() -> set[str]:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(crawl())

    assert await asyncio.to_thread(run) >= {"as-designed", "reset", "cut", "garbage", "500", "503", "429"}


async def test_a_taken_port_is_named_with_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(HeadwayError, match=f"port {port} on 127.0.0.1.*'plain'.*used.*another"):
            async with serve(design_web(7, 0.1, roster=("plain",)), port):
                pytest.fail("served on a taken port")
        with (
            pytest.raises(HeadwayError, match=f"port {port} on 127.0.0.1"),
            ServedProcess(design_web(7, 0.1, roster=("plain",)), port),
        ):
            pytest.fail("served on a taken port")


@pytest.mark.parametrize("port_base", [0, -5, 65_530, 70_000])
async def test_a_port_base_that_leaves_no_room_is_refused(port_base: int) -> None:
    with pytest.raises(HeadwayError, match=f"needs 8 ports.*choose.*not {port_base}"):
        async with serve(design_web(7, 0.1), port_base):
            pytest.fail("served")


def start_by_hand(*options: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "headway.demoweb", "--scale", "0.1", "--site", "plain", *options]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@pytest.mark.parametrize("how", ["stdin", "sigterm", "sigint"])
def test_the_process_says_where_it_is_and_ends_when_told(how: str, tmp_path: Path) -> None:
    with start_by_hand("--access-log", str(tmp_path / "log")) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stderr is not None
        sites = json.loads(child.stdout.readline())["sites"]
        assert ask(sites["plain"], "/").status == 200
        if how == "stdin":
            child.stdin.close()
        else:
            child.send_signal(signal.SIGTERM if how == "sigterm" else signal.SIGINT)
        assert child.wait(timeout=20) == 0
        assert child.stderr.read() == b""
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert [line["path"] for line in lines if line["type"] == "exchange"] == ["/"]


@pytest.mark.parametrize(
    "options",
    [
        ("--site", "libary"),
        ("--scale", "0"),
        ("--recipe", "{}"),
        ("--recipe", "nonsense"),
        ("--access-log", "/nowhere/at/all"),
    ],
)
def test_the_process_says_what_is_wrong_without_a_traceback(options: tuple[str, ...]) -> None:
    with start_by_hand(*options) as child:
        out, complaint = child.communicate(timeout=20)
    assert (child.returncode, out) == (1, b"")
    assert complaint.strip()
    assert b"Traceback" not in complaint


def test_the_log_of_a_process_can_be_read_while_it_runs_and_after(tmp_path: Path) -> None:
    with ServedProcess(design_web(7, 0.1, roster=("plain",)), access_log=tmp_path / "log") as web:
        began_at = time.monotonic()
        ask(web.sites["plain"], "/about.html")
        deadline = began_at + 20
        while not web.requests("plain") and time.monotonic() < deadline:
            pass
        (exchange,) = web.requests("plain")
        assert began_at <= exchange.received_at <= exchange.answered_at
    assert [e.path for e in web.requests()] == ["/about.html"]
    assert web.most_connections() == 1
    with pytest.raises(RuntimeError, match="not running"):
        _ = web.pid


def test_served_and_design_agree_on_what_can_be_reached(web: Served) -> None:
    scope = Scope(max_depth=3)
    assert web.reachable(scope) == {place.url(web.sites) for place in web.design.reachable(scope)}
    assert set(web.urls) <= web.reachable(scope)
    assert web.url("library", "/about.html") in web.reachable(scope)
    robots = web.design.sites["harbour"].pages["/robots.txt"]
    assert robots.layout is Layout.REDIRECT
