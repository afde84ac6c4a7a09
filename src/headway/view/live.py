"""Views of an engine in this process, for the terminal and the Python API."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from msgspec import structs

from headway.engine.machine import Engine
from headway.engine.stats import SiteStats
from headway.model.command import Decision
from headway.model.page import Site
from headway.store.reader import Sample, SiteNow
from headway.units import Instant
from headway.view.link import LinkMeter, SharingMeter
from headway.view.run import (
    DeadlineCounts,
    ErrorCount,
    RateWindow,
    RobotsTrouble,
    RunMonitor,
    RunView,
    SiteState,
    state_of,
    total_left,
)

SITES_SHOWN = 12
_MANY_SITES = 5000
"""Of more, sums are taken from the columns of the planner: a pass over all sites takes minutes."""
_SURVEYED_AT_ONCE = 400
"""One or two milliseconds."""


class Earlier(NamedTuple):
    """What the run folder contains from before the engine was started."""

    meter: LinkMeter
    failures: Mapping[str, int]
    """Failed pages, by kind."""
    is_round: bool = False
    """Whether pages are fetched that earlier rounds have fetched."""


def earlier_sittings(run: Path) -> Earlier:
    with RunMonitor(run, is_over=True) as monitor:
        return Earlier(monitor.meter, monitor.view().failures, is_round=monitor.is_round)


class _Survey(NamedTuple):
    """The results of one pass over all sites."""

    shown: list[Site]
    """The most important sites: those that are not done, by deadline, then the others."""
    sites_done: int
    left_bytes: float | None
    beyond: int = 0
    """Waiting pages that the page limits of their sites leave out."""


class EngineMonitor:
    """Makes views of an engine. In a fleet they cover only the sites of this process.

    The cost of a view of the most important sites depends only on their number. With each view, the pass over
    all sites that chooses them goes on by a thousand sites.
    """

    def __init__(self, name: str, started_at: Instant, earlier: Earlier | None = None) -> None:
        self._name = name
        self._started_at = started_at
        self._failures_before = earlier.failures if earlier is not None else {}
        self._meter = earlier.meter if earlier is not None else LinkMeter()
        self._is_round = earlier is not None and earlier.is_round
        self._sharing = SharingMeter()
        self._rates = RateWindow()
        self._site_rates: dict[str, float] = {}
        self._last: Sample | None = None
        self._survey = _Survey([], 0, None)
        self._is_surveyed = False
        self._pass: _SurveyPass | None = None

    def add(self, sample: Sample) -> None:
        """Add a sample: one each second, and two when the bound changes."""
        self._last = sample
        self._meter.add(sample)

    def share(self, decision: Decision) -> None:
        """Take in what a crawl with `background` does: one decision `yield` each second."""
        self._sharing.add(decision)
        self._meter.sharing = self._sharing

    def view(self, crawl: Engine, now: Instant, most_sites: int | None = SITES_SHOWN) -> RunView:
        """With `most_sites` None all sites, in the order in which they were found; only then are deadlines
        counted."""
        stats, last, bound = crawl.stats, self._last, crawl.bound.capacity_bytes_per_s
        survey = self._surveyed(crawl, most_sites)
        forecast = crawl.forecast(now)
        chosen = list(stats.by_site) if most_sites is None else survey.shown
        by_site = [stats.by_site[site] for site in chosen if site in stats.by_site]
        self._site_rates = self._rates.read(
            now, {site_stats.site: site_stats.wire_bytes for site_stats in by_site}
        )
        sites = [self._state(crawl, site_stats, now) for site_stats in by_site]
        failures = Counter(self._failures_before) + stats.failures
        return RunView(
            name=self._name,
            state="paused" if crawl.bound.is_paused else "running",
            now=now,
            started_at=self._started_at,
            last_seen_at=now if last is None else last.at,
            elapsed_s=now - self._started_at,
            link=self._meter.figures,
            bound_bytes_per_s=bound if math.isfinite(bound) else None,
            sites=sites,
            site_count=len(stats.by_site),
            sites_done=survey.sites_done,
            done=stats.done,
            failed=stats.failed,
            waiting=max(0, crawl.frontier.waiting - (0 if self._is_round else survey.beyond)),
            in_flight=crawl.in_flight,
            wire_bytes=stats.wire_bytes,
            errors=[ErrorCount("failed", kind, count) for kind, count in failures.most_common()],
            deadlines=DeadlineCounts.of(sites) if most_sites is None else DeadlineCounts(),
            predicted_bytes_per_s=None if last is None else last.predicted_bytes_per_s,
            forecast_at=None if forecast is None else forecast.to_at,
            forecast_middle_at=None if forecast is None else forecast.at,
            forecast_from_at=None if forecast is None else forecast.from_at,
            troubles=tuple(islice(_troubles(crawl, by_site), SITES_SHOWN)),
            left_bytes=survey.left_bytes,
            is_round=self._is_round,
            closed_until=None if crawl.in_flight else crawl.opens_at(now, [each.site for each in by_site]),
        )

    def _state(self, crawl: Engine, site_stats: SiteStats, now: Instant) -> SiteState:
        forecast = crawl.forecast_of(site_stats.site)
        is_over = _is_over(crawl, site_stats)
        row = SiteNow(
            number=0,
            site=site_stats.site,
            done=site_stats.done,
            failed=site_stats.failed,
            excluded=site_stats.excluded,
            waiting=_waiting_of(crawl, site_stats.site)
            - (0 if self._is_round else _beyond_limit(crawl, site_stats)),
            wire_bytes=site_stats.wire_bytes,
            content_bytes=site_stats.content_bytes,
            deadline_at=site_stats.task.deadline_at,
            weight=site_stats.task.weight,
            is_stopped=site_stats.task.max_pages == 0,
            started_at=site_stats.started_at,
            ended_at=site_stats.ended_at if is_over else None,
            left_bytes=crawl.planner.left_of(site_stats.site) if crawl.planner is not None else None,
            share_bytes_per_s=crawl.planner.share_of(site_stats.site) if crawl.planner is not None else None,
            forecast_from_at=None if forecast is None else forecast.end.from_at,
            forecast_to_at=None if forecast is None else forecast.end.to_at,
            forecast_at=None if forecast is None else forecast.end.at,
            deadline_chance=None if forecast is None else forecast.chance,
            has_content=site_stats.has_content,
            leads_to=site_stats.leads_to,
            start_problem=site_stats.start_problem,
            down_since=site_stats.down_since,
        )
        rate = self._site_rates.get(site_stats.site, 0.0)
        state = state_of(now, self._started_at, row, rate, is_live=True, is_busy=site_stats.in_flight > 0)
        return structs.replace(state, is_round=True) if self._is_round else state

    def _surveyed(self, crawl: Engine, most_sites: int | None) -> _Survey:
        if most_sites is None:
            survey = _SurveyPass(0)
            survey.go_on(crawl, len(crawl.stats.opened))
            return survey.result(crawl)
        if self._pass is None:
            self._pass = _SurveyPass(most_sites)
        if self._pass.go_on(crawl, _SURVEYED_AT_ONCE):
            self._survey, self._pass, self._is_surveyed = self._pass.result(crawl), None, True
        elif not self._is_surveyed:
            self._survey = self._pass.result(crawl)
        if crawl.planner is not None and len(crawl.stats.opened) > _MANY_SITES:
            left_bytes, over = crawl.planner.left_in_all
            return self._survey._replace(sites_done=over, left_bytes=left_bytes)
        return self._survey


class _SurveyPass:
    """One pass over all sites, in parts."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._place = 0
        self._chosen: list[tuple[bool, float, str]] = []
        self._done = 0
        self._left: list[float | None] = []
        self._beyond = 0

    def go_on(self, crawl: Engine, sites: int) -> bool:
        """Look at the next sites; True when all have been looked at."""
        stats, planner = crawl.stats, crawl.planner
        part = [stats.by_site[site] for site in stats.opened[self._place : self._place + sites]]
        self._place += len(part)
        known = [_importance(crawl, site_stats) for site_stats in part if _is_known(crawl, site_stats)]
        self._chosen = heapq.nsmallest(self._most, self._chosen + known)
        unfinished = [site_stats.site for site_stats in part if not _is_over(crawl, site_stats)]
        self._done += len(part) - len(unfinished)
        self._beyond += sum(_beyond_limit(crawl, site_stats) for site_stats in part)
        if planner is not None:
            self._left.append(total_left(map(planner.left_of, unfinished)))
        return self._place >= len(stats.opened)

    def result(self, crawl: Engine) -> _Survey:
        left = total_left(self._left) if crawl.planner is not None else None
        return _Survey([Site(site) for _, _, site in self._chosen], self._done, left, self._beyond)


