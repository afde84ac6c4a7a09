"""The pages of a run for other programs: JSON lines, CSV, Parquet, SQLite, or the CDXJ index of its archive;
WACZ files and mirrors are in `view.bundle`.

Pages are read in slices, so their number does not matter; a file is replaced with one rename.
"""

from __future__ import annotations

import bisect
import csv
import io
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Any

import msgspec

from headway.archive.files import clear_errors
from headway.archive.records import cdx_timestamp, iso_utc
from headway.errors import HeadwayError, install_command
from headway.policy.politeness import PREFERS, preferences_in, preferences_text
from headway.store.reader import PageRow, RunReader, open_reader
from headway.store.rounds import change_of_each, counts_of, period_of, rounds_of
from headway.store.run_folder import write_index
from headway.units import Instant
from headway.view.bundle import write_mirror, write_wacz

FORMATS = ("jsonl", "csv", "parquet", "sqlite", "cdxj", "wacz", "mirror")
BINARY = frozenset({"parquet", "sqlite", "wacz"})
SUFFIXES = {"ndjson": "jsonl", "db": "sqlite", "sqlite3": "sqlite", "cdx": "cdxj"} | {
    name: name for name in FORMATS if name != "mirror"
}
"""The format that the ending of a file's name means."""
_GROUP_ROWS = 50_000


class ExportedPage(msgspec.Struct, frozen=True, gc=False):
    """One settled page: fetched, failed or excluded, as `state` and `kind` say."""

    url: str
    site: str
    state: str
    kind: str
    status: int
    content_type: str
    content_bytes: int
    wire_bytes: int
    depth: int
    attempt: int
    digest: str
    fetched_at: str
    settled_at: str
    duration_s: float
    detail: str
    warc_file: str | None
    warc_offset: int | None
    warc_length: int | None
    round: int = 1
    change: str = ""
    """What the round found: new, changed, unchanged, gone, failed; empty where it is not known, and for
    all but the page's last visit in the round."""
    preferences: str = ""
    """What the page may be used for, as far as its site says so: `ai-train=no search=yes`."""


def export_pages(
    run: Path | str, kind: str, out: Path | IO[bytes], *, round_number: int | None = None
) -> int:
    """Write the pages of a run, or of one of its rounds, to a file or a stream; returns how many they are."""
    if kind == "mirror":
        if not isinstance(out, Path):
            raise HeadwayError("a mirror is a folder; name it with -o")
        return write_mirror(run, out, round_number=round_number).files
    write: Callable[[Path | str, IO[bytes], int | None], int] = {
        "jsonl": _jsonl,
        "csv": _csv,
        "parquet": _parquet,
        "sqlite": _sqlite,
        "cdxj": _cdxj,
        "wacz": lambda run, file, number: write_wacz(run, file, round_number=number),
    }[kind]
    if not isinstance(out, Path):
        return write(run, out, round_number)
    with _in_place(out) as file:
        return write(run, file, round_number)


def _pages_of(reader: RunReader, number: int | None) -> Iterator[ExportedPage]:
    """Every settled page with its round, in the order of settling; given a number, only those of a round."""
    rounds = rounds_of(reader)
    starts = [each.started_at for each in rounds]
    changes: dict[int, str] = {}
    if len(rounds) > 1 or number is not None:
        for each in range(1, len(rounds) + 1) if number is None else (number,):
            changes.update(change_of_each(reader, period_of(rounds, each)))
    for page in reader.pages():
        place = max(1, bisect.bisect_right(starts, page.settled_at))
        if number is None or place == number:
            yield _exported(page, place, changes.get(page.number, ""))


def _jsonl(run: Path | str, file: IO[bytes], number: int | None) -> int:
    encoder = msgspec.json.Encoder()
    with open_reader(run) as reader:
        return _write_lines(file, (encoder.encode(page) + b"\n" for page in _pages_of(reader, number)))


_FIELDS = [field.name for field in msgspec.structs.fields(ExportedPage)]


def _csv(run: Path | str, file: IO[bytes], number: int | None) -> int:
    """RFC 4180, in UTF-8. A text that a spreadsheet would take for a formula gets an apostrophe in front."""
    count = 0
    text = io.TextIOWrapper(file, encoding="utf-8", errors="replace", newline="", write_through=True)
    try:
        writer = csv.writer(text)
        writer.writerow(_FIELDS)
        with open_reader(run) as reader:
            for page in _pages_of(reader, number):
                writer.writerow([_harmless(value) for value in msgspec.structs.astuple(page)])
                count += 1
    finally:
        text.detach()
    return count


