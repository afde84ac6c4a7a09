"""One spider's link: the bound and who has which part of it, and what crossed it.

Scrapy builds its parts one by one from the crawler, so this is where they find each other.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable
from pathlib import Path
from weakref import WeakKeyDictionary

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.settings import BaseSettings
from scrapy.utils.project import data_path
from scrapy.utils.ssl import _make_ssl_context

from headway.crawl.bound import LinkBound
from headway.model.page import Site
from headway.policy.prediction import Prediction
from headway.scrapy.exchange import Answered
from headway.scrapy.fetcher import SpiderFetcher
from headway.scrapy.memory import ServerMemory
from headway.scrapy.neighbours import SpiderPacer
from headway.scrapy.settings import LinkSettings, read_settings
from headway.scrapy.sharing import Sharing
from headway.scrapy.tally import Tally
from headway.units import BytesPerSecond, Instant

_NEW_SERVER = BytesPerSecond(1_000_000.0)
_HELD_BACK = 0.1
"""A download held back for longer than this part of its time shows only that the server is no slower."""


class Link:
    def __init__(self, crawler: Crawler) -> None:
        self.opened_at = Instant(time.time())
        self.settings: LinkSettings = read_settings(self.opened_at, crawler.settings)
        self.bound = LinkBound(self.settings.timetable)
        self.bound.look(self.opened_at)
        self.pacer = SpiderPacer(self.bound.capacity_bytes_per_s)
        self.tally = Tally()
        self.prediction = Prediction(_NEW_SERVER, self.settings.calendar)
        self.sharing = Sharing(self.settings, self.prediction)
        self.waited_s = 0.0
        """Of all requests together, how long they waited for their turn on the link."""
        self.held_s = 0.0
        self.listener: Callable[[Request, Answered], None] | None = None
        """Who wants to hear of every answer."""
        self._memory = ServerMemory(Path(data_path(self.settings.folder)))
        self.prediction.restore(self._memory.load())
        self._context = _tls_context(crawler.settings)
        self._user_agent = str(crawler.settings.get("USER_AGENT") or "Scrapy")
        self._fetcher: SpiderFetcher | None = None

    @property
    def fetcher(self) -> SpiderFetcher:
        if self._fetcher is None:
            self._fetcher = SpiderFetcher(
                self.pacer,
                self._user_agent,
                self._context,
                allow_private=self.settings.allow_private,
            )
        return self._fetcher

    def set_limit(self, capacity_bytes_per_s: BytesPerSecond | None) -> None:
        """Somebody sets the bound from outside; None: as the settings say."""
        now = Instant(time.time())
        self.bound.set(now, capacity_bytes_per_s)
        if self.bound.look(now):
            self.pacer.set_capacity(self.bound.capacity_bytes_per_s)

    def look(self, now: Instant) -> None:
        """Once a second: follow the timetable, and share out what there is."""
        if self.bound.look(now):
            self.pacer.set_capacity(self.bound.capacity_bytes_per_s)
        rates = self.sharing.decide(now, self.tally, self.bound.capacity_bytes_per_s)
        if rates is not None:
            self.pacer.set_rates(rates)

    def answered(self, site: Site, answered: Answered) -> None:
        self.tally.answered(site, answered)
        self.waited_s += answered.waited_s
        self.held_s += answered.held_s
        if answered.peer and answered.wire_bytes and answered.duration_s > 0:
            own_s = max(answered.duration_s - answered.held_s, 1e-6)
            was_held = answered.waited_s + answered.held_s > _HELD_BACK * answered.duration_s
            self.prediction.learn(
                Instant(time.time()),
                self.tally.of(site).server,
                BytesPerSecond(answered.wire_bytes / own_s),
                held_back=was_held,
            )

    def remember(self) -> None:
        """Keep what was learnt of servers since the last time."""
        rows = list(self.prediction.changed_rows())
        if rows:
            self._memory.save(rows)

    async def aclose(self) -> None:
        if self._fetcher is not None:
            await self._fetcher.aclose()
        self.pacer.close()


def _tls_context(settings: BaseSettings) -> ssl.SSLContext:
    """As Scrapy's own settings have it: verification, versions, ciphers, key log."""
    context = _make_ssl_context(settings)
    context.set_alpn_protocols(["http/1.1"])
    return context


_links: WeakKeyDictionary[Crawler, Link] = WeakKeyDictionary()


def link_of(crawler: Crawler) -> Link:
    link = _links.get(crawler)
    if link is None:
        _links[crawler] = link = Link(crawler)
    return link
