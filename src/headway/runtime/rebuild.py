"""Makes the database of a run again from its WARC files and logs, where it is lost or damaged.

`crawl.log` has each attempt, the archive has what was fetched, and the links of archived pages say which
pages still wait. What only the database had is lost: validators and histories of revisits, samples of the
link, learnt rates, and counts of pages that were left out. The old database is kept beside the new one.
"""

from __future__ import annotations

import datetime as dt
import mmap
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import structs

from headway.archive.records import usage_of
from headway.archive.warc import ARCHIVE_FOLDER, WARC_PATTERN
from headway.config.job import Job, build_job, without_password
from headway.config.reading import Source, convert
from headway.errors import HeadwayError, StoreError
from headway.http.decode import decode
from headway.http.head import HeadError, parse_head
from headway.http.models import Limits
from headway.model.command import PageState, SaveFound, SaveSettled, SaveTasks
from headway.model.page import SUCCESS, Capture, Kind, Outcome, Page, PageKey
from headway.pages.document import parse
from headway.pages.url import keyed, page_of
from headway.policy.politeness import preferences_of, with_preferences
from headway.ports import CaptureNote, Response
from headway.runtime.runtime import page_reading
from headway.store import repair, schema
from headway.store.reader import DATABASE, RunDatabase
from headway.store.run_folder import DECISIONS, ITEMS, LOG, PAGES, write_index
from headway.store.sqlite import SqliteStore
from headway.store.verify import Finding, Record, read_record, records_of
from headway.units import Instant, Seconds

_AT_ONCE = 1000
"""Pages in one commit."""
_DRAFT = ".crawl.sqlite.rebuilt"
_COLUMNS = 10
_MAX_HEADERS = 1000
_CAPTURED = frozenset({"response", "revisit", "resource"})


class Rebuilt(msgspec.Struct):
    pages: int = 0
    captures: int = 0
    waiting: int = 0
    skipped: list[str] = []
    """What could not be read, with its place."""
    old_database: str = ""


class _Attempt(NamedTuple):
    """A line of the log."""

    page: Page
    outcome: Outcome
    state: PageState
    at: Instant
    fetched_at: Instant


class _Kept(NamedTuple):
    """Where a capture is, and what the index needs of it."""

    capture: Capture
    note: CaptureNote
    record_type: str
    usage: str = ""
    """What the page may be used for, as far as its site says so."""


def rebuild(run: Path, job: Job | None = None) -> Rebuilt:
    """`job`: instead of the one that the run was begun with, if that cannot be read either."""
    logs = [name for name in (LOG, PAGES) if (run / name).is_file()]
    if not logs and not list((run / ARCHIVE_FOLDER).glob(WARC_PATTERN)):
        raise StoreError(f"{run}: no WARC files and no {LOG} to make a database from; give a run folder")
    result = Rebuilt()
    lock_fd = schema.lock(run / DATABASE)
    draft = run / _DRAFT
    try:
        with ExitStack() as stack:
            for path in _files_of(draft):
                path.unlink(missing_ok=True)
                stack.callback(path.unlink, missing_ok=True)
            kept = _captures_in(run, result)
            attempts = list(_attempts_in(run, kept, result))
            job, started_at = _job_of(run, job, attempts)
            store = SqliteStore(draft)
            try:
                _Builder(run, store, job.with_secret(store.secret), kept, result).build(started_at, attempts)
            finally:
                store.close()
            _write_lines(run, draft)
            result.old_database = _put_aside(run)
            draft.replace(run / DATABASE)
    finally:
        os.close(lock_fd)
    write_index(run)
    return result


