"""Look into a run without disturbing it: sums, sites, outcomes, samples and settled pages.

Every question is a short transaction of its own, so that a crawl that is going on can always tidy up its
write-ahead log; long lists are read in slices.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from headway.errors import StoreError
from headway.model.page import PageKey, Site
from headway.store import rows, schema
from headway.store import statements as sql
from headway.store.failures import clear_errors
from headway.units import Instant

DATABASE = "crawl.sqlite"
_SLICE_ROWS = 5000


class SiteRow(msgspec.Struct, frozen=True, gc=False):
    site: str
    done: int
    failed: int
    excluded: int
    waiting: int
    wire_bytes: int
    content_bytes: int
    deadline_at: float | None
    """None also for a site that has no task of its own."""
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
    """Attempts that ended alike. Those in state `waiting` were to be tried again."""

    state: str
    kind: str
    reason: str
    count: int


class Sample(msgspec.Struct, frozen=True, gc=False):
    at: float
    wire_bytes: int
    """All until then, since the process that crawls was started."""
    capacity_bytes_per_s: float


class PageRow(msgspec.Struct, frozen=True, gc=False):
    """A settled page. `digest` is of its content, `payload_digest` of the octets in the archive."""

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
    """The database of a run that is named by its folder, or by the `crawl.sqlite` in it; StoreError says what
    else it is that was named."""
    with clear_errors(run):
        if run.is_dir():
            path = run / DATABASE
            if not path.is_file():
                raise StoreError(
                    f"{run}: not a run folder (it has no {DATABASE}); give one that a crawl made"
                )
            return path
        if not run.exists():
            raise StoreError(f"{run}: there is no such folder; give the run folder of a crawl")
    if run.name != DATABASE:
        raise StoreError(f"{run}: a file, and no SQLite database of a crawl; give the run folder of a crawl")
    return run


class RunDatabase:
    """What all share that look into a run folder: its database, opened for reading only."""

    def __init__(self, run: Path) -> None:
        self.path = database_of(run)
        self._connection = schema.open_for_reading(self.path)

    def crawl(self) -> tuple[float, dict[str, Any]]:
        """When the crawl was begun, and its job as it was given then."""
        row = self._all("SELECT started_at, job FROM crawl")
        if not row:
            raise StoreError(f"{self.path}: the crawl was stopped before it began; start it again")
        return row[0][0], msgspec.json.decode(row[0][1])

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
        """Sites with a task, or of which something was asked, in the order in which they came up."""
        return [SiteRow(*row) for row in self._all(sql.SITES)]

    def outcomes(self, site: Site | None = None) -> list[OutcomeCount]:
        """Most frequent first."""
        return [OutcomeCount(*row) for row in self._all(sql.OUTCOMES, (site, site))]

    def samples(self) -> list[Sample]:
        return [
            Sample(*row)
            for row in self._all("SELECT at, wire_bytes, capacity_bytes_per_s FROM sample ORDER BY id")
        ]

    def pages(self) -> Iterator[PageRow]:
        """Every settled page, in the order of settling; one that was settled again comes again."""
        for number, site, path, *rest in self._slices(sql.PAGES):
            yield PageRow(number, rows.url_of(path, site), site, *rest)

    def captures(self) -> Iterator[PageRow]:
        """The settled pages that the archive holds."""
        return (page for page in self.pages() if page.warc_file is not None)

    def fingerprints(self) -> Iterator[tuple[str, int]]:
        """The likeness of each page whose words were looked at, with its site."""
        return ((site, fingerprint) for _, site, fingerprint in self._slices(sql.FINGERPRINTS))

    def notices(self) -> list[tuple[str, float, str, str]]:
        """Site, instant, what was noticed, and of what."""
        return [(site, at, what, subject) for site, at, what, subject in self._all(sql.NOTICES)]

    def _slices(self, query: str) -> Iterator[tuple[Any, ...]]:
        last = 0
        while rows_read := self._all(query, (last, _SLICE_ROWS)):
            yield from rows_read
            last = rows_read[-1][0]


def open_reader(run: Path | str) -> RunReader:
    """A run folder, or the address of a crawl on a PostgreSQL server."""
    from headway.store.postgres.address import is_address

    if not is_address(str(run)):
        return RunReader(run)
    from headway.store.postgres.reader import PostgresReader

    return PostgresReader(str(run))
