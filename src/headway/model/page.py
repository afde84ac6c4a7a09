"""A page is one URL of a site; a site is what politeness and allocation are reckoned by."""

from __future__ import annotations

from typing import NewType

import msgspec

from headway.units import Instant

Site = NewType("Site", str)
"""Scheme, host and port in canonical form, without a trailing slash: `https://www.example.org`."""

PageKey = NewType("PageKey", int)
"""A 64-bit fingerprint of the canonical URL: what the seen set keeps (a node's number in a simulation)."""


class Page(msgspec.Struct, frozen=True, gc=False):
    """A page as it was found. `depth` is the number of links from a seed, `score` the user's worth of it."""

    url: str
    site: Site
    key: PageKey
    depth: int = 0
    score: float = 0.0


AGAIN = -1000
"""Attempts at a page that was settled before are numbered from here, so that they are known from first ones
wherever a page waits."""


def is_again(attempt: int) -> bool:
    return attempt < 0


def tries_before(attempt: int) -> int:
    """How often the page was asked for in vain since it was last queued."""
    return attempt - AGAIN if attempt < 0 else attempt


class Lease(msgspec.Struct, frozen=True, gc=False):
    """A page lent out to be fetched until an instant; settling it with another number does not count."""

    number: int
    page: Page
    attempt: int
    until: Instant
