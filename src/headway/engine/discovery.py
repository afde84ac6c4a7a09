"""Which pages enter the frontier: new pages in scope, and known pages that are due for another visit.

`Discovery` takes in the links of settled pages, `Revisits` schedules further visits, and `OwnedSites`
separates this crawl's sites from those of other collectors, when several work on one crawl.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from msgspec import structs

from headway.engine.frontier import Frontier
from headway.engine.seen import SeenSet, check_bits, new_pages, seen_set
from headway.engine.stats import CrawlStats, SiteStats
from headway.model.command import (
    NOT_COUNTED,
    Command,
    PageState,
    SaveAgain,
    SaveFound,
    SaveLeftOut,
    SaveNotice,
    SaveSettled,
)
from headway.model.event import CollectorsCounted, Delivered, Loaded, SitesLeft, SitesTaken, VisitHistories
from headway.model.page import AGAIN, SUCCESS, Kind, Outcome, Page, PageKey, Site
from headway.policy.revisit import RevisitPolicy, not_while_fresh
from headway.policy.scope import Exclusion, Scope, SiteBudget
from headway.policy.site_rules import BySite, SiteRules, SiteScope
from headway.policy.traps import TrapWatch
from headway.units import BytesPerSecond, Instant


class OwnedSites:
    """The sites that this collector owns, where several collectors work on one crawl.

    A page of another site is saved for the collector that owns the site; the store knows whether it is new.
    It is saved only the first time that it is found here.
    """

    def __init__(self, stats: CrawlStats, frontier: Frontier) -> None:
        self._stats = stats
        self._frontier = frontier
        self._saved_for_others = seen_set()
        self.sites: set[Site] = set()

    def apply(self, event: SitesTaken | SitesLeft, seen: SeenSet) -> None:
        match event:
            case SitesTaken():
                self._add(event, seen)
            case SitesLeft(sites):
                self._remove(sites)

    def _add(self, event: SitesTaken, seen: SeenSet) -> None:
        snapshot = event.snapshot
        self.sites |= event.sites
        checks = np.asarray(snapshot.seen_checks, dtype=np.uint16)
        seen.add_many(np.asarray(snapshot.seen, dtype=np.int64), checks)
        for task in snapshot.tasks:
            self._stats.open(task)
        for record in snapshot.sites:
            self._stats.forget(record.site)  # this collector may have owned it before
            self._stats.restore(record, event.rules.get(record.site))
            self._frontier.free(record.site, record.free_at)
        for site, free_at in event.not_before.items():
            self._frontier.free(site, max(free_at, self._frontier.queue(site).free_at))
        for waiting in snapshot.waiting:
            self._frontier.put(waiting.page, waiting.attempt, waiting.retry_at)
        for site, count in snapshot.unloaded.items():
            self._frontier.count_stored(site, count)

    def _remove(self, sites: Sequence[Site]) -> None:
        """Request nothing more from these sites. Requests in flight may still settle; the pages wait in the
        store."""
        self.sites.difference_update(sites)
        for site in sites:
            self._frontier.leave(site)

    def may_load(self, load: Loaded, seen: SeenSet) -> bool:
        """Whether pages loaded from the store are still wanted, because the site is still owned. Pages among
        them that another collector found are counted as waiting from now on."""
        if load.site not in self.sites:
            return False
        pages = [record.page for record in load.waiting]
        added = seen.add_all([page.key for page in pages], [check_bits(page.url) for page in pages])
        if unseen := sum(position >= 0 for position in added):
            self._frontier.count_unseen(load.site, unseen)
        return True

    def is_quiet(self, site: Site) -> bool:
        queue = self._frontier.queue(site)
        return not queue.busy and not queue.waiting

    def split(self, pages: Sequence[Page], *, is_redirect: bool) -> tuple[Sequence[Page], list[Page]]:
        """The pages of owned sites, and those of other sites that are found for the first time.

        A redirect does not increase the depth of a page, and the number of redirects in a row is not passed
        on to another collector. So a redirect to another collector's site does increase the depth, which ends
        a chain between two collectors.
        """
        sites = self.sites
        others = [page for page in pages if page.site not in sites]
        if not others:
            return pages, others
        owned_pages = [page for page in pages if page.site in sites]
        new = new_pages(self._saved_for_others, others)
        if is_redirect:
            new = [structs.replace(page, depth=page.depth + 1) for page in new]
        return owned_pages, new


_MAX_REDIRECTS = 20
"""In a row. Redirects do not increase the depth, so a chain to ever new URLs would otherwise never end."""


class _PendingLinks(NamedTuple):
    """The links of a settled page that have not been added yet."""

    source: SiteStats
    links: Sequence[Page]
    redirects: int
    judge: Callable[[Page], str | None] | None
    depth: int
    own: int
    """How many of all its links lead to its own site."""
    new: int
    """How many of the links added so far led to a new page of its own site."""
    new_sites: set[str]
    """Sites that the page has added to the crawl."""


class _LeftOut:
    """What the limits on sites keep out of the links of one page, and which sites these have added."""

    __slots__ = ("counts", "new_sites", "source")

    def __init__(self, source: Site | None, new_sites: set[str]) -> None:
        """`source`: the site of the page with the links; None, for a list: that of the first kept out."""
        self.source = source
        self.new_sites = new_sites
        self.counts: dict[str, int] = {}

    def count(self, page: Page, limit: str) -> None:
        self.source = self.source or page.site
        self.counts[limit] = self.counts.get(limit, 0) + 1

    def savings(self) -> list[SaveLeftOut]:
        if self.source is None:
            return []
        return [SaveLeftOut(self.source, limit, count) for limit, count in self.counts.items()]


class Discovery:
    """Queues new pages that are in scope, and excludes new pages that are not."""

    def __init__(
        self,
        scope: Scope,
        frontier: Frontier,
        stats: CrawlStats,
        owned: OwnedSites | None = None,
        watch: TrapWatch | None = None,
        *,
        links_at_once: int | None = None,
        rules: BySite[SiteRules] | None = None,
    ) -> None:
        """`rules`: what sites have of their own. `links_at_once`: the other links of a page are added in
        later steps, by `add_pending`."""
        self._links_at_once = links_at_once
        self._pending: deque[_PendingLinks] = deque()
        self._owned = owned
        self._watch = watch
        self._scope = scope
        self._rules = rules or BySite()
        self._start_folders: dict[Site, tuple[str, ...]] = {}
        """Of sites whose start page leads to another folder: that folder, which they take in as well."""
        self._frontier = frontier
        self._stats = stats
        self.sites = SiteBudget(scope, stats.has_site)
        self.seen = seen_set()
        self._redirects: dict[PageKey, int] = {}
        """The number of redirects in a row that led to a waiting page, if any."""

    def extend_scope(self, site: Site) -> None:
        """Include the pages of a site from now on."""
        self.sites.add_free(site, is_of_job=True)
        self._scope = self._scope.widened(site)

    def is_in_scope(self, page: Page) -> bool:
        return self._judge(page) is None

    def would_be_in_scope(self, page: Page) -> bool:
        """Whether a page is in scope if its site is."""
        return self._scope.widened(page.site).judge(page, self._scope_of(page.site)) is None

    def _judge(self, page: Page) -> Exclusion | None:
        return self._scope.judge(page, self._scope_of(page.site) if self._rules else None)

    def _scope_of(self, site: Site) -> SiteScope | None:
        """What the site has of its own."""
        rules = self._rules.of(site)
        own = None if rules is None else rules.scope
        if own is None or own.is_prefix_given or not own.prefixes:
            return own
        folders = self._start_folders.get(site, ())
        return structs.replace(own, prefixes=(*own.prefixes, *folders)) if folders else own

    def start_moved(self, site: Site, target: Page) -> bool:
        """The start page of `site` leads to another page. If the folder of the start page was taken for all
        that is wanted, that of the other page is wanted as well; returns whether it is another one."""
        self._rules.take_over(site, target.site)
        own = self._scope_of(target.site)
        if own is None or own.is_prefix_given or not own.prefixes:
            return False
        path = target.url[len(target.site) :].partition("?")[0]
        folder = path[: path.rfind("/") + 1]
        if folder.startswith(own.prefixes):
            return False
        self._start_folders[target.site] = (*self._start_folders.get(target.site, ()), folder)
        return True

    def owns(self, site: Site) -> bool:
        """Whether this collector crawls a site, where several work on the crawl."""
        return self._owned is None or site in self._owned.sites

    def owned_pages(self, pages: Sequence[Page]) -> Sequence[Page]:
        """The pages whose sites this collector owns."""
        if self._owned is None:
            return pages
        return [page for page in pages if page.site in self._owned.sites]

    def found(
        self,
        now: Instant,
        pages: Sequence[Page],
        commands: list[Command],
        redirects: int = 0,
        judge: Callable[[Page], str | None] | None = None,
        *,
        source: Site | None = None,
        new_sites: set[str] | None = None,
    ) -> list[Page]:
        """Queue the new pages that are in scope, and return them. `judge` may give a reason to exclude a
        page. `source`: the site of the page with these links, and the sites that it has added so far."""
        queued: list[Page] = []
        left_out = _LeftOut(source, set() if new_sites is None else new_sites)
        if self._owned is not None:
            pages, others = self._owned.split(pages, is_redirect=redirects > 0)
            if others:
                self._save_for_others(now, others, commands, left_out)
        for page in new_pages(self.seen, pages):
            exclusion: str | None = (
                Exclusion.REDIRECT_CHAIN if redirects > _MAX_REDIRECTS else self._judge(page)
            )
            if exclusion is None and judge is not None:
                exclusion = judge(page)
            if exclusion is not None:
                self._exclude(now, page, Outcome(Kind.OUT_OF_SCOPE, detail=exclusion), commands)
            elif self._joins(now, page, left_out, commands):
                if redirects:
                    self._redirects[page.key] = redirects
                queued.append(page)
                self._frontier.put(page)
        if queued:
            commands.append(SaveFound(tuple(queued)))
        commands += left_out.savings()
        return queued

    def found_lists(self, now: Instant, lists: Sequence[Page], commands: list[Command]) -> None:
        """Queue new sitemaps and feeds. The scope's limits on file names and types do not apply to them."""
        if not lists:
            return  # nearly every page has none
        left_out = _LeftOut(None, set())
        if self._owned is not None:
            lists, others = self._owned.split(lists, is_redirect=False)
            self._save_for_others(now, others, commands, left_out)
        for page in new_pages(self.seen, lists):
            exclusion = self._scope.judge_list(page, self._scope_of(page.site))
            if exclusion is not None:
                self._exclude(now, page, Outcome(Kind.OUT_OF_SCOPE, detail=exclusion), commands)
            elif self._joins(now, page, left_out, commands):
                self._frontier.put(page)
                commands.append(SaveFound((page,)))
        commands += left_out.savings()

    def add_links(
        self, now: Instant, source: SiteStats, settled: SaveSettled, commands: list[Command]
    ) -> int:
        """Add the links of a settled page. Returns how many led to new pages; `NOT_COUNTED` if some links are
        left to later steps."""
        links = settled.links
        redirects = 0 if settled.state is PageState.WAITING else self._redirects.pop(settled.page.key, 0)
        is_redirect = settled.outcome.kind is Kind.REDIRECT
        judge = self._watch.judge_of(now, settled, commands) if self._watch is not None else None
        own = sum(link.site == source.site for link in links)
        return self._add_part(
            now,
            _PendingLinks(
                source, links, redirects + 1 if is_redirect else 0, judge, settled.page.depth, own, 0, set()
            ),
            commands,
        )

    @property
    def has_pending_links(self) -> bool:
        """Whether links of settled pages have not been added yet."""
        return bool(self._pending)

    def add_pending(self, now: Instant, commands: list[Command]) -> None:
        """Add the next part of the pending links."""
        if self._pending:
            self._add_part(now, self._pending.popleft(), commands)

    def _add_part(self, now: Instant, pending: _PendingLinks, commands: list[Command]) -> int:
        source, links, most = pending.source, pending.links, self._links_at_once
        part = links if most is None else links[:most]
        queued = self.found(
            now,
            part,
            commands,
            pending.redirects,
            pending.judge,
            source=source.site,
            new_sites=pending.new_sites,
        )
        new = pending.new + sum(link.site == source.site for link in queued)
        if len(part) < len(links):
            self._pending.append(pending._replace(links=links[len(part) :], new=new))
            return NOT_COUNTED
        source.count_links(pending.depth, pending.own, new)
        return min(len(queued), NOT_COUNTED)

    def _joins(self, now: Instant, page: Page, left_out: _LeftOut, commands: list[Command]) -> bool:
        """Whether the site of a page in scope belongs to the crawl, or joins it now. A page that is kept out
        is counted by the reason and not stored: there may be any number of them."""
        limit = self.sites.exceeded(page.site, left_out.new_sites, left_out.source)
        if limit is None:
            return True
        left_out.count(page, limit)
        subject = self.sites.subject_of(limit, page.site)
        if subject is not None:
            commands.append(SaveNotice(left_out.source or page.site, now, limit, subject))
        return False

    def _save_for_others(
        self, now: Instant, pages: Sequence[Page], commands: list[Command], left_out: _LeftOut
    ) -> None:
        """Save pages for the collectors that own their sites."""
        exclusions = [self._judge(page) for page in pages]
        for page, exclusion in zip(pages, exclusions, strict=True):
            if exclusion is not None:
                self._exclude(now, page, Outcome(Kind.OUT_OF_SCOPE, detail=exclusion), commands)
        queued = tuple(
            page
            for page, exclusion in zip(pages, exclusions, strict=True)
            if exclusion is None and self._joins(now, page, left_out, commands)
        )
        if queued:
            commands.append(SaveFound(queued, is_elsewhere=True))

    def _exclude(self, now: Instant, page: Page, outcome: Outcome, commands: list[Command]) -> None:
        commands.append(SaveSettled(page, outcome, PageState.EXCLUDED, 0, now))


