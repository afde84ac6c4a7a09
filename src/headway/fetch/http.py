"""The fetcher: one site, one connection, kept between requests; every end of a fetch is a `Response`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping
from functools import partial
from pathlib import Path

from headway.fetch.attempt import Attempt, failure, response_of
from headway.fetch.connection import Connection
from headway.fetch.decode import Decoded, decode
from headway.fetch.dial import Dialer, DialError
from headway.fetch.exchange import exchange
from headway.fetch.head import HeadError, RequestHeads
from headway.fetch.openings import Openings
from headway.fetch.pacer import Pacer
from headway.fetch.proxy import parse_proxy
from headway.fetch.quick import QuickExchange
from headway.fetch.reader import ResponseReader
from headway.fetch.resolve import Lookup, Resolver
from headway.fetch.settings import Limits, Timeouts
from headway.fetch.target import Target, TargetError, Targets
from headway.model.outcome import Kind
from headway.model.page import Site
from headway.ports import Clock, Request, Response
from headway.units import UNBOUNDED, BytesPerSecond

_CLOSED = "the fetcher was closed"
_STALE_AFTER_S = 0.5
# Above this, inflating a body would be felt by the other sites.
_DECODE_IN_THREAD_BYTES = 128 * 1024


class HttpFetcher:
    """Implements `headway.ports.Fetcher`."""

    def __init__(
        self,
        clock: Clock,
        user_agent: str,
        *,
        timeouts: Timeouts | None = None,
        limits: Limits | None = None,
        capacity_bytes_per_s: BytesPerSecond = UNBOUNDED,
        allow_private: bool = False,
        verify_tls: bool = True,
        ca_file: str | Path | None = None,
        proxy: str | None = None,
        no_proxy: tuple[str, ...] = (),
        lookup: Lookup | None = None,
        charge_uploads: bool = False,
    ) -> None:
        self._clock = clock
        self._heads = RequestHeads(user_agent)
        self._limits = limits or Limits()
        self._resolver = Resolver(lookup)
        self._pacer = Pacer(capacity_bytes_per_s, charge_uploads=charge_uploads)
        self._dialer = Dialer(
            resolver=self._resolver,
            pacer=self._pacer,
            timeouts=timeouts or Timeouts(),
            limits=self._limits,
            user_agent=user_agent,
            allow_private=allow_private,
            verify_tls=verify_tls,
            ca_file=ca_file,
            proxy=parse_proxy(proxy) if proxy is not None else None,
            no_proxy=no_proxy,
        )
        self._targets = Targets()
        self._idle: dict[Site, Connection] = {}
        self._busy: set[Site] = set()
        self._queues: dict[Site, list[asyncio.Future[None]]] = {}
        self._openings = Openings(_CLOSED)
        self._slowly: set[asyncio.Task[None]] = set()
        """Fetches begun at once that turned out to need more."""

    def set_capacity(self, capacity_bytes_per_s: BytesPerSecond) -> None:
        self._pacer.set_capacity(capacity_bytes_per_s)

    def set_rates(self, rates_bytes_per_s: Mapping[Site, BytesPerSecond]) -> None:
        self._pacer.set_rates(rates_bytes_per_s)

    def set_asks_until(self, at: float) -> None:
        """Nothing is asked for after this instant of the loop's clock, unless a later one is set by then."""
        self._pacer.asks_until = at

    def bytes_received(self) -> int:
        return self._pacer.received_bytes

    def bytes_sent(self) -> int:
        """The other way: requests, and the acknowledgements of what came."""
        return self._pacer.sent_bytes

    def round_trips(self) -> Iterator[tuple[str, float]]:
        """Servers that we are waiting for or reading from, with the round trip to each."""
        for connection in self._openings.connections:
            if (seconds := connection.round_trip_s()) is not None:
                yield connection.peer, seconds

    async def measure_round_trip(self, site: Site) -> float | None:
        """Connect to a site and let go at once, without a request; None where that fails."""
        try:
            origin = self._targets.of(f"{site}/", site).origin
            connection = await self._openings.open(
                partial(self._dialer.dial, origin, site), self._take_all_idle
            )
        except (DialError, TargetError):
            return None
        try:
            return connection.round_trip_s(is_new=True)
        finally:
            connection.abort()

    async def aclose(self) -> None:
        """Close everything; what is under way ends as CANCELLED."""
        self._openings.cancel_all()
        self._idle.clear()
        self._pacer.close()
        await self._resolver.aclose()
        await self._openings.until_closed()
        await asyncio.gather(*self._slowly)

    async def fetch(self, request: Request) -> Response:
        attempt = Attempt(request, self._clock.now(), asyncio.get_running_loop().time())
        site = request.site
        try:
            target = self._targets.of(request.url, site)
            attempt.head = self._request_head(request, target)
        except (TargetError, HeadError) as error:
            return failure(attempt, Kind.PROTOCOL, str(error))
        # The caller promises one request to a site at a time; a slip must still not mean two connections.
        while site in self._busy:
            await self._turn(site)
        self._busy.add(site)
        try:
            return await self._fetch(attempt, target)
        finally:
            self._let_go(site)

    def _let_go(self, site: Site) -> None:
        self._busy.discard(site)
        if site in self._queues:
            self._call_next(site)

    def fetch_at_once(self, request: Request, then: Callable[[Response], None]) -> bool:
        """Begin a fetch over the site's open connection; `then` is told what came of it, from the loop.
        False where there is none, or it may have been closed meanwhile: nothing was begun."""
        site = request.site
        connection = self._idle.get(site)
        if connection is None or site in self._busy or self._openings.is_closing:
            return False
        if not connection.reusable or connection.idle_s() >= _STALE_AFTER_S:
            return False
        attempt = Attempt(request, self._clock.now(), asyncio.get_running_loop().time())
        try:
            target = self._targets.of(request.url, site)
            attempt.head = self._request_head(request, target)
        except (TargetError, HeadError):
            return False  # `fetch` says why
        if connection.origin != target.origin or connection.misfit:
            return False
        del self._idle[site]
        self._busy.add(site)
        reader = ResponseReader(self._limits, request.accept_types, request.max_body_bytes)
        QuickExchange(attempt, connection, reader, partial(self._quick_ended, target, then)).start()
        return True

    def _quick_ended(
        self, target: Target, then: Callable[[Response], None], quick: QuickExchange, sent: bool
    ) -> None:
        attempt, connection, reader = quick.attempt, quick.connection, quick.reader
        attempt.count(connection)
        if self._was_stale(reader, may_be_stale=not sent):
            self._go_on_slowly(self._fetch(attempt, target), attempt.request.site, then)
            return
        self._keep(attempt.request, connection)
        attempt.done(asyncio.get_running_loop().time())
        if reader.is_encoded and reader.received_bytes >= _DECODE_IN_THREAD_BYTES:
            slowly = self._response_of(attempt, reader, connection)
            self._go_on_slowly(slowly, attempt.request.site, then)
            return
        payload, decoded = reader.payload(), None
        if reader.is_encoded and reader.reply is not None:
            decoded = decode(payload, reader.reply.content_encoding, self._limits)
        self._let_go(attempt.request.site)
        then(response_of(attempt, reader, connection, payload, decoded))

    def _go_on_slowly(
        self, fetching: Coroutine[None, None, Response], site: Site, then: Callable[[Response], None]
    ) -> None:
        async def finish() -> None:
            try:
                response = await fetching
            finally:
                self._let_go(site)
            then(response)

        task = asyncio.get_running_loop().create_task(finish())
        self._slowly.add(task)
        task.add_done_callback(self._slowly.discard)

    async def _turn(self, site: Site) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._queues.setdefault(site, []).append(turn)
        await turn

    def _call_next(self, site: Site) -> None:
        for turn in self._queues.pop(site):
            if not turn.done():
                turn.set_result(None)

    async def _fetch(self, attempt: Attempt, target: Target) -> Response:
        request = attempt.request
        connection = self._take_idle(request.site, target)
        while True:
            if self._openings.is_closing:
                return failure(attempt, Kind.CANCELLED, _CLOSED)
            used_before = connection is not None
            may_be_stale = connection is not None and connection.idle_s() >= _STALE_AFTER_S
            if connection is None:
                try:
                    connection = await self._openings.open(
                        partial(self._dialer.dial, target.origin, request.site), self._take_all_idle
                    )
                except DialError as error:
                    return failure(attempt, error.kind, error.detail, error.peer)
            reader = ResponseReader(self._limits, request.accept_types, request.max_body_bytes)
            sent = await exchange(connection, attempt.head, reader, attempt.started_at)
            attempt.count(connection)
            if self._was_stale(reader, may_be_stale=may_be_stale or (used_before and not sent)):
                connection = None
                continue
            self._keep(request, connection)
            attempt.done(asyncio.get_running_loop().time())
            return await self._response_of(attempt, reader, connection)

    def _was_stale(self, reader: ResponseReader, *, may_be_stale: bool) -> bool:
        """Whether the server had closed it while it lay idle: that is no answer to this request. A connection
        used a moment ago was reset because of the request, and asking again at once is rude."""
        is_reset = reader.kind is Kind.RESET and not reader.started
        return is_reset and may_be_stale and not self._openings.is_closing

    async def _response_of(
        self, attempt: Attempt, reader: ResponseReader, connection: Connection
    ) -> Response:
        payload, decoded = reader.payload(), None
        if reader.is_encoded and reader.reply is not None:
            decoded = await self._decode(payload, reader.reply.content_encoding)
        return response_of(attempt, reader, connection, payload, decoded)

    def _request_head(self, request: Request, target: Target) -> bytes:
        proxy = self._dialer.proxy_for(target.origin)
        path, extra, authority = target.path, request.headers, target.origin.authority
        if proxy is not None and not target.origin.secure:
            path = f"http://{authority}{path}"
            extra = (*extra, *proxy.headers())
        return self._heads.of(path, authority, extra, close_after=request.close_after)

    def _take_idle(self, site: Site, target: Target) -> Connection | None:
        connection = self._idle.pop(site, None)
        if connection is None or not connection.reusable:
            return None
        if connection.origin != target.origin or connection.misfit:
            connection.abort()
            return None
        return connection

    def _take_all_idle(self) -> list[Connection]:
        idle = list(self._idle.values())
        self._idle.clear()
        return idle

    def _keep(self, request: Request, connection: Connection) -> None:
        if request.close_after or self._openings.is_closing:
            connection.abort()
        elif connection.reusable:
            self._idle[request.site] = connection
            if len(self._idle) > self._limits.max_idle_connections:
                self._idle.pop(next(iter(self._idle))).abort()

    async def _decode(self, payload: bytes, encoding: str) -> Decoded:
        if len(payload) < _DECODE_IN_THREAD_BYTES:
            return decode(payload, encoding, self._limits)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(None, decode, payload, encoding, self._limits)
