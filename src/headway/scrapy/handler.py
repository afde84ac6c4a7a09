"""Scrapy's download handler for http and https: fetches over headway's paced connections.

Responses, signals, warnings and exceptions are those of Scrapy's own handlers.
"""

from __future__ import annotations

import ipaddress
import logging
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NoReturn

from scrapy import Request, signals
from scrapy.core.downloader.handlers.base import BaseDownloadHandler
from scrapy.crawler import Crawler
from scrapy.exceptions import (
    CannotResolveHostError,
    DownloadCancelledError,
    DownloadConnectionRefusedError,
    DownloadFailedError,
    DownloadTimeoutError,
    IgnoreRequest,
    NotConfigured,
    NotSupported,
    ResponseDataLossError,
    StopDownload,
    UnsupportedURLSchemeError,
)
from scrapy.http import Headers, Response
from scrapy.responsetypes import responsetypes
from scrapy.utils._download_handlers import get_dataloss_msg, get_maxsize_msg, get_warnsize_msg
from scrapy.utils.asyncio import is_asyncio_available
from scrapy.utils.ssl import _log_sslobj_debug_info
from scrapy.utils.url import add_http_if_no_scheme
from twisted.python.failure import Failure

from headway.errors import HeadwayError
from headway.http.head import ReplyHead
from headway.http.models import Limits, Proxy, TargetError, parse_proxy
from headway.http.reader import NotifyingReader, ResponseReader
from headway.model.page import Kind
from headway.scrapy.fetcher import FetchRequest, FetchResult, destination_of, split_url
from headway.scrapy.link import link_of
from headway.scrapy.scheduler import holds_of

logger = logging.getLogger(__name__)

_UNLIMITED_BYTES = 1 << 62
_PROXY_AUTHORIZATION = b"Proxy-Authorization"
_ERRORS: dict[Kind, type[Exception]] = {
    Kind.DNS: CannotResolveHostError,
    Kind.CONNECT: DownloadConnectionRefusedError,
    Kind.TIMEOUT_CONNECT: DownloadTimeoutError,
    Kind.TIMEOUT_FIRST_BYTE: DownloadTimeoutError,
    Kind.TIMEOUT_IDLE: DownloadTimeoutError,
    Kind.TIMEOUT_TOTAL: DownloadTimeoutError,
    Kind.CANCELLED: DownloadCancelledError,
    Kind.FORBIDDEN_ADDRESS: IgnoreRequest,
}
"""Scrapy's exception for each kind of failure; any other kind is a DownloadFailedError."""


class ResponseSignals:
    """Sends Scrapy's signals about one response, and stops it if it is too large or a receiver asks to."""

    def __init__(self, crawler: Crawler, request: Request, *, max_bytes: int, warn_bytes: int) -> None:
        self._crawler = crawler
        self._request = request
        self.max_bytes = max_bytes
        self._warn_bytes = warn_bytes
        self._has_warned = False
        self._received_bytes = 0
        self.began_at = time.monotonic()
        self.head_received_at: float | None = None
        self.stopped: StopDownload | None = None
        self.too_large = ""
        """The message about a response that exceeds the maximum size; empty if it does not."""

    def on_head(self, head: ReplyHead, length_bytes: int | None) -> bool:
        """Returns True to stop the response, as does `on_piece`."""
        self.head_received_at = time.monotonic()
        if length_bytes and self._request.method != "HEAD" and self._exceeds(length_bytes, expected=True):
            return True
        return self._send(
            signals.headers_received, headers=scrapy_headers(head.headers), body_length=length_bytes
        )

    def on_piece(self, piece: bytes) -> bool:
        self._received_bytes += len(piece)
        if self._send(signals.bytes_received, data=piece):
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

    def _send(self, signal: object, **arguments: object) -> bool:
        results = self._crawler.signals.send_catch_log(
            signal=signal, request=self._request, spider=self._crawler.spider, **arguments
        )
        for _, result in results:
            if isinstance(result, Failure) and isinstance(result.value, StopDownload):
                self.stopped = result.value
                return True
        return False


def scrapy_headers(pairs: tuple[tuple[str, str], ...]) -> Headers:
    return Headers([(name, value.encode("latin-1")) for name, value in pairs])


def build_response(request: Request, result: FetchResult, flags: list[str]) -> Response:
    """A response of Scrapy's class for this content type, with the body not decoded yet."""
    reader = result.reader
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
        certificate=None if result.tls is None else result.tls.getpeercert(binary_form=True),
        ip_address=ipaddress.ip_address(result.peer.partition("%")[0]) if result.peer else None,
        protocol=reader.head[:8].decode("latin-1"),
    )


