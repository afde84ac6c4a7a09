"""The HTTP client. It keeps one connection to each site and sends one request at a time over it.

Every fetch ends with a `Response`, whatever happened; none raises, except when its task is cancelled.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import ParamSpec, TypeVar

from headway.http.connection import Attempt, Connection, QuickExchange, failure, response_of
from headway.http.decode import Decoded, TooMuchWorkError, allowed_bytes, decode
from headway.http.dial import Dialer, DialError, OpenConnections, exchange
from headway.http.head import HeadError, RequestHeads
from headway.http.memory import MemoryBudget, answers_bytes
from headway.http.models import ClientOptions, Limits, Target, TargetError, Targets
from headway.http.reader import ResponseReader
from headway.http.resolve import Lookup, Resolver
from headway.model.page import Kind, Site
from headway.pacing.background import BackgroundPacing
from headway.pacing.pacer import Pacer
from headway.ports import Clock, Request, Response
from headway.units import UNBOUNDED, BytesPerSecond

P = ParamSpec("P")
T = TypeVar("T")

_CUT = "the window has closed"
_CLOSED = "the fetcher was closed"
_STALE_AFTER_S = 0.5
"""A server may close a connection that was idle for longer than this without our knowing yet."""
_STALLED_AFTER_S = 3.0
_LOOK_FOR_STALLED_EVERY_S = 1.0
_CHALLENGES = frozenset({401, 402, 403})
_MOST_CHALLENGED = 100_000
_LONG_BYTES = 128 * 1024
"""Joining and decoding a longer payload on the event loop would delay the other sites."""
_DECODING_THREADS = 2
"""They let the event loop run while they decode. More would take the cores from it."""


class HttpFetcher:
    """Implements `headway.ports.Fetcher`."""

    def __init__(
        self,
        clock: Clock,
        options: ClientOptions,
        *,
        capacity_bytes_per_s: BytesPerSecond = UNBOUNDED,
        lookup: Lookup | None = None,
        charge_uploads: bool = False,
        yields: bool = False,
        up_bytes_per_s: BytesPerSecond = UNBOUNDED,
    ) -> None:
        self._clock = clock
        self._heads = RequestHeads(options.user_agent, sender=options.sender)
        self._signer = options.signer
        self._signs_first = options.signs_first
        self._challenged: dict[Site, None] = {}
        """Sites whose requests are signed, because they asked for it or refused one without."""
        self._limits = options.limits
        self._resolver = Resolver(lookup)
        self._pacer = Pacer(
            capacity_bytes_per_s, charge_uploads=charge_uploads, yields=yields, up_bytes_per_s=up_bytes_per_s
        )
        self._dialer = Dialer(self._resolver, self._pacer, options)
        self._targets = Targets()
        self._idle: dict[Site, Connection] = {}
        self._busy: set[Site] = set()
        self._using: dict[Site, Connection] = {}
        """The connection of each request under way."""
        self._cut: set[Site] = set()
        """Sites whose request is to end as soon as it has a connection."""
        self._queues: dict[Site, list[asyncio.Future[None]]] = {}
        """Requests that wait until the site's current one has ended."""
        self._connections = OpenConnections(_CLOSED, self._take_all_idle)
        self._memory = MemoryBudget(answers_bytes(options.limits.memory_bytes))
        self._most_stalled: int | None = None
        self._stall_timer: asyncio.TimerHandle | None = None
        self._threads: ThreadPoolExecutor | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        """Fetches started by `fetch_at_once` that needed a task after all."""

    def set_capacity(self, capacity_bytes_per_s: BytesPerSecond) -> None:
        self._pacer.set_capacity(capacity_bytes_per_s)

    def set_rates(self, rates_bytes_per_s: Mapping[Site, BytesPerSecond]) -> None:
        self._pacer.set_rates(rates_bytes_per_s)

    def set_asks_until(self, at: float) -> None:
        """Send no request after this time of the loop's clock, unless a later time is set until then."""
        self._pacer.asks_until = at

    @property
    def background(self) -> BackgroundPacing | None:
        """How the crawl yields to other users of the link; None if it does not."""
        return self._pacer.background

    def set_contention(self, most_stalled: int | None) -> None:
        """Sites wait for a connection: until further notice at most so many may make no progress; those that
        have made none for longest end first. None: any number."""
        self._most_stalled = most_stalled
        if most_stalled is not None and self._stall_timer is None:
            self._look_for_stalled()

    def _look_for_stalled(self) -> None:
        self._stall_timer = None
        if self._most_stalled is None or self._connections.is_closing:
            return
        stalled = [(seconds, each) for each in self._connections.open if (seconds := each.stalled_s())]
        stalled = [(seconds, each) for seconds, each in stalled if seconds >= _STALLED_AFTER_S]
        if len(stalled) > self._most_stalled:
            stalled.sort(key=lambda pair: -pair[0])
            for seconds, connection in stalled[: len(stalled) - self._most_stalled]:
                connection.give_way(seconds)
        loop = asyncio.get_running_loop()
        self._stall_timer = loop.call_later(_LOOK_FOR_STALLED_EVERY_S, self._look_for_stalled)

    def cut(self, sites: Collection[Site] | None) -> None:
        """End the requests under way of these sites, or of all, as CANCELLED."""
        for site in list(self._busy if sites is None else self._busy.intersection(sites)):
            connection = self._using.get(site)
            if connection is None:
                self._cut.add(site)
            else:
                connection.cancel(_CUT)

    def bytes_received(self) -> int:
        return self._pacer.received_bytes

    def bytes_sent(self) -> int:
        """Bytes on the link from us to servers: requests and TCP acknowledgements."""
        return self._pacer.sent_bytes

    def round_trips(self) -> Iterator[tuple[str, float]]:
        """The servers with a request under way, each with its round-trip time in seconds."""
        for connection in self._connections.open:
            if (seconds := connection.round_trip_s()) is not None:
                yield connection.peer, seconds

    async def measure_round_trip(self, site: Site) -> float | None:
        """Connect to a site, close the connection without a request, and return the round-trip time in
        seconds; None if the connection fails."""
        try:
            origin = self._targets.of(f"{site}/", site).origin
            connection = await self._connections.dial(self._dialer, origin, site)
        except (DialError, TargetError):
            return None
        try:
            return connection.round_trip_s(is_new=True)
        finally:
            connection.abort()

    async def address_of(self, site: Site) -> str:
        """The address that a request to the site is sent to first; empty if there is none."""
        try:
            origin = self._targets.of(f"{site}/", site).origin
            return await self._dialer.address_of(origin)
        except (DialError, TargetError):
            return ""

    async def aclose(self) -> None:
        """Close all connections. Fetches under way end as CANCELLED."""
        self._connections.cancel_all()
        if self._stall_timer is not None:
            self._stall_timer.cancel()
        self._idle.clear()
        self._pacer.close()
        await self._resolver.aclose()
        await self._connections.wait_closed()
        await asyncio.gather(*self._tasks)
        if self._threads is not None:
            self._threads.shutdown(wait=False)  # bounded work; its fetches still end with a response

    async def fetch(self, request: Request) -> Response:
        attempt = Attempt(request, self._clock.now(), asyncio.get_running_loop().time())
        site = request.site
        try:
            target = self._targets.of(request.url, site)
            attempt.head = self._request_head(request, target)
        except (TargetError, HeadError) as error:
            return failure(attempt, Kind.PROTOCOL, str(error))
        # Callers send one request to a site at a time. If one does not, there is still only one connection.
        while site in self._busy:
            await self._wait_until_free(site)
        self._busy.add(site)
        try:
            if self._memory.is_short:
                await self._wait_for_memory(attempt)
            response = await self._fetch(attempt, target)
            if self._asks_for_signature(site, response):
                attempt = Attempt(request, self._clock.now(), asyncio.get_running_loop().time())
                attempt.head = self._request_head(request, target)
                response = await self._fetch(attempt, target)
            return response
        finally:
            self._release(site)

    def _asks_for_signature(self, site: Site, response: Response) -> bool:
        """Whether a site wants to know who asks, and has not been told."""
        if self._signer is None or self._signs_first or site in self._challenged:
            return False
        if response.status not in _CHALLENGES and not response.header("accept-signature"):
            return False
        if len(self._challenged) >= _MOST_CHALLENGED:
            del self._challenged[next(iter(self._challenged))]
        self._challenged[site] = None
        return True

    def _release(self, site: Site) -> None:
        self._busy.discard(site)
        self._using.pop(site, None)
        self._cut.discard(site)
        if site in self._queues:
            self._wake_waiting(site)

    def fetch_at_once(self, request: Request, then: Callable[[Response], None]) -> bool:
        """Start a fetch over the site's open connection and return True; the event loop then calls `then`
        with its response. False if there is no such connection or it may be stale: nothing was started."""
        site = request.site
        connection = self._idle.get(site)
        if connection is None or site in self._busy or self._connections.is_closing:
            return False
        if self._memory.is_short:
            return False
        if not connection.reusable or connection.idle_s() >= _STALE_AFTER_S:
            return False
        attempt = Attempt(request, self._clock.now(), asyncio.get_running_loop().time())
        try:
            target = self._targets.of(request.url, site)
            attempt.head = self._request_head(request, target)
        except (TargetError, HeadError):
            return False  # `fetch` returns the reason as a response
        if connection.origin != target.origin or connection.needs_replacement:
            return False
        del self._idle[site]
        self._busy.add(site)
        self._using[site] = connection
        reader = ResponseReader(self._limits, request.accept_types, request.max_body_bytes)
        QuickExchange(attempt, connection, reader, partial(self._quick_ended, target, then)).start()
        return True

    def _quick_ended(
        self, target: Target, then: Callable[[Response], None], quick: QuickExchange, sent: bool
    ) -> None:
        attempt, connection, reader = quick.attempt, quick.connection, quick.reader
        attempt.add(connection)
        if self._was_stale(reader, may_be_stale=not sent):
            self._continue_in_task(self._fetch(attempt, target), attempt.request.site, then)
            return
        self._keep(attempt.request, connection)
        attempt.finish(asyncio.get_running_loop().time())
        payload, decoded = b"", None
        if is_short := reader.received_bytes < _LONG_BYTES:
            payload = reader.payload()
            if reader.is_encoded and reader.reply is not None:
                decoded = self._decoded_in_place(payload, reader.reply.content_encoding)
                is_short = decoded is not None
        if not is_short:
            finishing = self._response_of(attempt, reader, connection)
            self._continue_in_task(finishing, attempt.request.site, then)
            return
        self._release(attempt.request.site)
        then(response_of(attempt, reader, connection, payload, decoded))

    def _continue_in_task(
        self, fetching: Coroutine[None, None, Response], site: Site, then: Callable[[Response], None]
    ) -> None:
        async def finish() -> None:
            try:
                response = await fetching
            finally:
                self._release(site)
            then(response)

        task = asyncio.get_running_loop().create_task(finish())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _wait_until_free(self, site: Site) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._queues.setdefault(site, []).append(turn)
        await turn

    def _wake_waiting(self, site: Site) -> None:
        for turn in self._queues.pop(site):
            if not turn.done():
                turn.set_result(None)

    async def _fetch(self, attempt: Attempt, target: Target) -> Response:
        request = attempt.request
        connection = self._take_idle(request.site, target)
        while True:
            if self._connections.is_closing:
                return failure(attempt, Kind.CANCELLED, _CLOSED)
            used_before = connection is not None
            may_be_stale = connection is not None and connection.idle_s() >= _STALE_AFTER_S
            if connection is None:
                try:
                    connection = await self._connections.dial(self._dialer, target.origin, request.site)
                    connection.memory = self._memory
                except DialError as error:
                    return failure(attempt, error.kind, error.detail, error.peer)
            if request.site in self._cut:
                connection.abort()
                return failure(attempt, Kind.CANCELLED, _CUT)
            self._using[request.site] = connection
            reader = ResponseReader(self._limits, request.accept_types, request.max_body_bytes)
            sent = await exchange(connection, attempt.head, reader, attempt.started_at)
            attempt.add(connection)
            if self._was_stale(reader, may_be_stale=may_be_stale or (used_before and not sent)):
                connection = None
                continue
            self._keep(request, connection)
            attempt.finish(asyncio.get_running_loop().time())
            return await self._response_of(attempt, reader, connection)

    def _was_stale(self, reader: ResponseReader, *, may_be_stale: bool) -> bool:
        """Whether the server had closed the connection while it was idle, so that the request is sent again.
        A connection that was in use just before was reset because of the request: that is a failure."""
        is_reset = reader.kind is Kind.RESET and not reader.started
        return is_reset and may_be_stale and not self._connections.is_closing

    async def _response_of(
        self, attempt: Attempt, reader: ResponseReader, connection: Connection
    ) -> Response:
        if reader.kind is Kind.CANCELLED:  # nobody reads what came until then
            return response_of(attempt, reader, connection, b"", None)
        encoding = reader.reply.content_encoding if reader.is_encoded and reader.reply is not None else ""
        decoded: Decoded | None = None
        if reader.received_bytes < _LONG_BYTES:
            payload = reader.payload()
            decoded = self._decoded_in_place(payload, encoding) if encoding else None
            if decoded is not None or not encoding:
                return response_of(attempt, reader, connection, payload, decoded)
        owner = object()
        await self._memory.room(owner, self._most_held(reader.received_bytes, encoding))
        try:
            payload, decoded = await self._in_thread(_payload_and_content, reader, encoding, self._limits)
            reader.parts.clear()
            response = response_of(attempt, reader, connection, payload, decoded)
        except BaseException:
            self._memory.release(owner)
            raise
        self._memory.keep(owner, len(payload) + (len(decoded.body) if decoded is not None else 0))
        # Until nobody needs it any more, in whichever thread that is.
        loop = asyncio.get_running_loop()
        weakref.finalize(response, _release_on, loop, self._memory, owner).atexit = False
        return response

    def _most_held(self, received_bytes: int, encoding: str) -> int:
        """What an answer may hold when it has been joined and decoded."""
        return 2 * received_bytes + (allowed_bytes(received_bytes, self._limits) if encoding else 0)

    async def _wait_for_memory(self, attempt: Attempt) -> None:
        began_at, owner = asyncio.get_running_loop().time(), object()
        await self._memory.room(owner, 0)
        self._memory.release(owner)
        attempt.requested_at = self._clock.now()
        attempt.started_at += asyncio.get_running_loop().time() - began_at

    def _request_head(self, request: Request, target: Target) -> bytes:
        proxy = self._dialer.proxy_for(target.origin)
        path, extra, authority = target.path, request.headers, target.origin.authority
        if proxy is not None and not target.origin.secure:
            path = f"http://{authority}{path}"
            extra = (*extra, *proxy.headers())
        if self._signer is not None and (self._signs_first or request.site in self._challenged):
            extra = (*extra, *self._signer.headers(self._clock.now(), authority))
        if request.form is not None:
            return self._heads.with_form(path, authority, extra, request.form)
        return self._heads.of(path, authority, extra, close_after=request.close_after)

    def _take_idle(self, site: Site, target: Target) -> Connection | None:
        connection = self._idle.pop(site, None)
        if connection is None or not connection.reusable:
            return None
        if connection.is_overdue:
            connection.abort()  # the server is closing it now
            return None
        if connection.origin != target.origin or connection.needs_replacement:
            connection.abort()
            return None
        return connection

    def _take_all_idle(self) -> list[Connection]:
        idle = list(self._idle.values())
        self._idle.clear()
        return idle

    def _keep(self, request: Request, connection: Connection) -> None:
        if request.close_after or self._connections.is_closing:
            connection.abort()
        elif connection.reusable:
            self._idle[request.site] = connection
            if len(self._idle) > self._limits.max_idle_connections:
                self._idle.pop(next(iter(self._idle))).abort()

    def _decoded_in_place(self, payload: bytes, encoding: str) -> Decoded | None:
        """The content of a short payload; None if decoding it would hold up the event loop."""
        try:
            return decode(payload, encoding, self._limits, in_place=True)
        except TooMuchWorkError:
            return None

    async def _in_thread(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_DECODING_THREADS, "headway-decode")
        return await asyncio.wrap_future(self._threads.submit(work, *args, **kwargs))


def _release_on(loop: asyncio.AbstractEventLoop, memory: MemoryBudget, owner: object) -> None:
    with suppress(RuntimeError):  # the loop has ended, and with it the crawl
        loop.call_soon_threadsafe(memory.release, owner)


def _payload_and_content(
    reader: ResponseReader, encoding: str, limits: Limits
) -> tuple[bytes, Decoded | None]:
    payload = reader.payload()
    return payload, decode(payload, encoding, limits) if encoding else None
