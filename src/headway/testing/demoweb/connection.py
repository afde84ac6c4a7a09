"""One connection to a site of the demo web: requests one after another, answers at the site's pace."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from typing import cast

from headway.testing.demoweb.accesslog import AccessLog, Connection, Exchange
from headway.testing.demoweb.answering import Answerer, Reply, parse_request
from headway.testing.demoweb.page import Answer

_LARGEST_HEAD_BYTES = 64 * 1024
_PIECE_S = 0.02
"""A paced site sends pieces of this length in time."""
_CATCH_UP_S = 0.05
"""How far a paced site may lag behind and still make up for it; beyond, the time is lost."""
_WRITE_BYTES = 64 * 1024
"""Written at a time, so that the last write is close to the end of an answer to a slow reader."""
_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_BAD_REQUEST = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class Pace:
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


class SiteDesk:
    """What the connections of a site have in common."""

    def __init__(self, answerer: Answerer, log: AccessLog) -> None:
        self.site = answerer.site
        self.answerer = answerer
        self.log = log
        self.pace = Pace(self.site.rate_bytes_per_s) if self.site.rate_bytes_per_s else None
        self.open: set[ServerConnection] = set()
        self.is_closed = False


class ServerConnection(asyncio.Protocol):
    _count = 0
    _transport: asyncio.Transport

    def __init__(self, desk: SiteDesk) -> None:
        self._desk = desk
        self._received = bytearray()
        self._exchange: Exchange | None = None
        self._reply: Reply | None = None
        self._unsent = memoryview(b"")
        self._is_blocked = False
        self._last_write_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        ServerConnection._count += 1
        self._life = Connection(desk.site.name, ServerConnection._count, time.monotonic())

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass
        # Blocked until the kernel has taken all: the next piece, or request, comes after that.
        self._transport.set_write_buffer_limits(high=0)
        self._desk.open.add(self)
        self._desk.log.record(self._life)
        if self._desk.is_closed:  # accepted just before the end
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self._end_exchange(time.monotonic(), complete=False)
        self._life.closed_at = time.monotonic()
        self._desk.log.record(self._life)
        self._desk.open.discard(self)

    def abort(self) -> None:
        self._transport.abort()

    def eof_received(self) -> bool:
        return self._exchange is not None  # a client that only shut its side still gets its answer

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
            self._desk.site.name,
            self._life.number,
            time.monotonic(),
            request.method,
            request.path,
            request.headers.get("user-agent", ""),
        )
        reply = self._desk.answerer.reply_to(request)
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
        """Send what the pace allows; called again by the timer, or when the kernel has room."""
        while not self._is_blocked:
            if not self._unsent:
                self._end_reply()
                return
            pace, now = self._desk.pace, time.monotonic()
            if pace is None:
                piece, self._unsent = self._unsent[:_WRITE_BYTES], self._unsent[_WRITE_BYTES:]
            else:
                wait_s = pace.wait_s(now)
                if wait_s > 0:
                    self._timer = self._loop.call_later(wait_s, self._send_on)
                    return
                piece, self._unsent = self._unsent[: pace.piece_bytes], self._unsent[pace.piece_bytes :]
                pace.spend(now, len(piece))
            if self._exchange is not None:
                self._exchange.sent_bytes += len(piece)
            # Taken before, not after: once the kernel has the bytes the crawler may be quicker than we are.
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
            self._timer = self._loop.call_later(self._desk.site.stall_s, self._reset)
            return
        self._end_exchange(self._last_write_at, complete=reply.answer is Answer.AS_DESIGNED)
        if reply.close:
            self._transport.close()

    def _end_exchange(self, at: float, *, complete: bool) -> None:
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.answered_at = at
            exchange.complete = complete
            self._desk.log.record(exchange)

    def _refuse(self, answer: bytes) -> None:
        self._transport.write(answer)
        self._transport.close()

    def _reset(self) -> None:
        """A real RST: a plain close would look like an orderly end."""
        self._timer = None
        self._end_exchange(time.monotonic(), complete=False)
        raw = self._transport.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
