"""A run folder: the store, the archive, its index and the logs of one crawl, saved together."""

from __future__ import annotations

import heapq
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import IO, Any, NamedTuple, Self

import msgspec

from headway.archive.files import AppendLog, clear_errors
from headway.archive.warc import ARCHIVE_FOLDER, WarcArchive, usable_cores
from headway.errors import StoreError
from headway.model.command import SaveSettled, Saving, Snapshot
from headway.model.page import Page
from headway.policy.yielding import LinkEstimate, Look
from headway.ports import Notes
from headway.store.reader import DATABASE, open_reader
from headway.store.recrawl import LimitsOf
from headway.store.repair import cut_back
from headway.store.rows import append_lines, cdxj_lines
from headway.store.sqlite import SqliteStore
from headway.units import Instant

# The index with which a replay tool finds a capture: one CDXJ line each, sorted by key and time.
#
# Made from the store's rows, without reading the archive; sorted in runs that are merged, so that a million
# captures need little memory; replaced with one rename, so that a reader never sees half of it.

INDEX_NAME = "indexes/index.cdxj"
_RUN_LINES = 50_000
"""About 20 MB. With four times as many, the end of a crawl took one and a half times the memory of the whole
crawl."""
_MOST_RUNS = 200
"""Each is an open file, and a process may have about a thousand."""


def write_index(
    run_folder: Path, *, run_lines: int = _RUN_LINES, store: str | None = None, target: Path | None = None
) -> Path:
    """Index every committed capture of the folder's own store or the given one; returns the path."""
    target = target or run_folder / INDEX_NAME
    with open_reader(store or run_folder) as reader, clear_errors(target), ExitStack() as stack:
        target.parent.mkdir(mode=0o755, exist_ok=True)
        runs: list[IO[bytes]] = []
        for run in _sorted_runs(reader.capture_rows(), run_lines):
            if len(runs) >= _MOST_RUNS:
                runs = [_merged(runs, stack, target.parent)]
            runs.append(_spilled(run, stack, target.parent))
        temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        stack.callback(temporary.unlink, missing_ok=True)
        # Not more readable than 0644, like everything in a run folder, also with an open umask.
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), "wb") as file:
            file.writelines(heapq.merge(*runs))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    return target


def _sorted_runs(captures: Iterator[tuple[Any, ...]], run_lines: int) -> Iterator[list[bytes]]:
    while run := cdxj_lines(islice(captures, run_lines)):
        run.sort()
        yield run


def _merged(runs: list[IO[bytes]], stack: ExitStack, folder: Path) -> IO[bytes]:
    one = _spilled(heapq.merge(*runs), stack, folder)
    for run in runs:
        run.close()
    return one


def _spilled(run: Iterable[bytes], stack: ExitStack, folder: Path) -> IO[bytes]:
    """A sorted run as a file without a name, which the system removes when it is closed."""
    file = stack.enter_context(tempfile.TemporaryFile(dir=folder))  # noqa: SIM115 - the stack closes it
    file.writelines(run)
    file.seek(0)
    return file


# A run folder: the store, the archive and the logs of one crawl, saved together.
#
#     crawl.sqlite  archive/*.warc.gz  indexes/index.cdxj  pages.jsonl  crawl.log  decisions.jsonl  report/
#
# Files only grow and are flushed first; then the store commits the rows and the files' lengths in one
# transaction. So at any moment the last commit is the valid state, and a killed crawl resumes from there.

PAGES = "pages.jsonl"
LOG = "crawl.log"
DECISIONS = "decisions.jsonl"
ITEMS = "items.jsonl"
_FOLDERS = (ARCHIVE_FOLDER, "indexes", "report")


class WaitingOrder(NamedTuple):
    """The order of the waiting pages of a site, and about how many are loaded; None: all."""

    name: str
    rank_of: Callable[[Page], float]
    most_loaded: int | None


