"""Captures as WARC 1.1 files: response (or revisit) and request, one gzip member a record; keys for their
index."""

from __future__ import annotations

import os
import re
import secrets
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from msgspec.structs import force_setattr

from headway.archive.files import AppendFile
from headway.archive.records import (
    cdx_timestamp,
    iso_utc,
    load_sealer,
    made_in_python,
    parts_of,
    payload_digest_of,
    record_id_of,
    says_not_modified,
    uri,
    usage_metadata,
    warcinfo,
)
from headway.model.page import Capture
from headway.policy.traps import keep_last
from headway.ports import CaptureNote, Made, Original, Response
from headway.units import Instant

# Sort-friendly URI keys, as pywb computes them, so that it finds its keys in headway's index.
#
# The rules are those of the Wayback machine: scheme, user, fragment, default port and a leading `www.` go,
# the host is turned round, everything is lower case, the path is tidied, session ids go, arguments are
# sorted. The tests compare with keys made by pywb; its own library for it does not suit our licence.

_URL = re.compile(
    r"(?:([a-z][a-z0-9+.\-]*):)?//([^/?#]*)([^?#]*)(?:\?([^#]*))?(?:#.*)?", re.IGNORECASE | re.DOTALL
)
_AUTHORITY = re.compile(r"(?:.*@)?(\[[^\]]*\]|[^:]*)(?::(\d*))?", re.DOTALL)
PLAIN_PATH = re.compile(r"(?:/[A-Za-z0-9_-][A-Za-z0-9._-]*+)++/?")
_WWW = re.compile(r"^www\d*\.(?=.)")
_ESCAPED = re.compile(r"[\x00-\x20#%\x7f-\xff]")
_DEFAULT_PORTS = {"http": "80", "https": "443"}
_SESSIONS_IN_PATH = (
    re.compile(r"/\((?:[a-z]\([0-9a-z]{24}\))+\)(?=/)"),
    re.compile(r"/\([0-9a-z]{24}\)(?=/)"),
)
_SESSIONS_IN_QUERY = tuple(
    re.compile(rf"{argument}(?=&|$)")
    for argument in (
        r"jsessionid=[0-9a-z]{32}",
        r"phpsessid=[0-9a-z]{32}",
        r"sid=[0-9a-z]{32}",
        r"aspsessionid[a-z]{8}=[a-z]{24}",
    )
)
_FEW_TIMES = 4
_HEXADECIMAL = frozenset(b"0123456789abcdefABCDEF")


def surt(url: str) -> str:
    """`https://www.Example.org/B/?y=2&x=1` becomes `org,example)/b?x=1&y=2`."""
    match = _URL.fullmatch(url)
    if match is None:
        return url
    scheme, authority, path, query = match.groups()
    # Most paths need nothing but lower case, and most URLs have no query.
    tidy = path.rstrip("/").lower() if PLAIN_PATH.fullmatch(path) else _path_key(path)
    key = f"{_host_key(authority, (scheme or 'http').lower())}){tidy}"
    arguments = _query_key(query) if query else ""
    return f"{key}?{arguments}" if arguments else key


@lru_cache(maxsize=4096)
def _host_key(authority: str, scheme: str) -> str:
    match = _AUTHORITY.fullmatch(authority)
    host, port = match.groups() if match else (authority, None)
    host = _WWW.sub("", _unescaped(host).strip("."), count=1) if host[:1] != "[" else host[1:-1].lower()
    # An IPv6 address has colons, no parts to turn round.
    key = host if ":" in host else ",".join(reversed(host.split(".")))
    return _escaped(key) + (f":{port}" if port and port != _DEFAULT_PORTS.get(scheme) else "")


def _path_key(path: str) -> str:
    parts: list[str] = []
    for part in _unescaped(path).removeprefix("/").split("/"):
        if part == ".." and parts:
            parts.pop()
        elif part != ".":
            parts.append(part)
    tidy = "/" + "/".join(filter(None, parts))
    for pattern in _SESSIONS_IN_PATH:
        tidy = _without_session(tidy, pattern)
    return _escaped(tidy)


def _without_session(path: str, pattern: re.Pattern[str]) -> str:
    """The path without the last session id that an .aspx page follows."""
    last_page = path.rfind(".aspx")
    for match in reversed(list(pattern.finditer(path, 0, max(0, last_page)))):
        rest_at = match.end() + 1
        query = path.find("?", rest_at)
        if path.find(".aspx", rest_at + 1, query if query >= 0 else len(path)) >= 0:
            return path[: match.start() + 1] + path[rest_at:]
    return path


