"""WARC 1.1 records as bytes: named fields, block, one gzip member. Nothing here touches a file.

The block must agree with itself whatever reader opens it: see docs/decisions for what is done to a response's
head, and why the records are put together here rather than by a library. `_sealer.c` makes the same records
without Python's lock.
"""

from __future__ import annotations

import importlib
import ipaddress
import os
import re
import time
import zlib
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from isal import ISAL_MAJOR_VERSION, igzip_lib

from headway.model.page import Kind
from headway.pages.fingerprint import sha1_digests
from headway.ports import Original, Response
from headway.units import Instant


def _load() -> Any:
    try:
        return importlib.import_module("headway.archive._sealer")
    except ImportError:
        return None


_sealer = _load()


@lru_cache(maxsize=64)
def _second(unix_s: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(unix_s))


# An instant is written in the archive, in the list of pages and in the log.
@lru_cache(maxsize=1024)
def iso_utc(instant: Instant) -> str:
    """`2026-11-16T00:04:06.204475Z`, as WARC 1.1 allows it."""
    microseconds = round(instant * 1_000_000)
    return f"{_second(microseconds // 1_000_000)}.{str(microseconds % 1_000_000).zfill(6)}Z"


def cdx_timestamp(instant: Instant) -> str:
    """`20261116000406`, cut and not rounded: the second that the WARC date shows, too."""
    return _digits(round(instant * 1_000_000) // 1_000_000)


@lru_cache(maxsize=64)
def _digits(unix_s: int) -> str:
    return time.strftime("%Y%m%d%H%M%S", time.gmtime(unix_s))


REVISIT_PROFILE = "http://netpreserve.org/warc/1.1/revisit/identical-payload-digest"
_UNMODIFIED_PROFILE = "http://netpreserve.org/warc/1.1/revisit/server-not-modified"
_GZIP_LEVEL = 1
QUICK_LEVEL = 0
"""For records of a few hundred bytes, of which there is little to save: a seventh of the time."""

_CLEAN_HEAD = re.compile(
    rb"HTTP/1\.[01] \d{3}(?: [^\r\n]*)?\r\n(?:[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[^\r\n]*\r\n)*\r\n"
)
_CLEAN_STATUS_LINE = re.compile(rb"HTTP/1\.[01] \d{3}(?: .*)?")
_HEADER_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_LENGTH_LINE = re.compile(rb"\ncontent-length:([^\r]*)", re.IGNORECASE)
_LINE_END = re.compile(rb"\r++\n|\n|\r++")
_NOT_IN_URI = re.compile(r"[^\x21-\x7e]")
_NOT_IN_FIELD = re.compile(r"[\x00-\x1f\x7f]+")
_NO_BODY = frozenset({204, 304})

_TRUNCATED_BY_KIND = {
    Kind.FETCHED: "length",
    Kind.TOO_LARGE: "length",
    Kind.BOMB: "length",
    Kind.TIMEOUT_FIRST_BYTE: "time",
    Kind.TIMEOUT_IDLE: "time",
    Kind.TIMEOUT_TOTAL: "time",
    Kind.RESET: "disconnect",
}


def revisit_profile(*, is_unmodified: bool) -> str:
    """Why there is no payload: it is the same as another, or the server says that it has not changed."""
    return _UNMODIFIED_PROFILE if is_unmodified else REVISIT_PROFILE


_unused_digits: list[str] = []
os.register_at_fork(after_in_child=_unused_digits.clear)


def new_record_id() -> str:
    if not _unused_digits:  # the system is asked for many at a time
        digits = os.urandom(16 * 256).hex()
        _unused_digits.extend(digits[begin : begin + 32] for begin in range(0, len(digits), 32))
    digits = _unused_digits.pop()
    variant = "89ab"[int(digits[16], 16) & 3]
    return f"<urn:uuid:{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}>"


def record(fields: str, *block: bytes, level: int = _GZIP_LEVEL) -> bytes:
    """A whole record as one gzip member. Values in `fields` have gone through `uri` or `field_text`."""
    length_bytes = sum(map(len, block))
    header = f"WARC/1.1\r\n{fields}Content-Length: {length_bytes}\r\n\r\n".encode()
    # One call for the whole: a compressor of its own for each record costs as much again to set up.
    member: bytes = igzip_lib.compress(b"".join((header, *block, b"\r\n\r\n")), level, igzip_lib.COMP_GZIP)
    return member


def warcinfo(filename: str, date: str, info: Mapping[str, str]) -> bytes:
    lines = [f"{field_text(name)}: {field_text(value)}\r\n" for name, value in info.items()]
    block = "".join(lines).encode()
    fields = (
        f"WARC-Type: warcinfo\r\nWARC-Record-ID: {new_record_id()}\r\nWARC-Date: {date}\r\n"
        f"WARC-Filename: {filename}\r\nContent-Type: application/warc-fields\r\n"
        f"WARC-Block-Digest: {sha1_digests([block])[0]}\r\n"
    )
    return record(fields, block)


def usage_metadata(date: str, target: str, beside: str, preferences: Mapping[str, bool]) -> bytes:
    """What the page of the record with the ID `beside` may be used for, as far as its site says so."""
    words = (f"{name}={'y' if preferences[name] else 'n'}" for name in sorted(preferences))
    block = f"{USAGE_FIELD}: {field_text(', '.join(words))}\r\n".encode()
    fields = (
        f"WARC-Type: metadata\r\nWARC-Record-ID: {new_record_id()}\r\nWARC-Date: {date}\r\n"
        f"WARC-Target-URI: {target}\r\nWARC-Concurrent-To: {beside}\r\n"
        f"Content-Type: application/warc-fields\r\nWARC-Block-Digest: {sha1_digests([block])[0]}\r\n"
    )
    return record(fields, block, level=QUICK_LEVEL)


def usage_of(block: bytes) -> str:
    """What a metadata record says that a page may be used for; empty if it says nothing about that."""
    name, _, value = block.decode("utf-8", "replace").partition(":")
    return value.strip() if name == USAGE_FIELD else ""


def record_id_of(made: bytes) -> str:
    """The ID of the first record, which is among its first fields."""
    begin = zlib.decompressobj(_GZIP_WINDOW).decompress(made[:_LONG_ENOUGH], _LONG_ENOUGH)
    match = _RECORD_ID.search(begin)
    assert match is not None
    return match[1].decode()


def truncation_reason(response: Response) -> str | None:
    return _TRUNCATED_BY_KIND.get(response.kind, "unspecified") if response.truncated else None


def uri(url: str) -> str:
    """A URL that cannot end its line: whatever is not visible ASCII is percent-encoded."""
    if url.isascii() and url.isprintable() and " " not in url:
        return url
    return _NOT_IN_URI.sub(
        lambda match: "".join(f"%{octet:02X}" for octet in match[0].encode("utf-8", "surrogatepass")), url
    )


def field_text(value: str) -> str:
    text = value.encode("utf-8", "replace").decode()
    return _NOT_IN_FIELD.sub(" ", text)


@lru_cache(maxsize=4096)
def ip_address(peer: str) -> str | None:
    """The address alone, or None where `peer` is no address."""
    try:
        return str(ipaddress.ip_address(peer.partition("%")[0]))
    except ValueError:
        return None


def consistent_head(response: Response) -> bytes:
    """The head such that it fits the payload as kept, that is without its transfer coding."""
    head = response.head
    if _sealer is not None and _sealer.fits(head, len(response.payload)):
        return head
    if _CLEAN_HEAD.fullmatch(head) and b"transfer-encoding" not in head.lower():
        lengths = [value.strip() for value in _LENGTH_LINE.findall(head)]
        if not lengths or lengths == [b"%d" % len(response.payload)] or _may_lie(response):
            return head
    return _rebuilt_head(response)


def _may_lie(response: Response) -> bool:
    """These answers name the length of a body that they do not carry."""
    return response.status in _NO_BODY and not response.payload


def _rebuilt_head(response: Response) -> bytes:
    status_line, *lines = _LINE_END.split(response.head)
    rebuilt = [status_line]
    if not _CLEAN_STATUS_LINE.fullmatch(status_line):
        rebuilt = [b"HTTP/1.1 %03d" % (response.status or 200), b"X-Orig-Status-Line: " + status_line]
    needs_length = False
    for line in _unfolded(lines):
        name, colon, _ = line.partition(b":")
        lowered = name.lower()
        if not colon or not _HEADER_NAME.fullmatch(name):
            rebuilt.append(b"X-Orig-Line: " + line)
        elif lowered == b"transfer-encoding" or (lowered == b"content-length" and not _may_lie(response)):
            needs_length = True
            rebuilt.append(b"X-Orig-" + line)
        else:
            rebuilt.append(line)
    if needs_length:
        rebuilt.append(b"Content-Length: %d" % len(response.payload))
    return b"\r\n".join(rebuilt) + b"\r\n\r\n"


def _unfolded(lines: Iterable[bytes]) -> Iterable[bytes]:
    """Header lines with their continuations (obsolete since RFC 7230) joined, empty ones left out."""
    gathered: list[bytes] = []
    for line in lines:
        bare = line.strip()
        if line[:1] not in {b" ", b"\t"}:
            if gathered:
                yield b" ".join(gathered)
            gathered.clear()
        if bare:
            gathered.append(bare)
    if gathered:
        yield b" ".join(gathered)


USAGE_FIELD = "content-usage"
_RECORD_ID = re.compile(rb"\r\nWARC-Record-ID: (<[^>\r\n]+>)\r\n")
_LONG_ENOUGH = 1024
_NOT_MODIFIED = 304
_ISAL_KNOWN = 2
_GZIP_WINDOW = 31


def says_not_modified(response: Response) -> bool:
    return response.status == _NOT_MODIFIED and not response.payload


def payload_digest_of(response: Response, digest: str) -> str:
    """That of the content, if the payload is the content and not a coding of it."""
    if response.payload and response.payload is response.body and digest.startswith("sha1:"):
        return digest
    return sha1_digests([response.payload])[0]


class Parts(NamedTuple):
    """What a capture's main record consists of."""

    record_type: str
    content_type: str
    head: bytes
    payload: bytes
    more_fields: str


def parts_of(response: Response, revisit_of: Original | None) -> Parts:
    head, payload = b"", response.payload
    if not response.head:
        # An HTTP/0.9 answer has no head; an invented one would claim what no server sent.
        record_type, content_type = "resource", "application/octet-stream"
    else:
        content_type, head = "application/http;msgtype=response", consistent_head(response)
        record_type = "response" if revisit_of is None else "revisit"
    address, reason = ip_address(response.peer), truncation_reason(response)
    more_fields = f"WARC-IP-Address: {address}\r\n" if address is not None else ""
    if reason is not None:
        more_fields += f"WARC-Truncated: {reason}\r\n"
    if revisit_of is not None and record_type == "revisit":
        payload = b""
        more_fields += (
            f"WARC-Profile: {revisit_profile(is_unmodified=says_not_modified(response))}\r\n"
            f"WARC-Refers-To-Target-URI: {uri(revisit_of.url)}\r\n"
            f"WARC-Refers-To-Date: {iso_utc(revisit_of.captured_at)}\r\n"
        )
    return Parts(record_type, content_type, head, payload, more_fields)


def made_in_python(
    response: Response, parts: Parts, date: str, target: str, payload_digest: str
) -> tuple[bytes, int]:
    """The records as `_sealer.c` makes them, and the length of the main one."""
    record_id, request = new_record_id(), response.request_head
    block_digest = sha1_digests([(parts.head, parts.payload)])[0]
    main = record(
        f"WARC-Type: {parts.record_type}\r\nWARC-Record-ID: {record_id}\r\nWARC-Date: {date}\r\n"
        f"WARC-Target-URI: {target}\r\nContent-Type: {parts.content_type}\r\n"
        f"WARC-Payload-Digest: {payload_digest}\r\nWARC-Block-Digest: {block_digest}\r\n"
        f"{parts.more_fields}",
        parts.head,
        parts.payload,
    )
    if not request:
        return main, len(main)
    fields = (
        f"WARC-Type: request\r\nWARC-Record-ID: {new_record_id()}\r\nWARC-Date: {date}\r\n"
        f"WARC-Target-URI: {target}\r\nWARC-Concurrent-To: {record_id}\r\n"
        f"Content-Type: application/http;msgtype=request\r\n"
        f"WARC-Block-Digest: {sha1_digests([request])[0]}\r\n"
    )
    return main + record(fields, request, level=QUICK_LEVEL), len(main)


def load_sealer(threads: int) -> Any:
    """A maker of records in C (`_sealer.c`), or None where that was not built or does not fit this ISA-L."""
    module = _sealer
    if module is None or ISAL_MAJOR_VERSION != _ISAL_KNOWN or not module.load(igzip_lib.__file__):
        return None
    sealer, sample = module.Sealer(threads), bytes(range(256)) * 512
    sealer.submit("", "", "", "", "", "", b"", sample, sample)
    (made,) = sealer.collect()
    return sealer if made is not None and _is_understood(made, sample) else None


def _is_understood(made: tuple[bytes, int], sample: bytes) -> bool:
    records, main_bytes = made
    try:
        parts = [zlib.decompress(part, _GZIP_WINDOW) for part in (records[:main_bytes], records[main_bytes:])]
    except zlib.error:
        return False
    return all(part.endswith(sample + b"\r\n\r\n") for part in parts)
