"""A page of the demo web on paper: where it is, how it answers, what it links to. No port is known yet."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import NamedTuple

import msgspec


class Place(NamedTuple):
    """A URL before there are ports: a site's name, and path and query as the canonical URL spells them."""

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
"""What `parse` reports as links; of these a crawl drops the ones whose type it does not want."""


class Link(msgspec.Struct, frozen=True):
    to: Place | None
    """Where it leads in the demo web; None when it leads out of it, or nowhere (`mailto:`)."""
    text: str = ""
    kind: LinkKind = LinkKind.A
    href: str = ""
    """As written in the page; empty for the plain spelling. `{port}` becomes the site's port."""
    nofollow: bool = False


class Layout(enum.StrEnum):
    """What the body is made as."""

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
"""What a crawler finds pages by; sitemaps and feeds are read by those who ask for them."""
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
    """What happens to one request. A page has a list of them: one for each request, the last one for ever."""

    AS_DESIGNED = "as-designed"
    ERROR = "error"  # 500
    BUSY = "busy"  # 503 with Retry-After
    LIMITED = "limited"  # 429 with Retry-After
    RESET = "reset"  # connection reset instead of an answer
    STALL = "stall"  # no byte until the site's stall time is over, then a reset
    STALL_MIDWAY = "stall-midway"  # half the body, then silence, then a reset
    CUT = "cut"  # half the body that Content-Length promises, then an orderly close
    GARBAGE = "garbage"  # bytes that are no HTTP


STATUS_OF: Mapping[Answer, int] = {Answer.ERROR: 500, Answer.BUSY: 503, Answer.LIMITED: 429}


class Framing(enum.StrEnum):
    """How the client learns where the body ends."""

    LENGTH = "length"
    CHUNKED = "chunked"
    CLOSE = "close"


class CharsetHint(enum.StrEnum):
    """Where the charset is named."""

    HEADER = "header"
    META = "meta"
    BOM = "bom"


class PageDesign(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    title: str
    layout: Layout = Layout.ARTICLE
    size_bytes: int = 0
    """Of the content, exactly, before content coding."""
    status: int = 200
    links: tuple[Link, ...] = ()
    """For a redirect the only one is its target."""
    answers: tuple[Answer, ...] = (Answer.AS_DESIGNED,)
    media_type: str = ""
    """Empty: that of the layout."""
    charset: str = "utf-8"
    charset_hint: CharsetHint = CharsetHint.HEADER
    coding: str = ""
    """gzip, br, zstd or deflate, for those who accept it."""
    framing: Framing = Framing.LENGTH
    base_href: str = ""
    meta_robots: str = ""
    x_robots_tag: str = ""
    copy_of: str = ""
    """Path of the page on the same site whose bytes this one has."""
    latency_s: float = 0.0
    depth: int = 0
    """Links from the site's home page; every order of crawling finds the page first at this depth."""

    @property
    def content_type(self) -> str:
        """The media type alone."""
        return self.media_type or MEDIA_TYPES[self.layout]

    def answer_to(self, earlier_requests: int) -> Answer:
        return self.answers[min(earlier_requests, len(self.answers) - 1)]
