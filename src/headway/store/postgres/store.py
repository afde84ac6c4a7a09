"""The crawl's memory on a PostgreSQL server. Any number of collectors may write to it at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from headway.model.command import Saving
from headway.model.copy import Copy
from headway.model.page import Page, PageKey, Site
from headway.model.snapshot import Snapshot, WaitingRecord
from headway.ports import Original, Part
from headway.store import course, rows
from headway.store.capture import Notes
from headway.store.postgres import again, arrays
from headway.store.postgres import statements as sql
from headway.store.postgres.address import Address
from headway.store.postgres.batch import BatchWriter, Sorted
from headway.store.postgres.course import sample_row, write_course
from headway.store.postgres.mending import mend
from headway.store.postgres.numbers import Numbers
from headway.store.postgres.reading import Reading, first_due, first_waiting, page_from
from headway.store.postgres.tables import check_version, open_or_make
from headway.store.postgres.texts import from_text, to_text
from headway.units import BytesPerSecond, Instant

if TYPE_CHECKING:
    import psycopg

T = TypeVar("T")
_RANKED_AT_ONCE = 10_000


class PostgresStore:
    """`place` says where the files are that this writer names: those of others are none of its business.

    With `make`, the tables are made or brought up; without, there must be a crawl.
    """

    def __init__(self, address: Address | str, *, place: str = "", make: bool = True) -> None:
        self.address = Address.parse(address) if isinstance(address, str) else address
        self._mutex = threading.RLock()
        self._numbers = Numbers(place)
        self._order = ""
        self._rank_of: Callable[[Page], float] = rows.as_found
        self._samples: list[tuple[object, ...]] = []
        self._course: list[course.SiteCourse] = []
        self._connection = self.address.connect()
        try:
            (open_or_make if make else check_version)(self.address, self._connection)
            with self.address.clear_errors():
                self._set_up(self._connection)
                types = self._connection.execute(
                    sql.COLUMN_TYPES, (self.address.schema, ["page", "waiting"])
                ).fetchall()
        except BaseException:
            self._connection.close()
            raise
        self._types = {
            table: [name for each, name in types if each == table] for table in ("page", "waiting")
        }

    # -- the port ---------------------------------------------------------------------------------------

    def order_waiting(self, name: str, rank_of: Callable[[Page], float]) -> None:
        self._order, self._rank_of = name, rank_of
        row = self.asked(lambda run: run.execute("SELECT waiting_order FROM crawl").fetchone())
        if row is not None and row[0] != name:
            self.asked(self._rank_anew)

    def load(self, most_waiting: int | None = None) -> Snapshot | None:
        row = self.asked(lambda run: run.execute("SELECT started_at FROM crawl").fetchone())
        return None if row is None else self.load_sites(Instant(row[0]), None, most_waiting)

    def first_waiting(self, site: Site, most: int, due_by: Instant | None = None) -> Sequence[WaitingRecord]:
        (site_id,) = self.site_ids_of([site])
        if due_by is not None:
            return self.asked(lambda run: first_due(run, site, site_id, most, due_by))
        return self.asked(lambda run: first_waiting(run, site, site_id, most))

    def create(self, started_at: Instant, job: Mapping[str, object]) -> None:
        text = to_text(msgspec.json.encode(job, enc_hook=str).decode())
        self.asked(
            lambda run: run.execute(
                "INSERT INTO crawl (only_row, started_at, job, waiting_order) VALUES (1, %s, %s, %s) "
                "ON CONFLICT (only_row) DO UPDATE SET started_at = excluded.started_at, job = excluded.job",
                (started_at, text, self._order),
            )
        )

    def commit(
        self,
        batch: Sequence[Saving],
        file_lengths: Mapping[str, int],
        notes: Notes | None = None,
        first: Callable[[psycopg.Connection[tuple[Any, ...]]], bool] | None = None,
    ) -> bool:
        """One transaction. What `first` does in it comes first, and decides whether the rest is wanted."""
        by_kind = Sorted(batch)
        captures = {each.capture.warc_file for each in by_kind.settled if each.capture is not None}
        samples, looks = list(self._samples), list(self._course)

        def write(connection: psycopg.Connection[tuple[Any, ...]]) -> bool:
            self._numbers.prepare(
                connection,
                sites=by_kind.site_names(),
                files=captures | file_lengths.keys(),
                pages=len(by_kind.settled),
                places=len(by_kind.found) + len(by_kind.settled) + len(by_kind.again()),
            )
            with connection.pipeline(), connection.transaction():
                if first is not None and not first(connection):
                    return False
                writer = BatchWriter(connection, self._numbers, self._types, self._rank_of)
                writer.write(by_kind, file_lengths, notes or {})
                write_course(connection, samples, looks)
            return True

        is_written = self.asked(write)
        del self._samples[: len(samples)]
        del self._course[: len(looks)]
        return is_written

    def record_sample(
        self,
        at: Instant,
        wire_bytes_total: int,
        capacity_bytes_per_s: BytesPerSecond,
        gauges: course.Gauges | None = None,
        course: Sequence[course.SiteCourse] = (),
    ) -> None:
        """Remember how things stood at an instant; saved with the next commit."""
        self._samples.append(sample_row(at, wire_bytes_total, capacity_bytes_per_s, gauges))
        self._course += course

    def find_digest(self, digest: str) -> Original | None:
        found = self._find_content(digest)
        return None if found is None else found[0]

    def find_originals(self, digests: Sequence[str]) -> dict[str, tuple[Original, str]]:
        """The first committed capture of each of these contents, where there is one, and the digest of its
        octets."""
        asked_for = ([rows.fingerprint_of(digest) for digest in digests], list(digests))
        return {
            digest: (
                Original(rows.url_of(from_text(path), Site(from_text(site))), Instant(fetched_at)),
                payload_digest or digest,
            )
            for digest, site, path, fetched_at, payload_digest in self.asked(
                lambda run: run.execute(sql.FIND_CONTENTS, asked_for).fetchall()
            )
        }

    def find_copy(self, page: Page) -> Copy | None:
        return self.find_copies([page]).get((page.site, page.key))

    def find_copies(self, pages: Sequence[Page]) -> dict[tuple[Site, PageKey], Copy]:
        return self.asked(lambda run: again.find_copies(run, pages))

    def histories(self, sites: Sequence[Site] | None = None) -> list[tuple[Site, bytes]]:
        """How every page of these sites, or of all, was found that may be visited again: the visits since the
        first, as `policy.freshness` packs them."""
        return self.asked(lambda run: again.histories(run, sites))

    @property
    def has_rounds(self) -> bool:
        """Whether all pages have been queued more than once."""
        return self.asked(lambda run: run.execute("SELECT FROM round LIMIT 1").fetchone()) is not None

    def payload_digest_of(self, digest: str) -> str | None:
        """The digest of the octets kept for this content, which are compressed as the server sent them."""
        found = self._find_content(digest)
        return None if found is None else found[1]

    def committed_lengths(self) -> Mapping[str, int]:
        prefix = self._numbers.full_name("")
        query = "SELECT name, length_bytes FROM file WHERE length_bytes IS NOT NULL AND starts_with(name, %s)"
        found = self.asked(lambda run: run.execute(query, (to_text(prefix),)).fetchall())
        return {from_text(name).removeprefix(prefix): length for name, length in found}

    def mend(self, folder: Path) -> str:
        """Make up for files of our own that a power cut has shortened; returns what was done."""
        lengths = self.committed_lengths()
        return self.asked(lambda run: mend(run, folder, lengths, self._numbers.full_name("")))

    def close(self) -> None:
        with self._mutex:
            self._connection.close()

    # -- beyond the port --------------------------------------------------------------------------------

    def asked(self, question: Callable[[psycopg.Connection[tuple[Any, ...]]], T]) -> T:
        """What the database says; on a new connection where the last one was lost."""
        with self._mutex, self.address.clear_errors():
            if self._connection.closed:
                self._connection = self.address.connect()
                self._set_up(self._connection)
            try:
                return question(self._connection)
            except BaseException:
                if self._connection.broken:
                    with suppress(Exception):
                        self._connection.close()
                raise

    def load_sites(
        self,
        started_at: Instant,
        site_ids: Sequence[int] | None,
        most_waiting: int | None = None,
        part: Part | None = None,
    ) -> Snapshot:
        """The part of the crawl that these sites are, as of one instant; None: all of it. Of the pages that
        wait, about `most_waiting`, or a part."""

        def read(connection: psycopg.Connection[tuple[Any, ...]]) -> Snapshot:
            with connection.transaction():
                connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                if site_ids is not None:
                    connection.execute("DELETE FROM mail WHERE site_id = ANY(%s)", (list(site_ids),))
                return Reading(connection, site_ids, most_waiting, part).snapshot(started_at)

        return self.asked(read)

    def site_ids_of(self, sites: Sequence[str]) -> list[int]:
        def number(connection: psycopg.Connection[tuple[Any, ...]]) -> list[int]:
            self._numbers.prepare(connection, sites=sites, files=(), pages=0, places=0)
            return [self._numbers.site_id(site) for site in sites]

        return self.asked(number)

    def _rank_anew(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        with connection.transaction():
            # A part at a time: there may be millions.
            with connection.cursor("everyone") as everyone:
                everyone.execute(sql.ALL_WAITING)
                while part := everyone.fetchmany(_RANKED_AT_ONCE):
                    ranks = [
                        (site_id, place, self._rank_of(page_from(path, site, key, depth, score)))
                        for site_id, place, site, path, key, depth, score in part
                    ]
                    types = ("bigint", "bigint", "double precision")
                    connection.execute(sql.RANK_ANEW, arrays.columns(ranks, types))
            connection.execute("UPDATE crawl SET waiting_order = %s", (self._order,))

    @staticmethod
    def _set_up(connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        arrays.register(connection)
        # Rows are always few and always asked for by key, whatever the statistics of a table that was
        # empty a minute ago make the planner believe.
        connection.execute("SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off")

    def _find_content(self, digest: str) -> tuple[Original, str] | None:
        asked_for = (rows.fingerprint_of(digest), digest)
        row = self.asked(lambda run: run.execute(sql.FIND_CONTENT, asked_for).fetchone())
        if row is None:
            return None
        site, path, fetched_at, payload_digest = row
        url = rows.url_of(from_text(path), Site(from_text(site)))
        return Original(url, Instant(fetched_at)), payload_digest or digest
