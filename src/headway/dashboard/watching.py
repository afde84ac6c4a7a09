"""A run as it is now, read from its folder at most once a second however many look on."""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import msgspec
from msgspec import structs

from headway.app.limit import LIMIT_FILE
from headway.dashboard.answers import (
    Collector,
    CoursePoint,
    Deadlines,
    ErrorCount,
    FailedPage,
    LinkPoint,
    OutcomeCount,
    Outlook,
    Run,
    RunState,
    SiteDetail,
    SiteLine,
    SitePage,
    SiteState,
)
from headway.dashboard.asking import SiteQuestion, choose
from headway.dashboard.happenings import LogTail
from headway.store.onlooker import CollectorNow, SampleNow, SiteNow, open_onlooker

LINK_S = 600
_FRESH_S = 4.0
"""A crawl that runs writes every second; one that has been silent for longer is busy, gone or asleep."""
_RATE_OVER_S = 4.0
_READ_EVERY_S = 0.8
_MOST_OF_A_CORE = 0.02
_MOST_PAGES_KEPT = 50
_COUNT_EVERY_S = 8.0
"""What is counted over all sites or pages is not counted every second."""
_MOST_COURSE_POINTS = 300
_SHORTEST_S = 0.5


class Picture(msgspec.Struct, frozen=True):
    run: Run
    link: list[LinkPoint]
    sites: list[SiteLine]


class _Sums(msgspec.Struct, frozen=True):
    sites_done: int = 0
    done: int = 0
    failed: int = 0
    waiting: int = 0
    wire_bytes: int = 0
    forecast_at: float | None = None
    deadlines: Deadlines = Deadlines()


