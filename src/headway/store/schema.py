"""The tables of `crawl.sqlite`, the statements on them, and how the file is opened, checked and locked."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path

from headway.archive.files import clear_errors
from headway.errors import StoreError
from headway.store.repair import give_new_keys

ADD_SEEN = "INSERT OR IGNORE INTO seen (site_id, key, place, check_bits) VALUES (?, ?, ?, ?)"
ADD_WAITING = "INSERT INTO waiting VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
ADD_PAGE = """
    INSERT INTO page
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
PUT_SEEN = """
    INSERT INTO seen (place, page_id, site_id, key, check_bits) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT DO UPDATE SET place = excluded.place, page_id = excluded.page_id"""
RETRY_LATER = "UPDATE waiting SET attempt = ?, retry_at = ? WHERE site_id = ? AND place = ?"
ADD_SUMS = """
    UPDATE site SET done = done + ?, failed = failed + ?, excluded = excluded + ?,
                    wire_bytes = wire_bytes + ?, content_bytes = content_bytes + ?,
                    started_at = coalesce(started_at, ?), free_at = coalesce(free_at, 0.0)
    WHERE id = ?"""
COUNT_OUTCOMES = """
    INSERT INTO outcome VALUES (?, ?, ?, ?, ?)
    ON CONFLICT DO UPDATE SET pages = pages + excluded.pages"""
PUT_TASK = """
    INSERT INTO task (position, site_id, seeds, deadline_at, weight, max_pages, max_bytes, expected_bytes,
                      cap_bytes_per_s)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (site_id) DO UPDATE SET seeds = excluded.seeds, deadline_at = excluded.deadline_at,
        weight = excluded.weight, max_pages = excluded.max_pages, max_bytes = excluded.max_bytes,
        expected_bytes = excluded.expected_bytes, cap_bytes_per_s = excluded.cap_bytes_per_s"""
LAST_TASK = "SELECT coalesce(max(position), 0) FROM task"
"""Read once: the column has no index."""
PUT_SITE = "UPDATE site SET free_at = ?, failures_in_a_row = ?, ended_at = ? WHERE id = ?"
PUT_ROBOTS = """
    INSERT INTO robots VALUES (?, ?, ?)
    ON CONFLICT DO UPDATE SET text = coalesce(excluded.text, text),
                              expires_at = coalesce(excluded.expires_at, expires_at)"""
PUT_FILE = """
    INSERT INTO file (name, length_bytes) VALUES (?, ?)
    ON CONFLICT (name) DO UPDATE SET length_bytes = excluded.length_bytes"""
PUT_NOTICE = "INSERT OR IGNORE INTO notice (site_id, what, subject, noticed_at) VALUES (?, ?, ?, ?)"
NOTICES = """
    SELECT site, noticed_at, what, subject FROM notice JOIN site ON site.id = notice.site_id
    ORDER BY noticed_at, notice.site_id, what, subject"""
FINGERPRINTS = """
    SELECT page.id, site, path, fingerprint FROM page JOIN site ON site.id = page.site_id
    WHERE page.id > ? AND fingerprint IS NOT NULL ORDER BY page.id LIMIT ?"""
SERVERS = "SELECT address, rates FROM server ORDER BY address"
PUT_SERVER = """
    INSERT INTO server (address, rates) VALUES (?, ?)
    ON CONFLICT (address) DO UPDATE SET rates = excluded.rates"""
NUMBER_SITE = "INSERT INTO site (id, site) VALUES (?, ?)"
FIND_SEEN = "SELECT place, page_id FROM seen WHERE site_id = ? AND key = ?"
FIND_CHECK = "SELECT place, coalesce(check_bits, 0) FROM seen WHERE site_id = ? AND key = ?"
FIND_VERDICT = "SELECT state, kind FROM page WHERE id = ?"
NAME_FILE = "INSERT OR IGNORE INTO file (name) VALUES (?)"
FIND_FILE = "SELECT id FROM file WHERE name = ?"
DROP_WAITING = "DELETE FROM waiting WHERE site_id = ? AND place = ?"
ADD_CONTENT = "INSERT OR IGNORE INTO content VALUES (?, ?)"
FIND_CONTENT = """
    SELECT site.site, page.path, page.fetched_at, page.payload_digest
    FROM content JOIN page ON page.id = content.page_id JOIN site ON site.id = page.site_id
    WHERE content.fingerprint = ? AND page.digest = ?"""
