"""The ordering where sites have deadlines: the site that is furthest behind, and its worthiest page first.

A site's latest start is its deadline less the time that its remaining data needs. The less time is left
until then, the more urgent it is; time itself moves all waiting sites alike and so changes no place.
"""

from __future__ import annotations

from collections.abc import Callable

from headway.model.page import Page, Site
from headway.policy.ordering.base import Key, SiteQueue
from headway.units import FOREVER, Instant

_NO_HURRY: Key = 2.0**52
"""Later than any instant in use, and so small that whole numbers can be taken from it exactly."""


class Deadline:
    """Least laxity first among the sites; sites without a deadline follow, the longest queue first. Pages
    of a site by depth, or by the user's scores, so that the best are in when time runs out."""

    name = "deadline"

    def __init__(
        self,
        latest_start_at: Callable[[Site], Instant] | None = None,
        *,
        score_of: Callable[[Page], float] | None = None,
    ) -> None:
        self._latest_start_at = latest_start_at
        self._score_of = score_of

    def follow(self, latest_start_at: Callable[[Site], Instant]) -> None:
        """Take the view of the sites' deadlines and remaining data from whoever keeps the books. When it
        changes for sites that nothing was fetched from, the frontier has to be told: `sites_changed`."""
        self._latest_start_at = latest_start_at

    def page_key(self, page: Page) -> Key:
        return page.depth if self._score_of is None else -self._score_of(page)

    def site_key(self, queue: SiteQueue) -> Key:
        at = FOREVER if self._latest_start_at is None else self._latest_start_at(queue.site)
        return at if at < FOREVER else _NO_HURRY - queue.waiting
