"""The rounds of a run: when each began and ended, what it found new, changed and gone, and which are kept.

The first round is the crawl itself. A later one begins when `headway crawl` is started again after the round
before has ended; one that was interrupted is continued.

Of rounds that the job no longer keeps, rows, log lines and archive records are removed. The newest copy of
each page always stays, and so does every record that a kept `revisit` record refers to. An archive file
without any needed record goes; one with enough unneeded ones is replaced by a new file with the others, byte
for byte. The order makes a crash at any point harmless: new files first, then one transaction, then the
index, and only then the old files go.
"""

from __future__ import annotations

import math
import mmap
import os
import secrets
import shutil
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from headway.archive.files import clear_errors, put_in_place
from headway.archive.records import cdx_timestamp, iso_utc, warcinfo
from headway.archive.warc import ARCHIVE_FOLDER
from headway.errors import StoreError
from headway.model.page import Kind
from headway.store import repair, schema
from headway.store.reader import RunReader, database_of, open_reader
from headway.store.rows import cdxj_lines
from headway.store.run_folder import DECISIONS, INDEX_NAME, LOG, write_index
from headway.store.verify import read_record
from headway.units import Instant, Seconds, format_size
from headway.version import __version__

_ABANDONED_AFTER_S = Seconds(12 * 3600.0)
"""A round that began longer ago than this, and all of whose deadlines have passed, is not continued: another
night has begun."""

NEW, CHANGED, UNCHANGED, GONE, FAILED = "new", "changed", "unchanged", "gone", "failed"
CHANGES = (NEW, CHANGED, UNCHANGED, GONE, FAILED)

_ROUNDS = "SELECT number, started_at, pages, ended_at, result FROM round ORDER BY number"
_BEGAN = "SELECT started_at FROM crawl"
_LAST_DEADLINE = "SELECT max(deadline_at) FROM task"
_LEFT = "SELECT 1 FROM waiting WHERE attempt >= 0 OR retry_at IS NULL LIMIT 1"
_PAGES = "SELECT count(*) FROM seen"
_PUT_FIRST = "INSERT INTO round (number, started_at, pages, ended_at, result) VALUES (0, ?, ?, ?, ?)"
_PUT_END = "UPDATE round SET ended_at = ?, result = ? WHERE number = ?"

# Each page visited in the round by its last visit, compared with its visit before and its copy before.
VISITS = f"""
    WITH visit AS (
        SELECT id, site_id, key, state, kind, status, digest,
               row_number() OVER (PARTITION BY site_id, key ORDER BY id DESC) AS place
        FROM page WHERE settled_at >= ? AND settled_at < ? AND state IN ('done', 'failed')
              AND kind <> '{Kind.LISTING.value}'
    ), earlier AS (
        SELECT site_id, key, state, status,
               row_number() OVER (PARTITION BY site_id, key ORDER BY id DESC) AS place
        FROM page WHERE settled_at < ? AND state IN ('done', 'failed')
    ), copy AS (
        SELECT site_id, key, digest, row_number() OVER (PARTITION BY site_id, key ORDER BY id DESC) AS place
        FROM page WHERE settled_at < ? AND state = 'done'
    )
    SELECT visit.id, visit.site_id, CASE
        WHEN visit.state = 'done' AND (copy.key IS NULL OR earlier.status IN (404, 410)) THEN '{NEW}'
        WHEN visit.state = 'done' AND (visit.kind = '{Kind.NOT_MODIFIED.value}' OR visit.digest = copy.digest)
            THEN '{UNCHANGED}'
        WHEN visit.state = 'done' THEN '{CHANGED}'
        WHEN visit.status IN (404, 410) AND earlier.state = 'done' THEN '{GONE}'
        ELSE '{FAILED}' END AS change
    FROM visit
    LEFT JOIN earlier ON earlier.site_id = visit.site_id AND earlier.key = visit.key AND earlier.place = 1
    LEFT JOIN copy ON copy.site_id = visit.site_id AND copy.key = visit.key AND copy.place = 1
    WHERE visit.place = 1"""  # noqa: S608 - our own words