LOAD_TASKS = """
    SELECT site, seeds, deadline_at, weight, max_pages, max_bytes, expected_bytes, cap_bytes_per_s
    FROM task JOIN site ON site.id = task.site_id ORDER BY position, task.site_id"""
# A site has been free at some time once it was asked; those only linked to are nothing to go on with.
LOAD_SITES = """
    SELECT site, free_at, failures_in_a_row, robots.text, robots.expires_at, ended_at,
           started_at, done, failed, excluded, wire_bytes, content_bytes
    FROM site LEFT JOIN robots ON robots.site_id = site.id
    WHERE free_at NOT NULL ORDER BY id"""
LOAD_WAITING = """
    SELECT site, path, key, depth, coalesce(score, 0.0), attempt, retry_at
    FROM waiting JOIN site ON site.id = waiting.site_id ORDER BY place"""
COUNT_WAITING = """
    SELECT site, count(*), min(rank) FROM waiting JOIN site ON site.id = site_id
    GROUP BY site_id ORDER BY site_id"""
FIRST_WAITING = """
    SELECT path, key, depth, coalesce(score, 0.0), attempt, retry_at
    FROM waiting INDEXED BY waiting_in_order WHERE site_id = ? ORDER BY rank, place LIMIT ?"""
WAITING_BY_SITE = """
    SELECT site.site, path, key, depth, coalesce(score, 0.0), attempt, retry_at
    FROM waiting INDEXED BY waiting_in_order JOIN site ON site.id = waiting.site_id
    ORDER BY site_id, rank, place"""
FIRST_DUE = """
    SELECT path, key, depth, coalesce(score, 0.0), attempt, retry_at
    FROM waiting INDEXED BY waiting_in_order
    WHERE site_id = ? AND (retry_at IS NULL OR retry_at <= ?) ORDER BY rank, place LIMIT ?"""
RANK_ANEW = """
    UPDATE waiting SET rank =
        rank_of((SELECT site FROM site WHERE site.id = site_id), path, key, depth, coalesce(score, 0.0))"""

TOTALS = """
    SELECT count(*), (SELECT count(*) FROM seen), (SELECT count(*) FROM waiting), coalesce(sum(done), 0),
           coalesce(sum(failed), 0), coalesce(sum(excluded), 0), coalesce(sum(wire_bytes), 0),
           coalesce(sum(content_bytes), 0)
    FROM site WHERE free_at NOT NULL OR id IN (SELECT site_id FROM task)"""
SITES = """
    SELECT site, done, failed, excluded, coalesce(queue.pages, 0), wire_bytes, content_bytes,
           task.deadline_at, started_at, ended_at, free_at
    FROM site
    LEFT JOIN task ON task.site_id = site.id
    LEFT JOIN (
        -- Pages that only wait for the day of their next visit do not keep their site from being done.
        SELECT site_id, count(*) FILTER (WHERE attempt >= 0 OR retry_at IS NULL) AS pages
        FROM waiting GROUP BY site_id
    ) AS queue ON queue.site_id = site.id
    WHERE task.site_id NOT NULL OR free_at NOT NULL OR queue.pages > 0
    ORDER BY site.id"""
OUTCOMES = """
    SELECT state, kind, reason, sum(pages) AS total FROM outcome
    WHERE ? IS NULL OR site_id = (SELECT id FROM site WHERE site = ?)
    GROUP BY state, kind, reason ORDER BY total DESC, state, kind, reason"""
PAGES = """
    SELECT page.id, site, path, key, depth, state, attempt, kind, status, page.wire_bytes, page.content_bytes,
           content_type, digest, settled_at, fetched_at, duration_s, detail, file.name, warc_offset,
           warc_length, coalesce(payload_digest, digest), record_type
    FROM page JOIN site ON site.id = page.site_id LEFT JOIN file ON file.id = page.file_id
    WHERE page.id > ? ORDER BY page.id LIMIT ?"""
CAPTURES = """
    SELECT page.id, site, path, fetched_at, content_type, status, coalesce(payload_digest, digest),
           warc_length, warc_offset, file.name, record_type
    FROM page JOIN site ON site.id = page.site_id LEFT JOIN file ON file.id = page.file_id
    WHERE page.id > ? AND page.file_id IS NOT NULL ORDER BY page.id LIMIT ?"""


