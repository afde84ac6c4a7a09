"""Scrapy's requests over headway's paced connections.

Unlike a crawl of headway's own, a spider may have several requests to a site under way, of any method, each
through a proxy and with a time limit of its own. All connections of a site share the site's part of the link.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from functools import partial

from headway.fetch.connection import Connection
from headway.fetch.dial import Dialer, DialError
from headway.fetch.exchange import exchange
from headway.fetch.head import HeadError
from headway.fetch.openings import Openings
from headway.fetch.pacer import Pacer
from headway.fetch.proxy import Proxy
from headway.fetch.reader import ResponseReader
from headway.fetch.resolve import Address, Lookup, Resolver
from headway.fetch.settings import Limits, Timeouts
from headway.fetch.target import TargetError
from headway.model.outcome import Kind
from headway.scrapy.exchange import Answered, Asked, Place, message, place_of, split_url
from headway.scrapy.gate import Gate, Pass
from headway.scrapy.neighbours import SpiderPacer

_CLOSED = "the spider was closed"
_STALE_AFTER_S = 0.5
_MOST_IDLE = 256
_MOST_WAYS = 64

Way = tuple[Proxy | None, float, tuple[str, int] | None]
"""By which proxy, with which time limit, from which address: connections are made for one way."""
Lane = tuple[Place, Way]


class SpiderFetcher:
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
        self._gate = Gate(pacer)
        if isinstance(pacer, SpiderPacer):
            pacer.on_bound = self._gate.call_next
        self._dialers: dict[Way, Dialer] = {}
        self._idle: dict[Lane, list[Connection]] = {}
        self._openings = Openings(_CLOSED)

    async def fetch(self, asked: Asked, make_reader: Callable[[], ResponseReader]) -> Answered:
        """Never raises but for cancellation; a reader is made for each try."""
        try:
            beginning, path = split_url(asked.url)
            place = place_of(beginning)
            request = message(asked, place.origin, path)
        except (TargetError, HeadError) as error:
            return Answered(Kind.PROTOCOL, str(error), make_reader())
        lane = (place, (asked.proxy, asked.timeout_s, asked.bind_to))
        asked_at = asyncio.get_running_loop().time()
        leave = await self._gate.enter(place.site)
        try:
            return await self._fetch(asked, request, lane, make_reader, leave=leave, asked_at=asked_at)
        finally:
            self._gate.leave(leave)

    async def _fetch(
        self,
        asked: Asked,
        request: bytes,
        lane: Lane,
        make_reader: Callable[[], ResponseReader],
        *,
        leave: Pass,
        asked_at: float,
    ) -> Answered:
        loop = asyncio.get_running_loop()
        started_at = loop.time()
        connection = self._take_idle(lane, is_fresh=not asked.may_be_repeated)
        wire_bytes = 0
        while True:
            reader = make_reader()
            if self._openings.is_closing:
                return Answered(Kind.CANCELLED, _CLOSED, reader)
            is_used = connection is not None
            may_be_stale = connection is not None and connection.idle_s() >= _STALE_AFTER_S
            if connection is None:
                try:
                    place, way = lane
                    dial = partial(self._dialer(way).dial, place.origin, place.site)
                    connection = await self._openings.open(dial, self._take_all_idle)
                except DialError as error:
                    lasted_s = loop.time() - started_at
                    return Answered(error.kind, error.detail, reader, duration_s=lasted_s, peer=error.peer)
            leave.talk = connection
            is_sent = await exchange(connection, request, reader, started_at)
            wire_bytes += connection.wire_bytes()
            is_stale = may_be_stale or (is_used and not is_sent)
            if (
                reader.kind is Kind.RESET
                and is_stale
                and not reader.started
                and not self._openings.is_closing
            ):
                # The server had closed it while it lay idle: not an answer to this request.
                connection = None
                continue
            self._keep(lane, connection, reader)
            return Answered(
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
        """Close everything; what is under way ends as CANCELLED."""
        self._openings.cancel_all()
        self._idle.clear()
        self._gate.close()
        await self._resolver.aclose()
        await self._openings.until_closed()

    def _take_idle(self, lane: Lane, *, is_fresh: bool) -> Connection | None:
        """The last one used. With `is_fresh` only if it cannot have gone stale: what is not to be repeated
        must not be sent into a connection that may be dead."""
        waiting = self._idle.get(lane)
        while waiting:
            connection = waiting.pop()
            if not connection.reusable:
                continue
            if connection.misfit or (is_fresh and connection.idle_s() >= _STALE_AFTER_S):
                connection.abort()
                continue
            return connection
        return None

    def _keep(self, lane: Lane, connection: Connection, reader: ResponseReader) -> None:
        if self._openings.is_closing or not (reader.reply is None or reader.reply.keep_alive):
            connection.abort()
        elif connection.reusable:
            self._idle.setdefault(lane, []).append(connection)
            if len(self._openings.connections) > _MOST_IDLE:
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

    def _dialer(self, way: Way) -> Dialer:
        dialer = self._dialers.get(way)
        if dialer is None:
            proxy, timeout_s, bind_to = way
            if len(self._dialers) >= _MOST_WAYS:
                del self._dialers[next(iter(self._dialers))]
            self._dialers[way] = dialer = _SpiderDialer(
                self._context,
                bind_to,
                resolver=self._resolver,
                pacer=self._pacer,
                timeouts=Timeouts(
                    connect_s=timeout_s, first_byte_s=timeout_s, idle_s=timeout_s, total_s=timeout_s
                ),
                limits=Limits(),
                user_agent=self._user_agent,
                allow_private=self._allow_private,
                proxy=proxy,
            )
        return dialer


class _SpiderDialer(Dialer):
    """Agrees on keys and connects from where Scrapy's own settings say."""

    def __init__(self, context: ssl.SSLContext, bind_to: tuple[str, int] | None, **parts: object) -> None:
        super().__init__(**parts)  # type: ignore[arg-type]  # handed on as they are
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