def _is_over(crawl: Engine, site_stats: SiteStats) -> bool:
    return (
        site_stats.ended_at is not None
        and not _waiting_of(crawl, site_stats.site)
        and not site_stats.in_flight
    )


def _is_known(crawl: Engine, site_stats: SiteStats) -> bool:
    return bool(
        site_stats.in_flight
        or site_stats.done
        or site_stats.failed
        or crawl.frontier.waiting_of(site_stats.site)
    )


def _importance(crawl: Engine, site_stats: SiteStats) -> tuple[bool, float, str]:
    deadline_at = site_stats.task.deadline_at
    return _is_over(crawl, site_stats), math.inf if deadline_at is None else deadline_at, site_stats.site


def _waiting_of(crawl: Engine, site: Site) -> int:
    room = crawl.frontier.peek(site)
    return 0 if room is None else room.due


def _beyond_limit(crawl: Engine, site_stats: SiteStats) -> int:
    """How many waiting pages of a site will not be fetched, because of its limit on pages."""
    most = site_stats.task.max_pages
    if most is None:
        return 0
    room = max(0, most - site_stats.done - site_stats.in_flight)
    return max(0, _waiting_of(crawl, site_stats.site) - room)


def _troubles(crawl: Engine, by_site: Iterable[SiteStats]) -> Iterator[RobotsTrouble]:
    for site_stats in by_site:
        if site_stats.robots_problem:
            room = crawl.frontier.peek(site_stats.site)
            again_at = room.free_at if room is not None and room.waiting else None
            yield RobotsTrouble(site_stats.site, site_stats.robots_problem, again_at)
