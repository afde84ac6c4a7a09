"""After a crash or power cut: restores the files of a run folder to the state that the store committed."""

from __future__ import annotations

import os
import secrets
import sqlite3
import zlib
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec
import numpy as np

from headway.archive.files import clear_errors
from headway.archive.records import iso_utc
from headway.archive.warc import ARCHIVE_FOLDER, WARC_PATTERN
from headway.engine.seen import check_bits
from headway.errors import StoreError
from headway.model.page import Kind, Page, PageKey, Site
from headway.pages.url import SECRET_BYTES, key_of
from headway.policy.politeness import preferences_in
from headway.store import rows
from headway.store.rows import PageLine
from headway.units import Instant

# Data written after the last commit belongs to pages that still wait in the store; they are fetched again, so
# their first records are removed.


def cut_back(run_folder: Path, committed_lengths: Mapping[str, int], logs: Iterable[str] = ()) -> None:
    """Truncate each file to its committed length; remove headway's files that the store does not know."""
    for name, length_bytes in committed_lengths.items():
        path = inside(run_folder, name)
        with clear_errors(path):
            actual_bytes = path.stat().st_size if path.exists() else 0
            if actual_bytes < length_bytes:
                raise StoreError(
                    f"{path}: {length_bytes - actual_bytes} bytes are missing that the store refers to; "
                    f"restore the file from a backup, or crawl into a new folder"
                )
            if actual_bytes > length_bytes:
                os.truncate(path, length_bytes)
    with clear_errors(run_folder):
        for path in (run_folder / ARCHIVE_FOLDER).glob(WARC_PATTERN):
            if f"{ARCHIVE_FOLDER}/{path.name}" not in committed_lengths:
                path.unlink()
        for name in logs:
            if name not in committed_lengths and (run_folder / name).exists():
                os.truncate(run_folder / name, 0)


def inside(run_folder: Path, name: str) -> Path:
    """A name from the database must not lead out of the folder: it may have been written by an attacker."""
    pure = PurePosixPath(name)
    if pure.is_absolute() or ".." in pure.parts or not pure.parts:
        raise StoreError(
            f"{run_folder}: the store names a file outside the folder ({name!r}); do not use this folder"
        )
    return run_folder / pure


# After a power cut files can be shorter than the store has recorded, because the system had not written them.
#
# The pages whose captures were lost are queued again, and so are pages that refer to a lost capture; the
# archive is truncated after its last complete record, and `pages.jsonl` is written again. Lost log lines stay
# lost. A file that does not exist at all was not lost by a power cut: a person has to decide what to do.

PAGES = "pages.jsonl"
_PIECE_BYTES = 1 << 20
_LOST = """
    SELECT page.id, page.site_id, page.key, page.digest FROM page JOIN file ON file.id = page.file_id
    WHERE file.name = ? AND warc_offset + warc_length > ?"""
REFERRING = "SELECT id, site_id, key, digest FROM page WHERE record_type = 'revisit' AND digest = ?"
_FORGET = """
    UPDATE page SET file_id = NULL, warc_offset = NULL, warc_length = NULL, record_type = NULL WHERE id = ?"""
_LAST_ROW = """
    SELECT site.site, page.path, page.depth FROM page JOIN site ON site.id = page.site_id
    JOIN seen ON seen.site_id = page.site_id AND seen.key = page.key
    WHERE page.id = ? AND seen.page_id = page.id AND seen.place IS NULL"""
_QUEUE = """
    INSERT INTO waiting (site_id, place, key, path, depth, attempt, rank)
    VALUES (?, ?, ?, ?, ?, 0, ?)"""
PAGE_LINES = """
    SELECT page.id, site.site, path, status, content_type,
           CASE WHEN status = 304 THEN 0 ELSE page.content_bytes END, depth, digest, fetched_at,
           duration_s, file.name, warc_offset, detail
    FROM page JOIN site ON site.id = page.site_id LEFT JOIN file ON file.id = page.file_id
    WHERE state = 'done' AND kind <> ? ORDER BY page.id"""


