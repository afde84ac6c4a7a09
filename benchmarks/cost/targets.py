"""Every parser of what a server sends, and the words of which its inputs are made."""

# ruff: noqa: E501 - the words of a grammar, some to a line
from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Callable

import brotlicffi
import zstandard

from headway.archive.records import consistent_head, field_text, uri
from headway.archive.warc import surt
from headway.http.decode import decode
from headway.http.models import Limits
from headway.http.reader import ResponseReader
from headway.http.robots import judge
from headway.model.command import PageState, SaveSettled
from headway.model.page import Kind, Outcome, Page
from headway.pages import Work, document, fingerprint, headers, scanner
from headway.pages.extract import number_of
from headway.pages.sitemaps import read_listing
from headway.pages.url import canonical, page_of, pages_of
from headway.policy import traps
from headway.policy.scope import fits, product_token
from headway.ports import Response
from headway.store.rows import cdxj_lines, log_line
from headway.view.summary import count_clusters

from .measuring import Target
from .recipes import COUNT

URL = "http://example.org/a/b?c=d"
_PAGE = page_of(URL)
assert _PAGE is not None
HOME: Page = _PAGE
_LIMITS = Limits(max_decoded_bytes=1024 * 1024)
_LONGEST_URL = 16_384

_BASIC = (
    b" ",
    b"\n",
    b"\t",
    b"a",
    b"0",
    b"<",
    b">",
    b"/",
    b'"',
    b"'",
    b"=",
    b"&",
    b";",
    b"-",
    b"!",
    b"\0",
    b"\xff",
    COUNT,
)
_TAGS = (
    b"<a href=x>", b'<a href="', b"<a ", b"</a>", b"<x ", b"<!--", b"-->", b"--!>", b"<!", b"<script>", b"</script",
    b"<style>", b"<title>", b"</title>", b"<textarea>", b"<plaintext>", b"<iframe src=", b"<base href=", b"<link rel=",
    b"<meta name=robots content=", b"<meta http-equiv=refresh content='0;url=", b"<img src=", b"<svg>", b"<![CDATA[",
    b"]]>", b"<?xml ", b"<xmp>", b"<noembed>", b"rel=nofollow ", b"href=", b" src=", b"<IMG SRC", b"<template>",
)  # fmt: skip
_REFERENCES = (
    b"&amp;", b"&amp", b"&#", b"&#x", b"&#x41;", b"&#65", b"&notin", b"&notit;", b"&CounterClockwiseContourIntegral;",
    b"&#99999999999", b"&lt", b"&a", b"&1",
)  # fmt: skip
_URLS = (
    b"http://", b"https:", b"//", b"../", b"./", b"?", b"#", b"%", b"%2", b"%25", b"%41", b"%2525", b"@", b":", b"[", b"]",
    b"\\", b"xn--", b".", b"example.org", b"\xc3\xa4", b"\xe2\x80\xa8", b"a=b&", b"|", b"^", b"javascript:", b"data:",
)  # fmt: skip
_PATHS = (
    *_URLS, b"(a(", b"))/", b"/(a(012345678901234567890123))/", b".aspx", b"cfid=", b"&cftoken=", b"sid=", b"phpsessid=",
    b"jsessionid=", b"0123456789abcdef0123456789abcdef", b"/2031/05/", b"2031-", b"&y=", b";s=", b"/(S(", b"/a/b", b"/",
)  # fmt: skip
_HEADERS = (
    b": ", b"\r\n", b"\r\n ", b"\r\n\t", b"\r", b"\n", b"X: ", b"Content-Length: ", b"Transfer-Encoding: chunked",
    b"Connection: close", b"Link: <", b"Set-Cookie: a=b", b"Content-Type: text/html;charset=", b",", b"x" + COUNT + b": y\r\n",
)  # fmt: skip
_ROBOTS = (
    b"User-agent: *\n", b"User-agent: a" + COUNT + b"\n", b"user-agent: headway\n", b"Disallow: /", b"Allow: /", b"*", b"$",
    b"/a" + COUNT, b"\n", b"\r", b"#", b"Crawl-delay: ", b"Crawl-delay 1", b"Sitemap: http://example.org/" + COUNT + b"\n",
    b"Disallow: /*a" + COUNT + b"$\n", b"%2f", b"%", b"(compatible;", b"\xef\xbb\xbf", b"1", b"Disallow   ",
)  # fmt: skip
_XML = (
    b"<urlset>", b"<url>", b"<loc>", b"</loc>", b"</url>", b"<loc>http://example.org/" + COUNT + b"</loc>", b"<sitemap>",
    b"<lastmod>", b"2005-01-01", b"</lastmod>", b"<!DOCTYPE a [", b"<!ENTITY a 'b'>", b"]>", b"&amp;", b"<![CDATA[", b"]]>",
    b"<!--", b"-->", b"<?a ", b"?>", b"<a b='", b"<a" + COUNT + b">", b" a" + COUNT + b"='x'", b"<rss><channel>",
    b"<item>", b"</item>", b"<link>", b"</link>", b"<feed>", b"<entry>", b"</entry>", b"<link href='http://example.org/x'/>",
    b"xmlns:a='b' ", b"<pubDate>Thu, 05 Jan 2017</pubDate>", b"http://example.org/", b"<url><loc>http://example.org/x</loc></url>",
)  # fmt: skip
_CHUNKS = (
    b"1\r\na\r\n", b"2\r\nab\r\n", b"0\r\n", b"\r\n", b"1;x=y\r\na\r\n", b"1   \r\na\r\n", b"0" * 8, b"fff\r\n", b"A" * 64, b"X: y\r\n",
    b";", b"a", b"1\na\n",
)  # fmt: skip
_CHARSETS = (
    b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff", b"<meta charset=shift_jis>", b"<meta charset=iso-2022-jp>",
    b"<meta charset=gb18030>", b"<meta charset=euc-kr>", b"<meta charset=windows-1251>", b"<meta charset=utf-7>", b"\x1b$B",
    b"\x1b(B", b"\x81", b"\x81\x30", b"\x8f\xa1\xa1", b"\xe3\x81\x82", b"\xc3", b"<?xml version='1.0' encoding='", b"<meta ",
    b"charset", b"=", b"'", b"\x0e", b"\xd8\x00",
)  # fmt: skip


