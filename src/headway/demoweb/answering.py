"""From a request to the bytes of its response: head, framing, content coding, conditions. No sockets."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import unquote

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
