"""Bodies without end, bombs, and content that is not what it is said to be."""

from __future__ import annotations

import functools
import gzip
import itertools
import zlib
from collections.abc import Callable

import brotlicffi
import zstandard
from tests.support.chaos.line import Line, head, html, whole
from tests.support.chaos.scripts import goes_on, says
from tests.support.chaos.site import ChaosSite, Script

from headway.model.page import Kind

_BODY = html("A page", "word " * 100)
_BOMB_BYTES = 64 * 1024 * 1024
_BLOCK = b"<p>and so on and so forth</p>\n" * 512


def _gzip(data: bytes) -> bytes:
    return gzip.compress(data, 6, mtime=0)


def _brotli(data: bytes) -> bytes:
    packed: bytes = brotlicffi.compress(data, quality=1)
    return packed


def _zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(level=1).compress(data)


def _nested_gzip(data: bytes) -> bytes:
    return _gzip(_gzip(data))


@functools.cache
def _bomb(pack: Callable[[bytes], bytes]) -> bytes:
    return pack(bytes(_BOMB_BYTES))


def _explodes(coding: str, pack: Callable[[bytes], bytes]) -> Script:
    async def answer(line: Line) -> None:
        await line.send(whole(_bomb(pack), f"Content-Encoding: {coding}"))

    return answer


def _bomb_site(name: str, coding: str, pack: Callable[[bytes], bytes]) -> ChaosSite:
    does = f"sends {_BOMB_BYTES // 2**20} MiB as a few KB of {coding}"
    return ChaosSite(
        name=name,
        does=does,
        bad=Kind.BOMB,
        answer=_explodes(coding, pack),
        prepare=functools.partial(_bomb, pack),
        is_heavy=True,
    )


def _coded(coding: str, payload: bytes) -> bytes:
    return whole(payload, f"Content-Encoding: {coding}")


def _typed(content_type: str, body: bytes) -> bytes:
    return whole(body, f"Content-Type: {content_type}")


def _site(name: str, does: str, bad: Kind, data: bytes) -> ChaosSite:
    return ChaosSite(name=name, does=does, bad=bad, answer=says(data))


def _endless(name: str, does: str, start: bytes, block: bytes) -> ChaosSite:
    endless = goes_on(start, itertools.repeat(block))
    return ChaosSite(name=name, does=does, bad=Kind.TOO_LARGE, answer=endless, is_heavy=True)


_ENDLESS = (
    _endless("endless-until-close", "never comes to an end", head("Connection: close"), _BLOCK),
    _endless(
        "endless-chunks",
        "never sends the last chunk",
        head("Transfer-Encoding: chunked"),
        b"%x\r\n%s\r\n" % (len(_BLOCK), _BLOCK),
    ),
    _endless("endless-by-length", "promises a petabyte", head(length=10**15), _BLOCK),
)
_BOMBS = (
    _bomb_site("bomb-gzip", "gzip", _gzip),
    _bomb_site("bomb-deflate", "deflate", zlib.compress),
    _bomb_site("bomb-brotli", "br", _brotli),
    _bomb_site("bomb-zstd", "zstd", _zstd),
    _bomb_site("bomb-in-bomb", "gzip, gzip", _nested_gzip),
)
_CODINGS = (
    _site("coding-lie", "calls plain text gzip", Kind.FETCHED, _coded("gzip", _BODY)),
    _site("coding-cut", "sends half a gzip stream", Kind.FETCHED, _coded("gzip", _gzip(_BODY)[:60])),
    _site(
        "coding-tail",
        "sends rubbish behind a gzip stream",
        Kind.FETCHED,
        _coded("gzip", _gzip(_BODY) + _BODY),
    ),
    _site("coding-unknown", "sends a coding that nobody knows", Kind.FETCHED, _coded("snappy-9000", _BODY)),
    _site(
        "coding-hundred", "names a hundred codings", Kind.FETCHED, _coded(", ".join(["gzip"] * 100), _BODY)
    ),
)
_PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 8
_TYPES = (
    _site("type-picture-lie", "calls a page a picture", Kind.UNWANTED_TYPE, _typed("image/png", _BODY)),
    _site("type-page-lie", "calls a picture a page", Kind.FETCHED, _typed("text/html", _PICTURE)),
    _site("type-garbage", "has a type that is none", Kind.UNWANTED_TYPE, _typed("\x80\xff;;=/", _BODY)),
    _site("type-empty", "has an empty type", Kind.FETCHED, _typed("", _BODY)),
    _site(
        "nul-bytes",
        "has NUL bytes all over a page",
        Kind.FETCHED,
        _typed("text/html", _BODY.replace(b"o", b"\0")),
    ),
)
_CHARSET_LIES = {
    "charset-utf-16-lie": "utf-16",
    "charset-utf-7": "utf-7",
    "charset-unknown": "no-such-charset",
    "charset-codec": "zlib_codec",
    "charset-escape": "unicode_escape",
    "charset-long": "x" * 5000,
}
_CHARSETS = (
    *(
        _site(
            name,
            f"says its charset is {charset[:20]}",
            Kind.FETCHED,
            _typed(f"text/html; charset={charset}", _BODY),
        )
        for name, charset in _CHARSET_LIES.items()
    ),
    _site(
        "charset-not-utf-8",
        "sends octets that are no UTF-8 as UTF-8",
        Kind.FETCHED,
        _typed("text/html; charset=utf-8", _BODY + b"\xff\xfe\xc0\x80\xed\xa0\x80" * 50),
    ),
)
SITES = (*_ENDLESS, *_BOMBS, *_CODINGS, *_TYPES, *_CHARSETS)
