"""The sites that are ours, when this crawl is a part of a larger one that others work on as well.

Pages found of other sites are saved for whoever holds those; the store knows which of them are new. What we
have saved for others once is not saved again.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import structs

from headway.crawl.ledger import Ledger
from headway.frontier.frontier import Frontier
from headway.frontier.seen import SeenSet, seen_set
from headway.model.event import Loaded, SitesLeft, SitesTaken
from headway.model.page import Page, Site


class Holdings:
    def __init__(self, ledger: Ledger, frontier: Frontier) -> None:
        self._ledger = ledger
        self._frontier = frontier
        self._posted = seen_set()
        self.sites: set[Site] = set()

    def hear(self, event: SitesTaken | SitesLeft, seen: SeenSet) -> None:
        match event:
            case SitesTaken():
                self._take(event, seen)
            case SitesLeft(sites):
                self._leave(sites)

    def _take(self, event: SitesTaken, seen: SeenSet) -> None:
        snapshot = event.snapshot
        self.sites |= event.sites
        seen.add_many(np.asarray(snapshot.seen, dtype=np.int64))
        for task in snapshot.tasks:
            self._ledger.open(task)
        for record in snapshot.sites:
            self._ledger.forget(record.site)  # it may have been ours before
            self._ledger.restore(record, event.rules.get(record.site))
            self._frontier.free(record.site, record.free_at)
        for site, free_at in event.not_before.items():
            self._frontier.free(site, max(free_at, self._frontier.room(site).free_at))
        for waiting in snapshot.waiting:
            self._frontier.put(waiting.page, waiting.attempt, waiting.retry_at)
        for site, count in snapshot.unloaded.items():
            self._frontier.left_in_store(site, count)

    def _leave(self, sites: Sequence[Site]) -> None:
        """Nothing more is asked of these; what is under way may still come. Their pages wait in the store."""
        self.sites.difference_update(sites)
        for site in sites:
            self._frontier.leave(site)

    def may_load(self, load: Loaded, seen: SeenSet) -> bool:
        """Whether pages of the store are still wanted. Among them may be some that others found: these are
        read here before they are heard of otherwise, and count from now on."""
        if load.site not in self.sites:
            return False
        unheard_of = seen.add_all([record.page.key for record in load.waiting])
        if unheard_of:
            self._frontier.wait_unknown(load.site, len(unheard_of))
        return True

    def is_quiet(self, site: Site) -> bool:
        room = self._frontier.room(site)
        return not room.busy and not room.waiting

    def sorted_out(self, pages: Sequence[Page], *, is_redirect: bool) -> tuple[Sequence[Page], list[Page]]:
        """Ours, and of the others' those that we come upon for the first time.

        A redirect costs no depth, and the count of those in a row is not passed on with a page: between two
        collectors it costs one, so that no chain of them is endless.
        """
        sites = self.sites
        others = [page for page in pages if page.site not in sites]
        if not others:
            return pages, others
        ours = [page for page in pages if page.site in sites]
        new = [others[position] for position in self._posted.add_all([page.key for page in others])]
        if is_redirect:
            new = [structs.replace(page, depth=page.depth + 1) for page in new]
        return ours, new
