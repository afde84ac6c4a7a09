"""The server's end of a connection, with every bad manner that a server can have."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Iterable

_LINGER_NOT = struct.pack("ii", 1, 0)
_HTML = "Content-Type: text/html; charset=utf-8"


class Line:
    """One connection, and the request that is being answered on it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, origin: str) -> None:
        self._reader = reader
        self._writer = writer
        self.origin = origin
        """Of the site, without a trailing slash."""
        self.path = ""
        self.request = b""
        """The head of the current request, as it came."""

    @property
    def is_closing(self) -> bool:
        return self._writer.is_closing()

    async def take_request(self) -> bool:
        """Wait for the next request; False when there is none to come."""
        try:
            self.request = await self._reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return False
        words = self.request.split(b" ", 2)
        self.path = words[1].decode("latin-1") if len(words) == 3 else ""
        return True

    async def take_something(self) -> None:
        """Whatever comes first, be it a request or not."""
        await self._reader.read(4096)

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def send_for_ever(self, pieces: Iterable[bytes]) -> None:
        """Until the client has had enough, which shows as a ConnectionError."""
        for piece in pieces:
            await self.send(piece)
            await asyncio.sleep(0)  # a quick reader must not keep the other sites waiting

    async def trickle(self, data: bytes, pause_s: float) -> None:
        """A byte at a time."""
        for octet in data:
            await self.send(bytes([octet]))
            await asyncio.sleep(pause_s)

    async def stall(self) -> None:
        """Say nothing until the client gives up."""
        while await self._reader.read(4096):
            pass

    def close(self) -> None:
        """An orderly end, after what was sent."""
        self._writer.close()

    def half_close(self) -> None:
        """Send no more, but go on listening."""
        self._writer.write_eof()

    def reset(self) -> None:
        """A RST, as from a machine that lost its memory."""
        sock = self._writer.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOT)
        self._writer.transport.abort()


def head(*lines: str, status: str = "200 OK", length: int | str | None = None) -> bytes:
    """An answer's head, with what every decent page says in it unless a line here says otherwise."""
    names = {line.partition(":")[0].lower() for line in lines}
    kept = [] if "content-type" in names else [_HTML]
    if length is not None:
        kept.append(f"Content-Length: {length}")
    return "\r\n".join([f"HTTP/1.1 {status}", *kept, *lines, "", ""]).encode("latin-1")


def whole(body: bytes, *lines: str, status: str = "200 OK") -> bytes:
    """A complete answer, after which the connection can go on."""
    return head(*lines, status=status, length=len(body)) + body


def html(title: str, *paragraphs: str) -> bytes:
    text = "".join(f"<p>{paragraph}</p>\n" for paragraph in paragraphs)
    return f"<!doctype html>\n<title>{title}</title>\n<h1>{title}</h1>\n{text}".encode()


def not_found() -> bytes:
    return whole(html("Not here"), status="404 Not Found")
