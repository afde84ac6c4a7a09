"""A web as arrays: pages, their sites and sizes, and links in rows; and the servers behind it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headway.errors import HeadwayError
from headway.model.page import Page, PageKey, Site

Numbers = NDArray[np.int32]
Floats = NDArray[np.float64]

TYPICAL_PAGE_BYTES = 10_000
"""The median page; log-normal sizes around it have castillo2004's mean of some 24 KB."""
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
        """The page as the machine knows it; its number is its key."""
        site = self.site(int(self.site_of[number]))
        path = self.paths[number] if self.paths is not None and self.paths[number] else f"/{number}"
        return Page(f"{site}{path}" if path.startswith("/") else path, site, PageKey(number), depth)

    def site(self, number: int) -> Site:
        name = self.sites[number]
        return Site(name if "://" in name else f"http://{name}")

    def site_sizes(self) -> NDArray[np.int64]:
        return np.bincount(self.site_of, minlength=len(self.sites))

    def only(self, wanted: Sequence[str]) -> Web:
        """The part of the web that lies on the sites named, with the links within it."""
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
        """The same pages as one batch: those named are there from the start, and nothing is found."""
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


@dataclass(frozen=True, slots=True)
class Servers:
    """How each site answers: time to open a connection, time from request to first byte, and the rate."""

    connect_s: Floats
    answer_s: Floats
    rate_bytes_per_s: Floats

    def only(self, sites: NDArray[np.int64]) -> Servers:
        return Servers(self.connect_s[sites], self.answer_s[sites], self.rate_bytes_per_s[sites])

    @classmethod
    def drawn(cls, count: int, seed: int, *, typical_rate_bytes_per_s: float = 150_000.0) -> Servers:
        """Log-normal by site: a round trip of 135 ms in the median (PlanetLab), two of them to connect, one
        and the server's own time to answer; rates as a proxy log of 2020 has them for pages over 10 KB."""
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
    """Log-normal page sizes, for webs that do not say theirs."""
    chance = np.random.default_rng([seed, 0x51])
    spread = chance.normal(0.0, PAGE_SIZE_SPREAD, count)
    sizes: NDArray[np.int64] = np.clip(TYPICAL_PAGE_BYTES * np.exp(spread), 200, 50e6).astype(np.int64)
    return sizes
