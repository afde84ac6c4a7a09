"""`python -m headway.scrapy.worker`: one crawler of `headway run-scrapy`, a spider in a process of its own.

The first line on standard input is its task; each later line is an order, as JSON: to go, at which rate, or
to end. On standard output it tells once a moment how far it has come. Scrapy's log goes to a file.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from pathlib import Path
from typing import Any, Self

import msgspec
from scrapy import Request, signals
from scrapy.crawler import AsyncCrawlerProcess, Crawler
from scrapy.utils.asyncio import create_looping_call
from scrapy.utils.misc import load_object

from headway.live.classify import outcome_of
from headway.model.outcome import Outcome
from headway.scrapy.exchange import Answered, response_of
from headway.scrapy.link import link_of
from headway.scrapy.neighbours import Neighbours
from headway.units import BytesPerSecond, Instant

_TELLS_EVERY_S = 0.25
_SEAT = "HEADWAY_SEAT"
_MOST_NEWS = 200
"""In one line."""


class WorkerTask(msgspec.Struct, frozen=True):
    spider: str
    arguments: dict[str, Any]
    settings: dict[str, Any]
    neighbours: str
    """The file of `neighbours.Neighbours`, and our row in it."""
    row: int = 0


class Order(msgspec.Struct, frozen=True):
    rate_bytes_per_s: float | None = None
    go: bool = False
    end: bool = False


class Answer(msgspec.Struct, frozen=True):
    """What became of one request."""

    url: str
    depth: int
    at: Instant
    outcome: Outcome


class Progress(msgspec.Struct, frozen=True):
    is_ready: bool
    wire_bytes: int
    answers: int
    waiting: int
    items: int
    finish_reason: str | None = None
    news: tuple[Answer, ...] = ()
    """Answers since the last time."""


class Control:
    """A Scrapy extension: the master's ear and mouth in this process."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._link = link_of(crawler)
        self._loop = create_looping_call(self._tell)
        self._unread = b""
        self._news: list[Answer] = []
        self._is_ready = False
        self._has_gone = False
        self._link.listener = self._note
        path, row = crawler.settings[_SEAT]
        self._link.pacer.sit_down(Neighbours(Path(path)), row)
        self._rate = BytesPerSecond(0.0)
        crawler.signals.connect(self.engine_started, signal=signals.engine_started)
        crawler.signals.connect(self.spider_closed, signal=signals.spider_closed)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def engine_started(self) -> None:
        """Everything is loaded. Nothing may cross the link before the master says so: pausing the engine
        would cost up to five seconds afterwards, since it looks into its queue that often."""
        self._link.set_limit(BytesPerSecond(0.0))
        self._is_ready = True
        asyncio.get_running_loop().add_reader(sys.stdin.fileno(), self._hear)
        self._loop.start(_TELLS_EVERY_S)

    def spider_closed(self, reason: str) -> None:
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
        if self._loop.running:
            self._loop.stop()
        self._tell(reason)

    def _hear(self) -> None:
        heard = os.read(sys.stdin.fileno(), 65536)
        if not heard:
            # The master was killed, and whoever takes its place must find the job free. The book has it all.
            os._exit(1)
        *lines, self._unread = (self._unread + heard).split(b"\n")
        for line in lines:
            self._obey(msgspec.json.decode(line, type=Order))

    def _obey(self, order: Order) -> None:
        if order.rate_bytes_per_s is not None:
            self._rate = BytesPerSecond(order.rate_bytes_per_s)
        self._has_gone = self._has_gone or order.go
        if self._has_gone:
            self._link.set_limit(self._rate)
        if order.end:
            self._end()

    def _end(self) -> None:
        engine: Any = self._crawler.engine
        self._ending = asyncio.ensure_future(engine.close_spider_async(reason="told_to_end"))

    def _note(self, request: Request, answered: Answered) -> None:
        now = Instant(time.time())
        outcome = outcome_of(now, response_of(now, request.url, answered), None, is_known=False)
        self._news.append(Answer(request.url, int(request.meta.get("depth", 0)), now, outcome))

    def _tell(self, finish_reason: str | None = None) -> None:
        while len(self._news) > _MOST_NEWS:
            self._say(None, self._news[:_MOST_NEWS])
            del self._news[:_MOST_NEWS]
        self._say(finish_reason, self._news)
        self._news = []

    def _say(self, finish_reason: str | None, news: list[Answer]) -> None:
        tallies = list(self._link.tally)
        stats: Any = self._crawler.stats
        progress = Progress(
            self._is_ready,
            self._link.pacer.received_bytes,
            sum(tally.answers for tally in tallies),
            sum(tally.waiting + tally.in_flight for tally in tallies),
            int(stats.get_value("item_scraped_count", 0)),
            finish_reason,
            tuple(news),
        )
        with contextlib.suppress(BrokenPipeError):  # standard input tells as well that the master is gone
            os.write(sys.stdout.fileno(), msgspec.json.encode(progress) + b"\n")


def main() -> int:
    task = msgspec.json.decode(_first_line(), type=WorkerTask)
    sys.path.insert(0, os.getcwd())  # noqa: PTH109  # spiders stand where the command was given
    settings = {
        **task.settings,
        "ADDONS": {"headway.scrapy.Addon": 500, **task.settings.get("ADDONS", {})},
        "EXTENSIONS": {"headway.scrapy.worker.Control": 0, **task.settings.get("EXTENSIONS", {})},
        "HEADWAY_BANDWIDTH": "1 B/s",  # until the master names a rate
        _SEAT: (task.neighbours, task.row),
    }
    process = AsyncCrawlerProcess(settings)
    crawler = process.create_crawler(load_object(task.spider))
    process.crawl(crawler, **task.arguments)
    process.start()
    stats: Any = crawler.stats
    reason = stats.get_value("finish_reason")
    return 0 if reason in {"finished", "told_to_end"} else 1


def _first_line() -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        more = os.read(sys.stdin.fileno(), 1)
        if not more:
            break
        line += more
    return line


if __name__ == "__main__":
    sys.exit(main())
