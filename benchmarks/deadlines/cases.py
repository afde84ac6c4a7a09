"""The jobs of the benchmark: sites with pages, deadlines, what the user says of their sizes, and what changes
while they are crawled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from headway.config.job import Job, build_job
from headway.config.reading import Source, convert
from headway.planning.problem import USABLE, Problem
from headway.sim.web import Web, make_sites

LINK_BYTES_PER_S = 100_000.0
"""800 kbit/s."""
SERVER_BYTES_PER_S = 2_000_000.0
LATENCY_S = 0.005
HEAD_BYTES = 210
"""Of an answer, with its part of the packets' headers."""


@dataclass(frozen=True, slots=True)
class SiteOf:
    pages: int
    page_bytes: float
    """On average, on the wire."""
    deadline_s: float | None
    is_given: bool = True
    """Whether the user says how large the site is."""
    given_factor: float = 1.0
    """What the user says, over the truth."""

    @property
    def data_bytes(self) -> float:
        return self.pages * self.page_bytes


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    sites: tuple[SiteOf, ...]
    link_bytes_per_s: float = LINK_BYTES_PER_S
    objective: str = "late-sites"
    seed: int = 0
    bound_halved_at_s: float | None = None
    bound_becomes: tuple[float, float] | None = None
    """From then on another bound."""
    slows_at_s: float | None = None
    """From then on the first site gives no more than `slow_bytes_per_s`."""
    slow_bytes_per_s: float = 12_000.0
    crawl: tuple[tuple[str, Any], ...] = ()

    def web(self, origins: Sequence[str]) -> Web:
        sizes = np.array([site.page_bytes for site in self.sites])
        pages = np.array([site.pages for site in self.sites], dtype=np.int64)
        web = make_sites([[f"{origin}/"] for origin in origins], pages, sizes, self.seed)
        # A site of some dozen pages should not consist of one large file.
        weights = np.sqrt(web.size_bytes)
        mean = np.bincount(web.site_of, weights) / np.bincount(web.site_of)
        return replace(web, size_bytes=(weights / mean[web.site_of] * sizes[web.site_of]).astype(np.int64))

    def origins(self) -> list[str]:
        return [f"http://site{number}.test" for number in range(len(self.sites))]

    def tables(self, origins: Sequence[str]) -> dict[str, Any]:
        """The job file."""
        crawl = {
            "bandwidth": f"{8 * self.link_bytes_per_s:.0f} bit/s",
            "interval": "0 s",
            "objective": self.objective,
            "allow_private": True,
            "respect_robots": False,
            **dict(self.crawl),
        }
        sites = []
        for origin, site in zip(origins, self.sites, strict=True):
            table: dict[str, Any] = {"url": f"{origin}/"}
            if site.deadline_s is not None:
                table["deadline"] = f"{site.deadline_s:.3f} s"
            if site.is_given:
                table["data"] = f"{site.data_bytes * site.given_factor:.0f} B"
            sites.append(table)
        return {"crawl": crawl, "site": sites}

    def job(self, origins: Sequence[str]) -> Job:
        source = Source(self.name)
        return build_job(convert(self.tables(origins), source), source)

    def problem(self, *, given: bool = False) -> Problem:
        """The sites as they are, or as the user says they are."""
        factor = [site.given_factor if given else 1.0 for site in self.sites]
        return Problem.of(
            [site.data_bytes * by for site, by in zip(self.sites, factor, strict=True)],
            USABLE * self.link_bytes_per_s,
            deadline_s=[np.inf if site.deadline_s is None else site.deadline_s for site in self.sites],
            cap_bytes_per_s=[self._cap(site) for site in self.sites],
        )

    def caps_after(self) -> list[float]:
        """The highest rate of each site after `slows_at_s`."""
        caps = [self._cap(site) for site in self.sites]
        if self.slows_at_s is not None:
            caps[0] = min(caps[0], self.slow_bytes_per_s)
        return caps

    def _cap(self, site: SiteOf) -> float:
        return site.page_bytes / (LATENCY_S + site.page_bytes / SERVER_BYTES_PER_S)


def six(deadlines_s: Sequence[float], **changes: Any) -> tuple[SiteOf, ...]:
    """Six sites of 3.77 MB together, in the ratios of zhu2020."""
    ratios = np.array([1, 1.3, 1.6, 1.9, 2.2, 2.5])
    pages = np.rint(3_770_000 / 20_000 * ratios / ratios.sum()).astype(int)
    return tuple(
        SiteOf(int(count), 20_000.0, due, **changes) for count, due in zip(pages, deadlines_s, strict=True)
    )


LOOSE = (12.0, 20.0, 28.0, 36.0, 46.0, 58.0)
TIGHT = (4.3, 9.2, 15.4, 22.6, 30.9, 40.4)
"""When each would end if they are fetched one after the other with what a crawl can use of the link, 3% more,
and half a second for the start."""
SHORT = (8.0, 9.0, 10.0, 11.0, 12.0, 13.0)


def cases() -> list[Case]:
    return [
        Case("sufficient", six(LOOSE)),
        Case("tight", six(TIGHT)),
        Case("insufficient", six(SHORT)),
        Case(
            "insufficient, default objective, no sizes",
            six(SHORT, is_given=False),
            objective="max-completion",
        ),
        *wrong_sizes(3),
        Case("a site slows down half-way", six(LOOSE), slows_at_s=4.0),
        Case("the bound is halved", six((8.0, 18.0, 34.0, 40.0, 46.0, 58.0)), bound_halved_at_s=10.0),
    ]


def wrong_sizes(draws: int, error: float = 0.3) -> Iterator[Case]:
    """Sites of other sizes than the user says, by up to `error`; all deadlines fit, just, or do not."""
    for seed in range(draws):
        yield drawn(seed, error)


def drawn(seed: int, error: float = 0.3, *, sites: int = 6) -> Case:
    """A job drawn from a seed: sizes, deadlines near when each would end one after the other, and errors."""
    chance = np.random.default_rng([seed, 0xD1])
    pages = chance.integers(15, 45, sites)
    sizes = chance.uniform(10_000, 30_000, sites)
    order = chance.permutation(sites)
    ends = np.empty(sites)
    ends[order] = np.cumsum((pages * sizes)[order]) / LINK_BYTES_PER_S
    dues = np.maximum(ends * chance.uniform(0.6, 1.4, sites), 2.0)
    factors = 1 / (1 + chance.uniform(-error, error, sites))
    return Case(
        f"wrong sizes, draw {seed}",
        tuple(
            SiteOf(int(count), float(size), float(due), given_factor=float(factor))
            for count, size, due, factor in zip(pages, sizes, dues, factors, strict=True)
        ),
        seed=seed,
    )


def exact(case: Case) -> Case:
    """The same with what the user says being true."""
    return replace(case, sites=tuple(replace(site, given_factor=1.0) for site in case.sites))
