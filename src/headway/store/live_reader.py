"""The queries of a display that is updated every second: few rows, short transactions, and a cost that does
not grow with the pages.

Beside a crawl that writes, reading never waits and never delays the crawl.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from headway.engine.outages import REACHABLE_AGAIN, UNREACHABLE_SINCE
from headway.engine.start_pages import FETCHED, LEADS_OUT, NOT_FETCHED, REDIRECTS
from headway.model.page import Page, Site
from headway.store import rows
from headway.store.reader import RunDatabase

_LAST_PAGES = 5_000
"""Failures are searched among this many of the last pages: a longer search would be slow if they are rare."""

_SITES = """
    SELECT site.id, site, done, failed, excluded, coalesce(waiting, 0), wire_bytes, content_bytes,
           deadline_at, weight, CASE WHEN max_pages = 0 THEN 1 ELSE 0 END, started_at, ended_at, left_bytes,
           share_bytes_per_s, forecast_from_at, forecast_to_at, forecast_at, deadline_chance,
           -- At most twenty redirects follow one another: of more pages one was fetched.
           CASE WHEN done > 20 OR EXISTS (
               SELECT 1 FROM outcome
               WHERE outcome.site_id = site.id AND outcome.state = 'done' AND outcome.kind <> 'redirect'
           ) THEN 1 ELSE 0 END
    FROM site LEFT JOIN task ON task.site_id = site.id
    WHERE task.site_id NOT NULL OR free_at NOT NULL
          OR EXISTS (SELECT 1 FROM waiting WHERE waiting.site_id = site.id)
    ORDER BY site.id"""
_NOTICES = """
    SELECT site_id, what, subject, noticed_at FROM notice
    WHERE what IN (?, ?, ?, ?, ?, ?) ORDER BY noticed_at"""
_WAITING = """
    SELECT site_id, count(*) FILTER (WHERE attempt >= 0 OR retry_at IS NULL) FROM waiting GROUP BY site_id"""
_OUTCOMES = """
    SELECT state, kind, sum(pages) FROM outcome WHERE state IN ('failed', 'waiting', 'excluded')
    GROUP BY state, kind ORDER BY sum(pages) DESC"""
_FAILURES = """
    SELECT site.site, path, kind, status, detail, settled_at FROM page JOIN site ON site.id = page.site_id
    WHERE state = 'failed' AND page.id > (SELECT coalesce(max(id), 0) FROM page) - ?
    ORDER BY page.id DESC LIMIT ?"""
_PASSED_OVER = """
    SELECT page.path, seen.key, page.depth
    FROM seen JOIN page ON page.id = seen.page_id
    WHERE seen.site_id = (SELECT id FROM site WHERE site = ?) AND page.kind = 'out-of-scope'
    ORDER BY page.id LIMIT ?"""


class SiteNow(msgspec.Struct, frozen=True, gc=False):
    number: int
    site: str
    done: int
    failed: int
    excluded: int
    waiting: int
    wire_bytes: int
    content_bytes: int
    deadline_at: float | None
    weight: float | None
    is_stopped: int
    started_at: float | None
    ended_at: float | None
    left_bytes: float | None
    share_bytes_per_s: float | None
    forecast_from_at: float | None
    forecast_to_at: float | None
    forecast_at: float | None = None
    deadline_chance: float | None = None
    has_content: int = 1
    """Whether a page was fetched, redirects not counted."""
    leads_to: str = ""
    """The page of another site to which its first page redirects; that site has its task."""
    start_problem: str = ""
    """Why its first page was not fetched."""
    down_since: float | None = None
    """When its server was found in trouble; None while it works."""


class CourseRow(msgspec.Struct, frozen=True, gc=False):
    at: float
    wire_bytes: int
    waiting: int
    left_bytes: float | None
    share_bytes_per_s: float | None
    forecast_from_at: float | None
    forecast_to_at: float | None


class CollectorNow(msgspec.Struct, frozen=True, gc=False):
    """A process that crawls."""

    name: str
    label: str = ""
    joined_at: float | None = None
    sites: int = 0
    received_bytes: int = 0


class Failure(msgspec.Struct, frozen=True, gc=False):
    url: str
    kind: str
    status: int
    detail: str
    at: float


class LiveReader(RunDatabase):
    def __init__(self, run: Path) -> None:
        super().__init__(run)
        self._lock_path = self.path.with_name(self.path.name + "-lock")

    def sites(self) -> list[SiteNow]:
        told: dict[int, dict[str, Any]] = {}
        for number, what, subject, at in self._all(_NOTICES, _NOTICED):
            told.setdefault(number, {}).update(_fact_of(what, subject, at))
        return [
            structs.replace(site, **told[site.number]) if site.number in told else site
            for site in (SiteNow(*row) for row in self._all(_SITES))
        ]

    def waiting(self) -> dict[int, int]:
        """The number of pages to be fetched of each site, by the site's number, without pages that wait for
        the day of their next visit. Reads all waiting pages: not for every second."""
        return dict(self._all(_WAITING))

    def outcomes(self) -> list[tuple[str, str, int]]:
        """State, kind and number of pages that were not fetched, most frequent first."""
        return [(state, kind, count) for state, kind, count in self._all(_OUTCOMES)]

    def site_outcomes(self, number: int) -> list[tuple[str, str, int]]:
        query = "SELECT state, kind, sum(pages) FROM outcome WHERE site_id = ? GROUP BY 1, 2 ORDER BY 3 DESC"
        return [(state, kind, count) for state, kind, count in self._all(query, (number,))]

    def course(self, number: int) -> list[CourseRow]:
        query = """
            SELECT at, wire_bytes, waiting, left_bytes, share_bytes_per_s, forecast_from_at, forecast_to_at
            FROM course WHERE site_id = ? ORDER BY at"""
        return [CourseRow(*row) for row in self._all(query, (number,))]

    def last_failures(self, most: int) -> list[Failure]:
        found = self._all(_FAILURES, (_LAST_PAGES, most))
        return [Failure(rows.url_of(path, site), *rest) for site, path, *rest in found]

    def passed_over(self, site: Site, most: int) -> list[Page]:
        """Pages of a site that were out of scope when they were found, in that order."""
        found = self._all(_PASSED_OVER, (site, most))
        return [Page(rows.url_of(path, site), site, key, depth) for path, key, depth in found]

    @property
    def name(self) -> str:
        return self.path.parent.resolve().name

    def collectors(self) -> list[CollectorNow]:
        """The process that crawls now, if it can be determined."""
        pid = self.crawling_process()
        return [] if pid is None else [CollectorNow(f"process {pid}")]

    def crawling_process(self) -> int | None:
        """The process that last opened the folder for writing, if it is alive."""
        try:
            pid = int(self._lock_path.read_text(encoding="ascii"))
            os.kill(pid, 0)
        except PermissionError:
            return pid
        except (OSError, ValueError):
            return None
        return pid


_NOTICED = (REDIRECTS, LEADS_OUT, NOT_FETCHED, FETCHED, UNREACHABLE_SINCE, REACHABLE_AGAIN)


def _fact_of(what: str, subject: str, at: float) -> dict[str, Any]:
    """What the last notice of a kind says about its site."""
    if what == REDIRECTS:
        return {"leads_to": subject}
    if what in {UNREACHABLE_SINCE, REACHABLE_AGAIN}:
        return {"down_since": at if what == UNREACHABLE_SINCE else None}
    return {"start_problem": "" if what == FETCHED else f"{what}: {subject}"}


def open_live_reader(run: Path | str) -> LiveReader:
    """For a run folder, or a crawl on a PostgreSQL server."""
    from headway.store.postgres.connection import is_address

    if not is_address(str(run)):
        return LiveReader(Path(run))
    from headway.store.postgres.reader import PostgresOnlooker

    return PostgresOnlooker(str(run))
