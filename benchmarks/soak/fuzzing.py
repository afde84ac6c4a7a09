"""What is thrown at each parser, and what must hold for whatever it makes of it.

A target is a Hypothesis strategy and a check that raises when a promise is broken. The tests run each for a
moment, `python -m benchmarks.soak --fuzz` for as long as one likes.
"""

from __future__ import annotations

import contextlib
import gzip
import math
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import brotlicffi
import msgspec
import zstandard
from hypothesis import strategies as st

from headway.config.job import build_job
from headway.config.reading import read_job_file
from headway.errors import JobError
from headway.http.decode import decode as decode_content
from headway.http.head import HeadError, parse_head
from headway.http.models import Limits, TargetError, parse_target
from headway.http.reader import ResponseReader
from headway.http.robots import judge
from headway.model.page import Kind
from headway.pages.document import parse, read
from headway.pages.headers import charset_of, in_utf_8, links_of, media_type_of, retry_after_s
from headway.pages.headers import decode as decode_text
from headway.pages.url import canonical, page_of, pages_of
from headway.ports import Response
from headway.units import Instant, Seconds

LIMITS = Limits(
    max_body_bytes=4096, max_decoded_bytes=16_384, ratio_counts_from_bytes=8192, max_head_bytes=2048
)
NOW = Instant(1_800_000_000.0)


class Target(msgspec.Struct, frozen=True):
    inputs: st.SearchStrategy[Any]
    check: Callable[[Any], None]


# -- inputs -----------------------------------------------------------------------------------------------


def spliced(*scraps: str, most: int = 12) -> st.SearchStrategy[str]:
    """Scraps that mean something to the parser, in any order, with anything between them."""
    piece = st.sampled_from(scraps) | st.text(max_size=8)
    return st.lists(piece, max_size=most).map("".join)


def spliced_octets(*scraps: bytes, most: int = 16) -> st.SearchStrategy[bytes]:
    piece = st.sampled_from(scraps) | st.binary(max_size=8)
    return st.lists(piece, max_size=most).map(b"".join)


URLS = spliced(
    *("http://", "https://", "//", "/", "\\", "..", ".", "@", ":", "user:pw@", "127.0.0.1", "[::1]", "0x7f"),
    *(
        "example.org",
        "xn--",
        "%",
        "%2e",
        "%00",
        "?",
        "#",
        "&",
        "=",
        "\t",
        "\n",
        "\0",
        "javascript:",
        "file:///",
    ),
    *("data:,", "\u202e", "\uff0f", "\ufeff", "é", "99999", ":80", "\ud800"),
)
HTML = spliced(
    *(
        "<a href=",
        "<A HREF='",
        '"',
        "'",
        ">",
        "</a>",
        "<base href=",
        "<meta ",
        "name=robots ",
        "content=",
        "noindex",
    ),
    *(
        "http-equiv=refresh ",
        "0;url=",
        "<title>",
        "</title>",
        "<!--",
        "-->",
        "<script>",
        "</script>",
        "<iframe src=",
    ),
    *(
        "<link rel=canonical href=",
        "&amp;",
        "&#0;",
        "&#x110000;",
        "&notit;",
        "<plaintext>",
        "\0",
        "<svg>",
        "/x",
        "=",
    ),
    most=30,
)
PAGES = HTML.map(lambda text: text.encode("utf-8", "surrogatepass")) | spliced_octets(
    b"\xef\xbb\xbf",
    b"\xff\xfe",
    b"<meta charset=",
    b"utf-16",
    b"shift_jis",
    b">",
    b"<a href=x>",
    b"\x1b$B",
    b"\x80",
)
LABELS = st.sampled_from(
    [
        "",
        "utf-8",
        "utf-16",
        "utf-7",
        "shift_jis",
        "iso-2022-jp",
        "gb18030",
        "hz-gb-2312",
        "replacement",
        "zlib_codec",
    ]
) | st.text(max_size=20)
HEADS = spliced_octets(
    *(
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.0 ",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 204 No\r\n",
        b"HTTP/",
    ),
    *(
        b"Content-Length: 5\r\n",
        b"Content-Length:",
        b"Transfer-Encoding: chunked\r\n",
        b"Connection: close\r\n",
    ),
    *(
        b"\r\n",
        b"\n",
        b"\r\n\r\n",
        b"5\r\nhello\r\n",
        b"0\r\n\r\n",
        b"ffffffffffffffff\r\n",
        b": ",
        b" x\r\n",
        b"\0",
    ),
    *(b"Content-Type: text/html\r\n", b"Content-Encoding: gzip\r\n", b"Location: /\r\n", b";ext=1"),
)
WHOLE_ANSWERS = HEADS | st.builds(
    lambda lines, rest: b"HTTP/1.1 200 OK\r\n" + b"".join(lines) + b"\r\n" + rest,
    st.lists(
        st.sampled_from(
            [
                b"Content-Length: 5\r\n",
                b"Content-Length: 5, 5\r\n",
                b"Transfer-Encoding: chunked\r\n",
                b"A b: c\r\n",
            ]
        ),
        max_size=3,
    ),
    spliced_octets(b"5\r\nhello\r\n", b"0\r\n", b"\r\n", b"hello", b"1;x\r\ny\r\n", b"0\r\nA: b\r\n\r\n"),
)
ARRIVALS = st.lists(WHOLE_ANSWERS | st.binary(max_size=200), max_size=4)
HEADER_VALUES = spliced(
    *(
        "<",
        ">",
        ";",
        ",",
        "=",
        '"',
        "rel",
        "next",
        "canonical",
        "text/html",
        "charset",
        "utf-8",
        "Mon, 02 Nov 2026",
    ),
    *("08:00:00", "GMT", "+9999", "-1", "9" * 20, "1e9", "99999999999 ", " "),
)
ROBOTS = spliced_octets(
    *(
        b"User-agent:",
        b" *",
        b"headway",
        b"\n",
        b"\r",
        b"Disallow:",
        b"Allow:",
        b" /",
        b"*",
        b"$",
        b"%",
        b"%2f",
    ),
    *(
        b"Crawl-delay:",
        b" 1e308",
        b" nan",
        b" 5",
        b"Sitemap:",
        b"\xef\xbb\xbf",
        b"\xff\xfe",
        b"\0",
        b"#",
        b"\x85",
    ),
    most=30,
)
_TEXT = b"the same words again and again, " * 200
_PACKED = {
    "gzip": [
        gzip.compress(_TEXT, mtime=0),
        gzip.compress(b"", mtime=0),
        gzip.compress(bytes(200_000), mtime=0),
    ],
    "deflate": [zlib.compress(_TEXT), zlib.compress(_TEXT)[2:-4], zlib.compress(bytes(200_000))],
    "br": [brotlicffi.compress(_TEXT), brotlicffi.compress(bytes(200_000))],
    "zstd": [zstandard.compress(_TEXT), zstandard.compress(bytes(200_000))],
}


