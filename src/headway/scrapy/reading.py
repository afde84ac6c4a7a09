"""An answer read for Scrapy: any method, with a listener that hears of the head and of each piece."""

from __future__ import annotations

from typing import Protocol

from headway.fetch.reader import ResponseReader
from headway.fetch.replyhead import ReplyHead
from headway.fetch.settings import Limits
from headway.model.outcome import Kind


class Listener(Protocol):
    """Each says whether to stop here: then what has come by now is all that there is."""

    def on_head(self, head: ReplyHead, length_bytes: int | None) -> bool: ...

    def on_piece(self, piece: bytes) -> bool: ...


class ListenedReader(ResponseReader):
    """Tells its listener what has come, as soon as it is understood."""

    __slots__ = ("_is_head_told", "_listener", "_told", "stopped_after")

    def __init__(self, limits: Limits, listener: Listener, *, head_only: bool = False) -> None:
        super().__init__(limits, head_only=head_only)
        self._listener = listener
        self._is_head_told = False
        self._told = 0
        self.stopped_after: int | None = None
        """How many pieces had been told when the listener wanted no more; None if it wanted all."""

    def feed(self, data: bytes | memoryview) -> bool:
        super().feed(data)
        if self.reply is not None and self.stopped_after is None:
            self._tell(self.reply)
        return self.finished

    def _tell(self, reply: ReplyHead) -> None:
        if not self._is_head_told:
            self._is_head_told = True
            if self._listener.on_head(reply, _announced_bytes(reply)):
                self._stop()
                return
        while self._told < len(self.parts):
            piece = self.parts[self._told]
            self._told += 1
            if self._listener.on_piece(piece):
                self._stop()
                return

    def _stop(self) -> None:
        self.stopped_after = self._told
        del self.parts[self._told :]
        if not self.finished:
            self._end(Kind.FETCHED, truncated=True)


def _announced_bytes(reply: ReplyHead) -> int | None:
    """Content-Length, which says nothing beside a chunked body."""
    for name, value in reply.headers:
        if name == "content-length" and value.isascii() and value.isdigit():
            return int(value)
    return None
