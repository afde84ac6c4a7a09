"""An answer read from bytes as they come, without I/O: feed it, and it says when and how the answer ended.

Lengths are checked here and not left to httptools, which does not mind a body that stops short. Each way to
end has its `Kind`; what was received until then is kept.
"""

from __future__ import annotations

import httptools

from headway.fetch.head import HeadError, find_end
from headway.fetch.reply import parse_head
from headway.fetch.replyhead import Framing, ReplyHead
from headway.fetch.settings import Limits
from headway.model.outcome import Kind

_CHUNKED_HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
# A chunk of one byte costs six on the line; beyond this the server sends little but chunk extensions.
_MAX_CHUNK_OVERHEAD = 16


class ResponseReader:
    """One answer to one GET."""

    __slots__ = (
        "_accept_types",
        "_allowed_bytes",
        "_buffer",
        "_chunks",
        "_cut_kind",
        "_head_only",
        "_interim",
        "_limits",
        "_raw_bytes",
        "_searched",
        "detail",
        "finished",
        "head",
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
        """Of the payload."""
        self._limits = limits
        self._accept_types = accept_types
        self._allowed_bytes = limits.max_body_bytes
        self._cut_kind = Kind.TOO_LARGE
        if max_body_bytes is not None and max_body_bytes <= limits.max_body_bytes:
            self._allowed_bytes = max_body_bytes
            self._cut_kind = Kind.FETCHED
        self._head_only = head_only
        self._buffer = b""
        self._searched = 0
        self._interim = 0
        self._raw_bytes = 0
        self._chunks: _Chunks | None = None

    @property
    def started(self) -> bool:
        """Whether anything at all has come."""
        return self.reply is not None or bool(self._buffer) or self._interim > 0

    @property
    def remaining_bytes(self) -> int | None:
        """How much is still to come, where the head told."""
        if self.finished:
            return 0
        if self.reply is None or self.reply.framing is not Framing.SIZED:
            return None
        return min(self.reply.length_bytes, self._allowed_bytes) - self.received_bytes

    @property
    def is_encoded(self) -> bool:
        """Whether there is content, in a coding of its own."""
        return self.reply is not None and bool(self.reply.content_encoding) and self.received_bytes > 0

    def payload(self) -> bytes:
        return self.parts[0] if len(self.parts) == 1 else b"".join(self.parts)

    def feed(self, data: bytes | memoryview) -> bool:
        """Take what has arrived; True when the answer has ended (then nothing more is wanted)."""
        if self.reply is None:
            self._read_head(data)
        else:
            self._read_body(self.reply, data)
        return self.finished

    def feed_eof(self) -> None:
        """The server has closed."""
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
        """Something outside the answer ended it: a time-out, a reset."""
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
        # The parser refers back to us: without this every answer waits for the garbage collector.
        self._chunks = None

    def _read_head(self, data: bytes | memoryview) -> None:
        self._buffer = raw = self._buffer + data if self._buffer else bytes(data)
        if not self._searched:
            # Some servers end a body with a line break too many, and it shows up here.
            if raw[:1] in {b"\r", b"\n"}:
                self._buffer = raw = raw.lstrip(b"\r\n")
            if raw[:5] != b"HTTP/"[: len(raw)]:
                self._end(Kind.PROTOCOL, f"no HTTP/1 answer: {raw[:20]!r}", truncated=True)
                return
        end = find_end(raw, self._searched)
        if (end if end >= 0 else len(raw)) > self._limits.max_head_bytes:
            text = f"the head is larger than {self._limits.max_head_bytes} bytes"
            self._end(Kind.TOO_LARGE, text, truncated=True)
        elif end < 0:
            self._searched = len(raw)
        else:
            self._take_head(raw, end)

    def _take_head(self, raw: bytes, end: int) -> None:
        self.head = head = raw[:end]
        rest = raw[end:]
        self._buffer, self._searched = b"", 0
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
            self.parts.append(rest)  # the whole of it came at once, as most pages do
            self.received_bytes = len(rest)
            self._end(Kind.FETCHED)
        else:
            self._begin_body(reply)
            if rest and not self.finished:
                self._read_body(reply, rest)

    def _skip_interim(self, status: int, rest: bytes) -> None:
        self._interim += 1
        if status == 101:
            self._end(Kind.PROTOCOL, "the server switched protocols unasked")
        elif self._interim > self._limits.max_interim_answers:
            self._end(Kind.PROTOCOL, f"more than {self._limits.max_interim_answers} interim answers")
        elif rest:
            self._read_head(rest)

    def _begin_body(self, reply: ReplyHead) -> None:
        if reply.framing is Framing.SIZED:
            if reply.length_bytes > self._allowed_bytes and self._cut_kind is Kind.TOO_LARGE:
                text = f"{reply.length_bytes} bytes announced, more than {self._allowed_bytes}"
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
        try:
            chunks.parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if not self.finished and not chunks.complete:
                self._end(Kind.PROTOCOL, f"chunked body: {error}", truncated=True)
                return
            chunks.extra = True
        if self.finished:
            return
        if chunks.complete:
            self._finish_whole(extra=chunks.extra)
        elif self._raw_bytes > _MAX_CHUNK_OVERHEAD * self.received_bytes + self._limits.max_head_bytes:
            self._end(Kind.PROTOCOL, "chunked body: far more framing than content", truncated=True)

    def add(self, piece: bytes) -> None:
        """One more piece of the payload, cut at the limit."""
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
    """Takes the chunks apart with httptools; old servers may put blanks after a chunk's size."""

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
