"""The lab's web servers, all in one process, and each on an address of its own. They echo datagrams, too, and
take what is sent with POST.

The path says what comes back: `/SIZE/anything` gives so many bytes, `/web/SIZE/N` a page of about that size
with links to three more, `/site/PAGES/SIZE/N` page N of a site that ends, of exactly that size, `/stall/SIZE`
half of the bytes and then silence, `/trickle/SIZE` a byte a second, `/late/SECONDS/SIZE` nothing for a while.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
import sys
import time
from pathlib import Path
from typing import cast

import msgspec
import trustme
from experiments.lab.network import Place

CHUNK = b"All work and no play makes a dull page. " * 1639
BYTES_ACKED_AT, SEGMENTS_OUT_AT = 120, 136
HEADER_BYTES = 66
ETHERNET_SEGMENT_BYTES = 1448


class Answering:
    def __init__(self) -> None:
        self._arrived: dict[socket.socket, int] = {}
        self._gone_bytes = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = writer.get_extra_info("socket")
        self._arrived[connection] = 0
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                target = head.split(b" ", 2)[1].decode("latin-1")
                if head.startswith(b"POST "):
                    await take_upload(reader, head)
                    target = "/0"
                await answer(writer, target)
                if b"connection: close" in head.lower():
                    break
            # What is still on its way would be missing from the count.
            if writer.can_write_eof():
                writer.write_eof()
            await reader.read()
        self._gone_bytes += self._arrived_on(connection)
        del self._arrived[connection]
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    def arrived_bytes(self) -> int:
        """What has reached the other side of all connections, headers of the packets included."""
        return self._gone_bytes + sum(self._arrived_on(connection) for connection in self._arrived)

    def _arrived_on(self, connection: socket.socket) -> int:
        # One that was reset has forgotten its counts.
        self._arrived[connection] = max(self._arrived[connection], arrived_bytes(connection))
        return self._arrived[connection]


async def take_upload(reader: asyncio.StreamReader, head: bytes) -> None:
    (length,) = (
        int(line.split(b":")[1]) for line in head.splitlines() if line.lower().startswith(b"content-length:")
    )
    while length > 0:
        part = await reader.read(min(65536, length))
        if not part:
            raise ConnectionResetError
        length -= len(part)


def web_page(size: int, number: int) -> bytes:
    """Half to one and a half times the size, the same each time."""
    links = b"".join(b'<a href="/web/%d/%d">more</a> ' % (size, 3 * number + each) for each in (1, 2, 3))
    length = size // 2 + (number * 7919) % max(1, size)
    text = CHUNK * (length // len(CHUNK) + 1)
    return b"<html><title>%d</title><p>%s<p>%s</html>" % (number, links, text[:length])


def site_page(pages: int, size: int, number: int) -> bytes:
    """Page N of a site of so many pages, each linked from one other."""
    links = b"".join(
        b'<a href="/site/%d/%d/%d">more</a> ' % (pages, size, more)
        for more in range(4 * number + 1, min(4 * number + 5, pages))
    )
    page = b"<html><title>%d</title><p>%s<p>" % (number, links)
    return page + (CHUNK * (size // len(CHUNK) + 1))[: max(0, size - len(page))]


class Echo(asyncio.DatagramProtocol):
    """A call: what is said comes back."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self._transport.sendto(data, addr)


async def answer(writer: asyncio.StreamWriter, target: str) -> None:
    parts = target.strip("/").split("/")
    if parts[0] == "late":
        await asyncio.sleep(float(parts[1]))
        parts = parts[2:]
    if parts[0] in {"web", "site"}:
        make = web_page if parts[0] == "web" else site_page
        page = make(*map(int, parts[1:]))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n" % len(page))
        writer.write(page)
        await writer.drain()
        return
    manner = parts.pop(0) if parts[0] in {"stall", "trickle"} else ""
    if not parts or not parts[0].isdigit():
        body = b"User-agent: *\nDisallow:\n" if target == "/robots.txt" else b""
        status = b"200 OK" if body else b"404 Not Found"
        writer.write(b"HTTP/1.1 %s\r\nContent-Type: text/plain\r\n" % status)
        writer.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        await writer.drain()
        return
    size = int(parts[0])
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n" % size)
    sent = 0
    while sent < size:
        if manner == "stall" and sent >= size // 2:
            await asyncio.sleep(3600)
        if manner == "trickle":
            await asyncio.sleep(1.0)
        most = {"stall": size // 2 or 1, "trickle": 1}.get(manner, len(CHUNK))
        part = CHUNK[: min(most, size - sent)]
        writer.write(part)
        sent += len(part)
        await writer.drain()


def arrived_bytes(connection: socket.socket) -> int:
    try:
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 192)
    except OSError:
        return 0
    (acked,) = struct.unpack_from("Q", info, BYTES_ACKED_AT)
    (segments,) = struct.unpack_from("I", info, SEGMENTS_OUT_AT)
    return int(acked + HEADER_BYTES * segments)


def certificate_for(addresses: list[str]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert(*addresses, key_type=trustme.KeyType.ECDSA).configure_cert(context)
    return context


async def main() -> None:
    print("up", flush=True)
    loop = asyncio.get_running_loop()
    places = msgspec.json.decode(await loop.run_in_executor(None, sys.stdin.readline), type=list[Place])
    answering = Answering()
    servers = []
    for place in places:
        listening = socket.create_server((place.address, place.port), backlog=256)
        # Head and body are two writes; without this the second waits until the first is acknowledged.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if place.rate_bytes_per_s is not None:
            # Loopback has segments of 64 KB, of which the first ten go out unpaced.
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, ETHERNET_SEGMENT_BYTES)
            pacing = struct.pack("Q", round(place.rate_bytes_per_s))
            listening.setsockopt(socket.SOL_SOCKET, getattr(socket, "SO_MAX_PACING_RATE", 47), pacing)
        if place.port:
            here = (place.address, place.port)
            await loop.create_datagram_endpoint(Echo, local_addr=here)
        servers.append(await asyncio.start_server(answering.serve, sock=listening))
    secure = [place for place in places if place.secure_port is not None]
    context = certificate_for([place.address for place in secure]) if secure else None
    for place in secure:
        await asyncio.start_server(
            answering.serve, place.address, place.secure_port, backlog=256, ssl=context
        )
    ports = [server.sockets[0].getsockname()[1] for server in servers]
    print(msgspec.json.encode(ports).decode(), flush=True)
    record_to = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    ended = loop.run_in_executor(None, sys.stdin.read)
    if record_to is not None:
        with record_to.open("w", buffering=1) as record:
            while not ended.done():
                record.write(f"{time.monotonic():.6f} {answering.arrived_bytes()} 0\n")
                await asyncio.sleep(0.01)
    await ended


if __name__ == "__main__":
    asyncio.run(main())
