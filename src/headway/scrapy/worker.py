"""`python -m headway.scrapy.worker`: one crawler of `headway run-scrapy`, a spider in a process of its own.

The first line on standard input is its task; each later line is an order, as JSON: to go, at which rate, or
to end. On standard output it tells once a moment how far it has come. Scrapy's log goes to a file.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any, Self

import msgspec
from scrapy import signals
from scrapy.crawler import AsyncCrawlerProcess, Crawler
from scrapy.utils.asyncio import create_looping_call
from scrapy.utils.misc import load_object

from headway.scrapy.link import link_of
from headway.scrapy.neighbours import Neighbours
from headway.units import BytesPerSecond

_TELLS_EVERY_S = 0.25
_SEAT = "HEADWAY_SEAT"


class WorkerTask(msgspec.Struct, frozen=True):
    spider: str
    arguments: dict[str, Any]
    settings: dict[str, Any]
    rate_bytes_per_s: float
    neighbours: str = ""
    """The file of `neighbours.Neighbours`, and our row in it; none: nobody else is on the link."""
    row: int = 0


class Order(msgspec.Struct, frozen=True):
    rate_bytes_per_s: float | None = None
    go: bool = False
    end: bool = False


class Progress(msgspec.Struct, frozen=True):
    is_ready: bool
    wire_bytes: int
    answers: int
    waiting: int
    items: int
    finish_reason: str | None = None


class Control:
    """A Scrapy extension: the master's ear and mouth in this process."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._link = link_of(crawler)
        self._loop = create_looping_call(self._tell)
        self._unread = b""
        self._is_ready = False
        self._has_gone = False
        if seat := crawler.settings.get(_SEAT):
            self._link.pacer.sit_down(Neighbours(Path(seat[0])), seat[1])
        self._rate: BytesPerSecond | None = None
        """None: what the task said."""
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
        if not heard:  # the master is gone
            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
            self._end()
            return
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

    def _tell(self, finish_reason: str | None = None) -> None:
        tallies = list(self._link.tally)
        stats: Any = self._crawler.stats
        progress = Progress(
            self._is_ready,
            self._link.pacer.received_bytes,
            sum(tally.answers for tally in tallies),
            sum(tally.waiting + tally.in_flight for tally in tallies),
            int(stats.get_value("item_scraped_count", 0)),
            finish_reason,
        )
        try:
            os.write(sys.stdout.fileno(), msgspec.json.encode(progress) + b"\n")
        except BrokenPipeError:
            self._end()


def main() -> int:
    task = msgspec.json.decode(_first_line(), type=WorkerTask)
    sys.path.insert(0, os.getcwd())  # noqa: PTH109  # spiders stand where the command was given
    settings = {
        **task.settings,
        "ADDONS": {"headway.scrapy.Addon": 500, **task.settings.get("ADDONS", {})},
        "EXTENSIONS": {"headway.scrapy.worker.Control": 0, **task.settings.get("EXTENSIONS", {})},
        "HEADWAY_BANDWIDTH": f"{max(task.rate_bytes_per_s, 1.0):.0f} B/s",
        _SEAT: (task.neighbours, task.row) if task.neighbours else None,
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
