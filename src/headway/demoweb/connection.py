"""A connection to a site of the demo web: from a request to the bytes of its response (head, framing, content
coding, conditions), and the access log, which shows how polite a crawler was.

Times are from the monotonic clock, which all processes of a machine share. A response ends when its last
piece is passed to the kernel, before the crawler can have received it: a gap measured here is never shorter
than the one that the crawler kept.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import time
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from http import HTTPStatus
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, cast
from urllib.parse import unquote

import msgspec

from headway.demoweb.content import content_of, encoded
from headway.demoweb.model import (
    HTML_LAYOUTS,
    STATUS_OF,
    Answer,
    CharsetHint,
    Framing,
    Layout,
    PageDesign,
    SiteDesign,
)

LAST_MODIFIED = "Mon, 02 Nov 2026 08:00:00 GMT"
_LAST_MODIFIED_AT = parsedate_to_datetime(LAST_MODIFIED)
_CHUNK_BYTES = 4_000
_CACHED_PAGES = 20_000
"""More than any site has. It limits the memory for the endless calendar."""


class Request(NamedTuple):
    method: str
    path: str
    is_http_1_1: bool
    wants_close: bool
    headers: Mapping[str, str]
    """Names in lower case."""


class _Content(NamedTuple):
    body: bytes
    head: str
    """The header lines that do not depend on the request."""
    etag: str


class Reply(NamedTuple):
    """The bytes to send, and whether to close the connection after them."""

    answer: Answer
    data: bytes
    status: int
    close: bool
    latency_s: float = 0.0


def parse_request(head: bytes) -> Request | None:
    """Parse a request line and headers, without the empty line. None if it is not a request."""
    first, _, rest = head.partition(b"\r\n")
    words = first.decode("latin-1").split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        return None
    path = words[1]
    if path.lower().startswith("http://"):  # as in a request to a proxy
        path = "/" + path[7:].partition("/")[2]
    headers = _parse_headers(rest)
    is_http_1_1 = words[2] == "HTTP/1.1"
    wants_close = not is_http_1_1 or headers.get("connection", "").lower() == "close"
    return Request(words[0], path, is_http_1_1, wants_close, headers)


@lru_cache(maxsize=256)
def _parse_headers(text: bytes) -> Mapping[str, str]:
    """Cached, since a client sends the same lines with every request."""
    fields = (line.partition(":") for line in text.decode("latin-1").split("\r\n"))
    return {name.lower(): value.strip() for name, _, value in fields}


class Answerer:
    """Makes the responses of a site. It counts the requests for each page, on which failures depend."""

    def __init__(self, site: SiteDesign, origins: Mapping[str, str]) -> None:
        self.site = site
        self._origins = origins
        self._requests: Counter[str] = Counter()
        self._designed_paths = {unquote(path): path for path in site.pages}
        self._contents: dict[tuple[str, str], _Content] = {}
        self._replies: dict[tuple[str, str, str, bool, bool], Reply] = {}

    def reply_to(self, request: Request) -> Reply:
        if request.method not in {"GET", "HEAD"}:
            return self._error(405, request, "only GET and HEAD are answered here", "Allow: GET, HEAD\r\n")
        if "content-length" in request.headers or "transfer-encoding" in request.headers:
            return self._error(400, request._replace(wants_close=True), "no body is expected here")
        page = self._find(request.path)
        if page is None:
            return self._error(404, request, f"there is no page {request.path[:200]!r} on this site")
        answer = page.answer_to(self._requests[page.path])
        self._requests[page.path] += 1
        if answer in STATUS_OF:
            retry = "" if answer is Answer.ERROR else f"Retry-After: {self.site.retry_after_s}\r\n"
            return self._error(STATUS_OF[answer], request, "not this time", retry)._replace(
                latency_s=page.latency_s
            )
        if answer is Answer.GARBAGE:
            return Reply(answer, b"\x15\x03\x01 this is no HTTP\r\n\r\n", 0, close=True)
        if answer in {Answer.RESET, Answer.STALL}:
            return Reply(answer, b"", 0, close=True)
        return self._page(page, request, answer)

    def _find(self, path: str) -> PageDesign | None:
        """Find a page by any spelling of its path, as servers do: `%7E` or `~`, `%c3` or `%C3`."""
        page = self.site.find(path)
        if page is None and (designed := self._designed_paths.get(unquote(path))):
            page = self.site.find(designed)
        return page

    def _page(self, page: PageDesign, request: Request, answer: Answer) -> Reply:
        coding = page.coding if _accepts(request, page.coding) else ""
        if self.site.validators and _is_known(request, self._content(page, coding).etag):
            return self._not_modified(page, coding, request)
        if answer is not Answer.AS_DESIGNED:
            return self._compose(page, coding, request, answer)
        key = (page.path, coding, request.method, request.is_http_1_1, request.wants_close)
        reply = self._replies.get(key)
        if reply is None:
            if len(self._replies) >= _CACHED_PAGES:
                self._replies.clear()
                self._contents.clear()
            reply = self._replies[key] = self._compose(page, coding, request, answer)
        return reply

    def _compose(self, page: PageDesign, coding: str, request: Request, answer: Answer) -> Reply:
        content = self._content(page, coding)
        framing = page.framing if answer is Answer.AS_DESIGNED else Framing.LENGTH
        if framing is Framing.CHUNKED and not request.is_http_1_1:
            framing = Framing.CLOSE
        close = request.wants_close or framing is Framing.CLOSE
        head, body = content.head, content.body
        if framing is Framing.LENGTH:
            head += f"Content-Length: {len(body)}\r\n"
        elif framing is Framing.CHUNKED:
            head += "Transfer-Encoding: chunked\r\n"
            body = _chunked(body)
        head += "Connection: close\r\n\r\n" if close else "\r\n"
        if request.method == "HEAD":
            body = b""
        if answer in {Answer.CUT, Answer.STALL_MIDWAY}:
            body, close = body[: len(body) // 2], True
        return Reply(answer, head.encode("latin-1") + body, page.status, close, page.latency_s)

    def _not_modified(self, page: PageDesign, coding: str, request: Request) -> Reply:
        etag = self._content(page, coding).etag
        data = f"{_status_line(304)}\r\nETag: {etag}\r\nLast-Modified: {LAST_MODIFIED}\r\n"
        data += "Connection: close\r\n\r\n" if request.wants_close else "\r\n"
        return Reply(Answer.AS_DESIGNED, data.encode("latin-1"), 304, request.wants_close, page.latency_s)

    def _content(self, page: PageDesign, coding: str) -> _Content:
        key = (page.path, coding)
        if key not in self._contents:
            body = content_of(self.site, page, self._origins)
            if coding:
                body = encoded(body, coding)
            self._contents[key] = _Content(body, *self._head(page, body, coding))
        return self._contents[key]

    def _head(self, page: PageDesign, body: bytes, coding: str) -> tuple[str, str]:
        """The header lines that do not depend on the request, and the ETag."""
        lines = [_status_line(page.status), "Server: headway-demo", f"Content-Type: {_content_type(page)}"]
        if page.coding:
            lines.append("Vary: Accept-Encoding")
        if coding:
            lines.append(f"Content-Encoding: {coding}")
        if page.x_robots_tag:
            lines.append(f"X-Robots-Tag: {page.x_robots_tag}")
        if page.layout is Layout.REDIRECT:
            lines.append(f"Location: {self._location(page)}")
        etag = ""
        if self.site.validators and page.status == 200:
            etag = f'"{zlib.crc32(body):08x}{coding}"'
            lines += [f"ETag: {etag}", f"Last-Modified: {LAST_MODIFIED}"]
        return "".join(f"{line}\r\n" for line in lines), etag

    def _location(self, page: PageDesign) -> str:
        target = page.links[0]
        if target.href or target.to is None:
            return target.href
        return target.to.url(self._origins)

    def _error(self, status: int, request: Request, text: str, extra: str = "") -> Reply:
        """A short page about an error."""
        title = f"{status} {HTTPStatus(status).phrase}"
        body = f"<!doctype html>\n<title>{title}</title>\n<h1>{title}</h1>\n<p>{text.replace('<', '')}</p>\n"
        content = body.encode()
        head = f"{_status_line(status)}\r\nContent-Type: text/html; charset=utf-8\r\n{extra}"
        head += f"Content-Length: {len(content)}\r\n" + "Connection: close\r\n" * request.wants_close
        data = f"{head}\r\n".encode("latin-1") + (b"" if request.method == "HEAD" else content)
        return Reply(Answer.AS_DESIGNED, data, status, request.wants_close)


def _status_line(status: int) -> str:
    return f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"


def _content_type(page: PageDesign) -> str:
    if page.layout in HTML_LAYOUTS and page.charset_hint is CharsetHint.HEADER:
        return f"{page.content_type}; charset={page.charset}"
    return page.content_type


def _accepts(request: Request, coding: str) -> bool:
    if not coding:
        return False
    offered = request.headers.get("accept-encoding", "").lower().replace(" ", "").split(",")
    return any(token.partition(";")[0] == coding and not token.endswith(";q=0") for token in offered)


def _is_known(request: Request, etag: str) -> bool:
    """Whether the client has the page. If-Modified-Since is ignored if there is If-None-Match."""
    if not etag:
        return False
    if known := request.headers.get("if-none-match"):
        return known == "*" or etag in known.replace(" ", "").split(",")
    since = _date(request.headers.get("if-modified-since", ""))
    return since is not None and since >= _LAST_MODIFIED_AT


def _date(text: str) -> datetime | None:
    try:
        when = parsedate_to_datetime(text)
    except ValueError:
        return None
    return when if when.tzinfo is not None else None


def _chunked(body: bytes) -> bytes:
    pieces = [body[at : at + _CHUNK_BYTES] for at in range(0, len(body), _CHUNK_BYTES)]
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


class Exchange(msgspec.Struct, tag="exchange"):
    """A request and its response."""

    site: str
    connection: int
    received_at: float
    method: str
    path: str
    user_agent: str
    answered_at: float = 0.0
    """When the last piece of the response was about to be sent, or the connection was given up."""
    status: int = 0
    """0 when no status line was sent."""
    sent_bytes: int = 0
    """Head and body as sent, with chunk framing."""
    complete: bool = False


class Connection(msgspec.Struct, tag="connection"):
    """When a connection was open."""

    site: str
    number: int
    opened_at: float
    closed_at: float | None = None


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Exchange | Connection)


class AccessLog:
    """Requests and connections, in memory and optionally in a file of JSON lines."""

    def __init__(self, path: Path | None = None) -> None:
        self._exchanges: list[Exchange] = []
        self._connections: dict[int, Connection] = {}
        self._file = path.open("wb", buffering=0) if path is not None else None

    def record(self, entry: Exchange | Connection) -> None:
        """Add an exchange that has ended, or a connection that has opened or closed."""
        if isinstance(entry, Exchange):
            self._exchanges.append(entry)
        else:
            self._connections[entry.number] = entry
        if self._file is not None:
            self._file.write(_ENCODER.encode(entry) + b"\n")

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def requests(self, site: str | None = None) -> list[Exchange]:
        """The requests, in the order in which they were received."""
        chosen = (e for e in self._exchanges if site is None or e.site == site)
        return sorted(chosen, key=lambda exchange: exchange.received_at)

    def connections(self, site: str | None = None) -> list[Connection]:
        return [c for c in self._connections.values() if site is None or c.site == site]

    def most_connections(self, site: str | None = None) -> int:
        """The largest number of connections that were open at once."""
        changes = [(c.opened_at, 1) for c in self.connections(site)]
        changes += [(c.closed_at, -1) for c in self.connections(site) if c.closed_at is not None]
        most = count = 0
        for _, change in sorted(changes):
            count += change
            most = max(most, count)
        return most

    def gaps_s(self, site: str) -> list[float]:
        """Seconds from the end of each response to the next request; negative if they overlapped."""
        return [later.received_at - earlier.answered_at for earlier, later in pairwise(self.requests(site))]


def read_access_log(path: Path) -> AccessLog:
    """The log that another process writes, up to now."""
    log = AccessLog()
    for entry in _entries(path.read_bytes().splitlines()):
        log.record(entry)
    return log


def _entries(lines: Iterable[bytes]) -> Iterable[Exchange | Connection]:
    return (_DECODER.decode(line) for line in lines)


_LARGEST_HEAD_BYTES = 64 * 1024
_PIECE_S = 0.02
"""A rate-limited site sends pieces of this duration."""
_CATCH_UP_S = 0.05
"""A rate-limited site catches up with delays up to this; the time of longer ones is lost."""
_WRITE_BYTES = 64 * 1024
"""Written at once. Small enough that for a slow reader the last write is near the end of the response."""
_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_BAD_REQUEST = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class RateLimit:
    """The sending rate that all connections to a site share."""

    def __init__(self, rate_bytes_per_s: float) -> None:
        self.piece_bytes = max(256, int(rate_bytes_per_s * _PIECE_S))
        self._rate_bytes_per_s = rate_bytes_per_s
        self._free_at = 0.0

    def wait_s(self, now: float) -> float:
        return self._free_at - now

    def spend(self, now: float, size_bytes: int) -> None:
        begin = self._free_at if now - self._free_at < _CATCH_UP_S else now
        self._free_at = begin + size_bytes / self._rate_bytes_per_s


class SiteState:
    """The state that all connections to a site share."""

    def __init__(self, answerer: Answerer, log: AccessLog) -> None:
        self.site = answerer.site
        self.answerer = answerer
        self.log = log
        self.rate_limit = RateLimit(self.site.rate_bytes_per_s) if self.site.rate_bytes_per_s else None
        self.open: set[ServerConnection] = set()
        self.is_closed = False


class ServerConnection(asyncio.Protocol):
    """One connection of a client: reads requests one by one and sends their responses."""

    _count = 0
    _transport: asyncio.Transport

    def __init__(self, state: SiteState) -> None:
        self._state = state
        self._received = bytearray()
        self._exchange: Exchange | None = None
        self._reply: Reply | None = None
        self._unsent = memoryview(b"")
        self._is_blocked = False
        self._last_write_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        ServerConnection._count += 1
        self._record = Connection(state.site.name, ServerConnection._count, time.monotonic())

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's transports are not a subclass
        # `pause_writing` is called until the kernel has accepted everything; only then send the next piece.
        self._transport.set_write_buffer_limits(high=0)
        self._state.open.add(self)
        self._state.log.record(self._record)
        if self._state.is_closed:  # accepted while the server was closing
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self._end_exchange(time.monotonic(), complete=False)
        self._record.closed_at = time.monotonic()
        self._state.log.record(self._record)
        self._state.open.discard(self)

    def abort(self) -> None:
        self._transport.abort()

    def eof_received(self) -> bool:
        return self._exchange is not None  # a client that has closed its side still gets its response

    def data_received(self, data: bytes) -> None:
        self._received += data
        self._take_requests()

    def pause_writing(self) -> None:
        self._is_blocked = True

    def resume_writing(self) -> None:
        self._is_blocked = False
        if self._reply is not None and self._timer is None:
            self._send_more()
            self._take_requests()

    def _take_requests(self) -> None:
        while self._exchange is None and not self._transport.is_closing():
            end = self._received.find(b"\r\n\r\n")
            if end < 0:
                if len(self._received) > _LARGEST_HEAD_BYTES:
                    self._refuse(_TOO_LARGE)
                return
            head = bytes(self._received[:end])
            del self._received[: end + 4]
            self._begin(head)

    def _begin(self, head: bytes) -> None:
        request = parse_request(head)
        if request is None:
            self._refuse(_BAD_REQUEST)
            return
        self._exchange = Exchange(
            self._state.site.name,
            self._record.number,
            time.monotonic(),
            request.method,
            request.path,
            request.headers.get("user-agent", ""),
        )
        reply = self._state.answerer.reply_to(request)
        if reply.latency_s > 0:
            self._timer = self._loop.call_later(reply.latency_s, self._resume, reply)
        else:
            self._start(reply)

    def _resume(self, reply: Reply) -> None:
        self._timer = None
        self._start(reply)
        self._take_requests()

    def _start(self, reply: Reply) -> None:
        if reply.answer is Answer.RESET:
            self._reset()
            return
        self._reply = reply
        self._unsent = memoryview(reply.data)
        if self._exchange is not None:
            self._exchange.status = reply.status
        self._send_more()

    def _send_more(self) -> None:
        """Send what the rate limit allows. Called again by the timer, or when the kernel has room."""
        while not self._is_blocked:
            if not self._unsent:
                self._end_reply()
                return
            limit, now = self._state.rate_limit, time.monotonic()
            if limit is None:
                piece, self._unsent = self._unsent[:_WRITE_BYTES], self._unsent[_WRITE_BYTES:]
            else:
                wait_s = limit.wait_s(now)
                if wait_s > 0:
                    self._timer = self._loop.call_later(wait_s, self._send_on)
                    return
                piece, self._unsent = self._unsent[: limit.piece_bytes], self._unsent[limit.piece_bytes :]
                limit.spend(now, len(piece))
            if self._exchange is not None:
                self._exchange.sent_bytes += len(piece)
            # The time before the write: the crawler may send its next request before `write` returns.
            self._last_write_at = now
            self._transport.write(piece)

    def _send_on(self) -> None:
        self._timer = None
        self._send_more()
        self._take_requests()

    def _end_reply(self) -> None:
        reply, self._reply = self._reply, None
        if reply is None:
            return
        if reply.answer in {Answer.STALL, Answer.STALL_MIDWAY}:
            self._timer = self._loop.call_later(self._state.site.stall_s, self._reset)
            return
        self._end_exchange(self._last_write_at, complete=reply.answer is Answer.AS_DESIGNED)
        if reply.close:
            self._transport.close()

    def _end_exchange(self, at: float, *, complete: bool) -> None:
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.answered_at = at
            exchange.complete = complete
            self._state.log.record(exchange)

    def _refuse(self, answer: bytes) -> None:
        self._transport.write(answer)
        self._transport.close()

    def _reset(self) -> None:
        """Send RST; a plain close would look like the end of the response."""
        self._timer = None
        self._end_exchange(time.monotonic(), complete=False)
        raw = self._transport.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