class _Builder:
    def __init__(
        self, run: Path, store: SqliteStore, job: Job, kept: Mapping[tuple[str, str], _Kept], result: Rebuilt
    ) -> None:
        self._run = run
        self._store = store
        self._job = job
        self._kept = kept
        self._result = result
        self._options = page_reading(job).options
        self._open: dict[str, mmap.mmap] = {}
        self._tries: dict[PageKey, int] = {}
        self._done: set[PageKey] = set()
        self._found: dict[PageKey, Page] = {}

    def build(self, started_at: Instant, attempts: list[_Attempt]) -> None:
        store, seeds = self._store, self._job.seeds()
        store.create(started_at, without_password(self._job))
        store.commit([SaveTasks(self._job.tasks(started_at)), SaveFound(seeds)], {})
        self._found.update({page.key: page for page in seeds})
        for begin in range(0, len(attempts), _AT_ONCE):
            notes: dict[tuple[str, int], CaptureNote] = {}
            savings = [self._settled(attempt, notes) for attempt in attempts[begin : begin + _AT_ONCE]]
            store.commit(savings, {}, notes)
        waiting = [page for key, page in self._found.items() if key not in self._done]
        store.commit([SaveFound(tuple(waiting))], self._lengths())
        self._result.pages, self._result.waiting = len(self._done), len(waiting)
        for data in self._open.values():
            data.close()

    def _settled(self, attempt: _Attempt, notes: dict[tuple[str, int], CaptureNote]) -> SaveSettled:
        (page,) = keyed([attempt.page], self._job.secret)
        outcome = attempt.outcome
        tries = self._tries.get(page.key, 0)
        self._tries[page.key] = tries + 1
        kept = self._kept.get((page.url, _text(attempt.fetched_at)))
        links: tuple[Page, ...] = ()
        if kept is not None:
            self._result.captures += 1
            notes[kept.capture.warc_file, kept.capture.warc_offset] = kept.note
            links = self._links(page, kept, outcome)
            for link in links:
                if self._job.judge(link) is None:
                    self._found.setdefault(link.key, link)
        if attempt.state is PageState.WAITING:
            self._found.setdefault(page.key, page)
        else:
            self._done.add(page.key)
        capture = kept.capture if kept is not None else None
        return SaveSettled(page, outcome, attempt.state, tries, attempt.at, None, capture, links)

    def _links(self, page: Page, kept: _Kept, outcome: Outcome) -> tuple[Page, ...]:
        if kept.record_type != "response" or outcome.kind not in SUCCESS:
            return ()
        capture = kept.capture
        data = self._open.get(capture.warc_file)
        if data is None:
            with (self._run / capture.warc_file).open("rb") as file:
                data = self._open[capture.warc_file] = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        response = _response_of(read_record(data, capture.warc_offset), page)
        return parse(response, page, self._options).links if response is not None else ()

    def _lengths(self) -> dict[str, int]:
        """The files as far as they are whole."""
        lengths = {}
        for path in sorted((self._run / ARCHIVE_FOLDER).glob(WARC_PATTERN)):
            lengths[f"{ARCHIVE_FOLDER}/{path.name}"] = path.stat().st_size
        for name in (LOG, DECISIONS, ITEMS):
            path = self._run / name
            if path.is_file():
                lengths[name] = repair.end_of_whole_lines(path)
                os.truncate(path, lengths[name])
        return lengths


def _captures_in(run: Path, result: Rebuilt) -> dict[tuple[str, str], _Kept]:
    """The captures in the archive by URL and time."""
    kept: dict[tuple[str, str], _Kept] = {}
    for path in sorted((run / ARCHIVE_FOLDER).glob(WARC_PATTERN)):
        for record in records_of(path):
            if isinstance(record, Finding):
                result.skipped.append(f"{record.where}: {record.what}")
                continue
            fields, record_type = record.fields, record.fields.get("warc-type", "")
            date = _instant_of(fields.get("warc-date", ""))
            if record_type == "metadata" and date is not None and (usage := usage_of(record.block)):
                place = fields.get("warc-target-uri", ""), _text(date)
                if place in kept:
                    kept[place] = kept[place]._replace(usage=usage)
                continue
            if record_type not in _CAPTURED or date is None:
                continue
            note = CaptureNote(date, fields.get("warc-payload-digest", ""), record_type)
            capture = Capture(f"{ARCHIVE_FOLDER}/{path.name}", record.offset, record.length)
            kept[fields.get("warc-target-uri", ""), _text(date)] = _Kept(capture, note, record_type)
    return kept