def shortened(run_folder: Path, committed_lengths: Mapping[str, int]) -> dict[str, int]:
    """The files that are too short, with their lengths."""
    short = {}
    for name, length_bytes in committed_lengths.items():
        path = inside(run_folder, name)
        if path.is_file() and path.stat().st_size < length_bytes:
            short[name] = path.stat().st_size
    return short


def repair(
    connection: sqlite3.Connection,
    run_folder: Path,
    short: Mapping[str, int],
    rank_of: Callable[[Page], float],
) -> str:
    """Within a transaction of the caller; returns a message for people."""
    lost: dict[int, tuple[int, PageKey, str]] = {}
    for name, length_bytes in short.items():
        if name.startswith(f"{ARCHIVE_FOLDER}/"):
            end = end_of_whole_records(run_folder / name, length_bytes)
            lost |= {number: tuple(rest) for number, *rest in connection.execute(_LOST, (name, end))}
        else:
            end = end_of_whole_lines(run_folder / name)
        _cut(connection, run_folder, name, end)
    for digest in {digest for _, _, digest in lost.values() if digest}:
        lost |= {number: tuple(rest) for number, *rest in connection.execute(REFERRING, (digest,))}
    queued = queue_again(connection, lost, rank_of)
    if lost or PAGES in short:
        write_pages_again(connection, run_folder, lost)
    files = ", ".join(sorted(short))
    return f"{files} were truncated, as by a power cut; {queued} pages will be fetched again"


def queue_again(
    connection: sqlite3.Connection,
    lost: Mapping[int, tuple[int, PageKey, str]],
    rank_of: Callable[[Page], float],
) -> int:
    (place,) = connection.execute("SELECT coalesce(max(place), 0) FROM waiting").fetchone()
    queued = 0
    for number, (site_id, key, _) in lost.items():
        row = connection.execute(_LAST_ROW, (number,)).fetchone()
        if row is not None:
            site, path, depth = row
            place, queued = place + 1, queued + 1
            rank = rank_of(Page(rows.url_of(path, site), Site(site), key, depth))
            connection.execute(_QUEUE, (site_id, place, key, path, depth, rank))
            connection.execute(
                "UPDATE seen SET place = ? WHERE site_id = ? AND key = ?", (place, site_id, key)
            )
            connection.execute("UPDATE site SET ended_at = NULL WHERE id = ?", (site_id,))
        connection.execute(_FORGET, (number,))
        connection.execute("DELETE FROM content WHERE page_id = ?", (number,))
    return queued


