"""Checks every record, digest, index line and row of a run folder against each other, and repairs it.

What is damaged is named with its place. A repair queues the pages again whose captures cannot be read,
corrects rows that contradict others, and writes `pages.jsonl` and the index again from the rows. A database
that cannot be read at all is made again from the archive and the logs: `store.rebuild`.
"""

from __future__ import annotations

import filecmp
import mmap
import os
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from isal import isal_zlib

from headway.archive.records import uri
from headway.archive.warc import ARCHIVE_FOLDER, WARC_PATTERN
from headway.errors import StoreError
from headway.model.page import Page, PageKey, Site
from headway.pages.fingerprint import sha1_digests
from headway.store import repair, rows, schema
from headway.store.reader import DATABASE
from headway.store.rows import PageLine
from headway.store.run_folder import INDEX_NAME, LOG, PAGES, write_index

_GZIP = 31
_PIECE_BYTES = 64 * 1024
_MOST_DIGITS = 15
_MOST_NAMED = 20
"""Findings of one kind that are named; the others are counted."""
_LOG_COLUMNS = 10
_STATES = frozenset({"waiting", "done", "failed", "excluded"})
_CAPTURES = """
    SELECT page.id, site.site, path, warc_offset, warc_length, coalesce(payload_digest, digest), record_type,
           page.site_id, key, digest
    FROM page JOIN site ON site.id = page.site_id WHERE file_id = ? ORDER BY warc_offset"""
_NO_PLACE = """
    SELECT site_id, key FROM seen WHERE place NOT NULL AND NOT EXISTS (
        SELECT 1 FROM waiting WHERE waiting.site_id = seen.site_id AND waiting.place = seen.place)"""
_NO_PAGE = """
    SELECT site_id, key FROM seen WHERE page_id NOT NULL AND NOT EXISTS (
        SELECT 1 FROM page WHERE page.id = seen.page_id)"""
_LAST_PAGE = """
    UPDATE seen SET page_id = (
        SELECT max(id) FROM page WHERE page.site_id = seen.site_id AND page.key = seen.key)
    WHERE site_id = ? AND key = ?"""
_UNKNOWN_WAITING = """
    SELECT place, site_id, key FROM waiting WHERE NOT EXISTS (
        SELECT 1 FROM seen
        WHERE seen.site_id = waiting.site_id AND seen.key = waiting.key AND seen.place = waiting.place)"""
_KNOW_WAITING = """
    INSERT INTO seen (place, site_id, key) VALUES (?, ?, ?)
    ON CONFLICT DO UPDATE SET place = excluded.place"""
_UNKNOWN_PAGE = """
    SELECT max(id), site_id, key FROM page WHERE NOT EXISTS (
        SELECT 1 FROM seen WHERE seen.site_id = page.site_id AND seen.key = page.key)
    GROUP BY site_id, key"""
_NO_CONTENT = """
    SELECT fingerprint FROM content WHERE NOT EXISTS (SELECT 1 FROM page WHERE page.id = page_id)"""
_NO_FILE = """
    SELECT id FROM page WHERE file_id NOT NULL AND NOT EXISTS (SELECT 1 FROM file WHERE file.id = file_id)"""
_RULES = (
    (
        "a known page refers to a waiting page that is not there",
        _NO_PLACE,
        "UPDATE seen SET place = NULL WHERE site_id = ? AND key = ?",
    ),
    ("a known page refers to a settled page that is not there", _NO_PAGE, _LAST_PAGE),
    ("a waiting page is not among the known ones", _UNKNOWN_WAITING, _KNOW_WAITING),
    (
        "a settled page is not among the known ones",
        _UNKNOWN_PAGE,
        "INSERT INTO seen (page_id, site_id, key) VALUES (?, ?, ?)",
    ),
    (
        "a content refers to a page that is not there",
        _NO_CONTENT,
        "DELETE FROM content WHERE fingerprint = ?",
    ),
    (
        "a capture is in a file that the store does not name",
        _NO_FILE,
        "UPDATE page SET file_id = NULL, warc_offset = NULL, warc_length = NULL WHERE id = ?",
    ),
)
"""What has to hold of rows: each with a query for rows that break it, and a statement that corrects one."""
_SUMS = """
    SELECT site_id, state, count(*) FROM page
    WHERE id IN (SELECT max(id) FROM page GROUP BY site_id, key) AND kind <> 'out-of-scope'
    GROUP BY site_id, state"""


Octets = mmap.mmap | bytes
# Not a subclass of zlib.error. The package's type stubs call it an instance.
_InflateError: type[Exception] = isal_zlib.error  # type: ignore[assignment]


