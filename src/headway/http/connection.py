"""A connection to a server, plain or TLS, with at most one exchange in progress; and a fetch over it.

The transport calls `get_buffer` and `buffer_updated`; received bytes pass through TLS, if any, to the reader
of the current response. TLS runs over memory buffers so that the connection itself decides how many bytes it
reads: the TLS of asyncio's transports reads ahead by megabytes while it is paused, which no bound allows for.
One timer per connection checks all timeouts. An `Attempt` is a fetch in progress.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from headway.http.decode import Decoded
from headway.http.memory import STEP_BYTES, MemoryBudget
from headway.http.models import Timeouts, without_login
from headway.http.reader import ResponseReader
from headway.http.tls import TlsLayer, explain
from headway.model.page import Kind, Timing
from headway.pacing.meter import Meter
from headway.pacing.wire import round_trip_s
from headway.ports import Request, Response
from headway.units import Instant, Seconds

if TYPE_CHECKING:
    from headway.http.models import Origin

_MOST_HANDSHAKES = 16
"""How often TLS may send of itself while a response arrives, for a new handshake or new keys: a server that
wants more keeps us busy."""
_STALL_BYTES_PER_S = 1000.0
_FIRST_READ_BYTES = 32 * 1024
_FRAGMENTED_READ_BYTES = 16 * 1024
"""A slower answer makes no progress, if other sites wait for its connection."""


class Connection(asyncio.BufferedProtocol):
    """`Dialer` makes one. Call `begin` and then `send` for each request, while `reusable` is true."""

    def __init__(
        self, origin: Origin, peer: str, meter: Meter, timeouts: Timeouts, scratch: memoryview
    ) -> None:
        self.origin = origin
        self.peer = peer
        self.memory: MemoryBudget | None = None
        """What its answers may hold; None: anything."""
        self._memory_at = STEP_BYTES
        self.closed = asyncio.get_running_loop().create_future()
        """Done when the transport has closed the socket."""
        self._loop = asyncio.get_running_loop()
        self._timeouts = timeouts
        self._scratch = scratch
        self._keep_idle_s = timeouts.keep_idle_s
        self._transport: asyncio.Transport | None = None
        self._tls: TlsLayer | None = None
        self._meter = meter
        self._wire_bytes = 0
        self._reader: ResponseReader | None = None
        self._handshake: asyncio.Future[None] | None = None
        self._on_end: Callable[[], None] | None = None
        """Called when the reader has finished."""
        self._turn: asyncio.Future[None] | None = None
        """Done when the request may be sent: when the first bytes of its response have been granted."""
        self._asked_at = 0.0
        self._lost = False
        self._cancelled_because = ""
        self._timer: asyncio.TimerHandle | None = None
        self._started_at = 0.0
        self._sent_at = 0.0
        self._last_arrival_at = self._loop.time()
        self._answered = False
        self._tls_answers = 0
        self._received_bytes = 0
        self._pace_from = 0.0
        """Since when the current answer is slower than the limit; moves on with each part that is faster."""
        self._pace_bytes = 0
        self._stall_from = 0.0
        self._stall_bytes = 0
        self._held_since: float | None = None
        """When reading was paused to wait for a grant. That time does not count against the server."""
        self.waited_s = 0.0
        """Seconds that the last request waited for its first grant."""
        self.held_s = 0.0
        """Seconds that reading its response was paused to wait for further grants."""
        self.first_byte_s = -1.0
        """From sending the last request to the first byte of its response; negative before that byte."""
        self.connect_s = self.tls_s = self.dial_held_s = 0.0
        """How long opening took, set by the dialer: without the handshake of TLS, that handshake, and the
        wait for a grant. `Attempt.add` takes them."""

    def round_trip_s(self, *, is_new: bool = False) -> float | None:
        """The round-trip time that the kernel measures. None without a request under way, unless `is_new`."""
        if self._lost or (self._reader is None and not is_new) or self._transport is None:
            return None
        return round_trip_s(self._transport.get_extra_info("socket"))

    def idle_s(self) -> float:
        """Seconds since data last arrived."""
        return self._loop.time() - self._last_arrival_at

    def silent_s(self) -> float:
        """Seconds that we have waited for the server; 0 without a request, or while our own pacer makes the
        response wait."""
        if self._reader is None or self._held_since is not None:
            return 0.0
        return self.idle_s()

    def stalled_s(self) -> float:
        """Seconds in which the server has sent hardly anything of the current answer, not counting the time
        that our own pacer made it wait; 0 without a request. Call it about once a second."""
        if self._reader is None or self._held_since is not None or self._transport is None:
            return 0.0
        now = self._loop.time()
        passed_s = now - self._stall_from
        if self._received_bytes - self._stall_bytes >= max(1.0, passed_s) * _STALL_BYTES_PER_S:
            self._stall_from, self._stall_bytes = now, self._received_bytes
            return 0.0
        return passed_s

    def give_way(self, stalled_s: float) -> None:
        """End the exchange, which makes no progress, since other sites wait for the connection."""
        if self._reader is not None:
            kind = Kind.TIMEOUT_IDLE if self._answered else Kind.TIMEOUT_FIRST_BYTE
            text = f"hardly any data for {stalled_s:.0f} s while other sites waited for a connection"
            self._reader.fail(kind, text)
            self._finish()
        self.abort()

    @property
    def reusable(self) -> bool:
        return not self._lost and self._reader is None

    @property
    def is_overdue(self) -> bool:
        """Whether it has been idle for as long as the server, or we, keep it open."""
        return self.idle_s() >= self._keep_idle_s

    @property
    def tls_session(self) -> ssl.SSLObject | None:
        return None if self._tls is None else self._tls.session

    @property
    def needs_replacement(self) -> bool:
        """Whether the receive buffer no longer suits the bound, so that a new connection would do better."""
        return self._meter.needs_replacement

    @property
    def note(self) -> str:
        """What was wrong with the connection during the last response, and what was done about it."""
        return self._meter.note

    def wire_bytes(self) -> int:
        """Bytes on the link towards us since the last call."""
        wire_bytes, self._wire_bytes = self._wire_bytes, 0
        return wire_bytes

    def begin_tls(self, tls: TlsLayer) -> asyncio.Future[None]:
        """Start the TLS handshake. The future is done when it is complete; it fails with ssl.SSLError, or
        ConnectionError if the server closes."""
        self._tls = tls
        self._meter.secure = True
        self._handshake = complete = self._loop.create_future()
        self._continue_handshake()
        return complete

    def end_handshake(self) -> None:
        """Count the bytes of the handshake."""
        self._settle()

    def begin(self) -> asyncio.Future[None] | None:
        """Ask for a grant of the first bytes of a response. The future is done when the request may be sent;
        None: it may be sent at once."""
        self._asked_at = now = self._loop.time()
        self.waited_s = 0.0
        self._turn = None
        first_bytes = self._meter.begin(now)
        if first_bytes and not self._meter.ask(now, first_bytes, self._end_turn):
            self._turn = self._loop.create_future()
        return self._turn

    def send(
        self, head: bytes, reader: ResponseReader, started_at: float, on_end: Callable[[], None]
    ) -> bool:
        """Send a request after `begin`; `on_end` is called when the reader has finished, except after
        `abort`. False if the request could not be sent: the reader has finished, `on_end` is not called."""
        now = self._asked_at
        if self._turn is not None:
            now = self._loop.time()
            self.waited_s = now - self._asked_at
        self._reader = reader
        self._last_arrival_at = now
        self._started_at = started_at + self.waited_s
        self._answered = False
        self._tls_answers = 0
        self._pace_from = self._stall_from = now
        self._pace_bytes = self._stall_bytes = self._received_bytes
        self.held_s = 0.0
        self.first_byte_s = -1.0
        self._sent_at = now
        if not self._meter.may_send(now):
            reader.fail(Kind.CANCELLED, "the lease of the site has expired")
            self._reader = None
            self.abort()
            return False
        if self._lost or self._transport is None:
            if self._cancelled_because:
                reader.fail(Kind.CANCELLED, self._cancelled_because)
            else:
                reader.fail(Kind.RESET, "the connection was closed")
            self._reader = None
            return False
        self._on_end = on_end
        if self._tls is None:
            self._transport.write(head)
        else:
            self._tls.encrypt(head)
            self._transport.write(self._tls.to_send())
        if self._timer is None:
            self._watch()
        return True

    def abort(self) -> None:
        """Close at once. An exchange under way is dropped without calling `on_end`."""
        if not self._lost:
            self._settle()
        if self._transport is not None:
            self._transport.abort()
        self._lost = True
        self._reader = self._on_end = None

    def cancel(self, why: str) -> None:
        """End the exchange under way as CANCELLED, and close."""
        self._cancelled_because = why
        if self._reader is not None:
            self._reader.fail(Kind.CANCELLED, why)
            self._finish()
        self.abort()

    # Called by the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        most = len(self._scratch)
        reader = self._reader
        if reader is not None and (reader.reply is None or reader.is_fragmented):
            # Chunks of a few bytes each take long, and the first ones come with the head.
            most = _FIRST_READ_BYTES if reader.reply is None else _FRAGMENTED_READ_BYTES
        if self._meter.bounded:
            most = self._meter.read_limit(most)
        return self._scratch[:most] if most < len(self._scratch) else self._scratch

    def buffer_updated(self, nbytes: int) -> None:
        self._last_arrival_at = self._loop.time()
        if not self._answered:
            self._answered = True
            self._pace_from = self._last_arrival_at
        self._received_bytes += nbytes
        self._meter.add_read(nbytes)
        data = self._scratch[:nbytes]
        if self._tls is not None:
            self._take_ciphertext(data)
        elif self._reader is not None:
            if self.first_byte_s < 0:
                self.first_byte_s = self._last_arrival_at - self._sent_at
            if self._reader.feed(data):
                self._finish()
            elif self._has_memory(self._reader) and self._meter.bounded:
                self._ask_for_more()
        else:
            self.abort()  # without a request: the next response would be taken for this one

    def eof_received(self) -> bool:
        if self._reader is not None:
            self._reader.feed_eof()
            self._finish()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._lost:
            self._settle()
        self._lost = True
        if self._timer is not None:
            self._timer.cancel()
        if self._reader is not None:
            if exc is None:
                self._reader.feed_eof()
            else:
                self._reader.fail(Kind.RESET, f"the connection broke: {exc}")
            self._finish()
        elif self._handshake is not None and not self._handshake.done():
            self._handshake.set_exception(ConnectionResetError("the server closed during the TLS handshake"))
        if not self.closed.done():
            self.closed.set_result(None)

    def _take_ciphertext(self, data: memoryview) -> None:
        tls = self._tls
        assert tls is not None
        tls.receive(data)
        if self._reader is None:
            if self._handshake is not None and not self._handshake.done():
                self._continue_handshake()
            else:
                self._take_unrequested(tls)
            return
        try:
            for piece in tls.plaintext():
                if self.first_byte_s < 0:
                    self.first_byte_s = self._last_arrival_at - self._sent_at
                if self._reader.feed(piece):
                    self._finish()
                    return
            self._answer_tls(tls)
        except ssl.SSLError as error:
            self._reader.fail(Kind.TLS, explain(error))
            self._finish()
            return
        if tls.closed:
            self._reader.feed_eof()
            self._finish()
        elif self._has_memory(self._reader) and self._meter.bounded:
            self._ask_for_more()

    def _answer_tls(self, tls: TlsLayer) -> None:
        """Send what TLS itself has to say: new keys, or its part of a new handshake."""
        if tls.has_to_send and self._transport is not None:
            self._tls_answers += 1
            if self._tls_answers > _MOST_HANDSHAKES:
                raise ssl.SSLError(ssl.SSL_ERROR_SSL, "the server renegotiates TLS again and again")
            self._transport.write(tls.to_send())

    def _take_unrequested(self, tls: TlsLayer) -> None:
        """TLS records between responses: session tickets are kept, content closes the connection."""
        try:
            if any(tls.plaintext()) or tls.closed:
                self.abort()
                return
            self._answer_tls(tls)
            tls.keep_session()
        except ssl.SSLError:
            self.abort()

    def _continue_handshake(self) -> None:
        tls, complete = self._tls, self._handshake
        assert tls is not None
        assert complete is not None
        try:
            done = tls.handshake()
        except (ssl.SSLError, ssl.CertificateError) as error:
            self._send_pending(tls)  # the alert with the reason
            complete.set_exception(error)
            return
        self._send_pending(tls)
        if done:
            complete.set_result(None)

    def _send_pending(self, tls: TlsLayer) -> None:
        pending = tls.to_send()
        if pending and self._transport is not None:
            self._transport.write(pending)

    def _finish(self) -> None:
        reader, self._reader = self._reader, None
        if self._tls is not None:
            self._tls.keep_session()
        if reader is not None and reader.reply is not None and reader.reply.keep_alive_s is not None:
            # Closing first avoids a request on a connection that the server is just closing.
            self._keep_idle_s = min(self._timeouts.keep_idle_s, max(0.0, reader.reply.keep_alive_s - 0.5))
        self._settle()
        on_end, self._on_end = self._on_end, None
        if reader is not None and not reader.keep_alive:
            self.abort()
        if on_end is not None:
            on_end()

    def _has_memory(self, reader: ResponseReader) -> bool:
        """Whether the answer may be read on. If not, reading is paused until there is memory."""
        if reader.received_bytes < self._memory_at or self.memory is None:
            return True
        if self.memory.take(self, STEP_BYTES, self._on_memory):
            self._memory_at += STEP_BYTES
            return True
        if self._transport is not None:
            self._held_since = self._last_arrival_at
            self._transport.pause_reading()
        return False

    def _on_memory(self) -> None:
        self._memory_at += STEP_BYTES
        self._resume()
        if self._reader is not None and self._meter.bounded:
            self._ask_for_more()

    def _settle(self) -> None:
        if self._memory_at > STEP_BYTES or self._held_since is not None:
            self._memory_at = STEP_BYTES
            if self.memory is not None:
                self.memory.release(self)
        self._held_since = None
        self._end_turn()  # a request that waits on a lost connection need not wait any longer
        self._wire_bytes += self._meter.settle(self._loop.time())

    def _end_turn(self) -> None:
        if self._turn is not None and not self._turn.done():
            self._turn.set_result(None)

    def _ask_for_more(self) -> None:
        """Pause reading until more bytes are granted. The kernel's buffer fills, which stops the server."""
        assert self._reader is not None
        now = self._last_arrival_at
        lacking = self._meter.lacking_bytes(now, self._reader.remaining_bytes)
        if lacking and not self._meter.ask(now, lacking, self._resume) and self._transport is not None:
            self._held_since = now
            self._transport.pause_reading()

    def _resume(self) -> None:
        if self._held_since is None or self._transport is None or self._lost:
            return
        now = self._loop.time()
        held_s = now - self._held_since
        self._started_at += held_s
        self._pace_from += held_s
        self._stall_from += held_s
        self.held_s += held_s
        self._last_arrival_at = now
        self._held_since = None
        self._transport.resume_reading()

    def _watch(self) -> None:
        """Check the timeouts, and set the timer for the next check.

        The timer never waits longer than the shortest timeout, so no timeout is noticed late. A request
        that takes milliseconds neither sets nor cancels a timer.
        """
        self._timer = None
        if self._lost:
            return
        now = self._loop.time()
        due_at, kind, detail = self._next_timeout()
        if now >= due_at:
            if self._reader is not None:
                self._reader.fail(kind, detail)
                self._finish()
            self.abort()
            return
        self._timer = self._loop.call_at(min(due_at, now + self._timeouts.shortest_s()), self._watch)

    def _next_timeout(self) -> tuple[float, Kind, str]:
        timeouts = self._timeouts
        now = self._loop.time()
        if self._held_since is not None:
            return now + timeouts.shortest_s(), Kind.TIMEOUT_IDLE, ""
        if self._reader is None:
            return self._last_arrival_at + self._keep_idle_s, Kind.TIMEOUT_IDLE, ""
        if self._answered:
            limit_s, kind, what = timeouts.idle_s, Kind.TIMEOUT_IDLE, "no data"
        else:
            limit_s, kind, what = timeouts.first_byte_s, Kind.TIMEOUT_FIRST_BYTE, "no answer"
        soon = (self._last_arrival_at + limit_s, kind, f"{what} for {limit_s:g} s")
        whole = (
            self._started_at + timeouts.total_s,
            Kind.TIMEOUT_TOTAL,
            f"not complete after {timeouts.total_s:g} s",
        )
        return min(soon, whole, self._low_speed(now)) if self._answered else min(soon, whole)

    def _low_speed(self, now: float) -> tuple[float, Kind, str]:
        """When the answer will have been slower than the limit for too long, if it stays slow."""
        timeouts = self._timeouts
        # A job that allows longer silences also allows a low speed for that long.
        limit, length_s = timeouts.low_speed_bytes_per_s, max(timeouts.low_speed_s, timeouts.idle_s)
        received_bytes = self._received_bytes - self._pace_bytes
        if received_bytes and received_bytes >= limit * (now - self._pace_from):
            self._pace_from, self._pace_bytes = now, self._received_bytes
        text = f"slower than {limit:g} bytes/s for {length_s:g} s"
        return self._pace_from + length_s, Kind.TIMEOUT_IDLE, text


