"""The state of a crawl on a PostgreSQL server. Any number of collectors may write to it at the same time."""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from headway.archive.warc import ARCHIVE_FOLDER
from headway.model.command import Copy, Saving, Snapshot, WaitingRecord
from headway.model.page import Page, PageKey, Site
from headway.pages.url import SECRET_BYTES
from headway.ports import Notes, Original, Part
from headway.store import rows
from headway.store.postgres import batch
from headway.store.postgres import tables as sql
from headway.store.postgres.batch import BatchWriter, Sorted
from headway.store.postgres.connection import Address, from_text, to_text
from headway.store.postgres.reader import Reading, first_due, first_waiting, page_from
from headway.store.postgres.tables import (
    BLOCK,
    PLACES,
    Numbers,
    check_version,
    open_or_make,
    translated_query,
)
from headway.store.repair import end_of_whole_lines, end_of_whole_records, shortened
from headway.units import BytesPerSecond, Instant

if TYPE_CHECKING:
    import psycopg


def sample_row(
    at: float, wire_bytes: int, capacity_bytes_per_s: float, gauges: rows.Gauges | None
) -> tuple[object, ...]:
    """SQLite's booleans are numbers, and the tables have its types."""
    row = rows.sample_row(at, wire_bytes, capacity_bytes_per_s, gauges)
    return tuple(int(value) if isinstance(value, bool) else value for value in row)


def write_course(
    connection: psycopg.Connection[tuple[Any, ...]],
    samples: Sequence[tuple[object, ...]],
    looks: Sequence[rows.SiteSample],
) -> None:
    with connection.cursor() as cursor:
        if samples:
            cursor.executemany(translated_query(rows.ADD_SAMPLE), samples)
        for statement, values in rows.sample_rows(looks):
            cursor.executemany(translated_query(statement), values)


# After a power cut on a collector's machine, files of its folder can be shorter than was committed.
#
# As in a run folder, pages whose captures were lost are queued again, and so are pages that refer to a lost
# capture; the holders of their sites are notified. Lost log lines stay lost.

_CHOOSE_LOST = """
    CREATE TEMP TABLE lost ON COMMIT DROP AS
    SELECT page.id, page.site_id, page.key, page.digest FROM page JOIN file ON file.id = page.file_id
    JOIN unnest(%s::text[], %s::bigint[]) AS short (name, length_bytes) ON short.name = file.name
    WHERE warc_offset + warc_length > short.length_bytes"""
_ADD_REFERRING = """
    INSERT INTO lost SELECT id, site_id, key, digest FROM page WHERE record_type = 'revisit'
    AND digest IN (SELECT digest FROM lost WHERE digest <> '') AND id NOT IN (SELECT id FROM lost)"""
_PLACE = f"""
    CREATE TEMP TABLE placed ON COMMIT DROP AS
    SELECT page.site_id, (SELECT last_value + 1 FROM {PLACES}) * {BLOCK}
               + row_number() OVER (ORDER BY page.id) AS place, page.key, page.path, page.depth
    FROM lost JOIN page ON page.id = lost.id
    JOIN seen ON seen.site_id = page.site_id AND seen.key = page.key
    WHERE seen.page_id = page.id AND seen.place IS NULL"""  # noqa: S608
_CHANGES = (
    f"SELECT setval('{PLACES}', last_value + 2 + (SELECT count(*) FROM placed) / {BLOCK}) FROM {PLACES}",  # noqa: S608
    """INSERT INTO waiting (site_id, place, key, path, depth, attempt, rank)
       SELECT site_id, place, key, path, depth, 0, 0.0 FROM placed""",
    """UPDATE seen SET place = placed.place FROM placed
       WHERE seen.site_id = placed.site_id AND seen.key = placed.key""",
    "INSERT INTO mail SELECT site_id, place FROM placed",
    """INSERT INTO holding (site_id) SELECT DISTINCT site_id FROM placed ORDER BY site_id
       ON CONFLICT DO NOTHING""",
    "UPDATE site SET ended_at = NULL WHERE id IN (SELECT site_id FROM placed)",
    "UPDATE crawl SET ended_at = NULL WHERE EXISTS (SELECT FROM placed)",
    """UPDATE page SET file_id = NULL, warc_offset = NULL, warc_length = NULL, record_type = NULL
       WHERE id IN (SELECT id FROM lost)""",
    "DELETE FROM content WHERE page_id IN (SELECT id FROM lost)",
)


def repair(
    connection: psycopg.Connection[tuple[Any, ...]],
    folder: Path,
    committed_lengths: Mapping[str, int],
    prefix: str,
) -> str:
    """Repair the rows for files that are too short; returns a message, empty if nothing was done. `prefix`
    goes before a file's name in the database."""
    short = shortened(folder, committed_lengths)
    if not short:
        return ""
    ends = {
        name: end_of_whole_records(folder / name, length)
        if name.startswith(f"{ARCHIVE_FOLDER}/")
        else end_of_whole_lines(folder / name)
        for name, length in short.items()
    }
    names, lengths = [to_text(prefix + name) for name in ends], list(ends.values())
    with connection.transaction():
        connection.execute(_CHOOSE_LOST, (names, lengths))
        connection.execute(_ADD_REFERRING)
        connection.execute(_PLACE.encode())
        row = connection.execute("SELECT count(*) FROM placed").fetchone()
        for statement in _CHANGES:
            connection.execute(statement.encode())
        connection.execute(
            "UPDATE file SET length_bytes = short.length_bytes FROM unnest(%s::text[], %s::bigint[]) "
            "AS short (name, length_bytes) WHERE file.name = short.name",
            (names, lengths),
        )
    for name, end in ends.items():
        os.truncate(folder / name, end)
    assert row is not None
    files = ", ".join(sorted(short))
    return f"{files} were truncated, as by a power cut; {row[0]} pages will be fetched again"