def _member(content: bytes) -> bytes:
    return gzip.compress(content, mtime=0)


_FLUSHED = zlib.compressobj(wbits=-15).flush(zlib.Z_SYNC_FLUSH)
_GZIP = (
    _member(b""), _member(b"a"), _member(bytes(10_000)), _member(b"")[:10], b"\0\0\0\xff\xff", _FLUSHED, b"\x1f\x8b\x08\x08",
    b"\x1f\x8b\x08\x04\0\0\0\0\0\0\xff\xff", b"a", b"\0", b"\x01\0\0\xff\xff", b"\x1f\x8b\x08\0\0\0\0\0\0\0",
)  # fmt: skip
_BROTLI = (
    brotlicffi.compress(b""),
    brotlicffi.compress(b"a" * 1000)[:-1],
    b"\x0c",
    b"\x06",
    b"\x0b\x02\x80a\x03",
    b"\0",
    b"\xff",
    b"\x2c\x00",
)
_ZSTD_OF = zstandard.ZstdCompressor()
_ZSTD = (
    _ZSTD_OF.compress(b""), _ZSTD_OF.compress(b"a"), _ZSTD_OF.compress(bytes(10_000)), b"\x50\x2a\x4d\x18\0\0\0\0",
    b"\x28\xb5\x2f\xfd", b"\0\0\0", b"\x01\0\0", b"\x02\0\0", b"a", b"\xff",
)  # fmt: skip


