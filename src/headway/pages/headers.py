"""What a response declares about itself: headers, directives to robots, media type and charset.

Media type: a declared type is used, including `text/plain`, as in the WHATWG rules. Only a missing or unknown
type is detected from the first bytes.

Charset: the byte order mark, then the HTTP header, then the first 1,024 bytes of the document, as in
browsers. Without any of these, UTF-8 if the content is valid UTF-8, otherwise windows-1252. Labels have their
WHATWG meaning (`latin1` is windows-1252).
"""

from __future__ import annotations

import codecs
import email.utils
import math
import re
from collections.abc import Iterable
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

import webencodings  # type: ignore[import-untyped]  # the package ships no types

from headway.pages import let_others
from headway.pages.scanner import attributes_of
from headway.units import Instant, Seconds

_TYPE = re.compile(r"\s*([!#$%&'*+.^_`|~0-9A-Za-z-]+/[!#$%&'*+.^_`|~0-9A-Za-z-]+)\s*(?:;|,|$)")
_CHARSET = re.compile(r""";\s*charset\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s;,"']+))""", re.IGNORECASE)
_SECONDS = re.compile(r"\s*\+?(\d{1,18})(?:\.\d*)?\s*", re.ASCII)
_LINK = re.compile(r"""<([^<>]*+)>((?:\s*+;\s*+[^\s=;,<]++\s*+(?:=\s*+(?:"[^"]*+"|[^\s;,"<]*+))?+)*+)""")
_MOST_LINKS = 200
"""Of Link headers; further ones are ignored. A head of 64 KB has room for 20,000."""
_MOST_PARTS = 100
_LONGEST_DATE = 100
_PARAMETER = re.compile(r""";\s*([^\s=;,]+)\s*(?:=\s*(?:"([^"]*)"|([^\s;,"]*)))?""")


class LinkHeader(NamedTuple):
    """A link of a Link header (RFC 8288)."""

    href: str
    rels: frozenset[str]
    media_type: str


@lru_cache(maxsize=256)
def media_type_of(content_type: str) -> str:
    """`text/html` for `Text/HTML; charset=utf-8`; empty if there is no media type."""
    match = _TYPE.match(content_type)
    return match[1].lower() if match else ""


@lru_cache(maxsize=256)
def charset_of(content_type: str) -> str:
    """The charset parameter as written; empty if there is none."""
    match = _CHARSET.search(content_type)
    return (match[match.lastindex or 0]).strip() if match and match.lastindex else ""


def retry_after_s(now: Instant, value: str) -> Seconds | None:
    """The wait in seconds of a Retry-After header: a number of seconds, or a date (0 if it is past)."""
    if len(value) > _LONGEST_DATE:
        return None
    if match := _SECONDS.fullmatch(value):
        return Seconds(float(match[1]))
    try:
        date = email.utils.parsedate_to_datetime(value)
        wait_s = date.timestamp() - now
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
    return Seconds(max(0.0, wait_s)) if math.isfinite(wait_s) else None


_MAX_AGE = re.compile(r"(?:^|[\s,])max-age\s*=\s*\"?(\d{1,10})", re.IGNORECASE)
_NOT_KEPT = re.compile(r"(?:^|[\s,])no-(?:store|cache)\b", re.IGNORECASE)


def fresh_for_s(now: Instant, headers: Iterable[tuple[str, str]]) -> float | None:
    """For how long an answer is fresh by Cache-Control or Expires (RFC 9111); None if neither says so.
    `headers`: names in lower case."""
    named = {name: value[:1000] for name, value in headers if name in {"cache-control", "expires", "age"}}
    control = named.get("cache-control", "")
    if _NOT_KEPT.search(control):
        return 0.0
    if match := _MAX_AGE.search(control):
        age_s = retry_after_s(now, named["age"]) if named.get("age", "").isdecimal() else None
        return max(0.0, float(match[1]) - (age_s or 0.0))
    return retry_after_s(now, named["expires"]) if "expires" in named else None


def links_of(values: Iterable[str]) -> list[LinkHeader]:
    """The first links of Link headers (RFC 8288), in order."""
    found: list[LinkHeader] = []
    for value in values:
        for link in islice(_LINK.finditer(value), _MOST_LINKS - len(found)):
            named: dict[str, str] = {}
            for parameter in islice(_PARAMETER.finditer(link[2]), _MOST_PARTS):
                named.setdefault(parameter[1].lower(), parameter[2] or parameter[3] or "")
            rels = frozenset(named.get("rel", "").lower().split())
            found.append(LinkHeader(link[1].strip(), rels, media_type_of(named.get("type", ""))))
    return found


_WITH_VALUE = frozenset({"unavailable_after", "max-snippet", "max-image-preview", "max-video-preview"})
_SEPARATORS = re.compile(r"[\s,;]+")


class Directives(NamedTuple):
    """The directives to robots of a page, from META robots and X-Robots-Tag.

    Directives for all robots and for our own are combined, so that the stricter one applies.
    """

    noindex: bool = False
    nofollow: bool = False

    def __or__(self, other: object) -> Directives:
        if not isinstance(other, Directives):
            return NotImplemented
        return Directives(self.noindex or other.noindex, self.nofollow or other.nofollow)


