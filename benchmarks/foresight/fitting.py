"""Fits the model of the pages left, and the factors of the ranges, to sites and to crawls of other sites."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from benchmarks.foresight.boosting import boost
from benchmarks.foresight.crawls import Crawl
from benchmarks.foresight.webs import SiteGraph
from numpy.typing import NDArray

from headway.planning.ends import BUCKETS, ForecastTable
from headway.planning.estimate import FEATURES, Growth, PagesModel, write_trees

Floats = NDArray[np.float64]
_TREES, _LEAVES, _RATE = 40, 8, 0.15
_BINS, _CLASSES = 12, (math.log(30.0), math.log(150.0))
_SHRINK = 60.0
_MOST_Y = 4.0
_FIRST, _STEP = 5, 1.15
PROBABILITIES = (0.01, 0.025, *(round(0.05 * number, 2) for number in range(1, 20)), 0.975, 0.99)


class Snapshots(NamedTuple):
    """Instants of crawls of single sites: features, and what was really left for each waiting page."""

    features: Floats
    target: Floats
    weight: Floats
    fetched: Floats
    whole: Floats


def snapshots(sites: Sequence[SiteGraph], *, starts: int = 3, seed: int = 0) -> Snapshots:
    """Each site breadth-first from its own start and from some of its other pages, at growing numbers of
    pages. Each family of sites has the same weight."""
    features: list[tuple[float, ...]] = []
    target, weight, fetched, whole = [], [], [], []
    in_family: dict[str, int] = {}
    for site in sites:
        in_family[_kind(site)] = in_family.get(_kind(site), 0) + 1
    for place, site in enumerate(sites):
        chance = np.random.default_rng([seed, place])
        others = chance.integers(0, len(site.links), starts - 1).tolist()
        for start in (site.start, *others):
            found, counts, pages = _crawled(site, start)
            if not found or pages < 20:
                continue
            features += found
            target += [math.log((pages - read) / waiting) for read, waiting in counts]
            weight += [1 / len(found) / in_family[_kind(site)]] * len(found)
            fetched += [float(read) for read, _ in counts]
            whole += [float(pages)] * len(counts)
    columns = (np.array(each) for each in (target, weight, fetched, whole))
    return Snapshots(np.array(features).reshape(-1, len(FEATURES)), *columns)


def _kind(site: SiteGraph) -> str:
    return site.family.partition("-")[0]


def _crawled(site: SiteGraph, start: int) -> tuple[list[tuple[float, ...]], list[tuple[int, int]], int]:
    seen, line, growth = {start}, [(start, 0)], Growth()
    features, counts, next_at = [], [], _FIRST
    for page, depth in line:
        new = [to for to in site.links[page] if to not in seen]
        seen.update(new)
        line += [(to, depth + 1) for to in dict.fromkeys(new)]
        growth.note(depth, len(site.links[page]), len(set(new)))
        waiting = len(line) - growth.pages
        if growth.pages >= next_at and waiting:
            features.append(growth.features(waiting))
            counts.append((growth.pages, waiting))
            next_at = int(growth.pages * _STEP) + 1
    return features, counts, len(line)


def fit_pages(data: Snapshots) -> tuple[str, float, list[float], list[float], list[list[float]]]:
    """The arguments of `PagesModel`."""
    target = np.clip(data.target, 0.0, _MOST_Y)
    base, trees = boost(data.features, target, data.weight, trees=_TREES, leaves=_LEAVES, rate=_RATE)
    text = write_trees(trees)
    score = PagesModel(text, base, [], [], [[0.0]]).score(data.features)
    edges = np.quantile(score, np.linspace(0, 1, _BINS + 1)[1:-1])
    bins, classes = np.searchsorted(edges, score), np.searchsorted(_CLASSES, data.features[:, 1])
    cells = []
    for number in range(_BINS):
        in_bin = bins == number
        usual = _quantiles(target[in_bin], data.weight[in_bin], (0.5,))[0]
        row = []
        for which in range(len(_CLASSES) + 1):
            mine = in_bin & (classes == which)
            count = int(mine.sum())
            median = _quantiles(target[mine], data.weight[mine], (0.5,))[0] if count else usual
            row.append(round((count * median + _SHRINK * usual) / (count + _SHRINK), 4))
        cells.append(row)
    return text, round(base, 5), [round(float(edge), 5) for edge in edges], list(_CLASSES), cells


def fit_factors(crawls: Iterable[Crawl]) -> tuple[list[list[float]], list[list[float]]]:
    """Quantiles of (true left / forecast left) by foreseen progress, for sites and for crawls. A site, or a
    crawl, has the same weight in each bucket, however often it was looked at."""
    sites: list[list[tuple[float, float]]] = [[] for _ in range(BUCKETS)]
    whole: list[list[tuple[float, float]]] = [[] for _ in range(BUCKETS)]
    for crawl in crawls:
        by_site: dict[tuple[str, int], list[float]] = {}
        by_bucket: dict[int, list[float]] = {}
        for look in crawl.looks:
            by_bucket.setdefault(bucket_of(look.at_s, look.crawl), []).append(
                (crawl.end_s - look.at_s) / look.crawl
            )
            for site, left_s in look.sites.items():
                true_s = crawl.ends[site] - look.at_s
                if true_s > 0 and left_s > 0:
                    by_site.setdefault((site, bucket_of(look.at_s, left_s)), []).append(true_s / left_s)
        for (_, bucket), ratios in by_site.items():
            sites[bucket] += [(ratio, 1 / len(ratios)) for ratio in ratios]
        for bucket, ratios in by_bucket.items():
            whole[bucket] += [(ratio, 1 / len(ratios)) for ratio in ratios]
    return _rows(sites), _rows(whole)


def bucket_of(passed_s: float, left_s: float) -> int:
    progress = passed_s / (passed_s + left_s) if passed_s + left_s > 0 else 1.0
    return min(int(progress * BUCKETS), BUCKETS - 1)


def _rows(buckets: Sequence[Sequence[tuple[float, float]]]) -> list[list[float]]:
    rows = []
    for pairs in buckets:
        ratios, weights = np.array(pairs).T
        rows.append([float(f"{each:.4g}") for each in _quantiles(ratios, weights, PROBABILITIES)])
    return rows


def _quantiles(values: Floats, weights: Floats, probabilities: Sequence[float]) -> list[float]:
    order = np.argsort(values)
    reached = np.cumsum(weights[order])
    places = np.searchsorted(reached, np.array(probabilities) * reached[-1])
    return [float(values[order][min(place, len(values) - 1)]) for place in places.tolist()]


def table_of(
    pages: tuple[str, float, list[float], list[float], list[list[float]]], crawls: Iterable[Crawl] = ()
) -> ForecastTable:
    """Without crawls, the factors are all 1: what the crawls are made with to which they are fitted."""
    made = list(crawls)
    even = [[1.0] * len(PROBABILITIES)] * BUCKETS
    by_site, by_crawl = fit_factors(made) if made else (even, even)
    return ForecastTable(pages, PROBABILITIES, by_site, by_crawl)
