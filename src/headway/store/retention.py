"""Removes the rounds that a job no longer keeps from a run folder: rows, log lines and archive records.

The newest copy of each page always stays, and so does every record that a kept `revisit` record refers to. An
archive file without any needed record goes; one with enough unneeded ones is replaced by a new file with the
others, byte for byte. The order makes a crash at any point harmless: new files first, then one transaction,
then the index, and only then the old files go.
"""

from __future__ import annotations

import math
import mmap
import os
import secrets
import shutil
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from headway.archive.files import clear_errors, put_in_place
from headway.archive.records import cdx_timestamp, iso_utc, warcinfo
from headway.archive.warc import ARCHIVE_FOLDER
from headway.errors import StoreError
from headway.store import repair, schema
from headway.store.reader import RunReader
from headway.store.rounds import Round, rounds_of, writing
from headway.store.rows import cdxj_lines
from headway.store.run_folder import DECISIONS, INDEX_NAME, LOG, write_index
from headway.store.verify import read_record
from headway.units import Instant, format_size
from headway.version import __version__

_LEAST_WASTE = 0.2
"""The share of a file that must be unneeded before the rest is copied to a new one."""

_KEPT = (
    "CREATE TEMP TABLE kept (id INTEGER PRIMARY KEY)",
    "INSERT INTO kept SELECT id FROM page WHERE settled_at >= :cut",
    "INSERT OR IGNORE INTO kept SELECT page_id FROM seen WHERE page_id NOT NULL",
    """INSERT OR IGNORE INTO kept SELECT max(id) FROM page WHERE state = 'done' AND file_id NOT NULL
       GROUP BY site_id, key""",
    # What these refer to: the first capture of the same content.
    """INSERT OR IGNORE INTO kept
       SELECT content.page_id FROM content JOIN page ON page.id = content.page_id
       WHERE page.digest IN (SELECT digest FROM page JOIN kept ON kept.id = page.id WHERE digest <> '')""",
)
_FORGET = (
    "DELETE FROM content WHERE page_id NOT IN (SELECT id FROM kept)",
    "DELETE FROM sighting WHERE page_id NOT IN (SELECT id FROM kept)",
    "DELETE FROM page WHERE id NOT IN (SELECT id FROM kept)",
    "DELETE FROM sample WHERE at < :cut",
    "DELETE FROM course WHERE at < :cut",
)
_FILES = f"""
    SELECT file.id, file.name, file.length_bytes, count(page.id), count(kept.id), max(page.settled_at)
    FROM file LEFT JOIN page ON page.file_id = file.id LEFT JOIN kept ON kept.id = page.id
    WHERE file.name LIKE '{ARCHIVE_FOLDER}/%' GROUP BY file.id ORDER BY file.id"""  # noqa: S608
_RECORDS = """
    SELECT page.id, warc_offset, warc_length FROM page JOIN kept ON kept.id = page.id
    WHERE file_id = ? ORDER BY warc_offset"""
_LINES = f"{schema.CAPTURES.replace('page.id > ? AND ', '').partition('ORDER BY')[0]} AND page.file_id = ?"


class Pruned(NamedTuple):
    rounds: int
    """How many rounds are kept."""
    files: int = 0
    """Archive files that went."""
    freed_bytes: int = 0
    trouble: str = ""
    """Why more is kept than the job says."""


class _Old(NamedTuple):
    """An archive file that goes, and the new one with what is still needed of it, if anything is."""

    number: int
    name: str
    length_bytes: int
    needed: Sequence[tuple[int, int, int]]
    """Rows with the places of their records."""


def prune(
    run: Path, *, rounds: int | None = None, most_bytes: int | None = None, moved_to: Path | None = None
) -> Pruned:
    """Keep the last so many rounds, or as many as fit into so many bytes of the archive. Files that go are
    moved to `moved_to`, or removed. Nobody may be crawling into the folder."""
    if moved_to is not None and run.resolve() in {moved_to.resolve(), *moved_to.resolve().parents}:
        raise StoreError(f"{moved_to}: keep_old_in must be a folder outside the run folder")
    with RunReader(run) as reader:
        known = rounds_of(reader)
    if most_bytes is not None:
        return _prune_to_size(run, known, most_bytes, moved_to)
    first = 0 if rounds is None else max(0, len(known) - rounds)
    return Pruned(len(known)) if first == 0 else _prune(run, known, first, moved_to)