NOTHING_ASKED = Directives()


def of_words(content: str) -> Directives:
    """Parse directives such as `noindex, nofollow`, in any case and with any separators."""
    words = _SEPARATORS.split(content.lower())
    if "none" in words:
        return Directives(noindex=True, nofollow=True)
    return Directives("noindex" in words, "nofollow" in words)


def of_meta(name: str, content: str, product_token: str) -> Directives:
    """The directives of a META element, if its name is `robots` or our product token."""
    called = name.strip().lower()
    if called == "robots" or called == product_token.lower():
        return of_words(content)
    return NOTHING_ASKED


def of_headers(values: Iterable[str], product_token: str) -> Directives:
    """The directives of X-Robots-Tag headers. A robot's name before a colon applies to the rest of the
    header."""
    asked = NOTHING_ASKED
    for value in values:
        is_for_us = True
        for part in value.split(",", _MOST_PARTS):  # the last is all that is left
            words = part
            name, colon, rest = part.partition(":")
            name = name.strip().lower()
            # Values of directives, and times in dates, have a colon as well.
            if colon and name not in _WITH_VALUE and " " not in name:
                is_for_us = name in {"robots", "*", product_token.lower()}
                words = rest
            if is_for_us:
                asked |= of_words(words)
    return asked


UNKNOWN_TYPES = frozenset({"", "unknown/unknown", "application/unknown", "*/*"})

_HTML = re.compile(
    rb"[\t\n\f\r ]*<(?:(?:!doctype html|html|head|body|title|script|style|iframe|table|font|div|h1|br|a|b|p)"
    rb"[\t\n\f\r />]|!--)",
    re.IGNORECASE,
)
_SIGNATURES = (
    (b"%PDF-", "application/pdf"),
    (b"%!PS-Adobe-", "application/postscript"),
    (b"\xef\xbb\xbf", "text/plain"),
    (b"\xfe\xff", "text/plain"),
    (b"\xff\xfe", "text/plain"),
    (b"GIF8", "image/gif"),
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"PK\x03\x04", "application/zip"),
    (b"\x1f\x8b\x08", "application/gzip"),
)
_BINARY = re.compile(rb"[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f]")
_LOOK_AT = 1445  # bytes, as in the WHATWG standard


def sniffed_type(declared: str, content: bytes) -> str:
    """The declared media type, or the detected one if none is declared."""
    if declared not in UNKNOWN_TYPES:
        return declared
    start = content[:_LOOK_AT]
    if _HTML.match(start.removeprefix(b"\xef\xbb\xbf")):
        return "text/html"
    if start.lstrip(b"\t\n\f\r ").startswith(b"<?xml"):
        return "application/xhtml+xml" if b"<html" in start else "text/xml"
    for signature, media_type in _SIGNATURES:
        if start.startswith(signature):
            return media_type
    return "application/octet-stream" if _BINARY.search(start) else "text/plain"


