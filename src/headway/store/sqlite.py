"""The crawl's memory in one SQLite file: what is known, what waits, what became of each page."""

from __future__ import annotations

import os
import secrets
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from headway.archive.files import clear_errors
from headway.errors import StoreError
from headway.model.command import Copy, SaveNotice, Saving, SiteRecord, Snapshot, WaitingRecord
from headway.model.page import Page, PageKey, Site, Task
from headway.pages.url import SECRET_BYTES
from headway.ports import Notes, Original, Part
from headway.store import recrawl, rows, schema
from headway.store import schema as sql
from headway.store.batch import BatchWriter, Numbers, fingerprints_of
from headway.store.recrawl import KnownContents
from headway.store.repair import repair, shortened
from headway.store.rows import ADD_SAMPLE, Gauges, SiteSample, sample_row, write_samples
from headway.units import BytesPerSecond, Instant

_PUT_OFF = f"""{sql.LOAD_WAITING.rpartition("ORDER BY")[0]}
    WHERE retry_at > ? ORDER BY place"""
_COUNT_DUE = """
    SELECT site, count(*) FROM site JOIN waiting ON waiting.site_id = site.id
    WHERE (retry_at IS NULL OR retry_at <= ?) GROUP BY site.id ORDER BY site.id"""
_SEEN = """
    SELECT key, coalesce(check_bits, 0) FROM seen JOIN site ON site.id = seen.site_id ORDER BY site_id, key"""
_SEEN_AT_ONCE = 10_000
_SEEN_TYPE = np.dtype([("key", np.int64), ("check", np.uint16)])


def _column(seen: Any, name: str) -> Any:
    return np.ascontiguousarray(seen[name])


def load_sites(
    connection: sqlite3.Connection, started_at: Instant, sites: Sequence[Site], part: Part | None = None
) -> Snapshot:
    wanted = msgspec.json.encode(sites).decode()

    def read(query: str, *values: object) -> sqlite3.Cursor:
        head, word, tail = query.rpartition("GROUP BY" if "GROUP BY" in query else "ORDER BY")
        joint = "AND" if "WHERE" in head else "WHERE"
        only = f"{joint} site.site IN (SELECT value FROM json_each(?))"  # noqa: S608 - our own words
        return connection.execute(f"{head} {only} {word} {tail}", (*values, wanted))

    waiting: list[WaitingRecord] = []
    unloaded: dict[Site, int] = {}
    if part is None:
        waiting = _records(read(sql.LOAD_WAITING))
    else:
        for site, count in read(_COUNT_DUE, part.due_by).fetchall():
            waiting += first_due(connection, site, part.each, part.due_by)
            if count > part.each:
                unloaded[site] = count - part.each
        waiting += _records(read(_PUT_OFF, part.due_by))
    seen: Any = np.fromiter(read(_SEEN), dtype=_SEEN_TYPE)
    return Snapshot(
        started_at=started_at,
        tasks=[
            Task(Site(site), msgspec.json.decode(seeds, type=tuple[str, ...]), *rest)
            for site, seeds, *rest in read(sql.LOAD_TASKS)
        ],
        sites=[SiteRecord(*row) for row in read(sql.LOAD_SITES)],
        waiting=waiting,
        unloaded=unloaded,
        seen=_column(seen, "key"),
        seen_checks=_column(seen, "check"),
        servers=connection.execute(sql.SERVERS).fetchall(),
    )


def first_due(connection: sqlite3.Connection, site: Site, most: int, due_by: Instant) -> list[WaitingRecord]:
    """The first pages of a site that wait for nothing but their turn."""
    (site_id,) = connection.execute("SELECT id FROM site WHERE site = ?", (site,)).fetchone() or (0,)
    return _records((site, *row) for row in connection.execute(sql.FIRST_DUE, (site_id, due_by, most)))


def _records(found: Iterable[tuple[Any, ...]]) -> list[WaitingRecord]:
    return [
        WaitingRecord(Page(rows.url_of(path, site), site, PageKey(key), depth, score), attempt, retry_at)
        for site, path, key, depth, score, attempt, retry_at in found
    ]