# The tables of `crawl.sqlite`, and how the file is opened, checked and locked.
#
# Rows of a site lie together: `seen` and `waiting` are clustered by the site's number, so that a commit
# touches few pages of the file even with millions of URLs. `page` only grows, in the order of
# settling; a page that is fetched again later gets one more row.

VERSION = 6
ADDED: Mapping[int, Mapping[str, Mapping[str, str]]] = {
    3: {"page": {"timing": "BLOB"}},
    4: {
        "site": {"forecast_at": "REAL", "deadline_chance": "REAL"},
        "sample": {"forecast_from_at": "REAL", "forecast_at": "REAL", "forecast_to_at": "REAL"},
    },
    5: {"round": {"ended_at": "REAL", "result": "TEXT"}},
    6: {"crawl": {"secret": "BLOB"}, "seen": {"check_bits": "INTEGER"}},
}
"""By version, table and column: what was added since the version before. A crawl upgrades its folder when
it is continued; for readers of an older folder the columns are NULL."""
KEYED_SINCE = 6
"""Since this version the keys of pages are made with a secret of the crawl."""
_OLDEST = min(ADDED) - 1
_APPLICATION_ID = 0x68647779
"""`hdwy`, by which `file` and we know the database as ours."""

_CACHE_KIB = 16 * 1024
"""A crawl's memory grows until this is full. Up to 1.5 million URLs a larger one saved nothing that could be
told from the machine's own ups and downs: rows of a site lie together, and the system has a cache as well."""
CHECKPOINT_BYTES = 256 << 20
"""`SqliteStore` copies the write-ahead log into the file when it is longer: in a thread, because that takes
half a second."""
_BUSY_MS = 10_000