def response_of(
    body: bytes, content_type: str = "text/html", extra: tuple[tuple[str, str], ...] = ()
) -> Response:
    return Response(
        Kind.FETCHED, URL, 0.0, 0.1, 200, (("content-type", content_type), *extra), head=b"HTTP/1.1 200 OK\r\n\r\n",
        payload=body, body=body,
    )  # fmt: skip


def _text(octets: bytes) -> str:
    return octets.decode("latin-1")


def _read_head(octets: bytes, at_once: int = 1 << 20) -> None:
    _feed(b"HTTP/1.1 200 OK\r\n" + octets + b"\r\n\r\n", at_once)


def _read_chunks(octets: bytes, at_once: int = 65_536) -> None:
    _feed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + octets, at_once)


def _feed(octets: bytes, at_once: int) -> None:
    reader = ResponseReader(Limits())
    for begin in range(0, len(octets), at_once):
        if reader.feed(octets[begin : begin + at_once]):
            break
    reader.feed_eof()
    reader.payload()


def _read_headers(octets: bytes) -> None:
    """What is read from the values of headers."""
    value = _text(octets)
    headers.links_of([value])
    headers.of_headers([value], "headway")
    headers.of_words(value)
    headers.media_type_of(value)
    headers.charset_of(value)
    headers.retry_after_s(0.0, value)
    document.refresh_target(value)


def _match_robots(octets: bytes) -> None:
    """Rules from the first half, and ten paths from the rest."""
    middle = len(octets) // 2
    rules = judge(200, octets[:middle], "headway")
    assert rules is not None
    rest = _text(octets[middle:])
    for begin in range(0, min(len(rest), 20_000), 2000):
        rules.allows("/" + rest[begin : begin + 2000])


def _follow(octets: bytes) -> None:
    pages_of(_text(octets).split("\n"), HOME, 1, work=Work())


def _follow_in(charset: str) -> Callable[[bytes], object]:
    return lambda octets: pages_of(
        octets.decode("utf-8", "replace").split("\n"), HOME, 1, charset, work=Work()
    )


def _one_url(octets: bytes) -> None:
    canonical("http://example.org/" + _text(octets), URL)
    canonical(_text(octets), URL)


def _keys(octets: bytes) -> None:
    """What is made of a canonical URL: keys of the index, lines, verdicts on traps."""
    url = canonical("http://example.org/" + _text(octets)) or URL
    path = traps.path_of(url, "http://example.org")
    for each in (path, "/" + _text(octets)):
        traps.repeats_itself(each)
        traps.shape_of(each)
        traps.without_session(each)
        traps.year_of(each)
        traps.pairs_of(each)
        fits("/*a*b*c$", each)
        surt("http://example.org" + each)
        uri("http://example.org" + each)
        cdxj_lines([(1, "http://example.org", each, 0.0, "text/html", 200, "sha1:A", 1, 1, "a", "response")])


def _write_lines(octets: bytes) -> None:
    """A message of a server, in the log and in the archive."""
    text = _text(octets)
    outcome = Outcome(Kind.FETCHED, 200, 1, 0.1, text, 1, detail=text)
    log_line(SaveSettled(HOME, outcome, PageState.DONE, 0, 0.0), None)
    field_text(text)
    product_token(text)


def _archive_head(octets: bytes) -> None:
    consistent_head(
        Response(
            Kind.FETCHED, URL, 0.0, 0.1, 200, head=b"HTTP/1.1 200 OK\r\n" + octets + b"\r\n\r\n", payload=b"x"
        )
    )


def _numbers(octets: bytes) -> None:
    number_of(octets.decode("utf-8", "replace"))


def _clusters(octets: bytes) -> None:
    count = len(octets) // 8
    count_clusters(struct.unpack(f"<{count}q", octets[: 8 * count]))