def _harmless(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value[:1] in {"=", "+", "-", "@", "\t", "\r"} else value


def _sqlite(run: Path | str, file: IO[bytes], number: int | None) -> int:
    """A database with the table `pages`, and `rounds`."""
    kinds = {int: "INTEGER", float: "REAL", int | None: "INTEGER"}
    columns = ", ".join(
        f'"{field.name}" {kinds.get(field.type, "TEXT")}' for field in msgspec.structs.fields(ExportedPage)
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pages.sqlite"
        connection = sqlite3.connect(path, isolation_level=None)
        try:
            connection.execute("PRAGMA journal_mode = OFF")
            connection.execute("BEGIN")
            connection.execute(f"CREATE TABLE pages ({columns})")
            connection.execute(
                "CREATE TABLE rounds (number INTEGER PRIMARY KEY, started_at REAL, ended_at REAL,"
                " new INTEGER, changed INTEGER, unchanged INTEGER, gone INTEGER, failed INTEGER)"
            )
            marks = ", ".join("?" * len(_FIELDS))
            with open_reader(run) as reader:
                rows = (msgspec.structs.astuple(page) for page in _pages_of(reader, number))
                connection.executemany(f"INSERT INTO pages VALUES ({marks})", rows)  # noqa: S608
                connection.executemany(
                    "INSERT INTO rounds VALUES (?, ?, ?, ?, ?, ?, ?, ?)", _round_rows(reader)
                )
            connection.execute("CREATE INDEX pages_by_url ON pages (url)")
            connection.execute("COMMIT")
            (count,) = connection.execute("SELECT count(*) FROM pages").fetchone()
        finally:
            connection.close()
        with path.open("rb") as made:
            shutil.copyfileobj(made, file, 1 << 20)
    return int(count)


def _round_rows(reader: RunReader) -> Iterator[tuple[object, ...]]:
    for each in rounds_of(reader):
        counts = (None,) * 5 if each.result is None else tuple(counts_of(each.result).values())
        yield each.number, each.started_at, each.ended_at, *counts


def _cdxj(run: Path | str, file: IO[bytes], number: int | None) -> int:
    """Build the index again from the store, also during a run, and copy it."""
    if number is not None:
        with open_reader(run) as reader:
            began, until = (
                cdx_timestamp(Instant(min(at, 2e10))) for at in period_of(rounds_of(reader), number)
            )
        buffer = tempfile.TemporaryFile()  # noqa: SIM115 - closed below
        with buffer:
            _cdxj(run, buffer, None)
            buffer.seek(0)
            return _write_lines(file, (line for line in buffer if began <= _time_of(line) < until))
    if isinstance(run, Path):
        with write_index(run).open("rb") as index:
            return _write_lines(file, index)
    with tempfile.TemporaryDirectory() as folder, write_index(Path(folder), store=run).open("rb") as index:
        return _write_lines(file, index)


def _time_of(line: bytes) -> str:
    return line.split(b" ", 2)[1].decode()


def _write_lines(file: IO[bytes], lines: Iterable[bytes]) -> int:
    count = 0
    for line in lines:
        file.write(line)
        count += 1
    return count


def _parquet(run: Path | str, file: IO[bytes], number: int | None) -> int:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise HeadwayError(f"Parquet needs the package pyarrow: {install_command('parquet')}") from None
    fields = [(field.name, _arrow_type(pa, field.type)) for field in msgspec.structs.fields(ExportedPage)]
    schema = pa.schema(fields)
    count = 0
    with open_reader(run) as reader, pq.ParquetWriter(file, schema, compression="zstd") as writer:
        pages = _pages_of(reader, number)
        while group := list(islice(pages, _GROUP_ROWS)):
            rows = [msgspec.to_builtins(page) for page in group]
            writer.write_table(pa.Table.from_pylist(rows, schema))
            count += len(group)
    return count


def _arrow_type(pa: Any, kind: Any) -> Any:
    return {int: pa.int64(), float: pa.float64(), int | None: pa.int64()}.get(kind, pa.string())


def _exported(page: PageRow, round_number: int, change: str) -> ExportedPage:
    return ExportedPage(
        page.url,
        page.site,
        page.state,
        page.kind,
        page.status,
        page.content_type,
        page.content_bytes,
        page.wire_bytes,
        page.depth,
        max(0, page.attempt),
        page.digest,
        iso_utc(Instant(page.fetched_at)),
        iso_utc(Instant(page.settled_at)),
        round(page.duration_s, 6),
        page.detail,
        page.warc_file,
        page.warc_offset,
        page.warc_length,
        round_number,
        change,
        preferences_text(preferences_in(page.detail)).removeprefix(PREFERS),
    )


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Errors name the file that the user asked for, not the temporary one beside it."""
    try:
        yield
    except OSError as problem:
        problem.filename = os.fspath(path)
        raise


@contextmanager
def _in_place(path: Path) -> Iterator[IO[bytes]]:
    """A file that is complete or, after an error, as it was before."""
    if not path.parent.is_dir():
        raise HeadwayError(f"{path}: there is no folder {path.parent} to write it into")
    with clear_errors(path), _named(path):
        if path.exists() and not path.is_file():
            with path.open("wb") as device:  # a pipe, for example, which a rename would replace
                yield device
            return
        path = path.resolve()  # a link stays, and its target is replaced
        fresh = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            with fresh.open("wb") as file:
                yield file
            fresh.replace(path)
        finally:
            fresh.unlink(missing_ok=True)
