"""Bytes to text, by the order in which browsers believe what they are told.

A byte order mark, the HTTP header, the first 1,024 bytes of the document; failing these, UTF-8 if it fits,
and windows-1252 otherwise. Labels mean what the WHATWG says (`latin1` is windows-1252).
"""

from __future__ import annotations

import codecs
import re
from functools import lru_cache
from typing import NamedTuple

import webencodings  # type: ignore[import-untyped]  # the package ships no types

from headway.parse.scanner import attributes_of

_PRESCAN_BYTES = 1024
_COMMENT = re.compile(rb"<!--.*?(?:-->|\Z)", re.DOTALL)
_META = re.compile(rb"<meta[\s/]([^>]*)")
_XML_ENCODING = re.compile(rb"""<\?xml[^>]*?\sencoding\s*=\s*["']([^"'>]+)["']""")
_CONTENT_CHARSET = re.compile(r"""charset\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s;"']+))""", re.IGNORECASE)
_BEYOND_ASCII = ("windows-", "iso-8859-", "koi8-")
_OTHERWISE = webencodings.lookup("windows-1252")
_LONGEST_REMEMBERED = 200
_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16le"), (codecs.BOM_UTF16_BE, "utf-16be"))
_ANY_MARK = (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class Decoded(NamedTuple):
    text: str
    charset: str
    """The encoding's WHATWG name."""
    codec: str
    """Python's name for it, as links of the page are to be encoded: UTF-8 where the encoding cannot."""


class Octets(NamedTuple):
    octets: bytes
    """The document in UTF-8; where it was so already, octets that mean nothing are still in it."""
    charset: str
    codec: str


def decode(content: bytes, http_charset: str = "") -> Decoded:
    """The text of a document. Never raises; octets that mean nothing become U+FFFD."""
    content, encoding = _told(content, http_charset)
    if encoding is not None:
        return _decoded(content, encoding)
    text = _as_utf_8(content)
    return Decoded(text, "utf-8", "utf-8") if text is not None else _decoded(content, _OTHERWISE)


def in_utf_8(content: bytes, http_charset: str = "") -> Octets:
    """The same without decoding what is UTF-8 already, as most documents are."""
    content, encoding = _told(content, http_charset)
    if encoding is None:
        if content.isascii() or _as_utf_8(content) is not None:
            return Octets(content, "utf-8", "utf-8")
        encoding = _OTHERWISE
    if encoding.name == "utf-8":
        return Octets(content, "utf-8", "utf-8")
    if encoding.name.startswith(_BEYOND_ASCII) and content.isascii():
        return Octets(content, encoding.name, encoding.codec_info.name)
    text, charset, codec = _decoded(content, encoding)
    return Octets(text.encode("utf-8", "replace"), charset, codec)


def _told(content: bytes, http_charset: str) -> tuple[bytes, webencodings.Encoding | None]:
    """The document without its byte order mark, and what it is said to be encoded in."""
    if content.startswith(_ANY_MARK):
        for mark, name in _MARKS:
            if content.startswith(mark):
                return content[len(mark) :], webencodings.lookup(name)
    return content, _look_up(http_charset) or _prescanned(content[:_PRESCAN_BYTES])


def _as_utf_8(content: bytes) -> str | None:
    try:
        # Not the final piece, so that a character cut off at a size limit does not speak against UTF-8.
        return codecs.utf_8_decode(content, "strict", False)[0]
    except UnicodeDecodeError:
        return None


def _decoded(content: bytes, encoding: webencodings.Encoding) -> Decoded:
    name = encoding.name
    if name == "utf-8":
        return Decoded(content.decode("utf-8", "replace"), name, name)
    if name.startswith(_BEYOND_ASCII) and content.isascii():  # ten times as quick as a table of characters
        return Decoded(content.decode("ascii"), name, encoding.codec_info.name)
    codec = "utf-8" if name.startswith("utf-16") or name == "replacement" else encoding.codec_info.name
    return Decoded(encoding.codec_info.decode(content, "replace")[0], name, codec)


def _look_up(label: str) -> webencodings.Encoding | None:
    if not label or not label.isascii():
        return None
    return _known(label) if len(label) <= _LONGEST_REMEMBERED else webencodings.lookup(label)


@lru_cache(maxsize=256)
def _known(label: str) -> webencodings.Encoding | None:
    return webencodings.lookup(label)


def _prescanned(start: bytes) -> webencodings.Encoding | None:
    """What the document says of itself where a browser looks for it."""
    if b"<!--" in start:
        start = _COMMENT.sub(b"", start)
    if start.startswith(b"<?xml") and (declared := _XML_ENCODING.match(start)):
        return _readable(_look_up(declared[1].decode("latin-1")))
    lowered = start.lower()  # searching that takes a tenth of the time of ignoring case
    if b"charset" not in lowered:
        return None
    for meta in _META.finditer(lowered):
        inside = start[meta.start(1) : meta.end(1)]
        meaning = _meant if len(inside) <= _LONGEST_REMEMBERED else _meant.__wrapped__
        if encoding := meaning(inside):
            return encoding
    return None


@lru_cache(maxsize=256)
def _meant(inside: bytes) -> webencodings.Encoding | None:
    """What a META element says of the encoding. Most pages have one of a few."""
    if b"charset" not in inside.lower():
        return None
    attributes = attributes_of(inside)
    label = attributes.get("charset", "")
    if not label and attributes.get("http-equiv", "").lower() == "content-type":
        match = _CONTENT_CHARSET.search(attributes.get("content", ""))
        label = match[match.lastindex] if match and match.lastindex else ""
    return _readable(_look_up(label))


def _readable(encoding: webencodings.Encoding | None) -> webencodings.Encoding | None:
    # Whoever could read the declaration as ASCII is not looking at UTF-16.
    if encoding is not None and encoding.name.startswith("utf-16"):
        return webencodings.lookup("utf-8")
    if encoding is not None and encoding.name == "x-user-defined":
        return webencodings.lookup("windows-1252")
    return encoding
