"""A server that sends exactly the bytes it is given: for answers that no HTTP library would write."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType

from headway.model.page import Site
from headway.ports import Request

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def page(body: bytes, *headers: str, status: str = "200 OK") -> bytes:
    """A proper answer."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + body


async def silence(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Never answer."""
    await reader.read()


def then_close(data: bytes) -> Answer:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        writer.close()

    return answer


def then_silence(data: bytes) -> Answer:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await reader.read()

    return answer


class RawServer:
    """Serves bytes, or runs an `Answer`, by path; notes every request head and counts connections.

    async with RawServer({"/": page(b"hello")}) as server:
        response = await fetcher.fetch(server.request("/"))
    """

    def __init__(
        self,
        answers: Mapping[str, bytes | Answer],
        *,
        tls: ssl.SSLContext | None = None,
        host: str = "127.0.0.1",
        port: int | None = None,
    ) -> None:
        self._answers = answers
        self._wanted_port = port or 0
        self._tls = tls
        self._host = host
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.requests: list[bytes] = []
        self.connections = 0
        self.port = 0

    @property
    def site(self) -> Site:
        return self.site_named(self._host)

    def site_named(self, host: str) -> Site:
        """The same server under another name."""
        return Site(f"{'https' if self._tls else 'http'}://{host}:{self.port}")

    def request(self, path: str = "/", **more: object) -> Request:
        return Request(self.site + path, self.site, **more)  # type: ignore[arg-type]

    async def __aenter__(self) -> RawServer:
        self._server = await asyncio.start_server(self._accept, self._host, self._wanted_port, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.ensure_future(self._converse(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                while not writer.is_closing():
                    head = await reader.readuntil(b"\r\n\r\n")
                    self.requests.append(head)
                    answer = self._answers[head.split(b" ", 2)[1].decode("latin-1")]
                    if isinstance(answer, bytes):
                        writer.write(answer)
                        await writer.drain()
                    else:
                        await answer(reader, writer)
        finally:
            writer.close()
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()
