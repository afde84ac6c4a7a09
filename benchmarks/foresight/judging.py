"""How often ranges held, and how wide they were: the unit is the crawl."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from benchmarks.foresight.crawls import Crawl, Look
from benchmarks.foresight.fitting import bucket_of, fit_factors

from headway.planning.ends import BUCKETS, WANTED, Factors

_PENALTY = 2 / (1 - WANTED)
"""Of the interval score, for each unit by which an end was outside its range."""
_DRAWS = 1000


class Said(NamedTuple):
    """One forecast, of a site or of a crawl."""

    crawl: int
    what: str
    bucket: int
    low: float
    high: float
    end: float

    @property
    def held(self) -> bool:
        return self.low <= self.end <= self.high

    @property
    def score(self) -> float:
        """The interval score, in units of the end."""
        outside = max(0.0, self.low - self.end, self.end - self.high)
        return (self.high - self.low + _PENALTY * outside) / self.end


class Verdict(NamedTuple):
    pooled: float
    error: float
    """The standard error of `pooled`, by drawing crawls with replacement."""
    by_bucket: list[float]
    score: float
    crawls: int
    forecasts: int


def of_sites(crawls: Sequence[Crawl]) -> list[Said]:
    return [
        Said(number, site, bucket_of(look.at_s, look.sites[site]), low, high, crawl.ends[site])
        for number, crawl in enumerate(crawls)
        for look in crawl.looks
        for site, (low, high) in look.ranges.items()
        if crawl.ends[site] > look.at_s
    ]


def of_crawls(crawls: Sequence[Crawl]) -> list[Said]:
    return [
        Said(number, "", bucket_of(look.at_s, look.crawl), *look.crawl_range, crawl.end_s)
        for number, crawl in enumerate(crawls)
        for look in crawl.looks
    ]


def verdict(said: Iterable[Said], crawls: int) -> Verdict:
    """Each crawl weighs the same, and in it each site in each bucket of foreseen progress."""
    cells: dict[tuple[int, str, int], list[Said]] = {}
    count = 0
    for one in said:
        cells.setdefault((one.crawl, one.what, one.bucket), []).append(one)
        count += 1
    held = _by_crawl(cells, lambda one: float(one.held), crawls)
    score = _by_crawl(cells, lambda one: one.score, crawls)
    chance = np.random.default_rng(1)
    pools = [float(np.nanmean(held[chance.integers(0, len(held), len(held))])) for _ in range(_DRAWS)]
    by_bucket = []
    for bucket in range(BUCKETS):
        mine = {key: found for key, found in cells.items() if key[2] == bucket}
        by_bucket.append(float(np.nanmean(_by_crawl(mine, lambda one: float(one.held), crawls))))
    return Verdict(
        float(np.nanmean(held)), float(np.std(pools)), by_bucket, float(np.nanmean(score)), crawls, count
    )


def _by_crawl(
    cells: dict[tuple[int, str, int], list[Said]], value: Callable[[Said], float], crawls: int
) -> np.ndarray:
    sums = np.zeros((crawls, 2))
    for (crawl, _, _), found in cells.items():
        sums[crawl] += (float(np.mean([value(one) for one in found])), 1.0)
    return np.divide(sums[:, 0], sums[:, 1], out=np.full(crawls, np.nan), where=sums[:, 1] > 0)


# What headway forecast before, with factors: the measure of what the chain adds.


def also_planned(crawls: Iterable[Crawl]) -> list[Crawl]:
    """The crawls with the forecasts that the planner had as well, so that both are judged on the same."""
    return [
        crawl._replace(
            looks=[
                look._replace(
                    sites={site: left_s for site, left_s in look.sites.items() if site in look.planned},
                    ranges={site: ends for site, ends in look.ranges.items() if site in look.planned},
                )
                for look in crawl.looks
                if look.planned
            ]
        )
        for crawl in crawls
    ]


def as_before(crawls: Iterable[Crawl]) -> list[Crawl]:
    """The same crawls, with the planner's ends as the points."""
    return [
        crawl._replace(
            looks=[
                look._replace(sites=look.planned, crawl=max(look.planned.values()))
                for look in crawl.looks
                if look.planned
            ]
        )
        for crawl in crawls
    ]


def with_factors(
    crawls: Iterable[Crawl], fitted_on: Iterable[Crawl], probabilities: Sequence[float]
) -> list[Crawl]:
    """The crawls with ranges of factors that were fitted on others."""
    by_site, by_crawl = (Factors(probabilities, rows) for rows in fit_factors(fitted_on))

    def spread(look: Look, factors: Factors, left_s: float) -> tuple[float, float]:
        progress = np.array([look.at_s / (look.at_s + left_s)])
        tails = (1 - WANTED) / 2, (1 + WANTED) / 2
        low, high = (look.at_s + float(factors.of(progress, tail)[0]) * left_s for tail in tails)
        return low, high

    return [
        crawl._replace(
            looks=[
                look._replace(
                    ranges={site: spread(look, by_site, left_s) for site, left_s in look.sites.items()},
                    crawl_range=spread(look, by_crawl, look.crawl),
                )
                for look in crawl.looks
            ]
        )
        for crawl in crawls
    ]
