"""A run at an instant: `RunView` has every number that a person or a program sees of it.

`RunMonitor` makes views of a run folder or of a crawl on a PostgreSQL server, running or not; `view.live`
makes them of an engine in this process. Everything that shows a run takes its numbers from a view, so two
displays can differ only by the instant at which they were made. `docs/reference/figures.md` defines each
number.
"""

from __future__ import annotations

import math
import re
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec
from msgspec import structs

from headway.policy.politeness import TROUBLE
from headway.store.reader import CollectorNow, Sample, SiteGroup, SiteNow, open_live_reader
from headway.view.link import LinkFigures, LinkMeter, LinkSecond, sharing_log_of

RunState = Literal["running", "paused", "finished", "stopped"]
Phase = Literal["waiting", "fetching", "done", "stopped", "unreachable", "open"]
Outlook = Literal["none", "on-time", "tight", "at-risk", "late", "met", "missed"]

SECONDS_KEPT = 600
_FRESH_S = 5.0
"""A running crawl writes a sample every second. After a longer silence it counts as not running."""
_RATE_OVER_S = 4.0
_READ_EVERY_S = 0.8
_MAX_CPU_SHARE = 0.02
"""Of one core, for reading all sites."""
_COUNT_EVERY_S = 8.0
"""For queries that count over all pages."""
FAILURES = frozenset({"missed", "unreachable", "failed"})
"""Verdicts on sites that were not crawled, whether or not they have a deadline."""
_FEW_FOLD = 10
"""With at most so many times the sites that a view shows, all are read."""
_OVER = frozenset({"done", "stopped", "unreachable"})


class SiteState(msgspec.Struct, frozen=True, gc=False):
    """A site at the instant of the view. Instants are seconds since 1970, or None if not known."""

    site: str
    phase: Phase
    outlook: Outlook
    """The state of its deadline."""
    done: int
    failed: int
    waiting: int
    """Pages to be fetched, without pages that wait for the day of their next visit."""
    wire_bytes: int
    began_at: float
    """The start of the crawl. The properties that end in `_s` count from it."""
    deadline_at: float | None = None
    started_at: float | None = None
    ended_at: float | None = None
    """When its last page settled; None while there are pages to fetch."""
    rate_bytes_per_s: float = 0.0
    share_bytes_per_s: float | None = None
    left_bytes: float | None = None
    forecast_from_at: float | None = None
    forecast_to_at: float | None = None
    """Four of five sites end between `forecast_from_at` and this."""
    forecast_at: float | None = None
    """When it will end, by what is known now: as many sites end before as after."""
    deadline_chance: float | None = None
    """The probability that its deadline holds; None without a deadline, or a forecast."""
    number: int = 0
    is_stopped: bool = False
    has_content: bool = True
    """Whether a page was fetched, redirects not counted."""
    leads_to: str = ""
    """The page of another site, which has its task, to which its first page redirects."""
    start_problem: str = ""
    """Why its first page was not fetched."""
    down_since: float | None = None
    is_round: bool = False
    """Whether the counts include pages that are waiting to be fetched again."""

    @property
    def is_over(self) -> bool:
        return self.phase in _OVER

    @property
    def importance(self) -> tuple[bool, bool, float]:
        """The lower, the earlier in a list of some of very many sites."""
        due_at = math.inf if self.deadline_at is None else self.deadline_at
        return self.verdict not in FAILURES, self.end_s is not None, due_at

    @property
    def is_missed(self) -> bool:
        """Its deadline has passed before it ended, whether or not it is still being crawled."""
        return self.outlook in {"missed", "late"}

    @property
    def verdict(self) -> str:
        """One word: unreachable, missed, open, stopped, met, done (no deadline), redirects, failed."""
        if self.phase == "unreachable":
            return "unreachable"
        if self.leads_to and self.is_over:
            return "redirects"
        if self.is_missed:
            return "missed"
        if not self.is_over:
            return "open"
        if self.phase == "stopped":
            return "stopped"
        if not self.has_content and (self.done or self.failed):
            return "failed"
        return "met" if self.outlook == "met" else "done"

    @property
    def progress(self) -> float:
        """The share that is fetched: of the bytes if what is left is estimated, else of the known pages."""
        if self.is_over:
            return 1.0
        settled = self.done + self.failed
        settled = max(0, settled - self.waiting) if self.is_round else settled
        return _share_done(self.wire_bytes, self.left_bytes, settled, self.waiting)

    @property
    def start_s(self) -> float | None:
        return self._since(self.started_at)

    @property
    def end_s(self) -> float | None:
        return self._since(self.ended_at)

    @property
    def deadline_s(self) -> float | None:
        return self._since(self.deadline_at)

    @property
    def late_s(self) -> float | None:
        """How long after its deadline the site ended; negative if it ended before. None before its end."""
        if self.deadline_at is None or self.ended_at is None:
            return None
        return self.ended_at - self.deadline_at

    def _since(self, at: float | None) -> float | None:
        return None if at is None else at - self.began_at