def _query_key(query: str) -> str:
    plain = _unescaped(query)
    for pattern in _SESSIONS_IN_QUERY:
        for match in deque(pattern.finditer(plain), 1):
            plain = plain[: match.start()] + plain[match.end() + 1 :]
    plain = _without_cold_fusion_ids(plain)
    return "&".join(sorted(_escaped(plain).split("&")))


def _without_cold_fusion_ids(query: str) -> str:
    """The query without the last pair of `cfid` and `cftoken`."""
    token = len(query)
    while (token := query.rfind("&cftoken=", 0, token)) >= 0:
        value = token + len("&cftoken=")
        begin = query.rfind("cfid=", query.rfind("&", 0, token) + 1, max(0, token - 1))
        if begin >= 0 and query[value : value + 1] not in {"", "&"}:
            end = query.find("&", value)
            return query[:begin] + (query[end + 1 :] if end >= 0 else "")
    return query


def _unescaped(text: str) -> str:
    """Octets as latin-1 characters, unescaped until nothing is left to unescape; ASCII in lower case."""
    octets = text.encode("utf-8", "surrogatepass")
    for _ in range(_FEW_TIMES):
        if b"%" not in octets or (plain := unquote_to_bytes(octets)) == octets:
            break
        octets = plain
    else:
        octets = _unescaped_in_one_pass(octets)
    return octets.lower().decode("latin-1")


def _unescaped_in_one_pass(octets: bytes) -> bytes:
    """An escape may stand for a part of another one: `%2525...` of a server takes as many passes as it has
    characters, if each undoes one escape."""
    found = bytearray()
    for octet in octets:
        found.append(octet)
        while found[-3:-2] == b"%" and found[-2] in _HEXADECIMAL and found[-1] in _HEXADECIMAL:
            found[-3:] = bytes.fromhex(found[-2:].decode())
    return bytes(found)


def _escaped(text: str) -> str:
    return _ESCAPED.sub(lambda match: f"%{ord(match[0]):02x}", text)


# Captures kept as WARC 1.1 files: response (or revisit) and request, one gzip member a record.
#
# Files are begun when the first capture comes, turned over at a size, and named so that no other start of
# the crawl can choose the same name.

ARCHIVE_FOLDER = "archive"
WARC_PATTERN = "headway-*.warc.gz"
_DEFAULT_FILE_BYTES = 10**9
_NOTES_KEPT = 100_000
_RECENT_KEPT = 10_000
_MOST_UNSEALED_BYTES = 32 * 2**20
"""Of payloads that wait for their records to be made."""


