"""A run folder: the store, the archive and the logs of one crawl, saved together.

    crawl.sqlite  archive/*.warc.gz  indexes/index.cdxj  pages.jsonl  crawl.log  decisions.jsonl  report/

Files only grow and are flushed first; then the store commits the rows and the files' lengths in one
transaction. So at any moment the last commit says what counts, and a killed crawl goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from headway.errors import StoreError
from headway.model.command import SaveSettled, Saving
from headway.model.page import Page
from headway.model.snapshot import Snapshot
from headway.store.appendlog import AppendLog
from headway.store.capture import Notes
from headway.store.cdxj import write_index
from headway.store.cutback import cut_back
from headway.store.failures import clear_errors
from headway.store.lines import append_lines
from headway.store.reader import DATABASE
from headway.store.sqlite import SqliteStore
from headway.store.warc import ARCHIVE_FOLDER, WarcArchive
from headway.units import Instant

PAGES = "pages.jsonl"
LOG = "crawl.log"
DECISIONS = "decisions.jsonl"
ITEMS = "items.jsonl"
_FOLDERS = (ARCHIVE_FOLDER, "indexes", "report")


class WaitingOrder(NamedTuple):
    """How the pages of a site wait, and about how many pages are to be at hand; None: all."""

    name: str
    rank_of: Callable[[Page], float]
    most_loaded: int | None


class RunFolder:
    """Use `open`. `snapshot` is None in a crawl that has just begun."""

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
        self.archive = WarcArchive(path, info=warc_info, payload_digest_of=store.payload_digest_of)
        self._items: AppendLog | None = None
        self._is_closed = False
        self.mended = ""
        """What a power cut had cost, and what was done about it."""

    def add_item(self, item: object) -> None:
        """A line of `items.jsonl`, which there is only where rules extract something."""
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
    ) -> Self:
        """Begin a crawl in a new or empty folder, or take up the one that is there."""
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
            if waiting_order is not None:
                store.order_waiting(waiting_order.name, waiting_order.rank_of)
            mended = store.mend(path)
            snapshot = store.load(waiting_order.most_loaded if waiting_order is not None else None)
            if snapshot is None:
                store.create(now, job)
            cut_back(path, store.committed_lengths(), logs=(PAGES, LOG, DECISIONS, ITEMS))
            folder = cls(path, store, snapshot, warc_info or {})
            folder.mended = mended
            opened.pop_all()
        return folder

    def save(self, batch: Sequence[Saving]) -> None:
        """Everything of a batch, or, with a StoreError, nothing of it; then the same call may be repeated."""
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
        """A batch of a worker process, which has written its archive files itself and gives the lines of
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
        """Index what has been committed, for pywb and other replay tools."""
        return write_index(self.path)

    def close(self) -> None:
        """Save what has no rows (decisions, robots.txt captures), then let go of everything."""
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
    """Only into a folder that is new, empty or a crawl's own: nobody's files get between ours."""
    with clear_errors(path):
        if not path.exists():
            return
        if not path.is_dir():
            raise StoreError(f"{path}: a file, not a folder; choose another place for the crawl")
        names = {entry.name for entry in path.iterdir()}
        if names - {f"{DATABASE}-lock"} and DATABASE not in names:
            raise StoreError(
                f"{path}: not a run folder (it has no {DATABASE}) and not empty; give a new or empty folder"
            )
