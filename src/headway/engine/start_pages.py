"""The first page of each site of the job: where it leads, and whether it was fetched.

The address that a person gives often only redirects: from http to https, to www, to a page in a language. The
site it leads to is the one that is meant, so it takes over the task: deadline, data, weight and limits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import structs

from headway.engine.discovery import Discovery
from headway.engine.frontier import Frontier
from headway.engine.stats import CrawlStats, SiteStats
from headway.model.command import Command, PageState, SaveNotice, SaveSettled, SaveTasks
from headway.model.page import Kind, Page, PageKey, Site, Task
from headway.policy.scope import belong_together
from headway.units import Instant, utc_text

REDIRECTS = "redirects to"
"""The notice of a site whose first page leads to another site; the subject is the page there."""
LEADS_OUT = "redirects out of scope, to"
"""It leads where the crawl does not follow."""
NOT_FETCHED = "first page not fetched"
MOVED = "start page leads to"
"""The notice of a site whose first page leads to another folder of it, which is taken in as well."""
FETCHED = "first page fetched"
"""After all."""


class StartPages:
    """Follows the redirects of first pages, and remembers which were not fetched."""

    def __init__(self, stats: CrawlStats, frontier: Frontier, discovery: Discovery) -> None:
        self._stats = stats
        self._frontier = frontier
        self._discovery = discovery
        self.on_redirect: Callable[[Site, Site], None] | None = None
        """Called with a site, and the one that takes over its task."""

    def restore(self, notices: Sequence[SaveNotice]) -> None:
        for notice in sorted(notices, key=lambda notice: notice.at):
            if notice.what == REDIRECTS:
                self._stats.site_stats(notice.site).leads_to = notice.subject
                self._discovery.start_moved(notice.site, _page_at(notice.subject))
                if self.on_redirect is not None:
                    self.on_redirect(notice.site, site_of(notice.subject))
            elif notice.what == MOVED:
                self._discovery.start_moved(notice.site, _page_at(notice.subject))
            elif notice.what in {NOT_FETCHED, LEADS_OUT, FETCHED}:
                problem = "" if notice.what == FETCHED else f"{notice.what}: {notice.subject}"
                self._stats.site_stats(notice.site).start_problem = problem

    def follow(self, tasks: Sequence[Task]) -> tuple[Task, ...]:
        """The tasks of a job, of which some were taken over by other sites in an earlier session."""
        by_site = {task.site: task for task in tasks}
        for task in tasks:
            source, passed = task.site, {task.site}
            while (site_stats := self._stats.by_site.get(source)) is not None and site_stats.leads_to:
                target = site_of(site_stats.leads_to)
                if target in passed:
                    break
                passed.add(target)
                taken = _taken_over(by_site[source], target, site_stats.leads_to, by_site)
                by_site[source], by_site[target] = _left_behind(by_site[source]), taken
                source = target
        return tuple(by_site.values())

    def settled(
        self, now: Instant, site_stats: SiteStats, settled: SaveSettled, commands: list[Command]
    ) -> None:
        """Take in a page at depth 0, before its links: it may be the first page of its site."""
        task, page = site_stats.task, settled.page
        if not task.seeds or page.url != task.seeds[0] or settled.state is PageState.WAITING:
            return
        if settled.outcome.kind is Kind.REDIRECT and settled.links:
            self._redirected(now, site_stats, settled.links[0], commands)
        elif settled.state is PageState.DONE:
            if site_stats.start_problem:
                site_stats.start_problem = ""
                commands.append(SaveNotice(page.site, now, FETCHED, f"{page.url} at {utc_text(now)}"))
        else:
            outcome = settled.outcome
            reason = f"{outcome.kind} {outcome.status}" if outcome.status else f"{outcome.kind}"
            if outcome.kind is Kind.REFUSED and not outcome.status and outcome.detail:
                reason = outcome.detail  # it was not asked for: the login before it failed
            subject = f"{page.url} ({reason}) at {utc_text(now)}"
            self._note_problem(now, site_stats, NOT_FETCHED, subject, commands)

    def led_nowhere(
        self, now: Instant, site_stats: SiteStats, settled: SaveSettled, commands: list[Command]
    ) -> None:
        """Take in that the redirect of a first page brought nothing new: it goes in a circle, or on."""
        page, target = settled.page, settled.links[0] if settled.links else None
        url = page.url if target is None else target.url
        is_start = site_stats.task.seeds[:1] == (url,)
        if not is_start or site_stats.has_content or self._frontier.waiting_of(page.site):
            return
        where = "to itself" if target is None else f"in a circle or too often, last to {url}"
        subject = f"{page.url} redirects {where} at {utc_text(now)}"
        self._note_problem(now, site_stats, NOT_FETCHED, subject, commands)

    def _redirected(self, now: Instant, site_stats: SiteStats, target: Page, commands: list[Command]) -> None:
        task = site_stats.task
        if target.site == task.site:
            if self._discovery.start_moved(task.site, target):
                commands.append(SaveNotice(task.site, now, MOVED, target.url))
            task = structs.replace(task, seeds=(target.url, *task.seeds[1:]))
            self._stats.open(task)
            commands.append(SaveTasks((task,)))
            return
        if not self._may_follow(task.site, target):
            self._note_problem(now, site_stats, LEADS_OUT, target.url, commands)
            return
        others = {site: stats.task for site in (target.site,) if (stats := self._stats.by_site.get(site))}
        tasks = _left_behind(task), _taken_over(task, target.site, target.url, others)
        site_stats.leads_to = target.url
        self._discovery.extend_scope(target.site)
        self._discovery.start_moved(task.site, target)
        if self.on_redirect is not None:
            self.on_redirect(task.site, target.site)
        for each in tasks:
            if each.site in self._stats.by_site or self._discovery.owns(each.site):
                self._stats.open(each)
                self._frontier.task_changed(each.site)
        commands += [SaveTasks(tasks), SaveNotice(task.site, now, REDIRECTS, target.url)]

    def _may_follow(self, site: Site, target: Page) -> bool:
        """Whether the site of a redirect is the one that is meant: it is in scope, or has the same owner by
        its name. A redirect elsewhere may come from a domain that was sold."""
        if self._discovery.is_in_scope(target):
            return True
        return belong_together(site, target.site) and self._discovery.would_be_in_scope(target)

    def _note_problem(
        self, now: Instant, site_stats: SiteStats, what: str, subject: str, commands: list[Command]
    ) -> None:
        site_stats.start_problem = f"{what}: {subject}"
        commands.append(SaveNotice(site_stats.site, now, what, subject))


def site_of(url: str) -> Site:
    """The site of a canonical URL."""
    end = url.find("/", url.find("://") + 3)
    return Site(url if end < 0 else url[:end])


def _page_at(url: str) -> Page:
    """The page of a canonical URL, for its place only."""
    return Page(url, site_of(url), PageKey(0))


def _taken_over(task: Task, target: Site, url: str, tasks: Mapping[Site, Task]) -> Task:
    """The task at the site to which it leads. If that is a site of the job too, its own values count, and the
    earlier deadline."""
    own = tasks.get(target)
    if own is None or not own.seeds:
        return structs.replace(task, site=target, seeds=(url, *_seeds_at(task, target)))
    dues = [due for due in (task.deadline_at, own.deadline_at) if due is not None]
    return structs.replace(
        own,
        deadline_at=min(dues, default=None),
        weight=max(task.weight, own.weight),
        max_pages=task.max_pages if own.max_pages is None else own.max_pages,
        max_bytes=task.max_bytes if own.max_bytes is None else own.max_bytes,
        expected_bytes=task.expected_bytes if own.expected_bytes is None else own.expected_bytes,
        cap_bytes_per_s=task.cap_bytes_per_s if own.cap_bytes_per_s is None else own.cap_bytes_per_s,
    )


def _seeds_at(task: Task, site: Site) -> tuple[str, ...]:
    return tuple(url for url in task.seeds if site_of(url) == site)


def _left_behind(task: Task) -> Task:
    """What remains at the site that redirects: its limits, so that its other pages are bounded as well."""
    return structs.replace(task, deadline_at=None, expected_bytes=None)