def _share_done(done_bytes: int, left_bytes: float | None, settled: int, to_fetch: int) -> float:
    if left_bytes is not None and done_bytes + left_bytes > 0:
        return done_bytes / (done_bytes + left_bytes)
    return settled / (settled + to_fetch) if settled + to_fetch else 0.0


class DeadlineCounts(msgspec.Struct, frozen=True):
    """How many deadlines are in which state."""

    met: int = 0
    on_time: int = 0
    tight: int = 0
    at_risk: int = 0
    late: int = 0
    missed: int = 0
    open: int = 0
    """Deadlines in the future, while the crawl does not run."""

    @classmethod
    def of(cls, sites: Iterable[SiteState]) -> DeadlineCounts:
        return cls.of_many((site, 1) for site in sites)

    @classmethod
    def of_many(cls, sites: Iterable[tuple[SiteState, int]]) -> DeadlineCounts:
        """From states, and how many sites have each."""
        counts: Counter[str] = Counter()
        for site, count in sites:
            if site.outlook != "none":
                counts[site.outlook.replace("-", "_")] += count
            elif site.deadline_at is not None and not site.is_over:
                counts["open"] += count
        return cls(**counts)

    @property
    def all(self) -> int:
        return self.met + self.all_missed + self.to_come

    @property
    def all_missed(self) -> int:
        """Deadlines that have passed before their sites ended."""
        return self.missed + self.late

    @property
    def to_come(self) -> int:
        return self.on_time + self.tight + self.at_risk + self.open


class ErrorCount(msgspec.Struct, frozen=True):
    state: Literal["failed", "waiting", "excluded"]
    """Given up, to be retried, or skipped."""
    kind: str
    count: int


class RobotsTrouble(msgspec.Struct, frozen=True):
    """A site that cannot be crawled because its robots.txt cannot be fetched."""

    site: str
    problem: str
    again_at: float | None
    """When it is requested again; None if it is not requested again."""


