"""Near-duplicate pages and mirrored sites, recognised by fingerprints in bounded memory."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from hashlib import blake2b
from itertools import islice
from typing import TypeVar

from headway.model.page import Site

K = TypeVar("K")
V = TypeVar("V")

_PARTS = 8


def number_of(text: str) -> int:
    """A 64-bit hash of a text. Unlike `hash` it is the same in every process, so that the same events give
    the same commands. It is cryptographic, so that collisions are hard to construct."""
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest())


def keep_last(entries: dict[K, V], most: int) -> None:
    """If there are more than `most` entries, delete the oldest eighth.

    They are not deleted one at a time, because a dictionary finds its first entry by skipping all deleted
    ones. With tens of thousands of entries that takes tens of microseconds each time.
    """
    if len(entries) > most:
        for key in list(islice(entries, most // _PARTS + 1)):
            del entries[key]


NEAR_BITS = 3
"""Two pages that share nine words of ten differ in about this many bits, unrelated pages in about 30."""

EVERY_BIT = (1 << 64) - 1
"""Masks a fingerprint, which is a signed number, so that its bits can be counted."""


def distance(one: int, other: int) -> int:
    """The number of bits in which two fingerprints differ."""
    return ((one ^ other) & EVERY_BIT).bit_count()


def near(fingerprint: int, others: Iterable[int], bits: int = NEAR_BITS) -> int | None:
    """The first of `others` that differs in at most `bits` bits. All fingerprints are unsigned."""
    if _near_in_c is not None:
        return _near_in_c(fingerprint, others, bits)
    return near_in_python(fingerprint, others, bits)


def _load() -> Callable[[int, Iterable[int], int], int | None] | None:
    try:
        found: Callable[[int, Iterable[int], int], int | None] = importlib.import_module(
            "headway.policy._near"
        ).near
    except ImportError:
        return None
    return found


_near_in_c = _load()


def near_in_python(fingerprint: int, others: Iterable[int], bits: int) -> int | None:
    for other in others:
        if (fingerprint ^ other).bit_count() <= bits:
            return other
    return None


class Mirrors:
    """Finds sites with the same content at the same paths, among the last `most_pages` pages of all sites."""

    def __init__(self, *, fewest_pages: int = 30, share: float = 0.9, most_pages: int = 65_536) -> None:
        self._fewest_pages = fewest_pages
        self._share = share
        self._most_pages = most_pages
        self._first: dict[int, Site] = {}
        """The first site with a path and content, by a hash of both: a small key, because there are many."""
        self._pages: dict[Site, int] = {}
        self._met: dict[Site, int] = {}
        self._common: dict[tuple[Site, Site], int] = {}
        self.mirrors: dict[Site, Site] = {}
        """Each mirror with its original, the site that was seen first."""

    def learn(self, site: Site, path: str, fingerprint: int) -> Site | None:
        """Record a fetched page. Returns a site that this page shows to be a mirror, or None."""
        self._met.setdefault(site, len(self._met))
        self._pages[site] = self._pages.get(site, 0) + 1
        first = self._first.setdefault(number_of(f"{fingerprint:x} {path}"), site)
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
