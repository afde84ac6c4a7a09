"""A web as arrays: pages, sites, sizes, links in rows; servers and their faults; and webs made from a
seed."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from headway.errors import HeadwayError, JobError
from headway.model.page import Kind, Outcome, Page, PageKey, Site

ERROR_PAGE_BYTES = 400


@dataclass(frozen=True, slots=True)
class Trouble:
    """Faults of a simulated web: pages that do not exist, pages that fail at first, sites that are down."""

    is_missing: NDArray[np.bool_]
    """By page: answered with 404."""
    fails_first: NDArray[np.int8]
    """By page: how many attempts get a server error before one succeeds."""
    is_down: NDArray[np.bool_]
    """By site: no connection is ever accepted."""

    @classmethod
    def drawn(
        cls, pages: int, sites: int, seed: int, *, missing: float = 0.0, flaky: float = 0.0, down: float = 0.0
    ) -> Trouble:
        """Draw faults: each page or site has one with the given probability; so has each further attempt."""
        for name, share in (("missing", missing), ("flaky", flaky), ("down", down)):
            if not 0.0 <= share < 1.0:
                raise HeadwayError(f"a share of {share} {name} is not between 0 and 1")
        chance = np.random.default_rng([seed, 0x7B])
        is_missing = chance.random(pages) < missing
        fails = np.minimum(chance.geometric(1.0 - flaky, pages) - 1, 100).astype(np.int8)
        return cls(is_missing, fails, chance.random(sites) < down)

    @property
    def is_only_missing(self) -> bool:
        """No page is ever retried."""
        return not self.fails_first.any() and not self.is_down.any()

    def outcome(self, page: int, site: int, attempt: int, size_bytes: int) -> Outcome:
        """The outcome of an attempt (the first is 0), without its duration."""
        if self.is_down[site]:
            return Outcome(Kind.CONNECT, keep_alive=False)
        if self.is_missing[page]:
            return Outcome(Kind.MISSING, 404, ERROR_PAGE_BYTES)
        if attempt < self.fails_first[page]:
            return Outcome(Kind.SERVER_ERROR, 500, ERROR_PAGE_BYTES)
        return Outcome(Kind.FETCHED, 200, size_bytes, content_bytes=size_bytes)


Numbers = NDArray[np.int32]
Floats = NDArray[np.float64]

TYPICAL_PAGE_BYTES = 10_000
"""The median page; log-normal sizes around it have castillo2004's mean of about 24 KB."""
PAGE_SIZE_SPREAD = 1.32


@dataclass(frozen=True, slots=True)
class Web:
    """Page i is on `sites[site_of[i]]` and links to `targets[starts[i]:starts[i + 1]]`."""

    name: str
    starts: NDArray[np.int64]
    targets: Numbers
    site_of: Numbers
    size_bytes: NDArray[np.int64]
    sites: Sequence[str]
    seeds: Numbers
    paths: Sequence[str] | None = None

    @property
    def pages(self) -> int:
        return len(self.site_of)

    @property
    def links(self) -> int:
        return len(self.targets)

    def links_of(self, page: int) -> list[int]:
        row: list[int] = self.targets[self.starts[page] : self.starts[page + 1]].tolist()
        return row

    def page(self, number: int, depth: int) -> Page:
        """The page for the engine; its number is its key."""
        return Page(self.url(number), self.site(int(self.site_of[number])), PageKey(number), depth)

    def url(self, number: int) -> str:
        path = self.paths[number] if self.paths is not None and self.paths[number] else f"/{number}"
        return f"{self.site(int(self.site_of[number]))}{path}" if path.startswith("/") else path

    def site(self, number: int) -> Site:
        name = self.sites[number]
        return Site(name if "://" in name else f"http://{name}")

    def site_sizes(self) -> NDArray[np.int64]:
        return np.bincount(self.site_of, minlength=len(self.sites))

    def only(self, wanted: Sequence[str]) -> Web:
        """The part of the web on the named sites, with the links within it."""
        names = {name: number for number, name in enumerate(self.sites)}
        for name in wanted:
            if name not in names:
                raise HeadwayError(f"the web {self.name} has no site {name!r}")
        keep = np.isin(self.site_of, [names[name] for name in wanted])
        number = np.where(keep, np.cumsum(keep) - 1, -1)
        sources = np.repeat(np.arange(self.pages), np.diff(self.starts))
        within = keep[sources] & keep[self.targets]
        starts = np.zeros(int(keep.sum()) + 1, dtype=np.int64)
        np.cumsum(np.bincount(number[sources[within]], minlength=len(starts) - 1), out=starts[1:])
        sites, site_of = np.unique(self.site_of[keep], return_inverse=True)
        return Web(
            self.name,
            starts,
            number[self.targets[within]].astype(np.int32),
            site_of.astype(np.int32),
            self.size_bytes[keep],
            [self.sites[old] for old in sites],
            number[self.seeds[keep[self.seeds]]].astype(np.int32),
            None if self.paths is None else [self.paths[old] for old in np.flatnonzero(keep).tolist()],
        )

    def without_links(self, begin_with: Numbers) -> Web:
        """The same pages as one batch: the named ones are known from the start, and no links are found."""
        return Web(
            self.name,
            np.zeros(self.pages + 1, dtype=np.int64),
            np.zeros(0, dtype=np.int32),
            self.site_of,
            self.size_bytes,
            self.sites,
            np.asarray(begin_with, dtype=np.int32),
            self.paths,
        )


