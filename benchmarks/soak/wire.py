"""Random octets over a real socket: a server that sends given bytes, and a fetcher that reads it."""

from __future__ import annotations

import asyncio

from headway.http.client import HttpFetcher
from headway.http.models import ClientOptions, Limits, Timeouts
from headway.model.page import Kind, Site
from headway.ports import Request, Response
from headway.runtime.driver import WallClock

GOOD = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Type: text/plain\r\n\r\ngood"
_MOST_BODY_BYTES = 4096
_ENDS = frozenset({Kind.FETCHED, Kind.RESET, Kind.PROTOCOL, Kind.TOO_LARGE, Kind.BOMB})


class Wire:
    """Server and fetcher on a loop of their own. Close it."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.pieces: list[bytes] = []
        self.loop.run_until_complete(self._open())

    async def _open(self) -> None:
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.site = Site(f"http://127.0.0.1:{self.server.sockets[0].getsockname()[1]}")
        self.fetcher = HttpFetcher(
            WallClock(),
            ClientOptions(
                user_agent="headway/test",
                timeouts=Timeouts(connect_s=5, first_byte_s=5, idle_s=5, total_s=10),
                limits=Limits(max_body_bytes=_MOST_BODY_BYTES, max_head_bytes=2048),
                allow_private=True,
            ),
        )

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                if b"GET /good" in head:
                    writer.write(GOOD)
                else:
                    for piece in self.pieces:
                        writer.write(piece)
                        await asyncio.sleep(0)
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def fetch(self, path: str) -> Response:
        return self.loop.run_until_complete(self.fetcher.fetch(Request(self.site + path, self.site)))

    def check(self, pieces: list[bytes]) -> None:
        """Every fetch ends with a `Response`, and the next one is not the worse for it."""
        self.pieces = pieces
        response = self.fetch("/odd")
        assert response.kind in _ENDS, response.kind
        assert len(response.payload) <= _MOST_BODY_BYTES
        after = self.fetch("/good")
        if after.kind in {Kind.RESET, Kind.PROTOCOL}:
            # What the server does behind its odd answer (close, send more) may cross the request on its way.
            after = self.fetch("/good")
        assert (after.kind, after.body) == (Kind.FETCHED, b"good"), after.detail

    def close(self) -> None:
        async def end() -> None:
            await self.fetcher.aclose()
            self.server.close()
            await self.server.wait_closed()
            while len(asyncio.all_tasks()) > 1:
                await asyncio.sleep(0.001)

        self.loop.run_until_complete(end())
        self.loop.close()