class Finding(NamedTuple):
    kind: str
    where: str
    """File and place, or the table."""
    what: str


class Report(msgspec.Struct):
    """What `verify` found. `queued` and `is_repaired` are for a repair."""

    records: int = 0
    pages: int = 0
    findings: list[Finding] = []
    counts: dict[str, int] = {}
    """Of all findings, by kind: `findings` has the first of each."""
    queued: int = 0
    is_repaired: bool = False


class Record(NamedTuple):
    """One record of a WARC file, as read back."""

    offset: int
    length: int
    fields: dict[str, str]
    block: bytes

    @property
    def payload(self) -> bytes:
        """Without the head of an HTTP answer."""
        if not self.fields.get("content-type", "").startswith("application/http"):
            return self.block
        return self.block.partition(b"\r\n\r\n")[2]


def read_record(data: Octets, offset: int) -> Record:
    """The record that begins there: one gzip member. ValueError says what is wrong with it."""
    member, parts, position = isal_zlib.decompressobj(_GZIP), [], offset
    while not member.eof:
        piece = data[position : position + _PIECE_BYTES]
        if not piece:
            raise ValueError("it is cut off")
        position += len(piece)
        try:
            parts.append(member.decompress(piece))
        except _InflateError as error:
            raise ValueError(f"it is damaged ({error})") from None
    head, separator, rest = b"".join(parts).partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    if not separator or not lines[0].startswith(b"WARC/1."):
        raise ValueError("it is not a WARC record")
    fields = {}
    for line in lines[1:]:
        name, _, value = line.decode("utf-8", "replace").partition(":")
        fields[name.strip().lower()] = value.strip()
    length = fields.get("content-length", "")
    if not length.isascii() or not length.isdecimal() or len(length) > _MOST_DIGITS:
        raise ValueError("it has no length")
    block = rest[: int(length)]
    if len(block) < int(length):
        raise ValueError("its block is shorter than it says")
    return Record(offset, position - len(member.unused_data) - offset, fields, block)


def records_of(path: Path, end: int | None = None) -> Iterator[Record | Finding]:
    """The records of a file in order. After damage it goes on at the next one that can be read."""
    if not path.stat().st_size:
        return
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        end, position = min(end or len(data), len(data)), 0
        while position < end:
            try:
                record = read_record(data, position)
            except ValueError as problem:
                yield Finding("record", f"{path.name} at {position}", str(problem))
                position = _next_record(data, position + 1)
            else:
                yield record
                position += record.length


def _next_record(data: mmap.mmap, position: int) -> int:
    """The next place at which a record begins; the end if there is none."""
    while (position := data.find(b"\x1f\x8b\x08", position)) >= 0:
        try:
            start = isal_zlib.decompressobj(_GZIP).decompress(data[position : position + 512], 8)
        except _InflateError:
            start = b""
        if start.startswith(b"WARC/1."):
            return position
        position += 1
    return len(data)


