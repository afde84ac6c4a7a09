"""The design of pages and sites: their links, their responses, their calendar. No port is known yet."""

from __future__ import annotations

import enum
import re
import zlib
from collections.abc import Mapping
from typing import NamedTuple

import msgspec


class Tempo(msgspec.Struct, frozen=True, kw_only=True):
    """Delays and rates of the demo web. The default suits a person who watches; tests use `QUICK`."""

    latency_s: float = 0.15
    """Mean time to the first byte, on the slow site."""
    rate_bytes_per_s: float = 48_000
    """The sending rate of the rate-limited site."""
    crawl_delay_s: float = 0.2
    """In robots.txt of the site with rules."""
    retry_after_s: int = 1
    """In responses 503 and 429 of the failing site; whole seconds, as the header requires."""
    stall_s: float = 4.0
    """How long a stalled response sends nothing before the connection is reset."""


QUICK = Tempo(latency_s=0.005, rate_bytes_per_s=2_000_000, crawl_delay_s=0.01, retry_after_s=0, stall_s=0.3)


class Place(NamedTuple):
    """A URL before ports are known: the name of a site, and path and query of the canonical URL."""

    site: str
    path: str

    def url(self, origins: Mapping[str, str]) -> str:
        return origins[self.site] + self.path


class LinkKind(enum.StrEnum):
    """The element that carries a link, or the header."""

    A = "a"
    AREA = "area"
    FRAME = "frame"
    IFRAME = "iframe"
    REFRESH = "refresh"
    CANONICAL = "canonical"
    ALTERNATE = "alternate"
    STYLESHEET = "stylesheet"
    IMAGE = "image"
    REDIRECT = "redirect"


FOLLOWED_KINDS = frozenset(LinkKind) - {LinkKind.IMAGE}
"""What `headway.pages` reports as links. A crawl drops those of types that it does not accept."""


class Link(msgspec.Struct, frozen=True):
    to: Place | None
    """The target in the demo web; None if it is elsewhere, or not a page (`mailto:`)."""
    text: str = ""
    kind: LinkKind = LinkKind.A
    href: str = ""
    """The reference in the page; empty for the default spelling. `{port}` is replaced by the site's port."""
    nofollow: bool = False


class Layout(enum.StrEnum):
    """The kind of body."""

    ARTICLE = "article"
    FRAMESET = "frameset"
    TEXT = "text"
    PDF = "pdf"
    POSTSCRIPT = "postscript"
    PNG = "png"
    CSS = "css"
    ZIP = "zip"
    ROBOTS = "robots"
    SITEMAP = "sitemap"
    SITEMAP_INDEX = "sitemap-index"
    FEED = "feed"
    REDIRECT = "redirect"


HTML_LAYOUTS = frozenset({Layout.ARTICLE, Layout.FRAMESET})
LINKING_LAYOUTS = HTML_LAYOUTS | {Layout.REDIRECT}
"""Layouts in which every crawler finds links. Sitemaps and feeds are read only if the scope says so."""
DOCUMENT_LAYOUTS = HTML_LAYOUTS | {Layout.TEXT, Layout.PDF, Layout.POSTSCRIPT}
MEDIA_TYPES: Mapping[Layout, str] = {
    Layout.ARTICLE: "text/html",
    Layout.FRAMESET: "text/html",
    Layout.TEXT: "text/plain",
    Layout.PDF: "application/pdf",
    Layout.POSTSCRIPT: "application/postscript",
    Layout.PNG: "image/png",
    Layout.CSS: "text/css",
    Layout.ZIP: "application/zip",
    Layout.ROBOTS: "text/plain",
    Layout.SITEMAP: "application/xml",
    Layout.SITEMAP_INDEX: "application/xml",
    Layout.FEED: "application/atom+xml",
    Layout.REDIRECT: "text/html",
}


class Answer(enum.StrEnum):
    """The response to one request. A page has one for each request; the last is repeated."""

    AS_DESIGNED = "as-designed"
    ERROR = "error"  # 500
    BUSY = "busy"  # 503 with Retry-After
    LIMITED = "limited"  # 429 with Retry-After
    RESET = "reset"  # connection reset instead of a response
    STALL = "stall"  # no byte for the site's stall time, then a reset
    STALL_MIDWAY = "stall-midway"  # half the body, then silence, then a reset
    CUT = "cut"  # half of the body that Content-Length states, then a normal close
    GARBAGE = "garbage"  # bytes that are not HTTP


STATUS_OF: Mapping[Answer, int] = {Answer.ERROR: 500, Answer.BUSY: 503, Answer.LIMITED: 429}


class Framing(enum.StrEnum):
    """How the end of the body is marked."""

    LENGTH = "length"
    CHUNKED = "chunked"
    CLOSE = "close"


class CharsetHint(enum.StrEnum):
    """Where the charset is stated."""

    HEADER = "header"
    META = "meta"
    BOM = "bom"