class RunFolder:
    """Use `open`. `snapshot` is None if the crawl has just begun."""

    def __init__(
        self, path: Path, store: SqliteStore, snapshot: Snapshot | None, warc_info: Mapping[str, str]
    ) -> None:
        self.path = path
        self.store = store
        self.snapshot = snapshot
        with ExitStack() as opened:
            self.pages = AppendLog(path, PAGES)
            opened.callback(self.pages.close)
            self.log = AppendLog(path, LOG)
            opened.callback(self.log.close)
            self.decisions = AppendLog(path, DECISIONS)
            opened.pop_all()
        self.archive = WarcArchive(
            path, info=warc_info, payload_digest_of=store.payload_digest_of, threads=usable_cores() - 1
        )
        self._items: AppendLog | None = None
        self._is_closed = False
        self.repaired = ""
        """What a power cut has destroyed, and how it was repaired."""
        self.tried_again = 0
        """How many pages wait again whose servers could not be reached in earlier sessions, or that were
        beyond a limit."""

    def add_item(self, item: object) -> None:
        """Write a line of `items.jsonl`, which exists only if rules extract items."""
        if self._items is None:
            self._items = AppendLog(self.path, ITEMS)
        self._items.append(item)

    @classmethod
    def open(
        cls,
        path: Path | str,
        job: Mapping[str, object],
        now: Instant,
        *,
        warc_info: Mapping[str, str] | None = None,
        waiting_order: WaitingOrder | None = None,
        limits_of: LimitsOf | None = None,
    ) -> Self:
        """Begin a crawl in a new or empty folder, or continue the one in it. `limits_of`: the limits that the
        job has now."""
        path = Path(path)
        _check_place(path)
        with ExitStack() as opened:
            with clear_errors(path):
                path.mkdir(mode=0o755, parents=True, exist_ok=True)
            store = SqliteStore(path / DATABASE)
            opened.callback(store.close)
            with clear_errors(path):
                for name in _FOLDERS:
                    (path / name).mkdir(mode=0o755, exist_ok=True)
            tried_again = store.try_again(limits_of)
            if waiting_order is not None:
                store.order_waiting(waiting_order.name, waiting_order.rank_of)
            repaired = store.repair(path)
            snapshot = store.load(waiting_order.most_loaded if waiting_order is not None else None)
            if snapshot is None:
                store.create(now, job)
            cut_back(path, store.committed_lengths(), logs=(PAGES, LOG, DECISIONS, ITEMS))
            folder = cls(path, store, snapshot, warc_info or {})
            folder.repaired = repaired
            folder.tried_again = tried_again
            opened.pop_all()
        return folder

    def save(self, batch: Sequence[Saving]) -> None:
        """Save all of a batch or, with a StoreError, nothing of it; then the same call may be repeated."""
        settled = [saving for saving in batch if isinstance(saving, SaveSettled)]
        notes = self.archive.notes_of([saving.capture for saving in settled if saving.capture is not None])
        lengths_before = {log: log.length_bytes for log in (self.pages, self.log)}
        try:
            append_lines(settled, notes, self.pages, self.log)
            lengths = {log.name: log.flush() for log in (self.pages, self.log, self.decisions)}
            if self._items is not None:
                lengths[ITEMS] = self._items.flush()
            self.store.commit(batch, {**self.archive.flush(), **lengths}, notes)
        except BaseException:
            for log, length_bytes in lengths_before.items():
                log.cut(length_bytes)
            raise
        self.archive.forget_notes(notes)

    def save_parcel(
        self,
        batch: Sequence[Saving],
        lines: tuple[bytes, bytes, bytes],
        archive_lengths: Mapping[str, int],
        notes: Notes,
    ) -> None:
        """Save a batch of a worker process, which has written its archive files itself and sends the lines of
        pages, log and decisions."""
        logs = (self.pages, self.log, self.decisions)
        lengths_before = [log.length_bytes for log in logs]
        try:
            for log, text in zip(logs, lines, strict=True):
                log.append_lines(text)
            lengths = {log.name: log.flush() for log in logs}
            self.store.commit(batch, {**archive_lengths, **lengths}, notes)
        except BaseException:
            for log, length_bytes in zip(logs, lengths_before, strict=True):
                log.cut(length_bytes)
            raise

    def write_index(self) -> Path:
        """Index the committed captures, for pywb and other replay tools."""
        return write_index(self.path)

    def close(self) -> None:
        """Save everything without rows (decisions, robots.txt captures), then close all files."""
        if self._is_closed:
            return
        self._is_closed = True
        with ExitStack() as closing:
            for part in (self.store, self.archive, self.pages, self.log, self.decisions):
                closing.callback(part.close)
            if self._items is not None:
                closing.callback(self._items.close)
            self.save(())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _check_place(path: Path) -> None:
    """Only a folder that is new, empty or a crawl's own is accepted, so that files of others are never mixed
    with it."""
    with clear_errors(path):
        if not path.exists():
            return
        if not path.is_dir():
            raise StoreError(f"{path}: a file, not a folder; choose another folder for the crawl")
        names = {entry.name for entry in path.iterdir()}
        if names - {f"{DATABASE}-lock"} and DATABASE not in names:
            raise StoreError(
                f"{path}: not a run folder (it has no {DATABASE}) and not empty; use a new or empty folder"
            )


LINK_FILE = "link.json"


class LinkRecord(msgspec.Struct, frozen=True):
    """The file in the run folder."""

    looks: tuple[Look, ...] = ()
    estimate: LinkEstimate | None = None


def read_link(folder: Path) -> LinkRecord:
    """Empty if the crawl has not found anything out."""
    try:
        return msgspec.json.decode((folder / LINK_FILE).read_bytes(), type=LinkRecord)
    except (OSError, msgspec.DecodeError):
        return LinkRecord()