class RunView(msgspec.Struct, frozen=True):
    """A run at the instant `now`."""

    name: str
    state: RunState
    now: float
    started_at: float
    """The first start of the crawl."""
    last_seen_at: float | None
    elapsed_s: float
    """From the start to the last sample, including the time in which the crawl did not run."""
    link: LinkFigures
    bound_bytes_per_s: float | None
    """The bound now, or the last one; None without a bound."""
    sites: Sequence[SiteState]
    """All sites, or, in a live view, the most important ones; `site_count` is the number of all."""
    site_count: int
    sites_done: int
    done: int
    failed: int
    waiting: int
    in_flight: int
    wire_bytes: int
    """Of settled pages. `link.received_bytes` counts all bytes that crossed the link."""
    errors: Sequence[ErrorCount] = ()
    """Attempts without a page as their result, most frequent first."""
    deadlines: DeadlineCounts = DeadlineCounts()
    predicted_bytes_per_s: float | None = None
    forecast_at: float | None = None
    """The latest end of the crawl by the forecast: nine of ten crawls end before."""
    forecast_middle_at: float | None = None
    """When the crawl will end, by what is known now: as many crawls end before as after."""
    forecast_from_at: float | None = None
    """The earliest end: one of ten crawls ends before."""
    collectors: Sequence[CollectorNow] = ()
    counts_in_flight: bool = True
    """False for a run of Scrapy spiders, which takes no orders either."""
    seconds: Sequence[LinkSecond] = ()
    """The last ten minutes of the link."""
    troubles: Sequence[RobotsTrouble] = ()
    left_bytes: float | None = None
    """What the planner estimates to be left of all sites; None if it has no estimate for some site."""
    is_round: bool = False
    """Whether pages are fetched that earlier rounds have fetched; `done` has them from the start."""
    closed_until: float | None = None
    """When the next window opens, if nothing may be requested until then."""

    @property
    def is_live(self) -> bool:
        return self.state in {"running", "paused"}

    @property
    def rate_bytes_per_s(self) -> float:
        """Of the last whole second; zero when the crawl does not run."""
        return self.link.rate_bytes_per_s if self.is_live else 0.0

    @property
    def progress(self) -> float:
        """The share that is fetched: of the bytes if what is left is estimated, else of the known pages."""
        if self.state == "finished":
            return 1.0
        to_fetch = self.waiting + self.in_flight
        settled = self.done + self.failed
        settled = max(0, settled - to_fetch) if self.is_round else settled
        return _share_done(self.wire_bytes, self.left_bytes, settled, to_fetch)

    @property
    def pages_per_s(self) -> float:
        """The mean over the time in which the crawl ran."""
        return self.done / self.link.active_s if self.link.active_s else 0.0

    @property
    def page_bytes(self) -> float:
        """Bytes on the wire for each fetched page, including those of failed attempts."""
        return self.wire_bytes / self.done if self.done else 0.0

    @property
    def failures(self) -> Mapping[str, int]:
        """Failed pages, by kind."""
        counts: Counter[str] = Counter()
        for error in self.errors:
            if error.state == "failed":
                counts[error.kind] += error.count
        return dict(counts.most_common())


class SiteSum(NamedTuple):
    """How many sites are in a state, which has their sums."""

    sites: int
    state: SiteState


def _sum_of(group: SiteGroup, example: SiteState, *, is_live: bool) -> SiteSum:
    state = structs.replace(
        example,
        done=group.done,
        failed=group.failed,
        waiting=0 if example.is_over else group.waiting,
        wire_bytes=group.wire_bytes,
        ended_at=None if example.ended_at is None else group.ended_at,
        left_bytes=group.left_bytes if group.estimates == group.sites else None,
        forecast_to_at=group.forecast_to_at if is_live and not example.is_over else None,
    )
    return SiteSum(group.sites, state)


class RateWindow:
    """The rates of sites over the last four seconds, from readings of their counters."""

    def __init__(self) -> None:
        self._readings: deque[tuple[float, Mapping[str, int]]] = deque()

    def read(self, now: float, received: Mapping[str, int]) -> dict[str, float]:
        """Add a reading; return the rates in bytes per second. A site without an earlier reading has none."""
        readings = self._readings
        while readings and now < readings[-1][0]:  # the clock was adjusted
            readings.pop()
        readings.append((now, received))
        while len(readings) > 2 and now - readings[1][0] >= _RATE_OVER_S:
            readings.popleft()
        then, before = readings[0]
        if now <= then:
            return {}
        return {
            site: (count - before[site]) / (now - then)
            for site, count in received.items()
            if site in before and count > before[site]
        }


def outlook_of(now: float, site: SiteNow, phase: Phase, *, is_live: bool) -> Outlook:
    """It is met if the site ended by then and its first page was fetched. A site stopped in time has none."""
    deadline_at = site.deadline_at
    if deadline_at is None:
        return "none"
    if phase in _OVER:
        is_in_time = site.ended_at is not None and site.ended_at <= deadline_at
        if phase == "stopped" and is_in_time:
            return "none"
        is_fetched = site.done and site.has_content and not site.start_problem
        return "met" if is_in_time and is_fetched else "missed"
    if now > deadline_at:
        return "late" if is_live else "missed"
    if not is_live:
        return "none"
    if site.forecast_from_at is None or site.forecast_to_at is None:
        return "on-time"
    if site.forecast_from_at > deadline_at:
        return "at-risk"
    return "tight" if site.forecast_to_at > deadline_at else "on-time"