_COUNTS = f"""
    SELECT site.site, found.change, count(*) FROM ({VISITS}) AS found JOIN site ON site.id = found.site_id
    GROUP BY site.site, found.change"""  # noqa: S608 - our own words


class SiteOutcome(msgspec.Struct, frozen=True):
    """What became of a site in a round."""

    site: str
    verdict: str
    deadline_at: float | None
    ended_at: float | None
    done: int
    failed: int
    wire_bytes: int
    problem: str = ""


class RoundResult(msgspec.Struct, frozen=True):
    """What is stored of a round when it has ended."""

    done: int
    failed: int
    wire_bytes: int
    met: int
    missed: int
    exit_code: int
    new: int = 0
    changed: int = 0
    unchanged: int = 0
    gone: int = 0
    failed_visits: int = 0
    is_complete: bool = True
    """False: another round was begun while pages of this one still waited."""
    sites: tuple[SiteOutcome, ...] = ()
    """The first thousand."""


class Round(msgspec.Struct, frozen=True):
    """A round; the first has the number 1."""

    number: int
    started_at: float
    pages: int
    """How many were known at its start; of the first round, at its end."""
    ended_at: float | None = None
    result: RoundResult | None = None
    """None while it has not ended."""


def rounds_of(reader: RunReader) -> list[Round]:
    """All rounds, the current one last. Of runs of earlier versions only the beginnings are known."""
    rows = {number: rest for number, *rest in reader.ask(_ROUNDS)}
    started_at, _ = reader.crawl()
    last = max(rows, default=0)
    if last == 0 and 0 not in rows:
        rows[0] = [started_at, reader.ask(_PAGES)[0][0], None, None]
    elif 0 not in rows:
        first = reader.ask("SELECT min(settled_at) FROM page")[0][0]
        rows[0] = [started_at if first is None else first, 0, None, None]
    return [
        Round(number + 1, began, pages, ended_at, _result(text))
        for number, (began, pages, ended_at, text) in sorted(rows.items())
    ]


def _result(text: str | None) -> RoundResult | None:
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=RoundResult)
    except msgspec.DecodeError:
        return None  # of a later version


def period_of(rounds: Sequence[Round], number: int) -> tuple[Instant, Instant]:
    """From when to when the pages of a round settled. StoreError if there is no such round."""
    if not 1 <= number <= len(rounds):
        raise StoreError(f"there is no round {number}; this run has {len(rounds)}")
    later = rounds[number].started_at if number < len(rounds) else float("inf")
    # What settled before the first round is known to have begun belongs to it too.
    return Instant(0.0 if number == 1 else rounds[number - 1].started_at), Instant(later)


def changes_by_site(reader: RunReader, period: tuple[Instant, Instant]) -> dict[str, dict[str, int]]:
    """How many pages of each site the round found new, changed, unchanged, gone or failed."""
    found: dict[str, dict[str, int]] = {}
    began_at, until = period[0], min(period[1], 1e18)
    for site, change, count in reader.ask(_COUNTS, (began_at, until, began_at, began_at)):
        found.setdefault(site, {})[change] = count
    return found


def changes_in(reader: RunReader, period: tuple[Instant, Instant]) -> dict[str, int]:
    """`changes_by_site`, of all sites together."""
    total = dict.fromkeys(CHANGES, 0)
    for counts in changes_by_site(reader, period).values():
        for change, count in counts.items():
            total[change] += count
    return total


def change_of_each(reader: RunReader, period: tuple[Instant, Instant]) -> Iterator[tuple[int, str]]:
    """The number of each page row that counts in a round, and what the visit found."""
    began_at, until = period[0], min(period[1], 1e18)
    for number, _, change in reader.ask(VISITS, (began_at, until, began_at, began_at)):
        yield number, change


class NextRound(NamedTuple):
    """What the next start of the crawl in a folder, or on a server, does."""

    begins: bool
    """Whether a new round begins."""
    cuts: Round | None = None
    """The unfinished round that it ends."""


