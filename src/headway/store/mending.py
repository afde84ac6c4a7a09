"""After a power cut: files that are shorter than the store was told, because the system had not written them.

The pages whose captures were lost are queued once more, and so are those that refer to a lost capture as
theirs; the archive is cut behind its last whole record, and `pages.jsonl` is written anew. What a log has
lost stays lost. A file that is gone altogether was not lost by a power cut: that is for a person to decide.
"""

from __future__ import annotations

import os
import sqlite3
import zlib
from collections.abc import Callable, Container, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from headway.model.outcome import Kind
from headway.model.page import Page, PageKey, Site
from headway.store import rows
from headway.store.cutback import inside
from headway.store.pageline import PageLine
from headway.store.times import iso_utc
from headway.store.warc import ARCHIVE_FOLDER
from headway.units import Instant

PAGES = "pages.jsonl"
_PIECE_BYTES = 1 << 20
_LOST = """
    SELECT page.id, page.site_id, page.key, page.digest FROM page JOIN file ON file.id = page.file_id
    WHERE file.name = ? AND warc_offset + warc_length > ?"""
_REFERRING = "SELECT id, site_id, key, digest FROM page WHERE record_type = 'revisit' AND digest = ?"
_FORGET = """
    UPDATE page SET file_id = NULL, warc_offset = NULL, warc_length = NULL, record_type = NULL WHERE id = ?"""
_LAST_ROW = """
    SELECT site.site, page.path, page.depth FROM page JOIN site ON site.id = page.site_id
    JOIN seen ON seen.site_id = page.site_id AND seen.key = page.key
    WHERE page.id = ? AND seen.page_id = page.id AND seen.place IS NULL"""
_QUEUE = """
    INSERT INTO waiting (site_id, place, key, path, depth, attempt, rank)
    VALUES (?, ?, ?, ?, ?, 0, ?)"""
_LINES = """
    SELECT page.id, site.site, path, status, content_type, page.content_bytes, depth, digest, fetched_at,
           duration_s, file.name, warc_offset
    FROM page JOIN site ON site.id = page.site_id LEFT JOIN file ON file.id = page.file_id
    WHERE state = 'done' AND kind <> ? ORDER BY page.id"""


def shortened(run_folder: Path, committed_lengths: Mapping[str, int]) -> dict[str, int]:
    """The files that are there and too short, with the lengths that they have."""
    short = {}
    for name, length_bytes in committed_lengths.items():
        path = inside(run_folder, name)
        if path.is_file() and path.stat().st_size < length_bytes:
            short[name] = path.stat().st_size
    return short


def mend(
    connection: sqlite3.Connection,
    run_folder: Path,
    short: Mapping[str, int],
    rank_of: Callable[[Page], float],
) -> str:
    """Within a transaction of the caller; returns what was done, for people."""
    lost: dict[int, tuple[int, PageKey, str]] = {}
    for name, length_bytes in short.items():
        if name.startswith(f"{ARCHIVE_FOLDER}/"):
            end = end_of_whole_records(run_folder / name, length_bytes)
            lost |= {number: tuple(rest) for number, *rest in connection.execute(_LOST, (name, end))}
        else:
            end = end_of_whole_lines(run_folder / name)
        _cut(connection, run_folder, name, end)
    for digest in {digest for _, _, digest in lost.values() if digest}:
        lost |= {number: tuple(rest) for number, *rest in connection.execute(_REFERRING, (digest,))}
    queued = _queue_again(connection, lost, rank_of)
    if lost or PAGES in short:
        _write_pages_anew(connection, run_folder, lost)
    files = ", ".join(sorted(short))
    return f"{files} lost their ends, as in a power cut; {queued} pages are fetched again"


def _queue_again(
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


def _write_pages_anew(connection: sqlite3.Connection, run_folder: Path, left_out: Container[int]) -> None:
    path, draft = run_folder / PAGES, run_folder / f"{PAGES}.new"
    with draft.open("wb") as file:
        for number, *row in connection.execute(_LINES, (Kind.NOINDEX.value,)):
            if number not in left_out:
                file.write(_line(row) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    connection.execute("UPDATE file SET length_bytes = ? WHERE name = ?", (path.stat().st_size, PAGES))


def _line(row: Sequence[Any]) -> bytes:
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
    )
    return msgspec.json.encode(line)


def _cut(connection: sqlite3.Connection, run_folder: Path, name: str, end: int) -> None:
    os.truncate(run_folder / name, end)
    connection.execute("UPDATE file SET length_bytes = ? WHERE name = ?", (end, name))


def end_of_whole_records(path: Path, length_bytes: int) -> int:
    """Behind the last gzip member that is whole: each record is one."""
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
