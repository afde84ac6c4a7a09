"""The dashboard as an ASGI application (page, API, metrics, orders), its authorization, and its server."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import errno
import hmac
import ipaddress
import secrets
import signal
import socket
import sys
import threading
import time
import zoneinfo
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import msgspec
import uvicorn
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headway.config.values import deadline_at, machine_zone
from headway.dashboard import openapi
from headway.dashboard.answers import (
    Accepted,
    AddSite,
    BadQuestionError,
    OrderRequest,
    Pause,
    Picture,
    Problem,
    Resume,
    SetBandwidth,
    SetDeadline,
    StopSite,
    WatchedRun,
    read_question,
)
from headway.dashboard.openapi import ENDPOINTS, Endpoint, NoQuestion
from headway.errors import HeadwayError, StoreError
from headway.model import command as orders
from headway.model.page import Site, Task
from headway.pages.url import page_of
from headway.runtime.control import SPIDERS_LOG, write_limit, write_order
from headway.units import Instant
from headway.version import __version__


def answer(value: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def problem(status: int, text: str) -> Response:
    return answer(Problem(text), status)


# Who may read and who may give orders.
#
# Every order needs the token; so does every read if the dashboard can be reached from other machines. The
# token is sent in a header that a page of another site cannot make a browser send, so no page can give orders
# unnoticed. On loopback only requests with a name of this machine are answered: a page whose own host name
# resolves to 127.0.0.1 learns nothing.

_OPEN_PATHS = ("/", "/api/openapi.json")
_STATIC_PATH = "/static/"
"""The static page is the same for everyone and contains no data of the run."""

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
_HEADERS = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}


def new_token() -> str:
    return secrets.token_urlsafe(24)


def is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class Guard:
    """Wraps the application: refuses unauthorized requests, and adds the headers to every answer."""

    def __init__(self, app: ASGIApp, *, token: str, is_public: bool) -> None:
        self._app = app
        self._token = token.encode()
        self._is_public = is_public

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
            await send(message)

        refusal = self._refusal(scope)
        if refusal is not None:
            await refusal(scope, receive, send_guarded)
        else:
            await self._app(scope, receive, send_guarded)

    def _refusal(self, scope: Scope) -> ASGIApp | None:
        headers = Headers(scope=scope)
        path = scope["path"]
        if not self._is_public and not is_loopback(_host_of(headers.get("host", ""))):
            return problem(421, "this dashboard answers to names of this machine only, such as 127.0.0.1")
        if headers.get("sec-fetch-site", "none") not in {"none", "same-origin"} and path != "/":
            return problem(403, "the request came from a page of another site; open the dashboard itself")
        is_shell = path in _OPEN_PATHS or path.startswith(_STATIC_PATH)
        is_read = scope["method"] in {"GET", "HEAD", "OPTIONS"}
        if (is_read and (is_shell or not self._is_public)) or self._has_token(headers):
            return None
        answer = problem(401, "the token is missing or wrong; it is in the address that headway printed")
        answer.headers["www-authenticate"] = "Bearer"
        return answer

    def _has_token(self, headers: Headers) -> bool:
        scheme, _, given = headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and hmac.compare_digest(
            given.strip().encode("utf-8", "replace"), self._token
        )


def _host_of(host_and_port: str) -> str:
    host, colon, port = host_and_port.rpartition(":")
    return host if colon and port.isdecimal() else host_and_port


class RunCollector(Collector):
    """Sums over sites, never a series for each: ten thousand sites would be ten thousand series."""

    def __init__(self, picture: Callable[[], Picture]) -> None:
        self._picture = picture

    def describe(self) -> Iterator[Metric]:
        return iter(())

    def collect(self) -> Iterator[Metric]:
        picture = self._picture()
        run = picture.run
        yield CounterMetricFamily("headway_bytes_downloaded", "Bytes received over the link", run.wire_bytes)
        yield CounterMetricFamily("headway_pages_fetched", "Pages fetched", run.done)
        yield CounterMetricFamily("headway_pages_failed", "Failed pages", run.failed)
        errors = CounterMetricFamily("headway_errors", "Failed attempts, by kind", labels=["kind", "state"])
        for error in run.errors:
            errors.add_metric([error.kind, error.state], error.count)
        yield errors
        yield GaugeMetricFamily("headway_pages_waiting", "Pages in the queue", run.waiting)
        yield GaugeMetricFamily("headway_requests_in_flight", "Requests in flight", run.in_flight)
        yield GaugeMetricFamily("headway_collectors", "Crawling processes", len(run.collectors))
        yield GaugeMetricFamily(
            "headway_link_rate_bytes_per_second", "Measured over the last second", run.rate_bytes_per_s
        )
        if run.bound_bytes_per_s is not None:
            yield GaugeMetricFamily(
                "headway_link_bound_bytes_per_second", "The bound on the link", run.bound_bytes_per_s
            )
        yield GaugeMetricFamily(
            "headway_link_mean_rate_bytes_per_second",
            "Over all the time in which the crawl ran",
            run.mean_bytes_per_s,
        )
        if run.use_of_bound is not None:
            yield GaugeMetricFamily(
                "headway_link_use_ratio",
                "Bytes received under a bound, as a share of what it allowed",
                run.use_of_bound,
            )
        if run.predicted_bytes_per_s is not None:
            yield GaugeMetricFamily(
                "headway_link_predicted_bytes_per_second",
                "Predicted total rate of the active servers",
                run.predicted_bytes_per_s,
            )
        if run.forecast_at is not None:
            yield GaugeMetricFamily(
                "headway_forecast_end_timestamp_seconds", "Forecast end of the last site", run.forecast_at
            )
        yield GaugeMetricFamily(
            "headway_start_timestamp_seconds", "When the crawl was first begun", run.started_at
        )
        yield from _by_label(picture)
        up = GaugeMetricFamily("headway_running", "1 while the crawl runs", labels=["state"])
        up.add_metric([run.state], 1.0 if run.state in {"running", "paused"} else 0.0)
        yield up
        build = GaugeMetricFamily("headway_build_info", "The version of headway", labels=["version"])
        build.add_metric([__version__], 1)
        yield build


def _by_label(picture: Picture) -> Iterator[Metric]:
    sites = GaugeMetricFamily("headway_sites", "Sites, by state", labels=["state"])
    for state, count in sorted(Counter(line.state for line in picture.sites).items()):
        sites.add_metric([state], count)
    yield sites
    deadlines = GaugeMetricFamily("headway_deadlines", "Deadlines, by state", labels=["outlook"])
    for name, count in msgspec.structs.asdict(picture.run.deadlines).items():
        if count:
            deadlines.add_metric([name.replace("_", "-")], count)
    yield deadlines


def render(registry: CollectorRegistry, accept: str) -> tuple[bytes, str]:
    encoder, content_type = choose_encoder(accept)
    return encoder(registry), content_type


class RefusedError(HeadwayError):
    """Orders of people over the API: checked, and passed to the crawl through its folder."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


