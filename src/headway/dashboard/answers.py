"""The state of a run as the answers of the API: parameters and results as values, filters and sort orders.

The state is read from the run's folder at most once a second, however many clients there are. The OpenAPI
document is made from the types of the answers."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta, structs

from headway.engine.decisions import advice_of
from headway.runtime.control import LIMIT_FILE
from headway.store.run_folder import DECISIONS
from headway.units import format_duration, format_rate
from headway.view.link import LinkSecond
from headway.view.run import Outlook, Phase, RunMonitor, RunState, RunView, SiteState

SortKey = Literal["urgency", "site", "deadline", "progress", "rate", "bytes", "failed"]

Rate = Annotated[float, Meta(ge=0, description="Bytes per second")]
At = Annotated[float, Meta(description="Seconds since 1970-01-01 UTC")]
Share = Annotated[float, Meta(ge=0, le=1)]
SiteName = Annotated[str, Meta(max_length=2000, description="Scheme, host and port: https://www.example.org")]


class LinkPoint(msgspec.Struct, frozen=True):
    """One second of the link."""

    at: At
    """When it ended."""
    rate_bytes_per_s: Rate
    bound_bytes_per_s: Rate | None
    """The mean of the bounds that held in it."""
    predicted_bytes_per_s: Rate | None
    length_s: float
    """A second is longer if the samples were further apart."""


class ErrorCount(msgspec.Struct, frozen=True):
    state: Literal["failed", "waiting", "excluded"]
    """Failed, to be retried, or excluded."""
    kind: str
    count: int


class Deadlines(msgspec.Struct, frozen=True):
    """How many deadlines are in which state."""

    met: int = 0
    on_time: int = 0
    tight: int = 0
    at_risk: int = 0
    late: int = 0
    missed: int = 0
    open: int = 0
    """In the future, for sites that are not being crawled now."""


class Collector(msgspec.Struct, frozen=True):
    name: str
    label: str
    joined_at: At | None
    sites: int
    """Whether it is in force now."""
    received_bytes: int


class Run(msgspec.Struct, frozen=True):
    name: str
    state: RunState
    now: At
    started_at: At
    last_seen_at: At | None
    """When the crawl last wrote; the data is as old as this."""
    elapsed_s: float
    """From the start to the last sign of the crawl, including the time between two sessions."""
    active_s: float
    """The part of it in which the crawl ran."""
    sittings: int
    sites: int
    sites_done: int
    done: int
    failed: int
    waiting: int
    in_flight: int
    wire_bytes: int
    """Of settled pages."""
    received_bytes: int
    """All bytes that crossed the link."""
    rate_bytes_per_s: Rate
    mean_bytes_per_s: Rate
    """Over the time in which the crawl ran."""
    max_bytes_per_s: Rate
    """The highest second."""
    use_of_bound: float | None
    """Bytes received under a bound, as a share of what it allowed."""
    most_over_bound: float | None
    """The highest second relative to its bound, as a share of it; negative if all were under."""
    bound_bytes_per_s: Rate | None
    bound_is_set_by_hand: bool
    predicted_bytes_per_s: Rate | None
    forecast_at: At | None
    """The latest end of the crawl, by the forecast."""
    forecast_from_at: At | None
    """The earliest end: four of five crawls end between this and `forecast_at`."""
    forecast_middle_at: At | None
    deadlines: Deadlines
    errors: list[ErrorCount]
    collectors: list[Collector]
    """The crawling processes, on this machine or on several."""
    takes_orders: bool
    """Whether it can be controlled from here: not a crawl on a server."""


class SiteLine(msgspec.Struct, frozen=True):
    number: int
    site: str
    state: Phase
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
    """Four of five sites end between `forecast_from_at` and this."""
    forecast_at: At | None
    deadline_chance: float | None
    """The probability that the deadline holds."""
    started_at: At | None
    ended_at: At | None


class SitePage(msgspec.Struct, frozen=True):
    total: int
    """The number of sites that match the filter, of which these are some."""
    offset: int
    sites: list[SiteLine]


class Now(msgspec.Struct, frozen=True):
    """All data of the dashboard in one answer."""

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
    """An order, a forecast delay or a change of the bound."""

    at: At
    decision: str
    text: str
    site: str = ""


class Happenings(msgspec.Struct, frozen=True):
    failures: list[FailedPage]
    log: list[LogLine]


class Pause(msgspec.Struct, frozen=True, tag_field="order", tag="pause", forbid_unknown_fields=True):
    """Send no more requests; those in flight may finish."""


class Resume(msgspec.Struct, frozen=True, tag_field="order", tag="resume", forbid_unknown_fields=True):
    pass


Quantity = Annotated[str, Meta(min_length=1, max_length=40)]


class SetBandwidth(
    msgspec.Struct, frozen=True, tag_field="order", tag="bandwidth", forbid_unknown_fields=True
):
    bandwidth: Quantity | None
    """Such as 5 Mbit/s; null: as in the job."""


class SetDeadline(msgspec.Struct, frozen=True, tag_field="order", tag="deadline", forbid_unknown_fields=True):
    site: SiteName
    deadline: Quantity | None
    """2 h from now, 07:30, or a date and time; null: none."""


class StopSite(msgspec.Struct, frozen=True, tag_field="order", tag="stop", forbid_unknown_fields=True):
    """Permanently; fetched pages are kept."""

    site: SiteName


class AddSite(msgspec.Struct, frozen=True, tag_field="order", tag="add", forbid_unknown_fields=True):
    url: Annotated[str, Meta(min_length=1, max_length=2000)]
    deadline: Quantity | None = None
    max_pages: Annotated[int, Meta(ge=1, le=1_000_000_000)] | None = None


OrderRequest = Pause | Resume | SetBandwidth | SetDeadline | StopSite | AddSite


class Accepted(msgspec.Struct, frozen=True):
    order: str
    takes_effect: Literal["within a second", "when the crawl is started again"]


class Problem(msgspec.Struct, frozen=True):
    """What was wrong, and what to do."""

    problem: str


_URGENCY = {"late": 0, "at-risk": 1, "missed": 2, "tight": 3, "on-time": 4, "none": 5, "met": 6}
_OVER = {"done", "stopped", "unreachable"}


After = Annotated[float, Meta(ge=0, le=1e12, description="Only what came after this instant")]


class SiteQuestion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    sort: SortKey = "urgency"
    descending: bool = False
    state: Phase | Outlook | None = None
    contains: Annotated[str, Meta(max_length=200)] = ""
    offset: Annotated[int, Meta(ge=0, le=10**9)] = 0
    limit: Annotated[int, Meta(ge=1, le=200)] = 50


class NowQuestion(SiteQuestion, frozen=True, forbid_unknown_fields=True):
    after: After = 0.0


class ListQuestion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=200)] = 50


class BadQuestionError(Exception):
    """Its text names the invalid parameter and the reason."""


def read_question(parameters: Iterable[tuple[str, str]], kind: type[Any]) -> Any:
    """The query parameters of a URL; each at most once, none unknown."""
    given: dict[str, str] = {}
    for name, value in parameters:
        if name in given:
            raise BadQuestionError(f"the parameter {name!r} appears twice")
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


_READ_BYTES = 8 * 1024 * 1024
_KEPT = 200
_INTERESTING = (b'"foresee-', b'"order-', b'"set-capacity"', b'"finish"')


class LogTail:
    """Entries of the decision log for people: orders, forecast delays, changes of the bound.

    The log has a line for every page, so only new lines are read, and of an old log only the end.
    """

    def __init__(self, folder: Path | None) -> None:
        """None: a crawl without a folder, whose collectors keep their logs."""
        self._path = folder / DECISIONS if folder is not None else None
        self._position = 0
        self._lines: deque[LogLine] = deque(maxlen=_KEPT)

    def newest(self, most: int) -> list[LogLine]:
        """The newest first."""
        self._read_on()
        return list(self._lines)[::-1][:most]

    def _read_on(self) -> None:
        if self._path is None:
            return
        try:
            size = self._path.stat().st_size
            if size < self._position:  # truncated when the crawl was resumed
                self._position = 0
                self._lines.clear()
            if size == self._position:
                return
            with self._path.open("rb") as file:
                skipped = size - self._position > _READ_BYTES
                file.seek(size - _READ_BYTES if skipped else self._position)
                text = file.read()
                end = file.tell()
        except OSError:
            return
        whole = text[: text.rfind(b"\n") + 1]
        self._position = end - (len(text) - len(whole))
        lines = whole.splitlines()
        for line in lines[1:] if skipped else lines:
            if any(word in line[:80] for word in _INTERESTING) and (shown := _shown_line(line)) is not None:
                self._lines.append(shown)


def _shown_line(line: bytes) -> LogLine | None:
    try:
        facts: dict[str, Any] = msgspec.json.decode(line)
        return LogLine(facts["at"], facts["decision"], _text(facts), facts.get("site", ""))
    except (msgspec.DecodeError, KeyError, TypeError):
        return None


def _text(facts: dict[str, Any]) -> str:
    refusal = facts.get("reason", "")
    match facts["decision"]:
        case "foresee-late":
            late_s = facts["until"] - facts["deadline_at"]
            cure = advice_of(refusal, facts.get("needed_bytes_per_s"))
            return f"will be about {format_duration(late_s)} late; {cure}"
        case "foresee-on-time":
            return "is on time again by the forecast"
        case "set-capacity":
            bound = facts.get("capacity_bytes_per_s")
            return f"the bound is {format_rate(bound)}" if bound is not None else "there is no bound"
        case "finish":
            return "the crawl ended"
        case "order-pause":
            return "ordered: pause"
        case "order-resume":
            return "ordered: resume"
        case "order-stop":
            return f"ordered: stop; refused: {refusal}" if refusal else "ordered: stop this site"
        case "order-add":
            return "ordered: add this site"
        case "order-deadline":
            if refusal:
                return f"ordered: another deadline; refused: {refusal}"
            at = facts.get("deadline_at")
            left_s = at - facts["at"] if at is not None else None
            return f"ordered: {format_duration(left_s)} from then" if left_s else "ordered: no deadline"
        case other:
            return str(other)


_MOST_PAGES_KEPT = 50
_MOST_COURSE_POINTS = 300


class Picture(msgspec.Struct, frozen=True):
    run: Run
    link: list[LinkPoint]
    sites: list[SiteLine]


class WatchedRun:
    """Use it from one thread. The run is read at most once within most of a second, for any number of
    clients."""

    def __init__(self, run: Path | str, clock: Callable[[], float] = time.time) -> None:
        self._monitor = RunMonitor(run, clock=clock)
        self._folder = run if isinstance(run, Path) else None
        self.job = self._monitor.job
        self._view: RunView | None = None
        self._picture: Picture | None = None
        self._pages: dict[SiteQuestion, SitePage] = {}
        self.log = LogTail(self._folder)

    def close(self) -> None:
        self._monitor.close()

    def picture(self) -> Picture:
        view = self._monitor.view()
        if self._picture is None or view is not self._view:
            has_same_sites = self._view is not None and view.sites is self._view.sites
            if self._picture is None or not has_same_sites:
                self._pages.clear()
                sites = [_line(site) for site in view.sites]
            else:
                sites = self._picture.sites
            self._view = view
            self._picture = Picture(self._run(view), [_point(second) for second in view.seconds], sites)
        return self._picture

    def page(self, question: SiteQuestion) -> SitePage:
        """Some of the sites; the same query is answered once for all clients."""
        lines = self.picture().sites
        fields = SiteQuestion.__struct_fields__
        asked = SiteQuestion(**{field: getattr(question, field) for field in fields})
        if asked not in self._pages:
            if len(self._pages) >= _MOST_PAGES_KEPT:
                self._pages.clear()
            self._pages[asked] = choose(lines, asked)
        return self._pages[asked]

    def detail(self, number: int) -> SiteDetail | None:
        line = next((line for line in self.picture().sites if line.number == number), None)
        if line is None:
            return None
        course = self._monitor.reader.course(number)
        step = max(1, math.ceil(len(course) / _MOST_COURSE_POINTS))
        points = [CoursePoint(*structs.astuple(row)) for row in course[::-step][::-1]]
        return SiteDetail(
            line, points, [OutcomeCount(*row) for row in self._monitor.reader.site_outcomes(number)]
        )

    def failures(self, most: int) -> list[FailedPage]:
        return [
            FailedPage(failure.url, failure.kind, failure.status, failure.detail, failure.at)
            for failure in self._monitor.reader.last_failures(most)
        ]

    def is_running(self) -> bool:
        return self.picture().run.state in {"running", "paused"}

    def knows(self, site: str) -> bool:
        return any(line.site == site for line in self.picture().sites)

    def _run(self, view: RunView) -> Run:
        folder = self._folder
        link = view.link
        return Run(
            name=view.name,
            state=view.state,
            now=view.now,
            started_at=view.started_at,
            last_seen_at=view.last_seen_at,
            elapsed_s=view.elapsed_s,
            active_s=link.active_s,
            sittings=link.sittings,
            sites=view.site_count,
            sites_done=view.sites_done,
            done=view.done,
            failed=view.failed,
            waiting=view.waiting,
            in_flight=view.in_flight,
            wire_bytes=view.wire_bytes,
            received_bytes=link.received_bytes,
            rate_bytes_per_s=view.rate_bytes_per_s,
            mean_bytes_per_s=link.mean_bytes_per_s,
            max_bytes_per_s=link.max_bytes_per_s,
            use_of_bound=link.use_of_bound,
            most_over_bound=link.most_over_bound,
            bound_bytes_per_s=view.bound_bytes_per_s,
            bound_is_set_by_hand=folder is not None and (folder / LIMIT_FILE).exists(),
            predicted_bytes_per_s=view.predicted_bytes_per_s,
            forecast_at=view.forecast_at,
            forecast_from_at=view.forecast_from_at,
            forecast_middle_at=view.forecast_middle_at,
            deadlines=Deadlines(**structs.asdict(view.deadlines)),
            errors=[ErrorCount(*structs.astuple(each)) for each in view.errors],
            collectors=[Collector(*structs.astuple(each)) for each in view.collectors],
            takes_orders=folder is not None and (view.counts_in_flight or not view.is_live),
        )


def _point(second: LinkSecond) -> LinkPoint:
    bound = second.bound_bytes_per_s
    return LinkPoint(
        second.at,
        second.rate_bytes_per_s,
        bound if math.isfinite(bound) else None,
        second.predicted_bytes_per_s,
        second.length_s,
    )


def _line(site: SiteState) -> SiteLine:
    return SiteLine(
        number=site.number,
        site=site.site,
        state=site.phase,
        outlook=site.outlook,
        progress=site.progress,
        done=site.done,
        failed=site.failed,
        waiting=site.waiting,
        wire_bytes=site.wire_bytes,
        rate_bytes_per_s=site.rate_bytes_per_s,
        share_bytes_per_s=site.share_bytes_per_s,
        deadline_at=site.deadline_at,
        forecast_from_at=site.forecast_from_at,
        forecast_to_at=site.forecast_to_at,
        forecast_at=site.forecast_at,
        deadline_chance=site.deadline_chance,
        started_at=site.started_at,
        ended_at=site.ended_at,
    )
