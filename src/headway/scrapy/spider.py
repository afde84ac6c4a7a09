"""`python -m headway.scrapy.spider`: the process of one spider of `headway run-scrapy`; and what it adds to
Scrapy: the built-in spider and the Parquet feed exporter.

It reads its task from standard input, as JSON. Then it and the supervisor call each other over a socket,
whose file descriptor is the only argument: the spider reports its progress, the supervisor sends orders.
Standard output and standard error go to the site's log.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import IO, Any, Protocol, Self

import msgspec
import scrapy
from scrapy import Request, signals
from scrapy.crawler import AsyncCrawlerProcess, Crawler
from scrapy.exporters import BaseItemExporter
from scrapy.http import Response as ScrapyResponse
from scrapy.utils.misc import load_object

from headway.cluster.rpc import Connection, Offer, PeerGone, Service, connect
from headway.config.reading import SEAT_SETTING
from headway.model.page import Kind, Outcome, Site
from headway.pacing.shared_window import SharedRateWindow
from headway.pages.document import parse
from headway.pages.extract import Extractor, Item, Rule
from headway.pages.parsed import ParseOptions
from headway.pages.url import page_of
from headway.policy.scope import Scope
from headway.ports import Response
from headway.runtime.answers import outcome_of
from headway.runtime.process import die_with_parent
from headway.scrapy.fetcher import FetchResult, response_of
from headway.scrapy.link import link_of
from headway.scrapy.project import is_normal_end, settings_for
from headway.units import BytesPerSecond, Instant, Seconds

_ROWS_IN_MEMORY = 10_000
_REPORTS_EVERY_S = 0.25


class SiteSpider(scrapy.Spider):
    """For sites without a spider of their own: follows the links of one site, and extracts items by rules.

    Pages are parsed by headway's parser, so the links are the same as in a crawl without Scrapy.
    """

    name = "site"

    def __init__(
        self,
        urls: list[str],
        rules: str = "[]",
        scope: str = "{}",
        max_pages: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        pages = [page for url in urls if (page := page_of(url)) is not None]
        self._urls = [page.url for page in pages]
        self._site: Site = pages[0].site
        self._extractor = Extractor({self._site: msgspec.json.decode(rules, type=tuple[Rule, ...])})
        self._scope = msgspec.json.decode(scope, type=Scope)
        self._max_pages = max_pages
        self._requested: set[str] = set()

    async def start(self) -> AsyncIterator[scrapy.Request]:
        for url in self._urls:
            for request in self._requests(url):
                yield request

    def parse(self, response: ScrapyResponse, **kwargs: Any) -> Iterator[scrapy.Request | Item]:
        page = page_of(response.url, depth=response.meta.get("depth", 0))
        if page is None or page.site != self._site:
            return
        content_type = (response.headers.get("Content-Type") or b"").decode("latin-1")
        seen = Response(
            Kind.FETCHED,
            page.url,
            Instant(0.0),
            Seconds(0.0),
            response.status,
            tuple(
                (name.decode("latin-1").lower(), value.decode("latin-1"))
                for name, values in response.headers.items()
                for value in values
            ),
            body=response.body,
        )
        options = ParseOptions(user_agent=str(self.settings.get("USER_AGENT")))
        parsed = parse(seen, page, options)
        if not parsed.noindex:
            yield from self._extractor.items(page.url, page.site, content_type, response.body)
        for link in parsed.links:
            if link.site == self._site and self._scope.judge(link) is None:
                yield from self._requests(link.url)

    def _requests(self, url: str) -> Iterator[scrapy.Request]:
        """A request for the page, unless it was requested before or `max_pages` is reached."""
        if url in self._requested:
            return
        if self._max_pages is not None and len(self._requested) >= self._max_pages:
            return
        self._requested.add(url)
        yield scrapy.Request(url)


class ParquetItemExporter(BaseItemExporter):
    """A feed exporter for Parquet: `FEEDS = {"items.parquet": {"format": "parquet"}}`.

    The first 10,000 items determine the columns and their types.
    """

    def __init__(self, file: IO[bytes], **options: Any) -> None:
        super().__init__(dont_fail=True, **options)
        self._file = file
        self._rows: list[dict[str, Any]] = []
        self._writer: Any = None

    def export_item(self, item: Any) -> None:
        self._rows.append(dict(self.get_serialized_fields(item)))
        if len(self._rows) >= _ROWS_IN_MEMORY:
            self._write()

    def finish_exporting(self) -> None:
        if self._rows or self._writer is None:
            self._write()
        self._writer.close()

    def _write(self) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        names = list(dict.fromkeys(name for row in self._rows for name in row))
        table = pa.Table.from_pylist([{name: row.get(name) for name in names} for row in self._rows])
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._file, table.schema)
        self._writer.write_table(table.select(self._writer.schema.names).cast(self._writer.schema))
        self._rows.clear()


class WorkerTask(msgspec.Struct, frozen=True):
    """What a spider's process needs to start."""

    spider: str
    """The path of its class, or its name in the Scrapy project of the current folder."""
    arguments: dict[str, Any]
    settings: dict[str, Any]
    """They replace those of the Scrapy project."""
    window: str
    """The path of the `SharedRateWindow`."""
    row: int = 0
    """This process's row in the window."""
    defaults: dict[str, Any] = {}
    """Settings for what the project does not say."""


