"""A web made up from a seed, with the traits that decide how a crawl goes (castillo2004 figure 3).

Site sizes follow a power law: most sites are tiny, most pages are on few sites. Every page hangs below its
site's home page in a tree that is shallow even for large sites; further links stay mostly within the site,
near the page or towards the home page, and those that leave it go to popular sites. Many home pages have
no link from elsewhere: a crawl knows them only because it begins with all of them.
"""

from __future__ import annotations

import re

import msgspec
import numpy as np
from numpy.typing import NDArray

from headway.errors import JobError
from headway.sim.web import Numbers, Web, draw_sizes

Longs = NDArray[np.int64]

_CHUNK_PAGES = 400_000
_MAX_OUT_LINKS = 300
_SHARES = frozenset({"links", "locality", "upward", "home", "attraction"})


class SyntheticSpec(msgspec.Struct, frozen=True):
    pages: int = 100_000
    sites: int = 1_430
    """castillo2004 has 3.5 million pages on 50,000 sites: seventy pages a site."""
    max_site_pages: int = 25_000
    links: float = 12.0
    """Mean links of a page, before those that are there twice are counted once."""
    locality: float = 0.85
    """Share of the links that stay within the site, those of the tree not counted."""
    upward: float = 0.4
    """Share of those that lead towards the home page; the others lead to neighbours."""
    home: float = 0.6
    """Share of the links from other sites that lead to a home page."""
    attraction: float = 0.5
    """How links from other sites grow with a site's size: its power. Two real graphs have 0.2 and 0.7."""
    seed: int = 0

    @classmethod
    def parse(cls, text: str) -> SyntheticSpec:
        """Read "synthetic", or "synthetic:pages=100000,sites=1500,seed=3"."""
        _, _, body = text.partition(":")
        fields: dict[str, float | int] = {}
        for part in filter(None, (part.strip() for part in body.split(","))):
            key, _, value = part.partition("=")
            key = key.strip().replace("-", "_")
            if key not in cls.__struct_fields__:
                raise JobError(f"{text!r}: {key!r} is none of {', '.join(cls.__struct_fields__)}")
            if not re.fullmatch(r"\s*\d+(\.\d+)?\s*", value):
                raise JobError(f"{text!r}: {key} must be a number, not {value!r}")
            fields[key] = float(value) if key in _SHARES else int(float(value))
        if "pages" in fields and "sites" not in fields:
            fields["sites"] = max(1, round(fields["pages"] / 70))
        return cls(**fields)  # type: ignore[arg-type]

    def check(self) -> None:
        if not 1 <= self.sites <= self.pages:
            raise JobError(f"{self.pages} pages cannot be on {self.sites} sites: each needs its home page")
        if self.pages > self.sites * self.max_site_pages:
            raise JobError(f"{self.sites} sites of at most {self.max_site_pages} hold no {self.pages} pages")
        if self.pages >= 2**31:
            raise JobError(f"{self.pages} pages are more than can be numbered")
        if not 1.0 <= self.links <= _MAX_OUT_LINKS:
            raise JobError(f"{self.links} links a page cannot be made; 1 to {_MAX_OUT_LINKS} can")
        for name in ("locality", "upward", "home"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise JobError(f"{name} is a share from 0 to 1, not {getattr(self, name)}")


def make_web(spec: SyntheticSpec) -> Web:
    """The same spec always makes the same web."""
    spec.check()
    chance = np.random.default_rng([spec.seed, 0x3E])
    sizes = site_sizes(spec, chance)
    first_page = np.concatenate(([0], np.cumsum(sizes)))[:-1]
    site_of = np.repeat(np.arange(spec.sites, dtype=np.int32), sizes)
    maker = _Links(spec, sizes, first_page, site_of, chance)
    starts, targets = maker.rows()
    width = len(str(spec.sites))
    return Web(
        f"synthetic, {spec.pages} pages on {spec.sites} sites, seed {spec.seed}",
        starts,
        targets,
        site_of,
        draw_sizes(spec.pages, spec.seed),
        [f"s{number:0{width}}.test" for number in range(spec.sites)],
        first_page.astype(np.int32),
    )


def site_sizes(spec: SyntheticSpec, chance: np.random.Generator) -> Longs:
    """Pages of each site: a power law from 1 to the largest allowed, its exponent such that they add up."""
    strata = (np.arange(spec.sites) + chance.random(spec.sites)) / spec.sites
    most = min(spec.max_site_pages, spec.pages - spec.sites + 1)

    def drawn(exponent: float) -> Longs:
        tail = 1.0 - strata * (1.0 - float(most) ** -exponent)
        sizes: Longs = np.clip(np.floor(tail ** (-1.0 / exponent)), 1, most).astype(np.int64)
        return sizes

    steep, flat = 20.0, -20.0
    for _ in range(80):
        middle = (steep + flat) / 2 or 1e-6
        steep, flat = (middle, flat) if drawn(middle).sum() <= spec.pages else (steep, middle)
    sizes = drawn(steep)
    missing = spec.pages - int(sizes.sum())
    while missing > 0:
        growing = np.flatnonzero(sizes < most)[-missing:]
        sizes[growing] += 1
        missing -= len(growing)
    chance.shuffle(sizes)
    return sizes


class _Links:
    def __init__(
        self,
        spec: SyntheticSpec,
        sizes: Longs,
        first_page: Longs,
        site_of: Numbers,
        chance: np.random.Generator,
    ) -> None:
        self._spec = spec
        self._sizes = sizes
        self._first_page = first_page
        self._site_of = site_of
        self._chance = chance
        attraction = sizes**spec.attraction * np.exp(chance.normal(0.0, 2.0, spec.sites))
        self._popularity = np.cumsum(attraction) / attraction.sum()

    def rows(self) -> tuple[Longs, Numbers]:
        pages = self._spec.pages
        parents, children = self._tree()
        counts = np.zeros(pages + 1, dtype=np.int64)
        pieces = []
        for begin in range(0, pages, _CHUNK_PAGES):
            end = min(begin + _CHUNK_PAGES, pages)
            low, high = np.searchsorted(parents, [begin, end])
            sources, targets = self._further(begin, end)
            sources = np.concatenate((sources, parents[low:high]))
            targets = np.concatenate((targets, children[low:high]))
            links = (sources * pages + targets)[sources != targets]
            links.sort()
            links = links[np.diff(links, prepend=-1) != 0]
            sources, targets = np.divmod(links, pages)
            counts[begin + 1 : end + 1] = np.bincount(sources - begin, minlength=end - begin)
            pieces.append(targets.astype(np.int32))
        return np.cumsum(counts), np.concatenate(pieces)

    def _tree(self) -> tuple[Longs, Longs]:
        """For every page but the home pages a parent nearer to its home page: links sorted by parent."""
        first = self._first_page[self._site_of]
        place = np.arange(self._spec.pages) - first
        children = np.flatnonzero(place > 0)
        parents = first[children] + (place[children] * self._chance.random(len(children)) ** 2).astype(
            np.int64
        )
        order = np.argsort(parents, kind="stable")
        return parents[order], children[order]

    def _further(self, begin: int, end: int) -> tuple[Longs, Longs]:
        """Links beyond the tree, of the pages from `begin` to `end`."""
        spec, chance = self._spec, self._chance
        mean = max(0.0, spec.links - 1.0)
        degree = np.minimum(chance.lognormal(np.log(mean or 1.0) - 0.5, 1.0, end - begin), _MAX_OUT_LINKS)
        count = (
            (degree + chance.random(end - begin)).astype(np.int64)
            if mean
            else np.zeros(end - begin, np.int64)
        )
        sources = np.repeat(np.arange(begin, end), count)
        total = len(sources)
        site = self._site_of[sources].astype(np.int64)
        size, first = self._sizes[site], self._first_page[site]
        kind = chance.random(total)
        upwards = first + (size * np.square(np.square(chance.random(total)))).astype(np.int64)
        step = np.rint(chance.laplace(0.0, 8.0, total)).astype(np.int64)
        beside = first + np.clip(sources - first + step, 0, size - 1)
        targets = np.where(kind < spec.upward * spec.locality, upwards, beside)
        leaves = np.flatnonzero(kind >= spec.locality)
        other = np.searchsorted(self._popularity, chance.random(len(leaves)), side="right")
        other = np.minimum(other, spec.sites - 1)
        deep = (self._sizes[other] * chance.random(len(leaves)) ** 6).astype(np.int64)
        is_home = chance.random(len(leaves)) < spec.home
        targets[leaves] = self._first_page[other] + np.where(is_home, 0, deep)
        return sources, targets