T = TypeVar("T")
_RANKED_AT_ONCE = 10_000


class PostgresStore:
    """`place` identifies the folder of this writer's files; files of other writers are not touched.

    With `make`, the tables are created or upgraded; without, the crawl must exist.
    """

    def __init__(self, address: Address | str, *, place: str = "", make: bool = True) -> None:
        self.address = Address.parse(address) if isinstance(address, str) else address
        self._mutex = threading.RLock()
        self._numbers = Numbers(place)
        self._order = ""
        self._rank_of: Callable[[Page], float] = rows.as_found
        self._samples: list[tuple[object, ...]] = []
        self._course: list[rows.SiteSample] = []
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

    @property
    def secret(self) -> bytes:
        """Of the crawl, for the keys of its pages: the same for all collectors."""
        row = self.asked(lambda run: run.execute("SELECT secret FROM crawl").fetchone())
        return b"" if row is None or row[0] is None else bytes(row[0])

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
                "INSERT INTO crawl (only_row, started_at, job, waiting_order, secret) "
                "VALUES (1, %s, %s, %s, %s) "
                "ON CONFLICT (only_row) DO UPDATE SET started_at = excluded.started_at, job = excluded.job",
                (started_at, text, self._order, secrets.token_bytes(SECRET_BYTES)),
            )
        )

    def commit(
        self,
        batch: Sequence[Saving],
        file_lengths: Mapping[str, int],
        notes: Notes | None = None,
        first: Callable[[psycopg.Connection[tuple[Any, ...]]], bool] | None = None,
    ) -> bool:
        """One transaction. `first` runs first in it, and decides whether the rest is wanted."""
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
                has_tasks=bool(by_kind.tasks),
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
        gauges: rows.Gauges | None = None,
        course: Sequence[rows.SiteSample] = (),
    ) -> None:
        """Record the progress at an instant; saved with the next commit."""
        self._samples.append(sample_row(at, wire_bytes_total, capacity_bytes_per_s, gauges))
        self._course += course

    def find_digest(self, digest: str) -> Original | None:
        found = self._find_content(digest)
        return None if found is None else found[0]

    def find_originals(self, digests: Sequence[str]) -> dict[str, tuple[Original, str]]:
        """The first committed capture of each of these contents, if there is one, and the digest of its
        payload."""
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
        return self.asked(lambda run: batch.find_copies(run, pages))

    def histories(self, sites: Sequence[Site] | None = None) -> list[tuple[Site, bytes]]:
        """The visit histories of all pages of these sites, or of all, that may be visited again, as
        `policy.revisit` packs them."""
        return self.asked(lambda run: batch.histories(run, sites))

    @property
    def has_rounds(self) -> bool:
        """Whether all pages have been queued more than once."""
        return (
            self.asked(lambda run: run.execute("SELECT FROM round WHERE number > 0 LIMIT 1").fetchone())
            is not None
        )

    def payload_digest_of(self, digest: str) -> str | None:
        """The digest of the archived payload of this content, compressed as the server sent it."""
        found = self._find_content(digest)
        return None if found is None else found[1]

    def committed_lengths(self) -> Mapping[str, int]:
        prefix = self._numbers.full_name("")
        query = "SELECT name, length_bytes FROM file WHERE length_bytes IS NOT NULL AND starts_with(name, %s)"
        found = self.asked(lambda run: run.execute(query, (to_text(prefix),)).fetchall())
        return {from_text(name).removeprefix(prefix): length for name, length in found}

    def repair(self, folder: Path) -> str:
        """Repair the rows for files of this writer that a power cut has shortened; returns a message."""
        lengths = self.committed_lengths()
        return self.asked(lambda run: repair(run, folder, lengths, self._numbers.full_name("")))

    def close(self) -> None:
        with self._mutex:
            self._connection.close()

    # -- beyond the port --------------------------------------------------------------------------------

    def asked(self, question: Callable[[psycopg.Connection[tuple[Any, ...]]], T]) -> T:
        """Run a query; on a new connection if the last one was lost."""
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
        """The part of the crawl with these sites, as of one instant; None: all of it. Of the waiting pages,
        about `most_waiting`, or a part."""

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
            # In parts: there may be millions.
            with connection.cursor("everyone") as everyone:
                everyone.execute(sql.ALL_WAITING)
                while part := everyone.fetchmany(_RANKED_AT_ONCE):
                    ranks = [
                        (site_id, place, self._rank_of(page_from(path, site, key, depth, score)))
                        for site_id, place, site, path, key, depth, score in part
                    ]
                    types = ("bigint", "bigint", "double precision")
                    connection.execute(sql.RANK_ANEW, sql.columns(ranks, types))
            connection.execute("UPDATE crawl SET waiting_order = %s", (self._order,))

    @staticmethod
    def _set_up(connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        sql.register(connection)
        # Rows are always few and selected by key, whatever the statistics of a recently empty table make the
        # planner believe.
        connection.execute("SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off")

    def _find_content(self, digest: str) -> tuple[Original, str] | None:
        asked_for = (rows.fingerprint_of(digest), digest)
        row = self.asked(lambda run: run.execute(sql.FIND_CONTENT, asked_for).fetchone())
        if row is None:
            return None
        site, path, fetched_at, payload_digest = row
        url = rows.url_of(from_text(path), Site(from_text(site)))
        return Original(url, Instant(fetched_at)), payload_digest or digest
