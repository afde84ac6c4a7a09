"""The API, endpoint by endpoint: what each takes and gives, from which the OpenAPI document is made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from headway.dashboard import asking
from headway.dashboard.answers import (
    Accepted,
    Happenings,
    LinkPoint,
    Now,
    Run,
    SiteDetail,
    SitePage,
    Wish,
)
from headway.dashboard.watching import Watching


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
    after: asking.After = 0.0


def _now(watching: Watching, question: asking.NowQuestion) -> Now:
    picture = watching.picture()
    link = [point for point in picture.link if point.at > question.after]
    return Now(picture.run, link, watching.page(question))


def _link(watching: Watching, question: LinkQuestion) -> list[LinkPoint]:
    return [point for point in watching.picture().link if point.at > question.after]


def _happenings(watching: Watching, question: asking.ListQuestion) -> Happenings:
    return Happenings(watching.failures(question.limit), watching.log.newest(question.limit))


ENDPOINTS = (
    Endpoint(
        "/api/v1/now",
        "Everything that the dashboard shows: the run, the link after an instant, and some sites",
        Now,
        asking.NowQuestion,
        answer=_now,
    ),
    Endpoint(
        "/api/v1/run",
        "The run as a whole",
        Run,
        NoQuestion,
        answer=lambda watching, _: watching.picture().run,
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
        asking.SiteQuestion,
        answer=lambda watching, question: watching.page(question),
    ),
    Endpoint(
        "/api/v1/happenings",
        "The last failures, orders, foreseen delays and changes of the bound, newest first",
        Happenings,
        asking.ListQuestion,
        answer=_happenings,
    ),
    Endpoint("/api/v1/sites/{number}", "One site, with its course so far", SiteDetail, NoQuestion),
    Endpoint(
        "/api/v1/orders",
        "Pause, resume, change the bandwidth or a deadline, stop or add a site",
        Accepted,
        takes=Wish,
    ),
)