def _prune_to_size(run: Path, rounds: Sequence[Round], most: int, moved_to: Path | None) -> Pruned:
    """Round by round, the oldest first, until the rest fits."""
    files = freed = first = 0
    while (size := _archive_bytes(run)) > most and first + 1 < len(rounds):
        first += 1
        step = _prune(run, rounds, first, moved_to, least_waste=0.0)
        files, freed = files + step.files, freed + step.freed_bytes
    trouble = ""
    if size > most:
        trouble = (
            f"the newest round, with the copies that it refers to, takes {format_size(size)}, more than"
            f" {format_size(most)}; nothing of it is removed"
        )
    return Pruned(len(rounds) - first, files, freed, trouble)


def _archive_bytes(run: Path) -> int:
    with RunReader(run) as reader:
        query = "SELECT coalesce(sum(length_bytes), 0) FROM file WHERE name LIKE 'archive/%'"
        return int(reader.ask(query)[0][0])


def _prune(
    run: Path,
    rounds: Sequence[Round],
    first: int,
    moved_to: Path | None,
    least_waste: float = _LEAST_WASTE,
) -> Pruned:
    cut = rounds[first].started_at
    made: list[Path] = []
    try:
        with writing(run) as connection:
            old = _choose(run, connection, cut, least_waste)
            if moved_to is not None:
                _put_aside(run, connection, old, moved_to)
            for each in old:
                if each.needed:
                    made += [_carry_over(run, connection, each)]
            connection.execute("CREATE TEMP TABLE gone (id INTEGER PRIMARY KEY)")
            connection.executemany("INSERT INTO gone VALUES (?)", [(each.number,) for each in old])
            for statement in _FORGET:
                connection.execute(statement, {"cut": cut} if ":cut" in statement else {})
            connection.execute("DELETE FROM file WHERE id IN (SELECT id FROM gone)")
            repair.write_pages_again(connection, run, ())
            _shorten(connection, run / LOG, _late_lines(run / LOG, iso_utc(Instant(cut)).encode()))
            _shorten(connection, run / DECISIONS, _late_decisions(run / DECISIONS, cut))
            for table in ("kept", "gone"):
                connection.execute(f"DROP TABLE temp.{table}")
    except BaseException:
        for path in made:
            path.unlink(missing_ok=True)
        # The rows are as before, and pages.jsonl has to agree with them.
        with suppress(Exception), writing(run) as connection:
            repair.write_pages_again(connection, run, ())
        raise
    write_index(run)
    made_bytes = sum(path.stat().st_size for path in made)
    for each in old:
        repair.inside(run, each.name).unlink(missing_ok=True)
    freed = sum(each.length_bytes for each in old) - made_bytes
    return Pruned(len(rounds) - first, len(old), freed)


def _choose(run: Path, connection: sqlite3.Connection, cut: float, least_waste: float) -> list[_Old]:
    """The archive files that go. Of a file that stays, although not all of it is needed, all rows are kept:
    what is in the archive is in the index."""
    for statement in _KEPT:
        connection.execute(statement, {"cut": cut} if ":cut" in statement else {})
    old = []
    for number, name, length, captures, needed, last_at in connection.execute(_FILES).fetchall():
        path = repair.inside(run, name)
        if length is None or not path.is_file():
            continue
        is_old = last_at < cut if captures else path.stat().st_mtime < cut
        if not is_old or (captures and captures == needed):
            continue
        records = connection.execute(_RECORDS, (number,)).fetchall()
        used = sum(length for _, _, length in records)
        all_bytes = connection.execute("SELECT sum(warc_length) FROM page WHERE file_id = ?", (number,))
        waste = 1.0 - used / max(1, all_bytes.fetchone()[0] or 1)
        if records and waste < least_waste:
            connection.execute("INSERT OR IGNORE INTO kept SELECT id FROM page WHERE file_id = ?", (number,))
        else:
            old.append(_Old(number, name, length, records))
    return old


