"""Which page is requested next: from the sites that politeness allows, in the ordering's order, within the
bound.

`Scheduler` chooses the pages, `Leases` keeps those in flight, `SitePoliteness` decides when a site may be
asked again. `Policies` and `EngineSettings` are what an engine is built from.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from heapq import heappop, heappush
from typing import NamedTuple

from headway.engine.availability import SiteOpening
from headway.engine.bandwidth import BandwidthPlanner, LinkBound
from headway.engine.frontier import Frontier
from headway.engine.site_queue import MemorySiteQueue, Waiting
from headway.engine.stats import CrawlStats, SiteStats
from headway.model.command import (
    Command,
    FetchPage,
    FetchRobots,
    FindServer,
    PageState,
    SaveSettled,
    SaveSite,
    SetContention,
)
from headway.model.page import Kind, Lease, Outcome, Page, PageKey, Site, is_again
from headway.policy.admission import PATIENCE_S, Admission, ConnectionBudget, is_good
from headway.policy.ordering.base import Ordering
from headway.policy.politeness import Politeness, RetryPolicy, forbidden, visit_at
from headway.policy.prediction import Prediction
from headway.policy.revisit import RevisitPolicy
from headway.policy.scope import Scope, host_of, registered_domain
from headway.policy.server_groups import Group, GroupRules, ServerGroups, address_in, server_key
from headway.policy.site_rules import NO_RULES, BySite, SiteRules
from headway.policy.traps import TrapWatch
from headway.units import FOREVER, BytesPerSecond, Instant, Seconds


class Leases:
    """The pages in flight. A lease expires if its page does not settle in time."""

    def __init__(self, length_s: Seconds) -> None:
        self._length_s = length_s
        self._open: dict[int, Lease] = {}
        self._by_end: list[tuple[Instant, int]] = []
        self._last_number = 0

    def __len__(self) -> int:
        return len(self._open)

    def in_flight(self) -> Iterator[Page]:
        """The leased pages."""
        return (lease.page for lease in self._open.values())

    def lend(self, now: Instant, page: Page, attempt: int) -> Lease:
        self._last_number += 1
        until = Instant(now + self._length_s)
        lease = Lease(self._last_number, page, attempt, until)
        self._open[lease.number] = lease
        heappush(self._by_end, (until, lease.number))
        return lease

    def settle(self, number: int) -> Lease | None:
        """End and return a lease; None if it has expired: a late answer does not count."""
        return self._open.pop(number, None)

    def lent_at(self, lease: Lease) -> Instant:
        return Instant(lease.until - self._length_s)

    def pages(self) -> set[PageKey]:
        """The keys of the leased pages."""
        return {lease.page.key for lease in self._open.values()}

    def expired(self, now: Instant) -> list[Lease]:
        """End and return the expired leases, in the order of their ends."""
        over = []
        while self._by_end and self._by_end[0][0] <= now:
            lease = self._open.pop(heappop(self._by_end)[1], None)
            if lease is not None:
                over.append(lease)
        return over

    def next_expiry_at(self) -> Instant:
        while self._by_end and self._by_end[0][1] not in self._open:
            heappop(self._by_end)
        return self._by_end[0][0] if self._by_end else FOREVER


class SitePoliteness:
    """When a site may be asked again, counted from the end of each answer, and when it is complete."""

    def __init__(
        self,
        frontier: Frontier,
        politeness: Politeness,
        planner: BandwidthPlanner | None,
        *,
        recrawls: bool = False,
    ) -> None:
        self._recrawls = recrawls
        self._frontier = frontier
        self._politeness = politeness
        self._planner = planner
        self._used_until: dict[Site, float] = {}
        """By site with a cap: until when its bytes have used it up."""

    def answered(
        self, now: Instant, site_stats: SiteStats, outcome: Outcome, *, robots_text: str | None = None
    ) -> SaveSite:
        """Take in an answer: free the site when politeness allows, and return its row for the store."""
        is_down = site_stats.down_since is not None
        site_stats.failures_in_a_row = site_stats.failures_in_a_row + 1 if is_down else 0
        site_stats.pages_on_connection = site_stats.pages_on_connection + 1 if outcome.keep_alive else 0
        delay_s = site_stats.rules.crawl_delay_s if site_stats.rules is not None else None
        free_at = self._politeness.of(site_stats.site).free_at(
            now, outcome, site_stats.pages_on_connection, site_stats.failures_in_a_row, delay_s
        )
        minutes = getattr(site_stats.rules, "visit_minutes", None)
        if minutes is not None:
            free_at = visit_at(free_at, minutes)
        if free_at > now:
            site_stats.pages_on_connection = 0
        next_at = free_at
        if self._planner is not None and robots_text is None:
            next_at = max(next_at, self._planner.rate_allows_at(now, site_stats, outcome.wire_bytes))
        if (cap := site_stats.task.cap_bytes_per_s) is not None and robots_text is None:
            next_at = max(next_at, self._cap_allows_at(now, site_stats, outcome.wire_bytes / cap))
        self._frontier.free(site_stats.site, next_at)
        return self.update_end(now, site_stats, free_at, robots_text)

    def _cap_allows_at(self, now: Instant, site_stats: SiteStats, page_s: float) -> Instant:
        """When a site may be asked again whose last page has used up its cap for so long."""
        used_until = max(self._used_until.get(site_stats.site, 0.0), site_stats.asked_at) + page_s
        self._used_until[site_stats.site] = used_until
        return Instant(max(now, used_until))

    def update_end(
        self, now: Instant, site_stats: SiteStats, free_at: Instant, robots_text: str | None = None
    ) -> SaveSite:
        """Note whether the site is complete, and return its row for the store."""
        was_over = site_stats.ended_at is not None
        is_over = not self._frontier.queue(site_stats.site).due
        if is_over or not self._recrawls:
            # A site that was complete once stays complete during further visits.
            site_stats.ended_at = (site_stats.ended_at or now if self._recrawls else now) if is_over else None
        if was_over != (site_stats.ended_at is not None) and self._planner is not None:
            self._planner.site_changed(now)
        expires_at = site_stats.robots_expires_at if robots_text is not None else None
        return SaveSite(
            site_stats.site,
            free_at,
            site_stats.failures_in_a_row,
            robots_text,
            expires_at,
            site_stats.ended_at,
        )


class Policies(NamedTuple):
    """The policies of an engine."""

    ordering: Ordering
    scope: Scope
    politeness: Politeness
    retry: RetryPolicy
    revisit: RevisitPolicy | None = None
    """When pages are visited again; None: never."""
    admission: Admission[Site] | None = None
    """Defers downloads whose predicted rates exceed the bound (diligenti2004)."""
    traps: TrapWatch | None = None
    rules: BySite[SiteRules] = BySite()
    """What sites have of their own."""
    page_key: Callable[[Page], float] | None = None
    """The order of the pages within their sites, if it is not the ordering's."""