def sites_that_wait(connection: sqlite3.Connection) -> list[Site]:
    """Sites with pages to come, found in the index alone."""
    return [
        Site(site)
        for (site,) in connection.execute(
            "SELECT site FROM site WHERE EXISTS (SELECT 1 FROM waiting WHERE waiting.site_id = site.id)"
        )
    ]


class SqliteStore:
    """One process crawls into a store at a time; any number may read it meanwhile with `RunReader`."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._mutex = threading.Lock()
        self._order = ""
        self._rank_of: Callable[[Page], float] = rows.as_found
        self._samples: list[tuple[object, ...]] = []
        self._course: list[SiteSample] = []
        self._beside = ThreadPoolExecutor(1, thread_name_prefix="headway-store")
        self._checkpoint: Future[None] | None = None
        self._log = self.path.with_name(f"{self.path.name}-wal")
        self.checkpoint_bytes = sql.CHECKPOINT_BYTES
        self._lock_fd = schema.lock(self.path)
        try:
            self._connection = schema.open_for_writing(self.path)
            with clear_errors(self.path):
                self._inode = self.path.stat().st_ino
                self._numbers = self._read_numbers()
                contents = self._connection.execute("SELECT fingerprint FROM content")
                self._known = KnownContents(fingerprint for (fingerprint,) in contents)
                row = self._connection.execute("SELECT secret FROM crawl").fetchone()
                self.secret: bytes = secrets.token_bytes(SECRET_BYTES) if row is None else row[0]
                """Of the crawl, for the keys of its pages."""
        except BaseException:
            os.close(self._lock_fd)
            raise

    def order_waiting(self, name: str, rank_of: Callable[[Page], float]) -> None:
        self._order, self._rank_of = name, rank_of
        row = self._connection.execute("SELECT waiting_order FROM crawl").fetchone()
        if row is None or row[0] == name:
            return

        def rank(site: Site, path: str, key: PageKey, depth: int, score: float) -> float:
            return rank_of(Page(rows.url_of(path, site), site, key, depth, score))

        with self._transaction():
            self._connection.create_function("rank_of", 5, rank, deterministic=True)
            self._connection.execute(sql.RANK_ANEW)
            self._connection.execute("UPDATE crawl SET waiting_order = ?", (name,))

    def try_again(self, limits_of: recrawl.LimitsOf | None = None) -> int:
        """Queue the pages whose servers could not be reached in earlier sessions, and those beyond limits
        that the job has raised since; returns how many."""
        with self._transaction():
            count = recrawl.try_again(self._connection)
            if limits_of is not None:
                count += recrawl.take_in_left_out(self._connection, limits_of)
        if count:
            self._numbers = self._read_numbers()
        return count

    def repair(self, run_folder: Path) -> str:
        """Make up for files that a power cut has shortened; returns what was done, empty if nothing."""
        short = shortened(run_folder, self.committed_lengths())
        if not short:
            return ""
        with self._transaction():
            repaired = repair(self._connection, run_folder, short, self._rank_of)
        self._numbers = self._read_numbers()
        return repaired

    def load(self, most_waiting: int | None = None) -> Snapshot | None:
        with self._mutex, clear_errors(self.path):
            row = self._connection.execute("SELECT started_at FROM crawl").fetchone()
            if row is None:
                return None
            waiting, unloaded, first_ranks = self._load_waiting(most_waiting)
            seen, checks = self._load_seen()
            return Snapshot(
                started_at=Instant(row[0]),
                tasks=self._load_tasks(),
                sites=self._load_sites(),
                waiting=waiting,
                unloaded=unloaded,
                first_ranks=first_ranks,
                seen=seen,
                seen_checks=checks,
                servers=self._connection.execute(sql.SERVERS).fetchall(),
                notices=[SaveNotice(*row) for row in self._connection.execute(sql.NOTICES)],
            )

    def create(self, started_at: Instant, job: Mapping[str, object]) -> None:
        text = msgspec.json.encode(job, enc_hook=str).decode()
        with self._transaction():
            self._connection.execute(
                "INSERT OR REPLACE INTO crawl (only_row, started_at, job, waiting_order, secret)"
                " VALUES (1, ?, ?, ?, ?)",
                (started_at, text, self._order, self.secret),
            )

    def commit(
        self, batch: Sequence[Saving], file_lengths: Mapping[str, int], notes: Notes | None = None
    ) -> None:
        numbers = self._numbers.copy()
        samples, course = list(self._samples), list(self._course)
        with self._transaction():
            BatchWriter(self._connection, numbers, self._rank_of).write(batch, file_lengths, notes or {})
            self._connection.executemany(ADD_SAMPLE, samples)
            write_samples(self._connection, course)
        self._numbers.accept(numbers)
        for fingerprint in fingerprints_of(batch):
            self._known.add(fingerprint)
        del self._samples[: len(samples)]
        del self._course[: len(course)]
        self._shorten_log()

    def _shorten_log(self) -> None:
        """Have the write-ahead log copied into the file, when it has become long. A thread copies most of it;
        the rest, written meanwhile, is copied here, so that the log begins again."""
        if self._checkpoint is None:
            with suppress(FileNotFoundError):
                if self._log.stat().st_size > self.checkpoint_bytes:
                    self._checkpoint = self._beside.submit(sql.checkpoint, self.path)
        elif self._checkpoint.done():
            problem, self._checkpoint = self._checkpoint.exception(), None
            with self._mutex, clear_errors(self.path):
                if problem is not None:
                    raise problem
                self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def record_sample(
        self,
        at: Instant,
        wire_bytes_total: int,
        capacity_bytes_per_s: BytesPerSecond,
        gauges: Gauges | None = None,
        course: Sequence[SiteSample] = (),
    ) -> None:
        """Remember how things stood at an instant; saved with the next commit."""
        self._samples.append(sample_row(at, wire_bytes_total, capacity_bytes_per_s, gauges))
        self._course += course

    def find_digest(self, digest: str) -> Original | None:
        found = self._find_content(digest)
        return None if found is None else found[0]

    def payload_digest_of(self, digest: str) -> str | None:
        """The digest of the octets kept for this content, which are compressed as the server sent them."""
        found = self._find_content(digest)
        return None if found is None else found[1]

    def share_known(self) -> int:
        """Which contents may be known, as a file for `KnownContents.shared` in other processes."""
        return self._known.share()

    def load_sites(self, started_at: Instant, sites: Sequence[Site], part: Part | None = None) -> Snapshot:
        """The part of the crawl that these sites are, with the pages that wait or a part of them."""
        with self._mutex, clear_errors(self.path):
            return load_sites(self._connection, started_at, sites, part)

    def sites_that_wait(self) -> list[Site]:
        with self._mutex, clear_errors(self.path):
            return sites_that_wait(self._connection)

    def find_copy(self, page: Page) -> Copy | None:
        with self._mutex, clear_errors(self.path):
            return recrawl.find_copy(self._connection, page)

    @property
    def has_rounds(self) -> bool:
        """Whether all pages have been queued more than once."""
        with self._mutex, clear_errors(self.path):
            row = self._connection.execute("SELECT 1 FROM round WHERE number > 0 LIMIT 1").fetchone()
            return row is not None

    def histories(self, sites: Sequence[Site] | None = None) -> list[tuple[Site, bytes]]:
        """How every page of these sites, or of all, was found that may be visited again: the visits since the
        first, as `policy.revisit` packs them."""
        with self._mutex, clear_errors(self.path):
            return list(recrawl.histories(self._connection, sites))

    def committed_lengths(self) -> Mapping[str, int]:
        with self._mutex, clear_errors(self.path):
            return dict(
                self._connection.execute("SELECT name, length_bytes FROM file WHERE length_bytes NOT NULL")
            )

    def close(self) -> None:
        with self._mutex:
            if self._lock_fd < 0:
                return
            try:
                self._beside.shutdown()
                with clear_errors(self.path):
                    schema.close_for_good(self._connection)
            finally:
                schema.unlock(self._lock_fd)
                self._lock_fd = -1

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """All or nothing, whatever is raised in between."""
        with self._mutex, clear_errors(self.path):
            self._check_still_there()
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
                raise

    def _check_still_there(self) -> None:
        """SQLite would go on writing to a file that has lost its name, and all would be gone at the end."""
        with suppress(FileNotFoundError):
            if self.path.stat().st_ino == self._inode:
                return
        raise StoreError(
            f"{self.path}: it was removed or replaced during the crawl; put it back or start a new crawl"
        )

    def _read_numbers(self) -> Numbers:
        query = self._connection.execute
        site_ids = {Site(site): number for number, site in query("SELECT id, site FROM site")}
        (last_place,) = query("SELECT coalesce(max(place), 0) FROM waiting").fetchone()
        (last_page_id,) = query("SELECT coalesce(max(id), 0) FROM page").fetchone()
        (last_position,) = query(sql.LAST_TASK).fetchone()
        return Numbers(site_ids, last_place + 1, last_page_id + 1, last_position + 1)

    def _find_content(self, digest: str) -> tuple[Original, str] | None:
        fingerprint = rows.fingerprint_of(digest)
        if not self._known.may_have(fingerprint):
            return None
        with self._mutex, clear_errors(self.path):
            row = self._connection.execute(sql.FIND_CONTENT, (fingerprint, digest)).fetchone()
        if row is None:
            return None
        site, path, fetched_at, payload_digest = row
        return Original(rows.url_of(path, site), Instant(fetched_at)), payload_digest or digest

    def _load_tasks(self) -> list[Task]:
        return [
            Task(Site(site), msgspec.json.decode(seeds, type=tuple[str, ...]), *rest)
            for site, seeds, *rest in self._connection.execute(sql.LOAD_TASKS)
        ]

    def _load_sites(self) -> list[SiteRecord]:
        return [SiteRecord(*row) for row in self._connection.execute(sql.LOAD_SITES)]

    def first_waiting(self, site: Site, most: int, due_by: Instant | None = None) -> Sequence[WaitingRecord]:
        with self._mutex, clear_errors(self.path):
            if due_by is not None:
                return first_due(self._connection, site, most, due_by)
            return self._first_waiting(site, most)

    def _first_waiting(self, site: Site, most: int) -> list[WaitingRecord]:
        found = self._connection.execute(sql.FIRST_WAITING, (self._numbers.known_id(site), most))
        return [
            WaitingRecord(Page(rows.url_of(path, site), site, key, depth, score), attempt, retry_at)
            for path, key, depth, score, attempt, retry_at in found
        ]

    def _load_waiting(
        self, most: int | None
    ) -> tuple[list[WaitingRecord], dict[Site, int], dict[Site, float]]:
        """All waiting pages, or if they are too many only their number by site and the first rank of each:
        the pages of a site are loaded when it is among the next ones."""
        if most is None:
            return self._load_all_waiting(), {}, {}
        (count,) = self._connection.execute("SELECT count(*) FROM waiting").fetchone()
        if count <= most:
            return _records(self._connection.execute(sql.WAITING_BY_SITE)), {}, {}
        unloaded, ranks = {}, {}
        for name, count, rank in self._connection.execute(sql.COUNT_WAITING):
            site = Site(name)
            unloaded[site], ranks[site] = count, rank
        return [], unloaded, ranks

    def _load_all_waiting(self) -> list[WaitingRecord]:
        return [
            WaitingRecord(Page(rows.url_of(path, site), site, key, depth, score), attempt, retry_at)
            for site, path, key, depth, score, attempt, retry_at in self._connection.execute(sql.LOAD_WAITING)
        ]

    def _load_seen(self) -> tuple[Any, Any]:
        """Keys and check bits of all pages: ten bytes each. Ten million keys as Python integers would take
        400 MB."""
        (count,) = self._connection.execute("SELECT count(*) FROM seen").fetchone()
        found = self._connection.execute("SELECT key, coalesce(check_bits, 0) FROM seen")
        keys, checks = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.uint16)
        begin = 0
        while part := found.fetchmany(_SEEN_AT_ONCE):
            end = begin + len(part)
            keys[begin:end], checks[begin:end] = zip(*part, strict=True)
            begin = end
        return keys, checks
