"""Follows a spider from its opening to its end: counts, shares out once a second, tells, remembers."""

from __future__ import annotations

import datetime as dt
import logging
import math
import time
from collections.abc import Callable
from typing import Self

from scrapy import Request, Spider, signals
from scrapy.crawler import Crawler
from scrapy.utils.asyncio import create_looping_call

from headway.fetch.target import TargetError
from headway.model.page import Site
from headway.scrapy.exchange import place_of, split_url
from headway.scrapy.link import link_of
from headway.scrapy.samples import LinkSamples
from headway.units import Instant, format_duration, format_rate, format_size

logger = logging.getLogger(__name__)

_EVERY_S = 1.0


class HeadwayExtension:
    def __init__(self, crawler: Crawler) -> None:
        assert crawler.stats is not None
        self._stats = crawler.stats
        self._link = link_of(crawler)
        self._samples = LinkSamples()
        self._log_at = math.inf
        self._told_late: set[Site] = set()
        self._spider: Spider | None = None
        self._loop = create_looping_call(self._each_second)
        tally = self._link.tally
        for signal, note in (
            (signals.request_scheduled, tally.scheduled),
            (signals.request_dropped, tally.dropped),
            (signals.request_reached_downloader, tally.started),
            (signals.request_left_downloader, tally.ended),
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
        self._count()
        self._link.remember()

    def _each_second(self) -> None:
        now = Instant(time.time())
        self._sample(now)
        self._link.look(now)
        self._warn_of_lateness()
        if now >= self._log_at:
            self._log_at = now + self._link.settings.log_every_s
            self._count()
            self._link.remember()
            logger.info("headway: %s", self._line(now), extra={"spider": self._spider})

    def _sample(self, now: Instant) -> None:
        self._samples.add(now, self._link.pacer.received_bytes, self._link.bound.capacity_bytes_per_s)

    def _count(self) -> None:
        """Under `headway/` in the spider's stats."""
        link, samples = self._link, self._samples
        self._stats.set_value("headway/wire_bytes", link.pacer.received_bytes)
        self._stats.set_value("headway/wire_bytes_sent", link.pacer.sent_bytes)
        self._stats.set_value("headway/peak_bytes_per_s", round(samples.peak_bytes_per_s))
        self._stats.set_value("headway/mean_bytes_per_s", round(samples.mean_bytes_per_s))
        self._stats.set_value("headway/waited_s", round(link.waited_s, 3))
        self._stats.set_value("headway/held_s", round(link.held_s, 3))
        self._stats.set_value("headway/servers_known", len(link.prediction))
        capacity = link.bound.capacity_bytes_per_s
        if math.isfinite(capacity):
            self._stats.set_value("headway/bound_bytes_per_s", round(capacity))
            self._stats.set_value("headway/seconds_over_bound", samples.seconds_over)
        for tally in link.tally:
            self._stats.set_value(f"headway/site/{tally.site}/wire_bytes", tally.wire_bytes)
            self._stats.set_value(f"headway/site/{tally.site}/answers", tally.answers)
        deadlines = [due for tally in link.tally if (due := link.sharing.deadline_of(tally.site)) is not None]
        if deadlines:
            self._stats.set_value("headway/deadline_at", max(deadlines))
            self._stats.set_value("headway/deadline_met", time.time() <= min(deadlines))

    def _warn_of_lateness(self) -> None:
        for site in self._link.sharing.late():
            tally = self._link.tally.of(site)
            # What is hardly known is not judged.
            if site not in self._told_late and tally.answers >= 10:
                self._told_late.add(site)
                self._stats.inc_value("headway/foreseen_late")
                logger.warning(
                    "headway: %s will not be done by its deadline, as far as is known",
                    site,
                    extra={"spider": self._spider},
                )

    def _line(self, now: Instant) -> str:
        link, samples = self._link, self._samples
        rate, capacity = samples.rate_bytes_per_s, link.bound.capacity_bytes_per_s
        bound = f" of {format_rate(capacity)} ({rate / capacity:.0%})" if math.isfinite(capacity) else ""
        busy = sum(tally.is_busy for tally in link.tally)
        waiting = sum(tally.waiting for tally in link.tally)
        parts = [
            f"{format_rate(rate)}{bound}",
            f"{format_size(link.pacer.received_bytes)} so far",
            f"{busy} sites at work, {waiting} requests waiting",
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
    """From Scrapy's signal about a request to the book of its site."""

    def told(request: Request) -> None:
        try:
            site = place_of(split_url(request.url)[0]).site
        except TargetError:
            return  # a file, or data: nothing that crosses the link
        note(site)

    return told
