"""The crawl as a state machine without I/O: `step(now, event) -> commands`.

`Engine` applies events (an answer, an order, the lapse of time) to the statistics and the frontier, and
returns commands (fetch this page, save that row).
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from headway.engine.availability import Outages, SiteOpening
from headway.engine.bandwidth import BandwidthPlanner, LinkBound, server_of
from headway.engine.discovery import Discovery, OwnedSites, Revisits
from headway.engine.forecast import Forecast, Forecaster, SiteForecast
from headway.engine.frontier import Frontier
from headway.engine.orders import Orders
from headway.engine.scheduler import EngineSettings, Policies, Scheduler, SitePoliteness
from headway.engine.seen import SeenSet, seen_set
from headway.engine.start_pages import StartPages
from headway.engine.stats import CrawlStats, SiteStats, plausible, plausible_waiting
from headway.errors import HeadwayError
from headway.model.command import (
    Command,
    CutRequests,
    Finished,
    LoadPages,
    NoteYield,
    PageState,
    SaveNotice,
    SaveServers,
    SaveSettled,
    SaveTasks,
    SetCapacity,
    SetRates,
    WakeAt,
)
from headway.model.event import (
    Again,
    CapacityChanged,
    CollectorsCounted,
    Delivered,
    Draining,
    Event,
    Found,
    FromOutside,
    GroupsGranted,
    GroupsRecalled,
    LinkShared,
    Ordered,
    PageSettled,
    PagesLoaded,
    Restored,
    RobotsSettled,
    Seeded,
    ServerFound,
    SiteProgress,
    SitesLeft,
    SitesProgressed,
    SitesTaken,
    Tick,
    VisitHistories,
)
from headway.model.page import ROBOTS_CUT, SUCCESS, Kind, Lease, Outcome, Site
from headway.policy.ordering.simple import Deadline
from headway.policy.politeness import GiveUp, Retry, with_preferences
from headway.policy.prediction import ServerTally
from headway.policy.server_groups import ServerGroups
from headway.policy.site_rules import NO_RULES
from headway.units import FOREVER, Instant

_LEASE_EXPIRED = Outcome(Kind.LEASE_EXPIRED, keep_alive=False)


class Engine:
    """One crawl. `stats` and `frontier` may be read from outside; only `step` changes them."""

    def __init__(
        self,
        policies: Policies,
        settings: EngineSettings,
        *,
        bound: LinkBound | None = None,
        planner: BandwidthPlanner | None = None,
        forecaster: Forecaster | None = None,
        tally: ServerTally | None = None,
    ) -> None:
        ordering, revisit = policies.ordering, policies.revisit
        self.stats = CrawlStats()
        self._ordering = ordering
        self._holds_sites = settings.holds_sites and planner is not None
        self._held_some = False
        self.frontier = Frontier(
            ordering,
            settings.most_held,
            holds_sites=self._holds_sites,
            numbers=self.stats.numbers,
            page_key=policies.page_key,
        )
        self._rules = policies.rules
        self._opening = SiteOpening(
            self.stats, self.frontier, policies.rules, stops_at_deadline=settings.stops_at_deadline
        )
        self.bound = bound or LinkBound()
        self.planner = planner
        self.forecaster = forecaster
        self._tally = tally
        self.owned = OwnedSites(self.stats, self.frontier) if settings.is_part else None
        self.watch = policies.traps
        self.discovery = Discovery(
            policies.scope,
            self.frontier,
            self.stats,
            self.owned,
            policies.traps,
            links_at_once=settings.links_at_once,
            rules=policies.rules,
        )
        self._site_politeness = SitePoliteness(
            self.frontier, policies.politeness, planner, recrawls=revisit is not None
        )
        self._orders = Orders(self.stats, self.frontier, self.bound, self.discovery, self._site_politeness)
        self._revisits = Revisits(self.stats, self.frontier, self.discovery, revisit)
        self._scheduler = Scheduler(
            self.stats,
            self.frontier,
            self.bound,
            policies=policies,
            settings=settings,
            site_politeness=self._site_politeness,
            opening=self._opening,
            superseded=self._revisits.superseded,
        )
        self.leases = self._scheduler.leases
        self._retry = policies.retry
        self._outages = Outages(
            self.stats,
            self.frontier,
            policies.retry,
            policies.politeness,
            self._opening,
            windows=self.bound.windows,
            is_part=settings.is_part,
        )
        self._start_pages = StartPages(self.stats, self.frontier, self.discovery)
        self._start_pages.on_redirect = self._hand_over_history
        self._politeness = policies.politeness
        self._follows_planner = planner is not None and isinstance(ordering, Deadline)
        if planner is not None and isinstance(ordering, Deadline):
            ordering.follow(self._latest_start_of)
        self._commands: list[Command] = []
        self._wake_at = FOREVER
        self._seeded = False
        self._draining = False
        self._finished = False

    @property
    def in_flight(self) -> int:
        """Connections in use: requests for pages and for robots.txt."""
        return self._scheduler.in_flight

    @property
    def committed_bytes_per_s(self) -> float | None:
        """The rate that the admission expects of all downloads in progress; None without admission."""
        return self._scheduler.committed_bytes_per_s

    @property
    def is_finished(self) -> bool:
        """No page waits and no request is in flight. Another event of the same instant may bring more pages,
        so a driver asks after it has fed all events of an instant."""
        return self._finished

    @property
    def problem(self) -> HeadwayError | None:
        """Why the crawl cannot go on: a user's object failed. The step in which it failed is complete
        nevertheless."""
        problem: HeadwayError | None = getattr(self._ordering, "problem", None)
        return self.planner.problem if problem is None and self.planner is not None else problem

    @property
    def seen(self) -> SeenSet:
        return self.discovery.seen

    @property
    def has_pending_links(self) -> bool:
        """Whether links of settled pages have not been added yet. A driver commits a page only with all its
        links."""
        return self.discovery.has_pending_links

    def step(self, now: Instant, event: Event) -> Sequence[Command]:
        """Apply an event, and return what the driver has to do because of it."""
        self._commands = []
        self.discovery.add_pending(now, self._commands)
        self._apply(now, event)
        if now >= self.bound.changes_at and self.bound.look(now):
            self._commands.append(SetCapacity(self.bound.capacity_bytes_per_s))
            self._replan(now)
        if self.bound.has_run_out(now) and self.in_flight:
            self._commands.append(CutRequests(None))
        if now >= self._opening.next_at:
            if (cut := self._opening.due(now)) is not None:
                self._commands.append(cut)
            if self._opening.has_changed:
                self._opening.has_changed = False
                self._replan(now)
        for lease in self.leases.expired(now):
            self._settle(now, lease, PageSettled(lease, _LEASE_EXPIRED))
        if self._seeded:
            self._allocate(now)
            if not self._draining:
                self._scheduler.assign(now, self._commands)
                if self.frontier.is_short:
                    requests = self.frontier.load_requests(self.leases.pages())
                    self._commands += [LoadPages(site, most) for site, most in requests]
            self._schedule_wake(now)
        return self._commands

    def forecast(self, now: Instant) -> Forecast | None:
        """When the crawl will end; None if nothing is left. Looking changes nothing in the crawl."""
        if self.forecaster is None or not self._seeded:
            return None
        return self.forecaster.look(now, self.stats, self.frontier, self.bound)

    def forecast_of(self, site: Site) -> SiteForecast | None:
        """The forecast of a site at the last look; None for a site that is complete."""
        queue = self.frontier.peek(site)
        return None if self.forecaster is None or queue is None else self.forecaster.of(queue)

    def opens_at(self, now: Instant, sites: Sequence[Site]) -> Instant | None:
        """When the next window opens, if the link, or each of these sites that has waiting pages, is closed;
        None otherwise."""
        bound = self.bound
        if not bound.capacity_bytes_per_s:
            return bound.changes_at if now < bound.changes_at < FOREVER else None
        opens_at = FOREVER
        for site in sites:
            queue = self.frontier.peek(site)
            if queue is not None and queue.waiting:
                opens_at = min(opens_at, self._opening.hours_of(site).opens_at(now))
                if opens_at <= now:
                    return None
        return opens_at if opens_at < FOREVER else None

    # -- events -----------------------------------------------------------------------------------------

    def _apply(self, now: Instant, event: Event) -> None:
        match event:
            case PageSettled():
                self._page_settled(now, event)
            case RobotsSettled():
                self._robots_settled(now, event)
            case ServerFound(site, address):
                self._scheduler.server_found(site, address)
            case PagesLoaded(loads):
                lent = self.leases.pages()
                for load in loads:
                    waiting = [plausible_waiting(now, record, self._retry) for record in load.waiting]
                    if self.owned is None or self.owned.may_load(load, self.discovery.seen):
                        self.frontier.load(load.site, waiting, lent, is_all=load.is_all)
            case SitesProgressed(sites):
                for progress in sites:
                    self._progressed(now, progress)
            case Tick():
                self._wake_at = FOREVER
            case _:
                self._apply_external(now, event)

    def _apply_external(self, now: Instant, event: FromOutside) -> None:
        match event:
            case Seeded():
                self._seed(now, event)
            case Restored():
                self._restore(now, event)
            case GroupsGranted() | GroupsRecalled():
                self._share_groups(now, event)
            case SitesTaken() | SitesLeft() | CollectorsCounted() | VisitHistories():
                self._apply_ownership(now, event)
            case Draining():
                self._draining = True
                self._finished = False
            case Found(pages):
                self.discovery.found(now, pages, self._commands)
            case Again(pages, not_before):
                self._revisits.again(self.discovery.owned_pages(pages), not_before, self._commands)
            case Delivered():
                self._revisits.delivered(now, event, self._commands)
            case Ordered(order):
                self._orders.carry_out(now, order, self._commands)
                self._replan(now)
            case CapacityChanged(capacity):
                self.bound.set(now, capacity)
            case LinkShared(rate, delivered, queue_s, doing):
                self.bound.share(rate)
                self._commands.append(NoteYield(rate, delivered, queue_s, doing))

    def _seed(self, now: Instant, event: Seeded) -> None:
        tasks = self._start_pages.follow(event.tasks)
        # A crawl that goes on has most of its tasks already.
        new_tasks = tuple(task for task in tasks if not self.stats.has(task))
        for task in new_tasks:
            self.stats.open(task)
            self.frontier.task_changed(task.site)
        for task in tasks:
            self.discovery.extend_scope(task.site)
        tasks = new_tasks
        if tasks:
            self._commands.append(SaveTasks(tasks))
        self.discovery.found(now, event.pages, self._commands)
        for task in event.tasks if self._rules else ():
            self.discovery.found_lists(now, (self._rules.of(task.site) or NO_RULES).sitemaps, self._commands)
        if self._seeded and self.planner is not None:
            # One of many parts of a long list: a plan for each would cost the square of the sites.
            self.planner.site_changed(now)
        else:
            self._seeded = True
            self._replan(now)

    def _apply_ownership(
        self, now: Instant, event: SitesTaken | SitesLeft | CollectorsCounted | VisitHistories
    ) -> None:
        assert self.owned is not None
        if isinstance(event, SitesTaken):
            for task in event.snapshot.tasks:
                self.discovery.extend_scope(task.site)
            for site in event.sites:
                self.discovery.sites.add_free(site)
        elif isinstance(event, CollectorsCounted):
            self.discovery.sites.share_with(event.collectors)
        if isinstance(event, SitesTaken | SitesLeft):
            self.owned.apply(event, self.discovery.seen)
            self._replan(now)
        if isinstance(event, VisitHistories) and event.site not in self.owned.sites:
            return
        if not isinstance(event, SitesTaken):
            self._revisits.apply(event)

    @property
    def groups(self) -> ServerGroups | None:
        """Servers and domains, where they are heeded."""
        return self._scheduler.groups

    def _share_groups(self, now: Instant, event: GroupsGranted | GroupsRecalled) -> None:
        groups = self._scheduler.groups
        if groups is None:
            return
        if isinstance(event, GroupsGranted):
            for lease in event.groups:
                groups.granted(lease.key, lease.not_before, is_unclean=lease.is_unclean)
        else:
            for key in event.groups:
                groups.recalled(now, key)

    def _restore(self, now: Instant, event: Restored) -> None:
        snapshot = plausible(now, event.snapshot, event.rules, self._politeness, self._retry)
        if len(snapshot.seen):
            self.discovery.seen = seen_set(snapshot.seen, snapshot.seen_checks)
        sites = self.discovery.sites
        for task in snapshot.tasks:
            self.stats.open(task)
            self.discovery.extend_scope(task.site)
        self._start_pages.restore(snapshot.notices)
        self._outages.restore(snapshot.notices)
        rests_until = now
        for record in snapshot.sites:
            sites.add(record.site)
            sites.spend(record.site, record.done + record.failed, record.wire_bytes)
            self.stats.restore(record, event.rules.get(record.site))
            self.frontier.free(record.site, record.free_at)
            rests_until = max(rests_until, record.free_at)
        if (groups := self._scheduler.groups) is not None:
            # Which servers were requested last is not known before the names are looked up again.
            groups.rest_until(now, rests_until)
        if self.planner is not None:
            self.planner.restore(snapshot.servers)
        elif self._tally is not None:
            self._tally.restore(snapshot.servers)
        if self.watch is not None:
            self.watch.restore(snapshot.notices)
        for waiting in snapshot.waiting:
            sites.add(waiting.page.site)
            sites.spend(waiting.page.site, 1, 0)
            self.frontier.put(waiting.page, waiting.attempt, waiting.retry_at)
        for site, count in snapshot.unloaded.items():
            sites.add(site)
            sites.spend(site, count, 0)
            self.frontier.count_stored(site, count, snapshot.first_ranks.get(site))
        # Part by part, and not all sites in the step that asks for the first page.
        self.frontier.place_changed(now)

    def _progressed(self, now: Instant, progress: SiteProgress) -> None:
        is_new = self.frontier.number_of(progress.site) < 0
        received_bytes, has_changed = self.stats.progressed(now, progress)
        self.bound.spend(now, received_bytes)
        # A process that is between two pages, or has not begun, may have none that waits.
        self.frontier.count_elsewhere(progress.site, 0 if progress.has_ended else max(1, progress.waiting))
        if is_new or has_changed:
            self._replan(now)

    def _page_settled(self, now: Instant, event: PageSettled) -> None:
        lease = self.leases.settle(event.lease.number)
        if lease is not None:
            self._settle(now, lease, event)

    def _settle(self, now: Instant, lease: Lease, event: PageSettled) -> None:
        page, site_stats = lease.page, self.stats.site_stats(lease.page.site)
        outcome, links = event.outcome, event.links
        site_stats.in_flight -= 1
        self.frontier.settled(page, links)
        succeeded = outcome.kind in SUCCESS
        verdict = None if succeeded else self._outages.judge_page(now, site_stats, lease, outcome)
        if succeeded:
            state, retry_at = PageState.DONE, None
            site_stats.has_content = site_stats.has_content or outcome.kind is not Kind.REDIRECT
        elif isinstance(verdict, GiveUp):
            state, retry_at = verdict.state, None
        else:
            assert verdict is not None
            state, retry_at = PageState.WAITING, verdict.at
            if self.discovery.owns(page.site):
                self.frontier.put(page, lease.attempt + 1, retry_at)
        self.stats.count(now, site_stats, outcome, state, event.was)
        self.bound.spend(now, outcome.wire_bytes)
        self.discovery.sites.spend(page.site, 0, outcome.wire_bytes)
        if self.planner is not None:
            self.planner.learn(now, site_stats, outcome)
        elif self._tally is not None and outcome.peer:
            server = server_of(outcome.peer, page.site)
            self._tally.count(server, outcome.wire_bytes, outcome.duration_s)
            if now >= self._tally.due_at:
                self._commands.append(SaveServers(self._tally.fold(now)))
        usage = getattr(site_stats.rules, "preferences", None) if succeeded else None
        if usage is not None and (preferences := usage(page.url)):
            # What robots.txt says that the page may be used for is kept with it.
            outcome = structs.replace(outcome, detail=with_preferences(outcome.detail, preferences))
        settled = SaveSettled(
            page,
            outcome,
            state,
            lease.attempt,
            now,
            retry_at,
            event.capture,
            links,
            event.sighting,
            forgiven=verdict.forgiven if isinstance(verdict, Retry) else 0,
        )
        place = len(self._commands)
        self._commands.append(settled)
        if not page.depth:
            self._start_pages.settled(now, site_stats, settled, self._commands)
        self.discovery.found_lists(now, event.lists, self._commands)
        found = self.discovery.add_links(now, site_stats, settled, self._commands)
        if not found and not page.depth and outcome.kind is Kind.REDIRECT:
            self._start_pages.led_nowhere(now, site_stats, settled, self._commands)
        if (timing := outcome.timing) is not None:
            own_s = max(0.0, timing.asked_at - self.leases.lent_at(lease) + now - timing.ended_at)
            site_stats.times.count(timing, outcome.wire_bytes, own_s)
            settled = structs.replace(settled, turnaround_s=own_s, found=found)
            self._commands[place] = settled
        self._revisits.settled(now, settled, self._commands)
        self._answered(now, site_stats, outcome)

    def _robots_settled(self, now: Instant, event: RobotsSettled) -> None:
        if not self._scheduler.robots_settled(event.site):
            return
        site_stats = self.stats.site_stats(event.site)
        site_stats.count_answer(now, event.outcome)
        self.stats.wire_bytes += event.outcome.wire_bytes
        self.bound.spend(now, event.outcome.wire_bytes)
        gave_up = False
        if event.rules is None and event.leads_to is None:
            gave_up = self._outages.judge_robots(now, site_stats, event.outcome)
        text = site_stats.learn_robots(event, gave_up=gave_up)
        self.discovery.found_lists(now, event.lists, self._commands)
        if event.outcome.detail.startswith(ROBOTS_CUT):
            what, _, subject = event.outcome.detail.partition(": ")
            self._commands.append(SaveNotice(event.site, now, what, subject))
        self._answered(
            now, site_stats, event.outcome, robots_text=text, robots_bytes=event.outcome.wire_bytes
        )

    def _answered(
        self,
        now: Instant,
        site_stats: SiteStats,
        outcome: Outcome,
        *,
        robots_text: str | None = None,
        robots_bytes: int = 0,
    ) -> None:
        self._scheduler.answered(now, site_stats, outcome)
        self._commands += self._outages.answered(now, site_stats, outcome)
        save = self._site_politeness.answered(now, site_stats, outcome, robots_text=robots_text)
        self._scheduler.free_groups(now, site_stats, outcome, save.free_at)
        self._commands.append(structs.replace(save, robots_bytes=robots_bytes) if robots_bytes else save)

    def _hand_over_history(self, source: Site, target: Site) -> None:
        """What earlier runs learnt of a site holds for the one to which it redirects."""
        if self.planner is not None:
            self.planner.table.take_over(source, target)
        if self.forecaster is not None:
            self.forecaster.take_over(source, target)

    def _replan(self, now: Instant) -> None:
        if self.planner is not None:
            self.planner.replan(now)

    # -- decisions --------------------------------------------------------------------------------------

    def _allocate(self, now: Instant) -> None:
        """Divide the link among the sites again, when the planner is due."""
        planner = self.planner
        if planner is None or now < planner.next_at or self._draining:
            return
        rates = planner.allocate(now, self.stats, self.frontier, self.bound)
        if self._holds_sites:
            self.frontier.serve_only(planner.open)
        elif planner.started is not None or self._held_some:
            self._held_some = planner.started is not None
            self.frontier.serve_only(planner.started)
        if rates is not None:
            self._commands.append(SetRates(rates))
        moved = planner.take_moved()
        if self._follows_planner:
            self.frontier.sites_changed(moved)
        if self._revisits.has_policy:
            spare = planner.spare_bytes_per_s(self.stats, self.bound.capacity_bytes_per_s)
            self._revisits.spare(now, spare)
        self._commands += planner.changed_forecasts()
        if servers := planner.changed_servers():
            self._commands.append(SaveServers(servers))

    def _latest_start_of(self, site: Site) -> Instant:
        """For the ordering by deadlines."""
        at = None if self.planner is None else self.planner.latest_start_of(site)
        if at is not None:
            return at
        deadline_at = self.stats.look_at(site).task.deadline_at
        return FOREVER if deadline_at is None else deadline_at

    def _schedule_wake(self, now: Instant) -> None:
        """Ask to be woken at the next instant that matters, or say that the crawl has finished."""
        is_over = not self.frontier.waiting and self.owned is None
        has_pending_links = self.discovery.has_pending_links
        if not self.in_flight and (self._draining or is_over) and not has_pending_links:
            if not self._finished:
                self._finished = True
                if self._tally is not None and (servers := self._tally.fold(now)):
                    self._commands.append(SaveServers(servers))
                self._commands.append(Finished())
            return
        self._finished = False
        is_due = not self.in_flight and not self._draining and self._outages.ask_once_more(now)
        at = now if has_pending_links or is_due else min(self.leases.next_expiry_at(), self.bound.changes_at)
        at = min(at, self._opening.next_at)
        if self.planner is not None and not self._draining:
            at = min(at, self.planner.next_at)
        if self._scheduler.quota_is_spent and not self._draining:
            at = min(at, self.bound.renews_at(now))
        elif not self._draining and (not self._scheduler.is_full or self._scheduler.most_stalled is None):
            # Also when all connections are in use: the next site that becomes ready waits for one.
            at = min(at, self.frontier.next_ready_at(now))
            if (groups := self._scheduler.groups) is not None:
                at = min(at, groups.next_at())
        if at < self._wake_at:
            self._wake_at = at
            self._commands.append(WakeAt(at))
