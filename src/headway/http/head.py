"""Heads of requests and responses: written, parsed, and repaired if browsers accept what httptools rejects.

Repairs: lines that end in a bare LF, a repeated equal Content-Length, Content-Length beside chunked (chunked
wins, RFC 9112), "Transfer-Encoding: identity", a blank before the colon, and lines that are not headers
(they are dropped). Everything else is an error.
"""

from __future__ import annotations

import enum
import re
from functools import lru_cache

import httptools
import msgspec


class Framing(enum.Enum):
    """How the end of a body is found."""

    EMPTY = "empty"
    SIZED = "sized"
    CHUNKED = "chunked"
    UNTIL_CLOSE = "until-close"


class ReplyHead(msgspec.Struct, frozen=True):
    """The parsed head of a response."""

    status: int
    headers: tuple[tuple[str, str], ...]
    framing: Framing
    length_bytes: int = 0
    keep_alive: bool = True
    media_type: str = ""
    content_encoding: str = ""
    keep_alive_s: float | None = None
    """How long the server says that it keeps an idle connection open."""
    note: str = ""
    """What was repaired, if anything."""


_CONTROLS = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_STATUS_LINE = re.compile(rb"HTTP/1\.[01] +[1-5][0-9][0-9](?: [^\r\n]*)?")
_UNSAFE_VALUE = re.compile(r"[^\t\x20-\x7e\x80-\xff]")
_UNSAFE_NAME = re.compile(r"[^!#$%&'*+\-.^_`|~0-9A-Za-z]")

ACCEPT = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
ACCEPT_ENCODING = "gzip, deflate, br, zstd"


class HeadError(ValueError):
    """A request head that must not be sent, or a response head that cannot be parsed."""


def find_end(buffer: bytes | bytearray, searched: int) -> int:
    """The offset of the body, or -1. The first `searched` bytes are known not to contain it."""
    start = max(0, searched - 2)
    proper = buffer.find(b"\n\r\n", start)
    bare = buffer.find(b"\n\n", start, proper if proper >= 0 else len(buffer))
    if bare >= 0:
        return bare + 2
    return proper + 3 if proper >= 0 else -1