def accept_order(run: Path | str, watched: WatchedRun, order: OrderRequest) -> Accepted:
    """Pass an order to the crawl; RefusedError or another HeadwayError if it is not possible."""
    if not isinstance(run, Path) or not watched.picture().run.takes_orders:
        raise RefusedError(409, "a crawl on a server cannot be controlled from here")
    if isinstance(order, StopSite | AddSite) and (run / SPIDERS_LOG).exists():
        raise RefusedError(
            409, "in run-scrapy change the job's sites instead, and run the same command again"
        )
    now = Instant(time.time())
    name: str = order.__struct_config__.tag  # type: ignore[assignment]
    if isinstance(order, SetBandwidth):
        write_limit(run, order.bandwidth)
    else:
        write_order(run, now, _order(now, watched, order))
    is_running = watched.is_running()
    return Accepted(name, "within a second" if is_running else "when the crawl is started again")


def _order(
    now: Instant, watched: WatchedRun, order: Pause | Resume | SetDeadline | StopSite | AddSite
) -> orders.Order:
    match order:
        case Pause() | Resume():
            if not watched.is_running():
                raise RefusedError(409, "the crawl is not running, so there is nothing to pause or resume")
            return orders.Pause() if isinstance(order, Pause) else orders.Resume()
        case SetDeadline(site, deadline):
            return orders.SetDeadline(_known(watched, site), _instant(now, watched, deadline))
        case StopSite(site):
            return orders.StopSite(_known(watched, site))
        case AddSite(url, deadline, max_pages):
            page = page_of(url.strip())
            if page is None:
                raise RefusedError(
                    422, f"{url!r} is not an http or https URL such as 'https://www.example.org/'"
                )
            due = _instant(now, watched, deadline)
            return orders.AddSite(Task(page.site, (page.url,), due, max_pages=max_pages), (page,))


