"""The index by which a replay tool finds a capture: one CDXJ line each, sorted by key and time.

Made from the store's rows, not by reading the archive again; sorted in runs that are merged, so that a
million captures need little memory; put in place with one rename, so that a reader never sees half of it.
"""

from __future__ import annotations

import heapq
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import IO

import msgspec

from headway.store.failures import clear_errors
from headway.store.reader import PageRow, open_reader
from headway.store.surt import surt
from headway.store.times import cdx_timestamp
from headway.store.warc_record import uri
from headway.units import Instant

INDEX_NAME = "indexes/index.cdxj"
_RUN_LINES = 50_000
"""Some 20 MB. With four times as many the end of a crawl took half as much memory again as all of it."""
_MOST_RUNS = 200
"""Each is an open file, of which a process may have a thousand or so."""
_encode = msgspec.json.Encoder().encode


class _Fields(msgspec.Struct, frozen=True, gc=False):
    """All texts, and in this order, as pywb writes them."""

    url: str
    mime: str
    status: str
    digest: str
    length: str
    offset: str
    filename: str


def cdxj_line(page: PageRow) -> bytes:
    url = uri(page.url)
    fields = _Fields(
        url=url,
        mime="warc/revisit" if page.record_type == "revisit" else _mime(page.content_type),
        status=str(page.status) if page.status else "-",
        digest=page.payload_digest.removeprefix("sha1:") or "-",
        length=str(page.warc_length),
        offset=str(page.warc_offset),
        filename=(page.warc_file or "").rpartition("/")[2],
    )
    key = f"{surt(url)} {cdx_timestamp(Instant(page.fetched_at))} "
    return key.encode() + _encode(fields) + b"\n"


def write_index(run_folder: Path, *, run_lines: int = _RUN_LINES, store: str | None = None) -> Path:
    """Index every capture that the store has committed, which is the folder's own or the one given; returns
    where."""
    target = run_folder / INDEX_NAME
    with open_reader(store or run_folder) as reader, clear_errors(target), ExitStack() as stack:
        target.parent.mkdir(mode=0o755, exist_ok=True)
        lines = map(cdxj_line, reader.captures())
        runs: list[IO[bytes]] = []
        for run in _sorted_runs(lines, run_lines):
            if len(runs) >= _MOST_RUNS:
                runs = [_merged(runs, stack, target.parent)]
            runs.append(_spilled(run, stack, target.parent))
        temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        stack.callback(temporary.unlink, missing_ok=True)
        # No more open than 0644, as everything in a run folder, even where the umask is careless.
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), "wb") as file:
            file.writelines(heapq.merge(*runs))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    return target


def _mime(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower() or "unk"


def _sorted_runs(lines: Iterable[bytes], run_lines: int) -> Iterator[list[bytes]]:
    iterator = iter(lines)
    while run := list(islice(iterator, run_lines)):
        run.sort()
        yield run


def _merged(runs: list[IO[bytes]], stack: ExitStack, folder: Path) -> IO[bytes]:
    one = _spilled(heapq.merge(*runs), stack, folder)
    for run in runs:
        run.close()
    return one


def _spilled(run: Iterable[bytes], stack: ExitStack, folder: Path) -> IO[bytes]:
    """A sorted run as a nameless file, which the system forgets when it is closed."""
    file = stack.enter_context(tempfile.TemporaryFile(dir=folder))  # noqa: SIM115 - the stack closes it
    file.writelines(run)
    file.seek(0)
    return file
