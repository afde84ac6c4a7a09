"""What each site demands of the link, in columns: data left with its range, highest rate, deadline, weight.

A row is a site, by the number of its queue. A row is computed again only when its site has changed, so that a
plan for many sites costs array operations and no object for each site.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from headway.engine.frontier import Frontier
from headway.engine.site_queue import MemorySiteQueue
from headway.engine.stats import CrawlStats, SiteStats
from headway.model.page import Site
from headway.planning.allocator import SiteDemand
from headway.planning.estimate import (
    DEFAULT,
    GIVEN,
    LISTED,
    MEASURED,
    NO_FACTS,
    NOTHING_LEARNT,
    PRIOR_PAGE_BYTES,
    Assumption,
    Evidence,
    Knowledge,
    Remaining,
    SharedBy,
    SiteAssumptions,
    SiteFacts,
    cap_bytes_per_s,
    page_bytes,
    remaining_bytes,
    spread_of,
)
from headway.planning.feasibility import Work
from headway.planning.problem import FloatArray, IntArray
from headway.planning.problem import Timetable as Capacity
from headway.policy.politeness import Politeness
from headway.policy.prediction import Prediction
from headway.policy.scope import host_of, is_address, registered_domain
from headway.policy.server_groups import GroupRules, ServerGroups, address_in, server_key
from headway.policy.site_rules import BySite, SiteRules
from headway.units import FOREVER, UNBOUNDED, BytesPerSecond, Instant, Seconds

_FIRST_ROWS = 64
_MOST_ALIKE = 4096
_SUMS = 16
"""Of sites with deadlines, where each by itself would be too many to be sent."""

IS_OPEN, LEFT, CAP, DUE_AT, WEIGHT, LOW, EXPECTED, HIGH, SPREAD = range(9)
ANSWERS, FAST_CAP, RUDE_CAP, IS_KNOWN, IS_SHUT, TOLD_DUE_AT, IS_CAPPED = range(9, 16)
OWN_CAP, OWN_FAST_CAP, PAGE_S, FAST_PAGE_S, SIZE = range(16, 21)
"""The columns. `LEFT` is `EXPECTED` with a margin for its uncertainty;
`FAST_CAP` is the highest rate if our own link were no limit, `RUDE_CAP` also without pauses between requests;
`IS_KNOWN`: the user or an earlier run has given the size; `SPREAD`: the deviation of the logarithm of what is
left from what is expected; `IS_SHUT`: outside the windows of the site. `DUE_AT` is the deadline without the
time until then at which the site is shut, `TOLD_DUE_AT` the deadline itself. `IS_CAPPED`: the highest rate is
the `cap` of the job. `OWN_CAP` and `OWN_FAST_CAP`: the rates without other sites of its server or domain.
`PAGE_S` and `FAST_PAGE_S`: how long a page takes without a pause, `SIZE` how large it is."""
_COLUMNS = 21
_MOST_GROUPED = 200_000
"""Of sites without a deadline, only so many are compared with the others of their servers and domains."""


class SharedLimit:
    """A server or a domain: an interval that the pages of all its sites keep together."""

    __slots__ = ("connections", "has_own_rule", "key", "pause_s", "rows")

    def __init__(self, key: str, pause_s: float, connections: int, *, has_own_rule: bool) -> None:
        self.key = key
        self.pause_s = pause_s
        self.connections = connections
        self.has_own_rule = has_own_rule
        self.rows: list[int] = []


class SharedLimits:
    """The servers and domains of the sites, by row. A domain is known from the name of a site, its server
    from an address in its place, or else once the name has been looked up."""

    def __init__(self, rules: GroupRules | None, politeness: Politeness) -> None:
        self._rules = None if rules is None else ServerGroups(rules)
        self._politeness = politeness
        self._domains: dict[str, SharedLimit] = {}
        self._servers: dict[str, SharedLimit] = {}
        self._domain_of: dict[int, SharedLimit | None] = {}
        self._server_of: dict[int, SharedLimit] = {}

    def note(self, row: int, site_stats: SiteStats) -> None:
        """Take in a site, and its server once that is known."""
        if self._rules is None:
            return
        if row not in self._domain_of:
            if len(self._domain_of) >= _MOST_GROUPED and site_stats.task.deadline_at is None:
                return
            domain = registered_domain(host_of(site_stats.site))
            has_group = "." in domain and not is_address(domain)
            self._domain_of[row] = self._join(row, site_stats.site, domain) if has_group else None
        server = site_stats.server_group
        if server is None and (address := address_in(site_stats.site)):
            is_of_job = bool(site_stats.task.seeds)
            server = server_key(address, site_stats.site, self._rules.rules, is_of_job=is_of_job)
        before = self._server_of.get(row)
        if server and (before is None or before.key != server):
            if before is not None:
                before.rows.remove(row)
                del self._server_of[row]
            joined = self._join(row, site_stats.site, server, is_server=True)
            if joined is not None:
                self._server_of[row] = joined

    def _join(self, row: int, site: Site, key: str, *, is_server: bool = False) -> SharedLimit | None:
        assert self._rules is not None
        known = self._servers if is_server else self._domains
        group = known.get(key)
        politeness = self._politeness.of(site)
        if group is None:
            interval_s, connections = self._rules.limits_of(key, is_server=is_server)
            has_own_rule = self._rules.has_own_rule(key)
            pause_s = interval_s / politeness.pages_per_connection
            group = known[key] = SharedLimit(key, pause_s, connections, has_own_rule=has_own_rule)
        if self._rules.rules.follow_sites and not group.has_own_rule:
            # What a person allows for a site holds for its server and its domain.
            own_s = politeness.interval_s / politeness.pages_per_connection
            group.pause_s = min(group.pause_s, own_s)
        group.rows.append(row)
        return group

    def of(self, row: int) -> list[SharedLimit]:
        """The domain and the server of a site, if they have an interval."""
        found = (self._domain_of.get(row), self._server_of.get(row))
        return [group for group in found if group is not None and group.pause_s > 0]

    def all(self) -> list[SharedLimit]:
        """The ones that several sites share."""
        groups = (*self._domains.values(), *self._servers.values())
        return [group for group in groups if group.pause_s > 0 and len(group.rows) > 1]


def shared_ends_s(work_s: FloatArray, due_at: FloatArray) -> FloatArray:
    """When each of the sites of a group ends at the earliest, if they are served in the order of their
    deadlines: those with one deadline end together. `work_s`: how long the group works for each."""
    _, place = np.unique(due_at, return_inverse=True)
    totals_s: FloatArray = np.bincount(place, weights=work_s).astype(np.float64)
    ends_s: FloatArray = np.cumsum(totals_s, dtype=np.float64)[place]
    return ends_s


class DemandTable:
    """The demands of all sites. `update` computes the rows of sites that have changed."""

    def __init__(
        self,
        politeness: Politeness,
        prediction: Prediction,
        knowledge: Knowledge = NOTHING_LEARNT,
        *,
        by_processes: bool = False,
        rules: BySite[SiteRules] | None = None,
        limits: SharedLimits | None = None,
    ) -> None:
        self._rules = rules or BySite()
        self._limits = limits or SharedLimits(None, politeness)
        self._to_share: dict[str, SharedLimit] = {}
        """The servers and domains of which a site has changed."""
        self._by_processes = by_processes
        self._politeness = politeness
        self.prediction = prediction
        self._knowledge = knowledge
        self._sources: dict[Site, Site] = {}
        """Of sites that have taken over the task of another one: that one."""
        self._rows: NDArray[np.float64] = np.zeros((_FIRST_ROWS, _COLUMNS))
        self._sites: list[Site] = []
        self._alike: dict[tuple[object, ...], tuple[float, ...]] = {}
        """Rows of sites of which nothing was requested, by what they depend on: most sites are alike."""
        self.rows_computed = 0
        """How many rows were computed since the start: the work of keeping the table up to date."""

    def take_over(self, source: Site, target: Site) -> None:
        """The site `target` is what is meant by `source`: what is known of that holds for it."""
        self._sources[target] = self._sources.get(source, source)

    def _facts_of(self, site: Site) -> SiteFacts:
        """What an earlier run has learnt of a site."""
        facts = self._knowledge.sites.get(site)
        if facts is None and self._sources:
            facts = self._knowledge.sites.get(self._sources.get(site, site))
        return NO_FACTS if facts is None else facts

    # -- keeping up to date -----------------------------------------------------------------------------

    def update(
        self,
        now: Instant,
        stats: CrawlStats,
        queues: Sequence[MemorySiteQueue],
        most_bytes_per_s: BytesPerSecond,
    ) -> None:
        """Compute the rows of these sites again. `most_bytes_per_s`: the capacity of the link."""
        if not queues:
            return
        numbers = [queue.number for queue in queues]
        self._make_room(max(numbers) + 1)
        rows = []
        for queue in queues:
            self._sites[queue.number] = queue.site
            site_stats = stats.look_at(queue.site)
            self._limits.note(queue.number, site_stats)
            for group in self._limits.of(queue.number):
                self._to_share[group.key] = group
            rows.append(self._row(now, site_stats, queue, most_bytes_per_s))
        # Until the next plan, a site keeps the part of its server and its domain that it had.
        parts = [self._part(number) for number in numbers]
        self._rows[numbers] = rows
        for number, (part, fast_part) in zip(numbers, parts, strict=True):
            if part < 1.0 or fast_part < 1.0:
                self._rows[number, CAP] *= part
                self._rows[number, FAST_CAP] *= fast_part
        self.rows_computed += len(rows)

    def _part(self, row: int) -> tuple[float, float]:
        values = self._rows[row]
        if not values[OWN_CAP] or math.isinf(values[OWN_CAP]) or math.isinf(values[OWN_FAST_CAP]):
            return 1.0, 1.0
        return float(values[CAP] / values[OWN_CAP]), float(values[FAST_CAP] / values[OWN_FAST_CAP])

    def share(self) -> None:
        """Divide the pages that a server or a domain can give among its sites, where something has changed.
        Each site has the rate at which it ends when the sites are served in the order of their deadlines."""
        if not self._to_share:
            return
        changed, self._to_share = self._to_share, {}
        touched = np.unique(
            [row for group in changed.values() for row in group.rows if row < len(self._sites)]
        )
        touched = touched.astype(np.int64)
        self._rows[touched, CAP] = self._rows[touched, OWN_CAP]
        self._rows[touched, FAST_CAP] = self._rows[touched, OWN_FAST_CAP]
        both = dict(changed)
        for row in touched.tolist():
            for group in self._limits.of(row):
                both[group.key] = group
        for group in both.values():
            self._share_among(group)

    def _share_among(self, group: SharedLimit) -> None:
        rows = np.array([row for row in group.rows if row < len(self._sites)], dtype=np.int64)
        values = self._rows[rows]
        rows = rows[(values[:, IS_OPEN] > 0) & (values[:, EXPECTED] > 0) & (values[:, IS_SHUT] == 0)]
        values = self._rows[rows]
        for cap, page in ((CAP, PAGE_S), (FAST_CAP, FAST_PAGE_S)):
            pages = np.maximum(values[:, EXPECTED], 1.0) / values[:, SIZE]
            work_s = pages * (group.pause_s + values[:, page]) / group.connections
            ends_s = shared_ends_s(work_s, values[:, DUE_AT])
            most = np.maximum(values[:, EXPECTED], 1.0) / ends_s
            self._rows[rows, cap] = np.minimum(self._rows[rows, cap], most)

    def _make_room(self, rows: int) -> None:
        self._sites += [Site("")] * (rows - len(self._sites))
        if rows > len(self._rows):
            larger = np.zeros((max(rows, len(self._rows) * 5 // 4), _COLUMNS))
            larger[: len(self._rows)] = self._rows
            self._rows = larger

    def _row(
        self, now: Instant, site_stats: SiteStats, queue: MemorySiteQueue, most_bytes_per_s: BytesPerSecond
    ) -> tuple[float, ...]:
        task = site_stats.task
        if site_stats.answers or site_stats.in_flight or site_stats.site in self._knowledge.sites:
            return self._computed(now, site_stats, queue, most_bytes_per_s)
        if self._rules and self._rules.of(site_stats.site) is not None:
            return self._computed(now, site_stats, queue, most_bytes_per_s)
        key = (
            queue.waiting,
            queue.deferred_visits,
            queue.busy,
            task.expected_bytes,
            task.max_pages,
            task.max_bytes,
            task.cap_bytes_per_s,
            None if site_stats.rules is None else site_stats.rules.crawl_delay_s,
            site_stats.links_seen,
            most_bytes_per_s,
            self._server_rate(now, site_stats),
        )
        row = self._alike.get(key)
        if row is None:
            if len(self._alike) >= _MOST_ALIKE:
                self._alike.clear()
            row = self._alike[key] = self._computed(now, site_stats, queue, most_bytes_per_s)
        due_at = math.inf if task.deadline_at is None else task.deadline_at
        told = (*row[WEIGHT + 1 : TOLD_DUE_AT], due_at, *row[TOLD_DUE_AT + 1 :])
        return (*row[:DUE_AT], due_at, task.weight, *told)

    def _computed(
        self, now: Instant, site_stats: SiteStats, queue: MemorySiteQueue, most_bytes_per_s: BytesPerSecond
    ) -> tuple[float, ...]:
        task = site_stats.task
        evidence = self._evidence(site_stats, queue)
        remaining = remaining_bytes(evidence)
        size = page_bytes(evidence)
        # While the link is closed (capacity zero), its capacity does not limit the site's own rate.
        cap = self._cap(now, site_stats, size, most_bytes_per_s or UNBOUNDED)
        fast_cap = self._cap(now, site_stats, mean_page_bytes(site_stats), UNBOUNDED)
        due_at = told_due_at = math.inf if task.deadline_at is None else task.deadline_at
        is_shut = False
        rate = self._server_rate(now, site_stats)
        page_s = size / min(rate, most_bytes_per_s or UNBOUNDED)
        if self._rules and (rules := self._rules.of(task.site)) is not None:
            is_shut = not rules.hours.is_open(now)
            due_at -= rules.hours.shut_s(now, due_at)
        return (
            1.0 if queue.due or queue.busy else 0.0,
            remaining.guarded(),
            cap,
            due_at,
            task.weight,
            remaining.low,
            remaining.expected,
            remaining.high,
            spread_of(evidence),
            site_stats.answers,
            max(cap, fast_cap),
            max(cap, fast_cap, rate),
            0.0 if evidence.whole_bytes is None else 1.0,
            1.0 if is_shut else 0.0,
            told_due_at,
            1.0 if task.cap_bytes_per_s is not None and fast_cap >= task.cap_bytes_per_s else 0.0,
            cap,
            max(cap, fast_cap),
            page_s,
            size / rate,
            size,
        )

    # -- columns ----------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._sites)

    def open_rows(self, *, are_shut: bool = True) -> IntArray:
        """The rows of sites of which pages wait or are in flight. `are_shut`: also outside their windows."""
        rows = self._rows[: len(self._sites)]
        return np.flatnonzero((rows[:, IS_OPEN] > 0) & (are_shut | (rows[:, IS_SHUT] == 0)))

    def wanting_rows(self) -> IntArray:
        """The rows of sites that can be given a part of the link."""
        rows = self._rows[: len(self._sites)]
        is_wanting = (rows[:, IS_OPEN] > 0) & (rows[:, LEFT] > 0) & (rows[:, CAP] > 0)
        return np.flatnonzero(is_wanting & (rows[:, IS_SHUT] == 0))

    def is_wanting(self, row: int) -> bool:
        if row >= len(self._sites):
            return False
        values = self._rows[row]
        return bool(values[IS_OPEN] > 0 and values[LEFT] > 0 and values[CAP] > 0 and not values[IS_SHUT])

    def column(self, column: int, rows: IntArray) -> FloatArray:
        values: FloatArray = self._rows[rows, column]
        return values

    def value(self, column: int, row: int) -> float:
        return float(self._rows[row, column])

    def work(self, now: Instant, rows: IntArray, capacity: Capacity, seats: int | None = None) -> Work:
        """The work of these rows. `seats`: how many of them may be served at once; None: all."""
        return Work.of(
            self.column(LEFT, rows),
            self.column(CAP, rows),
            self.column(DUE_AT, rows) - now,
            weight=self.column(WEIGHT, rows),
            link=capacity,
            seats=max(len(rows), 1) if seats is None else seats,
        )

    def site(self, row: int) -> Site:
        return self._sites[row]

    # -- single sites -----------------------------------------------------------------------------------

    def latest_start_at(self, row: int) -> Instant | None:
        """The latest instant at which a site can start and still meet its deadline, if it gets its highest
        rate; None for a site that has no row yet."""
        if row >= len(self._sites) or not self._sites[row]:
            return None
        due_at = float(self._rows[row, DUE_AT])
        if math.isinf(due_at):
            return FOREVER
        # In its turn a site has its server and its domain to itself: who is next is decided by that.
        most = float(self._rows[row, OWN_CAP]) or float(self._rows[row, CAP])
        return Instant(due_at - float(self._rows[row, LEFT]) / most)

    def remaining(self, row: int) -> Remaining | None:
        """The estimated remaining bytes of a site, with their range."""
        if row >= len(self._sites) or not self._sites[row]:
            return None
        values = self._rows[row]
        return Remaining(float(values[LOW]), float(values[EXPECTED]), float(values[HIGH]))

    def as_objects(self, rows: IntArray, *, cap: int = CAP) -> list[SiteDemand]:
        """The demands of these rows, for what does not work on columns."""
        dues = self.column(DUE_AT, rows).tolist()
        return [
            SiteDemand(
                self._sites[row],
                left,
                None if math.isinf(due_at) else Instant(due_at),
                BytesPerSecond(most),
                weight,
            )
            for row, left, due_at, most, weight in zip(
                rows.tolist(),
                self.column(LEFT, rows).tolist(),
                dues,
                self.column(cap, rows).tolist(),
                self.column(WEIGHT, rows).tolist(),
                strict=True,
            )
        ]

    def in_few(
        self, now: Instant, rows: IntArray, most: int, others: str, *, cap: int = CAP
    ) -> tuple[list[SiteDemand], list[SiteDemand]]:
        """The demands of the most urgent of these rows, and those of all others as a few sums, in the order
        of the deadlines: as sites with the name `others` and a number."""
        if len(rows) <= most:
            return self.as_objects(rows, cap=cap), []
        caps, left, due_at = self.column(cap, rows), self.column(LEFT, rows), self.column(DUE_AT, rows)
        due_at = np.where(due_at > now, due_at, np.inf)
        latest_start_at = due_at - np.divide(left, caps, out=np.zeros_like(left), where=caps > 0.0)
        is_urgent = np.zeros(len(rows), dtype=bool)
        is_urgent[np.argpartition(latest_start_at, most - 1)[:most]] = True
        rest = np.flatnonzero(~is_urgent & (left > 0.0) & (caps > 0.0))
        rest = rest[np.argsort(due_at[rest], kind="stable")]
        dated = int(np.searchsorted(due_at[rest], np.inf))
        weights = self.column(WEIGHT, rows)
        sums = [
            SiteDemand(
                Site(f"{others} {number}"),
                float(left[part].sum()),
                None if math.isinf(due_at[part[-1]]) else Instant(float(due_at[part[-1]])),
                BytesPerSecond(float(caps[part].sum())),
                float(weights[part].sum()),
            )
            for number, part in enumerate([rest[dated:], *np.array_split(rest[:dated], _SUMS)])
            if len(part)
        ]
        return self.as_objects(rows[is_urgent], cap=cap), sums

    def assumptions_of(self, now: Instant, site_stats: SiteStats, frontier: Frontier) -> SiteAssumptions:
        """The assumptions that the plan of a site is based on, each with its source."""
        queue = frontier.peek(site_stats.site) or frontier.queue(site_stats.site)
        evidence = self._evidence(site_stats, queue)
        learnt, seen = f"learnt in {self._knowledge.source}", evidence.fetched_pages > 0
        facts = evidence.facts
        if evidence.given_bytes is not None:
            data_source = GIVEN
        elif facts.data_bytes:
            data_source = learnt
        elif facts.listed_pages and not seen:
            data_source = LISTED
        else:
            data_source = MEASURED if seen else DEFAULT
        usual = Assumption(page_bytes(evidence), learnt if facts.page_bytes else DEFAULT)
        if site_stats.server in self.prediction:
            rate_source = MEASURED
        else:
            rate_source = learnt if facts.rate_bytes_per_s and not site_stats.server else DEFAULT
        return SiteAssumptions(
            site_stats.site,
            Assumption(remaining_bytes(evidence).expected, data_source),
            Assumption(usual.value, MEASURED) if seen else usual,
            Assumption(self._server_rate(now, site_stats), rate_source),
            self.pause_s(site_stats),
            self._shared_of(queue.number),
        )

    def _shared_of(self, row: int) -> tuple[SharedBy, ...]:
        found = []
        for group in self._limits.of(row):
            sites = sum(1 for each in group.rows if each < len(self._sites) and self._rows[each, IS_OPEN] > 0)
            if sites > 1:
                found.append(SharedBy(group.key, sites, group.pause_s, group.connections))
        return tuple(found)

    def remaining_now(self, site_stats: SiteStats, queue: MemorySiteQueue) -> Remaining:
        """As `remaining`, from what is known at this moment."""
        return remaining_bytes(self._evidence(site_stats, queue))

    def pause_s(self, site_stats: SiteStats) -> Seconds:
        """The politeness pause, per page."""
        delay_s = site_stats.rules.crawl_delay_s if site_stats.rules is not None else None
        politeness = self._politeness.of(site_stats.site)
        pages = 1 if delay_s else politeness.pages_per_connection
        return Seconds(politeness.pause_s(delay_s) / pages)

    def _cap(
        self, now: Instant, site_stats: SiteStats, size_bytes: float, most_bytes_per_s: BytesPerSecond
    ) -> BytesPerSecond:
        """The highest rate that a site can have over time: that of its server, less the politeness pauses.
        A process that makes no pauses may have several requests in flight, so nothing is known of it."""
        pause_s = self.pause_s(site_stats)
        if self._by_processes and not pause_s:
            return site_stats.task.cap_bytes_per_s or UNBOUNDED
        cap = cap_bytes_per_s(
            size_bytes,
            pause_s=pause_s,
            # The predicted rate is measured from request to end, so it includes the server's latency. No page
            # comes faster than the whole link.
            server_rate_bytes_per_s=min(self._server_rate(now, site_stats), most_bytes_per_s),
        )
        return cap if site_stats.task.cap_bytes_per_s is None else min(cap, site_stats.task.cap_bytes_per_s)

    def _server_rate(self, now: Instant, site_stats: SiteStats) -> BytesPerSecond:
        if not site_stats.server:  # no answer yet
            learnt = self._facts_of(site_stats.site).rate_bytes_per_s
            if learnt:
                return BytesPerSecond(learnt)
        return self.prediction.predict(now, site_stats.server)

    def _evidence(self, site_stats: SiteStats, queue: MemorySiteQueue) -> Evidence:
        task, facts = site_stats.task, self._facts_of(site_stats.site)
        return Evidence(
            fetched_pages=site_stats.answers,
            fetched_bytes=site_stats.wire_bytes,
            waiting_pages=queue.due,
            in_flight_pages=site_stats.in_flight,
            links_seen=site_stats.links_seen,
            links_new=site_stats.links_new,
            new_per_page=site_stats.new_per_page,
            sitemap_pages=facts.listed_pages,
            given_bytes=task.expected_bytes,
            max_pages=task.max_pages,
            max_bytes=task.max_bytes,
            facts=facts,
        )


def mean_page_bytes(site_stats: SiteStats) -> float:
    if not site_stats.answers:
        return PRIOR_PAGE_BYTES
    return max(1.0, site_stats.wire_bytes / site_stats.answers)