class Watching:
    """Use from one thread. `picture` reads anew when the last one is older than most of a second."""

    def __init__(self, run: Path | str, clock: Callable[[], float] = time.time) -> None:
        self._onlooker = open_onlooker(run)
        self._folder = run if isinstance(run, Path) else None
        self._clock = clock
        self._began_at, self.job = self._onlooker.crawl()
        self._picture: Picture | None = None
        self._read_at = -math.inf
        self._earlier: deque[tuple[float, dict[int, int]]] = deque()
        self._collectors: list[CollectorNow] = []
        self._errors_at = self._waiting_at = self._sites_at = -math.inf
        self._sites_every_s = _READ_EVERY_S
        self._is_live = False
        self._sites: list[SiteLine] = []
        self._sums = _Sums()
        self._mean_bytes_per_s = 0.0
        self._pages: dict[SiteQuestion, SitePage] = {}
        self._waiting: dict[int, int] = {}
        self._counted: list[ErrorCount] = []
        self.log = LogTail(self._folder)

    def close(self) -> None:
        self._onlooker.close()

    def picture(self) -> Picture:
        now = self._clock()
        if self._picture is None or not 0 <= now - self._read_at < _READ_EVERY_S:
            self._read_at = now
            self._picture = self._read(now)
        return self._picture

    def page(self, question: SiteQuestion) -> SitePage:
        """Some of the sites; the same question is answered once for all who ask it."""
        lines = self.picture().sites
        asked = SiteQuestion(**{field: getattr(question, field) for field in SiteQuestion.__struct_fields__})
        if asked not in self._pages:
            if len(self._pages) >= _MOST_PAGES_KEPT:
                self._pages.clear()
            self._pages[asked] = choose(lines, asked)
        return self._pages[asked]

    def detail(self, number: int) -> SiteDetail | None:
        line = next((line for line in self.picture().sites if line.number == number), None)
        if line is None:
            return None
        course = self._onlooker.course(number)
        step = max(1, math.ceil(len(course) / _MOST_COURSE_POINTS))
        points = [CoursePoint(*structs.astuple(row)) for row in course[::-step][::-1]]
        return SiteDetail(line, points, [OutcomeCount(*row) for row in self._onlooker.site_outcomes(number)])

    def failures(self, most: int) -> list[FailedPage]:
        return [
            FailedPage(failure.url, failure.kind, failure.status, failure.detail, failure.at)
            for failure in self._onlooker.last_failures(most)
        ]

    def is_running(self) -> bool:
        return self.picture().run.state in {"running", "paused"}

    def knows(self, site: str) -> bool:
        return any(line.site == site for line in self.picture().sites)

    # -- reading ----------------------------------------------------------------------------------------

    def _read(self, now: float) -> Picture:
        samples = self._onlooker.last_samples(LINK_S + 1)
        last = samples[-1] if samples else None
        self._collectors = self._onlooker.collectors()
        is_live = bool(self._collectors) and (last is None or abs(now - last.at) < _FRESH_S)
        if is_live != self._is_live or not 0 <= now - self._sites_at < self._sites_every_s:
            self._read_sites(now, last, is_live=is_live)
        link = link_points(samples)
        self._mean_bytes_per_s = mean_rate(samples)
        return Picture(self._run(now, last, link), link, self._sites)

    def _read_sites(self, now: float, last: SampleNow | None, *, is_live: bool) -> None:
        """All sites anew. Many take a while, and are read the less often: looking on is to cost nobody."""
        begun_s = time.thread_time()
        rows = self._rows(now, last)
        rates = self._site_rates(now, rows) if is_live else {}
        self._sites = [_line(now, row, rates.get(row.number, 0.0), is_live=is_live) for row in rows]
        self._sums = _sums(self._sites)
        self._pages.clear()
        self._sites_at, self._is_live = now, is_live
        self._sites_every_s = max(_READ_EVERY_S, (time.thread_time() - begun_s) / _MOST_OF_A_CORE)

    def _rows(self, now: float, last: SampleNow | None) -> list[SiteNow]:
        """The sites; where nobody has written down what waits (several processes crawl), it is counted."""
        rows = self._onlooker.sites()
        if last is not None and last.waiting is not None:
            return rows
        if not 0 <= now - self._waiting_at < _COUNT_EVERY_S:
            self._waiting_at = now
            self._waiting = self._onlooker.waiting()
        return [structs.replace(row, waiting=self._waiting.get(row.number, 0)) for row in rows]

    def _state(self, last: SampleNow | None) -> RunState:
        if self._is_live:
            return "paused" if last is not None and last.is_paused else "running"
        return "finished" if self._sites and self._sums.sites_done == len(self._sites) else "stopped"

    def _site_rates(self, now: float, rows: Sequence[SiteNow]) -> dict[int, float]:
        """Bytes per second over the last few seconds, of those sites that gave any."""
        counts = {row.number: row.wire_bytes for row in rows}
        self._earlier.append((now, counts))
        while len(self._earlier) > 2 and now - self._earlier[1][0] >= _RATE_OVER_S:
            self._earlier.popleft()
        then, before = self._earlier[0]
        if now <= then:
            return {}
        return {
            number: (count - before.get(number, 0)) / (now - then)
            for number, count in counts.items()
            if count > before.get(number, 0)
        }

    def _run(self, now: float, last: SampleNow | None, link: Sequence[LinkPoint]) -> Run:
        state, is_live, sums = self._state(last), self._is_live, self._sums
        bound = None if last is None or not math.isfinite(last.capacity_bytes_per_s) else last
        return Run(
            name=self._onlooker.name,
            state=state,
            now=now,
            started_at=self._began_at,
            last_seen_at=last.at if last is not None else None,
            sites=len(self._sites),
            sites_done=sums.sites_done,
            done=sums.done,
            failed=sums.failed,
            waiting=last.waiting if last is not None and last.waiting is not None else sums.waiting,
            in_flight=last.in_flight or 0 if last is not None and is_live else 0,
            wire_bytes=sums.wire_bytes,
            rate_bytes_per_s=link[-1].rate_bytes_per_s if link and is_live else 0.0,
            mean_bytes_per_s=self._mean_bytes_per_s,
            bound_bytes_per_s=bound.capacity_bytes_per_s if bound is not None else None,
            bound_is_set_by_hand=self._folder is not None and (self._folder / LIMIT_FILE).exists(),
            predicted_bytes_per_s=last.predicted_bytes_per_s if last is not None and is_live else None,
            forecast_at=sums.forecast_at if is_live else None,
            deadlines=sums.deadlines,
            errors=self._errors(now),
            collectors=[Collector(*structs.astuple(each)) for each in self._collectors] if is_live else [],
            # Who does not count what is under way (run-scrapy) looks at no orders.
            takes_orders=self._folder is not None
            and not (is_live and last is not None and last.in_flight is None),
        )

    def _errors(self, now: float) -> list[ErrorCount]:
        if not 0 <= now - self._errors_at < _COUNT_EVERY_S:
            self._errors_at = now
            self._counted = [
                ErrorCount(state, kind, count)  # type: ignore[arg-type]
                for state, kind, count in self._onlooker.outcomes()
            ]
        return self._counted


