"""The keys of a job file as typed keyword arguments, and how values of Python become the text of a job.

`headway.config` declares each key with its default and its check. Here are only the types that a Python
program may use: a `timedelta` or a number of seconds in place of "15 s", a number of bytes for "1 GB".
"""

from __future__ import annotations

import datetime as dt
import difflib
import functools
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, ParamSpec, Required, TypedDict, TypeVar, get_args, get_type_hints

from headway import plugins
from headway.config.keys import closest, root_of
from headway.config.schema import SiteTable
from headway.errors import JobError
from headway.model.page import Page as QueuedPage
from headway.planning.policies import AllocationPolicy
from headway.policy.ordering import Ordering, ordering_text

P = ParamSpec("P")
T = TypeVar("T")

Duration = Annotated[str | float | dt.timedelta, "s"]
"""A length of time: "15 s", a number of seconds, or a `timedelta`."""
Size = Annotated[str | float, "B"]
"""An amount of data: "1 GB", or a number of bytes."""
Rate = Annotated[str | float, "B/s"]
"""A rate of data: "5 Mbit/s", or a number of bytes per second."""
Deadline = Annotated[str | float | dt.timedelta | dt.datetime, "s"]
"""By when: as in a job file ("2 h", "07:30"), a time from the start, or a `datetime` with a time zone."""


class OptionError(JobError, TypeError):
    """An argument that does not exist; the message suggests the nearest one that does."""


class TimetableEntry(TypedDict, total=False):
    """A bound on certain days and hours, as in `[[crawl.timetable]]`."""

    bandwidth: Required[Rate]
    days: str
    hours: str


class IdentityOptions(TypedDict, total=False):
    """A key that requests are signed with, as in `[crawl.identity]`."""

    folder: str | None
    sign: Literal["always", "on-challenge", "never"]


class Timeouts(TypedDict, total=False):
    """How long to wait for a server, as in `[crawl.timeouts]`."""

    connect: Duration
    first_byte: Duration
    idle: Duration
    low_speed_limit: Rate
    low_speed_time: Duration
    total: Duration


class Limits(TypedDict, total=False):
    """How much to accept of one response, as in `[crawl.limits]`."""

    head: Size
    body: Size
    decoded: Size
    extraction: Duration


class Quota(TypedDict, total=False):
    """How much may be fetched in a day or a month, as in `[crawl.quota]`."""

    day: Size
    month: Size


class Revisit(TypedDict, total=False):
    """When pages are visited again, as in `[crawl.revisit]`."""

    adapt: bool
    shortest: Duration
    longest: Duration
    bandwidth: Rate


class Scope(TypedDict, total=False):
    """Which pages belong to the crawl, as in `[crawl.scope]`."""

    hosts: Sequence[str]
    suffixes: Sequence[str]
    allow: Sequence[str]
    deny: Sequence[str]
    max_depth: int | None
    max_url_length: int
    queries: bool
    max_sites: int
    max_sites_per_domain: int
    max_pages_per_domain: int
    max_bytes_per_domain: Size
    max_sites_per_page: int


class ExtractField(TypedDict, total=False):
    """A field of an item, as in `[site.extract.fields]`."""

    css: str
    xpath: str
    type: Literal["text", "number", "url", "html"]
    all: bool
    join: str
    regex: str
    required: bool


class Extract(TypedDict, total=False):
    """What makes an item of a page, as in `[[site.extract]]`."""

    fields: Mapping[str, str | ExtractField]
    function: str | Callable[[str, str], Iterable[Mapping[str, Any]]] | None
    item: str
    pages: Sequence[str]
    each: str


class ScrapyOptions(TypedDict, total=False):
    """For `headway run-scrapy`, as in `[scrapy]`."""

    policy: str | None
    crawlers: int | None
    settings: Mapping[str, Any]


class CrawlOptions(TypedDict, total=False):
    """The keys of `[crawl]`. A key that is left out, or is None, has its default."""

    bandwidth: Rate | None
    bandwidth_up: Rate
    objective: Literal["max-completion", "sum-completion", "tardiness", "late-sites"]
    policy: str | AllocationPolicy
    crawlers: int | None
    user_agent: str
    contact: str | None
    strategy: str | Ordering | Callable[[], Ordering] | None
    scores: Mapping[str, float]
    scorer: str | Callable[[QueuedPage], float] | None
    ranks_from: str | None
    interval: Duration
    server_interval: Duration | None
    domain_interval: Duration | None
    per_server_connections: int
    server_networks: bool
    max_server_interval: Duration
    pages_per_connection: int
    max_connections: int
    max_connections_per_server: int | None
    max_connections_per_domain: int | None
    memory: Size | None
    max_attempts: int
    retry_penalty: Duration
    backoff: Duration
    max_backoff: Duration
    max_crawl_delay: Duration
    accept: Sequence[str]
    sitemaps: bool
    feeds: bool
    every: Duration | None
    stop_at_deadline: bool
    max_pages: int | None
    max_bytes: Size | None
    respect: Sequence[Literal["search", "archive", "ai-input", "ai-train", "tdm"]]
    respect_robots: bool
    respect_rel_nofollow: bool
    max_links: int
    traps: bool
    near_duplicates: bool
    mirrors: Literal["report", "skip", "ignore"]
    digest: Literal["sha1", "sha256"]
    allow_private: bool
    verify_tls: bool
    ca_file: str | None
    proxy: str | None
    no_proxy: Sequence[str]
    timezone: str | None
    background: bool
    waiting_in_memory: int
    sites_from: str
    admission_depth: int | None
    country: str | None
    holidays: Sequence[str]
    timetable: Sequence[TimetableEntry]
    identity: IdentityOptions
    timeouts: Timeouts
    limits: Limits
    scope: Scope
    quota: Quota
    revisit: Revisit


