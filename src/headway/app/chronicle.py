"""What a crawl writes down of itself while it runs: the whole each second, each site now and then.

The longer a crawl has lasted, the further apart a site's rows lie, so that they grow by the logarithm of
time; and no second writes more than so many, so that looking on costs the crawl next to nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush
from itertools import islice

from headway.crawl.ledger import SiteBook
from headway.crawl.machine import Crawl
from headway.model.page import Site
from headway.store.course import Gauges, SiteCourse
from headway.units import Instant

_ROWS_A_SECOND = 150
_PART_OF_ELAPSED = 0.05
_LEAST_S = 1.0


class Chronicle:
    def __init__(self, crawl: Crawl) -> None:
        self._crawl = crawl
        self._due: list[tuple[Instant, int, Site]] = []
        self._known = 0
        self._began_at: Instant | None = None
        self._stamps: dict[Site, tuple[object, ...]] = {}

    def gauges(self, now: Instant) -> Gauges:
        crawl = self._crawl
        return Gauges(
            self._predicted(now),
            crawl.in_flight,
            crawl.frontier.waiting,
            crawl.ledger.done,
            crawl.ledger.failed,
            crawl.bound.is_paused,
        )

    def course(self, now: Instant) -> list[SiteCourse]:
        """The sites whose turn it is, as they are now."""
        if self._began_at is None:
            self._began_at = now
        self._take_in_new(now)
        pause_s = max(_LEAST_S, _PART_OF_ELAPSED * (now - self._began_at))
        turns = 0
        sites = []
        while self._due and turns < _ROWS_A_SECOND and self._due[0][0] <= now:
            _, number, site = heappop(self._due)
            heappush(self._due, (Instant(now + pause_s), number, site))
            sites.append(site)
            turns += 1
        return self._rows(now, sites)

    def end(self, now: Instant) -> list[SiteCourse]:
        """Every site that has changed since its last row."""
        return self._rows(now, self._crawl.ledger.books)

    def _rows(self, now: Instant, sites: Iterable[Site]) -> list[SiteCourse]:
        books = self._crawl.ledger.books
        return [row for site in sites if (row := self._row(now, books[site])) is not None]

    def _take_in_new(self, now: Instant) -> None:
        books = self._crawl.ledger.books
        for site in islice(books, self._known, None):
            self._known += 1
            heappush(self._due, (now, self._known, site))

    def _row(self, now: Instant, book: SiteBook) -> SiteCourse | None:
        """None where nothing has changed since the last row."""
        crawl, steward, site = self._crawl, self._crawl.steward, book.site
        waiting = crawl.frontier.room(site).waiting
        share = steward.share_of(site) or 0.0 if steward is not None else None
        stamp = (book.answers, waiting, book.in_flight, share, book.task)
        is_over = not waiting and not book.in_flight
        # The forecast of a site that waits moves with what the others do.
        if self._stamps.get(site) == stamp and (is_over or steward is None):
            return None
        self._stamps[site] = stamp
        if steward is None or is_over:
            return SiteCourse(site, now, book.wire_bytes, waiting, 0.0 if is_over else None)
        ends = steward.range_of(now, book, crawl.frontier) or (None, None)
        return SiteCourse(site, now, book.wire_bytes, waiting, steward.left_of(site), share, *ends)

    def _predicted(self, now: Instant) -> float | None:
        steward = self._crawl.steward
        if steward is None:
            return None
        predict, book = steward.prediction.predict, self._crawl.ledger.book
        total = sum(predict(now, book(page.site).server) for page in self._crawl.leases.under_way())
        return min(total, self._crawl.bound.capacity_bytes_per_s)
