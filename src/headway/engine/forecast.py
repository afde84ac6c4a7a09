"""When each site and the whole crawl will end: a point, a range that four of five ends lie in, and the
chance that a deadline holds.

The chain: pages still to be found (`planning.pages_left`), time by mean value analysis of the shared link
(`planning.ends`), and factors by which earlier forecasts were wrong. Looking at a forecast changes no
decision of the engine. A forecast is computed when somebody looks, at most as often as its cost allows, and
only sites that have changed are read again.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import NamedTuple

import numpy as np

from headway.engine.bandwidth import LinkBound
from headway.engine.demands import SharedLimits, shared_ends_s
from headway.engine.frontier import Frontier
from headway.engine.site_queue import MemorySiteQueue
from headway.engine.stats import CrawlStats, SiteStats
from headway.model.page import Site
from headway.planning.ends import (
    BUCKETS,
    Factors,
    Floats,
    ForecastTable,
    Level,
    Numbers,
    Workload,
    alike,
    expected_ends,
    expected_ends_in_steps,
)
from headway.planning.estimate import (
    FEATURES,
    NO_FACTS,
    NOTHING_LEARNT,
    PRIOR_SITE_PAGES,
    Evidence,
    Knowledge,
    PagesModel,
    SiteFacts,
    page_bytes,
)
from headway.planning.forecast_table import SHIPPED
from headway.policy.politeness import Politeness
from headway.policy.site_rules import BySite, SiteHours, SiteRules
from headway.units import Instant, Seconds

_REFRESH_S, _LATEST_REFRESH_S = 1.0, 10.0
_REFRESH_S_PER_SITE = 1e-3
_MOST_ROWS = 1000
"""More sites are computed as groups of sites that are alike."""
_ALIKE = (1.02, 1.05, 1.1, 1.2, 1.5, 2.0)
"""Sites are alike if they differ by less than such a factor: the first that leaves few enough groups."""
_READ_AT_ONCE = 400
_MOST_UNREAD = 5000
_STEPS_AT_ONCE, _LOOK_S = 2, 0.5
"""A look takes some milliseconds at most, also with very many sites: it goes on with what the last began."""
_JUDGED_SITES = 10_000
"""The ranges of so many sites are compared with their ends: enough to know how wide ranges have to be."""
_GROWN = 1.05
"""The pages left of a site are estimated again when it has grown by this factor; in between they follow the
number of waiting pages."""
_FEW_PAGES = 5
_PRIOR_OVERHEAD_S = 0.25
_PRIOR_BYTES_PER_S = 1e6
_FASTEST_BYTES_PER_S = 1e9
_HORIZON_S = Seconds(14 * 86400.0)
_LEAST_RANGE_S = 1.0


class Forecast(NamedTuple):
    """The end of a site or of the crawl, by what is known now."""

    from_at: Instant
    at: Instant
    to_at: Instant
    progress: float
    """Time passed over time passed and left, by the forecast; between 0 and 1."""


class SiteForecast(NamedTuple):
    end: Forecast
    chance: float | None
    """That the deadline holds; None without a deadline."""


IS_OPEN, WAITING, IN_FLIGHT, PAGES_AT, RATIO, SIZE, OVERHEAD, PAUSE, RATE, DUE_AT, MOST, WHOLE = range(12)
"""Columns. `RATIO`: pages left for each waiting page, estimated when `PAGES_AT` pages were read. `MOST`:
the pages that the limits of the site leave. `WHOLE`: pages left by a given size of the site, or NaN."""
_COLUMNS = 12


class Forecaster:
    """The forecasts of one crawl, computed by `look`."""

    def __init__(
        self,
        politeness: Politeness,
        knowledge: Knowledge = NOTHING_LEARNT,
        *,
        max_connections: int,
        rules: BySite[SiteRules] | None = None,
        table: ForecastTable = SHIPPED,
        limits: SharedLimits | None = None,
    ) -> None:
        self._politeness = politeness
        self._limits = limits or SharedLimits(None, politeness)
        self._rules = rules or BySite()
        self._hours: dict[int, SiteHours] = {}
        """By row, of the sites with windows."""
        self._knowledge = knowledge
        self._sources: dict[Site, Site] = {}
        """Of sites that have taken over the task of another one: that one."""
        self._max_connections = max_connections
        self._model = PagesModel(*table.pages)
        self._site_factors = Factors(table.probabilities, table.sites)
        self._crawl_factors = Factors(table.probabilities, table.crawls)
        self.site_level, self.crawl_level = Level(), Level()
        self._rows: Floats = np.zeros((64, _COLUMNS))
        self._count = 0
        self._said = np.full((64, BUCKETS, 2), math.nan)
        """The first range said of each site in each bucket of foreseen progress."""
        self._said_of_crawl: dict[int, Forecast] = {}
        self._held: list[float] = []
        """For each site that has ended, the share of its forecasts that held."""
        self._begun_at: Instant | None = None
        self._looked_at = Instant(-math.inf)
        self._steps: Generator[None, None, None] | None = None
        """The forecast that is being computed."""
        self._last_look_at = Instant(-math.inf)
        self._pause_s = 0.0
        self._points: Floats = np.zeros(0)
        """Seconds from the last look to the end of each row, uncorrected; NaN without one."""
        self._crawl: Forecast | None = None

    def set_levels(self, sites: float, crawls: float) -> None:
        """How wide the ranges have to be, by earlier crawls."""
        self.site_level, self.crawl_level = Level(sites), Level(crawls)

    def take_over(self, source: Site, target: Site) -> None:
        """The site `target` is what is meant by `source`: what is known of that holds for it."""
        self._sources[target] = self._sources.get(source, source)

    def _facts_of(self, site: Site) -> SiteFacts:
        """What an earlier run has learnt of a site."""
        facts = self._knowledge.sites.get(site)
        if facts is None and self._sources:
            facts = self._knowledge.sites.get(self._sources.get(site, site))
        return NO_FACTS if facts is None else facts

    # -- forecasts --------------------------------------------------------------------------------------

    def look(
        self,
        now: Instant,
        stats: CrawlStats,
        frontier: Frontier,
        bound: LinkBound,
    ) -> Forecast | None:
        """The forecast of the crawl's end; None if nothing is left, or nothing is known yet. Computed again
        if the last one is too old; with very many sites over several looks."""
        if self._begun_at is None:
            self._begun_at = now
        if 0 <= now - self._last_look_at < _LOOK_S:
            return None if frontier.unseen > _MOST_UNREAD else self._crawl
        if self._steps is None and not self._looked_at <= now < self._looked_at + self._pause_s:
            self._steps = self._look_in_steps(now, stats, frontier, bound)
        if self._steps is not None:
            self._last_look_at = now
            for _ in range(_STEPS_AT_ONCE):
                if next(self._steps, self) is self:
                    self._steps = None
                    break
        # While a long list of sites is read, what is known is no forecast of the whole.
        return None if frontier.unseen > _MOST_UNREAD else self._crawl

    def _look_in_steps(
        self, now: Instant, stats: CrawlStats, frontier: Frontier, bound: LinkBound
    ) -> Generator[None, None, None]:
        while self._read(stats, frontier):
            yield
        rows = np.flatnonzero(self._rows[: self._count, IS_OPEN] > 0)
        points = np.full(self._count, math.nan)
        link = [(float(from_s), float(rate)) for from_s, _, rate in bound.ahead(now, _HORIZON_S)]
        least_s, work = 0.0, None
        if len(rows) and link and not bound.is_paused:
            work = self._work(rows)
            least_s = float((np.maximum(0.0, self._rows[rows, WAITING] - 1.0) * work.pause_s).max())
            if len(rows) <= _MOST_ROWS:
                points[rows] = expected_ends(work, link, self._max_connections)
            else:
                yield
                for step in _ALIKE:
                    groups, group_of = alike(work, step)
                    if len(groups.pages) <= _MOST_ROWS:
                        break
                    yield
                yield
                ends_s = yield from expected_ends_in_steps(groups, link, self._max_connections)
                points[rows] = ends_s[group_of]
            self._apply_limits(points, rows, work)
        for row, hours in self._hours.items():
            if row < len(points) and not math.isnan(points[row]):
                points[row] = hours.wall_s(now, float(points[row]))
        self._points, self._looked_at, self._crawl = points, now, None
        self._pause_s = min(_LATEST_REFRESH_S, max(_REFRESH_S, _REFRESH_S_PER_SITE * self._count))
        if work is not None:
            longest_s = float(points[rows].max())
            self._crawl = self._range(longest_s, self._crawl_factors, self.crawl_level, least_s)
            self._remember(now, rows, points[rows])

    def _apply_limits(self, points: Floats, rows: Numbers, work: Workload) -> None:
        """The sites of a server or a domain take turns, so none ends before its turn."""
        groups = self._limits.all()
        if not groups:
            return
        place = np.full(self._count, -1, dtype=np.int64)
        place[rows] = np.arange(len(rows))
        for group in groups:
            members = np.array([row for row in group.rows if row < self._count], dtype=np.int64)
            members = members[place[members] >= 0]
            if len(members) > 1:
                places = place[members]
                page_s = work.overhead_s[places] + work.page_bytes[places] / work.server_bytes_per_s[places]
                work_s = work.pages[places] * (group.pause_s + page_s) / group.connections
                ends_s = shared_ends_s(work_s, self._rows[members, DUE_AT])
                points[members] = np.maximum(points[members], ends_s)

    def of(self, queue: MemorySiteQueue) -> SiteForecast | None:
        """The forecast of a site at the last look; None for one that is complete, or was not known then."""
        row = queue.number
        point = float(self._points[row]) if row < len(self._points) else math.nan
        if math.isnan(point):
            return None
        forecast = self._range(point, self._site_factors, self.site_level, self._least_s(row))
        due_at = float(self._rows[row, DUE_AT])
        if not math.isfinite(due_at):
            return SiteForecast(forecast, None)
        factor = (due_at - self._looked_at) / point if point > 0 else math.inf
        return SiteForecast(forecast, self._site_factors.chance(forecast.progress, factor))

    def points(self) -> tuple[Floats, float]:
        """Seconds from the last look to each end, and to that of the crawl, before any correction: what
        factors are fitted to."""
        known = self._points[~np.isnan(self._points)]
        return self._points, float(known.max()) if len(known) else 0.0

    def ended(self, now: Instant) -> None:
        """The crawl has ended: the levels adapt to what held of its own forecasts."""
        said = list(self._said_of_crawl.values())
        if said:
            self.crawl_level.crawl_ended(sum(one.from_at <= now <= one.to_at for one in said) / len(said))
            self._said_of_crawl.clear()
        if self._held:
            self.site_level.crawl_ended(sum(self._held) / len(self._held))
            self._held.clear()

    def _range(self, left_s: float, factors: Factors, level: Level, least_s: float) -> Forecast:
        assert self._begun_at is not None
        now, passed_s = self._looked_at, self._looked_at - self._begun_at
        progress = passed_s / (passed_s + left_s) if passed_s + left_s > 0 else 1.0
        at = np.array([progress])
        low, high = (float(factors.of(at, tail)[0]) * left_s for tail in level.tails)
        middle = float(factors.of(at, 0.5)[0]) * left_s
        low = max(low, least_s)
        high = max(high, low + min(_LEAST_RANGE_S, 0.5 * left_s))
        middle = min(max(middle, low), high)
        return Forecast(Instant(now + low), Instant(now + middle), Instant(now + high), progress)

    def _least_s(self, row: int) -> float:
        """No site ends before it has paused between the pages that wait."""
        return max(0.0, float(self._rows[row, WAITING]) - 1.0) * float(self._rows[row, PAUSE])

    # -- computing --------------------------------------------------------------------------------------

    def _remember(self, now: Instant, rows: Numbers, ends_s: Floats) -> None:
        assert self._begun_at is not None
        assert self._crawl is not None
        self._said_of_crawl.setdefault(min(int(self._crawl.progress * BUCKETS), BUCKETS - 1), self._crawl)
        passed_s = now - self._begun_at
        judged = rows < _JUDGED_SITES
        rows, ends_s = rows[judged], ends_s[judged]
        progress = passed_s / np.maximum(passed_s + ends_s, 1e-9)
        bucket = np.minimum((progress * BUCKETS).astype(np.int64), BUCKETS - 1)
        new = np.isnan(self._said[rows, bucket, 0])
        if not new.any():
            return
        low, high = (
            now + self._site_factors.of(progress[new], tail) * ends_s[new] for tail in self.site_level.tails
        )
        self._said[rows[new], bucket[new]] = np.column_stack((low, high))

    def _work(self, rows: Numbers) -> Workload:
        """The work of the open sites. A site without answers is assumed to be as the others are."""
        values = self._rows[rows]
        waiting, whole = values[:, WAITING], values[:, WHOLE]
        left = np.where(
            np.isnan(whole), waiting * np.maximum(1.0, values[:, RATIO]), np.maximum(whole, waiting)
        )
        pages = np.maximum(np.minimum(left + values[:, IN_FLIGHT], values[:, MOST]), 0.5)
        overhead, rate = values[:, OVERHEAD], values[:, RATE]
        timed = overhead > 0
        usual_s = float(np.median(overhead[timed])) if timed.any() else _PRIOR_OVERHEAD_S
        measured = rate > 0
        usual_rate = float(np.median(rate[measured])) if measured.any() else _PRIOR_BYTES_PER_S
        return Workload(
            pages,
            np.maximum(values[:, SIZE], 1.0),
            np.where(timed, overhead, usual_s),
            values[:, PAUSE],
            np.minimum(np.where(measured, rate, usual_rate), _FASTEST_BYTES_PER_S),
        )

    # -- reading ----------------------------------------------------------------------------------------

    def _read(self, stats: CrawlStats, frontier: Frontier) -> bool:
        """Take in sites that have changed, and new ones. True if more have changed."""
        numbers = frontier.take_unseen(_READ_AT_ONCE)
        self._count = max(self._count, 1 + max(numbers, default=-1))
        if self._count > len(self._rows):
            more = max(self._count, len(self._rows) * 5 // 4) - len(self._rows)
            self._rows = np.concatenate((self._rows, np.zeros((more, _COLUMNS))))
            judged = min(len(self._rows), _JUDGED_SITES) - len(self._said)
            self._said = np.concatenate((self._said, np.full((judged, BUCKETS, 2), math.nan)))
        grown: list[int] = []
        features: list[tuple[float, ...]] = []
        for row in numbers:
            queue = frontier.at(row)
            site_stats = stats.look_at(queue.site)
            was_open = self._rows[row, IS_OPEN] > 0
            self._rows[row] = self._row(site_stats, queue, self._rows[row])
            self._limits.note(row, site_stats)
            pages = site_stats.growth.pages
            if self._rows[row, IS_OPEN] > 0:
                if queue.due and pages >= _FEW_PAGES and pages >= _GROWN * self._rows[row, PAGES_AT]:
                    grown.append(row)
                    features.append(site_stats.growth.features(queue.due))
            elif was_open and site_stats.ended_at is not None:
                self._judge(row, site_stats.ended_at)
        if grown:
            self._estimate(np.array(grown), np.array(features).reshape(-1, len(FEATURES)))
        return len(numbers) == _READ_AT_ONCE

    def _row(self, site_stats: SiteStats, queue: MemorySiteQueue, before: Floats) -> tuple[float, ...]:
        task, facts = site_stats.task, self._facts_of(site_stats.site)
        waiting = queue.due
        evidence = Evidence(site_stats.answers, site_stats.wire_bytes, waiting, facts=facts)
        size = page_bytes(evidence)
        given = task.expected_bytes if task.expected_bytes is not None else facts.data_bytes or None
        most = math.inf
        if task.max_pages is not None:
            most = max(0.0, task.max_pages - site_stats.done - site_stats.in_flight)
        if task.max_bytes is not None:
            most = min(most, max(0.0, task.max_bytes - site_stats.wire_bytes) / size)
        times = site_stats.times
        rules = self._rules.of(site_stats.site) if self._rules else None
        if rules is not None and rules.hours.windows is not None:
            self._hours[queue.number] = rules.hours
        delay_s = site_stats.rules.crawl_delay_s if site_stats.rules is not None else None
        politeness = self._politeness.of(site_stats.site)
        pages = 1 if delay_s else politeness.pages_per_connection
        ratio, pages_at = float(before[RATIO]), float(before[PAGES_AT])
        if site_stats.growth.pages < _FEW_PAGES:
            # The prior of the whole crawl's planner: the more is known, the less it counts.
            known = site_stats.answers + waiting
            weight = 1 / (1 + site_stats.answers)
            usual = float(max(facts.listed_pages or PRIOR_SITE_PAGES, known))
            total = known ** (1 - weight) * usual**weight
            ratio, pages_at = max(1.0, (total - site_stats.answers) / max(1, waiting)), 0.0
        return (
            1.0 if waiting or queue.busy else 0.0,
            waiting,
            site_stats.in_flight,
            pages_at,
            ratio,
            size,
            times.overhead_s,
            politeness.pause_s(delay_s) / pages,
            times.server_bytes_per_s or facts.rate_bytes_per_s,
            math.inf if task.deadline_at is None else task.deadline_at,
            most,
            math.nan if given is None else max(0.0, given - site_stats.wire_bytes) / size,
        )

    def _estimate(self, rows: Numbers, features: Floats) -> None:
        left = self._model.left(features)
        waiting = np.exp(features[:, 0])
        self._rows[rows, RATIO] = np.maximum(1.0, left / waiting)
        self._rows[rows, PAGES_AT] = np.exp(features[:, 1])

    def _judge(self, row: int, ended_at: Instant) -> None:
        if row >= len(self._said):
            return
        said = self._said[row]
        known = ~np.isnan(said[:, 0])
        if known.any():
            held = (said[known, 0] <= ended_at) & (ended_at <= said[known, 1])
            self._held.append(float(held.mean()))
            self.site_level.site_ended(self._held[-1])
            self._said[row] = math.nan