def _known(watched: WatchedRun, site: str) -> Site:
    if not watched.knows(site):
        raise RefusedError(404, f"there is no site {site!r} in this crawl")
    return Site(site)


def _instant(now: Instant, watched: WatchedRun, deadline: str | None) -> Instant | None:
    return deadline_at(deadline, now, _zone(watched)) if deadline is not None else None


def _zone(watched: WatchedRun) -> dt.tzinfo:
    crawl = watched.job.get("crawl")
    name = crawl.get("timezone") if isinstance(crawl, dict) else None
    if name is not None:
        try:
            return zoneinfo.ZoneInfo(str(name))
        except (zoneinfo.ZoneInfoNotFoundError, ValueError):
            pass
    return machine_zone()


_STATIC = Path(__file__).parent / "static"
_MOST_ORDER_BYTES = 16 * 1024
_LARGEST_NUMBER = 2**53

Handler = Callable[[Request], Awaitable[Response]]


def build(run: Path | str, watched: WatchedRun, *, token: str, is_public: bool) -> Starlette:
    registry = CollectorRegistry()
    registry.register(RunCollector(watched.picture))
    document = openapi.document(is_public=is_public)

    async def page(_: Request) -> Response:
        return FileResponse(_STATIC / "index.html", headers={"cache-control": "no-cache"})

    async def describe(_: Request) -> Response:
        return answer(document)

    async def measure(request: Request) -> Response:
        body, content_type = render(registry, request.headers.get("accept", ""))
        return Response(body, headers={"content-type": content_type})

    async def one_site(request: Request) -> Response:
        text = request.path_params["number"]
        number = int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else 0
        if not 1 <= number <= _LARGEST_NUMBER:
            raise BadQuestionError(f"{text[:40]!r} is not the number of a site")
        read_question(request.query_params.multi_items(), NoQuestion)
        detail = watched.detail(number)
        return answer(detail) if detail is not None else problem(404, f"there is no site number {number}")

    async def order(request: Request) -> Response:
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            return problem(415, "an order is JSON, with the content type application/json")
        body = await _body(request)
        if body is None:
            return problem(413, f"an order has at most {_MOST_ORDER_BYTES} bytes")
        order: OrderRequest = msgspec.json.decode(body, type=OrderRequest)
        return answer(accept_order(run, watched, order), 202)

    routes = [
        Route("/", page),
        Route("/api/openapi.json", describe),
        Route("/metrics", measure),
        Route("/api/v1/sites/{number}", one_site),
        Route("/api/v1/orders", order, methods=["POST"]),
        *(
            Route(each.path, _looking(each, watched), methods=["GET"])
            for each in ENDPOINTS
            if each.answer is not None
        ),
        Mount("/static", StaticFiles(directory=_STATIC)),
    ]
    return Starlette(
        routes=routes,
        middleware=[Middleware(Guard, token=token, is_public=is_public)],
        exception_handlers={
            HTTPException: _http_problem,
            BadQuestionError: _bad_question,
            msgspec.ValidationError: _bad_order,
            msgspec.DecodeError: _bad_order,
            HeadwayError: _refused,
        },
    )


