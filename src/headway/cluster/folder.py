"""A collector's own folder: its part of the archive and its logs. The state of the crawl is elsewhere.

    archive/*.warc.gz  pages.jsonl  crawl.log  decisions.jsonl  collector.json

As in a run folder, files only grow, and their lengths are committed with the rows that refer to them; what
lies beyond after a crash is cut off.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec

from headway.archive.files import AppendLog, clear_errors
from headway.archive.warc import ARCHIVE_FOLDER, WARC_PATTERN, WarcArchive
from headway.cluster.coordinator import CommitBatch, Lines
from headway.errors import HeadwayError, StoreError, install_command
from headway.model.command import Decision, SaveSettled, Saving
from headway.policy.traps import keep_last
from headway.ports import CaptureNote, Original
from headway.store import rows
from headway.store.repair import cut_back
from headway.store.rows import append_lines, log_line, note_of, page_line
from headway.store.run_folder import DECISIONS, LOG, PAGES
from headway.units import Instant

_MARK = "collector.json"
_DIGESTS_KEPT = 200_000
_SENT = ".sent"


class Mark(msgspec.Struct, frozen=True):
    """The collector that owns the folder."""

    name: str
    token: str


class Contents:
    """Contents that were archived recently by this collector or, if it has looked them up, by others."""

    def __init__(self) -> None:
        self._originals: dict[str, tuple[Original, str]] = {}

    def find_digest(self, digest: str) -> Original | None:
        known = self._originals.get(digest)
        return None if known is None else known[0]

    def payload_digest_of(self, digest: str) -> str | None:
        """The digest of the archived payload of this content, compressed as the server sent it."""
        known = self._originals.get(digest)
        return None if known is None else known[1]

    def learn(self, digest: str, original: Original, payload_digest: str) -> None:
        self._originals.setdefault(digest, (original, payload_digest))
        keep_last(self._originals, _DIGESTS_KEPT)

    def note(self, settled: SaveSettled, note: CaptureNote | None) -> None:
        if rows.is_original(settled, note):
            original = Original(settled.page.url, Instant(rows.fetch_instant(settled, note)))
            digest = settled.outcome.digest
            self.learn(digest, original, (note.payload_digest if note is not None else "") or digest)


class WorkerFolder:
    """The run folder for a worker process: it writes archive files itself, and its supervisor writes the
    logs."""

    def __init__(self, path: Path, warc_info: Mapping[str, str] | None = None) -> None:
        self.path = path
        self.contents = Contents()
        self.archive = WarcArchive(path, info=warc_info, payload_digest_of=self.contents.payload_digest_of)
        self.archive.defers = True
        self._decisions: list[bytes] = []
        self._encode = msgspec.json.Encoder().encode

    def pack(self, batch: Sequence[Saving]) -> CommitBatch:
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
        packed = CommitBatch(
            batch, self.archive.flush(), notes, Lines(_joined(pages), _joined(log), _joined(decisions))
        )
        self.archive.forget_notes(notes)
        return packed

    def decide(self, decision: Decision) -> None:
        self._decisions.append(self._encode(decision))

    def close(self) -> None:
        self.archive.close()


class CollectorFolder:
    def __init__(self, path: Path, mark: Mark) -> None:
        self.path = path
        self.mark = mark
        self.contents = Contents()
        self.warc_info: Mapping[str, str] = {}
        """What the archive files of the next session say of the crawl."""
        self.archive: WarcArchive
        self.pages: AppendLog
        self.log: AppendLog
        self.decisions: AppendLog
        self.on_decision: Callable[[Decision], None] | None = None
        self._open: ExitStack | None = None

    @staticmethod
    def is_at(path: Path) -> bool:
        """Whether this is the folder of a collector."""
        return (path / _MARK).is_file()

    @classmethod
    def claim(cls, path: Path, name: str) -> CollectorFolder:
        """Open a new or empty folder, or the folder of a collector."""
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
                raise StoreError(f"{path}: neither empty nor a collector's folder; give a new folder")
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
        """The file that is being written."""
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
            self.archive = WarcArchive(
                self.path, info=self.warc_info, payload_digest_of=self.contents.payload_digest_of
            )
            opened.callback(self.archive.close)
            self._open = opened.pop_all()

    def pack(self, batch: Sequence[Saving]) -> CommitBatch:
        settled = [saving for saving in batch if isinstance(saving, SaveSettled)]
        notes = self.archive.notes_of([saving.capture for saving in settled if saving.capture is not None])
        append_lines(settled, notes, self.pages, self.log)
        for saving in settled:
            self.contents.note(saving, note_of(saving, notes))
        lengths = {log.name: log.flush() for log in (self.pages, self.log, self.decisions)}
        packed = CommitBatch(tuple(batch), {**self.archive.flush(), **lengths}, notes)
        self.archive.forget_notes(notes)
        return packed

    def decide(self, decision: Decision) -> None:
        self.decisions.append(decision)
        if self.on_decision is not None:
            self.on_decision(decision)

    def close(self) -> None:
        if self._open is not None:
            opened, self._open = self._open, None
            opened.close()


def _joined(lines: list[bytes]) -> bytes:
    return b"".join([line + b"\n" for line in lines])


class Uploader:
    """Uploads finished archive files to a storage that all machines share, such as S3, and removes them here.

    A WARC file is written here first, since such storages cannot append to a file. It is uploaded when it is
    full, or when the collector leaves, and all of it is committed; files of a dead collector are uploaded
    when it starts again. Any storage that fsspec supports can be used: s3://bucket/prefix, gs://..., or a
    folder.
    """

    def __init__(self, folder: Path, url: str) -> None:
        self._folder = folder / ARCHIVE_FOLDER
        self._url = url
        try:
            import fsspec.core
        except ImportError:
            raise HeadwayError(f"--archive needs the package s3fs: {install_command('s3')}") from None
        try:
            self._storage: Any
            self._storage, self._root = fsspec.core.url_to_fs(url)
            self._storage.makedirs(self._root, exist_ok=True)
        except Exception as problem:
            raise self._explain(problem) from problem

    def send_finished(self, committed_lengths: Mapping[str, int], current: str | None) -> int:
        """Upload complete files, except the one that is being written; returns how many were uploaded."""
        sent = 0
        for path in sorted(self._folder.glob(WARC_PATTERN)):
            name = f"{ARCHIVE_FOLDER}/{path.name}"
            size = path.stat().st_size
            if name == current or not size or committed_lengths.get(name) != size:
                continue
            target = f"{self._root}/{path.name}"
            try:
                self._storage.put_file(str(path), target)
                self._storage.invalidate_cache()
                arrived = self._storage.info(target)["size"]
            except Exception as problem:
                raise self._explain(problem) from problem
            if arrived != size:
                raise StoreError(
                    f"{self._url}: {path.name} has {size} bytes, its upload {arrived}; the local file is kept"
                )
            # The mark is written before the file is removed: after a crash in between, the file is uploaded
            # again at worst.
            path.with_name(path.name + _SENT).touch()
            path.unlink()
            sent += 1
        return sent

    def _explain(self, problem: Exception) -> StoreError:
        return StoreError(
            f"{self._url}: the archive's storage cannot be used ({type(problem).__name__}: {problem}); "
            "check the address, the credentials and AWS_ENDPOINT_URL. The local files are kept"
        )


def without_sent(folder: Path, committed_lengths: Mapping[str, int]) -> dict[str, int]:
    """The files that should still be in the folder."""
    return {
        name: length for name, length in committed_lengths.items() if not (folder / (name + _SENT)).exists()
    }
