"""A site of the demo web on paper: its pages, its robots rules, and the pace at which it answers."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from headway.testing.demoweb.calendar_trap import calendar_page
from headway.testing.demoweb.page import DOCUMENT_LAYOUTS, PageDesign, Place


class RobotsGroup(msgspec.Struct, frozen=True):
    """One group of a robots.txt; a pattern may hold `*` and end in `$`."""

    agents: tuple[str, ...]
    disallow: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()
    crawl_delay_s: float | None = None

    def allows(self, path: str) -> bool:
        """The longest matching pattern decides, Allow wins a tie (RFC 9309)."""
        matches = [(len(p), True) for p in self.allow if _matches(p, path)]
        matches += [(len(p), False) for p in self.disallow if _matches(p, path)]
        return max(matches, default=(0, True))[1]


class SiteDesign(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    title: str
    character: str
    """What is special about it, in a few words for a table."""
    seed: str
    pages: Mapping[str, PageDesign]
    """By path and query; robots.txt, sitemaps and feeds among them."""
    robots: tuple[RobotsGroup, ...] = ()
    sitemaps: tuple[str, ...] = ()
    """Paths named in robots.txt."""
    sitemap_pages: tuple[str, ...] = ()
    """Paths listed in the sitemaps."""
    rate_bytes_per_s: float | None = None
    """The most that the server sends, over all connections together."""
    retry_after_s: int = 1
    stall_s: float = 4.0
    validators: bool = False
    """Whether it sends ETag and Last-Modified, and answers 304 to who has the page."""
    has_calendar: bool = False

    @property
    def home(self) -> Place:
        return Place(self.name, "/")

    @property
    def total_bytes(self) -> int:
        """Content of its documents, those that robots may not have included, without the endless part."""
        return sum(page.size_bytes for page in self.documents())

    def documents(self) -> list[PageDesign]:
        """The pages that a person would count: no redirects or errors, no images, no files for machines."""
        return [p for p in self.pages.values() if p.layout in DOCUMENT_LAYOUTS and p.status == 200]

    def find(self, path: str) -> PageDesign | None:
        page = self.pages.get(path)
        return calendar_page(self.name, path) if page is None and self.has_calendar else page

    def group_for(self, user_agent: str) -> RobotsGroup | None:
        """The group that names this product token, else the one for all."""
        token = re.split(r"[/\s]", user_agent, maxsplit=1)[0].lower()
        named = {agent.lower(): group for group in self.robots for agent in group.agents}
        return named.get(token, named.get("*"))

    def allows(self, user_agent: str, path: str) -> bool:
        group = self.group_for(user_agent)
        return group is None or path == "/robots.txt" or group.allows(path)


def _matches(pattern: str, path: str) -> bool:
    body, end = (pattern[:-1], r"\Z") if pattern.endswith("$") else (pattern, "")
    return re.match(".*".join(map(re.escape, body.split("*"))) + end, path, re.DOTALL) is not None
