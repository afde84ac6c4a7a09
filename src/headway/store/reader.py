"""Reads a run without disturbing it: sums, sites, outcomes, samples, settled pages, and what it learnt about
its sites."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from headway.archive.files import clear_errors
from headway.errors import StoreError
from headway.model.page import PageKey, Site
from headway.planning.estimate import Knowledge, SiteFacts
from headway.store import rows, schema
from headway.store import schema as sql
from headway.units import Instant

# Each query is a short transaction of its own, so that a running crawl can always check-point its write-ahead
# log; long lists are read in slices.

DATABASE = "crawl.sqlite"
_SLICE_ROWS = 5000
_SAMPLES = """
    SELECT at, wire_bytes, capacity_bytes_per_s, predicted_bytes_per_s, in_flight, waiting, done, failed,
           coalesce(is_paused, 0), id, forecast_from_at, forecast_at, forecast_to_at
    FROM sample WHERE id > ? ORDER BY id LIMIT ?"""


class SiteRow(msgspec.Struct, frozen=True, gc=False):
    site: str
    done: int
    failed: int
    excluded: int
    waiting: int
    wire_bytes: int
    content_bytes: int
    deadline_at: float | None
    """None also for a site without a task."""
    started_at: float | None
    ended_at: float | None
    free_at: float | None


class Totals(msgspec.Struct, frozen=True, gc=False):
    sites: int
    known: int
    waiting: int
    done: int
    failed: int
    excluded: int
    wire_bytes: int
    content_bytes: int


class OutcomeCount(msgspec.Struct, frozen=True, gc=False):
    """Attempts with the same result. Those in state `waiting` were to be retried."""

    state: str
    kind: str
    reason: str
    count: int


class Sample(msgspec.Struct, frozen=True, gc=False):
    """The link at an instant; `view.link` says how samples become rates."""

    at: float
    wire_bytes: int
    """All bytes received until then, since the start of the crawling process."""
    capacity_bytes_per_s: float
    """The bound from this instant on; infinite without one."""
    predicted_bytes_per_s: float | None = None
    in_flight: int | None = None
    waiting: int | None = None
    """None if no single process knows all waiting pages: a crawl by several."""
    done: int | None = None
    failed: int | None = None
    is_paused: int = 0
    number: int = 0
    """Later samples have higher numbers."""
    forecast_from_at: float | None = None
    forecast_at: float | None = None
    forecast_to_at: float | None = None


class PageRow(msgspec.Struct, frozen=True, gc=False):
    """A settled page. `digest` is of its content, `payload_digest` of the archived payload."""

    number: int
    url: str
    site: str
    key: PageKey
    depth: int
    state: str
    attempt: int
    kind: str
    status: int
    wire_bytes: int
    content_bytes: int
    content_type: str
    digest: str
    settled_at: float
    fetched_at: float
    duration_s: float
    detail: str
    warc_file: str | None
    warc_offset: int | None
    warc_length: int | None
    payload_digest: str
    record_type: str | None


def database_of(run: Path) -> Path:
    """The database of a run, given its folder or the `crawl.sqlite` in it; StoreError says what is wrong with
    other paths."""
    with clear_errors(run):
        if run.is_dir():
            path = run / DATABASE
            if not path.is_file():
                raise StoreError(
                    f"{run}: not a run folder (it has no {DATABASE}); give the run folder of a crawl"
                )
            return path
        if not run.exists():
            raise StoreError(f"{run}: there is no such folder; give the run folder of a crawl")
    if run.name != DATABASE:
        raise StoreError(f"{run}: a file, but not the database of a crawl; give the run folder of a crawl")
    return run


class FetchedSlice(NamedTuple):
    """Some of the fetched pages, in the order of settling; `links` has the keys of linked pages,
    concatenated, and `link_counts` the number of each page."""

    keys: NDArray[np.int64]
    depths: NDArray[np.int64]
    settled_at: NDArray[np.float64]
    links: NDArray[np.int64]
    link_counts: NDArray[np.int64]


class RunDatabase:
    """The base of readers of a run folder: its database, opened for reading only."""

    def __init__(self, run: Path) -> None:
        self.path = database_of(run)
        self._connection = schema.open_for_reading(self.path)

    def crawl(self) -> tuple[float, dict[str, Any]]:
        """When the crawl was begun, and its job at that time."""
        row = self._all("SELECT started_at, job FROM crawl")
        if not row:
            raise StoreError(f"{self.path}: the crawl was stopped before it started; start it again")
        try:
            return row[0][0], msgspec.json.decode(row[0][1], type=dict[str, Any])
        except (msgspec.DecodeError, TypeError) as problem:
            raise StoreError(
                f"{self.path}: the job in the table crawl cannot be read ({problem}); restore the run folder"
                " from a backup, or crawl into a new one"
            ) from None

    def samples(self, after: int = 0) -> Iterator[Sample]:
        """Samples with a `number` higher than `after`, in the order of time."""
        while found := self._all(_SAMPLES, (after, _SLICE_ROWS)):
            yield from (Sample(*row) for row in found)
            after = found[-1][9]

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _all(self, query: str, values: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        with clear_errors(self.path):
            return self._connection.execute(query, values).fetchall()

    def fetched(self) -> Iterator[FetchedSlice]:
        last = 0
        while found := self._all(_PAGES, (last, _SUM_SLICE_ROWS)):
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
        """Reads all sites: for a few keys only."""
        found = self._all(_URL, (key,))
        return rows.url_of(found[0][1], found[0][0]) if found and found[0][1] is not None else None


class RunReader(RunDatabase):
    """Sums, sites, outcomes, samples and settled pages of a run."""

    def __init__(self, run: Path | str) -> None:
        super().__init__(Path(run))

    @property
    def started_at(self) -> Instant:
        return Instant(self.crawl()[0])

    @property
    def job(self) -> dict[str, Any]:
        return self.crawl()[1]

    def totals(self) -> Totals:
        return Totals(*self._all(sql.TOTALS)[0])

    def sites(self) -> list[SiteRow]:
        """Sites with a task, or with a request, in the order in which they were found."""
        return [SiteRow(*row) for row in self._all(sql.SITES)]

    def outcomes(self, site: Site | None = None) -> list[OutcomeCount]:
        """Most frequent first."""
        return [OutcomeCount(*row) for row in self._all(sql.OUTCOMES, (site, site))]

    def pages(self) -> Iterator[PageRow]:
        """Every settled page, in the order of settling; a page that settled again appears again."""
        for number, site, path, *rest in self._slices(sql.PAGES):
            yield PageRow(number, rows.url_of(path, site), site, *rest)

    def captures(self) -> Iterator[PageRow]:
        """The settled pages that are in the archive."""
        return (page for page in self.pages() if page.warc_file is not None)

    def capture_rows(self) -> Iterator[tuple[Any, ...]]:
        """What the index has of each capture, as `rows.cdxj_lines` takes it."""
        return self._slices(sql.CAPTURES)

    def fingerprints(self) -> Iterator[tuple[str, str, int]]:
        """Site, path and fingerprint of each answer that has one, of earlier visits too."""
        return ((site, path, fingerprint) for _, site, path, fingerprint in self._slices(sql.FINGERPRINTS))

    def notices(self) -> list[tuple[str, float, str, str]]:
        """Site, instant, kind of notice, and its subject."""
        return [(site, at, what, subject) for site, at, what, subject in self._all(sql.NOTICES)]

    def _slices(self, query: str) -> Iterator[tuple[Any, ...]]:
        last = 0
        while rows_read := self._all(query, (last, _SLICE_ROWS)):
            yield from rows_read
            last = rows_read[-1][0]


def open_reader(run: Path | str) -> RunReader:
    """For a run folder, or the address of a crawl on a PostgreSQL server."""
    from headway.store.postgres.connection import is_address

    if not is_address(str(run)):
        return RunReader(run)
    from headway.store.postgres.reader import PostgresReader

    return PostgresReader(str(run))


# Sums over all the pages of a run, computed by the database: no page becomes an object here.
#
# For reports of runs with millions of pages. Each query is at most one pass over the table.

_BUSY = "SELECT site_id, sum(duration_s), count(*) FROM page WHERE duration_s > 0 GROUP BY site_id"
_TYPES = """
    SELECT content_type, count(*), sum(content_bytes), sum(wire_bytes) FROM page
    WHERE state = 'done' AND kind <> 'redirect' AND content_bytes > 0
    GROUP BY content_type ORDER BY count(*) DESC"""
_STATUSES = "SELECT status, state, count(*) FROM page WHERE status > 0 GROUP BY status, state ORDER BY 3 DESC"
_TIMES = """
    SELECT CAST((settled_at - ?) / ? AS INTEGER) AS turn, count(*), sum(wire_bytes), sum(state = 'done')
    FROM page WHERE duration_s > 0 GROUP BY turn ORDER BY turn"""
# Excluded pages are counted by the rule that excluded them.
_OUTCOMES = """
    SELECT state, CASE WHEN reason = '' THEN kind ELSE reason END AS why, sum(pages) FROM outcome
    GROUP BY state, why ORDER BY 3 DESC"""
_SITE_OUTCOMES = """
    SELECT kind, sum(pages) FROM outcome WHERE site_id = ? AND state IN ('failed', 'waiting')
    GROUP BY kind ORDER BY 2 DESC"""
_COURSE = """
    SELECT at, wire_bytes, waiting, left_bytes, share_bytes_per_s, forecast_from_at, forecast_to_at
    FROM course WHERE site_id = ? ORDER BY at"""
_PAGES = """
    SELECT id, key, depth, settled_at, links FROM page WHERE id > ? AND state = 'done' ORDER BY id LIMIT ?"""
_KEYS = "SELECT site_id, key FROM seen WHERE (site_id, key) > (?, ?) ORDER BY site_id, key LIMIT ?"
_URL = """
    SELECT site.site, coalesce(page.path, waiting.path)
    FROM site JOIN seen ON seen.site_id = site.id AND seen.key = ?
    LEFT JOIN page ON page.id = seen.page_id
    LEFT JOIN waiting ON waiting.site_id = seen.site_id AND waiting.place = seen.place
    LIMIT 1"""
_SUM_SLICE_ROWS = 20_000
_KEY_ROWS = 200_000


class CourseRow(NamedTuple):
    at: float
    wire_bytes: int
    waiting: int
    left_bytes: float | None
    share_bytes_per_s: float | None
    forecast_from_at: float | None
    forecast_to_at: float | None


class RunSums(RunDatabase):
    def busy(self) -> dict[int, tuple[float, int]]:
        """The total duration of the requests to each site, and their number."""
        return {number: (seconds, count) for number, seconds, count in self._all(_BUSY)}

    def types(self) -> list[tuple[str, int, int, int]]:
        """Media type, pages, bytes of content, bytes on the wire."""
        return [tuple(row) for row in self._all(_TYPES)]

    def statuses(self) -> list[tuple[int, str, int]]:
        return [tuple(row) for row in self._all(_STATUSES)]

    def by_time(self, from_at: float, length_s: float) -> list[tuple[int, int, int, int]]:
        """For each period: its number, answers, bytes and fetched pages."""
        return [tuple(row) for row in self._all(_TIMES, (from_at, length_s))]

    def outcomes(self) -> list[tuple[str, str, int]]:
        return [tuple(row) for row in self._all(_OUTCOMES)]

    def site_troubles(self, number: int) -> list[tuple[str, int]]:
        """Kinds of failed attempts at a site, most frequent first."""
        return [tuple(row) for row in self._all(_SITE_OUTCOMES, (number,))]

    def course(self, number: int) -> list[CourseRow]:
        return [CourseRow(*row) for row in self._all(_COURSE, (number,))]

    def servers(self) -> int:
        return int(self._all("SELECT count(*) FROM server")[0][0])

    def seen_keys(self) -> NDArray[np.int64]:
        """Every known page, fetched or not; ascending."""
        parts = [np.empty(0, dtype=np.int64)]
        site_id, key = 0, -(1 << 63)
        while found := self._all(_KEYS, (site_id, key, _KEY_ROWS)):
            parts.append(np.array([each for _, each in found], dtype=np.int64))
            site_id, key = found[-1]
        return np.unique(np.concatenate(parts))


# The newest full answer of each page counts, since a 304 does not have the page's size. SQLite takes the
# other columns from the row with the greatest id. One pass over the pages; SQLite sorts them in a temporary
# file.
_SUMS = """
    SELECT site.site, sum(newest.wire_bytes), count(*), sum(newest.duration_s), site.left_bytes, site.waiting
    FROM (SELECT site_id, wire_bytes, duration_s, max(id) FROM page
          WHERE status != 304 AND wire_bytes > 0 GROUP BY site_id, key) AS newest
    JOIN site ON site.id = newest.site_id GROUP BY newest.site_id"""


def knowledge_of_run(path: Path) -> Knowledge:
    """Sizes and rates of the sites of an earlier run; StoreError for a folder without any."""
    database = database_of(path)
    connection = schema.open_for_reading(database)
    try:
        with clear_errors(database):
            rows = connection.execute(_SUMS).fetchall()
            servers = connection.execute(sql.SERVERS).fetchall()
    finally:
        connection.close()
    if not rows:
        raise StoreError(f"{path}: the run has fetched no page, so there is nothing to learn from it")
    # A site that the run did not finish has the bytes that were fetched and those estimated to be left.
    return Knowledge(
        f"run {path.resolve().name}",
        {
            Site(site): SiteFacts(
                data_bytes=float(wire_bytes + ((left_bytes or 0.0) if waiting else 0.0)),
                page_bytes=wire_bytes / pages,
                rate_bytes_per_s=wire_bytes / duration_s if duration_s > 0 else 0.0,
            )
            for site, wire_bytes, pages, duration_s, left_bytes, waiting in rows
        },
        tuple((address, rates) for address, rates in servers),
    )