TABLES = """
CREATE TABLE crawl (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    started_at REAL NOT NULL,
    job TEXT NOT NULL,
    waiting_order TEXT NOT NULL,
    secret BLOB
);
CREATE TABLE site (
    id INTEGER PRIMARY KEY,
    site TEXT NOT NULL UNIQUE,
    free_at REAL,
    failures_in_a_row INTEGER NOT NULL DEFAULT 0,
    ended_at REAL,
    started_at REAL,
    done INTEGER NOT NULL DEFAULT 0,
    failed INTEGER NOT NULL DEFAULT 0,
    excluded INTEGER NOT NULL DEFAULT 0,
    wire_bytes INTEGER NOT NULL DEFAULT 0,
    content_bytes INTEGER NOT NULL DEFAULT 0,
    looked_at REAL,
    waiting INTEGER,
    left_bytes REAL,
    share_bytes_per_s REAL,
    forecast_from_at REAL,
    forecast_to_at REAL,
    forecast_at REAL,
    deadline_chance REAL
);
-- How a site looked at earlier instants; its last look is in `site`.
CREATE TABLE course (
    site_id INTEGER NOT NULL,
    at REAL NOT NULL,
    wire_bytes INTEGER NOT NULL,
    waiting INTEGER NOT NULL,
    left_bytes REAL,
    share_bytes_per_s REAL,
    forecast_from_at REAL,
    forecast_to_at REAL,
    PRIMARY KEY (site_id, at)
) WITHOUT ROWID;
-- Apart from `site`, whose rows are rewritten all the time: a robots.txt may have half a megabyte.
CREATE TABLE robots (site_id INTEGER PRIMARY KEY REFERENCES site, text TEXT, expires_at REAL);
CREATE TABLE task (
    site_id INTEGER PRIMARY KEY REFERENCES site,
    position INTEGER NOT NULL,
    seeds TEXT NOT NULL,
    deadline_at REAL,
    weight REAL NOT NULL,
    max_pages INTEGER,
    max_bytes INTEGER,
    expected_bytes INTEGER,
    cap_bytes_per_s REAL
);
-- Every page ever saved. `place` is its row in `waiting`, `page_id` its last row in `page`; `check_bits`
-- distinguish its URL from another with the same key.
CREATE TABLE seen (
    site_id INTEGER NOT NULL,
    key INTEGER NOT NULL,
    place INTEGER,
    page_id INTEGER,
    check_bits INTEGER,
    PRIMARY KEY (site_id, key)
) WITHOUT ROWID;
-- `place` numbers pages in the order in which they were found. A path with = in front is a whole URL.
CREATE TABLE waiting (
    site_id INTEGER NOT NULL,
    place INTEGER NOT NULL,
    key INTEGER NOT NULL,
    path TEXT NOT NULL,
    depth INTEGER NOT NULL,
    score REAL,
    attempt INTEGER NOT NULL DEFAULT 0,
    retry_at REAL,
    rank REAL NOT NULL,
    PRIMARY KEY (site_id, place)
) WITHOUT ROWID;
CREATE INDEX waiting_in_order ON waiting (site_id, rank, place);
-- `links` has the keys of the pages linked to, eight bytes each, little-endian. `timing` says where the time
-- of the answer went, as `rows.pack_timing` packs it.
CREATE TABLE page (
    id INTEGER PRIMARY KEY,
    site_id INTEGER NOT NULL,
    key INTEGER NOT NULL,
    path TEXT NOT NULL,
    depth INTEGER NOT NULL,
    state TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    kind TEXT NOT NULL,
    status INTEGER NOT NULL,
    wire_bytes INTEGER NOT NULL,
    content_bytes INTEGER NOT NULL,
    content_type TEXT NOT NULL,
    digest TEXT NOT NULL,
    settled_at REAL NOT NULL,
    fetched_at REAL NOT NULL,
    duration_s REAL NOT NULL,
    detail TEXT NOT NULL,
    file_id INTEGER,
    warc_offset INTEGER,
    warc_length INTEGER,
    payload_digest TEXT,
    record_type TEXT,
    links BLOB,
    fingerprint INTEGER,
    timing BLOB
);
-- What a visit has for the next one: `history` has the last visits, as policy.freshness packs them.
CREATE TABLE sighting (page_id INTEGER PRIMARY KEY, etag TEXT, last_modified TEXT, history BLOB);
-- Times at which all pages were queued once more. Number 0 is the first round, noted when it has ended.
-- `result` is a `rounds.RoundResult` as JSON.
CREATE TABLE round (
    number INTEGER PRIMARY KEY,
    started_at REAL NOT NULL,
    pages INTEGER NOT NULL,
    ended_at REAL,
    result TEXT
);
-- The first capture of each content, by the first 63 bits of a hash of its digest.
CREATE TABLE content (fingerprint INTEGER PRIMARY KEY, page_id INTEGER NOT NULL);
CREATE TABLE outcome (
    site_id INTEGER NOT NULL,
    state TEXT NOT NULL,
    kind TEXT NOT NULL,
    reason TEXT NOT NULL,
    pages INTEGER NOT NULL,
    PRIMARY KEY (site_id, state, kind, reason)
) WITHOUT ROWID;
-- Traps and mirrors, once each.
CREATE TABLE notice (
    site_id INTEGER NOT NULL,
    what TEXT NOT NULL,
    subject TEXT NOT NULL,
    noticed_at REAL NOT NULL,
    PRIMARY KEY (site_id, what, subject)
) WITHOUT ROWID;
CREATE TABLE server (address TEXT PRIMARY KEY, rates BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE file (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, length_bytes INTEGER);
CREATE TABLE sample (
    id INTEGER PRIMARY KEY,
    at REAL NOT NULL,
    wire_bytes INTEGER NOT NULL,
    capacity_bytes_per_s REAL,
    predicted_bytes_per_s REAL,
    in_flight INTEGER,
    waiting INTEGER,
    done INTEGER,
    failed INTEGER,
    is_paused INTEGER,
    forecast_from_at REAL,
    forecast_at REAL,
    forecast_to_at REAL
);
"""


