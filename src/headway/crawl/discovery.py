"""What becomes of pages that were found: new ones in scope are queued, new ones out of scope are counted."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from headway.crawl.holdings import Holdings
from headway.crawl.ledger import Ledger, SiteBook
from headway.frontier.frontier import Frontier
from headway.frontier.seen import seen_set
from headway.model.command import Command, PageState, SaveFound, SaveSettled
from headway.model.outcome import Kind, Outcome
from headway.model.page import Page, PageKey, Site
from headway.policy.scope import Exclusion, Scope
from headway.policy.traps import TrapWatch
from headway.units import Instant

_MOST_REDIRECTS = 20
"""In a row: redirects cost no depth, so that without a limit a chain of ever new places would never end."""


class _Rest(NamedTuple):
    """Links of a page that has settled which have not been looked at yet."""

    source: SiteBook
    links: Sequence[Page]
    redirects: int
    judge: Callable[[Page], str | None] | None
    own: int
    """Of all its links, how many lead to its own site."""
    new: int
    """Of those that were looked at, how many led to a new page of it."""


class Discovery:
    def __init__(
        self,
        scope: Scope,
        frontier: Frontier,
        ledger: Ledger,
        holdings: Holdings | None = None,
        watch: TrapWatch | None = None,
        *,
        links_at_once: int | None = None,
    ) -> None:
        """`links_at_once`: of a page with more links, the others are looked at by and by, with `go_on`."""
        self._links_at_once = links_at_once
        self._rest: deque[_Rest] = deque()
        self._holdings = holdings
        self._watch = watch
        self._scope = scope
        self._frontier = frontier
        self._ledger = ledger
        self.seen = seen_set()
        self._redirects: dict[PageKey, int] = {}
        """How many in a row led to a waiting page, where there were any."""

    def welcome(self, site: Site) -> None:
        """From now on this site's pages are in scope, too."""
        self._scope = self._scope.widened(site)

    def is_in_scope(self, page: Page) -> bool:
        return self._scope.judge(page) is None

    def ours(self, pages: Sequence[Page]) -> Sequence[Page]:
        """Those of sites that are nobody else's business."""
        if self._holdings is None:
            return pages
        return [page for page in pages if page.site in self._holdings.sites]

    def found(
        self,
        now: Instant,
        pages: Sequence[Page],
        commands: list[Command],
        redirects: int = 0,
        judge: Callable[[Page], str | None] | None = None,
    ) -> list[Page]:
        """Take pages in; returns those that were queued. `judge` may know a reason to leave out a new one."""
        welcome: list[Page] = []
        if self._holdings is not None:
            pages, others = self._holdings.sorted_out(pages, is_redirect=redirects > 0)
            if others:
                self._post(now, others, commands)
        for position in self.seen.add_all([page.key for page in pages]):
            page = pages[position]
            exclusion: str | None = (
                Exclusion.REDIRECT_CHAIN if redirects > _MOST_REDIRECTS else self._scope.judge(page)
            )
            if exclusion is None and judge is not None:
                exclusion = judge(page)
            if exclusion is None:
                if redirects:
                    self._redirects[page.key] = redirects
                welcome.append(page)
                self._frontier.put(page)
            else:
                self._exclude(now, page, Outcome(Kind.OUT_OF_SCOPE, detail=exclusion), commands)
        if welcome:
            commands.append(SaveFound(tuple(welcome)))
        return welcome

    def found_lists(self, now: Instant, lists: Sequence[Page], commands: list[Command]) -> None:
        """Sitemaps and feeds: what they are called, and of which type they are, does not matter."""
        if not lists:
            return  # as of nearly every page
        if self._holdings is not None:
            lists, others = self._holdings.sorted_out(lists, is_redirect=False)
            self._post(now, others, commands)
        for position in self.seen.add_all([page.key for page in lists]):
            page = lists[position]
            exclusion = self._scope.judge_list(page)
            if exclusion is None:
                self._frontier.put(page)
                commands.append(SaveFound((page,)))
            else:
                self._exclude(now, page, Outcome(Kind.OUT_OF_SCOPE, detail=exclusion), commands)

    def linked(self, now: Instant, source: SiteBook, settled: SaveSettled, commands: list[Command]) -> None:
        """Take in the links of a page that has settled."""
        links = settled.links
        redirects = 0 if settled.state is PageState.WAITING else self._redirects.pop(settled.page.key, 0)
        is_redirect = settled.outcome.kind is Kind.REDIRECT
        judge = self._watch.judge_of(now, settled, commands) if self._watch is not None else None
        own = sum(link.site == source.site for link in links)
        self._look_at(now, _Rest(source, links, redirects + 1 if is_redirect else 0, judge, own, 0), commands)

    @property
    def has_rest(self) -> bool:
        """Whether there are links of settled pages that were not looked at yet."""
        return bool(self._rest)

    def go_on(self, now: Instant, commands: list[Command]) -> None:
        """Look at some more of them."""
        if self._rest:
            self._look_at(now, self._rest.popleft(), commands)

    def _look_at(self, now: Instant, rest: _Rest, commands: list[Command]) -> None:
        source, links, most = rest.source, rest.links, self._links_at_once
        part = links if most is None else links[:most]
        welcome = self.found(now, part, commands, rest.redirects, rest.judge)
        new = rest.new + sum(link.site == source.site for link in welcome)
        if len(part) < len(links):
            self._rest.append(rest._replace(links=links[len(part) :], new=new))
        else:
            source.count_links(rest.own, new)

    def _post(self, now: Instant, pages: Sequence[Page], commands: list[Command]) -> None:
        """Pages of sites that others hold, for them."""
        exclusions = [self._scope.judge(page) for page in pages]
        for page, exclusion in zip(pages, exclusions, strict=True):
            if exclusion is not None:
                self._exclude(now, page, Outcome(Kind.OUT_OF_SCOPE, detail=exclusion), commands)
        welcome = tuple(page for page, exclusion in zip(pages, exclusions, strict=True) if exclusion is None)
        if welcome:
            commands.append(SaveFound(welcome, is_elsewhere=True))

    def _exclude(self, now: Instant, page: Page, outcome: Outcome, commands: list[Command]) -> None:
        self._ledger.outcomes[f"{outcome.kind}: {outcome.detail}"] += 1
        commands.append(SaveSettled(page, outcome, PageState.EXCLUDED, 0, now))
