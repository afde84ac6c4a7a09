"""Reads a run without disturbing it: sums, sites, outcomes, samples, settled pages, and what it learnt about
its sites; and the queries of a display that is updated every second.

`LiveReader` reads few rows in short transactions, at a cost that does not grow with the pages. Beside a crawl
that writes, reading never waits and never delays the crawl.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, NamedTuple, ParamSpec, Self, TypeVar

import msgspec
import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from headway.archive.files import clear_errors
from headway.engine.availability import REACHABLE_AGAIN, UNREACHABLE_SINCE
from headway.engine.start_pages import FETCHED, LEADS_OUT, NOT_FETCHED, REDIRECTS
from headway.errors import HeadwayError, StoreError
from headway.model.page import Page, PageKey, Site
from headway.planning.estimate import Knowledge, SiteFacts
from headway.store import rows, schema
from headway.store import schema as sql
from headway.units import Instant

# Each query is a short transaction of its own, so that a running crawl can always check-point its write-ahead
# log; long lists are read in slices.

P = ParamSpec("P")
T = TypeVar("T")

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

    def ask(self, query: str, values: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        """A query in the dialect of SQLite."""
        return self._all(query, values)

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

_DENIED = """
    SELECT site.site, sum(pages) FROM outcome JOIN site ON site.id = site_id
    WHERE kind = 'robots-denied' GROUP BY site.id"""
_BUSY = """
    SELECT site_id, sum(duration_s), count(*) FROM page
    WHERE duration_s > 0 AND settled_at >= ? AND settled_at < ? GROUP BY site_id"""
_TYPES = """
    SELECT content_type, count(*), sum(content_bytes), sum(wire_bytes) FROM page
    WHERE state = 'done' AND kind <> 'redirect' AND content_bytes > 0
          AND settled_at >= ? AND settled_at < ?
    GROUP BY content_type ORDER BY count(*) DESC"""
_STATUSES = """
    SELECT status, state, count(*) FROM page WHERE status > 0 AND settled_at >= ? AND settled_at < ?
    GROUP BY status, state ORDER BY 3 DESC"""
_TIMES = """
    SELECT CAST((settled_at - ?) / ? AS INTEGER) AS turn, count(*), sum(wire_bytes), sum(state = 'done')
    FROM page WHERE duration_s > 0 AND settled_at >= ? AND settled_at < ? GROUP BY turn ORDER BY turn"""
_BEGINS = """
    SELECT site_id, min(settled_at - duration_s) FROM page
    WHERE duration_s > 0 AND settled_at >= ? AND settled_at < ? GROUP BY site_id"""
# Of an earlier round; what was left out is counted for the whole run only.
_OUTCOMES_BETWEEN = """
    SELECT state, kind, count(*) FROM page WHERE settled_at >= ? AND settled_at < ?
    GROUP BY state, kind ORDER BY 3 DESC"""
_TROUBLES_BETWEEN = """
    SELECT kind, count(*) FROM page WHERE site_id = ? AND state IN ('failed', 'waiting')
    AND settled_at >= ? AND settled_at < ? GROUP BY kind ORDER BY 2 DESC"""
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


_NO_END = 1e18


class RunSums(RunDatabase):
    def denied(self) -> list[tuple[str, int]]:
        """Sites, and how many of their pages robots.txt denies."""
        return [tuple(row) for row in self._all(_DENIED)]

    def busy(self, since: float = 0.0, until: float = _NO_END) -> dict[int, tuple[float, int]]:
        """The total duration of the requests to each site, and their number."""
        return {number: (seconds, count) for number, seconds, count in self._all(_BUSY, (since, until))}

    def types(self, since: float = 0.0, until: float = _NO_END) -> list[tuple[str, int, int, int]]:
        """Media type, pages, bytes of content, bytes on the wire."""
        return [tuple(row) for row in self._all(_TYPES, (since, until))]

    def statuses(self, since: float = 0.0, until: float = _NO_END) -> list[tuple[int, str, int]]:
        return [tuple(row) for row in self._all(_STATUSES, (since, until))]

    def by_time(
        self, from_at: float, length_s: float, until: float = _NO_END
    ) -> list[tuple[int, int, int, int]]:
        """For each period: its number, answers, bytes and fetched pages."""
        return [tuple(row) for row in self._all(_TIMES, (from_at, length_s, from_at, until))]

    def begins(self, since: float, until: float) -> dict[int, float]:
        """When each site was first asked in this period."""
        return dict(self._all(_BEGINS, (since, until)))

    def outcomes(self, period: tuple[float, float] | None = None) -> list[tuple[str, str, int]]:
        if period is not None:
            return [tuple(row) for row in self._all(_OUTCOMES_BETWEEN, period)]
        return [tuple(row) for row in self._all(_OUTCOMES)]

    def site_troubles(self, number: int, period: tuple[float, float] | None = None) -> list[tuple[str, int]]:
        """Kinds of failed attempts at a site, most frequent first."""
        if period is not None:
            return [tuple(row) for row in self._all(_TROUBLES_BETWEEN, (number, *period))]
        return [tuple(row) for row in self._all(_SITE_OUTCOMES, (number,))]

    def course(self, number: int) -> list[tuple[Any, ...]]:
        """The samples of a site, as the fields of `CourseRow`."""
        return [tuple(row) for row in self._all(_COURSE, (number,))]

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


def reads_rows(read: Callable[Concatenate[Path, P], T]) -> Callable[Concatenate[Path, P], T]:
    """StoreError instead of whatever the rows of a damaged database lead to: SQLite opens it as long as its
    pages hang together, and stores text or NULL in a column of numbers."""

    @functools.wraps(read)
    def reading(path: Path, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return read(path, *args, **kwargs)
        except HeadwayError:
            raise
        except (ArithmeticError, AttributeError, LookupError, OSError, TypeError, ValueError) as problem:
            raise StoreError(
                f"{database_of(path)}: it has rows that no crawl writes ({problem}); 'headway verify' says"
                " where, 'headway rebuild' makes it again from the archive and the logs"
            ) from problem

    return reading


@reads_rows
def knowledge_of_run(path: Path) -> Knowledge:
    """Sizes and rates of the sites of an earlier run; StoreError for a folder without any."""
    database = database_of(path)
    connection = schema.open_for_reading(database)
    try:
        with clear_errors(database):
            rows = connection.execute(_SUMS).fetchall()
            servers = connection.execute(sql.SERVERS).fetchall()
            notices = connection.execute(sql.NOTICES).fetchall()
    finally:
        connection.close()
    if not rows:
        raise StoreError(f"{path}: the run has fetched no page, so there is nothing to learn from it")
    figures = [number for row in rows for number in row[1:4]]
    if not all(0 <= number < sys.float_info.max for number in figures):
        raise ValueError("a size or a duration is not a number of 0 or more")
    # A site that the run did not finish has the bytes that were fetched and those estimated to be left.
    facts = {
        Site(site): SiteFacts(
            data_bytes=float(wire_bytes + ((left_bytes or 0.0) if waiting else 0.0)),
            page_bytes=wire_bytes / pages,
            rate_bytes_per_s=wire_bytes / duration_s if duration_s > 0 else 0.0,
        )
        for site, wire_bytes, pages, duration_s, left_bytes, waiting in rows
    }
    # An address that redirects to another site stands for that site; of several redirects the last first.
    for site, _, what, url in reversed(notices):
        target = Site("/".join(url.split("/")[:3]))
        if what == REDIRECTS and target in facts:
            facts[Site(site)] = facts[target]
    return Knowledge(
        f"run {path.resolve().name}",
        facts,
        tuple((address, rates) for address, rates in servers),
    )


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
_EACH = """
    WITH queue AS (
        SELECT site_id, count(*) FILTER (WHERE attempt >= 0 OR retry_at IS NULL) AS pages
        FROM waiting GROUP BY site_id
    ), each AS (
        SELECT site.id, done, failed, wire_bytes, ended_at, deadline_at, left_bytes, forecast_to_at,
               coalesce(CASE WHEN ? THEN waiting ELSE queue.pages END, 0) AS pages,
               CASE WHEN noticed.site_id IS NOT NULL THEN -site.id ELSE
                   (done > 0) + 2 * (failed > 0) + 8 * (ended_at IS NOT NULL)
                   + 4 * (coalesce(CASE WHEN ? THEN waiting ELSE queue.pages END, 0) > 0)
                   + 16 * coalesce(max_pages = 0, 0) + 32 * (deadline_at IS NOT NULL)
                   + 64 * coalesce(ended_at <= deadline_at, 0) + 128 * coalesce(deadline_at < ?, 0)
                   + 256 * coalesce(forecast_from_at > deadline_at, 0)
                   + 512 * coalesce(forecast_to_at > deadline_at, 0)
                   + 1024 * (forecast_from_at IS NULL OR forecast_to_at IS NULL)
                   + 2048 * (done > 0 AND (done > 20 OR EXISTS (
                       SELECT 1 FROM outcome
                       WHERE outcome.site_id = site.id AND state = 'done' AND outcome.kind <> 'redirect'
                   )))
               END AS kind
        FROM site LEFT JOIN task ON task.site_id = site.id LEFT JOIN queue ON queue.site_id = site.id
        LEFT JOIN (SELECT DISTINCT site_id FROM notice) AS noticed ON noticed.site_id = site.id
        WHERE task.site_id NOT NULL OR free_at NOT NULL OR queue.site_id NOT NULL
    )"""
_GROUPS = f"""{_EACH}
    SELECT kind, min(id), count(*), sum(done), sum(failed), sum(pages), sum(wire_bytes), max(ended_at),
           max(forecast_to_at), coalesce(sum(left_bytes), 0.0), count(left_bytes)
    FROM each GROUP BY kind ORDER BY min(id)"""  # noqa: S608 - our own words
_FIRST_DUE = f"""{_EACH}
    SELECT id FROM each WHERE kind IN ({{}}) ORDER BY deadline_at IS NULL, deadline_at, id LIMIT ?"""  # noqa: S608
_NOTICES = """
    SELECT site_id, what, subject, noticed_at FROM notice
    WHERE what IN (?, ?, ?, ?, ?, ?) ORDER BY noticed_at"""
_WAITING = """
    SELECT site_id, count(*) FILTER (WHERE attempt >= 0 OR retry_at IS NULL) FROM waiting GROUP BY site_id"""
_STATES = """
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


