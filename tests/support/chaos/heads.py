"""Heads that are wrong, endless, or not HTTP at all."""

from __future__ import annotations

import itertools

from tests.support.chaos.line import head, html, whole
from tests.support.chaos.scripts import goes_on, says
from tests.support.chaos.site import ChaosSite

from headway.model.page import Kind

_BODY = html("An odd head", "but a decent body")
_LENGTH = b"Content-Length: %d\r\n" % len(_BODY)
_TYPE = b"Content-Type: text/html\r\n"


def _odd(name: str, does: str, bad: Kind, data: bytes) -> ChaosSite:
    return ChaosSite(name=name, does=does, bad=bad, answer=says(data))


_COOKIES = b"".join(b"Set-Cookie: c%d=%d; Path=/\r\n" % (number, number) for number in range(1000))
_INTERIM = b"HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\n\r\n"
_STRAY_LINES = (
    b"HTTP/1.1 200 OK\r\nno colon here\r\n: no name\r\nX Y: blank in the name\r\n\x80\xff: name of octets\r\n"
)

SITES = (
    _odd("http-0.9", "answers without any head", Kind.PROTOCOL, _BODY),
    _odd("http-2-unasked", "speaks HTTP/2", Kind.PROTOCOL, b"\0\0\x12\x04\0\0\0\0\0\0\x03\0\0\0\x80" + _BODY),
    _odd("http-9.9", "claims another version", Kind.PROTOCOL, b"HTTP/9.9 200 OK\r\n" + _TYPE + b"\r\n"),
    _odd("garbage", "sends octets that are no HTTP", Kind.PROTOCOL, bytes(range(128, 256)) * 20),
    _odd("ssh", "is another protocol's server", Kind.PROTOCOL, b"SSH-2.0-OpenSSH_9.2\r\n"),
    _odd("status-in-words", "has no number in its status", Kind.PROTOCOL, b"HTTP/1.1 OK\r\n\r\n"),
    _odd("status-999", "makes up a status", Kind.SERVER_ERROR, whole(_BODY, status="999 Go Away")),
    _odd(
        "stray-lines",
        "has lines that are no headers",
        Kind.FETCHED,
        _STRAY_LINES + _TYPE + _LENGTH + b"\r\n" + _BODY,
    ),
    _odd(
        "nul-in-head",
        "has NUL and other controls in values",
        Kind.FETCHED,
        b"HTTP/1.1 200 OK\r\nX-A: a\0b\r\nX-B: \x01\x02\x7f\r\n" + _TYPE + _LENGTH + b"\r\n" + _BODY,
    ),
    _odd(
        "bare-line-feeds",
        "ends lines with LF alone",
        Kind.FETCHED,
        (b"HTTP/1.1 200 OK\r\n" + _TYPE + _LENGTH + b"\r\n").replace(b"\r", b"") + _BODY,
    ),
    _odd(
        "folded-lines",
        "folds a header over lines",
        Kind.FETCHED,
        b"HTTP/1.1 200 OK\r\nX-Long: one\r\n two\r\n\tthree\r\n" + _TYPE + _LENGTH + b"\r\n" + _BODY,
    ),
    _odd(
        "thousand-cookies", "sets 1,000 cookies", Kind.PROTOCOL, head(length=5)[:-2] + _COOKIES + b"\r\n12345"
    ),
    _odd("few-interim", "sends three interim answers first", Kind.FETCHED, _INTERIM * 3 + whole(_BODY)),
    _odd(
        "switches-protocols",
        "switches protocols unasked",
        Kind.PROTOCOL,
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
    ),
    _odd(
        "second-answer",
        "sends an answer that nobody asked for behind the first",
        Kind.FETCHED,
        whole(_BODY) + whole(b"smuggled", status="500 Smuggled"),
    ),
    _odd(
        "file-names",
        "names files elsewhere in its headers",
        Kind.FETCHED,
        whole(
            _BODY,
            'Content-Disposition: attachment; filename="../../../evil"',
            "Content-Location: /../../evil",
            "SourceMap: file:///etc/passwd",
            "WARC-Filename: ../evil",
        ),
    ),
    ChaosSite(
        name="interim-flood",
        does="sends interim answers without end",
        bad=Kind.PROTOCOL,
        answer=goes_on(b"", itertools.repeat(_INTERIM)),
    ),
    ChaosSite(
        name="endless-header",
        does="sends one header without end",
        bad=Kind.TOO_LARGE,
        answer=goes_on(b"HTTP/1.1 200 OK\r\nX-Endless: ", itertools.repeat(b"x" * 4096)),
    ),
    ChaosSite(
        name="endless-headers",
        does="sends headers without end",
        bad=Kind.TOO_LARGE,
        answer=goes_on(
            b"HTTP/1.1 200 OK\r\n", (b"X-%d: more to come\r\n" % number for number in itertools.count())
        ),
    ),
)
