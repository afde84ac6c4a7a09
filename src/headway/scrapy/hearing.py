"""What Scrapy wants to know while an answer comes: its signals, its size limits, and who wants no more."""

from __future__ import annotations

import ipaddress
import logging
import time

from scrapy import Request, signals
from scrapy.crawler import Crawler
from scrapy.exceptions import StopDownload
from scrapy.http import Headers, Response
from scrapy.responsetypes import responsetypes
from scrapy.utils._download_handlers import get_maxsize_msg, get_warnsize_msg
from twisted.python.failure import Failure

from headway.fetch.replyhead import ReplyHead
from headway.scrapy.exchange import Answered

logger = logging.getLogger(__name__)


class Hearing:
    """Implements `reading.Listener` for one request."""

    def __init__(self, crawler: Crawler, request: Request, *, max_bytes: int, warn_bytes: int) -> None:
        self._crawler = crawler
        self._request = request
        self.max_bytes = max_bytes
        self._warn_bytes = warn_bytes
        self._has_warned = False
        self._received_bytes = 0
        self.began_at = time.monotonic()
        self.headed_at: float | None = None
        """When the head was complete."""
        self.stopped: StopDownload | None = None
        self.too_large = ""
        """Why the answer was given up for its size."""

    def on_head(self, head: ReplyHead, length_bytes: int | None) -> bool:
        self.headed_at = time.monotonic()
        if length_bytes and self._request.method != "HEAD" and self._exceeds(length_bytes, expected=True):
            return True
        return self._tell(
            signals.headers_received, headers=scrapy_headers(head.headers), body_length=length_bytes
        )

    def on_piece(self, piece: bytes) -> bool:
        self._received_bytes += len(piece)
        if self._tell(signals.bytes_received, data=piece):
            return True
        return self._exceeds(self._received_bytes, expected=False)

    def _exceeds(self, size_bytes: int, *, expected: bool) -> bool:
        if self.max_bytes and size_bytes > self.max_bytes:
            self.too_large = get_maxsize_msg(size_bytes, self.max_bytes, self._request, expected=expected)
            logger.warning(self.too_large)
            return True
        if self._warn_bytes and size_bytes > self._warn_bytes and not self._has_warned:
            self._has_warned = True
            logger.warning(get_warnsize_msg(size_bytes, self._warn_bytes, self._request, expected=expected))
        return False

    def _tell(self, signal: object, **news: object) -> bool:
        results = self._crawler.signals.send_catch_log(
            signal=signal, request=self._request, spider=self._crawler.spider, **news
        )
        for _, result in results:
            if isinstance(result, Failure) and isinstance(result.value, StopDownload):
                self.stopped = result.value
                return True
        return False


def scrapy_headers(pairs: tuple[tuple[str, str], ...]) -> Headers:
    return Headers([(name, value.encode("latin-1")) for name, value in pairs])


def build_response(request: Request, answered: Answered, flags: list[str]) -> Response:
    """Scrapy's own class for the type of content, as it stands before its middlewares decode it."""
    reader = answered.reader
    assert reader.reply is not None
    body = reader.payload()
    headers = scrapy_headers(reader.reply.headers)
    kind = responsetypes.from_args(headers=headers, url=request.url, body=body)
    return kind(
        url=request.url,
        status=reader.reply.status,
        headers=headers,
        body=body,
        flags=flags,
        certificate=None if answered.tls is None else answered.tls.getpeercert(binary_form=True),
        ip_address=ipaddress.ip_address(answered.peer.partition("%")[0]) if answered.peer else None,
        protocol=reader.head[:8].decode("latin-1"),
    )
