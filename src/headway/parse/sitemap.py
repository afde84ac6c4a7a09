"""Sitemaps and sitemap indexes as sitemaps.org has them, in XML and as plain text.

Namespaces are not insisted upon (old and misspelt ones abound), and the extensions' own `loc` elements
(images, videos) lead to no page and are passed over.
"""

from __future__ import annotations

from collections.abc import Mapping

from headway.parse.listed import MAX_ENTRIES, Entry, Listing, instant_of
from headway.parse.xmlwalk import Path, walk
from headway.units import Instant

_ROOTS = frozenset({"urlset", "sitemapindex"})
_SCHEMES = ("http://", "https://")
_LONGEST_LINE = 8192


def read_sitemap(content: bytes) -> Listing | None:
    """The entries of a sitemap or an index of sitemaps; None when the document is neither."""
    gathering = _Gathering()
    problem = walk(content, _ROOTS, gathering.take)
    if problem is None:
        return None
    gathering.listing.problem = problem
    return gathering.listing


def read_text_sitemap(content: bytes) -> Listing | None:
    """A text that is nothing but absolute URLs, one a line; None when it is anything else."""
    text = content.decode("utf-8-sig", "replace")
    listing = Listing([], [])
    for line in text.splitlines():
        href = line.strip()
        if not href:
            continue
        if not href.startswith(_SCHEMES) or len(href) > _LONGEST_LINE or len(href.split(None, 1)) > 1:
            return None
        if listing.is_full:
            listing.problem = f"more than {MAX_ENTRIES} entries"
            break
        listing.pages.append(Entry(href))
    return listing if listing.pages else None


class _Gathering:
    """An entry is whole at the end of its `url` or `sitemap` element."""

    def __init__(self) -> None:
        self.listing = Listing([], [])
        self._href = ""
        self._modified_at: Instant | None = None

    def take(self, path: Path, _: Mapping[str, str], text: str) -> bool:
        match path:
            case (_, "url" | "sitemap", "loc"):
                self._href = text
            case (_, "url" | "sitemap", "lastmod"):
                self._modified_at = instant_of(text)
            case (_, "url" | "sitemap" as name):
                # Some indexes have the address in the entry itself.
                href = self._href or (text if text.startswith(_SCHEMES) else "")
                entries = self.listing.pages if name == "url" else self.listing.lists
                if href:
                    entries.append(Entry(href, self._modified_at))
                self._href, self._modified_at = "", None
        return not self.listing.is_full
