"""The demo web on paper: a handful of sites, each with a character of its own, all from one seed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import msgspec

from headway.errors import HeadwayError
from headway.testing.demoweb import odd_sites, plain_sites
from headway.testing.demoweb.page import Link, PageDesign, Place
from headway.testing.demoweb.site import SiteDesign
from headway.testing.demoweb.tempo import Tempo
from headway.testing.demoweb.truth import Expected, Scope, expect

_Maker = Callable[[str, str, float, Tempo], SiteDesign]
_MAKERS: Mapping[str, _Maker] = {
    "library": plain_sites.library,
    "gazette": plain_sites.gazette,
    "museum": odd_sites.museum,
    "harbour": plain_sites.harbour,
    "observatory": plain_sites.observatory,
    "workshop": odd_sites.workshop,
    "almanac": plain_sites.almanac,
    "registry": odd_sites.registry,
    "plain": plain_sites.plain,
    "closed": plain_sites.closed,
}
DEFAULT_ROSTER = (
    *("library", "gazette", "museum", "harbour"),
    *("observatory", "workshop", "almanac", "registry"),
)


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """All that a design follows from: enough to make the same one in another process."""

    seed: int
    scale: float = 1.0
    roster: tuple[str, ...] = DEFAULT_ROSTER
    tempo: Tempo = Tempo()


class WebDesign(msgspec.Struct, frozen=True):
    recipe: Recipe
    sites: Mapping[str, SiteDesign]

    @property
    def total_bytes(self) -> int:
        return sum(site.total_bytes for site in self.sites.values())

    def page(self, place: Place) -> PageDesign | None:
        site = self.sites.get(place.site)
        return None if site is None else site.find(place.path)

    def expected(self, scope: Scope | None = None) -> dict[Place, Expected]:
        """What a crawl within this scope asks for, and how each request ends."""
        return expect(self.sites, scope or Scope())

    def reachable(self, scope: Scope | None = None) -> set[Place]:
        """What a crawl within this scope asks for."""
        return set(self.expected(scope))


def design_web(
    seed: int,
    scale: float = 1.0,
    *,
    roster: Sequence[str] = DEFAULT_ROSTER,
    tempo: Tempo | None = None,
) -> WebDesign:
    """A web of the sites in `roster`; one that is named again gets a number, and other pages.

    At scale 1 it has some 400 pages in 6 MB. The special pages are always there: a smaller scale leaves
    out ordinary ones.
    """
    return design_from(Recipe(seed=seed, scale=scale, roster=tuple(roster), tempo=tempo or Tempo()))


def design_from(recipe: Recipe) -> WebDesign:
    if unknown := sorted(set(recipe.roster) - set(_MAKERS)):
        raise HeadwayError(f"no demo site is called {unknown[0]!r}; there are {', '.join(_MAKERS)}")
    if not 0 < recipe.scale <= 1_000:
        raise HeadwayError(f"the scale of the demo web must be above 0 and at most 1000, not {recipe.scale}")
    names = _names(recipe.roster)
    sites = {}
    for number, (name, kind) in enumerate(zip(names, recipe.roster, strict=True)):
        others = names[number + 1 :] + names[:number]
        make = _MAKERS[kind]
        if kind == "registry":
            make = partial(odd_sites.registry, neighbour=others[0] if others else None)
        site = make(str(recipe.seed), name, recipe.scale, recipe.tempo)
        sites[name] = _with_neighbours(site, others[:2])
    return WebDesign(recipe, sites)


def _names(roster: Sequence[str]) -> list[str]:
    """The first of its kind goes by its plain name."""
    seen: Counter[str] = Counter()
    names = []
    for kind in roster:
        seen[kind] += 1
        names.append(kind if seen[kind] == 1 else f"{kind}-{seen[kind]}")
    return names


def _with_neighbours(site: SiteDesign, others: Sequence[str]) -> SiteDesign:
    """Home pages link to the next two sites, so that the web is one and a crawl must mind its scope."""
    home = site.pages["/"]
    links = tuple(
        Link(Place(other, path), f"{text} {other}")
        for other in others
        for path, text in (("/", "Our neighbour"), ("/about.html", "About our neighbour"))
    )
    # A home page has room to spare only if its size grows with its links.
    grown = {
        path: msgspec.structs.replace(
            page, links=page.links + links, size_bytes=page.size_bytes + 200 * len(links)
        )
        for path, page in site.pages.items()
        if page is home or page.copy_of == "/"
    }
    return msgspec.structs.replace(site, pages={**site.pages, **grown})
