"""The download handler: Scrapy's requests for http and https go over headway's paced connections."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NoReturn

from scrapy import Request
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
    UnsupportedURLSchemeError,
)
from scrapy.http import Response
from scrapy.utils._download_handlers import get_dataloss_msg
from scrapy.utils.asyncio import is_asyncio_available
from scrapy.utils.ssl import _log_sslobj_debug_info
from scrapy.utils.url import add_http_if_no_scheme

from headway.errors import HeadwayError
from headway.fetch.proxy import Proxy, parse_proxy
from headway.fetch.reader import ResponseReader
from headway.fetch.settings import Limits
from headway.fetch.target import TargetError
from headway.model.outcome import Kind
from headway.scrapy.exchange import Answered, Asked, place_of, split_url
from headway.scrapy.hearing import Hearing, build_response
from headway.scrapy.link import link_of
from headway.scrapy.patience import holds_of
from headway.scrapy.reading import ListenedReader

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
"""What Scrapy calls it; everything else is a DownloadFailedError."""


class HeadwayDownloadHandler(BaseDownloadHandler):
    lazy = False

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        if not is_asyncio_available():
            raise NotConfigured(
                "headway needs Scrapy's asyncio support: leave TWISTED_REACTOR as it is by default"
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
            site = place_of(split_url(request.url)[0]).site
        except TargetError as problem:
            raise UnsupportedURLSchemeError(str(problem)) from None
        await self._holds.wait(request.meta.get("download_slot", ""))
        hearing = Hearing(
            self.crawler,
            request,
            max_bytes=int(request.meta.get("download_maxsize", self._max_bytes)),
            warn_bytes=int(request.meta.get("download_warnsize", self._warn_bytes)),
        )
        answered = await self._link.fetcher.fetch(self._asked(request), _reader_maker(request, hearing))
        self._link.answered(site, answered)
        if self._link.listener is not None:
            self._link.listener(request, answered)
        if hearing.headed_at is not None:
            latency_s = hearing.headed_at - hearing.began_at - answered.waited_s
            request.meta["download_latency"] = max(0.0, latency_s)
        return self._response(request, answered, hearing)

    async def close(self) -> None:
        await self._link.aclose()

    def _asked(self, request: Request) -> Asked:
        return Asked(
            request.url,
            request.method,
            _headers(request),
            request.body,
            float(request.meta.get("download_timeout", self._timeout_s)),
            _proxy(request),
            _address(request.meta.get("bindaddress")) or self._bind_to,
        )

    def _response(self, request: Request, answered: Answered, hearing: Hearing) -> Response:
        reader = answered.reader
        if hearing.too_large:
            raise DownloadCancelledError(hearing.too_large)
        if reader.reply is None or answered.kind not in {Kind.FETCHED, Kind.RESET}:
            _fail(request, answered)
        if self._logs_tls and answered.tls is not None:
            _log_sslobj_debug_info(answered.tls)
        flags = []
        if answered.kind is Kind.RESET:
            self._check_loss(request, answered)
            flags.append("dataloss")
        response = build_response(request, answered, flags)
        if hearing.stopped is not None:
            response.flags.append("download_stopped")
            if hearing.stopped.fail:
                hearing.stopped.response = response
                raise hearing.stopped
        return response

    def _check_loss(self, request: Request, answered: Answered) -> None:
        if not request.meta.get("download_fail_on_dataloss", self._fails_on_loss):
            return
        if not self._has_warned_of_loss:
            self._has_warned_of_loss = True
            logger.warning(get_dataloss_msg(request.url))
        raise ResponseDataLossError(answered.detail)


def _fail(request: Request, answered: Answered) -> NoReturn:
    kind = _ERRORS.get(answered.kind, DownloadFailedError)
    raise kind(f"{request.url}: {answered.detail or answered.kind}")


def _headers(request: Request) -> tuple[tuple[str, str], ...]:
    """As Scrapy's middlewares left them; the login for a proxy is not for the site."""
    return tuple(
        (name.decode("latin-1"), value.decode("latin-1"))
        for name, values in request.headers.items()
        if name != _PROXY_AUTHORIZATION
        for value in values
    )


def _address(value: Any) -> tuple[str, int] | None:
    """A host, or a host and a port, as Scrapy takes it."""
    if not value:
        return None
    host, port = (value, 0) if isinstance(value, str) else value
    return str(host), int(port)


def _proxy(request: Request) -> Proxy | None:
    url: Any = request.meta.get("proxy")
    if not url:
        return None
    login = request.headers.get(_PROXY_AUTHORIZATION)
    try:
        return _known_proxy(add_http_if_no_scheme(str(url)), "" if login is None else login.decode("latin-1"))
    except HeadwayError as problem:
        raise NotSupported(str(problem)) from None


@lru_cache(maxsize=256)
def _known_proxy(url: str, login: str) -> Proxy:
    proxy = parse_proxy(url)
    return Proxy(proxy.host, proxy.port, login or proxy.authorization)


def _reader_maker(request: Request, hearing: Hearing) -> Callable[[], ResponseReader]:
    limits = _limits(hearing.max_bytes)
    head_only = request.method == "HEAD"

    def make() -> ResponseReader:
        hearing.began_at = time.monotonic()
        return ListenedReader(limits, hearing, head_only=head_only)

    return make


@lru_cache(maxsize=64)
def _limits(max_bytes: int) -> Limits:
    # The hearing stops what is too large and says so in Scrapy's words; this is the backstop.
    return Limits(max_body_bytes=max_bytes + (1 << 20) if max_bytes else _UNLIMITED_BYTES)
