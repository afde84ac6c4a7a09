"""The dashboard as an ASGI application: the page, the API, the metrics."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
from prometheus_client import CollectorRegistry
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from headway.dashboard import metrics, openapi
from headway.dashboard.answers import Wish
from headway.dashboard.asking import BadQuestionError, read_question
from headway.dashboard.endpoints import ENDPOINTS, Endpoint, NoQuestion
from headway.dashboard.responses import answer, problem
from headway.dashboard.safety import Guard
from headway.dashboard.watching import Watching
from headway.dashboard.wishes import RefusedError, grant
from headway.errors import HeadwayError, StoreError

_STATIC = Path(__file__).parent / "static"
_MOST_ORDER_BYTES = 16 * 1024
_LARGEST_NUMBER = 2**53

Handler = Callable[[Request], Awaitable[Response]]


def build(run: Path | str, watching: Watching, *, token: str, is_public: bool) -> Starlette:
    registry = CollectorRegistry()
    registry.register(metrics.RunCollector(watching.picture))
    document = openapi.document(is_public=is_public)

    async def page(_: Request) -> Response:
        return FileResponse(_STATIC / "index.html", headers={"cache-control": "no-cache"})

    async def describe(_: Request) -> Response:
        return answer(document)

    async def measure(request: Request) -> Response:
        body, content_type = metrics.render(registry, request.headers.get("accept", ""))
        return Response(body, headers={"content-type": content_type})

    async def one_site(request: Request) -> Response:
        text = request.path_params["number"]
        number = int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else 0
        if not 1 <= number <= _LARGEST_NUMBER:
            raise BadQuestionError(f"{text[:40]!r} is not the number of a site")
        read_question(request.query_params.multi_items(), NoQuestion)
        detail = watching.detail(number)
        return answer(detail) if detail is not None else problem(404, f"there is no site number {number}")

    async def order(request: Request) -> Response:
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            return problem(415, "an order is JSON, with the content type application/json")
        body = await _body(request)
        if body is None:
            return problem(413, f"an order has at most {_MOST_ORDER_BYTES} bytes")
        wish: Wish = msgspec.json.decode(body, type=Wish)
        return answer(grant(run, watching, wish), 202)

    routes = [
        Route("/", page),
        Route("/api/openapi.json", describe),
        Route("/metrics", measure),
        Route("/api/v1/sites/{number}", one_site),
        Route("/api/v1/orders", order, methods=["POST"]),
        *(
            Route(each.path, _looking(each, watching), methods=["GET"])
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


def _looking(endpoint: Endpoint, watching: Watching) -> Handler:
    assert endpoint.answer is not None
    assert endpoint.question is not None
    say, question = endpoint.answer, endpoint.question

    async def handle(request: Request) -> Response:
        return answer(say(watching, read_question(request.query_params.multi_items(), question)))

    return handle


async def _body(request: Request) -> bytes | None:
    """The body of an order, or None when it is too long to be one."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MOST_ORDER_BYTES:
            return None
    return body


# -- what went wrong ----------------------------------------------------------------------------------------


async def _http_problem(request: Request, wrong: Exception) -> Response:
    assert isinstance(wrong, HTTPException)
    told = problem(wrong.status_code, f"{request.method} {request.url.path}: {wrong.detail}")
    told.headers.update(wrong.headers or {})
    return told


async def _bad_question(_: Request, wrong: Exception) -> Response:
    return problem(400, str(wrong))


async def _bad_order(_: Request, wrong: Exception) -> Response:
    return problem(400, f"the order cannot be read: {wrong}")


async def _refused(_: Request, wrong: Exception) -> Response:
    if isinstance(wrong, RefusedError):
        return problem(wrong.status, str(wrong))
    return problem(503 if isinstance(wrong, StoreError) else 422, str(wrong))
