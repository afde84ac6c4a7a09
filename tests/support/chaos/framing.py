"""Lies about where a body ends: lengths, chunks, and statuses that have no body."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from tests.support.chaos.line import head, html, whole
from tests.support.chaos.scripts import goes_on, says, says_and_closes
from tests.support.chaos.site import ChaosSite

from headway.model.page import Kind

_BODY = html("Where does it end?", "word " * 100)
_CHUNKED = head("Transfer-Encoding: chunked")
_LAST = b"0\r\n\r\n"


def _chunk(data: bytes, extension: bytes = b"") -> bytes:
    return b"%x%s\r\n%s\r\n" % (len(data), extension, data)


def _kept_open(name: str, does: str, bad: Kind, data: bytes) -> ChaosSite:
    return ChaosSite(name=name, does=does, bad=bad, answer=says(data))


def _closed(name: str, does: str, bad: Kind, data: bytes) -> ChaosSite:
    return ChaosSite(name=name, does=does, bad=bad, answer=says_and_closes(data))


def _endless(name: str, does: str, bad: Kind, start: bytes, pieces: Iterable[bytes]) -> ChaosSite:
    return ChaosSite(name=name, does=does, bad=bad, answer=goes_on(start, pieces))


def _length(value: str) -> bytes:
    return head(length=value) + _BODY


_SIZE = len(_BODY)
_LENGTHS = (
    _kept_open("length-short", "says less than it sends", Kind.FETCHED, _length("10")),
    _closed("length-long", "says more than it sends, and closes", Kind.RESET, _length(str(_SIZE + 1000))),
    _kept_open(
        "length-long-open", "says more than it sends, and waits", Kind.TIMEOUT_IDLE, _length("999999")
    ),
    _kept_open("length-negative", "sends a negative length", Kind.PROTOCOL, _length("-1")),
    _kept_open("length-garbage", "sends a length in words", Kind.PROTOCOL, _length("ten")),
    _kept_open("length-hex", "sends a length in hexadecimal", Kind.PROTOCOL, _length("0x2f")),
    _kept_open("length-plus", "sends a length with a sign", Kind.PROTOCOL, _length(f"+{_SIZE}")),
    _kept_open("length-huge", "sends a length of 5,000 digits", Kind.PROTOCOL, _length("9" * 5000)),
    _kept_open(
        "length-beyond-64-bits", "sends a length beyond 64 bits", Kind.PROTOCOL, _length(str(2**64 + _SIZE))
    ),
    _kept_open("length-unicode", "sends a length in superscript", Kind.PROTOCOL, _length("\xb2")),
    _kept_open(
        "length-twice",
        "says its length twice",
        Kind.FETCHED,
        head(f"Content-Length: {_SIZE}", length=_SIZE) + _BODY,
    ),
    _kept_open(
        "length-twice-differs",
        "says two lengths",
        Kind.PROTOCOL,
        head("Content-Length: 5", length=_SIZE) + _BODY,
    ),
    _closed("length-missing", "says no length, and closes", Kind.FETCHED, head() + _BODY),
    _kept_open("length-missing-open", "says no length, and waits", Kind.TIMEOUT_IDLE, head() + _BODY),
)
_CHUNKS = (
    _kept_open(
        "chunked-with-length",
        "sends chunks and a length",
        Kind.FETCHED,
        head("Transfer-Encoding: chunked", length=5) + _chunk(_BODY) + _LAST,
    ),
    _kept_open(
        "chunk-garbage", "sends a chunk size that is none", Kind.PROTOCOL, _CHUNKED + b"zz\r\n" + _BODY
    ),
    _kept_open("chunk-negative", "sends a negative chunk size", Kind.PROTOCOL, _CHUNKED + b"-5\r\n" + _BODY),
    _kept_open(
        "chunk-overflow", "sends a chunk size beyond 64 bits", Kind.PROTOCOL, _CHUNKED + b"f" * 17 + b"\r\nx"
    ),
    _kept_open(
        "chunk-short", "sends more than the chunk size says", Kind.PROTOCOL, _CHUNKED + b"3\r\n" + _BODY
    ),
    _closed("chunk-cut", "closes within a chunk", Kind.RESET, _CHUNKED + b"fff\r\n" + _BODY),
    _closed("chunk-no-last", "closes without the last chunk", Kind.RESET, _CHUNKED + _chunk(_BODY)),
    _kept_open(
        "transfer-coding-unknown",
        "sends a transfer coding that nobody knows",
        Kind.PROTOCOL,
        head("Transfer-Encoding: rot13") + _BODY,
    ),
    _endless(
        "chunk-extension-endless",
        "sends a chunk extension without end",
        Kind.PROTOCOL,
        _CHUNKED + b"5;x=",
        itertools.repeat(b"y" * 4096),
    ),
    _endless(
        "chunk-trailer-endless",
        "sends trailers without end",
        Kind.PROTOCOL,
        _CHUNKED + _chunk(_BODY) + b"0\r\n",
        itertools.repeat(b"X-Trailer: more\r\n" * 100),
    ),
    _endless(
        "chunk-padding",
        "sends a byte a chunk, each with a long extension",
        Kind.PROTOCOL,
        _CHUNKED,
        itertools.repeat(_chunk(b"x", b";pad=" + b"y" * 1000)),
    ),
)
_BODILESS = (
    _kept_open(
        "no-content-with-body", "sends 204 and a body", Kind.FETCHED, whole(_BODY, status="204 No Content")
    ),
    _kept_open(
        "not-modified-unasked",
        "sends 304 and a body though nobody has a copy",
        Kind.NOT_MODIFIED,
        whole(_BODY, status="304 Not Modified"),
    ),
    _kept_open("empty", "sends an empty page", Kind.FETCHED, whole(b"")),
    _kept_open("head-like", "sends a head and no body, as to HEAD", Kind.TIMEOUT_IDLE, head(length=_SIZE)),
    _closed("empty-until-close", "sends a head alone, and closes", Kind.FETCHED, head()),
)
SITES = (*_LENGTHS, *_CHUNKS, *_BODILESS)
