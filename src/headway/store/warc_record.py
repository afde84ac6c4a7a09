"""One WARC 1.1 record as bytes: named fields, block, one gzip member. Nothing here touches a file.

The block must agree with itself whatever reader opens it: see docs/decisions for what is done to a
response's head, and why the records are put together here rather than by a library.
"""

from __future__ import annotations

import hashlib
import ipaddress
import os
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

from isal import igzip_lib

from headway.model.outcome import Kind
from headway.ports import Response

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
_LINE_END = re.compile(rb"\r*\n|\r")
_NOT_IN_URI = re.compile(r"[^\x21-\x7e]")
_NOT_IN_FIELD = re.compile(r"[\x00-\x1f\x7f]+")
_BASE32 = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
_BASE32_PAIRS = [first + second for first in _BASE32 for second in _BASE32]
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


def sha1_digest(*parts: bytes) -> str:
    """`sha1:` and base32, the form that archives and their indexes are used to."""
    state = hashlib.sha1(usedforsecurity=False)
    for part in parts:
        state.update(part)
    digest, pairs = state.digest(), _BASE32_PAIRS
    # base64.b32encode costs half as much again as the hash of a page; pairs by table cost little.
    a, b, c, d = (int.from_bytes(digest[at : at + 5], "big") for at in (0, 5, 10, 15))
    return (
        f"sha1:{pairs[a >> 30]}{pairs[a >> 20 & 1023]}{pairs[a >> 10 & 1023]}{pairs[a & 1023]}"
        f"{pairs[b >> 30]}{pairs[b >> 20 & 1023]}{pairs[b >> 10 & 1023]}{pairs[b & 1023]}"
        f"{pairs[c >> 30]}{pairs[c >> 20 & 1023]}{pairs[c >> 10 & 1023]}{pairs[c & 1023]}"
        f"{pairs[d >> 30]}{pairs[d >> 20 & 1023]}{pairs[d >> 10 & 1023]}{pairs[d & 1023]}"
    )


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
        f"WARC-Block-Digest: {sha1_digest(block)}\r\n"
    )
    return record(fields, block)


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
    gathered = b""
    for line in lines:
        if line[:1] in {b" ", b"\t"}:
            gathered = (gathered + b" " + line.strip()).strip()
            continue
        if gathered:
            yield gathered
        gathered = line.strip()
    if gathered:
        yield gathered
