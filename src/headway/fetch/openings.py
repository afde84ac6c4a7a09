"""The connections of a fetcher, from the first dial to the last close."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

from headway.fetch.connection import Connection
from headway.fetch.dial import DialError
from headway.model.outcome import Kind

Dial = Callable[[], Coroutine[None, None, Connection]]


class Openings:
    def __init__(self, why_closed: str) -> None:
        self.connections: set[Connection] = set()
        self.is_closing = False
        self._why_closed = why_closed
        self._dialing: set[asyncio.Task[Connection]] = set()

    async def open(self, dial: Dial, take_idle: Callable[[], list[Connection]]) -> Connection:
        """Where the process may have no more files, idle ones are closed first. Raises DialError."""
        try:
            connection = await self._dial(dial)
        except DialError as error:
            idle = take_idle() if error.out_of_files else []
            if not idle:
                raise
            for each in idle:
                each.abort()
            await asyncio.gather(*(each.closed for each in idle))
            connection = await self._dial(dial)
        self.connections.add(connection)
        connection.closed.add_done_callback(lambda _: self.connections.discard(connection))
        return connection

    def cancel_all(self) -> None:
        """What is under way ends as CANCELLED, and nothing is opened any more."""
        self.is_closing = True
        for dialing in self._dialing:
            dialing.cancel()
        for connection in list(self.connections):
            connection.cancel(self._why_closed)

    async def until_closed(self) -> None:
        await asyncio.gather(*(connection.closed for connection in list(self.connections)))

    async def _dial(self, dial: Dial) -> Connection:
        dialing = asyncio.get_running_loop().create_task(dial())
        self._dialing.add(dialing)
        try:
            return await dialing
        except asyncio.CancelledError:
            if self.is_closing:
                raise DialError(Kind.CANCELLED, self._why_closed) from None
            raise
        finally:
            self._dialing.discard(dialing)
