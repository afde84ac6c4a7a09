"""A fetch in progress, the `Response` it ends with, and the exchange over an open connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from headway.http.connection import Connection
from headway.http.decode import Decoded
from headway.http.models import without_login
from headway.http.reader import ResponseReader
from headway.model.page import Kind, Timing
from headway.ports import Request, Response
from headway.units import Instant, Seconds


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
