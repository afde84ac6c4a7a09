"""A web whose servers write down every request, and a judge of what a fleet has asked them.

The sites are small trees of pages, each on a port of its own; answers take a while, as real ones do. The
judge counts pages lost, pages asked for twice, requests too close to each other, and seconds over a bound.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import struct
import termios
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
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
    by: str = ""
    """The address that asked."""
    is_conditional: bool = False
    """Only wanted if it was no longer as it is, and so answered without a body."""


class Verdict(NamedTuple):
    pages: int
    lost: int
    doubled: int
    too_soon: int
    """Requests less than the interval after the end of the answer before."""
    worst_pause_s: float
    """The shortest time between an answer and the next request to the same site."""


_SILENCE_S = 15.0
_LOOK_EVERY_S = 0.004
_DATA_RECEIVED_AT, _ACK_RECEIVED_AT = 52, 56
"""In the kernel's `tcp_info`."""
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
        host: str = "127.0.0.1",
        sees_arrivals: bool = False,
        is_alike: bool = False,
        has_tags: bool = False,
    ) -> None:
        """`sees_arrivals`: an answer has ended when the other side has all of it, or took the last of it.
        `is_alike`: pages of the same number are the same on all sites. `has_tags`: each page has an ETag, and
        who knows it is told that nothing has changed."""
        self._host = host
        self._sees_arrivals = sees_arrivals
        self._is_alike = is_alike
        self._has_tags = has_tags
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

    def visits(self, since: int = 0) -> dict[tuple[str, str], list[Asked]]:
        """The visits to each page that there is, in order, without the first so many requests."""
        found: dict[tuple[str, str], list[Asked]] = {
            (site, f"/{number}"): [] for site in self.sites for number in range(self._pages)
        }
        for each in self.asked[since:]:
            if (each.site, each.path) in found:
                found[each.site, each.path].append(each)
        return found

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
        with suppress(OSError):  # a judge that is late is unjust, but not everybody may be first
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), -15)
        try:
            self._loop.run_until_complete(self._run())
        finally:
            self._loop.close()

    async def _run(self) -> None:
        self._stop = asyncio.Event()
        servers = []
        for number in range(self._count):
            server = await asyncio.start_server(self._connection(number), self._host, 0)
            servers.append(server)
            self.sites.append(f"http://{self._host}:{server.sockets[0].getsockname()[1]}")
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
                    knows = f'\r\nIf-None-Match: "{path}"\r\n'.encode() in head
                    await self._answer(number, path, writer, is_conditional=self._has_tags and knows)
            except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
                pass
            finally:
                writer.close()

        return talk

    async def _answer(
        self, number: int, path: str, writer: asyncio.StreamWriter, *, is_conditional: bool
    ) -> None:
        began_at = time.monotonic() - (_ago_s(writer, _DATA_RECEIVED_AT) if self._sees_arrivals else 0.0)
        if path != "/robots.txt":
            await asyncio.sleep(self._latency_s)
        body = b"" if is_conditional else self._body(number, path)
        status = "304 Not Modified" if is_conditional else "200 OK" if body else "404 Not Found"
        tag = f'ETag: "{path}"\r\n' if self._has_tags else ""
        head = f"Content-Type: text/html\r\n{tag}Content-Length: {len(body)}\r\n"
        writer.write(f"HTTP/1.1 {status}\r\n{head}\r\n".encode() + body)
        is_whole = True
        try:
            await writer.drain()
        except ConnectionError:
            is_whole = False
        ended_at = time.monotonic()
        if self._sees_arrivals:
            ended_at, is_whole = await _arrived(writer, ended_at)
        by = writer.get_extra_info("peername", ("",))[0]
        is_whole = is_whole and not writer.is_closing()
        sent = len(body) + 80
        asked = Asked(self.sites[number], path, began_at, ended_at, sent, is_whole, by, is_conditional)
        self.asked.append(asked)

    def _body(self, number: int, path: str) -> bytes:
        page = int(path[1:]) if path[1:].isdigit() else -1
        if not 0 <= page < self._pages:
            return b""
        children: Sequence[int] = range(
            page * self._fan + 1, min(page * self._fan + self._fan + 1, self._pages)
        )
        links = [f"/{child}" for child in children]
        if self._is_alike:
            number = 0
        else:
            links.append(f"{self.sites[(number + 1) % self._count]}/{page}")
        text = "".join(f'<a href="{link}">{link}</a>' for link in links)
        return f"<title>{number}/{page}</title>{text}".encode().ljust(self._page_bytes, b" ")


async def _arrived(writer: asyncio.StreamWriter, sent_at: float) -> tuple[float, bool]:
    """When the other side took the last that it took, and whether that was all. An end of its own, since a
    side that is cut off neither takes more nor says that it is gone."""
    last_at, left, until_at = sent_at, -1, sent_at + _SILENCE_S
    while time.monotonic() < until_at and not writer.is_closing():
        unsent = writer.transport.get_write_buffer_size() + _unacknowledged(writer)
        if unsent != left:
            now = time.monotonic()
            # Where we look so late that the next request is here, its arrival is the last that was heard.
            is_late = now - _ago_s(writer, _DATA_RECEIVED_AT) > sent_at
            last_at, left = last_at if is_late else now - _ago_s(writer, _ACK_RECEIVED_AT), unsent
            until_at = time.monotonic() + _SILENCE_S
        if not unsent:
            return last_at, True
        await asyncio.sleep(_LOOK_EVERY_S)
    return last_at, False


def _ago_s(writer: asyncio.StreamWriter, field_at: int) -> float:
    """When the kernel last heard of the other side, whenever we come to look."""
    try:
        info = writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 64)
    except (OSError, ValueError):
        return 0.0
    (ago_ms,) = struct.unpack_from("I", info, field_at)
    return float(min(1.0, ago_ms / 1000))


def _unacknowledged(writer: asyncio.StreamWriter) -> int:
    """Bytes that the kernel has sent or will send, and that were not acknowledged."""
    there = writer.get_extra_info("socket")
    try:
        (count,) = struct.unpack("i", fcntl.ioctl(there.fileno(), termios.TIOCOUTQ, b"\0\0\0\0"))
    except (OSError, ValueError):
        return 0
    return int(count)
