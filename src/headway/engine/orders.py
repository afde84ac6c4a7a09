"""The orders of a person: pause, resume, another deadline, stop a site, add a site."""

from __future__ import annotations

from msgspec import structs

from headway.engine.bandwidth import LinkBound
from headway.engine.discovery import Discovery
from headway.engine.frontier import Frontier
from headway.engine.scheduler import SitePoliteness
from headway.engine.stats import CrawlStats
from headway.model.command import (
    AddSite,
    Command,
    Order,
    OrderAnswered,
    PageState,
    Pause,
    Resume,
    SaveAgain,
    SaveSettled,
    SaveTasks,
    SetDeadline,
    StopSite,
)
from headway.model.page import AGAIN, Kind, Outcome, Site
from headway.units import Instant

_STOPPED = Outcome(Kind.CANCELLED, detail="the site was stopped by order")


class Orders:
    """Carries out the orders of a person: each changes the statistics, the frontier or the bound, and is
    logged."""

    def __init__(
        self,
        stats: CrawlStats,
        frontier: Frontier,
        bound: LinkBound,
        discovery: Discovery,
        site_politeness: SitePoliteness,
    ) -> None:
        self._stats = stats
        self._frontier = frontier
        self._bound = bound
        self._discovery = discovery
        self._site_politeness = site_politeness

    def carry_out(self, now: Instant, order: Order, commands: list[Command]) -> None:
        if isinstance(order, SetDeadline | StopSite) and order.site not in self._stats.by_site:
            commands.append(OrderAnswered(order, f"there is no site {order.site} in this crawl"))
            return
        commands.append(OrderAnswered(order))
        match order:
            case Pause():
                self._bound.pause(is_paused=True)
            case Resume():
                self._bound.pause(is_paused=False)
            case SetDeadline(site, deadline_at):
                task = structs.replace(self._stats.site_stats(site).task, deadline_at=deadline_at)
                self._stats.open(task)
                self._frontier.task_changed(site)
                commands.append(SaveTasks((task,)))
            case StopSite(site):
                self._stop(now, site, commands)
            case AddSite():
                self._add(now, order, commands)

    def _add(self, now: Instant, order: AddSite, commands: list[Command]) -> None:
        task = order.task
        is_new = task.site not in self._stats.by_site
        self._discovery.extend_scope(task.site)
        self._stats.open(task)
        self._frontier.task_changed(task.site)
        commands.append(SaveTasks((task,)))
        known = {page.key for page in order.pages if page.key in self._discovery.seen}
        self._discovery.found(now, [page for page in order.pages if page.key not in known], commands)
        # Pages that were excluded while their site was out of scope are queued now.
        again = tuple(
            page for page in order.pages if is_new and page.key in known and self._discovery.is_in_scope(page)
        )
        for page in again:
            self._frontier.put(page, AGAIN, now)
        if again:
            commands.append(SaveAgain(again, now))

    def _stop(self, now: Instant, site: Site, commands: list[Command]) -> None:
        site_stats = self._stats.site_stats(site)
        # With a limit of no pages, whatever is found from now on is excluded as beyond the limit.
        task = structs.replace(site_stats.task, max_pages=0)
        self._stats.open(task)
        commands.append(SaveTasks((task,)))
        pages = self._frontier.take_all(site)
        for waiting in pages:
            self._stats.count(now, site_stats, _STOPPED, PageState.EXCLUDED)
            commands.append(SaveSettled(waiting.page, _STOPPED, PageState.EXCLUDED, waiting.attempt, now))
        if pages:
            commands.append(
                self._site_politeness.update_end(now, site_stats, self._frontier.queue(site).free_at)
            )
