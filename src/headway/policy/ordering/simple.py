"""The orderings that need no knowledge of the web's shape (castillo2004 section 4, cobweb1999 2.4)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from headway.model.page import Page
from headway.policy.ordering.base import Key, SiteQueue


class Depth:
    """Breadth first: the page nearest to a seed, on whichever site."""

    name = "depth"

    def page_key(self, page: Page) -> Key:
        return page.depth

    def site_key(self, queue: SiteQueue) -> Key:
        return queue.first_key


class Length:
    """The site with the longest queue first, so that large sites are begun early and do not trail at the
    end with all robots but one idle; its pages by depth."""

    name = "length"

    def page_key(self, page: Page) -> Key:
        return page.depth

    def site_key(self, queue: SiteQueue) -> Key:
        return -queue.waiting


class LongestWait:
    """cobweb1999's KLWF: the page that has waited longest among those whose server is free."""

    name = "klwf"

    def page_key(self, page: Page) -> Key:
        return 0.0

    def site_key(self, queue: SiteQueue) -> Key:
        return queue.first_serial


def score_as_found(page: Page) -> float:
    return page.score


class Score:
    """The worthiest page first, by the user's scores (diligenti2004); a site is as good as its best page."""

    name = "score"

    def __init__(self, score_of: Callable[[Page], float] = score_as_found) -> None:
        self._score_of = score_of

    def page_key(self, page: Page) -> Key:
        return -self._score_of(page)

    def site_key(self, queue: SiteQueue) -> Key:
        return queue.first_key


class Random:
    """Any page, any site: castillo2004's straight line. Random by hash, so that a run can be repeated."""

    name = "random"

    def __init__(self, seed: int = 0) -> None:
        self._salt = (seed * 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF

    def page_key(self, page: Page) -> Key:
        """SplitMix64's finaliser: neighbouring keys land far apart."""
        number = (page.key ^ self._salt) & 0xFFFFFFFFFFFFFFFF
        number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
        number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
        return (number ^ (number >> 31)) / 2**64

    def keys_of(self, numbers: NDArray[np.uint64]) -> NDArray[np.float64]:
        """`page_key` of many pages at once."""
        mixed = numbers ^ np.uint64(self._salt)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        keys: NDArray[np.float64] = (mixed ^ (mixed >> np.uint64(31))).astype(np.float64) / 2**64
        return keys

    def site_key(self, queue: SiteQueue) -> Key:
        return queue.first_key
