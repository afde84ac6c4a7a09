"""Fetches Scrapy's requests over headway's paced connections.

A spider, unlike a crawl of headway, may have several requests to a site in flight, of any method, each
through a proxy and with a timeout of its own. All connections of a site share the site's rate.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from functools import lru_cache

import msgspec

from headway.http.connection import Connection
from headway.http.dial import Dialer, DialError, OpenConnections, exchange
from headway.http.head import HeadError, check_headers
from headway.http.models import ClientOptions, Origin, Proxy, TargetError, Timeouts, parse_target
from headway.http.reader import ResponseReader
from headway.http.resolve import Address, Lookup, Resolver
from headway.model.page import Kind, Site
from headway.pacing.in_flight import InFlightLimiter, Permit
from headway.pacing.pacer import Pacer
from headway.pacing.shared_window import SpiderPacer
from headway.ports import Response
from headway.units import Instant, Seconds

_WITH_LENGTH = frozenset({"POST", "PUT", "PATCH"})
_IDEMPOTENT = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"})
_CLOSED = "the spider was closed"
_STALE_AFTER_S = 0.5
_MOST_IDLE = 256
_MOST_ROUTES = 64


class FetchRequest(msgspec.Struct, frozen=True):
    """One request. Its headers are sent unchanged; only Host and Content-Length are added."""

    url: str
    method: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    timeout_s: float
    proxy: Proxy | None = None
    bind_to: tuple[str, int] | None = None
    """The local address to connect from."""

    @property
    def may_be_repeated(self) -> bool:
        """Whether the method is idempotent (RFC 9110): sending it twice has the same effect as sending it
        once."""
        return self.method in _IDEMPOTENT


class FetchResult(msgspec.Struct, frozen=True):
    """How a request ended. `reader` has what was received."""

    kind: Kind
    detail: str
    reader: ResponseReader
    wire_bytes: int = 0
    duration_s: float = 0.0
    """Without `waited_s`."""
    waited_s: float = 0.0
    """Until the bound allowed the request to be sent."""
    held_s: float = 0.0
    """Part of the duration in which the bound kept us from reading."""
    peer: str = ""
    tls: ssl.SSLObject | None = None


def response_of(now: Instant, url: str, result: FetchResult) -> Response:
    """The result as a response of headway's own fetcher; the body still has its content encoding."""
    reply = result.reader.reply
    return Response(
        result.kind,
        url,
        Instant(now - result.duration_s),
        Seconds(result.duration_s),
        0 if reply is None else reply.status,
        () if reply is None else tuple((name.lower(), value) for name, value in reply.headers),
        body=b"" if reply is None else result.reader.payload(),
        wire_bytes=result.wire_bytes,
        waited_s=Seconds(result.waited_s),
        held_s=Seconds(result.held_s),
        peer=result.peer,
        detail=result.detail,
    )


class Destination(msgspec.Struct, frozen=True):
    """The server to connect to for a URL."""

    origin: Origin
    site: Site


@lru_cache(maxsize=4096)
def destination_of(beginning: str) -> Destination:
    """The destination of a URL's first part, `https://host:port`. Raises TargetError."""
    origin = parse_target(beginning + "/").origin
    return Destination(origin, Site(f"{origin.scheme}://{origin.authority}"))


def split_url(url: str) -> tuple[str, str]:
    """Scheme and authority, and the path with its query, byte for byte as the spider wrote it."""
    scheme, colon, rest = url.partition("://")
    if not colon:
        raise TargetError(f"not a URL: {url[:200]!r}")
    rest = rest.partition("#")[0]
    end = min((at for at in (rest.find("/"), rest.find("?")) if at >= 0), default=len(rest))
    path = rest[end:] or "/"
    return f"{scheme}://{rest[:end]}", path if path.startswith("/") else "/" + path


