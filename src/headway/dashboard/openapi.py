"""The API endpoint by endpoint, and the OpenAPI document made from them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from headway.dashboard import answers
from headway.dashboard.answers import (
    Accepted,
    Happenings,
    LinkPoint,
    Now,
    OrderRequest,
    Problem,
    Run,
    SiteDetail,
    SitePage,
    WatchedRun,
)
from headway.version import __version__


class Endpoint(msgspec.Struct, frozen=True):
    path: str
    summary: str
    gives: Any
    question: type[Any] | None = None
    """Of a GET: its parameters."""
    takes: Any = None
    """Of a POST: its body."""
    answer: Callable[..., object] | None = None

    @property
    def method(self) -> str:
        return "get" if self.takes is None else "post"


class NoQuestion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """No parameters."""


class LinkQuestion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    after: answers.After = 0.0


def _now(watched: WatchedRun, question: answers.NowQuestion) -> Now:
    picture = watched.picture()
    link = [point for point in picture.link if point.at > question.after]
    return Now(picture.run, link, watched.page(question))


def _link(watched: WatchedRun, question: LinkQuestion) -> list[LinkPoint]:
    return [point for point in watched.picture().link if point.at > question.after]


def _happenings(watched: WatchedRun, question: answers.ListQuestion) -> Happenings:
    return Happenings(watched.failures(question.limit), watched.log.newest(question.limit))


ENDPOINTS = (
    Endpoint(
        "/api/v1/now",
        "All data of the dashboard: the run, the link after an instant, and some sites",
        Now,
        answers.NowQuestion,
        answer=_now,
    ),
    Endpoint(
        "/api/v1/run",
        "The run as a whole",
        Run,
        NoQuestion,
        answer=lambda watched, _: watched.picture().run,
    ),
    Endpoint(
        "/api/v1/link",
        "The link, second by second, of the last ten minutes",
        list[LinkPoint],
        LinkQuestion,
        answer=_link,
    ),
    Endpoint(
        "/api/v1/sites",
        "Sites with their progress, deadlines and forecasts",
        SitePage,
        answers.SiteQuestion,
        answer=lambda watched, question: watched.page(question),
    ),
    Endpoint(
        "/api/v1/happenings",
        "The last failures, orders, forecast delays and changes of the bound, newest first",
        Happenings,
        answers.ListQuestion,
        answer=_happenings,
    ),
    Endpoint("/api/v1/sites/{number}", "One site, with its progress over time", SiteDetail, NoQuestion),
    Endpoint(
        "/api/v1/orders",
        "Pause, resume, change the bandwidth or a deadline, stop or add a site",
        Accepted,
        takes=OrderRequest,
    ),
)


_REF = "#/components/schemas/{name}"
_STATUSES = {
    400: "The parameters or the order are not valid",
    401: "The token is missing or wrong",
    403: "The request came from a page of another site",
    404: "There is no such site",
    409: "The state of the run does not allow it",
    413: "The order is too long",
    415: "The order is not JSON",
    421: "The host name is not one of this machine",
    422: "The order is valid, but cannot be carried out",
    503: "The run folder cannot be read or written",
}
_EVERYWHERE = (400, 401, 403, 421, 503)


def document(*, is_public: bool) -> dict[str, Any]:
    """On other addresses than loopback, reading needs the token as well, and the document says so."""
    types = [Problem, *(endpoint.gives for endpoint in ENDPOINTS)]
    types += [endpoint.takes for endpoint in ENDPOINTS if endpoint.takes is not None]
    schemas, components = msgspec.json.schema_components(types, ref_template=_REF)
    given = dict(zip([id(kind) for kind in types], schemas, strict=True))
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "headway",
            "version": __version__,
            "description": "Monitor and control a crawl.",
        },
        "servers": [{"url": "/"}],
        "paths": {
            **{
                endpoint.path: {endpoint.method: _operation(endpoint, given, is_public=is_public)}
                for endpoint in ENDPOINTS
            },
            "/metrics": {"get": _metrics(is_public=is_public)},
        },
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(endpoint: Endpoint, given: dict[int, Any], *, is_public: bool) -> dict[str, Any]:
    is_order = endpoint.takes is not None
    statuses = list(_EVERYWHERE)
    if is_order:
        statuses += [404, 409, 413, 415, 422]
    if "{number}" in endpoint.path:
        statuses.append(404)
    operation: dict[str, Any] = {
        "summary": endpoint.summary,
        "operationId": f"{endpoint.method}_{endpoint.path.strip('/').translate(_NAME)}",
        "parameters": _parameters(endpoint),
        "responses": {
            "202" if is_order else "200": _json(endpoint.summary, given[id(endpoint.gives)]),
            **{
                str(status): _json(_STATUSES[status], {"$ref": _REF.format(name="Problem")})
                for status in sorted(statuses)
            },
        },
    }
    if is_order or is_public:
        operation["security"] = [{"token": []}]
    if is_order:
        body = given[id(endpoint.takes)]
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
    return operation


_NAME = str.maketrans({"/": "_", "{": "", "}": ""})


def _parameters(endpoint: Endpoint) -> list[dict[str, Any]]:
    parameters: list[dict[str, Any]] = []
    if "{number}" in endpoint.path:
        schema = {"type": "integer", "minimum": 1, "maximum": 2**53}
        parameters.append({"name": "number", "in": "path", "required": True, "schema": schema})
    if endpoint.question is not None:
        for field in msgspec.structs.fields(endpoint.question):
            schema = msgspec.json.schema(field.type)
            schema["default"] = field.default
            if field.default is None:  # omitted, since null cannot be written in a URL
                del schema["default"]
                schema = _without_null(schema)
            parameters.append({"name": field.name, "in": "query", "schema": schema})
    return parameters


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    return {
        key: [value for value in values if value is not None] if key == "enum" else values
        for key, values in schema.items()
    }


def _json(description: str, schema: Any) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _metrics(*, is_public: bool) -> dict[str, Any]:
    text = {"text/plain": {"schema": {"type": "string"}}}
    operation: dict[str, Any] = {
        "summary": "Metrics of the run for Prometheus",
        "operationId": "get_metrics",
        "responses": {
            "200": {"description": "The text format of Prometheus", "content": text},
            **{
                str(status): _json(_STATUSES[status], {"$ref": _REF.format(name="Problem")})
                for status in (401, 403, 421, 503)
            },
        },
    }
    if is_public:
        operation["security"] = [{"token": []}]
    return operation
