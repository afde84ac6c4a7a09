"""One fetch on its way, and the `Response` that it comes to."""

from __future__ import annotations

import asyncio

from headway.fetch.connection import Connection
from headway.fetch.decode import Decoded
from headway.fetch.proxy import without_login
from headway.fetch.reader import ResponseReader
from headway.model.outcome import Kind
from headway.ports import Request, Response
from headway.units import Instant, Seconds


class Attempt:
    """One fetch on its way."""

    __slots__ = ("duration_s", "head", "request", "requested_at", "started_at", "wire_bytes")

    def __init__(self, request: Request, requested_at: Instant, started_at: float) -> None:
        self.request = request
        self.requested_at = requested_at
        self.started_at = started_at
        self.head = b""
        self.wire_bytes = 0
        self.duration_s = Seconds(0.0)

    def count(self, connection: Connection) -> None:
        """What crossed for it. Time spent before the request was sent, for our own sake, is no part of it."""
        if seconds := connection.waited_s:
            self.requested_at = Instant(self.requested_at + seconds)
            self.started_at += seconds
        self.wire_bytes += connection.wire_bytes()

    def done(self, now: float) -> None:
        self.duration_s = Seconds(now - self.started_at)


def response_of(
    attempt: Attempt,
    reader: ResponseReader,
    connection: Connection,
    payload: bytes,
    decoded: Decoded | None,
) -> Response:
    kind, detail, body = reader.kind, reader.detail, payload
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
    )


def failure(attempt: Attempt, kind: Kind, detail: str, peer: str = "") -> Response:
    attempt.done(asyncio.get_running_loop().time())
    return Response(
        kind=kind,
        url=attempt.request.url,
        requested_at=attempt.requested_at,
        duration_s=attempt.duration_s,
        request_head=without_login(attempt.head),
        peer=peer,
        detail=detail,
    )