def _attempts_in(run: Path, kept: Mapping[tuple[str, str], _Kept], result: Rebuilt) -> Iterator[_Attempt]:
    """The attempts in the log; and the captures that it does not have, as pages that were fetched."""
    logged: set[tuple[str, str]] = set()
    path = run / LOG
    if path.is_file():
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                attempt = _attempt_of(line)
                if attempt is None:
                    result.skipped.append(f"{LOG}, line {number}: it is not a line of an attempt")
                    continue
                logged.add((attempt.page.url, _text(attempt.fetched_at)))
                yield attempt
    for (url, date), each in kept.items():
        page = page_of(url)
        is_rules = page is not None and page.url == f"{page.site}/robots.txt"
        if (url, date) in logged or page is None or is_rules:
            continue
        at, is_revisit = each.note.captured_at, each.record_type == "revisit"
        kind = Kind.DUPLICATE if is_revisit else Kind.FETCHED
        outcome = Outcome(kind, 200, digest=each.note.payload_digest, detail="from the archive")
        detail = with_preferences(outcome.detail, preferences_of(each.usage))
        outcome = structs.replace(outcome, detail=detail)
        yield _Attempt(page, outcome, PageState.DONE, at, at)


def _attempt_of(line: bytes) -> _Attempt | None:
    try:
        words = line.decode().split(maxsplit=_COLUMNS)
        settled, status, size, url, depth, media_type, fetched, digest, state, kind, *detail = words
        page, at = page_of(url, depth=int(depth)), _instant_of(settled)
        date, _, took = fetched.partition("+")
        fetched_at = _instant_of(date)
        if page is None or at is None or fetched_at is None:
            return None
        outcome = Outcome(
            Kind(kind),
            int(status),
            wire_bytes=int(size),
            duration_s=Seconds(float(took)),
            content_type="" if media_type == "-" else media_type,
            content_bytes=int(size),
            digest="" if digest == "-" else digest,
            detail="" if detail in ([], ["-"]) else " ".join(detail),
        )
        return _Attempt(page, outcome, PageState(state), at, fetched_at)
    except ValueError:
        return None


def _response_of(record: Record, page: Page) -> Response | None:
    """The answer as it was read at first."""
    head, _, payload = record.block.partition(b"\r\n\r\n")
    try:
        reply = parse_head(head + b"\r\n\r\n", _MAX_HEADERS)
    except HeadError:
        return None
    body = decode(payload, reply.content_encoding, Limits()).body
    return Response(
        Kind.FETCHED,
        page.url,
        Instant(0.0),
        Seconds(0.0),
        reply.status,
        reply.headers,
        payload=payload,
        body=body,
    )


def _job_of(run: Path, job: Job | None, attempts: list[_Attempt]) -> tuple[Job, Instant]:
    """The job of the run: the given one, else that of the old database, else one of the sites in the log."""
    started_at = min((attempt.at for attempt in attempts), default=Instant(0.0))
    tables: dict[str, Any] | None = None
    with suppress(HeadwayError, ArithmeticError), RunDatabase(run) as old:
        begun_at, tables = old.crawl()
        started_at = Instant(begun_at)
    if job is not None:
        return job, started_at
    source = Source(str(run))
    if tables is not None:
        with suppress(HeadwayError):
            return build_job(convert(tables, source), source), started_at
    seeds = {attempt.page.site: attempt.page.url for attempt in reversed(attempts) if not attempt.page.depth}
    if not seeds:
        raise StoreError(
            f"{run}: neither the database nor the log says which sites were crawled; give the job file"
        )
    return build_job(convert({"site": [{"url": url} for url in seeds.values()]}, source), source), started_at


def _write_lines(run: Path, draft: Path) -> None:
    """`pages.jsonl` again, from the rows."""
    connection = schema.open_for_writing(draft)
    try:
        connection.execute("INSERT OR IGNORE INTO file (name) VALUES (?)", (PAGES,))
        repair.write_pages_again(connection, run, ())
        schema.close_for_good(connection)
    finally:
        connection.close()


def _put_aside(run: Path) -> str:
    """Rename the old database; returns its new name, empty if there was none."""
    path = run / DATABASE
    if not path.exists():
        return ""
    number = 1
    while (aside := run / f"{DATABASE}.damaged-{number}").exists():
        number += 1
    path.replace(aside)
    for suffix in ("-wal", "-shm"):
        (run / f"{DATABASE}{suffix}").unlink(missing_ok=True)
    return aside.name


def _files_of(database: Path) -> list[Path]:
    return [database.with_name(f"{database.name}{suffix}") for suffix in ("", "-wal", "-shm", "-lock")]


def _instant_of(text: str) -> Instant | None:
    try:
        return Instant(dt.datetime.fromisoformat(text).timestamp())
    except ValueError:
        return None


def _text(instant: Instant) -> str:
    return f"{instant:.6f}"
