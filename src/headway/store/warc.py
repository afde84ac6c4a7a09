"""Captures kept as WARC 1.1 files: response (or revisit) and request, one gzip member a record.

Files are begun when the first capture comes, turned over at a size, and named so that no other start of
the crawl can choose the same name.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from headway.model.outcome import Capture
from headway.policy.forgetting import keep_last
from headway.ports import Original, Response
from headway.store import warc_record
from headway.store.appendfile import AppendFile
from headway.store.capture import CaptureNote
from headway.store.times import cdx_timestamp, iso_utc
from headway.units import Instant

ARCHIVE_FOLDER = "archive"
WARC_PATTERN = "headway-*.warc.gz"
_DEFAULT_FILE_BYTES = 10**9
_NOTES_KEPT = 100_000
_RECENT_KEPT = 10_000
_NOT_MODIFIED = 304


class WarcArchive:
    """`payload_digest_of` tells, by the crawl's digest, which payload the store holds already.

    A revisit has its own head and another record's payload, so the two payloads must be the same octets;
    equal contents in different content codings are not. Without that function the caller is believed.
    """

    def __init__(
        self,
        run_folder: Path,
        *,
        info: Mapping[str, str] | None = None,
        max_file_bytes: int = _DEFAULT_FILE_BYTES,
        payload_digest_of: Callable[[str], str | None] | None = None,
    ) -> None:
        self._run_folder = run_folder
        self._info = {
            "software": "headway",
            "format": "WARC File Format 1.1",
            "conformsTo": "http://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/",
            **(info or {}),
        }
        self._max_file_bytes = max_file_bytes
        self._payload_digest_of = payload_digest_of
        self._token = secrets.token_hex(4)
        self._serial = 0
        self._file: AppendFile | None = None
        self._name = ""
        self._lengths: dict[str, int] = {}
        self._notes: dict[tuple[str, int], CaptureNote] = {}
        self._recent_payloads: dict[str, str] = {}
        """By the crawl's digest: what the store cannot know before its next commit."""

    def write(self, response: Response, *, digest: str, revisit_of: Original | None = None) -> Capture:
        file = self._open_file(response.requested_at)
        date = iso_utc(response.requested_at)
        payload_digest = warc_record.sha1_digest(response.payload)
        if revisit_of is not None and _says_not_modified(response):
            payload_digest = self._kept_payload(digest) or payload_digest
        elif revisit_of is not None and not self._same_payload(response, digest, payload_digest):
            revisit_of = None
        record_id = warc_record.new_record_id()
        target = warc_record.uri(response.url)
        record_type, main = _main_record(
            response,
            record_id=record_id,
            date=date,
            target=target,
            payload_digest=payload_digest,
            revisit_of=revisit_of,
        )
        capture = Capture(self._name, file.length_bytes, len(main))
        file.append(main)
        if response.request_head:
            file.append(_request_record(response, record_id, date, target))
        self._note(capture, CaptureNote(response.requested_at, payload_digest, record_type))
        if record_type == "response" and digest:
            self._recent_payloads.setdefault(digest, payload_digest)
            keep_last(self._recent_payloads, _RECENT_KEPT)
        return capture

    @property
    def current_name(self) -> str | None:
        """The file that grows just now."""
        return self._name if self._file is not None else None

    def notes_of(self, captures: Iterable[Capture]) -> dict[tuple[str, int], CaptureNote]:
        """What was written at these places, for the store to commit with the pages' rows."""
        places = ((capture.warc_file, capture.warc_offset) for capture in captures)
        return {place: self._notes[place] for place in places if place in self._notes}

    def forget_notes(self, places: Iterable[tuple[str, int]]) -> None:
        for place in places:
            self._notes.pop(place, None)

    def flush(self) -> Mapping[str, int]:
        if self._file is not None:
            self._lengths[self._name] = self._file.flush()
        # Files that were turned over stay named, in case the commit that follows fails and is repeated.
        return dict(self._lengths)

    def close(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            file.close()
            self._lengths[self._name] = file.length_bytes

    def _same_payload(self, response: Response, digest: str, payload_digest: str) -> bool:
        if not response.payload or not response.head:
            return False
        if self._payload_digest_of is None:
            return True
        return self._kept_payload(digest) == payload_digest

    def _kept_payload(self, digest: str) -> str | None:
        found = self._payload_digest_of(digest) if self._payload_digest_of is not None else None
        return self._recent_payloads.get(digest) or found

    def _open_file(self, now: Instant) -> AppendFile:
        if self._file is not None and self._file.length_bytes >= self._max_file_bytes:
            self.close()
        if self._file is None:
            filename = f"headway-{cdx_timestamp(now)}-{self._token}-{self._serial:05d}.warc.gz"
            self._serial += 1
            self._name = f"{ARCHIVE_FOLDER}/{filename}"
            self._file = AppendFile(self._run_folder / self._name, is_new=True)
            self._file.append(warc_record.warcinfo(filename, iso_utc(now), self._info))
        return self._file

    def _note(self, capture: Capture, note: CaptureNote) -> None:
        self._notes[capture.warc_file, capture.warc_offset] = note
        keep_last(self._notes, _NOTES_KEPT)


def _says_not_modified(response: Response) -> bool:
    return response.status == _NOT_MODIFIED and not response.payload


def _main_record(
    response: Response,
    *,
    record_id: str,
    date: str,
    target: str,
    payload_digest: str,
    revisit_of: Original | None,
) -> tuple[str, bytes]:
    block: tuple[bytes, ...]
    if not response.head:
        # An HTTP/0.9 answer has no head; made up as a response it would claim what no server said.
        record_type, content_type, block = "resource", "application/octet-stream", (response.payload,)
    elif revisit_of is not None:
        record_type, content_type = "revisit", "application/http;msgtype=response"
        block = (warc_record.consistent_head(response),)
    else:
        record_type, content_type = "response", "application/http;msgtype=response"
        block = (warc_record.consistent_head(response), response.payload)
    fields = (
        f"WARC-Type: {record_type}\r\nWARC-Record-ID: {record_id}\r\nWARC-Date: {date}\r\n"
        f"WARC-Target-URI: {target}\r\nContent-Type: {content_type}\r\n"
        f"WARC-Payload-Digest: {payload_digest}\r\nWARC-Block-Digest: {warc_record.sha1_digest(*block)}\r\n"
    )
    address = warc_record.ip_address(response.peer)
    if address is not None:
        fields += f"WARC-IP-Address: {address}\r\n"
    reason = warc_record.truncation_reason(response)
    if reason is not None:
        fields += f"WARC-Truncated: {reason}\r\n"
    if revisit_of is not None and record_type == "revisit":
        fields += (
            f"WARC-Profile: {warc_record.revisit_profile(is_unmodified=_says_not_modified(response))}\r\n"
            f"WARC-Refers-To-Target-URI: {warc_record.uri(revisit_of.url)}\r\n"
            f"WARC-Refers-To-Date: {iso_utc(revisit_of.captured_at)}\r\n"
        )
    return record_type, warc_record.record(fields, *block)


def _request_record(response: Response, response_id: str, date: str, target: str) -> bytes:
    head = response.request_head
    fields = (
        f"WARC-Type: request\r\nWARC-Record-ID: {warc_record.new_record_id()}\r\nWARC-Date: {date}\r\n"
        f"WARC-Target-URI: {target}\r\nWARC-Concurrent-To: {response_id}\r\n"
        f"Content-Type: application/http;msgtype=request\r\n"
        f"WARC-Block-Digest: {warc_record.sha1_digest(head)}\r\n"
    )
    return warc_record.record(fields, head, level=warc_record.QUICK_LEVEL)
