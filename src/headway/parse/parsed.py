"""What is to be read of an answer, and what was."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from headway.model.page import Page, PageKey
from headway.units import Instant


class ParseOptions(msgspec.Struct, frozen=True):
    user_agent: str = "headway"
    """META robots and X-Robots-Tag may call us by its product token."""
    drop_rel_nofollow: bool = False
    """Whether links marked `rel=nofollow` are left out."""
    max_links: int = 10_000
    """Of one page, the first so many count. The longest lists for people have some thousands; a page made of
    nothing but links has a million, and taking them in would hold up everybody for as long as a minute."""
    takes_fingerprints: bool = False
    """Whether pages are told apart by their words (`parse.fingerprint`), too."""
    read_sitemaps: bool = False
    read_feeds: bool = False


class Parsed(msgspec.Struct, frozen=True):
    links: tuple[Page, ...] = ()
    """Canonical, each once, in document order. A redirect has one: its target."""
    noindex: bool = False
    nofollow: bool = False
    title: str = ""
    canonical: str | None = None
    """What the page calls itself by LINK or Link `rel=canonical`, in canonical form."""
    digest: str = ""
    fingerprint: int = 0
    """Its likeness to other pages; 0 where that was not looked at, or says nothing."""
    charset: str = ""
    content_type: str = ""
    """As declared, or as the content looks when nothing was declared."""
    skipped_links: int = 0
    """Hrefs that lead to no page (mail addresses, scripts, nonsense), and links beyond the limit."""
    lists: tuple[Page, ...] = ()
    """Sitemaps and feeds that it leads to."""
    is_list: bool = False
    modified_at: Mapping[PageKey, Instant] = msgspec.field(default_factory=dict)
    """When the pages of a list were changed, where it says so."""
