"""Reads one response from bytes, without I/O: feed it, and it says when and how the response ended.

Lengths are checked here because httptools does not report a body that is too short. Each way to end has its
`Kind`; what was received until then is kept. `NotifyingReader` also reports the head and each piece of the
body as soon as they are parsed, which Scrapy needs.
"""

from __future__ import annotations

from collections.abc import Callable

import httptools

from headway.http.head import Framing, HeadError, ReplyHead, find_end, parse_head
from headway.http.models import Limits
from headway.model.page import Kind

_CHUNKED_HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
_MAX_CHUNK_OVERHEAD = 16
"""Bytes of framing for one of content. A chunk of one byte takes six; more is mostly chunk extensions."""


_GATHERED_AT_ONCE = 256
_FRAGMENT_BYTES = 64
_LARGE_PART_BYTES = 4096
"""Parts that are this large on average stay as they are. Python needs 33 bytes more for each, and 46 MB in
chunks of two bytes took 1.3 GB."""


class ResponseReader:
    """The response to one GET."""

    __slots__ = (
        "_accept_types",
        "_allowed_bytes",
        "_buffer",
        "_chunks",
        "_cut_kind",
        "_gathered",
        "_head_only",
        "_interim",
        "_limits",
        "_raw_bytes",
        "_searched",
        "detail",
        "finished",
        "head",
        "is_fragmented",
        "keep_alive",
        "kind",
        "parts",
        "received_bytes",
        "reply",
        "truncated",
    )

    def __init__(
        self,
        limits: Limits,
        accept_types: frozenset[str] | None = None,
        max_body_bytes: int | None = None,
        *,
        head_only: bool = False,
    ) -> None:
        self.finished = False
        self.kind = Kind.RESET
        self.detail = ""
        self.truncated = False
        self.keep_alive = False
        self.head = b""
        self.reply: ReplyHead | None = None
        self.parts: list[bytes] = []
        self.received_bytes = 0
        """Bytes of the payload so far."""
        self._limits = limits
        self._accept_types = accept_types
        self._allowed_bytes = limits.max_body_bytes
        self._cut_kind = Kind.TOO_LARGE
        if max_body_bytes is not None and max_body_bytes <= limits.max_body_bytes:
            self._allowed_bytes = max_body_bytes
            self._cut_kind = Kind.FETCHED
        self._head_only = head_only
        self._buffer = bytearray()
        self._searched = 0
        self._gathered = 0
        self._interim = 0
        self._raw_bytes = 0
        self._chunks: _Chunks | None = None
        self.is_fragmented = False
        """The last bytes were chunks of a few bytes each."""

    @property
    def started(self) -> bool:
        """Whether any byte of the response was received."""
        return self.reply is not None or bool(self._buffer) or self._interim > 0

    @property
    def remaining_bytes(self) -> int | None:
        """Bytes of the body still to be received; None if the head gives no length."""
        if self.finished:
            return 0
        if self.reply is None or self.reply.framing is not Framing.SIZED:
            return None
        return min(self.reply.length_bytes, self._allowed_bytes) - self.received_bytes

    @property
    def is_encoded(self) -> bool:
        """Whether the payload has a content coding."""
        return self.reply is not None and bool(self.reply.content_encoding) and self.received_bytes > 0

    def payload(self) -> bytes:
        return self.parts[0] if len(self.parts) == 1 else b"".join(self.parts)

    def feed(self, data: bytes | memoryview) -> bool:
        """Add received bytes; True when the response has ended."""
        if self.reply is None:
            self._read_head(data)
        else:
            if len(self.parts) - self._gathered >= _GATHERED_AT_ONCE:
                self._gather(self._gathered)
                self._gathered = len(self.parts)
            self._read_body(self.reply, data)
        return self.finished

    def _gather(self, begin: int) -> None:
        """Join small parts, from one on."""
        count = len(self.parts) - begin
        if count > 1 and sum(map(len, self.parts[begin:])) < count * _LARGE_PART_BYTES:
            self.parts[begin:] = [b"".join(self.parts[begin:])]

    def feed_eof(self) -> None:
        """The server has closed the connection."""
        if self.finished:
            return
        if self.reply is None:
            where = "in the middle of the head" if self.started else "before it answered"
            self._end(Kind.RESET, f"the server closed {where}", truncated=self.started)
        elif self.reply.framing is Framing.UNTIL_CLOSE:
            self._end(Kind.FETCHED)
        else:
            wanted = f" of {self.reply.length_bytes}" if self.reply.framing is Framing.SIZED else ""
            text = f"the server closed after {self.received_bytes}{wanted} bytes of the body"
            self._end(Kind.RESET, text, truncated=True)

    def fail(self, kind: Kind, detail: str) -> None:
        """End the response for a reason outside of it, such as a timeout or a reset."""
        if not self.finished:
            self._end(kind, detail, truncated=self.started)

    def _end(self, kind: Kind, detail: str = "", *, truncated: bool = False) -> None:
        self.finished = True
        self.kind = kind
        self.truncated = truncated
        if kind is not Kind.FETCHED or truncated:
            self.keep_alive = False
        if detail:
            self.detail = f"{self.detail}; {detail}" if self.detail else detail
        # The parser refers to this reader. The cycle would keep the response until a garbage collection.
        self._chunks = None

    def _read_head(self, data: bytes | memoryview) -> None:
        raw: bytes | bytearray
        if self._buffer:  # in place: a head may come in pieces of one byte
            self._buffer += data
            raw = self._buffer
        else:
            raw = bytes(data)
        if not self._searched:
            # Some servers send a line break after a body; it arrives before the next head.
            if raw[:1] in {b"\r", b"\n"}:
                raw = raw.lstrip(b"\r\n")
            if raw[:5] != b"HTTP/"[: len(raw)]:
                self._end(Kind.PROTOCOL, f"not an HTTP/1 response: {bytes(raw[:20])!r}", truncated=True)
                return
        end = find_end(raw, self._searched)
        if (end if end >= 0 else len(raw)) > self._limits.max_head_bytes:
            text = f"the head is larger than {self._limits.max_head_bytes} bytes"
            self._end(Kind.TOO_LARGE, text, truncated=True)
        elif end < 0:
            self._searched = len(raw)
            if raw is not self._buffer:
                self._buffer = bytearray(raw)
        else:
            self._buffer = bytearray()
            self._take_head(bytes(raw), end)

    def _take_head(self, raw: bytes, end: int) -> None:
        self.head = head = raw[:end]
        rest = raw[end:]
        self._searched = 0
        try:
            reply = parse_head(head, self._limits.max_headers)
        except HeadError as error:
            self._end(Kind.PROTOCOL, str(error), truncated=bool(rest))
            return
        if reply.status < 200:
            self._skip_interim(reply.status, rest)
            return
        self.reply = reply
        self.keep_alive = reply.keep_alive
        self.detail = reply.note
        wanted = self._accept_types
        if wanted is not None and reply.status < 300 and reply.media_type and reply.media_type not in wanted:
            self._end(Kind.UNWANTED_TYPE, reply.media_type[:80])
        elif self._head_only:
            self._end(Kind.FETCHED)
            self.keep_alive = True
        elif reply.framing is Framing.EMPTY:
            self._finish_whole(extra=bool(rest))
        elif reply.framing is Framing.SIZED and len(rest) == reply.length_bytes <= self._allowed_bytes:
            self.parts.append(rest)  # all of it arrived with the head, as for most pages
            self.received_bytes = len(rest)
            self._end(Kind.FETCHED)
        else:
            self._begin_body(reply)
            if rest and not self.finished:
                self._read_body(reply, rest)

    def _skip_interim(self, status: int, rest: bytes) -> None:
        self._interim += 1
        if status == 101:
            self._end(Kind.PROTOCOL, "the server switched protocols without a request to")
        elif self._interim > self._limits.max_interim_responses:
            self._end(Kind.PROTOCOL, f"more than {self._limits.max_interim_responses} interim responses")
        elif rest:
            self._read_head(rest)

    def _begin_body(self, reply: ReplyHead) -> None:
        if reply.framing is Framing.SIZED:
            if reply.length_bytes > self._allowed_bytes and self._cut_kind is Kind.TOO_LARGE:
                text = f"Content-Length is {reply.length_bytes}, more than {self._allowed_bytes} bytes"
                self._end(Kind.TOO_LARGE, text, truncated=True)
        elif reply.framing is Framing.CHUNKED:
            self._chunks = _Chunks(self)

    def _read_body(self, reply: ReplyHead, data: bytes | memoryview) -> None:
        if reply.framing is Framing.SIZED:
            self._read_sized(reply.length_bytes, data)
        elif reply.framing is Framing.CHUNKED:
            self._read_chunked(data)
        else:
            self.add(bytes(data))

    def _read_sized(self, length_bytes: int, data: bytes | memoryview) -> None:
        missing = length_bytes - self.received_bytes
        if len(data) < missing:
            self.add(bytes(data))
        else:
            self.add(bytes(data[:missing]) if len(data) > missing else bytes(data))
            if not self.finished:
                self._finish_whole(extra=len(data) > missing)

    def _read_chunked(self, data: bytes | memoryview) -> None:
        chunks = self._chunks
        if chunks is None:
            return
        self._raw_bytes += len(data)
        before = len(self.parts)
        try:
            chunks.parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if not self.finished and not chunks.complete:
                self._end(Kind.PROTOCOL, f"invalid chunked body: {error}", truncated=True)
                return
            chunks.extra = True
        self.is_fragmented = (len(self.parts) - before) * _FRAGMENT_BYTES > len(data)
        self._gather(before)
        if self.finished:
            return
        if chunks.complete:
            self._finish_whole(extra=chunks.extra)
        elif self._raw_bytes > _MAX_CHUNK_OVERHEAD * self.received_bytes + self._limits.max_head_bytes:
            self._end(Kind.PROTOCOL, "invalid chunked body: far more framing than content", truncated=True)

    def add(self, piece: bytes) -> None:
        """Append a piece of the payload, cut at the limit."""
        if self.finished:
            return
        room = self._allowed_bytes - self.received_bytes
        if len(piece) > room:
            piece = piece[:room]
            self.parts.append(piece)
            self.received_bytes += len(piece)
            text = f"cut at {self._allowed_bytes} bytes"
            self._end(self._cut_kind, text, truncated=True)
        elif piece:
            self.parts.append(piece)
            self.received_bytes += len(piece)

    def _finish_whole(self, *, extra: bool) -> None:
        self._end(Kind.FETCHED)
        if extra:
            self.keep_alive = False