def state_of(
    now: float, began_at: float, site: SiteNow, rate_bytes_per_s: float, *, is_live: bool, is_busy: bool
) -> SiteState:
    """The state of a site from its counts. `is_busy`: pages of it are being fetched."""
    phase = _phase_of(site, is_live=is_live, is_busy=is_busy)
    is_over = phase in _OVER
    is_ahead = is_live and not is_over
    return SiteState(
        site=site.site,
        phase=phase,
        outlook=outlook_of(now, site, phase, is_live=is_live),
        done=site.done,
        failed=site.failed,
        waiting=0 if is_over else site.waiting,
        wire_bytes=site.wire_bytes,
        began_at=began_at,
        deadline_at=site.deadline_at,
        started_at=site.started_at,
        ended_at=site.ended_at if is_over else None,
        rate_bytes_per_s=rate_bytes_per_s if is_ahead else 0.0,
        share_bytes_per_s=site.share_bytes_per_s if is_ahead else None,
        left_bytes=site.left_bytes,
        forecast_from_at=site.forecast_from_at if is_ahead else None,
        forecast_to_at=site.forecast_to_at if is_ahead else None,
        forecast_at=site.forecast_at if is_ahead else None,
        deadline_chance=site.deadline_chance if is_ahead else None,
        number=site.number,
        is_stopped=bool(site.is_stopped),
        has_content=bool(site.has_content),
        leads_to=site.leads_to,
        start_problem=site.start_problem,
        down_since=site.down_since,
    )


_ANSWER = re.compile(r"\(([a-z-]+) \d{3}\) at ")
"""In the reason why a first page was not fetched: the outcome and the status of an answer."""


def _has_answered(site: SiteNow) -> bool:
    """Whether a site of which nothing was fetched works: it refused, or did not have, its first page."""
    answer = _ANSWER.search(site.start_problem)
    return site.down_since is None and answer is not None and answer[1] not in TROUBLE


def _phase_of(site: SiteNow, *, is_live: bool, is_busy: bool) -> Phase:
    # While a crawl runs, the end of a site is stored at once, the number of waiting pages only now and then.
    if site.ended_at is not None and (is_live or not site.waiting):
        if site.is_stopped:
            return "stopped"
        if not site.done and site.failed and not _has_answered(site):
            return "unreachable"
        return "done"
    if not is_live:
        return "open"
    return "fetching" if is_busy else "waiting"


def _latest(sites: Sequence[SiteState], forecast_to_at: float | None) -> float | None:
    """Of a crawl by several processes only the ends of the sites are forecast."""
    if forecast_to_at is not None:
        return forecast_to_at
    return max((site.forecast_to_at for site in sites if site.forecast_to_at), default=None)


def total_left(left: Iterable[float | None]) -> float | None:
    """The sum of what is left of sites; None if there is a site without an estimate."""
    total = 0.0
    for left_bytes in left:
        if left_bytes is None:
            return None
        total += left_bytes
    return total


