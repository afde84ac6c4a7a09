"""Obeys Retry-After: no request goes to a site before the time that it named, and the other sites go on."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Self
from weakref import WeakKeyDictionary

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.http import Response
from scrapy.pqueues import DownloaderAwarePriorityQueue

from headway.pages.headers import retry_after_s
from headway.scrapy.link import Link, link_of
from headway.units import Instant, format_duration

logger = logging.getLogger(__name__)

WAITED_FOR_S = 5.0
"""Requests wait in the downloader for a pause up to this long, since the engine polls its queue that
often."""
_RETRY_AFTER_STATUSES = frozenset({429, 503})


class SiteOnHoldError(Exception):
    """The site of a request has just asked for a pause; the request goes back into the queue."""


class Holds:
    """Until when no request may be sent, by downloader slot (usually a host)."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._until: dict[str, float] = {}

    def hold(self, slot: str, seconds: float) -> None:
        self._until[slot] = max(self._now_s() + seconds, self._until.get(slot, 0.0))

    def left_s(self, slot: str) -> float:
        """How long no request may be sent from this slot; 0 if it is not on hold."""
        if not self._until:
            return 0.0
        left_s = self._until.get(slot, 0.0) - self._now_s()
        if left_s <= 0:
            self._until.pop(slot, None)
        return max(0.0, left_s)

    async def wait(self, slot: str) -> None:
        """Wait for the end of a short pause; raise SiteOnHoldError if the pause is long."""
        left_s = self.left_s(slot)
        if left_s > WAITED_FOR_S:
            raise SiteOnHoldError(slot)
        if left_s > 0:
            await asyncio.sleep(left_s)


_holds_by_crawler: WeakKeyDictionary[Crawler, Holds] = WeakKeyDictionary()


def holds_of(crawler: Crawler) -> Holds:
    return _holds_by_crawler.setdefault(crawler, Holds())


class HoldAwarePriorityQueue(DownloaderAwarePriorityQueue):
    """Scrapy's own queue, except that it returns no requests of slots that are on hold."""

    def pop(self) -> Request | None:
        holds = holds_of(self.crawler)
        held = {slot: queue for slot, queue in self.pqueues.items() if holds.left_s(slot) > WAITED_FOR_S}
        if not held:
            return super().pop()
        self.pqueues = {slot: queue for slot, queue in self.pqueues.items() if slot not in held}
        try:
            return super().pop()
        finally:
            self.pqueues = {**self.pqueues, **held}


class RetryAfterMiddleware:
    """Puts sites on hold that ask for a pause; Scrapy's RetryMiddleware sends the request again
    afterwards."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._link: Link = link_of(crawler)
        self._holds = holds_of(crawler)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def process_response(self, request: Request, response: Response) -> Response:
        if response.status not in _RETRY_AFTER_STATUSES or "cached" in response.flags:
            return response
        header = response.headers.get("Retry-After")
        if header is None:
            return response
        asked_s = retry_after_s(Instant(time.time()), header.decode("latin-1"))
        if asked_s is not None:
            self._pause(self._slot_of(request), asked_s)
        return response

    def process_exception(self, request: Request, exception: Exception) -> Request | None:
        if isinstance(exception, SiteOnHoldError):
            return request.replace(dont_filter=True)
        return None

    def _pause(self, slot: str, asked_s: float) -> None:
        longest_s = self._link.settings.longest_hold_s
        pause_s = min(asked_s, longest_s)
        is_news = self._holds.left_s(slot) < pause_s - 1
        self._holds.hold(slot, pause_s)
        if not is_news:
            return
        stats = self._crawler.stats
        assert stats is not None
        stats.inc_value("headway/retry_after/count")
        stats.inc_value("headway/retry_after/seconds", round(pause_s))
        limited = f" (limited by HEADWAY_MAX_RETRY_AFTER; the site asked for {format_duration(asked_s)})"
        logger.info(
            "headway: %s asked for a pause; it gets no requests for %s%s",
            slot,
            format_duration(pause_s),
            limited if asked_s > longest_s else "",
            extra={"spider": self._crawler.spider},
        )

    def _slot_of(self, request: Request) -> str:
        assert self._crawler.engine is not None
        return self._crawler.engine.downloader.get_slot_key(request)