class _Check:
    """One pass over a run folder."""

    def __init__(self, run: Path, connection: sqlite3.Connection) -> None:
        self._run = run
        self._db = connection
        self.report = Report()
        self.lost: dict[int, tuple[int, PageKey, str]] = {}
        """The rows whose captures cannot be used."""
        self.broken_rows: list[tuple[str, tuple[Any, ...]]] = []
        self.lengths = dict(
            connection.execute("SELECT name, length_bytes FROM file WHERE length_bytes NOT NULL")
        )

    def find(self, kind: str, where: str, what: str) -> None:
        counts, report = self.report.counts, self.report
        counts[kind] = counts.get(kind, 0) + 1
        if counts[kind] <= _MOST_NAMED:
            report.findings.append(Finding(kind, where, what))

    def all(self) -> None:
        self._database()
        self._files()
        for number, name in self._db.execute("SELECT id, name FROM file").fetchall():
            if name.startswith(f"{ARCHIVE_FOLDER}/"):
                self._archive_file(number, name)
        self._pages_lines()
        self._log_lines()
        self._index()

    def _database(self) -> None:
        for (line,) in self._db.execute("PRAGMA integrity_check(20)"):
            if line != "ok":
                self.find("database", DATABASE, line)
        for what, query, mend in _RULES:
            for row in self._db.execute(query):
                self.find("row", DATABASE, f"{what} ({', '.join(map(str, row))})")
                if mend:
                    self.broken_rows.append((mend, row))
        (self.report.pages,) = self._db.execute("SELECT count(*) FROM page").fetchone()
        for site_id, site, sums, counted in self.wrong_sums():
            self.find("sum", f"{DATABASE}, {site}", f"says {_shown(sums)}, its pages are {_shown(counted)}")
            self.broken_rows.append(
                ("UPDATE site SET done = ?, failed = ?, excluded = ? WHERE id = ?", (*counted, site_id))
            )

    def wrong_sums(self) -> Iterator[tuple[int, str, tuple[int, ...], tuple[int, ...]]]:
        counts: Counter[tuple[int, str]] = Counter()
        for site_id, state, count in self._db.execute(_SUMS):
            counts[site_id, state] += count
        for site_id, site, *sums in self._db.execute("SELECT id, site, done, failed, excluded FROM site"):
            counted = tuple(counts[site_id, state] for state in ("done", "failed", "excluded"))
            if tuple(sums) != counted:
                yield site_id, site, tuple(sums), counted

    def _files(self) -> None:
        for name, length in self.lengths.items():
            path = repair.inside(self._run, name)
            if not path.is_file():
                self.find("file", name, "it is missing")
            elif (size := path.stat().st_size) != length:
                self.find("file", name, f"it has {size:,} bytes, the store says {length:,}")
        for path in (self._run / ARCHIVE_FOLDER).glob(WARC_PATTERN):
            if f"{ARCHIVE_FOLDER}/{path.name}" not in self.lengths:
                self.find("file", f"{ARCHIVE_FOLDER}/{path.name}", "the store does not name it")

    def _archive_file(self, number: int, name: str) -> None:
        captures = {row[3]: row for row in self._db.execute(_CAPTURES, (number,))}
        path = repair.inside(self._run, name)
        found: set[int] = set()
        if path.is_file():
            for record in records_of(path, self.lengths.get(name)):
                if isinstance(record, Finding):
                    self.find(*record)
                    continue
                self.report.records += 1
                row = captures.get(record.offset)
                problem = _problem_of(record)
                if row is not None:
                    found.add(record.offset)
                    problem = problem or _disagreement(record, row)
                    if problem:
                        self._lose(row)
                if problem:
                    self.find("record", f"{path.name} at {record.offset}", problem)
        for offset, row in captures.items():
            if offset not in found:
                url = rows.url_of(row[2], Site(row[1]))
                self.find("capture", f"{path.name} at {offset}", f"there is no record of {url}")
                self._lose(row)

    def _lose(self, row: tuple[Any, ...]) -> None:
        self.lost[row[0]] = (row[7], row[8], row[9])

    def _pages_lines(self) -> None:
        expected = Counter(self._expected_lines())
        path = self._run / PAGES
        lines = path.read_bytes().splitlines() if path.is_file() else []
        for number, line in enumerate(lines, 1):
            if expected[line]:
                expected[line] -= 1
            else:
                self.find("line", f"{PAGES}, line {number}", "no page has this line")
        for line, count in expected.items():
            page = msgspec.json.decode(line, type=PageLine)
            # A page whose capture was lost and that was queued again has no line.
            for _ in range(count if page.warc_file is not None else 0):
                self.find("line", PAGES, f"the line of {page.url} is missing")

    def _expected_lines(self) -> Iterator[bytes]:
        for _, *row in self._db.execute(repair.PAGE_LINES, ("noindex",)):
            yield repair.page_line(row)

    def _log_lines(self) -> None:
        path = self._run / LOG
        lines = path.read_bytes().splitlines() if path.is_file() else []
        for number, line in enumerate(lines, 1):
            words = line.split()
            try:
                line.decode()
            except UnicodeDecodeError:
                words = []
            if len(words) < _LOG_COLUMNS or words[8].decode() not in _STATES:
                self.find("log line", f"{LOG}, line {number}", "it is not a line of an attempt")

    def _index(self) -> None:
        path = self._run / INDEX_NAME
        if not path.is_file():
            self.find("index", INDEX_NAME, "it is missing")
            return
        with tempfile.TemporaryDirectory() as folder:
            expected = write_index(self._run, target=Path(folder) / "index.cdxj")
            if not filecmp.cmp(path, expected, shallow=False):
                with path.open("rb") as ours, expected.open("rb") as theirs:
                    line = next(
                        (n for n, (a, b) in enumerate(zip(ours, theirs, strict=False), 1) if a != b), 0
                    )
                where = f"{INDEX_NAME}, line {line}" if line else f"{INDEX_NAME}, its end"
                self.find("index", where, "it differs from what the rows say")


def verify(run: Path, *, repairs: bool = False) -> Report:
    """Check a run folder that no process is crawling into. StoreError if its database cannot be read."""
    path = run / DATABASE
    with _connected(path, repairs=repairs) as connection:
        check = _Check(run, connection)
        with _readable(path):
            check.all()
        report = check.report
        if repairs and report.counts:
            with _readable(path):
                report.queued = _repair(run, connection, check)
            report.is_repaired = True
    if report.is_repaired:
        write_index(run)
    return report