class Answering(NamedTuple):
    """How a server handles one request."""

    connect_s: float
    """To open a connection, if none is kept."""
    first_byte_s: float
    """From the request to the first byte of the answer."""
    rate_bytes_per_s: float
    turnaround_s: float = 0.0
    """Our own processing before the request."""


class ServerModel(Protocol):
    """The servers of a web. A model that draws is asked once for each request, in the order of the
    requests."""

    def __len__(self) -> int: ...

    def answering(self, now: float, site: int) -> Answering: ...


@dataclass(frozen=True, slots=True)
class Servers:
    """How each site answers: time to open a connection, time from request to first byte, and the rate."""

    connect_s: Floats
    answer_s: Floats
    rate_bytes_per_s: Floats

    def __len__(self) -> int:
        return len(self.rate_bytes_per_s)

    def answering(self, now: float, site: int) -> Answering:
        return Answering(
            float(self.connect_s[site]), float(self.answer_s[site]), float(self.rate_bytes_per_s[site])
        )

    def only(self, sites: NDArray[np.int64]) -> Servers:
        return Servers(self.connect_s[sites], self.answer_s[sites], self.rate_bytes_per_s[sites])

    @classmethod
    def drawn(cls, count: int, seed: int, *, typical_rate_bytes_per_s: float = 150_000.0) -> Servers:
        """Log-normal by site: a median round trip of 135 ms (PlanetLab), two of them to connect, one and the
        server's own time to answer; rates as in a proxy log of 2020 for pages over 10 KB."""
        chance = np.random.default_rng([seed, 0x5E])
        round_trip_s = np.clip(0.135 * np.exp(chance.normal(0.0, 0.7, count)), 0.002, 5.0)
        thinking_s = np.clip(0.1 * np.exp(chance.normal(0.0, 1.0, count)), 0.001, 30.0)
        rate = typical_rate_bytes_per_s * np.exp(chance.normal(0.0, 0.9, count))
        return cls(2.0 * round_trip_s, round_trip_s + thinking_s, np.maximum(rate, 1.0))

    @classmethod
    def alike(
        cls, count: int, *, connect_s: float = 0.0, answer_s: float = 0.0, rate_bytes_per_s: float = 1e6
    ) -> Servers:
        if not (math.isfinite(rate_bytes_per_s) and rate_bytes_per_s > 0):
            raise HeadwayError(f"a server rate of {rate_bytes_per_s} bytes per second cannot be simulated")
        return cls(
            np.full(count, connect_s), np.full(count, answer_s), np.full(count, float(rate_bytes_per_s))
        )


def draw_sizes(count: int, seed: int) -> NDArray[np.int64]:
    """Log-normal page sizes, for webs without sizes."""
    chance = np.random.default_rng([seed, 0x51])
    spread = chance.normal(0.0, PAGE_SIZE_SPREAD, count)
    sizes: NDArray[np.int64] = np.clip(TYPICAL_PAGE_BYTES * np.exp(spread), 200, 50e6).astype(np.int64)
    return sizes


