"""A request over a connection that is open already, as nearly all are: from asking to the end of the answer
without a task of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from headway.fetch.attempt import Attempt
from headway.fetch.connection import Connection
from headway.fetch.reader import ResponseReader

Ended = Callable[["QuickExchange", bool], None]
"""Told once, with whether the request was sent at all."""


class QuickExchange:
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
            turn.add_done_callback(self._in_turn)

    def _in_turn(self, _: asyncio.Future[None]) -> None:
        self._send()

    def _send(self) -> None:
        attempt = self.attempt
        if not self.connection.send(attempt.head, self.reader, attempt.started_at, self._finished):
            self._ended(self, False)

    def _finished(self) -> None:
        self._ended(self, True)
