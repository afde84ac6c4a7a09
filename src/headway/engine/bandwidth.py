"""The bound on the link, and the planner that divides the link among the sites and forecasts their ends.

`LinkBound` says how much the crawl may receive now: by the timetable, a person, the quotas and the other
users of the link. `BandwidthPlanner` turns the statistics of the sites into demands (data left, highest rate,
deadline, weight), lets the allocator decide, and returns the shares. Neither touches the link: the engine
passes their decisions on as commands.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
from msgspec import structs

from headway.engine.demands import (
    CAP,
    DUE_AT,
    EXPECTED,
    FAST_CAP,
    LEFT,
    SPREAD,
    DemandTable,
    SharedLimits,
    mean_page_bytes,
)
from headway.engine.frontier import Frontier
from headway.engine.shares import Advice, Arrived, Outlook, Shares, advice_on
from headway.engine.stats import CrawlStats, SiteStats
from headway.errors import HeadwayError
from headway.model.command import DeadlineForecast
from headway.model.page import Outcome, Site
from headway.planning.allocator import Allocator, Decision, SiteDemand
from headway.planning.estimate import NOTHING_LEARNT, Knowledge, Remaining, SiteAssumptions, forecast_range
from headway.planning.feasibility import Work
from headway.planning.problem import LATE_TOLERANCE, USABLE, BoolArray, FloatArray, IntArray
from headway.planning.problem import Timetable as Capacity
from headway.planning.rate_plan import Doubt
from headway.policy.politeness import Politeness
from headway.policy.prediction import Prediction
from headway.policy.site_rules import ALWAYS_OPEN, BySite, SiteHours, SiteRules
from headway.policy.timetable import QuotaTally, Segment, Timetable
from headway.units import FOREVER, UNBOUNDED, BytesPerSecond, Instant, Seconds

NO_BOUND = Timetable(UNBOUNDED)
_LEFT_OVER = 0.2
"""About five seconds: what others leave changes faster than a plan should."""
_NEARLY_ALL = 0.97


class LinkBound:
    """How much the crawl may receive: the rate of the timetable or of a person, less what other users of the
    link need, and the bytes that the quotas leave. The engine asks when `changes_at` has come."""

    def __init__(
        self,
        timetable: Timetable = NO_BOUND,
        quotas: Sequence[QuotaTally] = (),
    ) -> None:
        self._is_open = self._was_set = False
        self._cut_at: Instant | None = None
        """The link has closed, and what is under way is cut then."""
        self._usual_timetable = self._timetable = timetable
        self._quotas = tuple(quotas)
        self._left = 1.0
        """The part of the bound that the other users of the link leave: a moving average."""
        self.is_paused = False
        self.capacity_bytes_per_s = UNBOUNDED
        self.changes_at = Instant(-FOREVER)
        """When to call `look` again."""

    def set(self, now: Instant, capacity_bytes_per_s: BytesPerSecond | None) -> None:
        """Replace the timetable by a fixed rate, until None restores it."""
        usual = self._usual_timetable
        self._timetable = usual if capacity_bytes_per_s is None else usual.with_rate(capacity_bytes_per_s)
        self.changes_at = now
        self._was_set = True

    @property
    def windows(self) -> SiteHours:
        """When the crawl may run at all."""
        table = self._usual_timetable
        if not table.windows:
            return ALWAYS_OPEN
        always = Timetable(UNBOUNDED, (), table.zone, table.windows, table.window_zone)
        return SiteHours(always)

    def pause(self, *, is_paused: bool) -> None:
        """While the crawl is paused, no request is started."""
        self.is_paused = is_paused

    def spend(self, now: Instant, received_bytes: int) -> None:
        for tally in self._quotas:
            tally.spend(now, received_bytes)

    def share(self, rate_bytes_per_s: BytesPerSecond) -> None:
        """Other users of the link leave this much of the bound now, which plans take into account. Called
        each second by a crawl that yields; the bound stays as it is."""
        if 0.0 < self.capacity_bytes_per_s < math.inf:
            part = min(1.0, rate_bytes_per_s / self.capacity_bytes_per_s)
            self._left += _LEFT_OVER * (part - self._left)

    def look(self, now: Instant) -> bool:
        """Bring `capacity_bytes_per_s` up to date; True if it has changed."""
        change_at = self._timetable.next_change_after(now)
        self.changes_at = FOREVER if change_at is None else change_at
        bound = self._timetable.capacity_at(now)
        was_open, self._is_open = self._is_open, bound > 0
        if self._is_open:
            self._cut_at = None
        elif was_open and not self._was_set:
            self._cut_at = Instant(now + self._timetable.grace_s)
        if self._cut_at is not None and now < self._cut_at and not self._was_set:
            # The requests under way may finish at the rate that they had.
            bound = self.capacity_bytes_per_s
            self.changes_at = min(self.changes_at, self._cut_at)
        self._was_set = False
        has_changed = bound != self.capacity_bytes_per_s
        self.capacity_bytes_per_s = bound
        return has_changed

    def has_run_out(self, now: Instant) -> bool:
        """Whether the grace of a window that has closed is over; once for each time that the link closes."""
        is_over = self._cut_at is not None and now >= self._cut_at
        if is_over:
            self._cut_at = None
        return is_over

    def allows(self, now: Instant, wanted_bytes: float) -> bool:
        """Whether the link is open, and every quota still has `wanted_bytes`, which include the requests in
        flight."""
        is_open = not self.is_paused and self._is_open
        return is_open and all(tally.remaining_bytes(now) >= wanted_bytes for tally in self._quotas)

    def renews_at(self, now: Instant) -> Instant:
        """When the next quota is renewed."""
        return min((tally.renews_at(now) for tally in self._quotas), default=FOREVER)

    def ahead(self, now: Instant, horizon_s: Seconds) -> list[Segment]:
        """The bound from now on, in segments of constant rate; zero where a quota will be used up."""
        segments = self._timetable.segments(now, horizon_s)
        if self._left < _NEARLY_ALL:
            segments = [(begin, end, BytesPerSecond(self._left * rate)) for begin, end, rate in segments]
        for tally in self._quotas:
            segments = tally.cut(now, segments)
        return segments


_REPLAN_EVERY_S = 1.0
_SHUT_S = 60.0
_FEW_SITES = 150
"""With at most so many sites, each end of a site is followed by a new plan, of about a millisecond."""
_PLAN_S, _PLAN_S_PER_SITE = 0.002, 2e-6
"""The CPU time of a plan for many sites. It is counted and not measured, so that the same events lead to the
same decisions on every machine."""
_MAX_CPU_SHARE = 0.05
"""Of a core, for plans."""
_HAND_ON_EVERY_S = 0.1
"""Between plans, the shares of the sites that have ended are handed on so often."""
_ROWS_AT_ONCE = 5000
"""A plan for more sites is computed in several steps of the engine, with other events in between."""
_ROWS_UPDATED_AT_ONCE = 800
_BESIDE_S, _BESIDE_S_PER_SITE = 0.25, 2.5e-6
"""Such a plan is decided in a thread, where NumPy works without the interpreter's lock. It takes effect this
much later, and not when the thread has finished, so that the same events lead to the same decisions."""
_beside = ThreadPoolExecutor(1, thread_name_prefix="headway-planner")
_CATCH_UP_S = 3.0
"""For so long a site may be behind a rate that is its limit, and still make up for it."""
_FILLERS = 2
_HORIZON_S = Seconds(14 * 86400.0)
_NEARLY_CAP = 0.95
"""A site that is given this part of the most that it can take is not held back at all."""
_LEFTOVER_SHARE = 0.01
"""Of the link, for a site that has what the sites before it leave, while one of these receives."""
_LINK_LIMITED = 0.1
"""A download that waited for the link for more than this part of its time also had a small receive window, so
it gives only a lower bound on the server's rate."""


