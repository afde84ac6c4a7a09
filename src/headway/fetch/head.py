"""Heads: the one that we send, and the repair of those that httptools refuses though people run such servers.

What is repaired: lines that end in a bare LF, equal Content-Length headers said twice, Content-Length beside
chunked (chunked wins, as RFC 9112 has it), "Transfer-Encoding: identity", a blank before the colon, and
lines that are no header at all, which are dropped. Everything else stays an error.
"""

from __future__ import annotations

import re

_CONTROLS = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_STATUS_LINE = re.compile(rb"HTTP/1\.[01] +[1-5][0-9][0-9](?: [^\r\n]*)?")
_UNSAFE_VALUE = re.compile(r"[^\t\x20-\x7e\x80-\xff]")
_UNSAFE_NAME = re.compile(r"[^!#$%&'*+\-.^_`|~0-9A-Za-z]")

ACCEPT = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
ACCEPT_ENCODING = "gzip, deflate, br, zstd"


class HeadError(ValueError):
    """A head that cannot be sent, or not be made sense of."""


def find_end(buffer: bytes | bytearray, searched: int) -> int:
    """Where the body begins, or -1; `searched` bytes were looked at before without finding it."""
    start = max(0, searched - 2)
    proper = buffer.find(b"\n\r\n", start)
    bare = buffer.find(b"\n\n", start, proper if proper >= 0 else len(buffer))
    if bare >= 0:
        return bare + 2
    return proper + 3 if proper >= 0 else -1


def request_head(
    target: str,
    host: str,
    user_agent: str,
    extra: tuple[tuple[str, str], ...],
    *,
    close_after: bool,
) -> bytes:
    """A GET. What the caller names replaces what would be sent by itself."""
    ours = {
        "host": ("Host", host),
        "user-agent": ("User-Agent", user_agent),
        "accept": ("Accept", ACCEPT),
        "accept-encoding": ("Accept-Encoding", ACCEPT_ENCODING),
        "connection": ("Connection", "close" if close_after else "keep-alive"),
    }
    if extra:
        check_headers(extra)
        for name, _value in extra:
            ours.pop(name.lower(), None)
    lines = [f"GET {target} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in (*ours.values(), *extra)]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


class RequestHeads:
    """Heads of GETs: what all requests to a server have in common is put together once."""

    def __init__(self, user_agent: str, max_servers: int = 4096) -> None:
        self._user_agent = user_agent
        self._max_servers = max_servers
        self._tails: dict[tuple[str, bool], bytes] = {}

    def of(self, target: str, host: str, extra: tuple[tuple[str, str], ...], *, close_after: bool) -> bytes:
        if extra:
            return request_head(target, host, self._user_agent, extra, close_after=close_after)
        tail = self._tails.get((host, close_after))
        if tail is None:
            if len(self._tails) >= self._max_servers:
                self._tails.clear()
            whole = request_head("", host, self._user_agent, (), close_after=close_after)
            self._tails[host, close_after] = tail = whole.removeprefix(b"GET ")
        return b"GET " + target.encode("ascii") + tail


def check_headers(headers: tuple[tuple[str, str], ...]) -> None:
    """A line break in a value would let a page write requests of its own."""
    for name, value in headers:
        if not name or _UNSAFE_NAME.search(name):
            raise HeadError(f"{name!r} is no header name")
        if _UNSAFE_VALUE.search(value):
            raise HeadError(f"the value of {name} cannot be sent: {value[:40]!r}")


def repair(head: bytes) -> tuple[bytes, str]:
    """A head that means the same and that httptools takes, with a note on what was done to it."""
    lines = re.sub(rb"\r?\n[ \t]+", b" ", head).replace(b"\r\n", b"\n").rstrip(b"\n").split(b"\n")
    if not _STATUS_LINE.fullmatch(lines[0]):
        raise HeadError(f"no status line: {lines[0][:60]!r}")
    fields: list[tuple[bytes, bytes]] = []
    dropped = 0
    for line in lines[1:]:
        name, colon, value = line.partition(b":")
        name, value = name.rstrip(b" \t"), value.strip(b" \t")
        if not colon or not _NAME.fullmatch(name) or b"\r" in value or b"\0" in value:
            _refuse_if_framing(name)
            dropped += 1
        else:
            fields.append((name, value))
    lengths = _one_length(fields)
    codings = b",".join(value for name, value in fields if name.lower() == b"transfer-encoding").lower()
    chunked = codings.replace(b" ", b"") == b"chunked"
    if codings not in {b"", b"identity"} and not chunked:
        raise HeadError(f"transfer coding {codings[:40]!r}")
    kept = [pair for pair in fields if pair[0].lower() not in {b"content-length", b"transfer-encoding"}]
    if chunked:
        kept.append((b"Transfer-Encoding", b"chunked"))
        # One of the two is a lie, so nothing that follows this answer can be trusted to be the next one.
        if lengths is not None:
            kept = [pair for pair in kept if pair[0].lower() != b"connection"] + [(b"Connection", b"close")]
    elif lengths is not None:
        kept.append((b"Content-Length", lengths))
    rebuilt = [lines[0].strip()]
    rebuilt += [name + b": " + _CONTROLS.sub(b" ", value) for name, value in kept]
    return b"\r\n".join(
        rebuilt
    ) + b"\r\n\r\n", f"head repaired, {dropped} lines dropped" if dropped else "head repaired"


def _one_length(fields: list[tuple[bytes, bytes]]) -> bytes | None:
    said = {
        part.strip()
        for name, value in fields
        if name.lower() == b"content-length"
        for part in value.split(b",")
    }
    if len(said) > 1:
        raise HeadError("Content-Length is given twice and differs")
    length = said.pop() if said else None
    if length is not None and not (length.isdigit() and len(length) < 19):
        raise HeadError(f"Content-Length is {length[:40]!r}")
    return length


def _refuse_if_framing(name: bytes) -> None:
    if re.search(rb"content-length|transfer-encoding", name, re.IGNORECASE):
        raise HeadError(f"a broken line about where the body ends: {name[:60]!r}")