@st.composite
def coded(draw: st.DrawFn) -> tuple[bytes, str]:
    """A stream in some coding with a few octets changed, cut or added, under some name."""
    stream = bytearray(draw(st.sampled_from([one for all_of in _PACKED.values() for one in all_of])))
    for _ in range(draw(st.integers(0, 4))):
        stream[draw(st.integers(0, len(stream) - 1))] = draw(st.integers(0, 255))
    payload = bytes(stream[: draw(st.integers(0, len(stream)))]) if draw(st.booleans()) else bytes(stream)
    names = st.sampled_from([*_PACKED, "x-gzip", "identity", "GZIP", " br ", "", "unknown"]) | st.text(
        max_size=5
    )
    return payload + draw(st.binary(max_size=6)), ", ".join(draw(st.lists(names, min_size=1, max_size=6)))


JOBS = spliced(
    *("[crawl]\n", "[[site]]\n", "[crawl.timeouts]\n", "[[crawl.timetable]]\n", 'url = "http://a.org/"\n'),
    *(
        'bandwidth = "5 Mbit/s"\n',
        "bandwidth = 5\n",
        'deadline = "2 h"\n',
        "deadline = 07:30:00\n",
        "max_pages = 0\n",
    ),
    *(
        "max_pages = -1\n",
        'interval = "1e999 s"\n',
        'timezone = "../etc/passwd"\n',
        "weight = nan\n",
        "weight = inf\n",
    ),
    *(
        'days = "sun-mon"\n',
        'hours = "25:00-1:00"\n',
        "seeds = [",
        "]",
        '"',
        "'''",
        "= ",
        "#",
        "{a = 1}",
        '"\\u0000"',
    ),
    *(
        'proxy = "x"\n',
        "retry_penalty = true\n",
        'strategy = "\\n"\n',
        "[a.b.c]\n",
        "2026-11-16T00:00:00Z",
        "\ufeff",
    ),
)


# -- checks -----------------------------------------------------------------------------------------------


