"""Fig 3 and table 1: collection rate against simultaneous collectors, with servers of 3.4 s latency."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

import msgspec

from headway.config.job import build_job
from headway.config.reading import Source, convert
from headway.runtime.crawling import CrawlRun
from headway.runtime.driver import LiveDriver
from headway.store.reader import RunReader

LATENCY_S = 3.4
PAGES_A_SITE = 50
_PAGE_BYTES = 6000
"""The paper's mean page (table 4)."""


class Point(msgspec.Struct, frozen=True):
    collectors: int
    docs_per_min: float
    http_latency_s: float
    scheduler_latency_s: float
    """From a collector's report to its next order: one turn of the driver, with the machine's steps in it."""


async def measure(collectors: int, seconds: float) -> Point:
    """A crawl of so many collectors over twice as many sites, cut after so many seconds."""
    async with AsyncExitStack() as stack:
        sites = []
        for _ in range(2 * collectors):
            server = await asyncio.start_server(_answer, "127.0.0.1", 0)
            await stack.enter_async_context(server)
            sites.append(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/0")
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "run"
        source = Source("cobweb1999")
        crawl = {
            "interval": "0 s",
            "pages_per_connection": PAGES_A_SITE,
            "allow_private": True,
            "respect_robots": False,
            "max_connections": collectors,
            "feeds": False,
        }
        tables = {"crawl": crawl, "site": [{"url": url} for url in sites]}
        run = CrawlRun(build_job(convert(tables, source), source), folder)
        with _timed_steps(run._driver) as steps:  # noqa: SLF001
            crawling = asyncio.ensure_future(run.run())
            await asyncio.sleep(seconds)
            run.stop()
            await crawling
        with RunReader(folder) as reader:
            pages = [page for page in reader.pages() if page.state == "done"]
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
    latency_s = sum(page.duration_s for page in pages) / len(pages)
    # From the first wave of answers to the last: before it nobody can have collected anything.
    first_at = min(page.settled_at for page in pages)
    later = [page.settled_at for page in pages if page.settled_at > first_at + LATENCY_S / 2]
    docs_per_min = 60 * len(later) / (max(later) - first_at)
    return Point(collectors, docs_per_min, latency_s, sum(steps) / len(steps))


@contextmanager
def _timed_steps(driver: LiveDriver) -> Iterator[list[float]]:
    """The driver's turns, in which the machine takes its steps: that itself is compiled, and not to be
    replaced."""
    taken: list[float] = []
    take_in = driver._take_in  # noqa: SLF001

    def timed() -> None:
        began = time.perf_counter()
        take_in()
        taken.append(time.perf_counter() - began)

    driver._take_in = timed  # type: ignore[method-assign]  # noqa: SLF001
    yield taken
    del driver._take_in  # noqa: SLF001


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while request := await reader.readuntil(b"\r\n\r\n"):
            number = int(request.split(b" ")[1].strip(b"/") or 0)
            links = f'<a href="/{number + 1}">next</a>' if number < PAGES_A_SITE else ""
            body = f"<title>{number}</title>{links}".encode().ljust(_PAGE_BYTES)
            await asyncio.sleep(LATENCY_S)
            head = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + body)
    except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
        pass
    finally:
        writer.close()
