"""The tables of `crawl.sqlite`, and how the file is opened, checked and locked.

Rows of a site lie together: `seen` and `waiting` are clustered by the site's number, so that a commit
touches few pages of the file even with millions of URLs. `page` only grows, in the order of
settling; a page that is fetched again later gets one more row.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from contextlib import suppress
from pathlib import Path

from headway.errors import StoreError
from headway.store.failures import clear_errors

VERSION = 2
_APPLICATION_ID = 0x68647779
"""`hdwy`, by which `file` and we know the database as ours."""

_CACHE_KIB = 16 * 1024
"""A crawl's memory grows until this is full. Up to 1.5 million URLs a larger one saved nothing that could be
told from the machine's own ups and downs: rows of a site lie together, and the system has a cache as well."""
_CHECKPOINT_PAGES = 64 * 1024
_BUSY_MS = 10_000

TABLES = """
CREATE TABLE crawl (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    started_at REAL NOT NULL,
    job TEXT NOT NULL,
    waiting_order TEXT NOT NULL
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
    forecast_to_at REAL
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
-- Every page ever saved. `place` is its row in `waiting`, `page_id` its last row in `page`.
CREATE TABLE seen (
    site_id INTEGER NOT NULL,
    key INTEGER NOT NULL,
    place INTEGER,
    page_id INTEGER,
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
-- `links` has the keys of the pages linked to, eight bytes each, little-endian.
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
    fingerprint INTEGER
);
-- What a visit has for the next one: `history` has the last visits, as policy.freshness packs them.
CREATE TABLE sighting (page_id INTEGER PRIMARY KEY, etag TEXT, last_modified TEXT, history BLOB);
-- Times at which all pages were queued once more.
CREATE TABLE round (number INTEGER PRIMARY KEY, started_at REAL NOT NULL, pages INTEGER NOT NULL);
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
    is_paused INTEGER
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
            connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
            connection.execute("PRAGMA temp_store = MEMORY")
        except BaseException:
            connection.close()
            raise
    return connection


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
    if not is_begun:
        connection.close()
        raise StoreError(f"{path}: the crawl was stopped before it began; start it again")
    return connection


def check_version(connection: sqlite3.Connection, path: Path) -> bool:
    """True when the tables are there and ours; StoreError when they are of another make."""
    (application_id,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (table_count,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if not table_count and not application_id:
        return False
    if application_id != _APPLICATION_ID:
        raise StoreError(f"{path}: a database of another program; choose another folder for the crawl")
    if version != VERSION:
        raise StoreError(
            f"{path}: written by a headway whose store has version {version}, this one reads version "
            f"{VERSION}; go on with the headway that wrote it, or crawl into a new folder"
        )
    return True


def _make_empty_file(path: Path) -> None:
    """SQLite makes its files as open as the umask lets it; ours are no more open than 0644."""
    # Never on a file that exists: closing it would drop the locks of a reader in this same process.
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644))


def _check_or_make_tables(connection: sqlite3.Connection, path: Path) -> None:
    if check_version(connection, path):
        return
    connection.executescript(
        f"BEGIN IMMEDIATE; {TABLES}"
        f"PRAGMA application_id = {_APPLICATION_ID}; PRAGMA user_version = {VERSION}; COMMIT;"
    )