def write_pages_again(connection: sqlite3.Connection, run_folder: Path, left_out: Container[int]) -> None:
    path, draft = run_folder / PAGES, run_folder / f"{PAGES}.new"
    with draft.open("wb") as file:
        for number, *row in connection.execute(PAGE_LINES, (Kind.NOINDEX.value,)):
            if number not in left_out:
                file.write(page_line(row) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    connection.execute("UPDATE file SET length_bytes = ? WHERE name = ?", (path.stat().st_size, PAGES))


def page_line(row: Sequence[Any]) -> bytes:
    site, where, status, content_type, size_bytes, depth, digest, fetched_at, duration_s, *place = row
    line = PageLine(
        url=rows.url_of(where, Site(site)),
        site=site,
        status=status,
        content_type=content_type,
        bytes=size_bytes,
        depth=depth,
        digest=digest,
        fetched_at=iso_utc(Instant(fetched_at)),
        duration_s=round(duration_s, 6),
        warc_file=place[0],
        warc_offset=place[1],
        preferences=preferences_in(place[2] or "") or None,
    )
    return msgspec.json.encode(line)


def _cut(connection: sqlite3.Connection, run_folder: Path, name: str, end: int) -> None:
    os.truncate(run_folder / name, end)
    connection.execute("UPDATE file SET length_bytes = ? WHERE name = ?", (end, name))


def end_of_whole_records(path: Path, length_bytes: int) -> int:
    """The position after the last complete gzip member: each record is one."""
    end = position = 0
    member = zlib.decompressobj(31)
    with path.open("rb") as file:
        while piece := file.read(min(_PIECE_BYTES, length_bytes - position)):
            position += len(piece)
            while piece:
                try:
                    member.decompress(piece)
                except zlib.error:
                    return end
                piece = member.unused_data
                if not member.eof:
                    break
                end, member = position - len(piece), zlib.decompressobj(31)
    return end


def end_of_whole_lines(path: Path) -> int:
    content = path.read_bytes()
    return content.rfind(b"\n") + 1


# Keys were made without a secret once, so that a site could make up a URL with the key of another's page, and
# 48 bits of them were of the URL. Such a crawl gets a secret, and all its pages the keys that they have with
# it. All their URLs are in the store.

_OLD_KEYS = """
    CREATE TEMP TABLE rekeyed AS
    SELECT seen.site_id, seen.key AS old, key_of(site.site, coalesce(waiting.path, page.path)) AS key,
           check_bits_of(site.site, coalesce(waiting.path, page.path)) AS check_bits, seen.place, seen.page_id
    FROM seen JOIN site ON site.id = seen.site_id
    LEFT JOIN waiting ON waiting.site_id = seen.site_id AND waiting.place = seen.place
    LEFT JOIN page ON page.id = seen.page_id
    WHERE coalesce(waiting.path, page.path) NOT NULL"""
_NEW_KEYS = (
    "DELETE FROM seen",
    """INSERT OR IGNORE INTO seen (site_id, key, place, page_id, check_bits)
       SELECT site_id, key, place, page_id, check_bits FROM rekeyed ORDER BY site_id, key""",
    "UPDATE waiting SET key = key_of((SELECT site FROM site WHERE site.id = site_id), path)",
    "UPDATE page SET key = key_of((SELECT site FROM site WHERE site.id = site_id), path)",
)
_LINKS = "SELECT id, links FROM page WHERE id > ? AND links NOT NULL ORDER BY id LIMIT ?"
_LINKS = "SELECT id, links FROM page WHERE id > ? AND links NOT NULL ORDER BY id LIMIT ?"
_LINKS_AT_ONCE = 1000


def give_new_keys(connection: sqlite3.Connection) -> None:
    """Within a transaction of the caller."""
    if connection.execute("SELECT 1 FROM crawl").fetchone() is None:
        return  # it gets its secret when it is begun
    secret = secrets.token_bytes(SECRET_BYTES)

    def key(site: str, path: str) -> int:
        return key_of(rows.url_of(path, Site(site)), secret)

    def check(site: str, path: str) -> int:
        return check_bits(rows.url_of(path, Site(site)))

    connection.create_function("key_of", 2, key, deterministic=True)
    connection.create_function("check_bits_of", 2, check, deterministic=True)
    connection.execute("UPDATE crawl SET secret = ?", (secret,))
    connection.execute(_OLD_KEYS)
    for statement in _NEW_KEYS:
        connection.execute(statement)
    keys = NewKeys(connection.execute("SELECT old, key FROM rekeyed"))
    last = 0
    while found := connection.execute(_LINKS, (last, _LINKS_AT_ONCE)).fetchall():
        last = found[-1][0]
        changed = [(keys.of_links(links), number) for number, links in found]
        connection.executemany("UPDATE page SET links = ? WHERE id = ?", changed)
    connection.execute("DROP TABLE rekeyed")


class NewKeys:
    """The new keys of pages by their old ones."""

    def __init__(self, pairs: Iterable[tuple[int, int]]) -> None:
        both = np.fromiter(pairs, dtype=np.dtype([("old", np.int64), ("new", np.int64)]))
        both = both[np.argsort(both["old"])]
        self._old, self._new = np.ascontiguousarray(both["old"]), np.ascontiguousarray(both["new"])

    def of_links(self, blob: bytes) -> bytes:
        """The keys of a page's links, as `rows.links_blob` packs them. Links to pages that are not known stay
        as they are: they led to nothing before."""
        links = np.frombuffer(blob, dtype="<i8")
        if not len(self._old):
            return blob
        places = np.minimum(np.searchsorted(self._old, links), len(self._old) - 1)
        return np.where(self._old[places] == links, self._new[places], links).astype("<i8").tobytes()
