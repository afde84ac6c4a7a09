"""Sites that asked to be left alone, and a queue that lets the others pass meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from weakref import WeakKeyDictionary

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.pqueues import DownloaderAwarePriorityQueue

WAITED_FOR_S = 5.0
"""A pause up to this long is waited for in the downloader: the engine looks into its queue that often."""


class SiteOnHoldError(Exception):
    """The request was on its way to a site that has just asked for a pause; it goes back into the queue."""


class Holds:
    """By downloader slot (a host, as a rule), until when nothing is to be asked there."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._until: dict[str, float] = {}

    def hold(self, slot: str, seconds: float) -> None:
        self._until[slot] = max(self._now_s() + seconds, self._until.get(slot, 0.0))

    def left_s(self, slot: str) -> float:
        """How long the slot is still to be left alone."""
        if not self._until:
            return 0.0
        left_s = self._until.get(slot, 0.0) - self._now_s()
        if left_s <= 0:
            self._until.pop(slot, None)
        return max(0.0, left_s)

    async def wait(self, slot: str) -> None:
        """Until a short pause is over; SiteOnHoldError when it is a long one."""
        left_s = self.left_s(slot)
        if left_s > WAITED_FOR_S:
            raise SiteOnHoldError(slot)
        if left_s > 0:
            await asyncio.sleep(left_s)


_holds_by_crawler: WeakKeyDictionary[Crawler, Holds] = WeakKeyDictionary()


def holds_of(crawler: Crawler) -> Holds:
    return _holds_by_crawler.setdefault(crawler, Holds())


class PatientPriorityQueue(DownloaderAwarePriorityQueue):
    """Scrapy's own queue, but for the slots on hold, whose requests stay where they are."""

    def pop(self) -> Request | None:
        holds = holds_of(self.crawler)
        held = {slot: queue for slot, queue in self.pqueues.items() if holds.left_s(slot) > WAITED_FOR_S}
        if not held:
            return super().pop()
        everyone = self.pqueues
        self.pqueues = {slot: queue for slot, queue in everyone.items() if slot not in held}
        try:
            return super().pop()
        finally:
            self.pqueues = {**self.pqueues, **held}