class BandwidthPlanner:
    """Decides which share of the link each site gets, and forecasts when each ends and which will be late.

    It plans again at `next_at`: when a share would change, or after about a second, since more is known of
    the sites by then. A plan for many sites costs CPU time, so it is made less often, and in between the
    share of a site that ends goes to the next sites of the plan.
    """

    def __init__(
        self,
        allocator: Allocator,
        politeness: Politeness,
        prediction: Prediction,
        knowledge: Knowledge = NOTHING_LEARNT,
        *,
        by_processes: bool = False,
        rules: BySite[SiteRules] | None = None,
        limits: SharedLimits | None = None,
    ) -> None:
        """`rules`: what sites have of their own. `limits`: of servers and domains that
        sites share. `knowledge`: what an earlier run measured of the sites. `by_processes`: each site is
        crawled by a process of its own, which holds the rate of its site."""
        self._allocator = allocator
        self.prediction = prediction
        self._by_processes = by_processes
        self.table = DemandTable(
            politeness, prediction, knowledge, by_processes=by_processes, rules=rules, limits=limits
        )
        self._frontier: Frontier | None = None
        self._capacity: Capacity | None = None
        self._most_bytes_per_s = UNBOUNDED
        self._shares = Shares()
        self.started: frozenset[int] | None = None
        """The rows that may be asked for pages now; None: all."""
        self.open: frozenset[int] = frozenset()
        """The rows of the sites that may be open at the same time."""
        self._used_until: dict[int, float] = {}
        """With rates that are limits: by row, until when its bytes have used up its rate."""
        self._arrived = Arrived()
        self._claims: dict[Site, BytesPerSecond] = {}
        self._outlook = Outlook()
        self._forecasts: list[DeadlineForecast] = []
        self._moved: list[int] = []
        self._rows = 0
        self._plan_at = Instant(-FOREVER)
        self._hand_on_at = FOREVER
        self._planned_at = self._handed_on_at = Instant(-FOREVER)
        self._steps: Iterator[Instant] | None = None
        """The plan that is being computed: it yields when to go on."""
        self._go_on_at = Instant(-FOREVER)
        self.next_at = Instant(-FOREVER)
        """When to call `allocate` again; `replan` brings it forward."""
        self.plans_made = 0

    @property
    def problem(self) -> HeadwayError | None:
        """What went wrong in a user's policy."""
        return getattr(self._allocator, "problem", None)

    def replan(self, now: Instant) -> None:
        """Plan in this step: sites were added, an order was given, or the capacity has changed."""
        self.next_at = self._plan_at = now

    def site_changed(self, now: Instant) -> None:
        """A site has ended or begun: a new plan with few sites, with many its share is handed on."""
        if self._rows <= _FEW_SITES:
            self.replan(now)
        elif self._shares.has_order:
            self._hand_on_at = min(self._hand_on_at, Instant(max(now, self._handed_on_at + _HAND_ON_EVERY_S)))
        else:
            self._plan_at = min(self._plan_at, Instant(max(now, self._planned_at + _pause_s(self._rows))))
        self.next_at = min(self.next_at, self._plan_at, self._hand_on_at)

    def restore(self, servers: Sequence[tuple[str, bytes]]) -> None:
        self.prediction.restore(servers)

    def learn(self, now: Instant, site_stats: SiteStats, outcome: Outcome) -> None:
        """Learn the rate of a server from an answer. If our own share limited it, the server may be
        faster."""
        if not (outcome.peer and outcome.wire_bytes and outcome.duration_s > 0):
            return
        site_stats.server = server_of(outcome.peer, site_stats.site)
        own_s = max(outcome.duration_s - outcome.held_s, 1e-6)
        held_back = outcome.waited_s + outcome.held_s > _LINK_LIMITED * outcome.duration_s
        rate = BytesPerSecond(outcome.wire_bytes / own_s)
        self.prediction.learn(now, site_stats.server, rate, held_back=held_back)

    def changed_servers(self) -> tuple[tuple[str, bytes], ...]:
        """The measurements of servers that have changed since the last call, as rows for the store."""
        return tuple(self.prediction.changed_rows())

    # -- shares -----------------------------------------------------------------------------------------

    def allocate(
        self, now: Instant, stats: CrawlStats, frontier: Frontier, bound: LinkBound
    ) -> dict[Site, BytesPerSecond] | None:
        """Plan, or hand on the shares of sites that have ended. Returns the new share of each site; None if
        the shares stay as they are, or if the plan is not complete yet."""
        self._frontier = frontier
        before = self._claims
        if self._steps is None and now < self._plan_at:
            self._hand_on(now, stats, frontier)
        else:
            if self._steps is None:
                self._steps = self._plan(now, stats, frontier, bound)
            elif now < self._go_on_at:
                self.next_at = self._go_on_at
                return None
            for at in self._steps:
                self.next_at = self._go_on_at = at
                return None
            self._steps = None
        self.next_at = min(self._plan_at, self._hand_on_at)
        if self._allocator.seats is not None:
            self.open = self._shares.open_rows(self.table)
        self._claims = self._claims_of(stats, bound.capacity_bytes_per_s)
        return None if _alike(before, self._claims) else self._claims

    def _plan(
        self, now: Instant, stats: CrawlStats, frontier: Frontier, bound: LinkBound
    ) -> Iterator[Instant]:
        """Compute shares and forecasts; with many sites in steps, between which other events are applied."""
        self.plans_made += 1
        self._planned_at, self._plan_at, self._hand_on_at = now, FOREVER, FOREVER
        capacity_bytes_per_s = self._most_bytes_per_s = bound.capacity_bytes_per_s
        while len(self._update(now, stats, frontier)) == _ROWS_UPDATED_AT_ONCE:
            yield now
        self.table.share()
        rows = self.table.wanting_rows()
        is_large = len(rows) > _ROWS_AT_ONCE
        self._rows = len(rows)
        capacity = self._capacity = capacity_ahead(bound.ahead(now, _HORIZON_S))
        if self._allocator.takes_doubt:
            capacity = capacity.scaled(USABLE)
        pause_s = max(_REPLAN_EVERY_S, _pause_s(len(rows)))
        work = self.table.work(now, rows, capacity, self._allocator.seats)
        if is_large:
            yield now
        more_bytes = self.table.column(LEFT, rows) - self.table.column(EXPECTED, rows)
        doubt = Doubt(more_bytes, self.table.column(SPREAD, rows))
        self._arrived.advance(now, self._shares.rates, lambda row: stats.look_at(self.table.site(row)))
        work = replace(work, left_bytes=self._arrived.less(rows, work.left_bytes - more_bytes))
        at_least_s = Seconds(pause_s / 10)
        if not self._allocator.takes_columns:
            again_at = self._decide(now, rows, work, capacity, at_least_s)
        elif is_large:
            begun = _beside.submit(self._allocator.decide_columns, now, rows, work, float(at_least_s), doubt)
            yield Instant(now + _BESIDE_S + _BESIDE_S_PER_SITE * len(rows))
            again_at = self._follow(now, rows, work, begun.result())
        else:
            decision = self._allocator.decide_columns(now, rows, work, float(at_least_s), doubt)
            again_at = self._follow(now, rows, work, decision)
        if is_large:
            yield now
        self._forecasts = self._outlook.changed(now, rows, self.table, self._advise)
        earliest = now if len(rows) <= _FEW_SITES else Instant(now + _pause_s(len(rows)))
        self._plan_at = min(self._plan_at, max(earliest, min(again_at, Instant(now + pause_s))))
        if not len(rows) and len(self.table.open_rows()):
            # All sites are outside their windows; when one opens, there is a plan at once.
            self._plan_at = max(self._plan_at, Instant(now + _SHUT_S))
        if not capacity_bytes_per_s and self._plan_at > now:
            # Nothing can be received before the link opens again.
            self._plan_at = max(self._plan_at, bound.changes_at)
        if is_large:
            # Sites may have ended since the first step.
            self._hand_on_at = now

    def _follow(self, now: Instant, rows: IntArray, work: Work, decision: Decision) -> Instant:
        """Take a decision, made for `now`. Returns when to decide again."""
        served = np.flatnonzero(decision.rates)
        rates = dict(zip(rows[served].tolist(), decision.rates[served].tolist(), strict=True))
        self._shares.set(rates, rows[decision.order], work.link.at(0.0), self._allocator.seats)
        self._outlook.foresee(now, rows, now + decision.ends_s, decision.late)
        self.started = self._may_start(rows) if decision.is_tight else None
        return Instant(now + decision.until_s)

    def _decide(
        self,
        now: Instant,
        rows: IntArray,
        work: Work,
        capacity: Capacity,
        at_least_s: Seconds,
    ) -> Instant:
        """Let an allocator decide that takes objects. Returns when it wants to decide again."""
        demands = [
            structs.replace(
                demand,
                remaining_bytes=left,
                deadline_at=None if math.isinf(due_s) else Instant(now + due_s),
            )
            for demand, left, due_s in zip(
                self.table.as_objects(rows), work.left_bytes.tolist(), work.due_s.tolist(), strict=True
            )
        ]
        allocation = self._allocator.decide(now, demands, capacity, at_least_s=at_least_s)
        row_of = {demand.site: row for demand, row in zip(demands, rows.tolist(), strict=True)}
        rates = {row_of[site]: float(rate) for site, rate in allocation.rates.items()}
        self._shares.set(rates, seats=self._allocator.seats)
        self._used_until = {row: self._used_until.get(row, float(now)) for row in rates}
        ends_at = [float(allocation.forecast.get(demand.site, math.nan)) for demand in demands]
        ends = np.array(ends_at, dtype=np.float64)
        self._outlook.foresee(now, rows, ends, _are_late(now, ends, self.table.column(DUE_AT, rows)))
        return allocation.decide_again_at

    def _may_start(self, rows: IntArray) -> frozenset[int] | None:
        """The sites that may be asked for pages if hardly any time is left: each takes a little of it."""
        if len(rows) > _FEW_SITES or self._by_processes:
            return None
        fillers = self._shares.next_rows(_FILLERS, self.table, self._outlook.is_late)
        return frozenset((*self._shares.rates, *fillers))

    def _hand_on(self, now: Instant, stats: CrawlStats, frontier: Frontier) -> None:
        self._handed_on_at, self._hand_on_at = now, FOREVER
        self._shares.hand_on(self._update(now, stats, frontier), self.table)

    def _update(self, now: Instant, stats: CrawlStats, frontier: Frontier) -> Sequence[int]:
        """Compute the rows of sites that have changed, as many as fit into a step; returns them."""
        changed = frontier.take_changed(_ROWS_UPDATED_AT_ONCE)
        self._moved += changed
        self.table.update(now, stats, [frontier.at(number) for number in changed], self._most_bytes_per_s)
        return changed

    def take_moved(self) -> list[int]:
        """The sites whose demands were computed since the last call: their latest starts may be others."""
        moved, self._moved = self._moved, []
        return moved

    def spare_bytes_per_s(self, stats: CrawlStats, capacity_bytes_per_s: BytesPerSecond) -> BytesPerSecond:
        """What the sites with deadlines leave of the link."""
        value = self.table.value
        taken = sum(rate for row, rate in self._shares.rates.items() if math.isfinite(value(DUE_AT, row)))
        return BytesPerSecond(max(0.0, capacity_bytes_per_s - taken))

    def _claims_of(
        self, stats: CrawlStats, capacity_bytes_per_s: BytesPerSecond
    ) -> dict[Site, BytesPerSecond]:
        """The rate at which each site's pages must be received, so that the site has its allocated rate over
        time.

        During the politeness pause after a page, a site leaves its share to others, so its pages have to come
        faster than its allocated rate r: a page of S bytes, followed by a pause of p, needs the rate x with S
        / x + p = S / r. A site that is allocated all that it can take is not limited; its own pace limits it.
        """
        if self._by_processes:
            return self._shares_of_processes(stats, capacity_bytes_per_s)
        claims = {}
        at_cap = {
            row
            for row, rate in self._shares.rates.items()
            if rate >= _NEARLY_CAP * self.table.value(CAP, row)
        }
        leaves_rest = self._allocator.takes_columns and at_cap
        for row, rate in self._shares.rates.items():
            site = self.table.site(row)
            if row in at_cap:
                claims[site] = capacity_bytes_per_s
                continue
            if leaves_rest:
                # Its rate is what the sites before it leave, and these need the whole link in turn.
                claims[site] = BytesPerSecond(min(rate, _LEFTOVER_SHARE * capacity_bytes_per_s))
                continue
            site_stats = stats.look_at(site)
            # The part of the time that is not spent in pauses.
            receiving = 1 - rate * self.table.pause_s(site_stats) / mean_page_bytes(site_stats)
            claim = rate / receiving if receiving > 0 else capacity_bytes_per_s
            claims[site] = BytesPerSecond(min(claim, capacity_bytes_per_s))
        return claims

    def _shares_of_processes(
        self, stats: CrawlStats, capacity_bytes_per_s: BytesPerSecond
    ) -> dict[Site, BytesPerSecond]:
        """The allocated rates, to be held over time. A site that is allocated all that it can take by our
        estimate may be faster than that, so these sites share what is left of the link."""
        rates = {self.table.site(row): BytesPerSecond(rate) for row, rate in self._shares.rates.items()}
        spare = max(0.0, capacity_bytes_per_s - sum(rates.values()))
        at_cap = [
            self.table.site(row)
            for row, rate in self._shares.rates.items()
            if rate >= _NEARLY_CAP * self.table.value(CAP, row)
        ]
        at_cap = [site for site in at_cap if stats.look_at(site).task.cap_bytes_per_s is None]
        for site in at_cap:
            rates[site] = BytesPerSecond(rates[site] + spare / len(at_cap))
        return rates

    # -- forecasts --------------------------------------------------------------------------------------

    def changed_forecasts(self) -> list[DeadlineForecast]:
        """The deadlines whose forecast has changed in the last plan: from met to missed, or back.

        A deadline that is given up is reported in that moment, and nothing is reported of a deadline that
        has passed.
        """
        forecasts, self._forecasts = self._forecasts, []
        return forecasts

    def _advise(self, now: Instant, late_rows: Sequence[int]) -> Sequence[Advice]:
        return advice_on(now, late_rows, self.table, self._allocator.seats)

    # -- for views and other collectors -----------------------------------------------------------------

    def on_a_faster_link(self, now: Instant, stats: CrawlStats) -> list[SiteDemand]:
        """The demands, with the highest rates that the sites could have if our own link were no limit."""
        return self.table.as_objects(self.table.open_rows(), cap=FAST_CAP)

    def most_urgent(self, now: Instant, most: int, others: str) -> tuple[list[SiteDemand], list[SiteDemand]]:
        """As `on_a_faster_link`, those of so many sites each by itself and the others as a few sums."""
        return self.table.in_few(now, self.table.open_rows(), most, others, cap=FAST_CAP)

    @property
    def demands(self) -> Sequence[SiteDemand]:
        """The demands of the last allocation, with the deadlines as given (without margins)."""
        return self.table.as_objects(self.table.open_rows(are_shut=False))

    def latest_start_of(self, site: Site) -> Instant | None:
        """The latest instant at which a site can start and still meet its deadline, if it gets its highest
        rate; None for a site that was in no plan yet."""
        row = self._row_of(site)
        return None if row is None else self.table.latest_start_at(row)

    def share_of(self, site: Site) -> BytesPerSecond | None:
        """The rate in the last allocation; None for a site that has none."""
        row = self._row_of(site)
        rate = None if row is None else self._shares.rates.get(row)
        return None if rate is None else BytesPerSecond(rate)

    def rate_allows_at(self, now: Instant, site_stats: SiteStats, wire_bytes: int) -> Instant:
        """When a site may be asked again after an answer, if its rate is the most that it gets.

        The pacer lends what sites do not use, so the limit is on the requests: as many bytes as the rate
        allows since the first one, with some time to catch up.
        """
        is_limited = now < self._allocator.limits_until and not self._by_processes
        row = self._row_of(site_stats.site) if is_limited else None
        rate = 0.0 if row is None else self._shares.rates.get(row, 0.0)
        if row is None or rate <= 0:
            return now
        page_s = wire_bytes / rate
        before = max(self._used_until.get(row, now - page_s), now - page_s - _CATCH_UP_S)
        self._used_until[row] = before + page_s
        return Instant(max(now, min(before + page_s, self._allocator.limits_until)))

    @property
    def left_in_all(self) -> tuple[float, int]:
        """The estimated remaining bytes of all sites, and how many sites have nothing left."""
        rows = self.table.open_rows()
        return float(self.table.column(LEFT, rows).sum()), len(self.table) - len(rows)

    def left_of(self, site: Site) -> float | None:
        """The estimated remaining bytes of a site, with a margin for the uncertainty."""
        row = self._row_of(site)
        return None if row is None or self.table.remaining(row) is None else self.table.value(LEFT, row)

    def remaining_of(self, site: Site) -> Remaining | None:
        """The estimated remaining bytes of a site, with their range."""
        row = self._row_of(site)
        return None if row is None else self.table.remaining(row)

    def range_of(
        self, now: Instant, site_stats: SiteStats, frontier: Frontier
    ) -> tuple[Instant, Instant] | None:
        """The interval in which a site will probably end; None without a forecast."""
        queue = frontier.peek(site_stats.site)
        end_at = None if queue is None else self._outlook.end_of(queue.number)
        if end_at is None or queue is None:
            return None
        return forecast_range(now, end_at, self.table.remaining_now(site_stats, queue))

    def assumptions_of(self, now: Instant, site_stats: SiteStats, frontier: Frontier) -> SiteAssumptions:
        """The assumptions that the plan of a site is based on, each with its source."""
        return self.table.assumptions_of(now, site_stats, frontier)

    def _row_of(self, site: Site) -> int | None:
        number = -1 if self._frontier is None else self._frontier.number_of(site)
        return None if number < 0 else number


