"""One connection to one server, and the one exchange that may be under way on it.

The transport calls `get_buffer` and `buffer_updated`; bytes go through TLS where there is any, and into the
reader of the current answer. One timer, set anew only when it fires, watches all time-outs.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from headway.fetch.meter import Meter
from headway.fetch.reader import ResponseReader
from headway.fetch.roundtrip import round_trip_s
from headway.fetch.settings import Timeouts
from headway.fetch.tls import TlsLayer, explain
from headway.model.outcome import Kind

if TYPE_CHECKING:
    from headway.fetch.target import Origin


class Connection(asyncio.BufferedProtocol):
    """Made by `Dialer`; `begin` and `send` one request after another until `reusable` is false."""

    def __init__(
        self, origin: Origin, peer: str, meter: Meter, timeouts: Timeouts, scratch: memoryview
    ) -> None:
        self.origin = origin
        self.peer = peer
        self.closed = asyncio.get_running_loop().create_future()
        """Done when the transport has let go of the socket."""
        self._loop = asyncio.get_running_loop()
        self._timeouts = timeouts
        self._scratch = scratch
        self._transport: asyncio.Transport | None = None
        self._tls: TlsLayer | None = None
        self._meter = meter
        self._wire_bytes = 0
        self._reader: ResponseReader | None = None
        self._waiter: asyncio.Future[None] | None = None
        """Whoever waits for the keys."""
        self._on_end: Callable[[], None] | None = None
        """Whoever wants to know when the reader has finished."""
        self._turn: asyncio.Future[None] | None = None
        """Done when the request may be sent; the beginning of its answer must be granted before."""
        self._asked_at = 0.0
        self._lost = False
        self._cancelled_because = ""
        self._timer: asyncio.TimerHandle | None = None
        self._started_at = 0.0
        self._last_arrival_at = self._loop.time()
        self._answered = False
        self._held_since: float | None = None
        """Since when reading has been stopped for want of a grant; that time is not the server's."""
        self.waited_s = 0.0
        """How long the last request waited for its first grant."""
        self.held_s = 0.0
        """How long its answer was held back after that."""

    def round_trip_s(self, *, is_new: bool = False) -> float | None:
        """As the kernel measures it now, while a request is under way, or as it did when we connected."""
        if self._lost or (self._reader is None and not is_new) or self._transport is None:
            return None
        return round_trip_s(self._transport.get_extra_info("socket"))

    def idle_s(self) -> float:
        """How long nothing has come over it."""
        return self._loop.time() - self._last_arrival_at

    def silent_s(self) -> float:
        """How long the server has kept us waiting; 0 while nothing is asked, or it is we who wait."""
        if self._reader is None or self._held_since is not None:
            return 0.0
        return self.idle_s()

    @property
    def reusable(self) -> bool:
        return not self._lost and self._reader is None

    @property
    def tls_session(self) -> ssl.SSLObject | None:
        return None if self._tls is None else self._tls.session

    @property
    def misfit(self) -> bool:
        """Whether the next request had better go over a new connection."""
        return self._meter.misfit

    def wire_bytes(self) -> int:
        """What has crossed towards us since this was last asked."""
        wire_bytes, self._wire_bytes = self._wire_bytes, 0
        return wire_bytes

    # --- what the fetcher asks for

    def begin_tls(self, context: ssl.SSLContext) -> asyncio.Future[None]:
        """Done when there are keys; fails with ssl.SSLError, or ConnectionError when the server goes away."""
        self._tls = TlsLayer(context, self.origin.server_name)
        self._meter.secure = True
        self._waiter = waiter = self._loop.create_future()
        self._go_on_shaking()
        return waiter

    def end_handshake(self) -> None:
        self._settle()

    def begin(self) -> asyncio.Future[None] | None:
        """Ask for the beginning of an answer. Done when the request may be sent; None when it may at once."""
        self._asked_at = now = self._loop.time()
        self.waited_s = 0.0
        self._turn = None
        first_bytes = self._meter.begin(now)
        if first_bytes and not self._meter.ask(now, first_bytes, self._set_off):
            self._turn = self._loop.create_future()
        return self._turn

    def send(
        self, head: bytes, reader: ResponseReader, started_at: float, on_end: Callable[[], None]
    ) -> bool:
        """After `begin`: `on_end` is called when the reader has finished, unless this is aborted before.
        False when the request could not be sent; then the reader has finished, and nobody is told."""
        now = self._asked_at
        if self._turn is not None:
            now = self._loop.time()
            self.waited_s = now - self._asked_at
        self._reader = reader
        self._last_arrival_at = now
        self._started_at = started_at + self.waited_s
        self._answered = False
        self.held_s = 0.0
        if not self._meter.may_ask(now):
            reader.fail(Kind.CANCELLED, "the time to ask for it was over")
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
        """Let go at once; what was under way has ended by then or is given up."""
        if not self._lost:
            self._settle()
        if self._transport is not None:
            self._transport.abort()
        self._lost = True
        self._reader = self._on_end = None

    def cancel(self, why: str) -> None:
        self._cancelled_because = why
        if self._reader is not None:
            self._reader.fail(Kind.CANCELLED, why)
            self._finish()
        self.abort()

    # --- what the transport tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._scratch[: self._meter.room(len(self._scratch))] if self._meter.bounded else self._scratch

    def buffer_updated(self, nbytes: int) -> None:
        self._last_arrival_at = self._loop.time()
        self._answered = True
        self._meter.took(nbytes)
        data = self._scratch[:nbytes]
        if self._tls is not None:
            self._take_ciphertext(data)
        elif self._reader is not None:
            if self._reader.feed(data):
                self._finish()
            elif self._meter.bounded:
                self._ask_for_more()
        else:
            self.abort()  # nobody asked: whatever comes next would be taken for an answer

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
        elif self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(ConnectionResetError("the server closed during the TLS handshake"))
        if not self.closed.done():
            self.closed.set_result(None)

    # --- inside

    def _take_ciphertext(self, data: memoryview) -> None:
        tls = self._tls
        assert tls is not None
        tls.receive(data)
        if self._reader is None:
            if self._waiter is not None and not self._waiter.done():
                self._go_on_shaking()
            else:
                self._take_unasked(tls)
            return
        try:
            for piece in tls.plaintext():
                if self._reader.feed(piece):
                    self._finish()
                    return
        except ssl.SSLError as error:
            self._reader.fail(Kind.TLS, explain(error))
            self._finish()
            return
        if tls.closed:
            self._reader.feed_eof()
            self._finish()
        elif self._meter.bounded:
            self._ask_for_more()

    def _take_unasked(self, tls: TlsLayer) -> None:
        """Session tickets come between answers and are fine; content is not."""
        try:
            if any(tls.plaintext()) or tls.closed:
                self.abort()
        except ssl.SSLError:
            self.abort()

    def _go_on_shaking(self) -> None:
        tls, waiter = self._tls, self._waiter
        assert tls is not None
        assert waiter is not None
        try:
            done = tls.shake_hands()
        except (ssl.SSLError, ssl.CertificateError) as error:
            self._send_pending(tls)  # the alert that tells the server why
            waiter.set_exception(error)
            return
        self._send_pending(tls)
        if done:
            waiter.set_result(None)

    def _send_pending(self, tls: TlsLayer) -> None:
        pending = tls.to_send()
        if pending and self._transport is not None:
            self._transport.write(pending)

    def _finish(self) -> None:
        reader, self._reader = self._reader, None
        self._settle()
        on_end, self._on_end = self._on_end, None
        if reader is not None and not reader.keep_alive:
            self.abort()
        if on_end is not None:
            on_end()

    def _settle(self) -> None:
        self._held_since = None
        self._set_off()  # a connection that is lost while its request waits has nothing to wait for
        self._wire_bytes += self._meter.settle(self._loop.time())

    def _set_off(self) -> None:
        if self._turn is not None and not self._turn.done():
            self._turn.set_result(None)

    def _ask_for_more(self) -> None:
        """Stop reading until more may arrive: the kernel's buffer fills, and the server has to wait."""
        assert self._reader is not None
        now = self._last_arrival_at
        lacking = self._meter.lacks(now, self._reader.remaining_bytes)
        if lacking and not self._meter.ask(now, lacking, self._read_on) and self._transport is not None:
            self._held_since = now
            self._transport.pause_reading()

    def _read_on(self) -> None:
        if self._held_since is None or self._transport is None or self._lost:
            return
        now = self._loop.time()
        self._started_at += now - self._held_since
        self.held_s += now - self._held_since
        self._last_arrival_at = now
        self._held_since = None
        self._transport.resume_reading()

    def _watch(self) -> None:
        """Look whether a time-out has passed, and come back when the next one may.

        No time-out is shorter than the longest sleep of this timer, so none is met late, and a request
        that takes its usual milliseconds neither sets nor cancels a timer.
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
        if self._held_since is not None:
            return self._loop.time() + timeouts.shortest_s(), Kind.TIMEOUT_IDLE, ""
        if self._reader is None:
            return self._last_arrival_at + timeouts.keep_idle_s, Kind.TIMEOUT_IDLE, ""
        if self._answered:
            limit_s, kind, what = timeouts.idle_s, Kind.TIMEOUT_IDLE, "no more data"
        else:
            limit_s, kind, what = timeouts.first_byte_s, Kind.TIMEOUT_FIRST_BYTE, "no answer"
        soon = (self._last_arrival_at + limit_s, kind, f"{what} for {limit_s:g} s")
        whole = (
            self._started_at + timeouts.total_s,
            Kind.TIMEOUT_TOTAL,
            f"not done after {timeouts.total_s:g} s",
        )
        return min(soon, whole)
