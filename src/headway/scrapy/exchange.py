"""What is asked of a server and what came of it, between Scrapy's requests and headway's connections."""

from __future__ import annotations

import ssl
from functools import lru_cache

import msgspec

from headway.fetch.head import HeadError, check_headers
from headway.fetch.proxy import Proxy
from headway.fetch.reader import ResponseReader
from headway.fetch.target import Origin, TargetError, parse_target
from headway.model.outcome import Kind
from headway.model.page import Site
from headway.ports import Response
from headway.units import Instant, Seconds

_WITH_LENGTH = frozenset({"POST", "PUT", "PATCH"})
_ASKED_AGAIN = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"})


class Asked(msgspec.Struct, frozen=True):
    """One request. Its headers are sent as they are; only Host and Content-Length are added."""

    url: str
    method: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    timeout_s: float
    proxy: Proxy | None = None
    bind_to: tuple[str, int] | None = None
    """The address of ours to connect from."""

    @property
    def may_be_repeated(self) -> bool:
        """Whether asking twice does no more than asking once (RFC 9110, idempotent methods)."""
        return self.method in _ASKED_AGAIN


class Answered(msgspec.Struct, frozen=True):
    """How it ended. `reader` holds what was received; times are ours, not the server's."""

    kind: Kind
    detail: str
    reader: ResponseReader
    wire_bytes: int = 0
    duration_s: float = 0.0
    waited_s: float = 0.0
    held_s: float = 0.0
    peer: str = ""
    tls: ssl.SSLObject | None = None


def response_of(now: Instant, url: str, answered: Answered) -> Response:
    """As headway's own crawl would have it; the content is still coded as it came."""
    reply = answered.reader.reply
    return Response(
        answered.kind,
        url,
        Instant(now - answered.duration_s),
        Seconds(answered.duration_s),
        0 if reply is None else reply.status,
        () if reply is None else tuple((name.lower(), value) for name, value in reply.headers),
        body=b"" if reply is None else answered.reader.payload(),
        wire_bytes=answered.wire_bytes,
        waited_s=Seconds(answered.waited_s),
        held_s=Seconds(answered.held_s),
        peer=answered.peer,
        detail=answered.detail,
    )


class Place(msgspec.Struct, frozen=True):
    """The server behind a URL's beginning."""

    origin: Origin
    site: Site


@lru_cache(maxsize=4096)
def place_of(beginning: str) -> Place:
    """Of `https://host:port`, as it stands in a URL. Raises TargetError."""
    origin = parse_target(beginning + "/").origin
    return Place(origin, Site(f"{origin.scheme}://{origin.authority}"))


def split_url(url: str) -> tuple[str, str]:
    """Where it leads, and what to ask for there, byte for byte as the spider wrote it."""
    scheme, colon, rest = url.partition("://")
    if not colon:
        raise TargetError(f"not a URL: {url[:200]!r}")
    rest = rest.partition("#")[0]
    end = min((at for at in (rest.find("/"), rest.find("?")) if at >= 0), default=len(rest))
    path = rest[end:] or "/"
    return f"{scheme}://{rest[:end]}", path if path.startswith("/") else "/" + path


def message(asked: Asked, origin: Origin, path: str) -> bytes:
    """The request as it goes over the line. Raises HeadError on what would break the line."""
    headers = asked.headers
    check_headers(headers)
    if asked.proxy is not None and not origin.secure:
        path = f"http://{origin.authority}{path}"
        headers = (*headers, *asked.proxy.headers())
    if not asked.method.isascii() or not asked.method.replace("-", "").isalnum():
        raise HeadError(f"{asked.method!r} is no method")
    if not path.isascii() or any(sign <= " " for sign in path):
        raise HeadError(f"a blank or a letter beyond ASCII in {path[:80]!r}")
    named = {name.lower() for name, _ in headers}
    lines = [f"{asked.method} {path} HTTP/1.1"]
    if "host" not in named:
        lines.append(f"Host: {origin.authority}")
    lines += [f"{name}: {value}" for name, value in headers]
    if "content-length" not in named and (asked.body or asked.method in _WITH_LENGTH):
        lines.append(f"Content-Length: {len(asked.body)}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + asked.body
