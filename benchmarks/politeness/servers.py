"""Servers on many addresses of this machine, which note every request: one process for all."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict, deque
from collections.abc import Callable
from itertools import pairwise
from types import TracebackType
from typing import NamedTuple, Self

from benchmarks.politeness.collector import NETWORK


class Asked(NamedTuple):
    address: str
    host: str
    path: str
    came_at: float
    sent_at: float
    """Just before the answer was sent."""
    status: int


class Servers:
    """Runs in a thread. `links_of` gives the links of a page, by host and path; `most_a_second`: an address
    answers 429 to a client that asks more often."""

    def __init__(
        self,
        addresses: int,
        links_of: Callable[[str, str], list[str]],
        *,
        most_a_second: int | None = None,
    ) -> None:
        self._addresses = addresses
        self._links_of = links_of
        self._most = most_a_second
        self._recent: dict[str, deque[float]] = defaultdict(deque)
        self.asked: list[Asked] = []
        self.port = 0
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._loop: asyncio.AbstractEventLoop
        self._over: asyncio.Event

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()

    async def _run(self) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        servers = []
        for number in range(1, self._addresses + 1):
            server = await asyncio.start_server(self._serve, f"{NETWORK}.{number}", self.port, backlog=1024)
            self.port = server.sockets[0].getsockname()[1]
            servers.append(server)
        self._ready.set()
        await self._over.wait()
        for server in servers:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                came_at = self._loop.time()
                path = head.split(" ", 2)[1]
                host = head.partition("Host: ")[2].partition("\r\n")[0].partition(":")[0]
                address = writer.get_extra_info("sockname")[0]
                status, answer = self._answer(came_at, address, host, path)
                self.asked.append(Asked(address, host, path, came_at, self._loop.time(), status))
                writer.write(answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    def _answer(self, now: float, address: str, host: str, path: str) -> tuple[int, bytes]:
        if self._most is not None:
            recent = self._recent[address]
            while recent and recent[0] <= now - 1.0:
                recent.popleft()
            recent.append(now)
            if len(recent) > self._most:
                return 429, b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"
        if path == "/robots.txt":
            return 404, b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
        links = "".join(f'<a href="{link}">{link}</a>' for link in self._links_of(host, path))
        body = f"<title>{host}{path}</title><p>Page {path} of {host}.{links}".encode()
        head = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {len(body)}\r\n\r\n"
        return 200, head.encode() + body


class Pauses(NamedTuple):
    shortest_s: float
    """From an answer to the next request, of any site of the group."""
    too_soon: int
    at_once: int
    """Requests that began while another one of the group was under way."""


def pauses(asked: list[Asked], group_of: Callable[[Asked], str], interval_s: float) -> Pauses:
    groups: dict[str, list[Asked]] = defaultdict(list)
    for each in asked:
        groups[group_of(each)].append(each)
    found = [
        then.came_at - first.sent_at
        for group in groups.values()
        for first, then in pairwise(sorted(group, key=lambda each: each.came_at))
    ]
    return Pauses(
        min(found, default=float("inf")),
        sum(pause < interval_s for pause in found),
        sum(pause < 0 for pause in found),
    )
