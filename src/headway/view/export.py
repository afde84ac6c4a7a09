"""The pages of a run for other programs: JSON lines, Parquet, or the CDXJ index of its archive.

Pages are read in slices, so their number does not matter; a file is replaced with one rename.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Any

import msgspec

from headway.archive.files import clear_errors
from headway.archive.records import iso_utc
from headway.errors import HeadwayError, install_command
from headway.store.reader import PageRow, open_reader
from headway.store.run_folder import write_index
from headway.units import Instant

FORMATS = ("jsonl", "parquet", "cdxj")
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


def export_pages(run: Path | str, kind: str, out: Path | IO[bytes]) -> int:
    """Write the pages of a run to a file or a stream; returns how many lines there were."""
    write: Callable[[Path | str, IO[bytes]], int] = {"jsonl": _jsonl, "parquet": _parquet, "cdxj": _cdxj}[
        kind
    ]
    if not isinstance(out, Path):
        return write(run, out)
    with _in_place(out) as file:
        return write(run, file)


def _jsonl(run: Path | str, file: IO[bytes]) -> int:
    encoder = msgspec.json.Encoder()
    with open_reader(run) as reader:
        return _write_lines(file, (encoder.encode(_exported(page)) + b"\n" for page in reader.pages()))


def _cdxj(run: Path | str, file: IO[bytes]) -> int:
    """Build the index again from the store, also during a run, and copy it."""
    if isinstance(run, Path):
        with write_index(run).open("rb") as index:
            return _write_lines(file, index)
    with tempfile.TemporaryDirectory() as folder, write_index(Path(folder), store=run).open("rb") as index:
        return _write_lines(file, index)


def _write_lines(file: IO[bytes], lines: Iterable[bytes]) -> int:
    count = 0
    for line in lines:
        file.write(line)
        count += 1
    return count


def _parquet(run: Path | str, file: IO[bytes]) -> int:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise HeadwayError(f"Parquet needs the package pyarrow: {install_command('parquet')}") from None
    fields = [(field.name, _arrow_type(pa, field.type)) for field in msgspec.structs.fields(ExportedPage)]
    schema = pa.schema(fields)
    count = 0
    with open_reader(run) as reader, pq.ParquetWriter(file, schema, compression="zstd") as writer:
        pages = iter(reader.pages())
        while group := list(islice(pages, _GROUP_ROWS)):
            rows = [msgspec.to_builtins(_exported(page)) for page in group]
            writer.write_table(pa.Table.from_pylist(rows, schema))
            count += len(group)
    return count


def _arrow_type(pa: Any, kind: Any) -> Any:
    return {int: pa.int64(), float: pa.float64(), int | None: pa.int64()}.get(kind, pa.string())


def _exported(page: PageRow) -> ExportedPage:
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
        page.attempt,
        page.digest,
        iso_utc(Instant(page.fetched_at)),
        iso_utc(Instant(page.settled_at)),
        round(page.duration_s, 6),
        page.detail,
        page.warc_file,
        page.warc_offset,
        page.warc_length,
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
