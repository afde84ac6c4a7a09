"""A web whose servers write down every request, and a judge of what a fleet has asked them.

The sites are small trees of pages, each on a port of its own; answers take a while, as real ones do. The
judge counts pages lost, pages asked for twice, requests too close to each other, and seconds over a bound.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Sequence
from itertools import pairwise
from types import TracebackType
from typing import NamedTuple, Self


class Asked(NamedTuple):
    site: str
    path: str
    began_at: float
    ended_at: float
    sent_bytes: int
    is_whole: bool
    """False for an answer that nobody waited for until its end."""


class Verdict(NamedTuple):
    pages: int
    lost: int
    doubled: int
    too_soon: int
    """Requests less than the interval after the end of the answer before."""
    worst_pause_s: float
    """The shortest time between an answer and the next request to the same site."""


_Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class FleetWeb:
    """Runs in a thread. `pages` a site, each linking to `fan` more and to the first page of the next site."""

    def __init__(
        self,
        sites: int = 8,
        pages: int = 40,
        *,
        fan: int = 5,
        latency_s: float = 0.02,
        page_bytes: int = 2000,
    ) -> None:
        self._pages = pages
        self._fan = fan
        self._latency_s = latency_s
        self._page_bytes = page_bytes
        self._count = sites
        self.asked: list[Asked] = []
        self.sites: list[str] = []
        self._loop = asyncio.new_event_loop()
        self._up = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._stop: asyncio.Event | None = None

    @property
    def seeds(self) -> list[str]:
        return [f"{site}/0" for site in self.sites]

    def __enter__(self) -> Self:
        self._thread.start()
        self._up.wait(10)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._stop is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    def judge(self, interval_s: float, *, slack_s: float = 0.01) -> Verdict:
        """Pages that were asked for twice because the first answer was not waited for count once."""
        by_site: dict[str, list[Asked]] = defaultdict(list)
        for each in sorted(self.asked, key=lambda asked: asked.began_at):
            by_site[each.site].append(each)
        whole = Counter((each.site, each.path) for each in self.asked if each.is_whole)
        pauses = [
            after.began_at - before.ended_at
            for asked in by_site.values()
            for before, after in pairwise(asked)
        ]
        wanted = {(site, f"/{number}") for site in self.sites for number in range(self._pages)}
        return Verdict(
            pages=len(wanted & whole.keys()),
            lost=len(wanted - whole.keys()),
            doubled=sum(count - 1 for page, count in whole.items() if page in wanted),
            too_soon=sum(pause < interval_s - slack_s for pause in pauses),
            worst_pause_s=min(pauses, default=interval_s),
        )

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._run())
        finally:
            self._loop.close()

    async def _run(self) -> None:
        self._stop = asyncio.Event()
        servers = []
        for number in range(self._count):
            server = await asyncio.start_server(self._connection(number), "127.0.0.1", 0)
            servers.append(server)
            self.sites.append(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        self._up.set()
        await self._stop.wait()
        for server in servers:
            server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def _connection(self, number: int) -> _Talk:
        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                while True:
                    head = await reader.readuntil(b"\r\n\r\n")
                    path = head.split(b" ", 2)[1].decode()
                    await self._answer(number, path, writer)
            except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
                pass
            finally:
                writer.close()

        return talk

    async def _answer(self, number: int, path: str, writer: asyncio.StreamWriter) -> None:
        began_at = time.monotonic()
        if path != "/robots.txt":
            await asyncio.sleep(self._latency_s)
        body = self._body(number, path)
        status = "200 OK" if body else "404 Not Found"
        writer.write(
            f"HTTP/1.1 {status}\r\nContent-Type: text/html\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        is_whole = True
        try:
            await writer.drain()
        except ConnectionError:
            is_whole = False
        is_whole = is_whole and not writer.is_closing()
        self.asked.append(
            Asked(self.sites[number], path, began_at, time.monotonic(), len(body) + 80, is_whole)
        )

    def _body(self, number: int, path: str) -> bytes:
        page = int(path[1:]) if path[1:].isdigit() else -1
        if not 0 <= page < self._pages:
            return b""
        children: Sequence[int] = range(
            page * self._fan + 1, min(page * self._fan + self._fan + 1, self._pages)
        )
        links = [f"/{child}" for child in children]
        links.append(f"{self.sites[(number + 1) % self._count]}/{page}")
        text = "".join(f'<a href="{link}">{link}</a>' for link in links)
        return f"<title>{number}/{page}</title>{text}".encode().ljust(self._page_bytes, b" ")