Window = TypedDict(
    "Window",
    {
        "from": "Required[str]",
        "until": "Required[str]",
        "days": "str",
        "timezone": "str | None",
        "grace": "Duration",
    },
    total=False,
)
"""When a site, a group or the crawl may be crawled, as in `[[window]]`."""


class Login(TypedDict, total=False):
    """A login by form, as in `[site.login]`."""

    url: Required[str]
    fields: Required[Mapping[str, str]]
    success: str | None


class SharedOptions(TypedDict, total=False):
    """What a site can have of its own, and a group for all its sites."""

    deadline: Deadline | None
    stop_at_deadline: bool | None
    weight: float | None
    max_pages: int | None
    max_bytes: Size | None
    cap: Rate | None
    interval: Duration | None
    strategy: str | None
    prefix: str | None
    allow: Sequence[str]
    deny: Sequence[str]
    max_depth: int | None
    queries: bool | None
    ports: Sequence[int]
    sitemaps: Sequence[str]
    respect_robots: bool | None
    robots_reason: str | None
    user_agent: str | None
    headers: Mapping[str, str]
    cookies: bool | None
    basic_auth: str | None
    bearer_token: str | None
    login: Login | None
    archive_secrets: bool | None
    window: Sequence[Window]


class Group(SharedOptions, total=False):
    """Settings that several sites share, as in `[[group]]`."""

    name: Required[str]


class SiteOptions(SharedOptions, total=False):
    """The keys of a `[[site]]` table but `url`."""

    group: str | None
    seeds: Sequence[str]
    data: Size | None
    extract: Sequence[Extract]
    spider: str | None
    arguments: Mapping[str, str]


def checks_keywords(function: Callable[P, T]) -> Callable[P, T]:
    """Refuse a keyword that the function does not have, with the nearest one that it has.

    Python's own message names the nearest one only from version 3.13 on.
    """
    known = [name for name in inspect.signature(function).parameters if name != "self"]
    where = f"{function.__qualname__.removesuffix('.__init__')}()"
    return checked_by(function, known, lambda key: no_such_argument(where, key, known))


def checked_by(
    function: Callable[P, T], known: Collection[str], problem: Callable[[str], Exception]
) -> Callable[P, T]:
    """The function, which raises `problem` of an unknown keyword before Python misses other arguments."""

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> T:
        for key in kwargs:
            if key not in known:
                raise problem(key)
        return function(*args, **kwargs)

    return checked


def no_such_argument(where: str, key: str, known: Collection[str]) -> OptionError:
    """Most arguments of functions are keys of a site: those are known by other names as well."""
    by_alias = closest(key, root_of(SiteTable))
    near = [by_alias] if by_alias in known else difflib.get_close_matches(key, known, n=1, cutoff=0.7)
    hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(sorted(known))}"
    return OptionError(f"{where} has no argument {key!r}; {hint}")


def as_table(options: Mapping[str, object], shape: type) -> dict[str, Any]:
    """Options as a table of a job file: durations, sizes, rates and instants as text.

    A key that `shape` does not have is left as it is: the check of the job names it.
    """
    hints = _hints(shape)
    return {
        key: _OBJECTS[key](value) if key in _OBJECTS else _as_value(value, hints.get(key))
        for key, value in options.items()
    }


def as_text(value: object, kind: object) -> object:
    """One quantity as a job file has it; what is text already, or no quantity, stays as it is."""
    if isinstance(value, dt.datetime):
        if value.tzinfo is None:
            raise JobError(
                f"{value!r} has no time zone: give one, such as tzinfo=datetime.UTC, or write the time as"
                f" text, {value.isoformat()!r}, to have it read in the job's own time zone"
            )
        return value.isoformat()
    unit = _unit_of(kind)
    if unit is None or isinstance(value, bool):
        return value
    if isinstance(value, dt.timedelta):
        value = value.total_seconds()
    if isinstance(value, float):
        return f"{float(value)!r} {unit}"  # NumPy's own floats have another repr
    return f"{value} {unit}" if isinstance(value, int) else value


def _as_value(value: object, kind: object) -> Any:
    if isinstance(value, Mapping):
        shape = _table_in(kind)
        return dict(value) if shape is None else as_table(value, shape)
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_as_value(each, kind) for each in value]
    return as_text(value, kind)


def _function_text(function: object) -> str | None:
    if isinstance(function, str | None):
        return function
    return plugins.text_of(function, is_made=plugins.is_function)


_OBJECTS: dict[str, Callable[[Any], object]] = {
    "strategy": ordering_text,
    "scorer": _function_text,
    "policy": _function_text,
    "function": _function_text,
}
"""Keys whose values may be objects of the user; in a job they are texts."""


@functools.cache
def _hints(shape: type) -> dict[str, Any]:
    return get_type_hints(shape, include_extras=True)


def _unit_of(kind: object) -> str | None:
    """Of `Duration`, `Size`, `Rate` or `Deadline`, or of a union with one of them."""
    units = [text for text in getattr(kind, "__metadata__", ()) if isinstance(text, str)]
    if units:
        return units[0]
    return next((unit for part in get_args(kind) if (unit := _unit_of(part))), None)


def _table_in(kind: object) -> type | None:
    """The table of options that a type is or holds."""
    if isinstance(kind, type) and hasattr(kind, "__total__"):
        return kind
    return next((table for part in get_args(kind) if (table := _table_in(part))), None)