def message(request: FetchRequest, origin: Origin, path: str) -> bytes:
    """The bytes to send. Raises HeadError if a part of the request would break the HTTP message."""
    headers = request.headers
    check_headers(headers)
    if request.proxy is not None and not origin.secure:
        path = f"http://{origin.authority}{path}"
        headers = (*headers, *request.proxy.headers())
    if not request.method.isascii() or not request.method.replace("-", "").isalnum():
        raise HeadError(f"{request.method!r} is not an HTTP method")
    if not path.isascii() or any(sign <= " " for sign in path):
        raise HeadError(f"space, control or non-ASCII character in the path {path[:80]!r}; percent-encode it")
    named = {name.lower() for name, _ in headers}
    lines = [f"{request.method} {path} HTTP/1.1"]
    if "host" not in named:
        lines.append(f"Host: {origin.authority}")
    lines += [f"{name}: {value}" for name, value in headers]
    if "content-length" not in named and (request.body or request.method in _WITH_LENGTH):
        lines.append(f"Content-Length: {len(request.body)}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + request.body


Route = tuple[Proxy | None, float, tuple[str, int] | None]
"""Proxy, timeout and local address of a connection."""
PoolKey = tuple[Destination, Route]
"""Idle connections are reused for requests with the same key."""


class SpiderFetcher:
    """Fetches the requests of one spider, and keeps idle connections for reuse."""

    def __init__(
        self,
        pacer: Pacer,
        user_agent: str,
        context: ssl.SSLContext,
        *,
        allow_private: bool = True,
        lookup: Lookup | None = None,
    ) -> None:
        self._pacer = pacer
        self._user_agent = user_agent
        self._context = context
        self._allow_private = allow_private
        self._resolver = Resolver(lookup)
        self._limiter = InFlightLimiter(pacer)
        if isinstance(pacer, SpiderPacer):
            pacer.on_bound_change = self._limiter.admit_waiting
        self._dialers: dict[Route, Dialer] = {}
        self._idle: dict[PoolKey, list[Connection]] = {}
        self._connections = OpenConnections(_CLOSED, self._take_all_idle)

    async def fetch(self, request: FetchRequest, make_reader: Callable[[], ResponseReader]) -> FetchResult:
        """Fetch, without raising anything but CancelledError. A reader is made for each attempt."""
        try:
            beginning, path = split_url(request.url)
            destination = destination_of(beginning)
            message_bytes = message(request, destination.origin, path)
        except (TargetError, HeadError) as error:
            return FetchResult(Kind.PROTOCOL, str(error), make_reader())
        pool_key = (destination, (request.proxy, request.timeout_s, request.bind_to))
        asked_at = asyncio.get_running_loop().time()
        permit = await self._limiter.enter(destination.site)
        try:
            return await self._fetch(
                request, message_bytes, pool_key, make_reader, permit=permit, asked_at=asked_at
            )
        finally:
            self._limiter.leave(permit)

    async def _fetch(
        self,
        request: FetchRequest,
        message_bytes: bytes,
        pool_key: PoolKey,
        make_reader: Callable[[], ResponseReader],
        *,
        permit: Permit,
        asked_at: float,
    ) -> FetchResult:
        loop = asyncio.get_running_loop()
        started_at = loop.time()
        connection = self._take_idle(pool_key, is_fresh=not request.may_be_repeated)
        wire_bytes = 0
        while True:
            reader = make_reader()
            if self._connections.is_closing:
                return FetchResult(Kind.CANCELLED, _CLOSED, reader)
            is_used = connection is not None
            may_be_stale = connection is not None and connection.idle_s() >= _STALE_AFTER_S
            if connection is None:
                try:
                    destination, route = pool_key
                    connection = await self._connections.dial(
                        self._dialer(route), destination.origin, destination.site
                    )
                except DialError as error:
                    lasted_s = loop.time() - started_at
                    return FetchResult(error.kind, error.detail, reader, duration_s=lasted_s, peer=error.peer)
            permit.connection = connection
            is_sent = await exchange(connection, message_bytes, reader, started_at)
            wire_bytes += connection.wire_bytes()
            is_stale = may_be_stale or (is_used and not is_sent)
            if (
                reader.kind is Kind.RESET
                and is_stale
                and not reader.started
                and not self._connections.is_closing
            ):
                # The server had closed the idle connection before it received this request.
                connection = None
                continue
            self._keep(pool_key, connection, reader)
            return FetchResult(
                reader.kind,
                reader.detail,
                reader,
                wire_bytes,
                loop.time() - started_at - connection.waited_s,
                started_at - asked_at + connection.waited_s,
                connection.held_s,
                connection.peer,
                connection.tls_session,
            )

    async def aclose(self) -> None:
        """Close all connections; requests in flight end as CANCELLED."""
        self._connections.cancel_all()
        self._idle.clear()
        self._limiter.close()
        await self._resolver.aclose()
        await self._connections.wait_closed()

    def _take_idle(self, pool_key: PoolKey, *, is_fresh: bool) -> Connection | None:
        """The connection that was used last. With `is_fresh`, only one used very recently: a request that may
        not be repeated must not be sent on a connection that the server may have closed."""
        waiting = self._idle.get(pool_key)
        while waiting:
            connection = waiting.pop()
            if not connection.reusable:
                continue
            if connection.needs_replacement or (is_fresh and connection.idle_s() >= _STALE_AFTER_S):
                connection.abort()
                continue
            return connection
        return None

    def _keep(self, pool_key: PoolKey, connection: Connection, reader: ResponseReader) -> None:
        if self._connections.is_closing or not (reader.reply is None or reader.reply.keep_alive):
            connection.abort()
        elif connection.reusable:
            self._idle.setdefault(pool_key, []).append(connection)
            if len(self._connections.open) > _MOST_IDLE:
                self._drop_idle()

    def _drop_idle(self) -> None:
        for waiting in self._idle.values():
            if waiting:
                waiting.pop(0).abort()
                return

    def _take_all_idle(self) -> list[Connection]:
        idle = [connection for waiting in self._idle.values() for connection in waiting]
        self._idle.clear()
        return idle

    def _dialer(self, route: Route) -> Dialer:
        dialer = self._dialers.get(route)
        if dialer is None:
            proxy, timeout_s, bind_to = route
            if len(self._dialers) >= _MOST_ROUTES:
                del self._dialers[next(iter(self._dialers))]
            self._dialers[route] = dialer = _SpiderDialer(
                self._context,
                bind_to,
                self._resolver,
                self._pacer,
                ClientOptions(
                    user_agent=self._user_agent,
                    timeouts=Timeouts(
                        connect_s=timeout_s, first_byte_s=timeout_s, idle_s=timeout_s, total_s=timeout_s
                    ),
                    allow_private=self._allow_private,
                    proxy=proxy,
                ),
            )
        return dialer


class _SpiderDialer(Dialer):
    """Uses the TLS context and the local address from Scrapy's settings."""

    def __init__(
        self,
        context: ssl.SSLContext,
        bind_to: tuple[str, int] | None,
        resolver: Resolver,
        pacer: Pacer,
        options: ClientOptions,
    ) -> None:
        super().__init__(resolver, pacer, options)
        self._context = context
        self._bind_to = bind_to

    def _new_socket(self, address: Address, buffer_bytes: int | None) -> socket.socket:
        sock = super()._new_socket(address, buffer_bytes)
        if self._bind_to is not None:
            try:
                sock.bind(self._bind_to)
            except OSError:
                sock.close()
                raise
        return sock