_REVISITED = SUCCESS | {Kind.MISSING, Kind.LISTING}


class Revisits:
    """Pages that are fetched more than once: because a visit is due again, because a person asked for it, or
    because a proxy delivered a copy.
    """

    def __init__(
        self, stats: CrawlStats, frontier: Frontier, discovery: Discovery, policy: RevisitPolicy | None
    ) -> None:
        self._stats = stats
        self._frontier = frontier
        self._discovery = discovery
        self._policy = policy
        self.superseded: set[PageKey] = set()
        """Pages that were waiting when a copy was delivered: the scheduler skips them."""
        self._queued: dict[Site, set[PageKey]] = {}

    def again(self, pages: Sequence[Page], not_before: Instant, commands: list[Command]) -> None:
        """Queue pages for another visit, unless one is queued already."""
        fresh = tuple(page for page in pages if page.key not in self._queued.get(page.site, ()))
        for page in fresh:
            self._queued.setdefault(page.site, set()).add(page.key)
            new_pages(self._discovery.seen, (page,))
            self._frontier.put(page, AGAIN, not_before)
        if fresh:
            commands.append(SaveAgain(fresh, not_before))

    @property
    def has_policy(self) -> bool:
        """Whether pages are visited again by a policy."""
        return self._policy is not None

    def spare(self, now: Instant, bytes_per_s: BytesPerSecond) -> None:
        if self._policy is not None:
            self._policy.spare(now, bytes_per_s)

    def apply(self, event: CollectorsCounted | VisitHistories | SitesLeft) -> None:
        """Follow a change among the collectors: each decides on visits for the sites that it owns."""
        match event:
            case SitesLeft(sites):
                for site in sites:
                    self._queued.pop(site, None)
                    if self._policy is not None:
                        self._policy.forget(site)
            case VisitHistories(site, histories) if self._policy is not None:
                for history in histories:
                    self._policy.learn(site, history)
            case CollectorsCounted(collectors) if self._policy is not None:
                self._policy.work_beside(collectors)

    def settled(self, now: Instant, settled: SaveSettled, commands: list[Command]) -> None:
        """Schedule the next visit to a page that has settled, if the policy wants one."""
        if settled.state is PageState.WAITING:
            return
        page, outcome = settled.page, settled.outcome
        self.superseded.discard(page.key)
        if page.site in self._queued:
            self._queued[page.site].discard(page.key)
        if self._policy is not None and outcome.kind in _REVISITED:
            history = settled.sighting.history if settled.sighting is not None else b""
            at = self._policy.next_at(now, page.site, outcome.wire_bytes, history)
            if at is not None:
                self.again((page,), not_while_fresh(now, at, outcome.fresh_s, self._policy), commands)

    def delivered(self, now: Instant, event: Delivered, commands: list[Command]) -> None:
        """Take in a page that a proxy delivered as if it had been fetched."""
        page, outcome = event.page, event.outcome
        site_stats = self._stats.site_stats(page.site)
        is_new = bool(new_pages(self._discovery.seen, (page,)))
        if not is_new and event.was is None:
            self.superseded.add(page.key)
        state = PageState.DONE if outcome.kind in SUCCESS else PageState.FAILED
        self._stats.count(now, site_stats, outcome, state, event.was)
        settled = SaveSettled(page, outcome, state, 0, now, None, event.capture, event.links, event.sighting)
        commands.append(settled)
        self._discovery.add_links(now, site_stats, settled, commands)
