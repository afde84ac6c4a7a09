"""What somebody who looks on asks every second: few rows, short transactions, nothing that grows with
the pages.

Beside a crawl that writes, reading never waits and never makes it wait.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from headway.model.page import Page, Site
from headway.store import rows
from headway.store.reader import RunDatabase

_LAST_PAGES = 5_000
"""Failures are looked for among the last so many pages: further back it would take long if they are rare."""

_SITES = """
    SELECT site.id, site, done, failed, excluded, coalesce(waiting, 0), wire_bytes, content_bytes,
           deadline_at, weight, CASE WHEN max_pages = 0 THEN 1 ELSE 0 END, started_at, ended_at, left_bytes,
           share_bytes_per_s, forecast_from_at, forecast_to_at
    FROM site LEFT JOIN task ON task.site_id = site.id
    WHERE task.site_id NOT NULL OR free_at NOT NULL ORDER BY site.id"""
_LAST_SAMPLES = """
    SELECT at, wire_bytes, capacity_bytes_per_s, predicted_bytes_per_s, in_flight, waiting, done, failed,
           coalesce(is_paused, 0)
    FROM sample WHERE id > (SELECT coalesce(max(id), 0) FROM sample) - ? ORDER BY id"""
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


class SampleNow(msgspec.Struct, frozen=True, gc=False):
    at: float
    wire_bytes: int
    capacity_bytes_per_s: float
    predicted_bytes_per_s: float | None
    in_flight: int | None
    waiting: int | None
    done: int | None
    failed: int | None
    is_paused: int


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


class Onlooker(RunDatabase):
    def __init__(self, run: Path) -> None:
        super().__init__(run)
        self._lock_path = self.path.with_name(self.path.name + "-lock")

    def sites(self) -> list[SiteNow]:
        return [SiteNow(*row) for row in self._all(_SITES)]

    def waiting(self) -> dict[int, int]:
        """How many pages of each site wait, by its number. Goes through all of them: not for every second."""
        return dict(self._all("SELECT site_id, count(*) FROM waiting GROUP BY site_id"))

    def last_samples(self, most: int) -> list[SampleNow]:
        return [SampleNow(*row) for row in self._all(_LAST_SAMPLES, (most,))]

    def outcomes(self) -> list[tuple[str, str, int]]:
        """State, kind and number of what was not fetched, most frequent first."""
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
        """Who crawls just now, as far as can be told."""
        pid = self.crawling_process()
        return [] if pid is None else [CollectorNow(f"process {pid}")]

    def crawling_process(self) -> int | None:
        """The process that last took the folder, if it is alive."""
        try:
            pid = int(self._lock_path.read_text(encoding="ascii"))
            os.kill(pid, 0)
        except PermissionError:
            return pid
        except (OSError, ValueError):
            return None
        return pid


def open_onlooker(run: Path | str) -> Onlooker:
    """Of a run folder, or of a crawl on a PostgreSQL server."""
    from headway.store.postgres.address import is_address

    if not is_address(str(run)):
        return Onlooker(Path(run))
    from headway.store.postgres.onlooker import PostgresOnlooker

    return PostgresOnlooker(str(run))