_PRESCAN_BYTES = 1024
_PIECE_BYTES = 65_536
"""Bytes decoded between two calls of `let_others`: 15 ms at worst, where each byte is invalid."""
_COMMENT = re.compile(rb"<!--.*?(?:-->|\Z)", re.DOTALL)
_META = re.compile(rb"<meta[\s/]([^>]*)")
_XML_ENCODING = re.compile(rb"""<\?xml[^>]*?\sencoding\s*=\s*["']([^"'>]+)["']""")
_CONTENT_CHARSET = re.compile(r"""charset\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s;"']+))""", re.IGNORECASE)
_BEYOND_ASCII = ("windows-", "iso-8859-", "koi8-")
_FALLBACK = webencodings.lookup("windows-1252")
_LONGEST_REMEMBERED = 200
_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16le"), (codecs.BOM_UTF16_BE, "utf-16be"))
_ANY_MARK = (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class Decoded(NamedTuple):
    text: str
    charset: str
    """The WHATWG name of the encoding."""
    codec: str
    """The Python codec for the links of the page; UTF-8 if the encoding cannot encode."""


class Octets(NamedTuple):
    octets: bytes
    """The document in UTF-8. If it was declared as UTF-8, invalid bytes are still in it."""
    charset: str
    codec: str


def decode(content: bytes, http_charset: str = "") -> Decoded:
    """The text of a document. Never raises; invalid bytes become U+FFFD."""
    content, encoding = _declared(content, http_charset)
    if encoding is not None:
        return _decoded(content, encoding)
    text = _as_utf_8(content)
    return Decoded(text, "utf-8", "utf-8") if text is not None else _decoded(content, _FALLBACK)


def in_utf_8(content: bytes, http_charset: str = "") -> Octets:
    """The document in UTF-8, without decoding it if it is UTF-8 already, as most documents are."""
    content, encoding = _declared(content, http_charset)
    if encoding is None:
        if _is_utf_8(content):
            return Octets(content, "utf-8", "utf-8")
        encoding = _FALLBACK
    if encoding.name == "utf-8":
        return Octets(content, "utf-8", "utf-8")
    if encoding.name.startswith(_BEYOND_ASCII) and content.isascii():
        return Octets(content, encoding.name, encoding.codec_info.name)
    octets = b"".join([text.encode("utf-8", "replace") for text in _in_pieces(content, encoding)])
    return Octets(octets, encoding.name, _codec_of(encoding))


def _declared(content: bytes, http_charset: str) -> tuple[bytes, webencodings.Encoding | None]:
    """The document without its byte order mark, and its declared encoding."""
    if content.startswith(_ANY_MARK):
        for mark, name in _MARKS:
            if content.startswith(mark):
                return content[len(mark) :], webencodings.lookup(name)
    return content, _look_up(http_charset) or _prescanned(content[:_PRESCAN_BYTES])


def _as_utf_8(content: bytes) -> str | None:
    try:
        # final=False, so that a character cut off at a size limit is not an error.
        return codecs.utf_8_decode(content, "strict", False)[0]
    except UnicodeDecodeError:
        return None


def _is_utf_8(content: bytes) -> bool:
    if len(content) <= _PIECE_BYTES:
        return content.isascii() or _as_utf_8(content) is not None
    decoder = codecs.getincrementaldecoder("utf-8")("strict")
    try:
        for begin in range(0, len(content), _PIECE_BYTES):
            decoder.decode(content[begin : begin + _PIECE_BYTES])
            let_others()
    except UnicodeDecodeError:
        return False
    return True


def _in_pieces(content: bytes, encoding: webencodings.Encoding) -> Iterable[str]:
    """The text of a document, of a long one in pieces: no codec lets other threads run while it decodes."""
    if len(content) <= _PIECE_BYTES:
        yield encoding.codec_info.decode(content, "replace")[0]
        return
    decoder = encoding.codec_info.incrementaldecoder("replace")
    for begin in range(0, len(content), _PIECE_BYTES):
        piece = content[begin : begin + _PIECE_BYTES]
        try:
            yield decoder.decode(piece, begin + _PIECE_BYTES >= len(content))
        except (
            UnicodeError
        ):  # an escape sequence of ISO-2022-JP that does not end: more bytes than it may hold back
            decoder.reset()
            yield encoding.codec_info.decode(piece, "replace")[0]
        let_others()


def _decoded(content: bytes, encoding: webencodings.Encoding) -> Decoded:
    name = encoding.name
    if name == "utf-8":
        return Decoded(content.decode("utf-8", "replace"), name, name)
    if name.startswith(_BEYOND_ASCII) and content.isascii():  # ten times as fast as a character map
        return Decoded(content.decode("ascii"), name, encoding.codec_info.name)
    return Decoded("".join(_in_pieces(content, encoding)), name, _codec_of(encoding))


def _codec_of(encoding: webencodings.Encoding) -> str:
    """The codec for the links of a page; UTF-8 if its encoding cannot encode."""
    if encoding.name.startswith("utf-16") or encoding.name == "replacement":
        return "utf-8"
    return str(encoding.codec_info.name)


def _look_up(label: str) -> webencodings.Encoding | None:
    if not label or not label.isascii():
        return None
    return _known(label) if len(label) <= _LONGEST_REMEMBERED else webencodings.lookup(label)


@lru_cache(maxsize=256)
def _known(label: str) -> webencodings.Encoding | None:
    return webencodings.lookup(label)


def _prescanned(start: bytes) -> webencodings.Encoding | None:
    """The encoding declared in the document, found as a browser does."""
    if b"<!--" in start:
        start = _COMMENT.sub(b"", start)
    if start.startswith(b"<?xml") and (declared := _XML_ENCODING.match(start)):
        return _readable(_look_up(declared[1].decode("latin-1")))
    lowered = start.lower()  # searching this takes a tenth of the time of ignoring case
    if b"charset" not in lowered:
        return None
    for meta in _META.finditer(lowered):
        inside = start[meta.start(1) : meta.end(1)]
        encoding_in = _meta_encoding if len(inside) <= _LONGEST_REMEMBERED else _meta_encoding.__wrapped__
        if encoding := encoding_in(inside):
            return encoding
    return None


@lru_cache(maxsize=256)
def _meta_encoding(inside: bytes) -> webencodings.Encoding | None:
    """The encoding declared in a META element. Cached, because most pages have one of a few."""
    if b"charset" not in inside.lower():
        return None
    attributes = attributes_of(inside)
    label = attributes.get("charset", "")
    if not label and attributes.get("http-equiv", "").lower() == "content-type":
        match = _CONTENT_CHARSET.search(attributes.get("content", ""))
        label = match[match.lastindex] if match and match.lastindex else ""
    return _readable(_look_up(label))


def _readable(encoding: webencodings.Encoding | None) -> webencodings.Encoding | None:
    # A declaration that can be read as ASCII is not in UTF-16.
    if encoding is not None and encoding.name.startswith("utf-16"):
        return webencodings.lookup("utf-8")
    if encoding is not None and encoding.name == "x-user-defined":
        return webencodings.lookup("windows-1252")
    return encoding
