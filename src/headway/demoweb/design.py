"""The design of the whole demo web, made from one seed, and what a crawl of it should find."""

from __future__ import annotations

import posixpath
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import msgspec

from headway.demoweb import site_kinds
from headway.demoweb.model import (
    FOLLOWED_KINDS,
    LINKING_LAYOUTS,
    STATUS_OF,
    Answer,
    Layout,
    Link,
    LinkKind,
    PageDesign,
    Place,
    SiteDesign,
    Tempo,
)
from headway.errors import HeadwayError

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
    """The rules of a crawl that decide which pages it requests."""

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
    """Use the sitemaps' pages as seeds."""
    kinds: frozenset[LinkKind] = FOLLOWED_KINDS
    types: frozenset[str] | None = WANTED_TYPES
    """URLs with a suffix of another type are not requested. None: every type."""
    max_depth: int = 12
    """Without a limit the calendar has no end."""
    redirects_cost_depth: bool = True
    max_url_chars: int | None = None
    max_attempts: int = 3


class Expected(msgspec.Struct, frozen=True):
    """The result of requesting a page, after as many attempts as the scope allows."""

    depth: int
    status: int
    """0 if no response is complete."""
    content_type: str = ""
    content_bytes: int = 0
    noindex: bool = False
    location: Place | None = None

    @property
    def kept(self) -> bool:
        """Whether the page is to be archived: found, allowed, and not a redirect."""
        return self.status == 200 and not self.noindex


def expect(sites: Mapping[str, SiteDesign], scope: Scope) -> dict[Place, Expected]:
    """Every place that a crawl requests, with the result, in breadth-first order."""
    in_scope = {n: s for n, s in sites.items() if scope.sites is None or n in scope.sites}
    waiting: deque[tuple[Place, int]] = deque((place, 0) for place in _seeds(in_scope, scope))
    expected: dict[Place, Expected] = {}
    while waiting:
        place, depth = waiting.popleft()
        if place in expected or not _is_requested(in_scope, place, depth, scope):
            continue
        expected[place], links = _visit(in_scope[place.site], place.path, depth, scope)
        for link in links:
            if link.to is not None and _follows(link, scope):
                costs = link.kind is not LinkKind.REDIRECT or scope.redirects_cost_depth
                # A link that costs no depth belongs to this level, so it goes before the next one.
                waiting.append((link.to, depth + 1)) if costs else waiting.appendleft((link.to, depth))
    return expected


def _seeds(sites: Mapping[str, SiteDesign], scope: Scope) -> Iterable[Place]:
    yield from (site.home for site in sites.values()) if scope.seeds is None else scope.seeds
    if scope.follow_sitemaps:
        for site in sites.values():
            yield from (Place(site.name, path) for path in site.sitemap_pages)


def _is_requested(sites: Mapping[str, SiteDesign], place: Place, depth: int, scope: Scope) -> bool:
    site = sites.get(place.site)
    if site is None or depth > scope.max_depth:
        return False
    if not scope.follow_queries and "?" in place.path:
        return False
    # 22: the length of the longest origin. No design has a URL so close to a limit.
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
    """The tags for all robots. A header with a robot's name is for another one."""
    return set() if ":" in text else {tag.strip().lower() for tag in text.split(",")}


_Maker = Callable[[str, str, float, Tempo], SiteDesign]
_MAKERS: Mapping[str, _Maker] = {
    "library": site_kinds.library,
    "gazette": site_kinds.gazette,
    "museum": site_kinds.museum,
    "harbour": site_kinds.harbour,
    "observatory": site_kinds.observatory,
    "workshop": site_kinds.workshop,
    "almanac": site_kinds.almanac,
    "registry": site_kinds.registry,
    "plain": site_kinds.plain,
    "closed": site_kinds.closed,
}
DEFAULT_ROSTER = (
    *("library", "gazette", "museum", "harbour"),
    *("observatory", "workshop", "almanac", "registry"),
)


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of a design, from which another process can make the same one."""

    seed: int
    scale: float = 1.0
    roster: tuple[str, ...] = DEFAULT_ROSTER
    tempo: Tempo = Tempo()


class WebDesign(msgspec.Struct, frozen=True):
    """The sites of a web, before they are served."""

    recipe: Recipe
    sites: Mapping[str, SiteDesign]

    @property
    def total_bytes(self) -> int:
        return sum(site.total_bytes for site in self.sites.values())

    def page(self, place: Place) -> PageDesign | None:
        site = self.sites.get(place.site)
        return None if site is None else site.find(place.path)

    def expected(self, scope: Scope | None = None) -> dict[Place, Expected]:
        """Each place that a crawl within this scope requests, and the result."""
        return expect(self.sites, scope or Scope())

    def reachable(self, scope: Scope | None = None) -> set[Place]:
        """The places that a crawl within this scope requests."""
        return set(self.expected(scope))


def design_web(
    seed: int,
    scale: float = 1.0,
    *,
    roster: Sequence[str] = DEFAULT_ROSTER,
    tempo: Tempo | None = None,
) -> WebDesign:
    """A web of the sites in `roster`. A site that is named again gets a number and other pages.

    At scale 1 it has about 400 pages in 6 MB. The special pages are always included; the scale changes the
    number of ordinary ones.
    """
    return design_from(Recipe(seed=seed, scale=scale, roster=tuple(roster), tempo=tempo or Tempo()))


def design_from(recipe: Recipe) -> WebDesign:
    if unknown := sorted(set(recipe.roster) - set(_MAKERS)):
        raise HeadwayError(f"no demo site is named {unknown[0]!r}; choose from {', '.join(_MAKERS)}")
    if not 0 < recipe.scale <= 1_000:
        raise HeadwayError(
            f"the scale of the demo web must be greater than 0 and at most 1000, not {recipe.scale}"
        )
    names = _names(recipe.roster)
    sites = {}
    for number, (name, kind) in enumerate(zip(names, recipe.roster, strict=True)):
        others = names[number + 1 :] + names[:number]
        make = _MAKERS[kind]
        if kind == "registry":
            make = partial(site_kinds.registry, neighbour=others[0] if others else None)
        site = make(str(recipe.seed), name, recipe.scale, recipe.tempo)
        sites[name] = _with_neighbours(site, others[:2])
    return WebDesign(recipe, sites)


def _names(roster: Sequence[str]) -> list[str]:
    """Names of sites: the first of a kind has the plain name, others get a number."""
    seen: Counter[str] = Counter()
    names = []
    for kind in roster:
        seen[kind] += 1
        names.append(kind if seen[kind] == 1 else f"{kind}-{seen[kind]}")
    return names


def _with_neighbours(site: SiteDesign, others: Sequence[str]) -> SiteDesign:
    """Link each home page to the next two sites, so that a crawl must observe its scope."""
    home = site.pages["/"]
    links = tuple(
        Link(Place(other, path), f"{text} {other}")
        for other in others
        for path, text in (("/", "Our neighbour"), ("/about.html", "About our neighbour"))
    )
    # The home page must grow with its links to have room for them.
    grown = {
        path: msgspec.structs.replace(
            page, links=page.links + links, size_bytes=page.size_bytes + 200 * len(links)
        )
        for path, page in site.pages.items()
        if page is home or page.copy_of == "/"
    }
    return msgspec.structs.replace(site, pages={**site.pages, **grown})