TARGETS: dict[str, Target] = {
    "page": Target(lambda octets: document.parse(response_of(octets), HOME), _BASIC + _TAGS + _REFERENCES + _URLS),
    "page, scanned in Python": Target(lambda octets: list(scanner.scan(octets)), _BASIC + _TAGS + _REFERENCES),
    "attributes": Target(scanner.attributes_of, (*_BASIC, b"a" + COUNT + b"=", b"href=", b"a='", b'="x"')),
    "character references": Target(
        lambda octets: (scanner.unescape_attribute(_text(octets)), scanner.unescape_text(_text(octets))),
        _BASIC + _REFERENCES,
    ),
    "words in Python": Target(fingerprint.words_of, _BASIC + _TAGS),
    "fingerprint": Target(fingerprint.of_page, _BASIC + _TAGS),
    "charset": Target(headers.in_utf_8, _BASIC + _CHARSETS),
    "media type": Target(lambda octets: headers.sniffed_type("", octets), (*_BASIC, *_TAGS[:12], *_CHARSETS)),
    "values of headers": Target(_read_headers, (*_BASIC, *_HEADERS, b"rel=next", b';x="', b"noindex", b"0;url=", b"12.5"), 65_536),
    "links": Target(_follow, (*_BASIC, *_URLS, b"\n", b"x" + COUNT + b"\n"), steps_a_byte=1000),
    "links in shift_jis": Target(_follow_in("shift_jis"), (*_BASIC, *_URLS, b"\n", b"?\xe3\x81\x82"), 65_536, steps_a_byte=1500),
    "one URL": Target(_one_url, _BASIC + _URLS, _LONGEST_URL, steps_a_byte=800),
    "keys of a URL": Target(_keys, _BASIC + _PATHS, _LONGEST_URL, steps_a_byte=3000, memory_a_byte=1000),
    "head": Target(_read_head, _BASIC + _HEADERS, 64_000),
    "head, 20 octets at a time": Target(lambda octets: _read_head(octets, 20), _BASIC + _HEADERS, 64_000),
    "chunks": Target(_read_chunks, _CHUNKS),
    "chunks, 20 octets at a time": Target(lambda octets: _read_chunks(octets, 20), _CHUNKS),
    "gzip": Target(lambda octets: decode(octets, "gzip", _LIMITS), _GZIP, memory_a_byte=300),
    "deflate": Target(lambda octets: decode(octets, "deflate", _LIMITS), (*_GZIP, b"\x78\x9c"), memory_a_byte=300),
    "brotli": Target(lambda octets: decode(octets, "br", _LIMITS), _BROTLI, memory_a_byte=300),
    "zstd": Target(lambda octets: decode(octets, "zstd", _LIMITS), _ZSTD, memory_a_byte=300),
    "four codings": Target(lambda octets: decode(octets, "gzip, gzip, gzip, gzip", _LIMITS), _GZIP, memory_a_byte=300),
    "robots.txt": Target(lambda octets: judge(200, octets, "headway"), _BASIC + _ROBOTS),
    "robots.txt and paths": Target(_match_robots, _BASIC + _ROBOTS),
    "sitemap or feed": Target(lambda octets: read_listing(octets, "application/xml", URL), _BASIC + _XML),
    "sitemap as text": Target(
        lambda octets: read_listing(octets, "text/plain", URL), (*_BASIC, b"http://example.org/", b"\r\n", b"\xc2\x85", b"\x1c")
    ),
    "sitemap in gzip": Target(lambda octets: read_listing(octets, "application/gzip", URL + ".gz"), _GZIP, steps_a_byte=1200, memory_a_byte=1000),
    "numbers": Target(_numbers, (b"1", b"0", b",", b".", b" ", b"'", b"-", b"\xc2\xa0", b"\xd9\xa1", b"a")),
    "lines": Target(_write_lines, (*_BASIC, b"(compatible;", b"\r\n", b"\x1b[", b"\x85"), 65_536),
    "archived head": Target(_archive_head, _BASIC + _HEADERS, 64_000),
    "near-duplicates": Target(_clusters, (bytes(8), b"\xff" * 8, COUNT, b"\xf0\x0f", b"\x55", b"a"), steps_a_byte=1000),
}  # fmt: skip
