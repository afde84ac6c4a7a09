"""When a site can be asked: the windows of sites, and servers that cannot be reached.

A site outside its windows sleeps until the next one opens, as one in a pause does. Requests in flight when
a window closes may go on for its grace; then they are cut, and their pages wait for the next window. Each
site with windows has one entry in a heap, by the next change, so the others cost nothing.

A page that fails while its server works is bad by itself: it is retried a few times and given up, and its
site goes on. When the server is in trouble, no page of the site can be fetched: the site is asked with
growing pauses until its deadline; without one until its window closes, and without that until the rest of the
crawl has ended. Its pages lose no attempts.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

from headway.engine.frontier import Frontier
from headway.engine.stats import CrawlStats, SiteStats
from headway.model.command import Command, CutRequests, PageState, SaveNotice
from headway.model.page import Kind, Lease, Outcome, PageKey, Site, Task, tries_before
from headway.policy.politeness import (
    BLOCKED_IN_A_ROW,
    DOUBTFUL,
    TROUBLE,
    UNREACHABLE,
    GiveUp,
    Politeness,
    Retry,
    RetryPolicy,
    may_pass,
)
from headway.policy.site_rules import ALWAYS_OPEN, BySite, SiteHours, SiteRules
from headway.units import FOREVER, Instant, utc_text

UNREACHABLE_SINCE = "unreachable"
"""The notice that says since when a site could not be reached, and why."""
REACHABLE_AGAIN = "reachable again"
BLOCKED = "blocked"
"""The notice of a site that a protective service does not let us read; the subject names the service."""

_NO_CONNECTION = UNREACHABLE - {Kind.THROTTLED}
_PAGES_IN_A_ROW = 4
"""So many pages that fail one after another mean that the server is in trouble, not the pages."""
_DOUBT_S = 20 * 60.0
"""How long such failures are taken for trouble of a server that answered before. After that its pages may
all be bad, and their attempts count."""
_NOTED_FROM = 3
"""An outage is noted when so many tries have failed."""
_LOOK_EVERY_S = 1.0
_LOOKED_AT_A_SECOND = 5000
"""Sites in trouble, when it is found out whether others are still crawled."""


class Outages:
    """The sites whose servers are in trouble, and what becomes of their pages."""

    def __init__(
        self,
        stats: CrawlStats,
        frontier: Frontier,
        retry: RetryPolicy,
        politeness: Politeness,
        opening: SiteOpening,
        *,
        windows: SiteHours = ALWAYS_OPEN,
        is_part: bool = False,
    ) -> None:
        """`windows`: those of the crawl. `is_part`: other collectors add pages to the sites, so that
        each page is asked for."""
        self._stats = stats
        self._frontier = frontier
        self._retry = retry
        self._politeness = politeness
        self._opening = opening
        self._windows = windows
        self._is_part = is_part
        self._down: dict[Site, SiteStats] = {}
        self._noted: set[Site] = set()
        """Those of which there is a notice."""
        self._forgiven: dict[PageKey, int] = {}
        """Attempts at waiting pages that do not count."""
        self._looked_at = Instant(-FOREVER)
        self._is_alone = False

    def restore(self, notices: Sequence[SaveNotice]) -> None:
        """The outages of an earlier session that had not ended."""
        for notice in sorted(notices, key=lambda notice: notice.at):
            if notice.what in {UNREACHABLE_SINCE, REACHABLE_AGAIN}:
                site_stats = self._stats.site_stats(notice.site)
                self._end(site_stats)
                if notice.what == UNREACHABLE_SINCE:
                    self._begin(notice.at, site_stats)
                    self._noted.add(notice.site)

    def judge_page(
        self, now: Instant, site_stats: SiteStats, lease: Lease, outcome: Outcome
    ) -> Retry | GiveUp:
        """What becomes of a page that was not fetched. While the server is in trouble the page goes back to
        its place, and the attempt does not count."""
        key = lease.page.key
        forgiven = self._forgiven.pop(key, 0)
        if outcome.kind is Kind.CANCELLED:
            self._forgiven[key] = forgiven + 1
            return Retry(now, forgiven + 1)
        if self._is_trouble(site_stats, outcome, is_first=tries_before(lease.attempt) == forgiven):
            was_down = site_stats.down_since is not None
            since = self._begin(now, site_stats)
            # Of a server that answered before it may be the page after all, for instance one that always asks
            # to come later: such a page is given up by its own attempts alone.
            is_doubtful = site_stats.has_content and outcome.kind not in _NO_CONNECTION
            is_hopeless = self._is_hopeless(now, site_stats, outcome)
            if is_hopeless and not is_doubtful:
                if not self._is_part:
                    site_stats.given_up = outcome
                return GiveUp(PageState.FAILED, outcome.kind)
            if not is_doubtful or (was_down and now - since <= _DOUBT_S and not is_hopeless):
                self._forgiven[key] = forgiven + 1
                return Retry(now, forgiven + 1)
        verdict = self._retry.decide(now, outcome, lease.attempt - forgiven)
        if forgiven and isinstance(verdict, Retry):
            self._forgiven[key] = forgiven
            return Retry(verdict.at, forgiven)
        return verdict

    def judge_robots(self, now: Instant, site_stats: SiteStats, outcome: Outcome) -> bool:
        """Whether a site is given up whose robots.txt could not be fetched: without it nothing may be."""
        if outcome.kind is Kind.CANCELLED:
            return False
        if not may_pass(outcome):
            return True
        self._begin(now, site_stats)
        return self._is_hopeless(now, site_stats, outcome)

    def answered(self, now: Instant, site_stats: SiteStats, outcome: Outcome) -> list[Command]:
        """Take in any answer. Returns what is to be noted."""
        if outcome.kind is Kind.BLOCKED:
            return self._blocked(now, site_stats, outcome)
        if outcome.status and outcome.kind not in TROUBLE:
            site_stats.blocks = 0
        since = site_stats.down_since
        # A server that asks to come later is not asked before.
        site_stats.tried_at = None if outcome.kind is Kind.THROTTLED or since is None else now
        if since is not None and outcome.kind in TROUBLE:
            if site_stats.failures_in_a_row + 1 < _NOTED_FROM or site_stats.site in self._noted:
                return []
            self._noted.add(site_stats.site)
            subject = f"{outcome.kind} since {utc_text(since)}"
            return [SaveNotice(site_stats.site, since, UNREACHABLE_SINCE, subject)]
        if not outcome.status or outcome.kind in TROUBLE:
            return []
        site_stats.suspects = 0
        if since is None:
            return []
        was_noted = site_stats.site in self._noted
        self._end(site_stats)
        return [SaveNotice(site_stats.site, now, REACHABLE_AGAIN, utc_text(now))] if was_noted else []

    def _blocked(self, now: Instant, site_stats: SiteStats, outcome: Outcome) -> list[Command]:
        """A site that refuses several times in a row is left alone, and the log says what may help."""
        self._end(site_stats)
        site_stats.suspects = 0
        site_stats.blocks += 1
        if site_stats.blocks != BLOCKED_IN_A_ROW and (site_stats.blocks > 1 or site_stats.has_content):
            return []
        if site_stats.blocks >= BLOCKED_IN_A_ROW:
            site_stats.given_up = Outcome(Kind.BLOCKED, detail=outcome.detail)
        return [SaveNotice(site_stats.site, now, BLOCKED, f"{outcome.detail}, status {outcome.status}")]

    def ask_once_more(self, now: Instant) -> bool:
        """Nothing is left but sites in trouble: ask the ones without tries left a last time, and not only
        after their pause. Returns whether one can be asked at once."""
        if not self._down or not self._is_alone_now(now):
            return False
        is_due = False
        for site, site_stats in self._down.items():
            queue = self._frontier.queue(site)
            last_at = site_stats.tried_at
            if last_at is None or queue.busy or not self._has_had_its_tries(now, site_stats, queue.free_at):
                continue
            site_stats.tried_at = None
            rules = site_stats.rules
            pause_s = self._politeness.of(site).pause_s(None if rules is None else rules.crawl_delay_s)
            at = max(now, Instant(last_at + pause_s))
            if at < queue.free_at:
                self._frontier.free(site, at)
                is_due = is_due or at == now
        return is_due

    def _is_trouble(self, site_stats: SiteStats, outcome: Outcome, *, is_first: bool) -> bool:
        """`is_first`: the page has not failed before, so it speaks for the server."""
        if outcome.kind in UNREACHABLE:
            return True
        if outcome.kind not in DOUBTFUL:
            return False
        site_stats.suspects += is_first
        is_down = site_stats.down_since is not None
        return is_down or not site_stats.has_content or site_stats.suspects >= _PAGES_IN_A_ROW

    def _begin(self, now: Instant, site_stats: SiteStats) -> Instant:
        """Since when the server is in trouble."""
        if site_stats.down_since is None:
            site_stats.down_since = now
            self._down[site_stats.site] = site_stats
        return site_stats.down_since

    def _end(self, site_stats: SiteStats) -> None:
        site_stats.down_since = None
        self._down.pop(site_stats.site, None)
        self._noted.discard(site_stats.site)

    def _is_hopeless(self, now: Instant, site_stats: SiteStats, outcome: Outcome) -> bool:
        if outcome.has_no_host and not site_stats.has_content:
            return True  # a name that had an address before is in trouble, another is misspelt
        if site_stats.failures_in_a_row + 1 < self._retry.max_attempts:
            return False
        rules = site_stats.rules
        delay_s = None if rules is None else rules.crawl_delay_s
        next_at = self._politeness.of(site_stats.site).free_at(
            now, outcome, 0, site_stats.failures_in_a_row + 1, delay_s
        )
        return self._has_had_its_tries(now, site_stats, next_at) and self._is_alone_now(now)

    def _has_had_its_tries(self, now: Instant, site_stats: SiteStats, next_at: Instant) -> bool:
        """`next_at`: when it would be asked next. A window that closes before, and opens again only when the
        deadline is over, is the end; nobody waits a day for the last try."""
        if site_stats.failures_in_a_row + 1 < self._retry.max_attempts:
            return False
        deadline_at = site_stats.task.deadline_at
        hours = self._opening.hours_of(site_stats.site)
        if hours.windows is None and self._windows.windows is None:
            return deadline_at is None or now >= deadline_at
        closes_at = min(each.closes_at(now) if each.is_open(now) else now for each in (hours, self._windows))
        if next_at < closes_at:
            return deadline_at is not None and now >= deadline_at
        opens_at = max(hours.opens_at(next_at), self._windows.opens_at(next_at))
        return deadline_at is None or opens_at >= deadline_at

    def _is_alone_now(self, now: Instant) -> bool:
        """Whether nothing is left to fetch but the pages of sites in trouble."""
        pause_s = max(_LOOK_EVERY_S, len(self._down) / _LOOKED_AT_A_SECOND)
        if not 0 <= now - self._looked_at < pause_s or self._is_alone:
            self._looked_at = now
            waiting_of = self._frontier.waiting_of
            self._is_alone = self._frontier.waiting <= sum(waiting_of(site) for site in self._down)
        return self._is_alone


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