class EngineSettings(NamedTuple):
    """The settings of an engine."""

    max_connections: int
    lease_s: Seconds
    """How long a page may be in flight before it counts as failed."""
    asks_robots: bool = True
    stops_at_deadline: bool = False
    """What is left of a site at its deadline is left out."""
    recrawls: bool = False
    """Known pages are fetched again; the page limits of their sites count them once."""
    is_part: bool = False
    """Several engines work on one crawl, each on the sites that it owns."""
    most_held: int | None = None
    """About how many waiting pages are kept in memory, the others in the store; None: all."""
    holds_sites: bool = False
    """Only sites to which the planner gives a rate are crawled."""
    per_server: int | None = None
    """Connections to one server address; None: any number."""
    per_domain: int | None = None
    """Connections to the sites of one registered domain."""
    links_at_once: int | None = None
    """How many links of a page one step adds, leaving the others to later steps; None: all."""
    groups: GroupRules | None = None
    """What holds for servers and domains; None: each site is alone."""
    knows_servers: bool = False
    """The addresses that answer are those of the servers, rather than of a proxy."""
    finds_servers: bool = False
    """Names are looked up before the first request."""
    purposes: tuple[str, ...] = ()
    """What the crawl is for: pages that robots.txt reserves from one of these are not requested."""