def check_url(href: str) -> None:
    for base in (None, "http://a.org/b/c?d"):
        page = page_of(href, base)
        if page is None:
            continue
        assert page.url.startswith((f"{page.site}/",))
        assert page.site.startswith(("http://", "https://"))
        assert page.url.isascii()
        assert page.url.isprintable()
        assert " " not in page.url
        assert "@" not in page.site
        assert canonical(page.url) == page.url
    found = pages_of([href, href, "x"], "http://a.org/b/", 3)
    assert len(found.pages) + found.skipped <= 2
    try:
        target = parse_target(href)
    except (TargetError, TypeError):
        return
    assert target.origin.scheme in {"http", "https"}
    assert target.path.isprintable()


def check_page(body: bytes) -> None:
    page = page_of("http://a.org/")
    assert page is not None
    for content_type in ("text/html", "text/html; charset=shift_jis", ""):
        response = Response(
            Kind.FETCHED,
            page.url,
            NOW,
            Seconds(0.1),
            200,
            (("content-type", content_type),),
            body=body,
            payload=body,
        )
        parsed = parse(response, page)
        assert all(link.url.startswith(("http://", "https://")) for link in parsed.links)
        assert len({link.url for link in parsed.links}) == len(parsed.links)


def check_markup(text: str) -> None:
    title = read(text.encode("utf-8", "surrogatepass"), "headway").title
    assert title == " ".join(title.split())


def check_charset(case: tuple[bytes, str]) -> None:
    decoded = decode_text(*case)
    decoded.text.encode("utf-8", "surrogatepass")
    "".encode(decoded.codec)
    assert in_utf_8(*case)[1:] == decoded[1:]


def check_head(head: bytes) -> None:
    try:
        reply = parse_head(head, 64)
    except HeadError:
        return
    assert 0 <= reply.status <= 999
    assert reply.length_bytes >= 0
    assert not any("\r" in value or "\n" in value or "\0" in value for _, value in reply.headers)


def check_reader(case: tuple[bytes, list[int]]) -> None:
    """However an answer is cut into arrivals, it reads the same."""
    stream, cuts = case
    whole = _read([stream])
    places = sorted({min(cut, len(stream)) for cut in cuts})
    pieces = [stream[a:b] for a, b in zip([0, *places], [*places, len(stream)], strict=True)]
    assert whole.received_bytes <= LIMITS.max_body_bytes
    assert whole.finished
    cut = _read(pieces)
    assert (cut.kind, cut.head, cut.payload()) == (whole.kind, whole.head, whole.payload())


def _read(pieces: list[bytes]) -> ResponseReader:
    reader = ResponseReader(LIMITS)
    for piece in pieces:
        if piece and reader.feed(piece):
            return reader
    reader.feed_eof()
    return reader


def check_header_values(value: str) -> None:
    wait_s = retry_after_s(NOW, value)
    assert wait_s is None or (wait_s >= 0 and math.isfinite(wait_s))
    media_type_of(value)
    charset_of(value)
    links_of([value, value])


def check_robots(case: tuple[bytes, int, str]) -> None:
    body, status, url = case
    rules = judge(status, body, "headway/1.0")
    if rules is not None:
        assert rules.allows(url) in {True, False}
        assert rules.crawl_delay_s is None or 0 <= rules.crawl_delay_s <= 86_400


def check_coded(case: tuple[bytes, str]) -> None:
    payload, names = case
    decoded = decode_content(payload, names, LIMITS)
    assert len(decoded.body) <= max(LIMITS.max_decoded_bytes, len(payload))


def check_job(octets: bytes) -> None:
    with tempfile.NamedTemporaryFile(suffix=".toml") as file:
        file.write(octets)
        file.flush()
        with contextlib.suppress(JobError):
            build_job(*read_job_file(Path(file.name)), now=NOW)


TARGETS = {
    "url": Target(URLS, check_url),
    "robots": Target(st.tuples(ROBOTS, st.sampled_from([200, 301, 404, 429, 500]), URLS), check_robots),
    "html": Target(HTML, check_markup),
    "page": Target(PAGES, check_page),
    "charset": Target(st.tuples(PAGES, LABELS), check_charset),
    "head": Target(WHOLE_ANSWERS, check_head),
    "answer": Target(st.tuples(WHOLE_ANSWERS, st.lists(st.integers(0, 400), max_size=5)), check_reader),
    "header-values": Target(HEADER_VALUES, check_header_values),
    "content-coding": Target(coded(), check_coded),
    "job": Target(
        JOBS.map(lambda text: text.encode("utf-8", "surrogatepass")) | st.binary(max_size=60), check_job
    ),
}
