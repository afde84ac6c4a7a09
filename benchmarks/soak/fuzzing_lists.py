"""More to throw at: sitemaps and feeds, Squid's lines, fingerprints, and URLs for the trap watch."""

from __future__ import annotations

import gzip

from benchmarks.soak.fuzzing import NOW, URLS, Target, spliced, spliced_octets
from hypothesis import strategies as st

from headway.model.page import Kind, Outcome, Page, PageKey, Site
from headway.pages import fingerprint
from headway.pages.document import parse
from headway.pages.parsed import MAX_ENTRIES, ParseOptions
from headway.pages.sitemaps import read_listing
from headway.pages.url import page_of
from headway.policy import traps
from headway.policy.traps import TrapWatch
from headway.ports import Response
from headway.squid.spool import read_announced_line, read_datagram, read_log_line
from headway.units import Seconds

_SITE = Site("http://a.example")
_PAGE = Page(f"{_SITE}/sitemap.xml", _SITE, PageKey(1))

_LISTS = spliced_octets(
    b'<?xml version="1.0" encoding="utf-8"?>',
    b'<?xml version="1.0" encoding="utf-16"?>',
    b"<!DOCTYPE urlset [",
    b'<!ENTITY a "aaaaaaaaaa">',
    b'<!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">',
    b'<!ENTITY c SYSTEM "file:///etc/passwd">',
    b'<!ENTITY % d SYSTEM "http://127.0.0.1/">%d;',
    b"]>",
    b'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">',
    b"</urlset>",
    b"<sitemapindex>",
    b"</sitemapindex>",
    b"<sitemap><loc>http://a.example/b.xml</loc></sitemap>",
    b"<url><loc>http://a.example/1</loc><lastmod>2005-01-01T07:30Z</lastmod></url>",
    b"<url><loc>&b;&c;&#0;&#xD800;</loc></url>",
    b"<url>",
    b"</url>",
    b"<loc>",
    b"</loc>",
    b"<lastmod>99999-99-99</lastmod>",
    b"<![CDATA[",
    b"]]>",
    b"<rss><channel><item><link>http://a.example/2</link><pubDate>Thu, 05 Jan 2017 12:34:50 GMT</pubDate>",
    b"</item></channel></rss>",
    b'<feed xmlns="http://www.w3.org/2005/Atom"><entry><link href="/3"/><updated>2017</updated>',
    b'<feed xml:base="javascript:x"><link rel="next" href="?page=2"/>',
    b"http://a.example/4\n",
    b"\xff\xfe<\x00u\x00",
    b"\x1f\x8b\x08\x00",
    b"<a>" * 300,
    most=20,
)
_TYPES = st.sampled_from(
    ["application/xml", "text/xml", "text/plain", "application/rss+xml", "application/x-gzip", ""]
)
_SQUID_LINES = spliced(
    "1700000000.123",
    "    45 ",
    "127.0.0.1 ",
    "TCP_MISS/200 ",
    "TCP_MISS_ABORTED/000 ",
    "1234 ",
    "GET ",
    "CONNECT ",
    "- ",
    "http://a.example/x?y=z ",
    "http://user:secret@a.example/ ",
    "HIER_DIRECT/127.0.0.1 ",
    "text/html",
    "200 GET text/html http://a.example/",
    '127.0.0.1 - - [01/Jan/2030:00:00:00 +0000] "GET http://a.example/ HTTP/1.1" 200 12 ',
    "\t",
    '"',
    most=14,
)
_DATAGRAMS = spliced_octets(b"headway 1 ", b"1 2 3", b"\n", b"GET http://a.example/\n", b"9" * 30, b" ")
_TRAP_PATHS = spliced(
    "/a", "/b", "/", "?", "&", ";", "=", "PHPSESSID=", "sid=", "jsessionid=", "0123456789abcdef", "2030/05/",
    "year=2099", "(S(abcdefghijklmnop))", "%", "#", most=20,
)  # fmt: skip


def check_list(case: tuple[bytes, str, bool]) -> None:
    content, media_type, packed = case
    octets = gzip.compress(content) if packed else content
    listing = read_listing(octets, media_type, _PAGE.url)
    if listing is not None:
        assert len(listing.pages) + len(listing.lists) <= MAX_ENTRIES
        written = "".join(entry.href for entry in (*listing.pages, *listing.lists))
        assert "root:" not in written, "a file was read"
        assert len(written) <= 4 * len(content) + 1000, "entities were expanded"
    headers = (("content-type", media_type),)
    response = Response(Kind.FETCHED, _PAGE.url, NOW, Seconds(0.1), 200, headers, body=octets)
    parsed = parse(
        response, _PAGE, ParseOptions(read_sitemaps=True, read_feeds=True, takes_fingerprints=True)
    )
    for page in (*parsed.links, *parsed.lists):
        assert page_of(page.url) is not None


def check_squid_line(line: str) -> None:
    for asked in (read_log_line(line), read_announced_line(line)):
        if asked is not None:
            assert asked.url
            assert not asked.url.isspace()
            assert 0 <= asked.status <= 999


def check_datagram(data: bytes) -> None:
    read = read_datagram(data)
    assert read is None or read[0].number >= 0


def check_fingerprint(text: str) -> None:
    octets = text.encode("utf-8", "surrogatepass")
    taken = fingerprint.of_page(octets)
    assert -(1 << 63) <= taken < 1 << 63
    assert taken == fingerprint.of_page(octets)


def check_trap_address(paths: list[str]) -> None:
    watch = TrapWatch()
    lesson = None
    for number, path in enumerate(paths):
        traps.repeats_itself(path)
        traps.shape_of(path)
        page = Page(f"{_SITE}/{path}", _SITE, PageKey(number))
        reason = watch.judge(NOW, page, lesson)
        assert reason is None or reason.startswith("trap: ")
        lesson = watch.learn(NOW, page, Outcome(Kind.FETCHED, 200, fingerprint=number % 3))


TARGETS = {
    "sitemap": Target(st.tuples(_LISTS, _TYPES, st.booleans()), check_list),
    "squid-line": Target(_SQUID_LINES, check_squid_line),
    "squid-datagram": Target(_DATAGRAMS, check_datagram),
    "fingerprint": Target(
        spliced("<p>", "<img src=", "'", '"', ">", "<", "word ", "\0", most=40), check_fingerprint
    ),
    "trap-address": Target(st.lists(_TRAP_PATHS | URLS, max_size=8), check_trap_address),
}