Longs = NDArray[np.int64]

_CHUNK_PAGES = 400_000
_MAX_OUT_LINKS = 300
_SHARES = frozenset({"links", "locality", "upward", "home", "attraction"})


class SyntheticSpec(msgspec.Struct, frozen=True):
    """A web made from a seed, with the features that decide how a crawl goes (castillo2004 figure 3).

    Site sizes follow a power law: most sites are tiny, most pages are on few sites. Every page is below its
    site's home page in a tree that is shallow even for large sites; further links stay mostly within the
    site, near the page or towards the home page, and links to other sites go to popular ones. Many home pages
    have no link from elsewhere: a crawl knows them only because it begins with all of them.
    """

    pages: int = 100_000
    sites: int = 1_430
    """castillo2004 has 3.5 million pages on 50,000 sites: seventy pages a site."""
    max_site_pages: int = 25_000
    links: float = 12.0
    """Mean links of a page, before duplicates are removed."""
    locality: float = 0.85
    """Share of the links that stay within the site, without those of the tree."""
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
        if self.sites < 1:
            raise JobError("a synthetic web needs at least one site")
        if self.sites > self.pages:
            raise JobError(f"{self.pages} pages are too few for {self.sites} sites: each needs its home page")
        if self.pages > self.sites * self.max_site_pages:
            raise JobError(f"{self.sites} sites of {self.max_site_pages} cannot hold {self.pages} pages")
        if self.pages >= 2**31:
            raise JobError(f"{self.pages} pages are too many: page numbers have 32 bits")
        if not 1.0 <= self.links <= _MAX_OUT_LINKS:
            raise JobError(f"{self.links} links per page are not possible; give 1 to {_MAX_OUT_LINKS}")
        for name in ("locality", "upward", "home"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise JobError(f"{name} must be between 0 and 1, not {getattr(self, name)}")


def make_web(spec: SyntheticSpec) -> Web:
    """The same spec always gives the same web."""
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


def make_sites(homes: Sequence[Sequence[str]], pages: Longs, page_bytes: Floats, seed: int) -> Web:
    """A web of given sites: site i begins with the URLs `homes[i]`, has `pages[i]` pages (including those) of
    `page_bytes[i]` on average, and links only within itself."""
    sizes = np.maximum(pages, [len(urls) for urls in homes])
    spec = SyntheticSpec(pages=int(sizes.sum()), sites=len(homes), locality=1.0, seed=seed)
    chance = np.random.default_rng([seed, 0x4A])
    first_page = np.concatenate(([0], np.cumsum(sizes)))[:-1]
    site_of = np.repeat(np.arange(len(homes), dtype=np.int32), sizes)
    starts, targets = _Links(spec, sizes, first_page, site_of, chance).rows()
    weights = draw_sizes(spec.pages, seed).astype(np.float64)
    mean = np.bincount(site_of, weights, len(homes)) / sizes
    size_bytes = np.maximum(weights * (page_bytes / mean)[site_of], 1.0).astype(np.int64)
    paths = [""] * spec.pages
    seeds: list[int] = []
    for urls, first in zip(homes, first_page.tolist(), strict=True):
        for place, url in enumerate(urls):
            paths[first + place] = url
            seeds.append(first + place)
    names = ["/".join(urls[0].split("/", 3)[:3]) for urls in homes]
    name = f"{len(homes)} drawn sites"
    return Web(name, starts, targets, site_of, size_bytes, names, np.array(seeds, dtype=np.int32), paths)


def site_sizes(spec: SyntheticSpec, chance: np.random.Generator) -> Longs:
    """Pages of each site: a power law from 1 to the largest allowed size, with the exponent that gives the
    sum."""
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
        """For every page but the home pages, a parent nearer to its home page: links sorted by parent."""
        first = self._first_page[self._site_of]
        place = np.arange(self._spec.pages) - first
        children = np.flatnonzero(place > 0)
        parents = first[children] + (place[children] * self._chance.random(len(children)) ** 2).astype(
            np.int64
        )
        order = np.argsort(parents, kind="stable")
        return parents[order], children[order]

    def _further(self, begin: int, end: int) -> tuple[Longs, Longs]:
        """Links besides those of the tree, of the pages from `begin` to `end`."""
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