class RunMonitor:
    """Makes views of a run from its store, in one thread.

    `view` may be called as often as needed: within 0.8 s it returns the same view, each sample is read once,
    and all sites are read only so often that it takes 2% of a core.
    """

    def __init__(
        self,
        run: Path | str,
        *,
        clock: Callable[[], float] = time.time,
        is_over: bool = False,
        most_sites: int | None = None,
    ) -> None:
        """`is_over`: the crawl has ended, although its process may still be alive. `most_sites`: of a run
        folder with many more sites, so many are in the view, those that were not crawled and the first
        deadlines to come; the others are only counted, and no site has a rate."""
        self._most_sites = most_sites if isinstance(run, Path) else None
        self._sums: list[SiteSum] = []
        self.sites_listed_of: int | None = None
        """How many sites with pages or a deadline there are, if the view has only some of them."""
        self.reader = open_live_reader(run)
        self._clock = clock
        self._is_over = is_over
        self.started_at, self.job = self.reader.crawl()
        self.is_round = bool(self.reader.ask("SELECT 1 FROM round WHERE number > 0 LIMIT 1"))
        self._view: RunView | None = None
        self.meter = LinkMeter(sharing_log_of(run, self.job))
        self._last: Sample | None = None
        self._seconds: deque[LinkSecond] = deque(maxlen=SECONDS_KEPT)
        self._rates = RateWindow()
        self._is_live = False
        self._sites: list[SiteState] = []
        self._sites_at = self._waiting_at = self._errors_at = -math.inf
        self._sites_every_s = _READ_EVERY_S
        self._waiting: dict[int, int] = {}
        self._errors: list[ErrorCount] = []

    def close(self) -> None:
        self.reader.close()

    def __enter__(self) -> RunMonitor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def view(self) -> RunView:
        now = self._clock()
        if self._view is None or not 0 <= now - self._view.now < _READ_EVERY_S:
            self._view = self._read(now)
        return self._view

    def _read(self, now: float) -> RunView:
        for sample in self.reader.samples(self._last.number if self._last is not None else 0):
            if sample.at < self.started_at:
                continue  # of an earlier round
            self._last = sample
            if (second := self.meter.add(sample)) is not None:
                self._seconds.append(second)
        last = self._last
        collectors = [] if self._is_over else self.reader.collectors()
        is_live = bool(collectors) and (last is None or abs(now - last.at) < _FRESH_S)
        if is_live != self._is_live or not 0 <= now - self._sites_at < self._sites_every_s:
            self._read_sites(now, is_live=is_live)
        if not 0 <= now - self._errors_at < _COUNT_EVERY_S:
            self._errors_at = now
            self._errors = [ErrorCount(*each) for each in self.reader.outcomes()]  # type: ignore[arg-type]
        return self._view_of(now, last, collectors)

    def _view_of(self, now: float, last: Sample | None, collectors: Sequence[CollectorNow]) -> RunView:
        sites, sums, is_live, link = self._sites, self._sums, self._is_live, self.meter.figures
        site_count = sum(each.sites for each in sums)
        sites_done = sum(each.sites for each in sums if each.state.is_over)
        left = [0.0 if each.state.is_over else each.state.left_bytes for each in sums]
        ends = [each.state.ended_at for each in sums if each.state.ended_at is not None]
        last_at = max([self.started_at, *ends, *([] if last is None else [last.at])])
        waiting = sum(each.state.waiting for each in sums)
        return RunView(
            name=self.reader.name,
            state=self._state(last, is_done=sites_done == site_count > 0),
            now=now,
            started_at=self.started_at,
            last_seen_at=None if last is None else last.at,
            elapsed_s=last_at - self.started_at,
            link=link,
            bound_bytes_per_s=link.bound_bytes_per_s,
            sites=sites,
            site_count=site_count,
            sites_done=sites_done,
            done=sum(each.state.done for each in sums),
            failed=sum(each.state.failed for each in sums),
            waiting=last.waiting if is_live and last is not None and last.waiting is not None else waiting,
            in_flight=last.in_flight or 0 if is_live and last is not None else 0,
            wire_bytes=sum(each.state.wire_bytes for each in sums),
            errors=self._errors,
            deadlines=DeadlineCounts.of_many((each.state, each.sites) for each in sums),
            predicted_bytes_per_s=last.predicted_bytes_per_s if is_live and last is not None else None,
            forecast_at=_latest(
                [each.state for each in sums], last.forecast_to_at if is_live and last is not None else None
            ),
            forecast_middle_at=last.forecast_at if is_live and last is not None else None,
            forecast_from_at=last.forecast_from_at if is_live and last is not None else None,
            collectors=collectors if is_live else (),
            counts_in_flight=last is None or last.in_flight is not None,
            seconds=list(self._seconds),
            left_bytes=total_left(left),
            is_round=self.is_round,
        )

    def _state(self, last: Sample | None, *, is_done: bool) -> RunState:
        if self._is_live:
            return "paused" if last is not None and last.is_paused else "running"
        return "finished" if is_done else "stopped"

    def _read_sites(self, now: float, *, is_live: bool) -> None:
        begun_s = time.thread_time()
        if self._most_sites is not None and self._read_sums(now, self._most_sites, is_live=is_live):
            self._sites_at, self._is_live = now, is_live
            return
        rows = self._rows(now, is_live=is_live)
        rates = self._rates.read(now, {row.site: row.wire_bytes for row in rows}) if is_live else {}
        self._sites = [
            structs.replace(
                state_of(now, self.started_at, row, rate, is_live=is_live, is_busy=rate > 0),
                is_round=self.is_round,
            )
            for row in rows
            for rate in (rates.get(row.site, 0.0),)
        ]
        self._sums = [SiteSum(1, site) for site in self._sites]
        self._sites_at, self._is_live = now, is_live
        self._sites_every_s = max(_READ_EVERY_S, (time.thread_time() - begun_s) / _MAX_CPU_SHARE)

    def _read_sums(self, now: float, most: int, *, is_live: bool) -> bool:
        """Read the sums of the sites by their states, and the most important sites; False if they are few."""
        are_counted = is_live and self._last is not None and self._last.waiting is not None
        groups = self.reader.groups(now, are_counted=are_counted)
        if sum(group.sites for group in groups) <= _FEW_FOLD * most:
            return False
        # Whether any waits is the same in a group.
        waiting = {group.example: group.waiting for group in groups}
        examples = self._states_of(now, [group.example for group in groups], waiting, is_live=is_live)
        self._sums = [_sum_of(group, examples[group.example], is_live=is_live) for group in groups]
        self.sites_listed_of = 0
        ranked: dict[tuple[bool, bool], list[SiteGroup]] = {}
        for group in groups:
            state = examples[group.example]
            if group.done or group.failed or state.waiting or state.deadline_at is not None:
                self.sites_listed_of += group.sites
                ranked.setdefault(state.importance[:2], []).append(group)
        chosen: list[int] = []
        for rank in sorted(ranked):
            alike = [group.kind for group in ranked[rank] if group.sites > 1]
            numbers = [group.example for group in ranked[rank] if group.sites == 1]
            if alike:
                numbers += self.reader.first_due(now, alike, most, are_counted=are_counted)
            chosen += numbers
            if len(chosen) >= most:
                break
        waiting = {} if are_counted else self.reader.waiting(chosen)
        states = self._states_of(now, chosen, waiting, is_live=is_live)
        self._sites = sorted(states.values(), key=lambda state: (*state.importance, state.number))[:most]
        return True

    def _states_of(
        self, now: float, numbers: Sequence[int], waiting: Mapping[int, int], *, is_live: bool
    ) -> dict[int, SiteState]:
        return {
            row.number: structs.replace(
                state_of(
                    now,
                    self.started_at,
                    structs.replace(row, waiting=waiting.get(row.number, row.waiting)),
                    0.0,
                    is_live=is_live,
                    is_busy=False,
                ),
                is_round=self.is_round,
            )
            for row in self.reader.sites(numbers)
        }

    def _rows(self, now: float, *, is_live: bool) -> list[SiteNow]:
        """The sites. While a single process crawls, it stores how many pages of each wait; otherwise they are
        counted here."""
        rows = self.reader.sites()
        if is_live and self._last is not None and self._last.waiting is not None:
            return rows
        if not is_live or not 0 <= now - self._waiting_at < _COUNT_EVERY_S:
            self._waiting_at = now
            self._waiting = self.reader.waiting()
        return [structs.replace(row, waiting=self._waiting.get(row.number, 0)) for row in rows]