class PageDesign(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    title: str
    layout: Layout = Layout.ARTICLE
    size_bytes: int = 0
    """The exact size of the content, before content coding."""
    status: int = 200
    links: tuple[Link, ...] = ()
    """A redirect has one link: its target."""
    answers: tuple[Answer, ...] = (Answer.AS_DESIGNED,)
    media_type: str = ""
    """Empty: that of the layout."""
    charset: str = "utf-8"
    charset_hint: CharsetHint = CharsetHint.HEADER
    coding: str = ""
    """gzip, br, zstd or deflate, for clients that accept it."""
    framing: Framing = Framing.LENGTH
    base_href: str = ""
    meta_robots: str = ""
    x_robots_tag: str = ""
    copy_of: str = ""
    """The path of the page on the same site whose content this page repeats."""
    latency_s: float = 0.0
    depth: int = 0
    """Links from the site's home page. In any order of crawling the page is first found at this depth."""

    @property
    def content_type(self) -> str:
        """The media type alone."""
        return self.media_type or MEDIA_TYPES[self.layout]

    def answer_to(self, earlier_requests: int) -> Answer:
        return self.answers[min(earlier_requests, len(self.answers) - 1)]


FIRST_YEAR, FIRST_MONTH = 2026, 11
_MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)
_PATH = re.compile(r"/calendar/(?P<year>[1-9]\d{3,})/(?P<month>0[1-9]|1[0-2])/(?:(?P<day>[0-3]\d)\.html)?")


def first_month(site: str) -> Link:
    return _month_link(site, FIRST_YEAR, FIRST_MONTH)


def calendar_page(site: str, path: str) -> PageDesign | None:
    """The page of a month or a day; None if the calendar has none at this path."""
    match = _PATH.fullmatch(path)
    if match is None:
        return None
    year, month = int(match["year"]), int(match["month"])
    months_on = (year - FIRST_YEAR) * 12 + month - FIRST_MONTH
    if months_on < 0:
        return None
    days = _days_with_events(year, month)
    up = _month_link(site, year, month)
    if match["day"] is not None:
        if int(match["day"]) not in days:
            return None
        return _page(path, f"{int(match['day'])} {up.text}", months_on + 2, (up,))
    links = [_month_link(site, *_step(year, month, 1))]
    if months_on > 0:
        links.append(_month_link(site, *_step(year, month, -1)))
    links += [Link(Place(site, f"{up_path(year, month)}{day:02}.html"), f"{day} {up.text}") for day in days]
    return _page(path, up.text, months_on + 1, tuple(links))


def up_path(year: int, month: int) -> str:
    return f"/calendar/{year}/{month:02}/"


def _page(path: str, title: str, depth: int, links: tuple[Link, ...]) -> PageDesign:
    size_bytes = 2_500 + zlib.crc32(path.encode()) % 3_000
    return PageDesign(
        path=path, title=title, layout=Layout.ARTICLE, size_bytes=size_bytes, links=links, depth=depth
    )


def _month_link(site: str, year: int, month: int) -> Link:
    return Link(Place(site, up_path(year, month)), f"{_MONTHS[month - 1]} {year}")


def _step(year: int, month: int, by: int) -> tuple[int, int]:
    months = year * 12 + month - 1 + by
    return months // 12, months % 12 + 1


def _days_with_events(year: int, month: int) -> tuple[int, int]:
    seed = zlib.crc32(f"{year}-{month}".encode())
    return 1 + seed % 14, 15 + (seed >> 8) % 14


class RobotsGroup(msgspec.Struct, frozen=True):
    """A group of a robots.txt. A pattern may contain `*` and end in `$`."""

    agents: tuple[str, ...]
    disallow: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()
    crawl_delay_s: float | None = None

    def allows(self, path: str) -> bool:
        """The longest matching pattern decides; Allow wins a tie (RFC 9309)."""
        matches = [(len(p), True) for p in self.allow if _matches(p, path)]
        matches += [(len(p), False) for p in self.disallow if _matches(p, path)]
        return max(matches, default=(0, True))[1]


class SiteDesign(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    title: str
    character: str
    """Its features in a few words, for a table."""
    seed: str
    pages: Mapping[str, PageDesign]
    """By path and query, including robots.txt, sitemaps and feeds."""
    robots: tuple[RobotsGroup, ...] = ()
    sitemaps: tuple[str, ...] = ()
    """Paths of sitemaps listed in robots.txt."""
    sitemap_pages: tuple[str, ...] = ()
    """Paths of pages listed in the sitemaps."""
    rate_bytes_per_s: float | None = None
    """The sending rate of all connections together; None: no limit."""
    retry_after_s: int = 1
    stall_s: float = 4.0
    validators: bool = False
    """Whether it sends ETag and Last-Modified, and 304 to clients that have the page."""
    has_calendar: bool = False

    @property
    def home(self) -> Place:
        return Place(self.name, "/")

    @property
    def total_bytes(self) -> int:
        """The size of its documents, including those that robots.txt forbids, without the calendar."""
        return sum(page.size_bytes for page in self.documents())

    def documents(self) -> list[PageDesign]:
        """Pages for people: no redirects or errors, no images, no files for machines."""
        return [p for p in self.pages.values() if p.layout in DOCUMENT_LAYOUTS and p.status == 200]

    def find(self, path: str) -> PageDesign | None:
        page = self.pages.get(path)
        return calendar_page(self.name, path) if page is None and self.has_calendar else page

    def group_for(self, user_agent: str) -> RobotsGroup | None:
        """The group for this product token, or else the one for all."""
        token = re.split(r"[/\s]", user_agent, maxsplit=1)[0].lower()
        named = {agent.lower(): group for group in self.robots for agent in group.agents}
        return named.get(token, named.get("*"))

    def allows(self, user_agent: str, path: str) -> bool:
        group = self.group_for(user_agent)
        return group is None or path == "/robots.txt" or group.allows(path)


def _matches(pattern: str, path: str) -> bool:
    body, end = (pattern[:-1], r"\Z") if pattern.endswith("$") else (pattern, "")
    return re.match(".*".join(map(re.escape, body.split("*"))) + end, path, re.DOTALL) is not None
