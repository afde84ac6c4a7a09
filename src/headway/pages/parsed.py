"""Values of page work: what to read from a response, and what was read."""

from __future__ import annotations

import datetime as dt
import email.utils
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from headway.model.page import Page, PageKey
from headway.pages.fingerprint import NO_FINGERPRINT
from headway.pages.headers import NOTHING_ASKED, Directives
from headway.units import Instant

MAX_ENTRIES = 50_000
"""The limit of sitemaps.org. Further entries are ignored."""


class Entry(NamedTuple):
    href: str
    modified_at: Instant | None = None


class Listing(msgspec.Struct):
    pages: list[Entry]
    lists: list[Entry]
    """Further lists: the parts of a sitemap index, the next page of a feed."""
    is_feed: bool = False
    base: str | None = None
    problem: str = ""
    """Why the rest could not be read; empty if all was read."""

    @property
    def is_full(self) -> bool:
        return len(self.pages) + len(self.lists) >= MAX_ENTRIES


def instant_of(text: str) -> Instant | None:
    """Parse a date of a sitemap or feed: `2005`, `2005-01-01T07:30Z`, `Thu, 05 Jan 2017 12:34:50 GMT`."""
    text = text.strip()
    if not text or len(text) > 64:
        return None
    try:
        if text[:4].isdigit():
            date = dt.datetime.fromisoformat(text + {4: "-01-01", 7: "-01"}.get(len(text), ""))
        else:
            date = email.utils.parsedate_to_datetime(text)
        if date.tzinfo is None:
            date = date.replace(tzinfo=dt.UTC)
        return Instant(date.timestamp())
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


class Markup(msgspec.Struct):
    """What was found in a page's markup, with hrefs as written."""

    links: list[tuple[str, bool]]
    """The href and whether it is marked `rel=nofollow`, in document order."""
    base: str | None = None
    canonical: str | None = None
    title: str = ""
    asked: Directives = NOTHING_ASKED
    feeds: list[str] = msgspec.field(default_factory=list)
    moves_on: bool = False
    """It has a META refresh to another page, so its own content does not matter."""
    fingerprint: int = NO_FINGERPRINT


class ParseOptions(msgspec.Struct, frozen=True):
    user_agent: str = "headway"
    """META robots and X-Robots-Tag may name its product token."""
    drop_rel_nofollow: bool = False
    """Whether to ignore links marked `rel=nofollow`."""
    max_links: int = 10_000
    """Further links of a page are ignored. The longest lists for people have some thousands; a page of
    nothing but links has a million, and processing them would block the crawl for up to a minute."""
    takes_fingerprints: bool = False
    """Whether to compute a fingerprint of the words of each page (`pages.fingerprint`)."""
    read_sitemaps: bool = False
    read_feeds: bool = False
    secret: bytes = b""
    """Of the crawl, for the keys of pages."""
    purposes: tuple[str, ...] = ()
    """What the crawl is for: a page that forbids one of these is not stored."""
    digest: str = "sha1"
    """What contents are identified by: see `pages.fingerprint.content_digests`."""


class Parsed(msgspec.Struct, frozen=True):
    links: tuple[Page, ...] = ()
    """Canonical, without duplicates, in document order. A redirect has one link, its target."""
    noindex: bool = False
    nofollow: bool = False
    title: str = ""
    canonical: str | None = None
    """The target of a LINK element or Link header with `rel=canonical`, in canonical form."""
    digest: str = ""
    fingerprint: int = 0
    """See `pages.fingerprint`; 0 if it was not computed or there are too few words."""
    charset: str = ""
    content_type: str = ""
    """As declared, or detected from the content if nothing was declared."""
    skipped_links: int = 0
    """Hrefs that are no page (mail addresses, scripts, invalid ones), and links beyond the limit."""
    lists: tuple[Page, ...] = ()
    """The sitemaps and feeds that it links to."""
    is_list: bool = False
    modified_at: Mapping[PageKey, Instant] = msgspec.field(default_factory=dict)
    """When the pages of a list were last modified, if the list says so."""
    problem: str = ""
    """Why the rest of it was not read; empty if all was."""
    preferences: Mapping[str, bool] = msgspec.field(default_factory=dict)
    """What its headers say that it may be used for."""
