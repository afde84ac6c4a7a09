"""Questions about sites: which, sorted by what, from where on."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, get_args

import msgspec
from msgspec import Meta

from headway.dashboard.answers import Outlook, SiteLine, SitePage, SiteState, SortKey

_URGENCY = {"late": 0, "at-risk": 1, "missed": 2, "tight": 3, "on-time": 4, "none": 5, "met": 6}
_OVER = {"done", "stopped", "unreachable"}


After = Annotated[float, Meta(ge=0, le=1e12, description="Only what came after this instant")]


class SiteQuestion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    sort: SortKey = "urgency"
    descending: bool = False
    state: SiteState | Outlook | None = None
    contains: Annotated[str, Meta(max_length=200)] = ""
    offset: Annotated[int, Meta(ge=0, le=10**9)] = 0
    limit: Annotated[int, Meta(ge=1, le=200)] = 50


class NowQuestion(SiteQuestion, frozen=True, forbid_unknown_fields=True):
    after: After = 0.0


class ListQuestion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=200)] = 50


class BadQuestionError(Exception):
    """Its text says which parameter is wrong, and how."""


def read_question(parameters: Iterable[tuple[str, str]], kind: type[Any]) -> Any:
    """Parameters of an address as a question; each at most once, none unknown."""
    given: dict[str, str] = {}
    for name, value in parameters:
        if name in given:
            raise BadQuestionError(f"the parameter {name!r} is there twice")
        given[name] = value
    known = {field.name: field.type for field in msgspec.structs.fields(kind)}
    values: dict[str, object] = {}
    for name, text in given.items():
        if name not in known:
            raise BadQuestionError(f"there is no parameter {name!r}, only {', '.join(known)}")
        values[name] = _value(name, text, known[name])
    return kind(**values)


def _value(name: str, text: str, kind: Any) -> object:
    is_flag = kind is bool
    if is_flag and text not in {"true", "false"}:
        raise BadQuestionError(f"{name} is {text!r}, and must be true or false")
    try:
        value = msgspec.convert(text == "true" if is_flag else text, kind, strict=is_flag)
    except msgspec.ValidationError as wrong:
        raise BadQuestionError(f"{name} is {text[:80]!r}: {wrong}") from None
    if isinstance(value, float) and not math.isfinite(value):
        raise BadQuestionError(f"{name} must be a finite number")
    return value


def choose(lines: Iterable[SiteLine], question: SiteQuestion) -> SitePage:
    wanted, contains = question.state, question.contains.lower()
    chosen = [
        line
        for line in lines
        if (wanted is None or wanted in (line.state, line.outlook)) and contains in line.site.lower()
    ]
    chosen.sort(key=_KEYS[question.sort], reverse=question.descending)
    page = chosen[question.offset : question.offset + question.limit]
    return SitePage(len(chosen), question.offset, page)


def _urgency(line: SiteLine) -> tuple[object, ...]:
    return (
        line.state in _OVER,
        _URGENCY[line.outlook],
        line.deadline_at if line.deadline_at is not None else math.inf,
        -line.rate_bytes_per_s,
        line.number,
    )


_KEYS: Mapping[str, Callable[[SiteLine], Any]] = {
    "urgency": _urgency,
    "site": lambda line: line.site.partition("://")[2],
    "deadline": lambda line: (line.deadline_at is None, line.deadline_at or 0.0, line.number),
    "progress": lambda line: (line.progress, line.number),
    "rate": lambda line: (-line.rate_bytes_per_s, line.number),
    "bytes": lambda line: (-line.wire_bytes, line.number),
    "failed": lambda line: (-line.failed, line.number),
}
assert set(_KEYS) == set(get_args(SortKey))
