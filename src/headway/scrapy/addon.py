"""The Scrapy add-on, which puts headway's components into the project's settings, and the extension among
them, which counts a spider's requests, updates rates once a second, and writes log lines and stats."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from scrapy.core.scheduler import Scheduler
from scrapy.exceptions import NotConfigured
from scrapy.pqueues import DownloaderAwarePriorityQueue
from scrapy.utils.misc import load_object

from headway.scrapy.handler import HeadwayDownloadHandler
from headway.scrapy.link import SettingsError, read_settings
from headway.scrapy.scheduler import (
    HoldAwarePriorityQueue,
    RetryAfterMiddleware,
    StoreDupeFilter,
    StoreFifoQueue,
    StoreLifoQueue,
    StoreScheduler,
)
from headway.units import Instant

if TYPE_CHECKING:
    from scrapy.settings import BaseSettings

import datetime as dt
import logging
import math
from collections.abc import Callable
from typing import Self

from scrapy import Request, Spider, signals
from scrapy.crawler import Crawler
from scrapy.utils.asyncio import create_looping_call

from headway.http.models import TargetError
from headway.model.page import Site
from headway.scrapy.fetcher import destination_of, split_url
from headway.scrapy.link import link_of
from headway.store.reader import Sample
from headway.units import format_duration, format_rate, format_size
from headway.view.link import LinkMeter

_NEAREST_THE_DOWNLOADER = 990
"""The middleware's place: it sees responses before RetryMiddleware turns them into requests, and does not see
those from the cache."""
_STORE_CLASSES: dict[str, tuple[str, type]] = {
    "SCHEDULER_DISK_QUEUE": ("scrapy.squeues.PickleLifoDiskQueue", StoreLifoQueue),
    "SCHEDULER_START_DISK_QUEUE": ("scrapy.squeues.PickleFifoDiskQueue", StoreFifoQueue),
    "DUPEFILTER_CLASS": ("scrapy.dupefilters.RFPDupeFilter", StoreDupeFilter),
}


class Addon:
    """`ADDONS = {"headway.scrapy.Addon": 500}`; HEADWAY_ENABLED = False switches it off."""

    @classmethod
    def update_pre_crawler_settings(cls, settings: BaseSettings) -> None:
        """Report a mistake in the settings as one line instead of a traceback when run by the command
        `scrapy`."""
        is_command = Path(sys.argv[0]).name == "scrapy" or sys.argv[0].endswith("scrapy/__main__.py")
        if is_command and settings.getbool("HEADWAY_ENABLED", True):
            try:
                read_settings(Instant(time.time()), settings)
            except SettingsError as problem:
                sys.exit(str(problem))

    def update_settings(self, settings: BaseSettings) -> None:
        if not settings.getbool("HEADWAY_ENABLED", True):
            raise NotConfigured("HEADWAY_ENABLED is off")
        # Checked here, so that a mistake ends the command before the spider starts.
        read_settings(Instant(time.time()), settings)
        for scheme in ("http", "https"):
            settings["DOWNLOAD_HANDLERS"].set(scheme, HeadwayDownloadHandler, "addon")
        settings.setdefault_in_component_priority_dict("EXTENSIONS", HeadwayExtension, 0)
        settings.setdefault_in_component_priority_dict(
            "DOWNLOADER_MIDDLEWARES", RetryAfterMiddleware, _NEAREST_THE_DOWNLOADER
        )
        # A queue class of the project is kept. Requests to a site on hold then wait in the downloader.
        if load_object(settings["SCHEDULER_PRIORITY_QUEUE"]) is DownloaderAwarePriorityQueue:
            settings.set("SCHEDULER_PRIORITY_QUEUE", HoldAwarePriorityQueue, "addon")
        if settings.get("JOBDIR") and load_object(settings["SCHEDULER"]) is Scheduler:
            self._store_requests(settings)

    def _store_requests(self, settings: BaseSettings) -> None:
        """Store the job's requests so that they survive a kill, unless the project has queue classes of its
        own."""
        replaced = _STORE_CLASSES.items()
        if any(load_object(settings[name]) is not load_object(usual) for name, (usual, _) in replaced):
            return
        for name, (_, ours) in replaced:
            settings.set(name, ours, "addon")
        settings.set("SCHEDULER", StoreScheduler, "addon")


logger = logging.getLogger(__name__)

_EVERY_S = 1.0


class HeadwayExtension:
    """Put into `EXTENSIONS` by the add-on."""

    def __init__(self, crawler: Crawler) -> None:
        assert crawler.stats is not None
        self._stats = crawler.stats
        self._link = link_of(crawler)
        self._meter = LinkMeter()
        self._log_at = math.inf
        self._warned_of: set[Site] = set()
        self._spider: Spider | None = None
        self._loop = create_looping_call(self._each_second)
        counters = self._link.counters
        for signal, note in (
            (signals.request_scheduled, counters.scheduled),
            (signals.request_dropped, counters.dropped),
            (signals.request_reached_downloader, counters.started),
            (signals.request_left_downloader, counters.ended),
        ):
            crawler.signals.connect(_by_site(note), signal=signal, weak=False)
        crawler.signals.connect(self.spider_opened, signal=signals.spider_opened)
        crawler.signals.connect(self.spider_closed, signal=signals.spider_closed)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def spider_opened(self, spider: Spider) -> None:
        self._spider = spider
        now = time.time()
        if self._link.settings.log_every_s:
            self._log_at = now + self._link.settings.log_every_s
        capacity = self._link.bound.capacity_bytes_per_s
        logger.info(
            "headway: bound %s, deadline %s",
            format_rate(capacity),
            self._deadline(),
            extra={"spider": spider},
        )
        self._loop.start(_EVERY_S)

    def spider_closed(self, spider: Spider) -> None:
        if self._loop.running:
            self._loop.stop()
        self._sample(Instant(time.time()))
        self._set_stats()
        self._link.save_learned()

    def _each_second(self) -> None:
        now = Instant(time.time())
        self._sample(now)
        self._link.update(now)
        self._warn_of_late_sites()
        if now >= self._log_at:
            self._log_at = now + self._link.settings.log_every_s
            self._set_stats()
            self._link.save_learned()
            logger.info("headway: %s", self._line(now), extra={"spider": self._spider})

    def _sample(self, now: Instant) -> None:
        self._meter.add(Sample(now, self._link.pacer.received_bytes, self._link.bound.capacity_bytes_per_s))

    def _set_stats(self) -> None:
        """Set the spider's stats whose names begin with `headway/`."""
        link, figures = self._link, self._meter.figures
        self._stats.set_value("headway/wire_bytes", link.pacer.received_bytes)
        self._stats.set_value("headway/wire_bytes_sent", link.pacer.sent_bytes)
        self._stats.set_value("headway/peak_bytes_per_s", round(figures.max_bytes_per_s))
        self._stats.set_value("headway/mean_bytes_per_s", round(figures.mean_bytes_per_s))
        self._stats.set_value("headway/waited_s", round(link.waited_s, 3))
        self._stats.set_value("headway/held_s", round(link.held_s, 3))
        self._stats.set_value("headway/servers_known", len(link.prediction))
        capacity = link.bound.capacity_bytes_per_s
        if math.isfinite(capacity):
            self._stats.set_value("headway/bound_bytes_per_s", round(capacity))
            self._stats.set_value("headway/seconds_over_bound", figures.seconds_over_bound)
        for site in link.counters:
            self._stats.set_value(f"headway/site/{site.site}/wire_bytes", site.wire_bytes)
            self._stats.set_value(f"headway/site/{site.site}/answers", site.answers)
        deadlines = [
            due for each in link.counters if (due := link.sharing.deadline_of(each.site)) is not None
        ]
        if deadlines:
            self._stats.set_value("headway/deadline_at", max(deadlines))
            self._stats.set_value("headway/deadline_met", time.time() <= min(deadlines))

    def _warn_of_late_sites(self) -> None:
        for site in self._link.sharing.late():
            # A prediction from a few answers is too uncertain for a warning.
            if site not in self._warned_of and self._link.counters.of(site).answers >= 10:
                self._warned_of.add(site)
                self._stats.inc_value("headway/foreseen_late")
                logger.warning(
                    "headway: %s will probably miss its deadline",
                    site,
                    extra={"spider": self._spider},
                )

    def _line(self, now: Instant) -> str:
        link = self._link
        rate, capacity = self._meter.figures.rate_bytes_per_s, link.bound.capacity_bytes_per_s
        bound = f" of {format_rate(capacity)} ({rate / capacity:.0%})" if math.isfinite(capacity) else ""
        busy = sum(each.is_busy for each in link.counters)
        waiting = sum(each.waiting for each in link.counters)
        parts = [
            f"{format_rate(rate)}{bound}",
            f"{format_size(link.pacer.received_bytes)} so far",
            f"{busy} active sites, {waiting} requests waiting",
        ]
        ends_at = link.sharing.ends_at()
        if ends_at is not None:
            parts.append(f"done in about {format_duration(max(0.0, ends_at - now))}")
        deadline = self._deadline()
        if deadline != "none":
            parts.append(f"deadline {deadline}")
        return "; ".join(parts)

    def _deadline(self) -> str:
        due = self._link.settings.deadline_at
        if due is None:
            return "none"
        return dt.datetime.fromtimestamp(due, self._link.settings.timetable.zone).strftime(
            "%Y-%m-%d %H:%M:%S"
        )


def _by_site(note: Callable[[Site], None]) -> Callable[[Request], None]:
    """A receiver of Scrapy's signals about requests that calls `note` with the site of the request."""

    def receive(request: Request) -> None:
        try:
            site = destination_of(split_url(request.url)[0]).site
        except TargetError:
            return  # a file: or data: URL, which does not use the link
        note(site)

    return receive
