"""The OpenAPI document, made from the endpoints and the types of their answers."""

from __future__ import annotations

from typing import Any

import msgspec

from headway.dashboard.answers import Problem
from headway.dashboard.endpoints import ENDPOINTS, Endpoint
from headway.version import __version__

_REF = "#/components/schemas/{name}"
_STATUSES = {
    400: "The question or the order cannot be read",
    401: "The token is missing or wrong",
    403: "Another site's page asked",
    404: "There is no such site",
    409: "The run is not in a state for it",
    413: "The order is too long",
    415: "The order is not JSON",
    421: "Asked by a name that is not this machine's",
    422: "The order can be read, and cannot be carried out",
    503: "The run folder cannot be read or written",
}
_EVERYWHERE = (400, 401, 403, 421, 503)


def document(*, is_public: bool) -> dict[str, Any]:
    """Off loopback, looking needs the token as well, and the document says so."""
    types = [Problem, *(endpoint.gives for endpoint in ENDPOINTS)]
    types += [endpoint.takes for endpoint in ENDPOINTS if endpoint.takes is not None]
    schemas, components = msgspec.json.schema_components(types, ref_template=_REF)
    given = dict(zip([id(kind) for kind in types], schemas, strict=True))
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "headway",
            "version": __version__,
            "description": "A crawl as it runs: look at it, and steer it.",
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
            if field.default is None:  # left out, since null cannot be written in an address
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
        "summary": "The run for Prometheus",
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
