"""A collector's own folder: its part of the archive and its logs. The crawl's state is elsewhere.

    archive/*.warc.gz  pages.jsonl  crawl.log  decisions.jsonl  collector.json

As in a run folder, files only grow, and their lengths are committed with the rows that speak of them; what
lies beyond after a crash is cut off.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import msgspec

from headway.errors import StoreError
from headway.fleet.coordinator import Lines, Parcel
from headway.fleet.upload import without_sent
from headway.model.command import SaveSettled, Saving
from headway.model.decision import Decision
from headway.policy.forgetting import keep_last
from headway.ports import Original
from headway.store import rows
from headway.store.appendlog import AppendLog
from headway.store.capture import CaptureNote
from headway.store.cutback import cut_back
from headway.store.failures import clear_errors
from headway.store.lines import append_lines, log_line, page_line
from headway.store.rows import note_of
from headway.store.runfolder import DECISIONS, LOG, PAGES
from headway.store.warc import ARCHIVE_FOLDER, WarcArchive
from headway.units import Instant

_MARK = "collector.json"
_DIGESTS_KEPT = 200_000


class Mark(msgspec.Struct, frozen=True):
    """Whose folder it is."""

    name: str
    token: str


class Folder(Protocol):
    """Where a session puts what it fetches and decides."""

    def pack(self, batch: Sequence[Saving]) -> Parcel:
        """Everything of a batch written and flushed, ready to be committed."""
        ...

    def decide(self, decision: Decision) -> None: ...


class Contents:
    """What was archived lately, by us or, as far as we have asked, by others."""

    def __init__(self) -> None:
        self._originals: dict[str, tuple[Original, str]] = {}

    def find_digest(self, digest: str) -> Original | None:
        known = self._originals.get(digest)
        return None if known is None else known[0]

    def payload_digest_of(self, digest: str) -> str | None:
        """The digest of the octets kept for this content, which are compressed as the server sent them."""
        known = self._originals.get(digest)
        return None if known is None else known[1]

    def learn(self, digest: str, original: Original, payload_digest: str) -> None:
        self._originals.setdefault(digest, (original, payload_digest))
        keep_last(self._originals, _DIGESTS_KEPT)

    def note(self, settled: SaveSettled, note: CaptureNote | None) -> None:
        if rows.is_original(settled, note):
            original = Original(settled.page.url, Instant(rows.fetched_at(settled, note)))
            digest = settled.outcome.digest
            self.learn(digest, original, (note.payload_digest if note is not None else "") or digest)


class WorkerFolder:
    """The run folder as a worker process has it: archive files are its own, logs are the office's."""

    def __init__(self, path: Path) -> None:
        self.contents = Contents()
        self.archive = WarcArchive(path, payload_digest_of=self.contents.payload_digest_of)
        self._decisions: list[bytes] = []
        self._encode = msgspec.json.Encoder().encode

    def pack(self, batch: Sequence[Saving]) -> Parcel:
        settled = [saving for saving in batch if isinstance(saving, SaveSettled)]
        notes = self.archive.notes_of([saving.capture for saving in settled if saving.capture is not None])
        pages: list[bytes] = []
        log: list[bytes] = []
        for saving in settled:
            note = note_of(saving, notes)
            page = page_line(saving, note)
            if page is not None:
                pages.append(self._encode(page))
            line = log_line(saving, note)
            if line is not None:
                log.append(line.encode("utf-8", "replace"))
            self.contents.note(saving, note)
        decisions, self._decisions = self._decisions, []
        parcel = Parcel(
            batch, self.archive.flush(), notes, Lines(_joined(pages), _joined(log), _joined(decisions))
        )
        self.archive.forget_notes(notes)
        return parcel

    def decide(self, decision: Decision) -> None:
        self._decisions.append(self._encode(decision))

    def close(self) -> None:
        self.archive.close()


class CollectorFolder:
    def __init__(self, path: Path, mark: Mark) -> None:
        self.path = path
        self.mark = mark
        self.contents = Contents()
        self.archive: WarcArchive
        self.pages: AppendLog
        self.log: AppendLog
        self.decisions: AppendLog
        self._open: ExitStack | None = None

    @classmethod
    def claim(cls, path: Path, name: str) -> CollectorFolder:
        """A new or empty folder, or one that a collector made."""
        with clear_errors(path):
            path.mkdir(mode=0o755, parents=True, exist_ok=True)
            mark_path = path / _MARK
            if mark_path.exists():
                try:
                    mark = msgspec.json.decode(mark_path.read_bytes(), type=Mark)
                except msgspec.DecodeError as problem:
                    raise StoreError(f"{mark_path}: it is damaged ({problem}); give another folder") from None
                return cls(path, mark)
            if any(path.iterdir()):
                raise StoreError(f"{path}: not a collector's folder, and not empty; give a new or empty one")
            mark = Mark(name, secrets.token_hex(4))
            mark_path.write_bytes(msgspec.json.encode(mark))
            (path / ARCHIVE_FOLDER).mkdir(mode=0o755)
        return cls(path, mark)

    @property
    def place(self) -> str:
        """The name of this folder among those of all collectors."""
        return f"{self.mark.name}-{self.mark.token}"

    @property
    def current_archive_file(self) -> str | None:
        """The one that is being written."""
        return self.archive.current_name if self._open is not None else None

    def open(self, committed_lengths: Mapping[str, int]) -> None:
        self.close()
        cut_back(self.path, without_sent(self.path, committed_lengths), logs=(PAGES, LOG, DECISIONS))
        self.contents = Contents()
        with ExitStack() as opened:
            self.pages, self.log, self.decisions = (
                AppendLog(self.path, name) for name in (PAGES, LOG, DECISIONS)
            )
            for log in (self.pages, self.log, self.decisions):
                opened.callback(log.close)
            self.archive = WarcArchive(self.path, payload_digest_of=self.contents.payload_digest_of)
            opened.callback(self.archive.close)
            self._open = opened.pop_all()

    def pack(self, batch: Sequence[Saving]) -> Parcel:
        settled = [saving for saving in batch if isinstance(saving, SaveSettled)]
        notes = self.archive.notes_of([saving.capture for saving in settled if saving.capture is not None])
        append_lines(settled, notes, self.pages, self.log)
        for saving in settled:
            self.contents.note(saving, note_of(saving, notes))
        lengths = {log.name: log.flush() for log in (self.pages, self.log, self.decisions)}
        parcel = Parcel(tuple(batch), {**self.archive.flush(), **lengths}, notes)
        self.archive.forget_notes(notes)
        return parcel

    def decide(self, decision: Decision) -> None:
        self.decisions.append(decision)

    def close(self) -> None:
        if self._open is not None:
            opened, self._open = self._open, None
            opened.close()


def _joined(lines: list[bytes]) -> bytes:
    return b"".join([line + b"\n" for line in lines])