class Attempt:
    """What a fetch has measured so far. It uses a second connection when the first was stale."""

    __slots__ = (
        "asked_at",
        "connect_s",
        "dial_held_s",
        "duration_s",
        "head",
        "request",
        "requested_at",
        "started_at",
        "tls_s",
        "wire_bytes",
    )

    def __init__(self, request: Request, requested_at: Instant, started_at: float) -> None:
        self.request = request
        self.asked_at = self.requested_at = requested_at
        self.started_at = started_at
        self.head = b""
        self.wire_bytes = 0
        self.duration_s = Seconds(0.0)
        self.connect_s = self.tls_s = self.dial_held_s = 0.0

    def add(self, connection: Connection) -> None:
        """Add what an exchange on this connection measured. The time its request waited for a grant of our
        own pacer is not part of the fetch, so it moves the start."""
        if seconds := connection.waited_s:
            self.requested_at = Instant(self.requested_at + seconds)
            self.started_at += seconds
        self.wire_bytes += connection.wire_bytes()
        if connection.connect_s:
            self.connect_s += connection.connect_s
            self.tls_s += connection.tls_s
            self.dial_held_s += connection.dial_held_s
            connection.connect_s = connection.tls_s = connection.dial_held_s = 0.0

    def finish(self, now: float) -> None:
        self.duration_s = Seconds(now - self.started_at)

    def timing(self, connection: Connection) -> Timing | None:
        """None if no byte of the answer has arrived."""
        first_byte_s = connection.first_byte_s
        if first_byte_s < 0:
            return None
        ended_at = self.requested_at + self.duration_s
        # A new connection is dialed within the duration, and so are the pauses of a paced answer.
        before_s = self.connect_s + self.tls_s + self.dial_held_s
        transfer_s = self.duration_s - before_s - first_byte_s - connection.held_s
        return Timing(
            self.asked_at,
            Instant(ended_at),
            self.connect_s,
            self.tls_s,
            first_byte_s,
            max(0.0, transfer_s),
            connection.held_s + self.dial_held_s,
            not self.connect_s,
        )


