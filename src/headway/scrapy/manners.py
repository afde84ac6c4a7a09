"""Retry-After: a site that says when to come back is not asked before."""

from __future__ import annotations

import logging
import time
from typing import Self

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.http import Response

from headway.parse.headers import retry_after_s
from headway.scrapy.link import Link, link_of
from headway.scrapy.patience import SiteOnHoldError, holds_of
from headway.units import Instant, format_duration

logger = logging.getLogger(__name__)

_ASKS_FOR_A_PAUSE = frozenset({429, 503})


class RetryAfterMiddleware:
    """Takes note of pauses that sites ask for; Scrapy's own RetryMiddleware asks again afterwards."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._link: Link = link_of(crawler)
        self._holds = holds_of(crawler)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def process_response(self, request: Request, response: Response) -> Response:
        if response.status not in _ASKS_FOR_A_PAUSE or "cached" in response.flags:
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
        cut = f" (it asked for {format_duration(asked_s)})" if asked_s > longest_s else ""
        logger.info(
            "%s asks for a pause: nothing is asked there for %s%s",
            slot,
            format_duration(pause_s),
            cut,
            extra={"spider": self._crawler.spider},
        )

    def _slot_of(self, request: Request) -> str:
        assert self._crawler.engine is not None
        return self._crawler.engine.downloader.get_slot_key(request)
