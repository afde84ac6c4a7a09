"""How URLs and pages lie in the tables: no I/O, both ways."""

from __future__ import annotations

import enum
import struct
from collections.abc import Sequence

import msgspec
import xxhash

from headway.model.command import PageState, SaveSettled
from headway.model.outcome import Kind
from headway.model.page import Page, Site
from headway.model.task import Task
from headway.store.capture import CaptureNote, Notes
from headway.store.packedlinks import PackedLinks

_SIGN = (1 << 63) - 1
_REASON_CHARACTERS = 120
_COUNTED = {PageState.DONE: "done", PageState.FAILED: "failed", PageState.EXCLUDED: "excluded"}


def as_found(page: Page) -> float:
    """The order of a crawl that was told of none."""
    return 0.0


def path_of(url: str, site: Site) -> str:
    """The URL without what the site says already; with = in front where that is not possible."""
    rest = url[len(site) :]
    return rest if rest.startswith("/") and url.startswith(site) else "=" + url


def url_of(path: str, site: Site) -> str:
    return site + path if path.startswith("/") else path[1:]


def fingerprint_of(digest: str) -> int:
    """63 bits, since SQLite's integers have a sign; the whole digest is compared afterwards."""
    return xxhash.xxh3_64_intdigest(digest.encode()) & _SIGN


def clean_text(text: str) -> str:
    """What SQLite can hold: a server's or system's message may come with half a surrogate pair."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def word_of(member: enum.StrEnum) -> str:
    """A plain string; `.value` says the same and takes ten times as long."""
    return member._value_


def counted_as(state: PageState, kind: Kind) -> str | None:
    """The site's sum that a page counts in. What is out of scope was never the site's to give."""
    return None if kind is Kind.OUT_OF_SCOPE else _COUNTED.get(state)


def reason_of(settled: SaveSettled) -> str:
    """Out of scope, the detail names the rule; elsewhere it is prose, too varied to count by."""
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
        fetched_at(settled, note),
        outcome.duration_s,
        clean_text(outcome.detail),
        file_id,
        capture.warc_offset if capture is not None else None,
        capture.warc_length if capture is not None else None,
        note.payload_digest if note is not None and note.payload_digest != outcome.digest else None,
        note.record_type if note is not None else None,
        links_blob(settled.links),
        outcome.fingerprint or None,
    )


def links_blob(links: Sequence[Page]) -> bytes | None:
    """Written once with the page: a count at each page linked to would be some twenty updates instead."""
    if isinstance(links, PackedLinks):
        return links.blob
    if not links:
        return None
    return struct.pack(f"<{len(links)}q", *[link.key for link in links])


def note_of(settled: SaveSettled, notes: Notes) -> CaptureNote | None:
    """What the archive told of the page's capture."""
    capture = settled.capture
    return None if capture is None else notes.get((capture.warc_file, capture.warc_offset))


def is_original(settled: SaveSettled, note: CaptureNote | None) -> bool:
    """Whether later captures may refer to this one: it has a payload of its own."""
    is_revisit = note is not None and note.record_type == "revisit"
    return settled.capture is not None and bool(settled.outcome.digest) and not is_revisit


def fetched_at(settled: SaveSettled, note: CaptureNote | None) -> float:
    """When the page was asked for: the archive's date, or reckoned back from the end."""
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