def _repair(run: Path, connection: sqlite3.Connection, check: _Check) -> int:
    """Returns how many pages were queued again."""
    if check.report.counts.get("database"):
        raise StoreError(f"{run / DATABASE}: {_REBUILD}")
    connection.execute("BEGIN IMMEDIATE")
    for statement, values in check.broken_rows:
        connection.execute(statement, values)
    lost = dict(check.lost)
    for digest in {digest for _, _, digest in lost.values() if digest}:
        lost |= {number: tuple(rest) for number, *rest in connection.execute(repair.REFERRING, (digest,))}
    queued = repair.queue_again(connection, lost, _as_found(connection))
    for name in check.lengths:
        file = repair.inside(run, name)
        if not file.is_file() and name.startswith(f"{ARCHIVE_FOLDER}/"):
            connection.execute("DELETE FROM file WHERE name = ?", (name,))
    for name, length in check.lengths.items():
        file = repair.inside(run, name)
        if file.is_file() and file.stat().st_size > length:
            os.truncate(file, length)
        elif file.is_file() and file.stat().st_size < length:
            end = file.stat().st_size
            if name == LOG:
                end = repair.end_of_whole_lines(file)
                os.truncate(file, end)
            connection.execute("UPDATE file SET length_bytes = ? WHERE name = ?", (end, name))
        elif not file.is_file() and name == LOG:
            file.touch()
            connection.execute("UPDATE file SET length_bytes = 0 WHERE name = ?", (name,))
    _drop_bad_log_lines(run, connection)
    repair.write_pages_again(connection, run, lost)
    connection.execute("COMMIT")
    return queued


def _drop_bad_log_lines(run: Path, connection: sqlite3.Connection) -> None:
    path = run / LOG
    if not path.is_file():
        return
    kept = []
    for line in path.read_bytes().splitlines(keepends=True):
        words = line.split()
        if len(words) >= _LOG_COLUMNS and words[8].decode("utf-8", "replace") in _STATES:
            kept.append(line)
    draft = path.with_name(f"{LOG}.new")
    draft.write_bytes(b"".join(kept))
    draft.replace(path)
    connection.execute("UPDATE file SET length_bytes = ? WHERE name = ?", (path.stat().st_size, LOG))


def _as_found(connection: sqlite3.Connection) -> Callable[[Page], float]:
    """The order of the crawl is applied again when it is resumed."""
    connection.execute("UPDATE crawl SET waiting_order = ''")
    return rows.as_found


_REBUILD = "the database is damaged; 'headway rebuild' makes it again from the archive and the logs"


@contextmanager
def _connected(path: Path, *, repairs: bool) -> Iterator[sqlite3.Connection]:
    lock_fd = schema.lock(path)
    try:
        with _readable(path):
            connection = schema.open_for_writing(path) if repairs else schema.open_for_reading(path)
        try:
            yield connection
        finally:
            connection.close()
    finally:
        os.close(lock_fd)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.DatabaseError as error:
        raise StoreError(f"{path}: {_REBUILD} ({error})") from None


def _problem_of(record: Record) -> str:
    """What is wrong with a record in itself; empty if nothing is."""
    digest = record.fields.get("warc-block-digest", "")
    if digest.startswith("sha1:") and sha1_digests([record.block])[0] != digest:
        return "its block has another digest than it says"
    if record.fields.get("warc-type") in {"response", "resource"}:
        digest = record.fields.get("warc-payload-digest", "")
        if digest.startswith("sha1:") and sha1_digests([record.payload])[0] != digest:
            return "its payload has another digest than it says"
    return ""


def _disagreement(record: Record, row: tuple[Any, ...]) -> str:
    """Where a record and the row of its page differ; empty if they agree."""
    _, site, path, _, length, digest, record_type, *_ = row
    url, fields = uri(rows.url_of(path, Site(site))), record.fields
    if fields.get("warc-target-uri") != url:
        return f"it is of {fields.get('warc-target-uri', 'no page')}, the store says {url}"
    if record.length != length:
        return f"it has {record.length:,} bytes, the store says {length:,}"
    if record_type and fields.get("warc-type") != record_type:
        return f"it is a {fields.get('warc-type')} record, the store says {record_type}"
    if digest.startswith("sha1:") and fields.get("warc-payload-digest") != digest:
        return "it has another payload than the store says"
    return ""


def _shown(sums: tuple[int, ...]) -> str:
    return f"{sums[0]} done, {sums[1]} failed, {sums[2]} excluded"