def response_of(
    attempt: Attempt,
    reader: ResponseReader,
    connection: Connection,
    payload: bytes,
    decoded: Decoded | None,
) -> Response:
    """The response of a finished reader. `decoded` is None for a payload without a content coding."""
    kind, detail, body = reader.kind, reader.detail, payload
    if note := connection.note:
        detail = f"{detail}; {note}" if detail else note
    status = 0
    headers: tuple[tuple[str, str], ...] = ()
    if (reply := reader.reply) is not None:
        status, headers = reply.status, reply.headers
    if decoded is not None:
        body = decoded.body
        if decoded.bomb and kind is Kind.FETCHED:
            kind = Kind.BOMB
        if decoded.detail:
            detail = f"{detail}; {decoded.detail}" if detail else decoded.detail
    return Response(
        kind=kind,
        url=attempt.request.url,
        requested_at=attempt.requested_at,
        duration_s=attempt.duration_s,
        status=status,
        headers=headers,
        request_head=without_login(attempt.head),
        head=reader.head,
        payload=payload,
        body=body,
        truncated=reader.truncated,
        wire_bytes=attempt.wire_bytes,
        waited_s=Seconds(connection.waited_s),
        held_s=Seconds(connection.held_s),
        peer=connection.peer,
        keep_alive=connection.reusable,
        detail=detail,
        timing=attempt.timing(connection),
    )