def usable_cores() -> int:
    """Of the machine, as far as this process may use them."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Unsealed(NamedTuple):
    """A capture whose records are being made."""

    capture: Capture
    captured_at: Instant
    payload_digest: str
    record_type: str
    target: str
    preferences: Mapping[str, bool] | None


class WarcArchive:
    """`payload_digest_of` tells, by the crawl's digest, which payload the store holds already.

    A revisit has its own head and another record's payload, so the two payloads must be the same octets;
    equal contents in different content codings are not. Without that function the caller is believed.

    Records are made in C, if it was built, by a pool of threads. While `defers` is set, `write` returns a
    capture without its place, which `notes_of`, `flush` and `close` fill in.
    """

    def __init__(
        self,
        run_folder: Path,
        *,
        info: Mapping[str, str] | None = None,
        max_file_bytes: int = _DEFAULT_FILE_BYTES,
        payload_digest_of: Callable[[str], str | None] | None = None,
        threads: int = 0,
    ) -> None:
        """`threads`: how many make records beside this one."""
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
        self.defers = False
        self._sealer = load_sealer(threads)
        self._unsealed: list[_Unsealed] = []
        self._unsealed_bytes = 0
        self._sealed: list[tuple[bytes, int] | None] = []
        """Records in the order of `_unsealed` that have no place in a file yet."""

    def make(self, response: Response, digest: str, *, is_known: bool) -> Made | None:
        payload_digest = payload_digest_of(response, digest)
        if is_known:
            return Made(payload_digest)
        date, target = iso_utc(response.requested_at), uri(response.url)
        parts = parts_of(response, None)
        return Made(payload_digest, *made_in_python(response, parts, date, target, payload_digest))

    def write_some(self) -> bool:
        return self._file is not None and self._file.write_some()

    def write(
        self,
        response: Response,
        *,
        digest: str,
        revisit_of: Original | None = None,
        made: Made | None = None,
        preferences: Mapping[str, bool] | None = None,
    ) -> Capture:
        payload_digest = payload_digest_of(response, digest) if made is None else made.payload_digest
        if revisit_of is not None and says_not_modified(response):
            payload_digest = self._kept_payload(digest) or payload_digest
        elif revisit_of is not None and not self._same_payload(response, digest, payload_digest):
            revisit_of = None
        parts = parts_of(response, revisit_of)
        date, target = iso_utc(response.requested_at), uri(response.url)
        unsealed = _Unsealed(
            Capture("", 0, 0),
            response.requested_at,
            payload_digest,
            parts.record_type,
            target,
            preferences or None,
        )
        if made is not None and made.records and parts.record_type != "revisit":
            self._keep(unsealed, made.records, made.main_bytes)
        elif self._sealer is None:
            self.settle()
            self._keep(unsealed, *made_in_python(response, parts, date, target, payload_digest))
        else:
            self._sealer.submit(
                parts.record_type,
                date,
                target,
                parts.content_type,
                payload_digest,
                parts.more_fields,
                parts.head,
                parts.payload,
                response.request_head,
            )
            self._unsealed.append(unsealed)
            self._unsealed_bytes += len(response.payload)
            if not self.defers or self._unsealed_bytes > _MOST_UNSEALED_BYTES:
                self.settle()
        if parts.record_type == "response" and digest:
            self._recent_payloads.setdefault(digest, payload_digest)
            keep_last(self._recent_payloads, _RECENT_KEPT)
        return unsealed.capture

    def settle(self) -> None:
        """Put the records that are being made into their files, in the order in which they were written."""
        if not self._unsealed:
            return
        if len(self._sealed) < len(self._unsealed):
            self._sealed += self._sealer.collect()
        done = 0
        try:
            for unsealed, made in zip(self._unsealed, self._sealed, strict=True):
                if made is None:
                    raise MemoryError("no memory for a record of the archive")
                done += 1
                self._keep(unsealed, *made)
        finally:
            # What could not be written is still gathered in the file; it is not written twice.
            del self._unsealed[:done]
            del self._sealed[:done]
        self._unsealed_bytes = 0

    def _keep(self, unsealed: _Unsealed, records: bytes, main_bytes: int) -> None:
        file, capture = self._open_file(unsealed.captured_at), unsealed.capture
        force_setattr(capture, "warc_file", self._name)
        force_setattr(capture, "warc_offset", file.length_bytes)
        force_setattr(capture, "warc_length", main_bytes)
        self._note(capture, CaptureNote(unsealed.captured_at, unsealed.payload_digest, unsealed.record_type))
        file.append(records)
        if unsealed.preferences is not None:
            date, beside = iso_utc(unsealed.captured_at), record_id_of(records)
            file.append(usage_metadata(date, unsealed.target, beside, unsealed.preferences))

    @property
    def current_name(self) -> str | None:
        """The file that grows just now."""
        return self._name if self._file is not None else None

    def notes_of(self, captures: Iterable[Capture]) -> dict[tuple[str, int], CaptureNote]:
        """What was written at these places, for the store to commit with the pages' rows."""
        self.settle()
        places = ((capture.warc_file, capture.warc_offset) for capture in captures)
        return {place: self._notes[place] for place in places if place in self._notes}

    def forget_notes(self, places: Iterable[tuple[str, int]]) -> None:
        for place in places:
            self._notes.pop(place, None)

    def flush(self) -> Mapping[str, int]:
        self.settle()
        if self._file is not None:
            self._lengths[self._name] = self._file.flush()
        # Files that were turned over stay named, in case the commit that follows fails and is repeated.
        return dict(self._lengths)

    def close(self) -> None:
        try:
            self.settle()
        finally:
            if self._sealer is not None:
                self._sealer.close()
            self._close_file()

    def _close_file(self) -> None:
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
            self._close_file()
        if self._file is None:
            filename = f"headway-{cdx_timestamp(now)}-{self._token}-{self._serial:05d}.warc.gz"
            self._serial += 1
            self._name = f"{ARCHIVE_FOLDER}/{filename}"
            self._file = AppendFile(self._run_folder / self._name, is_new=True)
            self._file.append(warcinfo(filename, iso_utc(now), self._info))
        return self._file

    def _note(self, capture: Capture, note: CaptureNote) -> None:
        self._notes[capture.warc_file, capture.warc_offset] = note
        keep_last(self._notes, _NOTES_KEPT)
