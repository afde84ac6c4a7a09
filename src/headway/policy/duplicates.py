"""Pages that hardly differ, and sites that are one another's mirror. Fingerprints come from the parser:
64 bits, of which two pages that share nearly all their words have nearly all in common."""

from __future__ import annotations

from collections.abc import Iterable

from headway.model.page import Site
from headway.policy.forgetting import keep_last

NEAR_BITS = 3
"""Two pages with nine words in ten in common differ in about so many bits, strangers in some thirty."""

EVERY_BIT = (1 << 64) - 1
"""A fingerprint comes as a signed number; here, bits are counted."""


def distance(one: int, other: int) -> int:
    """In how many bits two fingerprints differ."""
    return ((one ^ other) & EVERY_BIT).bit_count()


def near(fingerprint: int, others: Iterable[int], bits: int = NEAR_BITS) -> int | None:
    """The first of these fingerprints that is near to one, all of them without a sign."""
    for other in others:
        if (fingerprint ^ other).bit_count() <= bits:
            return other
    return None


class Mirrors:
    """Sites with the same content at the same paths. Remembers the last pages of all sites, up to so many."""

    def __init__(self, *, fewest_pages: int = 30, share: float = 0.9, most_pages: int = 65_536) -> None:
        self._fewest_pages = fewest_pages
        self._share = share
        self._most_pages = most_pages
        self._first: dict[int, Site] = {}
        """By hash of path and content: one small number, since there are so many of them."""
        self._pages: dict[Site, int] = {}
        self._met: dict[Site, int] = {}
        self._common: dict[tuple[Site, Site], int] = {}
        self.mirrors: dict[Site, Site] = {}
        """Each with the site that was there before it."""

    def learn(self, site: Site, path: str, fingerprint: int) -> Site | None:
        """A page has come; returns the site that is now known to be a mirror, if this one showed it."""
        self._met.setdefault(site, len(self._met))
        self._pages[site] = self._pages.get(site, 0) + 1
        first = self._first.setdefault(hash((path, fingerprint)), site)
        keep_last(self._first, self._most_pages)
        if self._home(first) == self._home(site):
            return None
        original, mirror = sorted((first, site), key=self._met.__getitem__)
        common = self._common.pop((original, mirror), 0) + 1
        self._common[original, mirror] = common
        keep_last(self._common, self._most_pages)
        fewer = min(self._pages[first], self._pages[site])
        if common < self._fewest_pages or common < self._share * fewer:
            return None
        self.mirrors[mirror] = self._home(original)
        return mirror

    def _home(self, site: Site) -> Site:
        return self.mirrors.get(site, site)