_NEW_SERVER = BytesPerSecond(1_000_000.0)
_NEW_SERVERS = 4
"""So many servers of which nothing is known fit under the bound together."""
_WHOLE_QUEUE = 100_000
_MOST_LOOKUPS = 256
"""Names that are looked up at the same time."""
_PAST_DEADLINE = Outcome(Kind.LIMIT, detail="left out at the deadline")
_MOST_DROPPED_AT_ONCE = 25
"""About as many pages are dropped in one step: 25 ms, if comparing each with robots.txt takes longest."""


class Scheduler:
    """Chooses the next page: of the free site that comes first in the ordering, while the bound allows.

    With admission (diligenti2004), a site is asked only if its predicted rate and those of all downloads in
    flight fit under the bound together; the next sites in the ordering are searched to a fixed depth.
    """

    def __init__(
        self,
        stats: CrawlStats,
        frontier: Frontier,
        bound: LinkBound,
        *,
        policies: Policies,
        settings: EngineSettings,
        site_politeness: SitePoliteness,
        opening: SiteOpening,
        superseded: set[PageKey] | None = None,
    ) -> None:
        """`superseded`: waiting pages to skip, because a copy has been delivered meanwhile."""
        self._stats = stats
        self._frontier = frontier
        self._bound = bound
        self._site_politeness = site_politeness
        self._opening = opening
        self._rules = policies.rules
        self._politeness = policies.politeness
        self._admission = policies.admission
        self._watch = policies.traps
        self._max_connections = settings.max_connections
        self._asks_robots = settings.asks_robots
        self._recrawls = settings.recrawls or policies.revisit is not None
        self._consumption = Prediction(_NEW_SERVER, starts_from_prior=False)
        self._starving: Site | None = None
        self._search_at = self._began_at = Instant(-FOREVER)
        self._superseded = superseded if superseded is not None else set()
        self.leases = Leases(settings.lease_s)
        self._asking_robots: set[Site] = set()
        self._budget = ConnectionBudget(settings.max_connections, settings.per_server, settings.per_domain)
        self.groups = None if settings.groups is None else ServerGroups(settings.groups)
        self._purposes = settings.purposes
        self._knows_servers = settings.knows_servers
        self._finds_servers = settings.finds_servers
        self._looking_up: set[Site] = set()
        self._to_look_up: deque[Site] = deque()
        """Sites that wait until fewer names are looked up."""
        self.most_stalled: int | None = None
        """How many connections may make no progress, because sites wait for one; None: any number."""
        self.quota_is_spent = False
        """A quota is used up: no request is started until it is renewed."""

    @property
    def in_flight(self) -> int:
        """Connections in use: requests for pages and for robots.txt."""
        return len(self.leases) + len(self._asking_robots)

    @property
    def is_full(self) -> bool:
        return self.in_flight >= self._max_connections

    def robots_settled(self, site: Site) -> bool:
        """Note that a request for robots.txt has ended; False if none was in flight."""
        was_asked = site in self._asking_robots
        self._asking_robots.discard(site)
        return was_asked

    def answered(self, now: Instant, site_stats: SiteStats, outcome: Outcome) -> None:
        """Release the connection and the part of the link that a site was admitted with."""
        if self._admission is not None:
            self._admission.ended(site_stats.site)
            if site_stats.server and outcome.wire_bytes and outcome.duration_s > 0:
                # With our own pacing, since that is what a download takes from the bound.
                consumed = BytesPerSecond(outcome.wire_bytes / outcome.duration_s)
                self._consumption.learn(now, site_stats.server, consumed)
        if outcome.kind is not Kind.CANCELLED:
            site_stats.address = outcome.peer or site_stats.address
            site_stats.is_proven = is_good(outcome)
            self._budget.learn(now, outcome)
        for site in self._budget.end(site_stats.site):
            self._frontier.unpark(site)

    def server_found(self, site: Site, address: str) -> None:
        """Take in the address of a site. Without one its domain is asked as before: the request says why."""
        self._looking_up.discard(site)
        site_stats = self._stats.site_stats(site)
        self._move_to(site_stats, address)
        self._frontier.unpark(site)
        if self._to_look_up:
            self._frontier.unpark(self._to_look_up.popleft())

    def _move_to(self, site_stats: SiteStats, address: str) -> None:
        assert self.groups is not None
        is_of_job = bool(site_stats.task.seeds)
        site_stats.server_group = server_key(address, site_stats.site, self.groups.rules, is_of_job=is_of_job)

    def free_groups(self, now: Instant, site_stats: SiteStats, outcome: Outcome, free_at: Instant) -> None:
        """After an answer: its server and its domain may be asked again when their intervals have passed."""
        groups = self.groups
        if groups is None:
            return
        if self._knows_servers and outcome.peer:
            self._move_to(site_stats, outcome.peer)
        goes_on = (
            free_at <= now
            and 0 < site_stats.pages_on_connection < self._politeness.of(site_stats.site).pages_per_connection
        )
        goes_on = goes_on and self._frontier.queue(site_stats.site).due > 0
        groups.end(now, site_stats.site, outcome, goes_on=goes_on, groups=self._groups_of(site_stats))

    def _groups_of(self, site_stats: SiteStats) -> tuple[Group, ...]:
        if self.groups is None:
            return ()
        found = self.groups.groups_of(site_stats.server_group or "", site_stats.domain)
        rules = self._rules.of(site_stats.site)
        if rules is not None and rules.politeness is not None:
            self.groups.shorten(found, rules.politeness.interval_s)
        return found

    def assign(self, now: Instant, commands: list[Command]) -> None:
        """Request pages while a connection, a free site and the quotas allow.

        Pages that are dropped instead are limited, since a site may have any number of them in a row; the
        engine then asks to be woken at once.
        """
        self.quota_is_spent = False
        begin, parked = len(commands), 0
        self._unpark_due(now)
        while not self.is_full and (
            len(commands) + parked - begin < self._max_connections + _MOST_DROPPED_AT_ONCE
        ):
            queue = self._next(now)
            if queue is None:
                if parked and self._unpark_due(now):
                    continue
                break
            if self._sleeps(now, queue) or self._parks(now, queue, commands):
                parked += 1
                continue
            if not self._bound.allows(now, (self.in_flight + 1) * self._stats.page_bytes):
                self.quota_is_spent = True
                break
            self._visit(now, queue, commands)
        is_full = self.is_full and self._frontier.next_site(now) is not None
        most_stalled = self._budget.most_stalled(is_full=is_full)
        if most_stalled != self.most_stalled:
            self.most_stalled = most_stalled
            commands.append(SetContention(most_stalled))

    def _sleeps(self, now: Instant, queue: MemorySiteQueue) -> bool:
        """Whether the site is outside its windows: then it wakes when the next one opens."""
        if not self._rules:
            return False
        at = self._opening.opens_at(now, self._stats.site_stats(queue.site))
        if at > now:
            self._frontier.free(queue.site, at)
        return at > now

    def _unpark_due(self, now: Instant) -> bool:
        """Let the sites try again for which a server and a domain may be free now."""
        found = False
        for site in self.groups.due(now) if self.groups is not None else ():
            self._frontier.unpark(site)
            found = True
        return found

    def _parks(self, now: Instant, queue: MemorySiteQueue, commands: list[Command]) -> bool:
        """Whether a site has to wait: for its address, for its server or its domain, whose interval has not
        passed, or because its server, its domain, or sites without a good record have their share of the
        connections."""
        site_stats = self._stats.site_stats(queue.site)
        if not site_stats.domain:
            site_stats.domain = registered_domain(host_of(queue.site))
        groups = self.groups
        if groups is not None:
            if site_stats.server_group is None and self._looks_up(site_stats, queue, commands):
                return True
            found = self._groups_of(site_stats)
            blocking = groups.blocking(now, queue.site, found)
            if blocking is not None:
                groups.wait(blocking, *self._frontier.park(queue), queue.site)
                groups.choose_another(now, found, blocking)
                return True
        domain, address = site_stats.domain, site_stats.address
        group = self._budget.full_group(now, domain, address, is_proven=site_stats.is_proven)
        if group is not None:
            self._budget.wait(group, *self._frontier.park(queue), queue.site)
        return group is not None

    def _looks_up(self, site_stats: SiteStats, queue: MemorySiteQueue, commands: list[Command]) -> bool:
        """Whether the site has to wait until its address is known."""
        site = site_stats.site
        literal = address_in(site) if self._knows_servers else ""
        if literal or not (self._knows_servers and self._finds_servers):
            self._move_to(site_stats, literal)
            return False
        self._frontier.park(queue)
        if len(self._looking_up) >= _MOST_LOOKUPS:
            self._to_look_up.append(site)
        else:
            self._looking_up.add(site)
            commands.append(FindServer(site))
        return True

    def _next(self, now: Instant) -> MemorySiteQueue | None:
        if self._admission is None:
            return self._frontier.next_site(now)
        queues = self._with_starving(now, self._frontier.next_sites(now, self._admission.max_depth))
        self._admission.bound_bytes_per_s = self._bound.capacity_bytes_per_s
        chosen = self._admission.admit(now, [(queue.site, self._predict(now, queue)) for queue in queues])
        return queues[chosen[0]] if chosen else None

    @property
    def committed_bytes_per_s(self) -> float | None:
        """The predicted rates of all downloads in progress, as the admission counts them; None without it."""
        return None if self._admission is None else self._admission.committed_bytes_per_s

    def _with_starving(self, now: Instant, window: list[MemorySiteQueue]) -> list[MemorySiteQueue]:
        """The window of the admission, with the site in front that has waited too long: the scan from the
        head of the queue may never come to it. The whole queue is searched for one from time to time."""
        if now >= self._search_at:
            if self._search_at > -FOREVER:
                self._starving = self._longest_waiting(now)
            else:
                self._began_at = now
            self._search_at = Instant(now + PATIENCE_S / 2)
        queue = None if self._starving is None else self._frontier.peek(self._starving)
        if queue is None or not queue.is_loaded or queue.ready_at() > now:
            return window
        return [queue, *(each for each in window if each is not queue)][: len(window)]

    def _longest_waiting(self, now: Instant) -> Site | None:
        def asked_at(queue: MemorySiteQueue) -> float:
            return max(self._stats.look_at(queue.site).asked_at, self._began_at)

        queues = self._frontier.next_sites(now, _WHOLE_QUEUE)
        longest = min(queues, key=asked_at, default=None)
        return longest.site if longest is not None and now - asked_at(longest) >= PATIENCE_S else None

    def _predict(self, now: Instant, queue: MemorySiteQueue) -> BytesPerSecond:
        """The rate that a download from this server would consume. A new server is taken for a part of the
        bound, so that several can be tried at once."""
        server = self._stats.site_stats(queue.site).server
        rate = self._consumption.predict(now, server)
        if server in self._consumption:
            return rate
        return min(rate, BytesPerSecond(self._bound.capacity_bytes_per_s / _NEW_SERVERS))

    def _visit(self, now: Instant, queue: MemorySiteQueue, commands: list[Command]) -> None:
        """Request the next page of a site, or its robots.txt first, or drop pages that may not be fetched."""
        site_stats = self._stats.site_stats(queue.site)
        if site_stats.is_full and (site_stats.task.max_pages == 0 or not self._recrawls):
            pages = self._frontier.take_all(queue.site)
            self._drop(now, site_stats, pages, (Outcome(Kind.LIMIT), PageState.EXCLUDED), commands)
        elif self._opening.is_stopped(now, site_stats):
            pages = self._frontier.take_all(queue.site)
            self._drop(now, site_stats, pages, (_PAST_DEADLINE, PageState.EXCLUDED), commands)
        elif site_stats.given_up is not None:
            pages = self._frontier.take_all(queue.site)
            self._drop(now, site_stats, pages, (site_stats.given_up, PageState.FAILED), commands)
        elif (asks_robots := self._asks_robots_of(queue.site)) and site_stats.robots_expires_at <= now:
            self._occupy(now, queue)
            self._asking_robots.add(queue.site)
            commands.append(FetchRobots(queue.site, site_stats.robots_url, self._meant_by(queue.site)))
        elif asks_robots and site_stats.robots_unreachable:
            pages = self._frontier.take_all(queue.site)
            self._drop(now, site_stats, pages, (site_stats.without_rules, PageState.FAILED), commands)
        else:
            waiting = self._frontier.take(queue)
            if waiting.page.key in self._superseded:
                self._superseded.discard(waiting.page.key)
                self._drop(now, site_stats, (), (Outcome(Kind.CANCELLED), PageState.EXCLUDED), commands)
            elif site_stats.is_full and not is_again(waiting.attempt):
                self._drop(now, site_stats, [waiting], (Outcome(Kind.LIMIT), PageState.EXCLUDED), commands)
            elif (
                asks_robots and site_stats.rules is not None and not site_stats.rules.allows(waiting.page.url)
            ):
                denied = Outcome(Kind.ROBOTS_DENIED, detail=site_stats.rules.problem)
                self._drop(now, site_stats, [waiting], (denied, PageState.EXCLUDED), commands)
            elif self._purposes and (purpose := self._reserved(site_stats, waiting.page.url)):
                reserved = Outcome(Kind.ROBOTS_DENIED, detail=f"robots.txt: {purpose}=no")
                self._drop(now, site_stats, [waiting], (reserved, PageState.EXCLUDED), commands)
            elif self._watch is not None and (trap := self._watch.judge_waiting(waiting.page)):
                out = (Outcome(Kind.OUT_OF_SCOPE, detail=trap), PageState.EXCLUDED)
                self._drop(now, site_stats, [waiting], out, commands)
            else:
                self._occupy(now, queue)
                commands.append(self._lend(now, site_stats, waiting))

    def _asks_robots_of(self, site: Site) -> bool:
        ignores = (self._rules.of(site) or NO_RULES).ignores_robots
        return self._asks_robots if ignores is None else not ignores

    def _meant_by(self, site: Site) -> Site | None:
        """The site of the job whose settings hold, if it is another one."""
        source = self._rules.source_of(site) if self._rules else None
        return None if source == site else source

    def _reserved(self, site_stats: SiteStats, url: str) -> str:
        """The purpose of the crawl for which robots.txt does not give the page; empty if there is none."""
        usage = getattr(site_stats.rules, "preferences", None)
        return "" if usage is None else forbidden(usage(url), self._purposes)

    def _occupy(self, now: Instant, queue: MemorySiteQueue) -> None:
        if queue.site == self._starving:
            self._starving = None
        if self._admission is not None:
            self._admission.started(queue.site, self._predict(now, queue))
        site_stats = self._stats.site_stats(queue.site)
        self._budget.start(queue.site, site_stats.domain, site_stats.address, is_proven=site_stats.is_proven)
        if self.groups is not None:
            self.groups.start(queue.site, self._groups_of(site_stats), now)
        self._frontier.occupy(queue.site)

    def _lend(self, now: Instant, site_stats: SiteStats, waiting: Waiting) -> FetchPage:
        site_stats.in_flight += 1
        site_stats.asked_at = now
        lease = self.leases.lend(now, waiting.page, waiting.attempt)
        delay_s = site_stats.rules.crawl_delay_s if site_stats.rules is not None else None
        close_after = self._politeness.of(waiting.page.site).closes_after(
            site_stats.pages_on_connection + 1, delay_s, is_secure=waiting.page.site.startswith("https:")
        )
        usage = getattr(site_stats.rules, "preferences", None)
        preferences = None if usage is None else usage(waiting.page.url) or None
        return FetchPage(lease, close_after, self._meant_by(waiting.page.site), preferences)

    def _drop(
        self,
        now: Instant,
        site_stats: SiteStats,
        pages: Iterable[Waiting],
        why: tuple[Outcome, PageState],
        commands: list[Command],
    ) -> None:
        """Settle pages without a request."""
        outcome, state = why
        for waiting in pages:
            self._stats.count(now, site_stats, outcome, state)
            commands.append(SaveSettled(waiting.page, outcome, state, waiting.attempt, now))
        queue = self._frontier.queue(site_stats.site)
        if not queue.waiting:
            commands.append(self._site_politeness.update_end(now, site_stats, queue.free_at))