class _Chunks:
    """Decodes a chunked body with httptools; accepts blanks after a chunk's size, which old servers send."""

    __slots__ = ("_messages", "_reader", "complete", "extra", "parser")

    def __init__(self, reader: ResponseReader) -> None:
        self._reader = reader
        self._messages = 0
        self.complete = False
        self.extra = False
        self.parser = httptools.HttpResponseParser(self)
        self.parser.set_dangerous_leniencies(lenient_spaces_after_chunk_size=True)
        self.parser.feed_data(_CHUNKED_HEAD)

    def on_message_begin(self) -> None:
        self._messages += 1
        if self._messages > 1:
            self.extra = True

    def on_body(self, body: bytes) -> None:
        if not self.complete:
            self._reader.add(body)

    def on_message_complete(self) -> None:
        self.complete = True


class NotifyingReader(ResponseReader):
    """Calls `on_head` with the head and the announced length, and `on_piece` with each piece of the body.

    If one of them returns True, reading stops: the response ends with what was received until then.
    """

    __slots__ = ("_is_head_reported", "_on_head", "_on_piece", "_reported", "stopped_after")

    def __init__(
        self,
        limits: Limits,
        on_head: Callable[[ReplyHead, int | None], bool],
        on_piece: Callable[[bytes], bool],
        *,
        head_only: bool = False,
    ) -> None:
        super().__init__(limits, head_only=head_only)
        self._on_head = on_head
        self._on_piece = on_piece
        self._is_head_reported = False
        self._reported = 0
        self.stopped_after: int | None = None
        """How many pieces had been reported when a callback stopped the response; None if none did."""

    def feed(self, data: bytes | memoryview) -> bool:
        gathered = self._gathered
        super().feed(data)
        if self._gathered != gathered:  # what had come before, all of it reported, has been joined
            self._reported = self._gathered
        if self.reply is not None and self.stopped_after is None:
            self._report(self.reply)
        return self.finished

    def _report(self, reply: ReplyHead) -> None:
        if not self._is_head_reported:
            self._is_head_reported = True
            if self._on_head(reply, _announced_bytes(reply)):
                self._stop()
                return
        while self._reported < len(self.parts):
            piece = self.parts[self._reported]
            self._reported += 1
            if self._on_piece(piece):
                self._stop()
                return

    def _stop(self) -> None:
        self.stopped_after = self._reported
        del self.parts[self._reported :]
        if not self.finished:
            self._end(Kind.FETCHED, truncated=True)


def _announced_bytes(reply: ReplyHead) -> int | None:
    """The Content-Length; None if there is no valid one."""
    for name, value in reply.headers:
        if name == "content-length" and value.isascii() and value.isdigit():
            return int(value)
    return None
