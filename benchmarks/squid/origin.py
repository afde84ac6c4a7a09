"""The site behind the proxy: quick pages that may be cached, and slow ones that may not."""

from __future__ import annotations

import asyncio
import sys

_BODY = b"x" * 12_000


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while request := await reader.readuntil(b"\r\n\r\n"):
            parts = request.split(b" ")[1].split(b"/")
            is_slow = parts[1] == b"slow"
            if is_slow:
                await asyncio.sleep(int(parts[2]) / 1000)
            keep = "no-store" if is_slow else "max-age=86400"
            head = (
                f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nCache-Control: {keep}\r\n"
                f"Content-Length: {len(_BODY)}\r\n\r\n"
            )
            writer.write(head.encode() + _BODY)
    except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
        pass
    finally:
        writer.close()


async def _serve() -> None:
    server = await asyncio.start_server(_answer, "127.0.0.1", 0)
    async with server:
        print(f"http://a.test:{server.sockets[0].getsockname()[1]}", flush=True)
        await asyncio.to_thread(sys.stdin.read)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()


if __name__ == "__main__":
    asyncio.run(_serve())
