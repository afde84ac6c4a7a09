"""What became of the spiders' pages, in the run folder's database: so that `headway status`, `report` and
`serve` show a run of `headway run-scrapy` like any other crawl."""

from __future__ import annotations

import time
from collections.abc import Iterable

from headway.fetch.peak import SLOT_S
from headway.model.command import PageState, SaveSettled, SaveSite, Saving
from headway.model.outcome import SUCCESS, Kind, Outcome
from headway.model.page import Page, Site
from headway.parse.url import page_of
from headway.scrapy.neighbours import Neighbours
from headway.scrapy.worker import Answer
from headway.store.course import Gauges, SiteCourse
from headway.store.sqlite import SqliteStore
from headway.units import BytesPerSecond, Instant

_SAMPLE_EVERY_S = 1.0
_SETTLES_S = 0.2
"""So long after an instant everybody has told what arrived until then."""
_AT_A_TIME = 1000
_NOT_ASKED_FOR = Outcome(Kind.OUT_OF_SCOPE, detail="the spider did not ask for it")


class Ledger:
    def __init__(self, store: SqliteStore, neighbours: Neighbours) -> None:
        self._store = store
        self._neighbours = neighbours
        self._batch: list[Saving] = []
        self._wire_bytes = 0.0
        self._slot = int(time.monotonic() / SLOT_S)
        self._sampled_slot = self._slot
        self._courses: dict[Site, SiteCourse] = {}
        self._done = self._failed = 0

    def begin(self, now: Instant, sites: Iterable[Site]) -> None:
        self._batch += [SaveSite(site, now, 0) for site in sites]

    def note(self, news: Iterable[Answer]) -> None:
        """A request that Scrapy tries again is settled again: the last word counts."""
        for answer in news:
            page = page_of(answer.url, depth=answer.depth)
            if page is None:
                continue
            outcome = answer.outcome
            if page.url == f"{page.site}/robots.txt":
                self._batch.append(SaveSite(page.site, answer.at, 0, robots_bytes=outcome.wire_bytes))
                continue
            state = PageState.DONE if outcome.kind in SUCCESS else PageState.FAILED
            self._done += state is PageState.DONE
            self._failed += state is PageState.FAILED
            self._batch.append(SaveSettled(page, outcome, state, 1, answer.at))

    def end(self, now: Instant, site: Site) -> None:
        """Its spider has finished: what it did not ask for, nobody will."""
        self.commit()
        while waiting := self._store.first_waiting(site, _AT_A_TIME):
            self._store.commit([_passed_over(now, record.page) for record in waiting], {})
        self._batch.append(SaveSite(site, now, 0, ended_at=now))

    def look(self, courses: Iterable[SiteCourse]) -> None:
        """Take the link's count, before the crawlers' rows forget it; save about once a second."""
        to_slot = int((time.monotonic() - _SETTLES_S) / SLOT_S)
        if to_slot > self._slot:
            self._wire_bytes += self._neighbours.arrived_bytes(self._slot, to_slot)
            self._slot = to_slot
        self._courses |= {course.site: course for course in courses}
        if (to_slot - self._sampled_slot) * SLOT_S >= _SAMPLE_EVERY_S:
            self._sampled_slot = to_slot
            self._sample(Instant(time.time() - _SETTLES_S))
            self.commit()

    def commit(self) -> None:
        self._store.commit(self._batch, {})
        self._batch = []

    def close(self) -> None:
        self._sample(Instant(time.time()))
        self.commit()
        self._store.close()

    def _sample(self, at: Instant) -> None:
        courses = list(self._courses.values())
        self._courses = {}
        waiting = sum(course.waiting for course in courses)
        gauges = Gauges(None, None, waiting, self._done, self._failed)
        bound = BytesPerSecond(self._neighbours.bound_bytes_per_s)
        self._store.record_sample(at, round(self._wire_bytes), bound, gauges, courses)


def _passed_over(now: Instant, page: Page) -> SaveSettled:
    return SaveSettled(page, _NOT_ASKED_FOR, PageState.EXCLUDED, 0, now)