class HeadwayDownloadHandler(BaseDownloadHandler):
    """Put into `DOWNLOAD_HANDLERS` by the add-on."""

    lazy = False

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        if not is_asyncio_available():
            raise NotConfigured(
                "headway needs Scrapy's asyncio support; remove TWISTED_REACTOR from the settings"
            )
        settings = crawler.settings
        self._link = link_of(crawler)
        self._holds = holds_of(crawler)
        self._timeout_s = settings.getfloat("DOWNLOAD_TIMEOUT") or 180.0
        self._max_bytes = settings.getint("DOWNLOAD_MAXSIZE")
        self._warn_bytes = settings.getint("DOWNLOAD_WARNSIZE")
        self._fails_on_loss = settings.getbool("DOWNLOAD_FAIL_ON_DATALOSS")
        self._has_warned_of_loss = False
        self._bind_to = _address(settings.get("DOWNLOAD_BIND_ADDRESS"))
        self._logs_tls = settings.getbool("DOWNLOADER_CLIENT_TLS_VERBOSE_LOGGING")

    async def download_request(self, request: Request) -> Response:
        try:
            site = destination_of(split_url(request.url)[0]).site
        except TargetError as problem:
            raise UnsupportedURLSchemeError(str(problem)) from None
        await self._holds.wait(request.meta.get("download_slot", ""))
        response_signals = ResponseSignals(
            self.crawler,
            request,
            max_bytes=int(request.meta.get("download_maxsize", self._max_bytes)),
            warn_bytes=int(request.meta.get("download_warnsize", self._warn_bytes)),
        )
        result = await self._link.fetcher.fetch(
            self._fetch_request(request), _reader_maker(request, response_signals)
        )
        self._link.record(site, result)
        if self._link.on_result is not None:
            self._link.on_result(request, result)
        if response_signals.head_received_at is not None:
            latency_s = response_signals.head_received_at - response_signals.began_at - result.waited_s
            request.meta["download_latency"] = max(0.0, latency_s)
        return self._response(request, result, response_signals)

    async def close(self) -> None:
        await self._link.aclose()

    def _fetch_request(self, request: Request) -> FetchRequest:
        return FetchRequest(
            request.url,
            request.method,
            _headers(request),
            request.body,
            float(request.meta.get("download_timeout", self._timeout_s)),
            _proxy(request),
            _address(request.meta.get("bindaddress")) or self._bind_to,
        )

    def _response(self, request: Request, result: FetchResult, response_signals: ResponseSignals) -> Response:
        reader = result.reader
        if response_signals.too_large:
            raise DownloadCancelledError(response_signals.too_large)
        if reader.reply is None or result.kind not in {Kind.FETCHED, Kind.RESET}:
            _fail(request, result)
        if self._logs_tls and result.tls is not None:
            _log_sslobj_debug_info(result.tls)
        flags = []
        if result.kind is Kind.RESET:
            self._check_loss(request, result)
            flags.append("dataloss")
        response = build_response(request, result, flags)
        if response_signals.stopped is not None:
            response.flags.append("download_stopped")
            if response_signals.stopped.fail:
                response_signals.stopped.response = response
                raise response_signals.stopped
        return response

    def _check_loss(self, request: Request, result: FetchResult) -> None:
        if not request.meta.get("download_fail_on_dataloss", self._fails_on_loss):
            return
        if not self._has_warned_of_loss:
            self._has_warned_of_loss = True
            logger.warning(get_dataloss_msg(request.url))
        raise ResponseDataLossError(result.detail)


def _fail(request: Request, result: FetchResult) -> NoReturn:
    kind = _ERRORS.get(result.kind, DownloadFailedError)
    raise kind(f"{request.url}: {result.detail or result.kind}")


def _headers(request: Request) -> tuple[tuple[str, str], ...]:
    """All headers but the proxy's credentials, which the site must not see."""
    return tuple(
        (name.decode("latin-1"), value.decode("latin-1"))
        for name, values in request.headers.items()
        if name != _PROXY_AUTHORIZATION
        for value in values
    )


def _address(value: Any) -> tuple[str, int] | None:
    """Scrapy's setting for a local address: a host, or a host and a port."""
    if not value:
        return None
    host, port = (value, 0) if isinstance(value, str) else value
    return str(host), int(port)


def _proxy(request: Request) -> Proxy | None:
    url: Any = request.meta.get("proxy")
    if not url:
        return None
    value = request.headers.get(_PROXY_AUTHORIZATION)
    authorization = "" if value is None else value.decode("latin-1")
    try:
        return _parse_proxy(add_http_if_no_scheme(str(url)), authorization)
    except HeadwayError as problem:
        raise NotSupported(str(problem)) from None


@lru_cache(maxsize=256)
def _parse_proxy(url: str, authorization: str) -> Proxy:
    proxy = parse_proxy(url)
    return Proxy(proxy.host, proxy.port, authorization or proxy.authorization)


def _reader_maker(request: Request, response_signals: ResponseSignals) -> Callable[[], ResponseReader]:
    limits = _limits(response_signals.max_bytes)
    head_only = request.method == "HEAD"

    def make() -> ResponseReader:
        response_signals.began_at = time.monotonic()
        return NotifyingReader(
            limits, response_signals.on_head, response_signals.on_piece, head_only=head_only
        )

    return make


@lru_cache(maxsize=64)
def _limits(max_bytes: int) -> Limits:
    # A margin above Scrapy's limit, so that `ResponseSignals` stops a large response first, with its message.
    return Limits(max_body_bytes=max_bytes + (1 << 20) if max_bytes else _UNLIMITED_BYTES)
