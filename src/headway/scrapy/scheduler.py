"""Scrapy's scheduler with its requests in a book that survives a kill.

Order, priorities and slots are Scrapy's own; only where a request is kept, and when it is done with, is ours.
Requests that cannot be written down (a callback that is no method of the spider, say) stay in memory, as they
do in Scrapy.
"""

from __future__ import annotations

import asyncio
import pickle
from collections import deque
from collections.abc import Container
from pathlib import Path
from typing import Any, Self
from weakref import WeakKeyDictionary

from scrapy import Request, Spider
from scrapy.core.scheduler import Scheduler
from scrapy.crawler import Crawler
from scrapy.dupefilters import RFPDupeFilter
from scrapy.extensions.feedexport import FeedExporter
from scrapy.pqueues import DownloaderAwarePriorityQueue
from scrapy.utils.request import request_from_dict

from headway.scrapy.requestbook import RequestBook

_COMMIT_EVERY_S = 0.1


class Desk:
    """The book of one crawler, and the requests that were taken from it and are not done with."""

    def __init__(self, crawler: Crawler, folder: Path) -> None:
        self._crawler = crawler
        self.book = RequestBook(folder)
        self.was_left_with = len(self.book)
        """How many requests an earlier run left."""
        self._taken: dict[Request, int] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, queue: str, request: Request, content: bytes) -> None:
        engine: Any = self._crawler.engine
        self.book.add(queue, engine.downloader.get_slot_key(request), -request.priority, content)
        self._commit_soon()

    def take(self, number: int, request: Request) -> None:
        self._taken[request] = number
        self._commit_soon()

    def note(self, fingerprint: bytes) -> None:
        self.book.add_seen(fingerprint)
        self._commit_soon()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._settle()
        self.book.close()

    def _commit_soon(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_COMMIT_EVERY_S, self._commit)

    def _commit(self) -> None:
        self._timer = None
        self._settle()
        if self._taken:
            self._commit_soon()

    def _settle(self) -> None:
        """What the engine has done with leaves the book. Items come first: they must not be lost either."""
        slot = getattr(self._crawler.engine, "_slot", None)  # nobody else knows what is done with
        under_way: Container[Request] = () if slot is None else slot.inprogress
        done = [request for request in self._taken if request not in under_way]
        if done:
            _flush_feeds(self._crawler)
            self.book.remove(self._taken.pop(request) for request in done)
        self.book.commit()


_desks: WeakKeyDictionary[Crawler, Desk] = WeakKeyDictionary()


class StoreScheduler(Scheduler):
    """`SCHEDULER` of jobs with a JOBDIR; its disk queues are `StoreLifoQueue` and `StoreFifoQueue`."""

    def open(self, spider: Spider) -> Any:
        assert self.crawler is not None
        assert self.dqdir is not None
        _desks[self.crawler] = self._desk = Desk(self.crawler, Path(self.dqdir).parent)
        if self.stats is not None:
            self.stats.set_value("headway/requests_resumed", self._desk.was_left_with)
        return super().open(spider)

    def close(self, reason: str) -> Any:
        try:
            return super().close(reason)
        finally:
            self._desk.close()
            if self.crawler is not None:
                _desks.pop(self.crawler, None)

    def enqueue_request(self, request: Request) -> bool:
        """A spider that is taken up again begins with its start requests, which it has had already."""
        if request.meta.get("is_start_request") and isinstance(self.df, StoreDupeFilter):
            is_known = not self.df.note(request) if request.dont_filter else False
            if is_known and self._desk.was_left_with:
                return False
        return super().enqueue_request(request)

    def _read_dqs_state(self, dqdir: str) -> Any:
        by_slot: dict[str, list[int]] = {}
        for slot, priority in self._desk.book.queues():
            by_slot.setdefault(slot, []).append(priority)
        queue_class: Any = self.pqclass
        if issubclass(queue_class, DownloaderAwarePriorityQueue):
            return by_slot
        return sorted({priority for priorities in by_slot.values() for priority in priorities})

    def _write_dqs_state(self, dqdir: str, state: Any) -> None:
        """The book knows."""


class StoreLifoQueue:
    """One priority of one slot, as Scrapy's priority queues divide it; the last in is the first out."""

    def __init__(self, crawler: Crawler, key: str) -> None:
        self._desk = _desks[crawler]
        self._spider = crawler.spider
        folder = str(self._desk.book.path.parent / "requests.queue")
        self._queue = str(Path(key)).removeprefix(folder).lstrip("/")
        self._ids: deque[int] = self._desk.book.waiting(self._queue)

    @classmethod
    def from_crawler(cls, crawler: Crawler, key: str) -> Self:
        return cls(crawler, key)

    def push(self, request: Request) -> None:
        """ValueError when the request cannot be written down."""
        assert self._spider is not None
        try:
            content = pickle.dumps(request.to_dict(spider=self._spider), protocol=4)
        except (pickle.PicklingError, AttributeError, TypeError) as problem:
            raise ValueError(str(problem)) from problem
        self._desk.add(self._queue, request, content)

    def pop(self) -> Request | None:
        if not self._ids:
            return None
        number = self._next(take=True)
        request = self._read(number)
        self._desk.take(number, request)
        return request

    def peek(self) -> Request | None:
        return self._read(self._next(take=False)) if self._ids else None

    def close(self) -> None:
        """The book is closed by the scheduler."""

    def __len__(self) -> int:
        return len(self._ids)

    def _next(self, *, take: bool) -> int:
        return self._ids.pop() if take else self._ids[-1]

    def _read(self, number: int) -> Request:
        # Written by this job itself, into its own folder, as Scrapy's own disk queues do.
        return request_from_dict(pickle.loads(self._desk.book.content(number)), spider=self._spider)  # noqa: S301


class StoreFifoQueue(StoreLifoQueue):
    """The first in is the first out."""

    def _next(self, *, take: bool) -> int:
        return self._ids.popleft() if take else self._ids[0]


class StoreDupeFilter(RFPDupeFilter):
    """Scrapy's filter, with what was seen in the same book: a request is seen when it is in there."""

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(
            None,
            crawler.settings.getbool("DUPEFILTER_DEBUG"),
            fingerprinter=crawler.request_fingerprinter,
        )
        self._crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def open(self) -> None:
        self._desk = _desks[self._crawler]
        self._fingerprints.update(self._desk.book.fingerprints())

    def note(self, request: Request) -> bool:
        """Whether it is new."""
        return not self.request_seen(request)

    def request_seen(self, request: Request) -> bool:
        fingerprint = self.fingerprinter.fingerprint(request)
        if fingerprint in self._fingerprints:
            return True
        self._fingerprints.add(fingerprint)
        self._desk.note(fingerprint)
        return False


def _flush_feeds(crawler: Crawler) -> None:
    """Hand the items of pages that are done with to the system."""
    for part in crawler.extensions.middlewares:
        if isinstance(part, FeedExporter):
            for slot in part.slots:
                if slot.file is not None:
                    slot.file.flush()
