"""Answers in JSON, and what went wrong as JSON, too."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from headway.dashboard.answers import Problem


def answer(value: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def problem(status: int, text: str) -> Response:
    return answer(Problem(text), status)