def failure(attempt: Attempt, kind: Kind, detail: str, peer: str = "") -> Response:
    """The response of a fetch that received nothing."""
    attempt.finish(asyncio.get_running_loop().time())
    return Response(
        kind=kind,
        url=attempt.request.url,
        requested_at=attempt.requested_at,
        duration_s=attempt.duration_s,
        request_head=without_login(attempt.head),
        peer=peer,
        detail=detail,
    )


Ended = Callable[["QuickExchange", bool], None]
"""Called once, with whether the request was sent."""


class QuickExchange:
    """One request and its response over an open connection, driven by callbacks.

    Nearly all requests find their connection open. For these a task would cost more than the exchange.
    """

    def __init__(
        self, attempt: Attempt, connection: Connection, reader: ResponseReader, ended: Ended
    ) -> None:
        self.attempt = attempt
        self.connection = connection
        self.reader = reader
        self._ended = ended

    def start(self) -> None:
        turn = self.connection.begin()
        if turn is None:
            self._send()
        else:
            turn.add_done_callback(self._on_turn)

    def _on_turn(self, _: asyncio.Future[None]) -> None:
        self._send()

    def _send(self) -> None:
        attempt = self.attempt
        if not self.connection.send(attempt.head, self.reader, attempt.started_at, self._finished):
            self._ended(self, False)

    def _finished(self) -> None:
        self._ended(self, True)
