"""RSS (0.9x, 1.0, 2.0) and Atom feeds: the pages that they announce, newest as their authors put them."""

from __future__ import annotations

from collections.abc import Mapping

from headway.parse.listed import Entry, Listing, instant_of
from headway.parse.xmlwalk import Path, walk
from headway.units import Instant

_ROOTS = frozenset({"rss", "RDF", "feed"})
_PAGE_TYPES = frozenset({"", "text/html", "application/xhtml+xml"})
_LIST_TYPES = frozenset({"", "application/atom+xml", "application/rss+xml"})
_DATES = frozenset({"pubDate", "date", "updated", "published", "modified"})


def read_feed(content: bytes) -> Listing | None:
    """The entries of a feed; None when the document is none."""
    gathering = _Gathering()
    problem = walk(content, _ROOTS, gathering.take)
    if problem is None:
        return None
    gathering.listing.problem = problem
    return gathering.listing


class _Gathering:
    """An entry is whole at the end of its `item` or `entry` element."""

    def __init__(self) -> None:
        self.listing = Listing([], [], is_feed=True)
        self._href = ""
        self._guid = ""
        self._modified_at: Instant | None = None

    def take(self, path: Path, attributes: Mapping[str, str], text: str) -> bool:
        match path:
            case (*_, "item" | "entry", "link"):
                self._href = self._href or _page_href(attributes, text)
            case (*_, "item", "guid"):
                is_link = attributes.get("isPermaLink", "true").strip().lower() == "true"
                self._guid = text if is_link else ""
            case (*_, "item" | "entry", name) if name in _DATES:
                self._modified_at = max(self._modified_at or Instant(0.0), instant_of(text) or Instant(0.0))
            case (*_, "item" | "entry"):
                self._finish(attributes)
            case ("feed", "link") | ("rss", "channel", "link") | ("RDF", "channel", "link"):
                self._link_of_feed(attributes, text)
            case ("feed",):
                self.listing.base = attributes.get("base")
        return not self.listing.is_full

    def _finish(self, attributes: Mapping[str, str]) -> None:
        href = self._href or self._guid or attributes.get("about", "")
        if href:
            self.listing.pages.append(Entry(href, self._modified_at or None))
        self._href = self._guid = ""
        self._modified_at = None

    def _link_of_feed(self, attributes: Mapping[str, str], text: str) -> None:
        if attributes.get("rel") == "next" and attributes.get("type", "") in _LIST_TYPES:
            if href := attributes.get("href"):
                self.listing.lists.append(Entry(href))
        elif href := _page_href(attributes, text):
            self.listing.pages.append(Entry(href))


def _page_href(attributes: Mapping[str, str], text: str) -> str:
    """Where a link element leads, if to a page: Atom has it in an attribute, RSS as its text."""
    if "href" not in attributes:
        return text
    leads_to_page = attributes.get("rel", "alternate") == "alternate"
    return attributes["href"] if leads_to_page and attributes.get("type", "") in _PAGE_TYPES else ""
