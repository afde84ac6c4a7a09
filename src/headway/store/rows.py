"""How pages and samples are written: as rows of tables and as lines of `pages.jsonl` and `crawl.log`."""

from __future__ import annotations

import enum
import math
import re
import sqlite3
import struct
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec
import xxhash

from headway.archive.files import AppendLog
from headway.archive.records import cdx_timestamp, iso_utc, uri
from headway.archive.warc import PLAIN_PATH, surt
from headway.engine.seen import check_bits
from headway.model.command import NOT_COUNTED, PageState, SaveSettled
from headway.model.page import Kind, Page, Site, Task, Timing
from headway.policy.politeness import preferences_in
from headway.ports import CaptureNote, Notes, PackedLinks
from headway.units import Instant

_SIGN = (1 << 63) - 1
_REASON_CHARACTERS = 120
_COUNTED = {PageState.DONE: "done", PageState.FAILED: "failed", PageState.EXCLUDED: "excluded"}


def as_found(page: Page) -> float:
    """The default order of waiting pages: as they were found."""
    return 0.0


def path_of(url: str, site: Site) -> str:
    """The URL without the part that the site has already; with a leading = where that is not possible."""
    rest = url[len(site) :]
    return rest if rest.startswith("/") and url.startswith(site) else "=" + url


def url_of(path: str, site: Site) -> str:
    return site + path if path.startswith("/") else path[1:]


def fingerprint_of(digest: str) -> int:
    """63 bits, since SQLite's integers are signed; the whole digest is compared afterwards."""
    return xxhash.xxh3_64_intdigest(digest.encode()) & _SIGN


def clean_text(text: str) -> str:
    """Text that SQLite can store: the message of a server or the system may contain half a surrogate pair."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def word_of(member: enum.StrEnum) -> str:
    """A plain string; `.value` does the same and takes ten times as long."""
    return member._value_


def counted_as(state: PageState, kind: Kind) -> str | None:
    """The counter of the site in which a page counts. Pages out of scope count in none."""
    return None if kind is Kind.OUT_OF_SCOPE else _COUNTED.get(state)


def reason_of(settled: SaveSettled) -> str:
    """For pages out of scope the detail names the rule; elsewhere it is free text, too varied to count by."""
    outcome = settled.outcome
    return clean_text(outcome.detail)[:_REASON_CHARACTERS] if outcome.kind is Kind.OUT_OF_SCOPE else ""


def is_final(state: PageState) -> bool:
    return state in _COUNTED


def waiting_row(
    site_id: int, place: int, page: Page, rank: float, *, attempt: int = 0, retry_at: float | None = None
) -> tuple[object, ...]:
    path = path_of(page.url, page.site)
    return site_id, place, page.key, path, page.depth, page.score, attempt, retry_at, rank


def page_row(
    page_id: int, site_id: int, settled: SaveSettled, file_id: int | None, note: CaptureNote | None
) -> tuple[object, ...]:
    page, outcome, capture = settled.page, settled.outcome, settled.capture
    return (
        page_id,
        site_id,
        page.key,
        path_of(page.url, page.site),
        page.depth,
        word_of(settled.state),
        settled.attempt,
        word_of(outcome.kind),
        outcome.status,
        outcome.wire_bytes,
        outcome.content_bytes,
        clean_text(outcome.content_type),
        outcome.digest,
        settled.at,
        fetch_instant(settled, note),
        outcome.duration_s,
        clean_text(outcome.detail),
        file_id,
        capture.warc_offset if capture is not None else None,
        capture.warc_length if capture is not None else None,
        note.payload_digest if note is not None and note.payload_digest != outcome.digest else None,
        note.record_type if note is not None else None,
        links_blob(settled.links),
        outcome.fingerprint or None,
        None if outcome.timing is None else pack_timing(settled, outcome.timing),
    )


_TIMING = struct.Struct("<eeeffeHHB")
_LIMITED, _KEPT = 1, 2
_LONGEST_S = 65_000.0
"""About the largest number of a half-precision float."""


class AnswerTiming(NamedTuple):
    """Where the time of one answer went, as the store keeps it."""

    connect_s: float
    tls_s: float
    first_byte_s: float
    transfer_s: float
    held_s: float
    turnaround_s: float
    links: int
    found: int
    """How many of the links led to new pages; `NOT_COUNTED` if that is not known."""
    is_limited: bool
    is_kept: bool


def pack_timing(settled: SaveSettled, timing: Timing) -> bytes:
    """In 21 bytes. Half precision has an error of 0.05%, less than any clock of a network."""
    links = settled.links
    count = len(links.blob) // 8 if isinstance(links, PackedLinks) else len(links)
    return _TIMING.pack(
        min(timing.connect_s, _LONGEST_S),
        min(timing.tls_s, _LONGEST_S),
        min(timing.first_byte_s, _LONGEST_S),
        timing.transfer_s,
        timing.held_s,
        min(settled.turnaround_s, _LONGEST_S),
        min(count, NOT_COUNTED),
        settled.found,
        timing.is_limited * _LIMITED + timing.is_kept * _KEPT,
    )


def unpack_timing(packed: bytes | None) -> AnswerTiming | None:
    """None for a page without measured times, and for bytes that are none."""
    if packed is None or len(packed) != _TIMING.size:
        return None
    connect_s, tls_s, first_byte_s, transfer_s, held_s, turnaround_s, links, found, flags = _TIMING.unpack(
        packed
    )
    if not math.isfinite(connect_s + tls_s + first_byte_s + transfer_s + held_s + turnaround_s):
        return None
    return AnswerTiming(
        connect_s,
        tls_s,
        first_byte_s,
        transfer_s,
        held_s,
        turnaround_s,
        links,
        found,
        bool(flags & _LIMITED),
        bool(flags & _KEPT),
    )


def links_blob(links: Sequence[Page]) -> bytes | None:
    """Written once with the page: a count at each linked page would take about twenty updates instead."""
    if isinstance(links, PackedLinks):
        return links.blob
    if not links:
        return None
    return struct.pack(f"<{len(links)}q", *[link.key for link in links])


def note_of(settled: SaveSettled, notes: Notes) -> CaptureNote | None:
    """What the archive reported about the page's capture."""
    capture = settled.capture
    return None if capture is None else notes.get((capture.warc_file, capture.warc_offset))


