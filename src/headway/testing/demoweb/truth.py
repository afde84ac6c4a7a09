"""What a crawl of the demo web should find: the answer key that tests hold a crawl against."""

from __future__ import annotations

import posixpath
from collections import deque
from collections.abc import Iterable, Mapping

import msgspec

from headway.testing.demoweb.page import (
    FOLLOWED_KINDS,
    LINKING_LAYOUTS,
    STATUS_OF,
    Answer,
    Layout,
    Link,
    LinkKind,
    Place,
)
from headway.testing.demoweb.site import SiteDesign

WANTED_TYPES = frozenset({"text/html", "application/pdf", "application/postscript", "text/plain"})
_TYPE_BY_SUFFIX = {
    ".css": "text/css",
    ".png": "image/png",
    ".zip": "application/zip",
    ".xml": "application/xml",
    ".gz": "application/gzip",
    ".pdf": "application/pdf",
    ".ps": "application/postscript",
    ".txt": "text/plain",
}


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """The rules of the crawl, as far as they decide which pages it asks for."""

    sites: frozenset[str] | None = None
    """Names of the sites in scope; None: all."""
    seeds: tuple[Place, ...] | None = None
    """None: the home pages of the sites in scope."""
    user_agent: str = "headway"
    respect_robots: bool = True
    respect_tags: bool = True
    """META robots and X-Robots-Tag."""
    follow_rel_nofollow: bool = True
    follow_queries: bool = True
    follow_sitemaps: bool = False
    """Take what the sitemaps list as found at depth 0."""
    kinds: frozenset[LinkKind] = FOLLOWED_KINDS
    types: frozenset[str] | None = WANTED_TYPES
    """A URL whose suffix promises another type is not asked for. None: every type."""
    max_depth: int = 12
    """Without it a calendar has no end."""
    redirects_cost_depth: bool = True
    max_url_chars: int | None = None
    max_attempts: int = 3


class Expected(msgspec.Struct, frozen=True):
    """How asking for a page ends, after as many attempts as the scope allows."""

    depth: int
    status: int
    """0 when there is never a whole answer."""
    content_type: str = ""
    content_bytes: int = 0
    noindex: bool = False
    location: Place | None = None

    @property
    def kept(self) -> bool:
        """A page for the collection: there, allowed, and not a redirect."""
        return self.status == 200 and not self.noindex


def expect(sites: Mapping[str, SiteDesign], scope: Scope) -> dict[Place, Expected]:
    """Every place that the crawl asks for, with how that ends, in breadth-first order."""
    in_scope = {n: s for n, s in sites.items() if scope.sites is None or n in scope.sites}
    waiting: deque[tuple[Place, int]] = deque((place, 0) for place in _seeds(in_scope, scope))
    expected: dict[Place, Expected] = {}
    while waiting:
        place, depth = waiting.popleft()
        if place in expected or not _is_asked_for(in_scope, place, depth, scope):
            continue
        expected[place], links = _visit(in_scope[place.site], place.path, depth, scope)
        for link in links:
            if link.to is not None and _follows(link, scope):
                costs = link.kind is not LinkKind.REDIRECT or scope.redirects_cost_depth
                # What costs nothing belongs to this level, so it goes before the next one.
                waiting.append((link.to, depth + 1)) if costs else waiting.appendleft((link.to, depth))
    return expected


def _seeds(sites: Mapping[str, SiteDesign], scope: Scope) -> Iterable[Place]:
    yield from (site.home for site in sites.values()) if scope.seeds is None else scope.seeds
    if scope.follow_sitemaps:
        for site in sites.values():
            yield from (Place(site.name, path) for path in site.sitemap_pages)


def _is_asked_for(sites: Mapping[str, SiteDesign], place: Place, depth: int, scope: Scope) -> bool:
    site = sites.get(place.site)
    if site is None or depth > scope.max_depth:
        return False
    if not scope.follow_queries and "?" in place.path:
        return False
    # The longest origin is assumed: no design has a URL that close to a limit.
    if scope.max_url_chars is not None and len(place.path) + 22 > scope.max_url_chars:
        return False
    if scope.types is not None and _suffix_type(place.path) not in {"", *scope.types}:
        return False
    return not scope.respect_robots or _robots_allow(site, scope.user_agent, place.path)


def _suffix_type(path: str) -> str:
    return _TYPE_BY_SUFFIX.get(posixpath.splitext(path.partition("?")[0])[1].lower(), "")


def _robots_allow(site: SiteDesign, user_agent: str, path: str) -> bool:
    robots = site.pages.get("/robots.txt")
    if robots is None:
        return True
    return robots.answers[-1] is Answer.AS_DESIGNED and site.allows(user_agent, path)


def _follows(link: Link, scope: Scope) -> bool:
    return link.kind in scope.kinds and (scope.follow_rel_nofollow or not link.nofollow)


def _visit(site: SiteDesign, path: str, depth: int, scope: Scope) -> tuple[Expected, tuple[Link, ...]]:
    page = site.find(path)
    if page is None:
        return Expected(depth, 404, "text/html"), ()
    if Answer.AS_DESIGNED not in page.answers[: scope.max_attempts]:
        return Expected(depth, STATUS_OF.get(page.answer_to(scope.max_attempts - 1), 0)), ()
    tags = _tags_for_all(page.meta_robots) | _tags_for_all(page.x_robots_tag)
    tags = tags if scope.respect_tags else set()
    expected = Expected(
        depth,
        page.status,
        page.content_type.lower(),
        page.size_bytes,
        noindex=not tags.isdisjoint({"noindex", "none"}),
        location=page.links[0].to if page.layout is Layout.REDIRECT else None,
    )
    leads_on = page.layout in LINKING_LAYOUTS and tags.isdisjoint({"nofollow", "none"})
    return expected, page.links if leads_on else ()


def _tags_for_all(text: str) -> set[str]:
    """A header that begins with another robot's name does not concern us."""
    return set() if ":" in text else {tag.strip().lower() for tag in text.split(",")}
