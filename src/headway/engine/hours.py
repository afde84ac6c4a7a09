"""When sites may be asked: their windows, and deadlines at which what is left of a site is left out.

A site outside its windows sleeps until the next one opens, as one in a pause does. Requests that are under
way when a window closes may go on for its grace; then they are cut, and their pages wait for the next
window. Each site with windows has one entry in a heap, by the next change, so nothing is looked at in
between.
"""

from __future__ import annotations

from heapq import heappop, heappush

from headway.engine.frontier import Frontier
from headway.engine.stats import CrawlStats, SiteStats
from headway.model.command import CutRequests
from headway.model.page import Site, Task
from headway.policy.site_rules import ALWAYS_OPEN, BySite, SiteHours, SiteRules
from headway.units import FOREVER, Instant

_AT_ONCE = 2000
"""Sites of a group have the same windows. More of them are looked at in the next step."""


class SiteOpening:
    """Which sites may be asked now, and what happens when a window changes, or a hard deadline comes."""

    def __init__(
        self,
        stats: CrawlStats,
        frontier: Frontier,
        rules: BySite[SiteRules],
        *,
        stops_at_deadline: bool = False,
    ) -> None:
        """`stops_at_deadline`: of all sites."""
        self._stats = stats
        self._frontier = frontier
        self._rules = rules
        self._stops = stops_at_deadline
        self._fresh: list[Site] = []
        """Sites with new tasks."""
        self._changes: list[tuple[Instant, Site]] = []
        self._watched: set[Site] = set()
        """The sites in that heap."""
        self._cuts: list[tuple[Instant, Site]] = []
        self._deadlines: list[tuple[Instant, Site]] = []
        self.has_changed = False
        """A window has opened or closed: what sites demand of the link is another."""
        if rules or stops_at_deadline:
            stats.on_task = self._task_opened

    def hours_of(self, site: Site) -> SiteHours:
        rules = self._rules.of(site)
        return ALWAYS_OPEN if rules is None else rules.hours

    @property
    def next_at(self) -> Instant:
        """When to call `due`."""
        if self._fresh:
            return Instant(-FOREVER)
        return min(heap[0][0] if heap else FOREVER for heap in (self._changes, self._cuts, self._deadlines))

    def _task_opened(self, task: Task) -> None:
        if self._stops_at_deadline(task.site) or self.hours_of(task.site).windows is not None:
            self._fresh.append(task.site)

    def is_stopped(self, now: Instant, site_stats: SiteStats) -> bool:
        """Its deadline has passed, and what is left is left out."""
        deadline_at = site_stats.task.deadline_at
        return deadline_at is not None and deadline_at <= now and self._stops_at_deadline(site_stats.site)

    def opens_at(self, now: Instant, site_stats: SiteStats) -> Instant:
        """From when on the site may be asked: now, or when its next window opens. A site that is stopped
        before that is looked at then."""
        hours = self.hours_of(site_stats.site)
        if hours.windows is None:
            return now
        at = hours.opens_at(now)
        deadline_at = site_stats.task.deadline_at
        if deadline_at is not None and at > deadline_at and self._stops_at_deadline(site_stats.site):
            at = max(now, deadline_at)
        return at

    def due(self, now: Instant) -> CutRequests | None:
        """Look at what has changed by now; returns the requests to end."""
        fresh, self._fresh = self._fresh, []
        for site in fresh:
            deadline_at = self._stats.site_stats(site).task.deadline_at
            if deadline_at is not None and self._stops_at_deadline(site):
                heappush(self._deadlines, (deadline_at, site))
            if site not in self._watched and self.hours_of(site).windows is not None:
                self._watched.add(site)
                self._watch(now, site)
        cut: dict[Site, None] = {}
        looked = 0
        while self._changes and self._changes[0][0] <= now and looked < _AT_ONCE:
            looked += 1
            at, site = heappop(self._changes)
            self.has_changed = True
            self._frontier.task_changed(site)
            hours = self.hours_of(site)
            if not hours.is_open(now) and self._is_busy(site):
                heappush(self._cuts, (Instant(at + hours.grace_s), site))
            self._watch(now, site)
        while self._cuts and self._cuts[0][0] <= now:
            site = heappop(self._cuts)[1]
            if self._is_busy(site) and not self.hours_of(site).is_open(now):
                cut[site] = None
        while self._deadlines and self._deadlines[0][0] <= now:
            site = heappop(self._deadlines)[1]
            queue = self._frontier.peek(site)
            if queue is None or not self.is_stopped(now, self._stats.site_stats(site)):
                continue  # it has another deadline by now
            if queue.busy:
                cut[site] = None
            elif queue.free_at > now:
                self._frontier.free(site, now)  # the scheduler leaves its pages out
        return CutRequests(frozenset(cut)) if cut else None

    def _watch(self, now: Instant, site: Site) -> None:
        windows = self.hours_of(site).windows
        at = None if windows is None else windows.next_change_after(now)
        if at is None:
            self._watched.discard(site)
        else:
            heappush(self._changes, (at, site))

    def _is_busy(self, site: Site) -> bool:
        queue = self._frontier.peek(site)
        return queue is not None and queue.busy

    def _stops_at_deadline(self, site: Site) -> bool:
        return self._stops or self.hours_of(site).stops_at_deadline