def _looking(endpoint: Endpoint, watched: WatchedRun) -> Handler:
    assert endpoint.answer is not None
    assert endpoint.question is not None
    say, question = endpoint.answer, endpoint.question

    async def handle(request: Request) -> Response:
        return answer(say(watched, read_question(request.query_params.multi_items(), question)))

    return handle


async def _body(request: Request) -> bytes | None:
    """The body of an order, or None if it is too long."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MOST_ORDER_BYTES:
            return None
    return body


# -- what went wrong ----------------------------------------------------------------------------------------


async def _http_problem(request: Request, wrong: Exception) -> Response:
    assert isinstance(wrong, HTTPException)
    response = problem(wrong.status_code, f"{request.method} {request.url.path}: {wrong.detail}")
    response.headers.update(wrong.headers or {})
    return response


async def _bad_question(_: Request, wrong: Exception) -> Response:
    return problem(400, str(wrong))


async def _bad_order(_: Request, wrong: Exception) -> Response:
    return problem(400, f"the order cannot be read: {wrong}")


async def _refused(_: Request, wrong: Exception) -> Response:
    if isinstance(wrong, RefusedError):
        return problem(wrong.status, str(wrong))
    return problem(503 if isinstance(wrong, StoreError) else 422, str(wrong))


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leaves signals to the command, which must end in time even if the server hangs."""
        yield


class Served:
    """A listening dashboard. `address` is the URL to open; `run` serves until `stop` or an interrupt."""

    def __init__(self, run: Path | str, *, host: str, port: int, token: str) -> None:
        self.is_public = not is_loopback(host)
        self._watching = WatchedRun(run)
        try:
            self._socket = _listen(host, port)
        except BaseException:
            self._watching.close()
            raise
        self.port: int = self._socket.getsockname()[1]
        shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - only compared
        self.origin = f"http://{f'[{shown}]' if ':' in shown else shown}:{self.port}"
        self.address = f"{self.origin}/#token={token}"
        app = build(run, self._watching, token=token, is_public=self.is_public)
        self._server = _Server(
            uvicorn.Config(
                app, log_level="warning", access_log=False, server_header=False, lifespan="off", ws="none"
            )
        )

    def run(self, *, on_ready: Callable[[], None] | None = None) -> None:
        try:
            if on_ready is not None:
                on_ready()
            with contextlib.suppress(KeyboardInterrupt):  # how a server is stopped without loose ends
                asyncio.run(self._server.serve(sockets=[self._socket]))
        finally:
            self._socket.close()
            self._watching.close()

    def stop(self) -> None:
        self._server.should_exit = True

    def interrupt(self) -> None:
        """As with Ctrl-C: the first call lets requests finish, the second does not."""
        self._server.handle_exit(signal.SIGINT, None)

    def stop_with_pipe(self) -> None:
        """End when the parent process does, for whatever reason: then the standard input is closed."""

        def wait() -> None:
            while sys.stdin.buffer.read(4096):
                pass
            self.stop()

        threading.Thread(target=wait, daemon=True).start()


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, socket.SOCK_STREAM)
    except OSError as problem:
        raise HeadwayError(f"--host {host}: {problem.strerror}; give an address of this machine") from None
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(128)
    except OSError as problem:
        listening.close()
        other = "give another with --port, 0 for any that is free"
        if problem.errno == errno.EADDRNOTAVAIL:
            other = "give an address of this machine with --host"
        raise HeadwayError(f"{host} port {port} cannot be listened on: {problem.strerror}; {other}") from None
    return listening