class SiteGroup(NamedTuple):
    """Sites in the same state, with their sums. Sites of which there are notices are groups of one."""

    kind: int
    example: int
    """The number of one of them."""
    sites: int
    done: int
    failed: int
    waiting: int
    wire_bytes: int
    ended_at: float | None
    """The last end."""
    forecast_to_at: float | None
    left_bytes: float
    estimates: int
    """For how many of them it is known what is left."""


class LiveReader(RunDatabase):
    def __init__(self, run: Path) -> None:
        super().__init__(run)
        self._lock_path = self.path.with_name(self.path.name + "-lock")

    def sites(self, numbers: Sequence[int] | None = None) -> list[SiteNow]:
        """All sites, or those with these numbers."""
        told: dict[int, dict[str, Any]] = {}
        for number, what, subject, at in self._all(_NOTICES, _NOTICED):
            told.setdefault(number, {}).update(_fact_of(what, subject, at))
        if numbers is None:
            found = self._all(_SITES)
        else:
            of_these = "WHERE site.id IN (SELECT value FROM json_each(?)) AND (task"
            query = _SITES.replace("WHERE task", of_these).replace("\n    ORDER BY", ")\n    ORDER BY")
            found = self._all(query, (msgspec.json.encode(list(numbers)).decode(),))
        return [
            structs.replace(site, **told[site.number]) if site.number in told else site
            for site in (SiteNow(*row) for row in found)
        ]

    def groups(self, now: float, *, are_counted: bool) -> list[SiteGroup]:
        """The sums of all sites by their states. `are_counted`: the crawl stores how many pages of each site
        wait. Of a run folder only."""
        return [SiteGroup(*row) for row in self._all(_GROUPS, (are_counted, are_counted, now))]

    def first_due(self, now: float, kinds: Sequence[int], most: int, *, are_counted: bool) -> list[int]:
        """The numbers of the sites in these groups that have the first deadlines."""
        query = _FIRST_DUE.format(", ".join(str(int(kind)) for kind in kinds))
        return [number for (number,) in self._all(query, (are_counted, are_counted, now, most))]

    def waiting(self, numbers: Sequence[int] | None = None) -> dict[int, int]:
        """The number of pages to be fetched of each site, or of those with these numbers, without pages that
        wait for the day of their next visit. Reads all waiting pages of them: not for every second."""
        if numbers is None:
            return dict(self._all(_WAITING))
        query = _WAITING.replace("GROUP BY", "WHERE site_id IN (SELECT value FROM json_each(?)) GROUP BY")
        found = dict(self._all(query, (msgspec.json.encode(list(numbers)).decode(),)))
        return dict.fromkeys(numbers, 0) | found

    def outcomes(self) -> list[tuple[str, str, int]]:
        """State, kind and number of pages that were not fetched, most frequent first."""
        return [(state, kind, count) for state, kind, count in self._all(_STATES)]

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
