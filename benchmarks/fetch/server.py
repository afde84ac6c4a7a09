"""A server that costs little: every answer is one write of bytes made beforehand.

`/N` is answered with N bytes. Run it on another core than the fetcher.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import ssl
import sys


@functools.lru_cache(maxsize=256)
def answer(target: bytes) -> bytes:
    size = int(target.strip(b"/").partition(b"?")[0] or b"12000")
    head = f"HTTP/1.1 200 OK\r\nServer: bench\r\nContent-Type: text/html\r\nContent-Length: {size}\r\n\r\n"
    return head.encode() + (b"<p>headway</p>\n" * (size // 15 + 1))[:size]


class Server(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.pending = b""

    def data_received(self, data: bytes) -> None:
        self.pending += data
        while b"\r\n\r\n" in self.pending:
            head, _, self.pending = self.pending.partition(b"\r\n\r\n")
            self.transport.write(answer(head.split(b" ", 2)[1]))  # type: ignore[attr-defined]
            if b"Connection: close" in head:
                self.transport.close()


async def serve(hosts: list[str], port: int, certificate: str | None) -> None:
    loop = asyncio.get_running_loop()
    servers = [await loop.create_server(Server, host, port, backlog=1024) for host in hosts]
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        servers += [
            await loop.create_server(Server, host, port + 1, backlog=1024, ssl=context) for host in hosts
        ]
    print("ready", flush=True)
    await asyncio.gather(*(server.serve_forever() for server in servers))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=8800)
    parser.add_argument("--certificate", help="PEM file; the next port then answers over TLS")
    parser.add_argument("hosts", nargs="+")
    args = parser.parse_args()
    try:
        import uvloop

        runner = uvloop.run
    except ImportError:
        runner = asyncio.run
    try:
        runner(serve(args.hosts, args.port, args.certificate))
    except KeyboardInterrupt:
        sys.exit(0)


if __name__ == "__main__":
    main()
