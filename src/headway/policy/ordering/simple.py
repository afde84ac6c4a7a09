"""Orderings that need no knowledge of the link graph (castillo2004 section 4), and the one by deadlines."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from headway.errors import HeadwayError
from headway.model.page import Page, Site
from headway.policy.ordering.base import Key, SiteQueue
from headway.units import FOREVER, Instant


class Depth:
    """Breadth first: the page nearest to a seed, on any site."""

    name = "depth"

    def page_key(self, page: Page) -> Key:
        return page.depth

    def site_key(self, queue: SiteQueue) -> Key:
        return queue.first_key


class Length:
    """The site with the longest queue first, its pages by depth. Large sites start early, so that they are
    not crawled alone at the end while the rest of the capacity is idle."""

    name = "length"

    def page_key(self, page: Page) -> Key:
        return page.depth

    def site_key(self, queue: SiteQueue) -> Key:
        return -queue.waiting


class LongestWait:
    """KLWF of cobweb1999: the page that has waited longest among those whose server is free."""

    name = "klwf"

    def page_key(self, page: Page) -> Key:
        return 0.0

    def site_key(self, queue: SiteQueue) -> Key:
        return queue.first_serial


def score_as_found(page: Page) -> float:
    return page.score


class Score:
    """The page with the highest user score first (diligenti2004). The key of a site is that of its best
    page."""

    name = "score"

    def __init__(self, score_of: Callable[[Page], float] = score_as_found) -> None:
        self._score_of = score_of

    @property
    def problem(self) -> HeadwayError | None:
        """The error that the user's scorer raised, if any."""
        return getattr(self._score_of, "problem", None)

    def page_key(self, page: Page) -> Key:
        return -self._score_of(page)

    def site_key(self, queue: SiteQueue) -> Key:
        return queue.first_key


class Random:
    """A random page of any site, as in castillo2004. Random by hash, so that a run can be repeated."""

    name = "random"

    def __init__(self, seed: int = 0) -> None:
        self._salt = (seed * 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF

    def page_key(self, page: Page) -> Key:
        """The finaliser of SplitMix64, which separates neighbouring keys."""
        number = (page.key ^ self._salt) & 0xFFFFFFFFFFFFFFFF
        number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
        number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
        return (number ^ (number >> 31)) / 2**64

    def keys_of(self, numbers: NDArray[np.uint64]) -> NDArray[np.float64]:
        """`page_key` for an array of pages."""
        mixed = numbers ^ np.uint64(self._salt)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        keys: NDArray[np.float64] = (mixed ^ (mixed >> np.uint64(31))).astype(np.float64) / 2**64
        return keys

    def site_key(self, queue: SiteQueue) -> Key:
        return queue.first_key


_NO_HURRY: Key = 2.0**52
"""Later than any instant in use, and small enough that integers can be subtracted from it exactly."""


class Deadline:
    """Least laxity first among the sites; then the sites without a deadline, the longest queue first. The
    pages of a site by depth, or by the user's scores, so that the best are fetched before time runs out.

    The latest start of a site is its deadline minus the time that its remaining data needs; the earlier it
    is, the more urgent the site. Time passes equally for all waiting sites, so it does not change their
    order.
    """

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
        """Set the function that gives the latest start of a site. If its value changes for a site from which
        nothing was fetched, the caller must report that to the frontier (`sites_changed`)."""
        self._latest_start_at = latest_start_at

    @property
    def problem(self) -> HeadwayError | None:
        """The error that the user's scorer raised, if any."""
        return getattr(self._score_of, "problem", None)

    def page_key(self, page: Page) -> Key:
        return page.depth if self._score_of is None else -self._score_of(page)

    def site_key(self, queue: SiteQueue) -> Key:
        at = FOREVER if self._latest_start_at is None else self._latest_start_at(queue.site)
        return at if at < FOREVER else _NO_HURRY - queue.waiting
