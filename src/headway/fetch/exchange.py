"""What is waited for on a connection.

The connection itself is compiled, and has no coroutines: mypyc's are not to be trusted with exceptions yet.
"""

from __future__ import annotations

import asyncio
import ssl

from headway.fetch.connection import Connection
from headway.fetch.reader import ResponseReader


async def start_tls(connection: Connection, context: ssl.SSLContext) -> None:
    """Agree on keys; raises ssl.SSLError, or ConnectionError when the server goes away."""
    await connection.begin_tls(context)
    connection.end_handshake()


async def exchange(connection: Connection, head: bytes, reader: ResponseReader, started_at: float) -> bool:
    """Send a request and feed the reader until it has finished. Never raises but for cancellation.

    False when the connection was lost before the request could be sent.
    """
    answered = asyncio.get_running_loop().create_future()
    try:
        turn = connection.begin()
        if turn is not None:
            await turn
        # Cancelled when the answer ends in the same turn, it is done already.
        if not connection.send(
            head, reader, started_at, lambda: None if answered.done() else answered.set_result(None)
        ):
            return False
        await answered
    except asyncio.CancelledError:
        connection.abort()
        raise
    return True