def request_head(
    target: str,
    host: str,
    user_agent: str,
    extra: tuple[tuple[str, str], ...],
    *,
    close_after: bool,
    sender: str = "",
) -> bytes:
    """The head of a GET. Headers in `extra` replace the default ones. `sender`: an e-mail address."""
    ours = {
        "host": ("Host", host),
        "user-agent": ("User-Agent", user_agent),
        "accept": ("Accept", ACCEPT),
        "accept-encoding": ("Accept-Encoding", ACCEPT_ENCODING),
        "connection": ("Connection", "close" if close_after else "keep-alive"),
    }
    if sender:
        ours["from"] = ("From", sender)
    if extra:
        check_headers(extra)
        for name, _value in extra:
            ours.pop(name.lower(), None)
    lines = [f"GET {target} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in (*ours.values(), *extra)]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


class RequestHeads:
    """Heads of GETs. The part that all requests to a server share is built once."""

    def __init__(self, user_agent: str, max_servers: int = 4096, sender: str = "") -> None:
        self._user_agent = user_agent
        self._sender = sender
        self._max_servers = max_servers
        self._tails: dict[tuple[str, bool], bytes] = {}

    def of(self, target: str, host: str, extra: tuple[tuple[str, str], ...], *, close_after: bool) -> bytes:
        if extra:
            return request_head(
                target, host, self._user_agent, extra, close_after=close_after, sender=self._sender
            )
        tail = self._tails.get((host, close_after))
        if tail is None:
            if len(self._tails) >= self._max_servers:
                del self._tails[next(iter(self._tails))]
            whole = request_head("", host, self._user_agent, (), close_after=close_after, sender=self._sender)
            self._tails[host, close_after] = tail = whole.removeprefix(b"GET ")
        return b"GET " + target.encode("ascii") + tail

    def with_form(self, target: str, host: str, extra: tuple[tuple[str, str], ...], form: bytes) -> bytes:
        """The head of a POST, and the form."""
        extra = (
            *extra,
            ("Content-Type", "application/x-www-form-urlencoded"),
            ("Content-Length", str(len(form))),
        )
        head = request_head(target, host, self._user_agent, extra, close_after=False)
        return b"POST " + head.removeprefix(b"GET ") + form


def check_headers(headers: tuple[tuple[str, str], ...]) -> None:
    """Raise HeadError for a header that must not be sent: a line break in a value would let the source of
    the value add headers or requests."""
    for name, value in headers:
        if not name or _UNSAFE_NAME.search(name):
            raise HeadError(f"{name!r} is not a valid header name")
        if _UNSAFE_VALUE.search(value):
            raise HeadError(f"the header {name} has an invalid character in its value: {value[:40]!r}")


def repair(head: bytes) -> tuple[bytes, str]:
    """An equivalent head that httptools accepts, and a note about the repair. Raises HeadError."""
    lines = re.sub(rb"\r?\n[ \t]+", b" ", head).replace(b"\r\n", b"\n").rstrip(b"\n").split(b"\n")
    if not _STATUS_LINE.fullmatch(lines[0]):
        raise HeadError(f"invalid status line: {lines[0][:60]!r}")
    fields: list[tuple[bytes, bytes]] = []
    dropped = 0
    for line in lines[1:]:
        name, colon, value = line.partition(b":")
        name, value = name.rstrip(b" \t"), value.strip(b" \t")
        if not colon or not _NAME.fullmatch(name) or b"\r" in value or b"\0" in value:
            _refuse_if_framing(name)
            dropped += 1
        else:
            fields.append((name, value))
    lengths = _content_length(fields)
    codings = b",".join(value for name, value in fields if name.lower() == b"transfer-encoding").lower()
    chunked = codings.replace(b" ", b"") == b"chunked"
    if codings not in {b"", b"identity"} and not chunked:
        raise HeadError(f"unknown transfer coding {codings[:40]!r}")
    kept = [pair for pair in fields if pair[0].lower() not in {b"content-length", b"transfer-encoding"}]
    if chunked:
        kept.append((b"Transfer-Encoding", b"chunked"))
        # One of the two is wrong, so the end of this response is uncertain: the connection is not reused.
        if lengths is not None:
            kept = [pair for pair in kept if pair[0].lower() != b"connection"] + [(b"Connection", b"close")]
    elif lengths is not None:
        kept.append((b"Content-Length", lengths))
    rebuilt = [lines[0].strip()]
    rebuilt += [name + b": " + _CONTROLS.sub(b" ", value) for name, value in kept]
    note = f"head repaired, {dropped} lines dropped" if dropped else "head repaired"
    return b"\r\n".join(rebuilt) + b"\r\n\r\n", note


def _content_length(fields: list[tuple[bytes, bytes]]) -> bytes | None:
    values = {
        part.strip()
        for name, value in fields
        if name.lower() == b"content-length"
        for part in value.split(b",")
    }
    if len(values) > 1:
        raise HeadError("Content-Length is repeated with different values")
    length = values.pop() if values else None
    if length is not None and not (length.isdigit() and len(length) < 19):
        raise HeadError(f"invalid Content-Length {length[:40]!r}")
    return length


def _refuse_if_framing(name: bytes) -> None:
    """A line that may be a damaged framing header must not be dropped: the body's end would be wrong."""
    if re.search(rb"content-length|transfer-encoding", name, re.IGNORECASE):
        raise HeadError(f"a damaged framing header: {name[:60]!r}")


class _Collector:
    """The callbacks of httptools. A separate object, so that no reference cycle is left behind."""

    __slots__ = ("complete", "pairs")

    def __init__(self) -> None:
        self.pairs: list[tuple[bytes, bytes]] = []
        self.complete = False

    def on_header(self, name: bytes, value: bytes) -> None:
        self.pairs.append((name, value))

    def on_headers_complete(self) -> None:
        self.complete = True


_NOTED = frozenset(
    {"connection", "content-length", "content-type", "content-encoding", "transfer-encoding", "keep-alive"}
)
_KEEP_ALIVE_TIMEOUT = re.compile(r"timeout\s*=\s*\"?(\d{1,6})", re.IGNORECASE)


def parse_head(head: bytes, max_headers: int) -> ReplyHead:
    """Parse a whole head with its empty line. Raises HeadError."""
    note = ""
    try:
        status, pairs = _tokenize(head)
    except (httptools.HttpParserError, httptools.HttpParserUpgrade):
        rebuilt, note = repair(head)
        try:
            status, pairs = _tokenize(rebuilt)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            raise HeadError(str(error) or "unexpected protocol upgrade") from error
    if len(pairs) > max_headers:
        raise HeadError(f"{len(pairs)} headers, more than {max_headers}")
    headers = []
    noted: dict[str, str] = {}
    for raw_name, raw_value in pairs:
        name, value = _known_names.get(raw_name) or _lower(raw_name), raw_value.decode("latin-1")
        headers.append((name, value))
        if name in _NOTED:
            noted[name] = f"{noted[name]},{value}" if name in noted else value
    framing, length_bytes = _framing(status, noted)
    return ReplyHead(
        status,
        tuple(headers),
        framing,
        length_bytes,
        _keep_alive(head, noted.get("connection", "")) and framing is not Framing.UNTIL_CLOSE,
        _media_type(noted.get("content-type", "")),
        noted.get("content-encoding", ""),
        _keep_alive_s(noted["keep-alive"]) if "keep-alive" in noted else None,
        note,
    )


def _tokenize(head: bytes) -> tuple[int, list[tuple[bytes, bytes]]]:
    collector = _Collector()
    parser = httptools.HttpResponseParser(collector)
    parser.feed_data(head)
    if not collector.complete:
        raise httptools.HttpParserError("the head is incomplete")
    return parser.get_status_code(), collector.pairs


_known_names: dict[bytes, str] = {}


def _lower(name: bytes) -> str:
    """Header names repeat, so most are decoded once; the table is limited against hostile servers."""
    lowered = name.decode("latin-1").lower()
    if len(_known_names) < 512 and len(name) < 64:
        _known_names[name] = lowered
    return lowered


def _framing(status: int, noted: dict[str, str]) -> tuple[Framing, int]:
    if status in {204, 304} or status < 200:
        return Framing.EMPTY, 0
    if coding := noted.get("transfer-encoding", "").strip().lower():
        if coding == "chunked":
            return Framing.CHUNKED, 0
        if coding != "identity":
            raise HeadError(f"unknown transfer coding {coding[:40]!r}")
    length = noted.get("content-length")
    if length is None:
        return Framing.UNTIL_CLOSE, 0
    if not (length.isascii() and length.isdigit()):
        raise HeadError(f"invalid Content-Length {length[:40]!r}")
    length_bytes = int(length)
    return (Framing.SIZED if length_bytes else Framing.EMPTY), length_bytes


@lru_cache(maxsize=256)
def _media_type(content_type: str) -> str:
    return content_type.split(",", 1)[0].split(";", 1)[0].strip().lower()


def _keep_alive_s(value: str) -> float | None:
    found = _KEEP_ALIVE_TIMEOUT.search(value)
    return None if found is None else float(found[1])


def _keep_alive(head: bytes, connection: str) -> bool:
    if not connection:
        return head.startswith(b"HTTP/1.1")
    options = {option.strip() for option in connection.lower().split(",")}
    if head.startswith(b"HTTP/1.1"):
        return "close" not in options
    return "keep-alive" in options and "close" not in options