def is_original(settled: SaveSettled, note: CaptureNote | None) -> bool:
    """Whether later captures may refer to this one: it has a payload of its own."""
    is_revisit = note is not None and note.record_type == "revisit"
    return settled.capture is not None and bool(settled.outcome.digest) and not is_revisit


def fetch_instant(settled: SaveSettled, note: CaptureNote | None) -> float:
    """When the page was requested: the archive's date, or computed from the end."""
    return note.captured_at if note is not None else settled.at - settled.outcome.duration_s


def task_row(site_id: int, task: Task) -> tuple[object, ...]:
    return (
        site_id,
        msgspec.json.encode(task.seeds).decode(),
        task.deadline_at,
        task.weight,
        task.max_pages,
        task.max_bytes,
        task.expected_bytes,
        task.cap_bytes_per_s,
    )


class Sums:
    """What a batch adds to a site: computed alike for every database."""

    __slots__ = ("content_bytes", "pages", "started_at", "wire_bytes")

    def __init__(self) -> None:
        self.pages: Counter[str] = Counter()
        self.wire_bytes = 0
        self.content_bytes = 0
        self.started_at: float | None = None

    def row(self, site_id: int) -> tuple[object, ...]:
        counts = [self.pages[name] for name in ("done", "failed", "excluded")]
        return *counts, self.wire_bytes, self.content_bytes, self.started_at, site_id


class Changes:
    """The rows of a batch of settled pages, by operation; the same for every database."""

    def __init__(self) -> None:
        self.retried: list[tuple[object, ...]] = []
        self.dropped: list[tuple[int, int]] = []
        self.placed: list[tuple[object, ...]] = []
        self.pages: list[tuple[object, ...]] = []
        self.seen: list[tuple[int | None, int | None, int, int, int]] = []
        self.contents: list[tuple[int, int]] = []
        self.sightings: list[tuple[object, ...]] = []
        self.unchanged: list[tuple[int, int]] = []

    def add_page(
        self, page_id: int, site_id: int, saving: SaveSettled, file_id: int | None, notes: Notes
    ) -> None:
        note = note_of(saving, notes)
        self.pages.append(page_row(page_id, site_id, saving, file_id, note))
        self.add_seen(None, page_id, site_id, saving.page)
        if is_original(saving, note):
            self.contents.append((fingerprint_of(saving.outcome.digest), page_id))

    def add_seen(self, place: int | None, page_id: int | None, site_id: int, page: Page) -> None:
        self.seen.append((place, page_id, site_id, page.key, check_bits(page.url)))

    def note_visit(self, saving: SaveSettled, page_id: int, last_page_id: int | None) -> None:
        sighting = saving.sighting
        if sighting is not None:
            texts = (clean_text(text) or None for text in (sighting.etag, sighting.last_modified))
            self.sightings.append((page_id, *texts, sighting.history or None))
        if saving.outcome.kind is Kind.NOT_MODIFIED and last_page_id is not None:
            self.unchanged.append((last_page_id, page_id))