def lock(path: Path) -> int:
    """Take the crawl for this process, or say who has it. Readers need no lock."""
    lock_path = path.with_name(path.name + "-lock")
    with clear_errors(lock_path):
        fd = os.open(lock_path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
            os.close(fd)
            who = f"process {holder}" if holder else "another process"
            message = f"{path.parent}: {who} is crawling into this folder; wait for it to end, or use another"
            raise StoreError(message) from None
        except OSError:
            os.close(fd)
            raise
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    return fd


def unlock(fd: int) -> None:
    """Readers see at once that nobody crawls here any more, though the process may live on."""
    with suppress(OSError):
        os.ftruncate(fd, 0)
    os.close(fd)


def open_for_writing(path: Path) -> sqlite3.Connection:
    """The database with its tables; made if there is none. The caller holds the lock."""
    with clear_errors(path):
        _make_empty_file(path)
        connection = sqlite3.connect(
            path, isolation_level=None, check_same_thread=False, timeout=_BUSY_MS / 1000
        )
        try:
            _check_or_make_tables(connection, path)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("PRAGMA wal_autocheckpoint = 0")
            connection.execute(
                "PRAGMA journal_size_limit = 0"
            )  # so that the size of the log says what it holds
            connection.execute("PRAGMA temp_store = MEMORY")
        except BaseException:
            connection.close()
            raise
    return connection


def checkpoint(path: Path) -> None:
    """Copy what the write-ahead log holds now into the file, beside a connection that goes on writing."""
    with closing(sqlite3.connect(path, isolation_level=None, timeout=_BUSY_MS / 1000)) as connection:
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)")


def close_for_good(connection: sqlite3.Connection) -> None:
    """Leave one plain file, which can be copied, or read where nothing may be written."""
    try:
        with suppress(sqlite3.Error):
            # A reader that is looking just now prevents it; then the log stays, which does no harm.
            connection.execute("PRAGMA busy_timeout = 0")
            connection.execute("PRAGMA journal_mode = DELETE")
    finally:
        connection.close()


def open_for_reading(path: Path) -> sqlite3.Connection:
    """The database as the last commit left it, while a crawl may go on writing."""
    address = f"{path.absolute().as_uri()}?mode=ro"
    with clear_errors(path):
        connection = sqlite3.connect(address, uri=True, isolation_level=None, timeout=_BUSY_MS / 1000)
        try:
            is_begun = check_version(connection, path)
        except BaseException:
            connection.close()
            raise
    if is_begun:
        with clear_errors(path):
            _complete(connection)
    else:
        connection.close()
        raise StoreError(f"{path}: the crawl was stopped before it started; start it again")
    return connection


def upgrade_to(version: int) -> str:
    """The statements that upgrade from the version before."""
    return "; ".join(
        f"ALTER TABLE {table} ADD COLUMN {column} {kind}"
        for table, columns in ADDED[version].items()
        for column, kind in columns.items()
    )


def _complete(connection: sqlite3.Connection) -> None:
    """Give a reader of an older folder the columns that its tables lack, by temporary views in front of
    them."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    missing: dict[str, list[str]] = {}
    for step in range(version + 1, VERSION + 1):
        for table, columns in ADDED[step].items():
            missing.setdefault(table, []).extend(columns)
    for table, names in missing.items():
        nulls = ", ".join(f"NULL AS {name}" for name in names)
        connection.execute(f"CREATE TEMP VIEW {table} AS SELECT *, {nulls} FROM main.{table}")  # noqa: S608


def check_version(connection: sqlite3.Connection, path: Path) -> bool:
    """True when the tables are there and ours, in a version that can be read or upgraded; StoreError when
    they are of another make."""
    (application_id,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (table_count,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if not table_count and not application_id:
        return False
    if application_id != _APPLICATION_ID:
        raise StoreError(f"{path}: a database of another program; choose another folder for the crawl")
    if not _OLDEST <= version <= VERSION:
        raise StoreError(
            f"{path}: written by a version of headway whose store has version {version}, this one reads "
            f"version {VERSION}; continue with the version that wrote it, or crawl into a new folder"
        )
    return True


def _make_empty_file(path: Path) -> None:
    """SQLite makes its files as open as the umask lets it; ours are no more open than 0644."""
    # Never on a file that exists: closing it would drop the locks of a reader in this same process.
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644))


def _check_or_make_tables(connection: sqlite3.Connection, path: Path) -> None:
    if check_version(connection, path):
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        for step in range(version + 1, VERSION + 1):
            connection.execute("BEGIN IMMEDIATE")
            try:
                for statement in upgrade_to(step).split(";"):
                    connection.execute(statement)
                if step == KEYED_SINCE:
                    give_new_keys(connection)
                connection.execute(f"PRAGMA user_version = {step}")
                connection.execute("COMMIT")
            except BaseException:
                connection.execute("ROLLBACK")
                raise
        return
    connection.executescript(
        f"BEGIN IMMEDIATE; {TABLES}"
        f"PRAGMA application_id = {_APPLICATION_ID}; PRAGMA user_version = {VERSION}; COMMIT;"
    )
