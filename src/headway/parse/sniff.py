"""What a body is when its server does not say.

A declared type is believed, `text/plain` included, as the WHATWG rules have it: only a missing or unknown
one is replaced by what the first bytes look like.
"""

from __future__ import annotations

import re

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
_LOOK_AT = 1445  # bytes, as the standard has it


def sniffed_type(declared: str, content: bytes) -> str:
    """The declared media type, or a guess where it says nothing."""
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