def next_round(run: Path | str, now: Instant) -> NextRound:
    """Whether the round of a run has ended, so that the next start begins another one."""
    try:
        reader = open_reader(run)
    except (StoreError, OSError):
        return NextRound(begins=False)  # there is none, or the next open reports the reason
    with reader:
        if not reader.ask(_BEGAN):
            return NextRound(begins=False)
        current = rounds_of(reader)[-1]
        if isinstance(run, Path) and _has_lost_data(run, reader):
            # The crawl goes on with a repair; a round would only ask whether the lost pages have changed.
            return NextRound(begins=False)
        if current.ended_at is not None:
            # A repair may have queued pages of the round that has ended.
            return NextRound(begins=not reader.ask(_LEFT))
        ((last_deadline,),) = reader.ask(_LAST_DEADLINE)
        is_over = last_deadline is not None and last_deadline < now
        is_old = now - current.started_at > _ABANDONED_AFTER_S
        if is_over and is_old:
            return NextRound(begins=True, cuts=current)
    return NextRound(begins=False)


def _has_lost_data(run: Path, reader: RunReader) -> bool:
    """Whether a file is missing or shorter than the store has recorded."""
    lengths = dict(reader.ask("SELECT name, length_bytes FROM file WHERE length_bytes IS NOT NULL"))
    is_gone = any(not repair.inside(run, name).is_file() for name in lengths)
    return is_gone or bool(repair.shortened(run, lengths))


def end_round(run: Path | str, ended_at: Instant, result: RoundResult) -> None:
    """Note that the current round has ended. A second time changes nothing."""
    with open_reader(run) as reader:
        current = rounds_of(reader)[-1]
    if current.ended_at is not None:
        return
    text = msgspec.json.encode(result).decode()
    if current.number == 1:
        values: tuple[Any, ...] = (current.started_at, current.pages, ended_at, text)
        _execute(run, _PUT_FIRST, values)
    else:
        _execute(run, _PUT_END, (ended_at, text, current.number - 1))


def _execute(run: Path | str, statement: str, values: tuple[Any, ...]) -> None:
    if isinstance(run, str):
        from headway.store.postgres.connection import Address
        from headway.store.postgres.store import PostgresStore
        from headway.store.postgres.tables import translated_query

        store = PostgresStore(Address.parse(run), make=False)
        try:
            store.asked(lambda run: run.execute(translated_query(statement).encode(), values))
        finally:
            store.close()
        return
    with writing(run) as connection:
        connection.execute(statement, values)


@contextmanager
def writing(run: Path) -> Iterator[Any]:
    """The database of a run folder into which nobody crawls, in one transaction."""
    path = database_of(run)
    lock = schema.lock(path)
    try:
        connection = schema.open_for_writing(path)
        try:
            with clear_errors(path):
                connection.execute("BEGIN IMMEDIATE")
                try:
                    yield connection
                    connection.execute("COMMIT")
                except BaseException:
                    connection.execute("ROLLBACK")
                    raise
        finally:
            schema.close_for_good(connection)
    finally:
        schema.unlock(lock)


def words_of(result: RoundResult | Mapping[str, int]) -> str:
    """What a round found, in words."""
    counts = result if isinstance(result, Mapping) else counts_of(result)
    return ", ".join(f"{counts[change]} {change}" for change in CHANGES if counts[change]) or "nothing"


def counts_of(result: RoundResult) -> dict[str, int]:
    return {
        NEW: result.new,
        CHANGED: result.changed,
        UNCHANGED: result.unchanged,
        GONE: result.gone,
        FAILED: result.failed_visits,
    }


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
                fresh.write(_beside(data, offset + length))
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


def _beside(data: mmap.mmap, offset: int) -> bytes:
    """The request and the metadata that belong to the record before them; empty if there are none."""
    end = offset
    for kind in ("request", "metadata"):
        if end >= len(data):
            break
        try:
            record = read_record(data, end)
        except ValueError:
            break
        if record.fields.get("warc-type") == kind:
            end += record.length
    return data[offset:end]


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
