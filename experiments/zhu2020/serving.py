"""Sites to download from, on loopback, in a process of their own: each differs in how it cuts its data into
pages, in whether it keeps a connection, and in how long it thinks before an answer. That is what gives each
a xi of its own."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from pathlib import Path

import msgspec


class Character(msgspec.Struct, frozen=True):
    name: str
    page_bytes: int
    keeps_connection: bool = True
    latency_s: float = 0.0


SITES = (
    Character("one file", 1 << 30),
    Character("16 KB pages", 16_000),
    Character("4 KB pages", 4_000),
    Character("1 KB pages", 1_000),
    Character("4 KB pages, a connection each", 4_000, keeps_connection=False),
    Character("16 KB pages, 20 ms before each", 16_000, latency_s=0.02),
    # It cannot give more than 200 KB/s however much bandwidth it is offered: where eq 17 comes to its end.
    Character("4 KB pages, 20 ms before each", 4_000, latency_s=0.02),
)


@contextmanager
def served(sites: Sequence[Character]) -> Iterator[dict[str, int]]:
    """Each site's port by its name. The child ends with the block, or with us: its stdin closes then."""
    command = [sys.executable, "-m", "experiments.zhu2020.serving"]
    root = Path(__file__).resolve().parents[2]
    with subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            child.stdin.write(msgspec.json.encode(sites) + b"\n")
            child.stdin.flush()
            yield msgspec.json.decode(child.stdout.readline(), type=dict[str, int])
        finally:
            child.stdin.close()


async def _serve(sites: Sequence[Character]) -> None:
    async with AsyncExitStack() as stack:
        ports = {}
        for site in sites:
            server = await asyncio.start_server(_Answers(site), "127.0.0.1", 0)
            await stack.enter_async_context(server)
            ports[site.name] = server.sockets[0].getsockname()[1]
        print(msgspec.json.encode(ports).decode(), flush=True)
        await asyncio.to_thread(sys.stdin.buffer.read)
        # A client that left without closing would otherwise be waited for.
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()


class _Answers:
    """`/BYTES/ANYTHING` is a page of so many bytes."""

    def __init__(self, site: Character) -> None:
        self._site = site

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            while True:
                request = await reader.readuntil(b"\r\n\r\n")
                size = int(request.split(b"/", 2)[1])
                if self._site.latency_s:
                    await asyncio.sleep(self._site.latency_s)
                connection = "keep-alive" if self._site.keeps_connection else "close"
                head = (
                    f"HTTP/1.1 200 OK\r\nServer: zhu2020\r\nContent-Type: text/plain\r\n"
                    f"Content-Length: {size}\r\nConnection: {connection}\r\n\r\n"
                )
                writer.write(head.encode() + b"x" * size)
                await writer.drain()
                if not self._site.keeps_connection:
                    break
        writer.close()


if __name__ == "__main__":
    asyncio.run(_serve(msgspec.json.decode(sys.stdin.buffer.readline(), type=tuple[Character, ...])))