# The progress of a crawl: its state at an instant, for live displays and for the report.
#
# The link has a row each second. A site has its last row in `site`, and earlier ones in `course`, with
# growing distances the longer the crawl has lasted.

ADD_SAMPLE = """
    INSERT INTO sample (at, wire_bytes, capacity_bytes_per_s, predicted_bytes_per_s, in_flight, waiting, done,
                        failed, is_paused, forecast_from_at, forecast_at, forecast_to_at)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
ADD_COURSE = """
    INSERT OR REPLACE INTO course (site_id, at, wire_bytes, waiting, left_bytes, share_bytes_per_s,
                                   forecast_from_at, forecast_to_at)
    SELECT id, ?, ?, ?, ?, ?, ?, ? FROM site WHERE site = ?"""
PUT_OUTLOOK = """
    UPDATE site SET looked_at = ?, waiting = ?, left_bytes = ?, share_bytes_per_s = ?, forecast_from_at = ?,
                    forecast_to_at = ?, forecast_at = ?, deadline_chance = ?
    WHERE site = ?"""


class Gauges(msgspec.Struct, frozen=True, gc=False):
    """The whole crawl at an instant."""

    predicted_bytes_per_s: float | None = None
    """The predicted total rate of the active servers, within the bound. None if nothing is planned."""
    in_flight: int | None = 0
    """None if no process counts it: such a crawl does not accept orders either."""
    waiting: int | None = 0
    """None if no process knows all waiting pages: the number is in the store."""
    done: int = 0
    failed: int = 0
    is_paused: bool = False
    forecast_from_at: float | None = None
    """The end of the crawl: four of five ends lie between this and `forecast_to_at`."""
    forecast_at: float | None = None
    forecast_to_at: float | None = None


class SiteSample(msgspec.Struct, frozen=True, gc=False):
    """A site at an instant. Without a bound and deadlines nothing is planned: then it has no share."""

    site: Site
    at: float
    wire_bytes: int
    waiting: int
    left_bytes: float | None = None
    """The estimated bytes left."""
    share_bytes_per_s: float | None = None
    """The rate that the allocation gives it."""
    forecast_from_at: float | None = None
    forecast_to_at: float | None = None
    forecast_at: float | None = None
    deadline_chance: float | None = None
    """That the site ends in time; None without a deadline."""


def sample_row(
    at: float, wire_bytes: int, capacity_bytes_per_s: float, gauges: Gauges | None
) -> tuple[object, ...]:
    if gauges is None:
        return at, wire_bytes, capacity_bytes_per_s, *(None,) * 9
    return at, wire_bytes, capacity_bytes_per_s, *msgspec.structs.astuple(gauges)


def write_samples(connection: sqlite3.Connection, rows: Sequence[SiteSample]) -> None:
    """Within the transaction of the store. Sites that the store does not know yet are skipped."""
    for statement, values in sample_rows(rows):
        connection.executemany(statement, values)


def sample_rows(rows: Sequence[SiteSample]) -> list[tuple[str, list[tuple[object, ...]]]]:
    """Statements that store them, each with its rows."""
    finite = [_finite(row) for row in rows]
    return [
        (ADD_COURSE, [(*row[1:8], row[0]) for row in finite]),
        (PUT_OUTLOOK, [(row[1], *row[3:], row[0]) for row in finite]),
    ]


def _finite(row: SiteSample) -> tuple[object, ...]:
    values: tuple[object, ...] = msgspec.structs.astuple(row)
    return tuple(None if isinstance(value, float) and not math.isfinite(value) else value for value in values)


class PageLine(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The content of a line of `pages.jsonl`. Apart from `lines`, which is compiled."""

    url: str
    site: str
    status: int
    content_type: str
    bytes: int
    depth: int
    digest: str
    fetched_at: str
    duration_s: float
    warc_file: str | None
    warc_offset: int | None
    preferences: dict[str, bool] | None = None
    """What the page may be used for, as far as its site says so."""


# Lines of `pages.jsonl` and `crawl.log`, made from what the machine saves of a page.
#
# `pages.jsonl` has one object for each page that was fetched and kept. `crawl.log` has one line for each
# attempt, also failed ones, with Heritrix's columns as far as they apply, separated by blanks:
#
#     settled_at  status  bytes  URL  depth  content-type  fetched_at+duration_s  digest  state  kind  detail
#
# A dash stands for an unknown value; only the last column, the detail, may contain blanks.