class Order(msgspec.Struct, frozen=True):
    """An order of the supervisor to a spider."""

    rate_bytes_per_s: float | None = None
    """The new bound; None: unchanged."""
    go: bool = False
    """Release the spider: before, nothing is received."""
    end: bool = False


class Answer(msgspec.Struct, frozen=True):
    """The result of one request."""

    url: str
    depth: int
    at: Instant
    outcome: Outcome


class Progress(msgspec.Struct, frozen=True):
    """The report of a spider. Counts are those since its process started."""

    is_ready: bool
    wire_bytes: int
    answers: int
    waiting: int
    items: int
    finish_reason: str | None = None
    answers_since: tuple[Answer, ...] = ()
    """The answers since the last report."""
    in_flight: int = 0
    """Those of `waiting` that are in flight."""


class SpiderCalls(Protocol):
    """What the supervisor can call in a spider's process."""

    async def steer(self, order: Order) -> None: ...


class SupervisorCalls(Protocol):
    """What a spider's process can call."""

    async def report(self, progress: Progress) -> None: ...


SPIDER_CALLS = Service(SpiderCalls)
SUPERVISOR_CALLS = Service(SupervisorCalls)


class Control:
    """A Scrapy extension that carries out the supervisor's orders and reports to it. Implements
    `SpiderCalls`."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._link = link_of(crawler)
        self._answers: list[Answer] = []
        self._is_ready = False
        self._is_released = False
        self._is_closed = False
        self._supervisor: SupervisorCalls | None = None
        self._link.on_result = self._note
        path, row, self._socket_fd = crawler.settings[SEAT_SETTING]
        self._link.pacer.share_link(SharedRateWindow(Path(path)), row)
        self._rate = BytesPerSecond(0.0)
        crawler.signals.connect(self.engine_started, signal=signals.engine_started)
        crawler.signals.connect(self.spider_closed, signal=signals.spider_closed)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def engine_started(self) -> None:
        """Everything is loaded. The bound is 0 until the supervisor releases the spider. Pausing the engine
        instead would delay it by up to 5 s afterwards, since it polls its queue that often."""
        self._link.set_limit(BytesPerSecond(0.0))
        self._is_ready = True
        self._reporting = asyncio.get_running_loop().create_task(self._report_until_the_end())

    async def spider_closed(self, reason: str) -> None:
        self._is_closed = True
        self._reporting.cancel()
        await self._report(reason)

    async def steer(self, order: Order) -> None:
        if order.rate_bytes_per_s is not None:
            self._rate = BytesPerSecond(order.rate_bytes_per_s)
        self._is_released = self._is_released or order.go
        if self._is_released:
            self._link.set_limit(self._rate)
        if order.end:
            engine: Any = self._crawler.engine
            self._ending = asyncio.ensure_future(engine.close_spider_async(reason="told_to_end"))

    async def _report_until_the_end(self) -> None:
        connection = await connect(socket.socket(fileno=self._socket_fd), Offer(SPIDER_CALLS, self))
        self._supervisor = connection.remote(SUPERVISOR_CALLS)
        self._watching = asyncio.get_running_loop().create_task(self._end_with(connection))
        while True:
            await self._report(None)
            await asyncio.sleep(_REPORTS_EVERY_S)

    async def _end_with(self, connection: Connection) -> None:
        """End the process at once when the supervisor is gone, so that the next run can use the job's folder.
        No request is lost: all are in the request store."""
        await connection.ended()
        if not self._is_closed:
            os._exit(1)

    def _note(self, request: Request, result: FetchResult) -> None:
        now = Instant(time.time())
        outcome = outcome_of(now, response_of(now, request.url, result), None, is_known=False)
        self._answers.append(Answer(request.url, int(request.meta.get("depth", 0)), now, outcome))

    async def _report(self, finish_reason: str | None) -> None:
        if self._supervisor is None:
            return
        answers, self._answers = self._answers, []
        counters = list(self._link.counters)
        stats: Any = self._crawler.stats
        progress = Progress(
            self._is_ready,
            self._link.pacer.received_bytes,
            sum(each.answers for each in counters),
            sum(each.waiting + each.in_flight for each in counters),
            int(stats.get_value("item_scraped_count", 0)),
            finish_reason,
            tuple(answers),
            sum(each.in_flight for each in counters),
        )
        with contextlib.suppress(PeerGone):
            await self._supervisor.report(progress)


def main() -> int:
    die_with_parent()
    task = msgspec.json.decode(sys.stdin.buffer.read(), type=WorkerTask)
    sys.path.insert(0, os.getcwd())  # noqa: PTH109  # spiders are imported from the current folder
    of_the_process = {
        "ADDONS": {"headway.scrapy.Addon": 500},
        "EXTENSIONS": {"headway.scrapy.spider.Control": 0},
        "HEADWAY_BANDWIDTH": "1 B/s",  # until the supervisor sends a rate
        SEAT_SETTING: (task.window, task.row, int(sys.argv[1])),
    }
    process = AsyncCrawlerProcess(settings_for(task.settings, task.defaults, of_the_process))
    crawler = process.create_crawler(load_object(task.spider) if "." in task.spider else task.spider)
    process.crawl(crawler, **task.arguments)
    process.start()
    stats: Any = crawler.stats
    reason = stats.get_value("finish_reason")
    return 0 if reason == "told_to_end" or is_normal_end(reason) else 1


if __name__ == "__main__":
    sys.exit(main())
