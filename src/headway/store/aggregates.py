"""Sums over all the pages of a run, made by the database: no page becomes an object here.

For reports of runs with millions of pages. Each question is one pass over the table at most.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from headway.store import rows
from headway.store.reader import RunDatabase

_SITES = """
    SELECT site.id, site, done, failed, excluded, wire_bytes, content_bytes, deadline_at,
           coalesce(max_pages = 0, 0), started_at, ended_at, coalesce(waiting, 0), left_bytes
    FROM site LEFT JOIN task ON task.site_id = site.id
    WHERE task.site_id NOT NULL OR free_at NOT NULL ORDER BY site.id"""
_WAITING = "SELECT site_id, count(*) FROM waiting GROUP BY site_id"
_BUSY = "SELECT site_id, sum(duration_s), count(*) FROM page WHERE duration_s > 0 GROUP BY site_id"
_TYPES = """
    SELECT content_type, count(*), sum(content_bytes), sum(wire_bytes) FROM page
    WHERE state = 'done' AND kind <> 'redirect' AND content_bytes > 0
    GROUP BY content_type ORDER BY count(*) DESC"""
_STATUSES = "SELECT status, state, count(*) FROM page WHERE status > 0 GROUP BY status, state ORDER BY 3 DESC"
_TIMES = """
    SELECT CAST((settled_at - ?) / ? AS INTEGER) AS turn, count(*), sum(wire_bytes), sum(state = 'done')
    FROM page WHERE duration_s > 0 GROUP BY turn ORDER BY turn"""
# What was left out is told by the rule that left it out.
_OUTCOMES = """
    SELECT state, CASE WHEN reason = '' THEN kind ELSE reason END AS why, sum(pages) FROM outcome
    GROUP BY state, why ORDER BY 3 DESC"""
_SITE_OUTCOMES = """
    SELECT kind, sum(pages) FROM outcome WHERE site_id = ? AND state IN ('failed', 'waiting')
    GROUP BY kind ORDER BY 2 DESC"""
_COURSE = """
    SELECT at, wire_bytes, waiting, left_bytes, share_bytes_per_s, forecast_from_at, forecast_to_at
    FROM course WHERE site_id = ? ORDER BY at"""
_SAMPLES = "SELECT at, wire_bytes, capacity_bytes_per_s, predicted_bytes_per_s FROM sample ORDER BY id"
_PAGES = """
    SELECT id, key, depth, settled_at, links FROM page WHERE id > ? AND state = 'done' ORDER BY id LIMIT ?"""
_KEYS = "SELECT site_id, key FROM seen WHERE (site_id, key) > (?, ?) ORDER BY site_id, key LIMIT ?"
_URL = """
    SELECT site.site, coalesce(page.path, waiting.path)
    FROM site JOIN seen ON seen.site_id = site.id AND seen.key = ?
    LEFT JOIN page ON page.id = seen.page_id
    LEFT JOIN waiting ON waiting.site_id = seen.site_id AND waiting.place = seen.place
    LIMIT 1"""
_SLICE_ROWS = 20_000
_KEY_ROWS = 200_000


class SiteSums(msgspec.Struct, frozen=True, gc=False):
    number: int
    site: str
    done: int
    failed: int
    excluded: int
    wire_bytes: int
    content_bytes: int
    deadline_at: float | None
    is_stopped: int
    started_at: float | None
    ended_at: float | None
    waiting: int
    left_bytes: float | None


class CourseRow(NamedTuple):
    at: float
    wire_bytes: int
    waiting: int
    left_bytes: float | None
    share_bytes_per_s: float | None
    forecast_from_at: float | None
    forecast_to_at: float | None


class FetchedSlice(NamedTuple):
    """Some of the fetched pages, in the order of settling; `links` has the keys linked to, one after another,
    of which each page has `link_counts`."""

    keys: NDArray[np.int64]
    depths: NDArray[np.int64]
    settled_at: NDArray[np.float64]
    links: NDArray[np.int64]
    link_counts: NDArray[np.int64]


class RunSums(RunDatabase):
    def sites(self) -> list[SiteSums]:
        return [SiteSums(*row) for row in self._all(_SITES)]

    def waiting(self) -> dict[int, int]:
        """How many pages of each site wait, by its number."""
        return dict(self._all(_WAITING))

    def busy(self) -> dict[int, tuple[float, int]]:
        """How long each site was being asked, and how often it was."""
        return {number: (seconds, count) for number, seconds, count in self._all(_BUSY)}

    def types(self) -> list[tuple[str, int, int, int]]:
        """Media type, pages, bytes of content, bytes on the wire."""
        return [tuple(row) for row in self._all(_TYPES)]

    def statuses(self) -> list[tuple[int, str, int]]:
        return [tuple(row) for row in self._all(_STATUSES)]

    def by_time(self, from_at: float, length_s: float) -> list[tuple[int, int, int, int]]:
        """For each length of time: its number, answers, bytes and fetched pages."""
        return [tuple(row) for row in self._all(_TIMES, (from_at, length_s))]

    def outcomes(self) -> list[tuple[str, str, int]]:
        return [tuple(row) for row in self._all(_OUTCOMES)]

    def site_troubles(self, number: int) -> list[tuple[str, int]]:
        """Kinds of failed attempts at a site, most frequent first."""
        return [tuple(row) for row in self._all(_SITE_OUTCOMES, (number,))]

    def course(self, number: int) -> list[CourseRow]:
        return [CourseRow(*row) for row in self._all(_COURSE, (number,))]

    def samples(self) -> NDArray[np.float64]:
        """Rows of instant, bytes so far, capacity, prediction (NaN where there was none)."""
        found = self._all(_SAMPLES)
        return np.array([[np.nan if cell is None else cell for cell in row] for row in found]).reshape(-1, 4)

    def servers(self) -> int:
        return int(self._all("SELECT count(*) FROM server")[0][0])

    def seen_keys(self) -> NDArray[np.int64]:
        """Every page that is known, fetched or not; ascending."""
        parts = [np.empty(0, dtype=np.int64)]
        site_id, key = 0, -(1 << 63)
        while found := self._all(_KEYS, (site_id, key, _KEY_ROWS)):
            parts.append(np.array([each for _, each in found], dtype=np.int64))
            site_id, key = found[-1]
        return np.unique(np.concatenate(parts))

    def fetched(self) -> Iterator[FetchedSlice]:
        last = 0
        while found := self._all(_PAGES, (last, _SLICE_ROWS)):
            last = found[-1][0]
            blobs = [row[4] or b"" for row in found]
            yield FetchedSlice(
                np.array([row[1] for row in found], dtype=np.int64),
                np.array([row[2] for row in found], dtype=np.int64),
                np.array([row[3] for row in found], dtype=np.float64),
                np.frombuffer(b"".join(blobs), dtype="<i8"),
                np.array([len(blob) // 8 for blob in blobs], dtype=np.int64),
            )

    def url_of(self, key: int) -> str | None:
        """Reads through all sites: for a few keys only."""
        found = self._all(_URL, (key,))
        return rows.url_of(found[0][1], found[0][0]) if found and found[0][1] is not None else None