def _carry_over(run: Path, connection: sqlite3.Connection, old: _Old) -> Path:
    """Copy the needed records, each with the request that follows it, to a new file."""
    source = repair.inside(run, old.name)
    now = Instant(time.time())
    name = f"headway-{cdx_timestamp(now)}-{secrets.token_hex(4)}-00000.warc.gz"
    path = run / ARCHIVE_FOLDER / name
    info = {
        "software": f"headway/{__version__}",
        "format": "WARC File Format 1.1",
        "description": f"records of {source.name} that are still needed",
    }
    places: list[tuple[int, int]] = []
    try:
        with (
            clear_errors(path),
            source.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
            path.open("xb") as fresh,
        ):
            fresh.write(warcinfo(name, iso_utc(now), info))
            for number, offset, length in old.needed:
                places.append((fresh.tell(), number))
                fresh.write(data[offset : offset + length])
                fresh.write(_request_after(data, offset + length))
            length_bytes = fresh.tell()
            fresh.flush()
            os.fsync(fresh.fileno())
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    put = "INSERT INTO file (name, length_bytes) VALUES (?, ?)"
    file_id = connection.execute(put, (f"{ARCHIVE_FOLDER}/{name}", length_bytes)).lastrowid
    moved = [(file_id, offset, number) for offset, number in places]
    connection.executemany("UPDATE page SET file_id = ?, warc_offset = ? WHERE id = ?", moved)
    return path


def _request_after(data: mmap.mmap, offset: int) -> bytes:
    """The request record that belongs to the record before it; empty if there is none."""
    if offset >= len(data):
        return b""
    try:
        record = read_record(data, offset)
    except ValueError:
        return b""
    return data[offset : offset + record.length] if record.fields.get("warc-type") == "request" else b""


def _put_aside(run: Path, connection: sqlite3.Connection, old: Iterable[_Old], folder: Path) -> None:
    """Copy files to where they are kept, with their lines of the index, before they leave the run folder."""
    lines: set[bytes] = set()
    with clear_errors(folder):
        (folder / ARCHIVE_FOLDER).mkdir(parents=True, exist_ok=True)
        for each in old:
            source = repair.inside(run, each.name)
            target = folder / ARCHIVE_FOLDER / source.name
            if not target.exists():
                _copy(source, target)
            lines.update(cdxj_lines(connection.execute(_LINES, (each.number,))))
        index = folder / INDEX_NAME
        if lines:
            index.parent.mkdir(exist_ok=True)
            if index.exists():
                lines.update(index.read_bytes().splitlines(keepends=True))
            put_in_place(index, b"".join(sorted(lines)))


def _copy(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # another disk
        draft = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        try:
            shutil.copyfile(source, draft)
            with draft.open("rb") as file:
                os.fsync(file.fileno())
            draft.replace(target)
        finally:
            draft.unlink(missing_ok=True)


def _late_lines(path: Path, cut: bytes) -> Iterator[bytes]:
    """Of a log whose lines begin with a time."""
    with path.open("rb") as file:
        yield from (line for line in file if line[: len(cut)] >= cut)


class _Decided(msgspec.Struct):
    at: float = math.inf


def _late_decisions(path: Path, cut: float) -> Iterator[bytes]:
    decoder = msgspec.json.Decoder(_Decided)
    with path.open("rb") as file:
        for line in file:
            try:
                if decoder.decode(line).at < cut:
                    continue
            except msgspec.DecodeError:
                pass
            yield line


def _shorten(connection: sqlite3.Connection, path: Path, lines: Iterator[bytes]) -> None:
    """Write a log again with these of its lines."""
    if not path.is_file():
        return
    draft = path.with_name(f"{path.name}.new")
    with clear_errors(path), draft.open("wb") as file:
        file.writelines(lines)
        file.flush()
        os.fsync(file.fileno())
        length_bytes = file.tell()
    draft.replace(path)
    known = connection.execute("UPDATE file SET length_bytes = ? WHERE name = ?", (length_bytes, path.name))
    if known.rowcount != 1 and length_bytes:
        raise StoreError(f"{path}: the store does not name it; check the folder with 'headway verify'")
