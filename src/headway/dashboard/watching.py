"""The present state of a run, read from its folder at most once a second however many clients there are."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from headway.dashboard.answers import (
    Collector,
    CoursePoint,
    Deadlines,
    ErrorCount,
    FailedPage,
    LinkPoint,
    LogLine,
    OutcomeCount,
    Run,
    SiteDetail,
    SiteLine,
    SitePage,
    SiteQuestion,
    choose,
)
from headway.engine.decisions import advice_of
from headway.runtime.control import LIMIT_FILE
from headway.store.run_folder import DECISIONS
from headway.units import format_duration, format_rate
from headway.view.link import LinkSecond
from headway.view.run import RunMonitor, RunView, SiteState

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
