"""What the API says and takes, as values. The OpenAPI document is made from these, so they are documented."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

RunState = Literal["running", "paused", "finished", "stopped"]
SiteState = Literal["waiting", "fetching", "done", "stopped", "unreachable", "open"]
Outlook = Literal["none", "on-time", "tight", "at-risk", "late", "met", "missed"]
SortKey = Literal["urgency", "site", "deadline", "progress", "rate", "bytes", "failed"]

Rate = Annotated[float, Meta(ge=0, description="Bytes per second")]
At = Annotated[float, Meta(description="Seconds since 1970-01-01 UTC")]
Share = Annotated[float, Meta(ge=0, le=1)]
SiteName = Annotated[str, Meta(max_length=2000, description="Scheme, host and port: https://www.example.org")]


class LinkPoint(msgspec.Struct, frozen=True):
    """One second of the link."""

    at: At
    rate_bytes_per_s: Rate
    bound_bytes_per_s: Rate | None
    predicted_bytes_per_s: Rate | None


class ErrorCount(msgspec.Struct, frozen=True):
    state: Literal["failed", "waiting", "excluded"]
    """Given up, to be tried again, or passed over."""
    kind: str
    count: int


class Deadlines(msgspec.Struct, frozen=True):
    """How many deadlines are in which case."""

    met: int = 0
    on_time: int = 0
    tight: int = 0
    at_risk: int = 0
    late: int = 0
    missed: int = 0


class Collector(msgspec.Struct, frozen=True):
    name: str
    label: str
    joined_at: At | None
    sites: int
    """That it holds now."""
    received_bytes: int


class Run(msgspec.Struct, frozen=True):
    name: str
    state: RunState
    now: At
    started_at: At
    last_seen_at: At | None
    """When the crawl last wrote; the picture is as old as this."""
    sites: int
    sites_done: int
    done: int
    failed: int
    waiting: int
    in_flight: int
    wire_bytes: int
    rate_bytes_per_s: Rate
    mean_bytes_per_s: Rate
    """Over the last ten minutes."""
    bound_bytes_per_s: Rate | None
    bound_is_set_by_hand: bool
    predicted_bytes_per_s: Rate | None
    forecast_at: At | None
    """When the last site will probably end, at the latest."""
    deadlines: Deadlines
    errors: list[ErrorCount]
    collectors: list[Collector]
    """The processes that crawl, on this machine or on several."""
    takes_orders: bool
    """Whether it can be steered from here: not a crawl on a server, nor one by Scrapy spiders."""


class SiteLine(msgspec.Struct, frozen=True):
    number: int
    site: str
    state: SiteState
    outlook: Outlook
    progress: Share
    done: int
    failed: int
    waiting: int
    wire_bytes: int
    rate_bytes_per_s: Rate
    share_bytes_per_s: Rate | None
    deadline_at: At | None
    forecast_from_at: At | None
    forecast_to_at: At | None
    started_at: At | None
    ended_at: At | None


class SitePage(msgspec.Struct, frozen=True):
    total: int
    """Sites that fit the question, of which these are some."""
    offset: int
    sites: list[SiteLine]


class Now(msgspec.Struct, frozen=True):
    """Everything that the dashboard shows, in one answer."""

    run: Run
    link: list[LinkPoint]
    sites: SitePage


class CoursePoint(msgspec.Struct, frozen=True):
    at: At
    wire_bytes: int
    waiting: int
    left_bytes: float | None
    share_bytes_per_s: float | None
    forecast_from_at: At | None
    forecast_to_at: At | None


class OutcomeCount(msgspec.Struct, frozen=True):
    state: str
    kind: str
    count: int


class SiteDetail(msgspec.Struct, frozen=True):
    line: SiteLine
    course: list[CoursePoint]
    """At most 300 points."""
    outcomes: list[OutcomeCount]


class FailedPage(msgspec.Struct, frozen=True):
    url: str
    kind: str
    status: int
    detail: str
    at: At


class LogLine(msgspec.Struct, frozen=True):
    """An order, a foreseen delay or a change of the bound."""

    at: At
    decision: str
    text: str
    site: str = ""


class Happenings(msgspec.Struct, frozen=True):
    failures: list[FailedPage]
    log: list[LogLine]


class Pause(msgspec.Struct, frozen=True, tag_field="order", tag="pause", forbid_unknown_fields=True):
    """Ask for nothing more; what is under way may finish."""


class Resume(msgspec.Struct, frozen=True, tag_field="order", tag="resume", forbid_unknown_fields=True):
    pass


Quantity = Annotated[str, Meta(min_length=1, max_length=40)]


class SetBandwidth(
    msgspec.Struct, frozen=True, tag_field="order", tag="bandwidth", forbid_unknown_fields=True
):
    bandwidth: Quantity | None
    """Such as 5 Mbit/s; null: as the job says."""


class SetDeadline(msgspec.Struct, frozen=True, tag_field="order", tag="deadline", forbid_unknown_fields=True):
    site: SiteName
    deadline: Quantity | None
    """2 h from now, 07:30, or a date and time; null: none."""


class StopSite(msgspec.Struct, frozen=True, tag_field="order", tag="stop", forbid_unknown_fields=True):
    """For good; what was fetched stays."""

    site: SiteName


class AddSite(msgspec.Struct, frozen=True, tag_field="order", tag="add", forbid_unknown_fields=True):
    url: Annotated[str, Meta(min_length=1, max_length=2000)]
    deadline: Quantity | None = None
    max_pages: Annotated[int, Meta(ge=1, le=1_000_000_000)] | None = None


Wish = Pause | Resume | SetBandwidth | SetDeadline | StopSite | AddSite


class Accepted(msgspec.Struct, frozen=True):
    order: str
    takes_effect: Literal["within a second", "when the crawl is started again"]


class Problem(msgspec.Struct, frozen=True):
    """What was wrong, and what to do."""

    problem: str