_BLANKS = re.compile(r"[\s\x00-\x1f\x7f]+")


def append_lines(settled: Iterable[SaveSettled], notes: Notes, pages: AppendLog, log: AppendLog) -> None:
    for saving in settled:
        note = note_of(saving, notes)
        page = page_line(saving, note)
        if page is not None:
            pages.append(page)
        line = log_line(saving, note)
        if line is not None:
            log.append_text(line)


def page_line(settled: SaveSettled, note: CaptureNote | None) -> PageLine | None:
    """The line of a fetched page, or None for a page that was not fetched, or must not be archived."""
    if settled.state is not PageState.DONE or settled.outcome.kind is Kind.NOINDEX:
        return None
    page, outcome, capture = settled.page, settled.outcome, settled.capture
    return PageLine(
        url=page.url,
        site=page.site,
        status=outcome.status,
        content_type=clean_text(outcome.content_type),
        bytes=outcome.content_bytes,
        depth=page.depth,
        digest=outcome.digest,
        fetched_at=iso_utc(Instant(fetch_instant(settled, note))),
        duration_s=round(outcome.duration_s, 6),
        warc_file=None if capture is None else capture.warc_file,
        warc_offset=None if capture is None else capture.warc_offset,
        preferences=preferences_in(outcome.detail) or None,
    )


def log_line(settled: SaveSettled, note: CaptureNote | None) -> str | None:
    """The line of an attempt; an excluded page that was not requested has none."""
    if settled.state is PageState.EXCLUDED and not settled.outcome.duration_s:
        return None
    page, outcome = settled.page, settled.outcome
    fetched_at = iso_utc(Instant(fetch_instant(settled, note)))
    content_type = outcome.content_type.partition(";")[0].strip()
    status, length, took = str(outcome.status), str(outcome.content_bytes), format(outcome.duration_s, ".3f")
    detail = _BLANKS.sub(" ", outcome.detail).strip() if outcome.detail else ""
    return (
        f"{iso_utc(settled.at)} {status.rjust(3)} {length.rjust(10)} {_word(page.url)} "
        f"{page.depth} {_word(content_type)} {fetched_at}+{took} {_word(outcome.digest)} "
        f"{word_of(settled.state)} {word_of(outcome.kind)} {detail or '-'}"
    )


def _word(text: str) -> str:
    if text.isprintable() and " " not in text:
        return text or "-"
    return _BLANKS.sub("_", text) or "-"


# Lines of the index (CDXJ), from rows of `schema.CAPTURES`.

_encode = msgspec.json.Encoder().encode
_IN_QUOTES = re.compile(r"[ !#-\[\]-~]*")
"""Texts that JSON writes as they are."""


class _Fields(msgspec.Struct, frozen=True, gc=False):
    """All texts, and in this order, as pywb writes them."""

    url: str
    mime: str
    status: str
    digest: str
    length: str
    offset: str
    filename: str


def cdxj_lines(captures: Iterable[tuple[Any, ...]]) -> list[bytes]:
    """The line of each capture, in the same order."""
    lines: list[bytes] = []
    keys: dict[str, str] = {}
    for (
        _,
        site,
        path,
        fetched_at,
        content_type,
        status,
        digest,
        length,
        offset,
        name,
        record_type,
    ) in captures:
        mime = "warc/revisit" if record_type == "revisit" else _mime(content_type)
        code = str(status) if status else "-"
        payload = digest.removeprefix("sha1:") or "-"
        file_name = name.rpartition("/")[2]
        at = cdx_timestamp(Instant(fetched_at))
        if PLAIN_PATH.fullmatch(path) and _IN_QUOTES.fullmatch(mime):
            key = keys.get(site)
            if key is None:
                key = keys[site] = surt(site).removesuffix("/")
            tidy = path.rstrip("/").lower()
            line = (
                f'{key}{tidy} {at} {{"url":"{site}{path}","mime":"{mime}","status":"{code}",'
                f'"digest":"{payload}","length":"{length}","offset":"{offset}","filename":"{file_name}"}}\n'
            )
            lines.append(line.encode())
            continue
        url = uri(url_of(path, Site(site)))
        fields = _Fields(url, mime, code, payload, str(length), str(offset), file_name)
        lines.append(f"{surt(url)} {at} ".encode() + _encode(fields) + b"\n")
    return lines


def _mime(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower() or "unk"
