"""A few sites on loopback that have what a crawl may meet: rules, a trap, failures, and pages that change."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from tests.support.rawserver import page

Page = Callable[[int, str], bytes]
"""From the number of the visit and the head of the request to the bytes of the answer."""

_WORDS = [f"{first}{middle}{last}" for first in "bdfgklmnprst" for middle in "aeiou" for last in "bdglmnrst"]
_BUSY = "503 Service Unavailable"


def text_of(name: str, size_bytes: int) -> str:
    """Words that only this page has in this order, so that no two pages are alike by chance."""
    chance = random.Random(name)
    words: list[str] = []
    size = 0
    while size < size_bytes:
        words.append(chance.choice(_WORDS) + chance.choice(_WORDS))
        size += len(words[-1]) + 1
    return " ".join(words)


def html(name: str, size_bytes: int, *links: str, extra: str = "") -> bytes:
    anchors = "".join(f'<a href="{link}">to {link}</a> ' for link in links)
    body = f"<!doctype html><title>{name}</title><body>{anchors}<p>{text_of(name, size_bytes)} {extra}</body>"
    return body.encode()


def steady(name: str, size_bytes: int, *links: str) -> Page:
    """Never changes, and says so when it is asked."""
    body = html(name, size_bytes, *links)
    tag = f'"{len(body)}-{name}"'

    def answer(visit: int, head: str) -> bytes:
        if f"if-none-match: {tag}" in head.lower():
            return page(b"", f"ETag: {tag}", status="304 Not Modified").replace(b"Content-Length: 0\r\n", b"")
        return page(body, "Content-Type: text/html", f"ETag: {tag}")

    return answer


def changing(name: str, size_bytes: int, *links: str) -> Page:
    return lambda visit, head: page(html(f"{name} {visit}", size_bytes, *links), "Content-Type: text/html")


def failing(times: int, status: str, then: Page, *headers: str) -> Page:
    return lambda visit, head: page(b"", *headers, status=status) if visit < times else then(visit, head)


def robots(*lines: str) -> Page:
    return lambda visit, head: page("\n".join(lines).encode(), "Content-Type: text/plain")


def month_of(path: str) -> Page | None:
    """A calendar without end. Its months differ in their dates only."""
    words = path.strip("/").split("/")
    if len(words) != 3 or words[0] != "calendar":
        return None
    months = int(words[1]) * 12 + int(words[2])
    ahead = [f"/calendar/{(months + by) // 12}/{(months + by) % 12}" for by in (1, 2, 3, 4)]
    body = html("calendar", 400, *ahead, extra=f"month {words[2]} of {words[1]}")
    return lambda visit, head: page(body, "Content-Type: text/html")


class Server:
    """One site. Pages that it does not have are made by `find`, or are missing."""

    def __init__(
        self, pages: dict[str, Page], find: Callable[[str], Page | None] = lambda path: None
    ) -> None:
        self._pages = pages
        self._find = find
        self.visits: Counter[str] = Counter()
        self.origin = ""
        self._writers: set[asyncio.StreamWriter] = set()

    @asynccontextmanager
    async def served(self) -> AsyncIterator[Server]:
        server = await asyncio.start_server(self._converse, "127.0.0.1", 0)
        self.origin = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()
            for writer in list(self._writers):
                writer.close()
            await server.wait_closed()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                path = head.split(" ", 2)[1]
                found = self._pages.get(path) or self._find(path)
                visit, self.visits[path] = self.visits[path], self.visits[path] + 1
                writer.write(found(visit, head) if found else page(b"", status="404 Not Found"))
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()


def library(pages: int, size_bytes: int) -> dict[str, Page]:
    """Much data, each page leading to the next ones."""
    paths = ["/", *(f"/book/{name}" for name in _names(pages - 1))]
    pages = {
        path: steady(f"library {path}", size_bytes, *paths[place + 1 : place + 6])
        for place, path in enumerate(paths)
    }
    # More at once than a crawl with little memory holds: the others wait in the store.
    pages["/"] = steady("library", size_bytes, *paths[1::2])
    return pages


def news(elsewhere: str) -> dict[str, Page]:
    """Half of its pages change from visit to visit. One leads to another site."""
    paths = [f"/story/{name}" for name in _names(8)]
    pages = {
        path: (changing if place % 2 else steady)(f"news {path}", 1500, "/")
        for place, path in enumerate(paths)
    }
    return {"/": changing("news", 1500, *paths, f"{elsewhere}/", f"{elsewhere}/hall"), **pages}


def shop() -> dict[str, Page]:
    """Has rules, and pages that fail for a while, for good, or are not there."""
    goods = [f"/goods/{name}" for name in _names(12)]
    pages = {path: steady(f"shop {path}", 3000, "/") for path in goods}
    pages["/slow"] = failing(1, "429 Too Many Requests", steady("slow", 800), "Retry-After: 1")
    pages["/shaky"] = failing(2, "500 Internal Server Error", steady("shaky", 800))
    pages["/broken"] = failing(10**9, "500 Internal Server Error", steady("never", 800))
    links = (*goods, "/private/key", "/private/purse", "/missing", "/slow", "/shaky", "/broken")
    pages["/"] = steady("shop", 1000, *links)
    pages["/private/key"] = pages["/private/purse"] = steady("private", 500)
    pages["/robots.txt"] = failing(1, _BUSY, robots("User-agent: *", "Disallow: /private/"))
    return pages


def calendar() -> Server:
    start = steady("calendar", 600, "/calendar/2026/11", "/endless/a/b/a/b/a/b/a/b/")
    return Server({"/": start}, month_of)


def gallery(pages: int) -> dict[str, Page]:
    paths = ["/", *(f"/hall/{name}" for name in _names(pages - 1))]
    return {path: steady(f"gallery {path}", 2000, *paths) for path in paths}


def _names(count: int) -> list[str]:
    """Not numbers, which would be a trap of their own."""
    return [_WORDS[number] + _WORDS[-number - 1] for number in range(count)]