def _pause_s(rows: int) -> Seconds:
    """The least time between two plans for many sites."""
    return Seconds((_PLAN_S + _PLAN_S_PER_SITE * rows) / _MAX_CPU_SHARE)


def _are_late(now: Instant, ends_at: FloatArray, due_at: FloatArray) -> BoolArray:
    late: BoolArray = ends_at - due_at > LATE_TOLERANCE * np.maximum(ends_at - now, 1.0)
    return late


def server_of(peer: str, site: Site) -> str:
    """Rates are predicted by address (as in the paper) and port: two ports may be two machines."""
    return f"{peer} {site.rpartition(':')[2]}"


def capacity_ahead(segments: Sequence[Segment]) -> Capacity:
    """The bound in segments, in the form that the allocator takes."""
    steps = [(float(from_s), float(rate)) for from_s, _, rate in segments]
    if not any(rate for _, rate in steps[-1:]):
        # The allocator needs an end of the time without capacity, even beyond the horizon.
        steps.append((float(segments[-1][1]), max(rate for _, rate in steps) or 1.0))
    return Capacity(steps)


def _alike(before: dict[Site, BytesPerSecond], after: dict[Site, BytesPerSecond]) -> bool:
    """Whether two allocations have the same sites, at rates that differ by at most one percent."""
    if before.keys() != after.keys():
        return False
    return all(abs(after[site] - rate) <= 0.01 * rate for site, rate in before.items())