def link_points(samples: Sequence[SampleNow]) -> list[LinkPoint]:
    """Rates between samples; where the counter went back, the crawl was taken up by a new process."""
    points = []
    for before, after in _steps(samples):
        if after.at - before.at < _SHORTEST_S:
            continue
        bound = after.capacity_bytes_per_s
        rate = (after.wire_bytes - before.wire_bytes) / (after.at - before.at)
        points.append(
            LinkPoint(after.at, rate, bound if math.isfinite(bound) else None, after.predicted_bytes_per_s)
        )
    return points


def mean_rate(samples: Sequence[SampleNow]) -> float:
    """By how long each step was, as in the report and in the summary."""
    steps = list(_steps(samples))
    carried = sum(after.wire_bytes - before.wire_bytes for before, after in steps)
    return carried / sum(after.at - before.at for before, after in steps) if steps else 0.0


def _steps(samples: Sequence[SampleNow]) -> Iterator[tuple[SampleNow, SampleNow]]:
    for before, after in pairwise(samples):
        if after.wire_bytes >= before.wire_bytes and after.at > before.at:
            yield before, after


def _sums(sites: Sequence[SiteLine]) -> _Sums:
    outlooks = Counter(line.outlook for line in sites)
    return _Sums(
        sum(line.state in {"done", "stopped", "unreachable"} for line in sites),
        sum(line.done for line in sites),
        sum(line.failed for line in sites),
        sum(line.waiting for line in sites),
        sum(line.wire_bytes for line in sites),
        max((line.forecast_to_at for line in sites if line.forecast_to_at is not None), default=None),
        Deadlines(**{name.replace("-", "_"): count for name, count in outlooks.items() if name != "none"}),
    )


def _line(now: float, row: SiteNow, rate_bytes_per_s: float, *, is_live: bool) -> SiteLine:
    state = _site_state(row, rate_bytes_per_s, is_live=is_live)
    is_over = state in {"done", "stopped", "unreachable"}
    waiting = 0 if is_over else row.waiting
    ahead = is_live and not is_over
    return SiteLine(
        row.number,
        row.site,
        state,
        _outlook(now, row, is_live=is_live, is_over=is_over),
        _progress(row, waiting, is_over=is_over),
        row.done,
        row.failed,
        waiting,
        row.wire_bytes,
        0.0 if is_over else rate_bytes_per_s,
        row.share_bytes_per_s if ahead else None,
        row.deadline_at,
        row.forecast_from_at if ahead else None,
        row.forecast_to_at if ahead else None,
        row.started_at,
        row.ended_at if is_over else None,
    )


def _site_state(row: SiteNow, rate_bytes_per_s: float, *, is_live: bool) -> SiteState:
    if row.ended_at is not None:
        if row.is_stopped:
            return "stopped"
        return "unreachable" if not row.done and row.failed else "done"
    if not is_live:
        return "open"
    return "fetching" if rate_bytes_per_s > 0 else "waiting"


def _outlook(now: float, row: SiteNow, *, is_live: bool, is_over: bool) -> Outlook:
    deadline_at = row.deadline_at
    if deadline_at is None:
        return "none"
    if is_over:
        is_met = row.ended_at is not None and row.ended_at <= deadline_at and bool(row.done or not row.failed)
        return "met" if is_met else "missed"
    if now > deadline_at:
        return "late" if is_live else "missed"
    if not is_live or row.forecast_from_at is None or row.forecast_to_at is None:
        return "on-time" if is_live else "none"
    if row.forecast_from_at > deadline_at:
        return "at-risk"
    return "tight" if row.forecast_to_at > deadline_at else "on-time"


def _progress(row: SiteNow, waiting: int, *, is_over: bool) -> float:
    """By bytes where it is estimated what is left, else by pages."""
    if is_over:
        return 1.0
    if row.left_bytes is not None and row.wire_bytes + row.left_bytes > 0:
        return row.wire_bytes / (row.wire_bytes + row.left_bytes)
    settled = row.done + row.failed
    return settled / (settled + waiting) if settled + waiting else 0.0
