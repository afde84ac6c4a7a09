"""Estimates of the remaining data of a site, of its pages still to be found, its rate, and their uncertainty.

Before the first answer, the size of a site is the user's value, what an earlier run learnt, or a default.
Afterwards it is estimated from the links: the share of links that lead to known pages estimates the share of
the site that is known (Good-Turing coverage). So a site of which every second link is new is half known.

`Growth` is kept page by page; by it a model fitted on other sites says how many pages are left. It predicts
y = ln(left / waiting), which has no scale and is 0 where all pages are known: boosted trees, then the median
y of the fitted sites with a like prediction. Its numbers are in `forecast_table`, made by
`benchmarks/foresight/fit.py`.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from headway.model.page import Site
from headway.units import Bytes, BytesPerSecond, Instant, Seconds

Floats = NDArray[np.float64]

_MARK_EVERY = 1.12
"""`Growth` remembers its counts at page numbers that grow by this factor."""
_MOST_LEVELS = 64
_LEAST_RATE = 0.01
"""New pages per page, so that its logarithm exists."""
_MOST_Y = 4.0
"""A site is not forecast to have more than e**4 = 55 times the waiting pages left."""


class Growth:
    """How the known pages of a site grew with the pages read: a few hundred bytes."""

    __slots__ = (
        "_found_marks",
        "_mark_at",
        "_page_marks",
        "found",
        "found_by_level",
        "links",
        "pages",
        "pages_by_level",
    )

    def __init__(self) -> None:
        self.pages = 0
        """Answers whose links were counted."""
        self.found = 0
        """New pages of the site found on them."""
        self.links = 0
        self.pages_by_level = array("I")
        self.found_by_level = array("I")
        self._page_marks = array("I")
        self._found_marks = array("I")
        self._mark_at = 1

    def note(self, depth: int, links: int, new: int) -> None:
        """One page at this depth has this many links to the site, of which `new` to pages not known
        before."""
        self.pages += 1
        self.found += new
        self.links += links
        level = depth if depth < _MOST_LEVELS else _MOST_LEVELS - 1
        while len(self.pages_by_level) <= level:
            self.pages_by_level.append(0)
            self.found_by_level.append(0)
        self.pages_by_level[level] += 1
        self.found_by_level[level] += new
        if self.pages >= self._mark_at:
            self._page_marks.append(self.pages)
            self._found_marks.append(self.found)
            self._mark_at = int(self.pages * _MARK_EVERY) + 1

    def found_after(self, pages: float) -> float:
        """How many pages had been found when so many were read."""
        place = bisect_right(self._page_marks, pages)
        low_page, low_found = (
            (0, 0) if not place else (self._page_marks[place - 1], self._found_marks[place - 1])
        )
        if place < len(self._page_marks):
            high_page, high_found = self._page_marks[place], self._found_marks[place]
        else:
            high_page, high_found = self.pages, self.found
        if high_page <= low_page:
            return float(high_found)
        return low_found + (high_found - low_found) * (pages - low_page) / (high_page - low_page)

    def rate_over(self, share: float) -> float:
        """New pages per page over the last `share` of the pages."""
        if not self.pages:
            return 0.0
        first = self.pages - max(1.0, share * self.pages)
        return (self.found - self.found_after(first)) / (self.pages - first)

    def features(self, waiting: int) -> tuple[float, ...]:
        """What the model judges by; the names are in `FEATURES`."""
        pages, waiting = max(1, self.pages), max(1, waiting)
        known = pages + waiting
        half = pages / 2
        before = max(1.0, known - (self.found - self.found_after(half)))
        deepest = max(0, len(self.pages_by_level) - 1)
        at_deepest = self._level_rate(deepest)
        beyond = self.found_by_level[deepest] if self.found_by_level else 0
        return (
            math.log(waiting),
            math.log(pages),
            math.log(waiting / pages),
            math.log(at_deepest + _LEAST_RATE),
            math.log(self._level_rate(max(0, deepest - 1)) + _LEAST_RATE),
            math.log(self.rate_over(0.1) + _LEAST_RATE),
            math.log(self.rate_over(0.25) + _LEAST_RATE),
            math.log(self.rate_over(0.5) + _LEAST_RATE),
            math.log2(known / before),
            min(1.0, beyond / waiting),
            math.log(self.links / pages + 1.0),
            float(deepest),
        )

    def _level_rate(self, level: int) -> float:
        if level >= len(self.pages_by_level):
            return 0.0
        return self.found_by_level[level] / max(1, self.pages_by_level[level])


FEATURES = (
    "ln waiting",
    "ln pages",
    "ln waiting/page",
    "ln new/page, deepest level",
    "ln new/page, level above",
    "ln new/page, last 10%",
    "ln new/page, last 25%",
    "ln new/page, last 50%",
    "log2 of the growth since half",
    "share of the waiting beyond the deepest level",
    "ln links/page",
    "deepest level",
)


class Tree(NamedTuple):
    """A tree as columns. Node i asks whether its feature is at most the threshold: then it goes to `left`,
    else to the node after `left`. A leaf has `left` 0 and its value in `threshold`."""

    feature: Sequence[int]
    threshold: Sequence[float]
    left: Sequence[int]


def read_trees(text: str) -> list[Tree]:
    """Trees as `write_trees` writes them: a line for each, with "feature threshold left" for each node."""
    trees = []
    for line in text.split(";"):
        numbers = line.split()
        trees.append(
            Tree(
                [int(each) for each in numbers[::3]],
                [float(each) for each in numbers[1::3]],
                [int(each) for each in numbers[2::3]],
            )
        )
    return trees


def write_trees(trees: Sequence[Tree]) -> str:
    return ";".join(
        " ".join(f"{feature} {threshold:.4g} {left}" for feature, threshold, left in zip(*tree, strict=True))
        for tree in trees
    )


class PagesModel:
    """The fitted model. `cells` are medians of y, by bin of the prediction and by class of pages read."""

    def __init__(
        self,
        trees: str,
        base: float,
        edges: Sequence[float],
        classes: Sequence[float],
        cells: Sequence[Sequence[float]],
    ) -> None:
        grown = read_trees(trees)
        size = max(len(tree.left) for tree in grown)
        self._feature = np.zeros((len(grown), size), dtype=np.int64)
        self._threshold = np.zeros((len(grown), size))
        self._left = np.zeros((len(grown), size), dtype=np.int64)
        for row, tree in enumerate(grown):
            self._feature[row, : len(tree.left)] = tree.feature
            self._threshold[row, : len(tree.left)] = tree.threshold
            self._left[row, : len(tree.left)] = tree.left
        self._base = base
        self._edges = np.array(edges)
        self._classes = np.array(classes)
        self._cells = np.array(cells)

    def score(self, features: Floats) -> Floats:
        """The trees' prediction of y for each row."""
        rows = np.arange(len(features))[:, None]
        trees = np.arange(len(self._left))[None, :]
        at = np.zeros((len(features), len(self._left)), dtype=np.int64)
        while True:
            left = self._left[trees, at]
            inner = left > 0
            if not inner.any():
                break
            goes_left = features[rows, self._feature[trees, at]] <= self._threshold[trees, at]
            at = np.where(inner, np.where(goes_left, left, left + 1), at)
        score: Floats = self._base + self._threshold[trees, at].sum(axis=1)
        return score

    def left(self, features: Floats) -> Floats:
        """The expected number of pages still to be fetched, for each row of features."""
        y = self._cells[
            np.searchsorted(self._edges, self.score(features)), np.searchsorted(self._classes, features[:, 1])
        ]
        left: Floats = np.exp(features[:, 0] + np.clip(y, 0.0, _MOST_Y))
        return left


PRIOR_PAGE_BYTES = 30_000.0
"""About the median HTML page with headers, compressed as on the wire."""
PRIOR_SITE_PAGES = 300
"""Pages of a site of which nothing is known. The assumed range is one page to twice this number."""
_PRIOR_PAGES = 2.0
_PRIOR_UNKNOWN_LINKS = 2.0
_MOST_GROWTH = 20.0
_GIVEN_ERROR = 0.3
_GIVEN_SPREAD = 0.1
"""Of the logarithm of a given size around the true one, if it is wrong by up to `_GIVEN_ERROR`."""
_GUESS_SPREAD = 6.0
"""Of the logarithm of the size of a site of which nothing is known: sites differ by orders of magnitude."""
_PAGE_SPREAD = 1.5
"""Of the sizes of a site's pages, over their mean."""
_SAFETY = 0.5


class SiteFacts(msgspec.Struct, frozen=True, gc=False):
    """What an earlier run learnt about a site. 0 means unknown."""

    data_bytes: float = 0.0
    """The answers of one full crawl of the site, on the wire."""
    page_bytes: float = 0.0
    rate_bytes_per_s: float = 0.0
    """Bytes divided by the time from request to end of the answer; latency is included, as in
    `Prediction`."""
    listed_pages: int = 0
    """In the sitemaps of a site that was asked for them before the crawl."""


class Knowledge(msgspec.Struct, frozen=True):
    """What earlier runs learnt about their sites; `source` names the run or the runs."""

    source: str = ""
    sites: Mapping[Site, SiteFacts] = {}
    servers: tuple[tuple[str, bytes], ...] = ()
    """The rates of servers by hour, as `Prediction` packs them."""


NOTHING_LEARNT = Knowledge()


class Assumption(msgspec.Struct, frozen=True):
    """A value that a plan is computed from, and where it comes from: "given", "learnt in run X", "measured"
    (in this crawl) or "default"."""

    value: float
    source: str


GIVEN, MEASURED, LISTED, DEFAULT = "given", "measured", "sitemap", "default"
NO_FACTS = SiteFacts()


class SharedBy(msgspec.Struct, frozen=True):
    """A server or a registered domain whose interval the pages of several sites keep together."""

    name: str
    sites: int
    pause_s: float
    connections: int


class SiteAssumptions(msgspec.Struct, frozen=True):
    """What the planner assumes of a site."""

    site: Site
    data_bytes: Assumption
    """Still to fetch, without the margin that the planner adds for uncertainty."""
    page_bytes: Assumption
    rate_bytes_per_s: Assumption
    """Of the server alone, without the limit of the link and the pauses between requests."""
    pause_s: float
    """The politeness interval between two requests to the site."""
    shared: tuple[SharedBy, ...] = ()
    """What it has in common with other sites of the crawl."""


class Evidence(msgspec.Struct, frozen=True, gc=False):
    """What is known about a site so far."""

    fetched_pages: int = 0
    fetched_bytes: int = 0
    """On the wire, including failures and retries, which use the link as well."""
    waiting_pages: int = 0
    in_flight_pages: int = 0
    """Requested, and not yet answered."""
    links_seen: float = 0.0
    """Links to pages of the site, counted each time one is found; older ones may count less."""
    links_new: float = 0.0
    """The links in `links_seen` that led to a new page."""
    new_per_page: float | None = None
    """New pages per page, over the last pages."""
    sitemap_pages: int = 0
    given_bytes: Bytes | None = None
    """The user's value for the size of the whole site."""
    max_pages: int | None = None
    max_bytes: Bytes | None = None
    facts: SiteFacts = NO_FACTS

    @property
    def whole_bytes(self) -> float | None:
        """The size of the whole site, from the user or else from an earlier run."""
        return float(self.given_bytes) if self.given_bytes is not None else self.facts.data_bytes or None


class Remaining(NamedTuple):
    """Bytes still to fetch: an expected value, with a lower and an upper estimate."""

    low: float
    expected: float
    high: float

    def guarded(self) -> float:
        """The expected value plus half of the distance to `high`. The margin shrinks with the uncertainty."""
        return self.expected + _SAFETY * (self.high - self.expected)


def page_bytes(evidence: Evidence) -> float:
    """The mean size of a page, weighted towards the prior while few pages have been fetched."""
    pages = evidence.fetched_pages + _PRIOR_PAGES
    return (evidence.fetched_bytes + _PRIOR_PAGES * (evidence.facts.page_bytes or PRIOR_PAGE_BYTES)) / pages


def remaining_bytes(evidence: Evidence) -> Remaining:
    """Bytes still to fetch, with all those of the pages in flight."""
    size = page_bytes(evidence)
    coming_pages = evidence.waiting_pages + evidence.in_flight_pages
    coming = coming_pages * size
    whole = evidence.whole_bytes
    if not coming_pages:
        # Nothing waits: new pages can only be found on the pages that are being fetched.
        return Remaining(0.0, 0.0, 0.0)
    if not evidence.waiting_pages and evidence.fetched_pages and whole is None:
        return _limited(evidence, Remaining(coming, coming, coming))
    doubt = 1 / math.sqrt(1 + evidence.fetched_pages)
    low = coming * (1 - doubt)
    if whole is not None:
        progress = min(1.0, evidence.fetched_bytes / whole) if whole else 1.0
        expected = _corrected(evidence, whole)
        high = expected * (1 + _GIVEN_ERROR * (1 - progress))
        return _limited(evidence, Remaining(min(low, expected), expected, high))
    known_pages = evidence.fetched_pages + coming_pages
    total = max(_pages_by_coverage(evidence, known_pages), float(evidence.sitemap_pages), float(known_pages))
    if not evidence.sitemap_pages:
        # The first pages say little of a site's size; the prior's weight is 1, 1/2, 1/3 ... by pages fetched.
        weight = 1 / (1 + evidence.fetched_pages)
        total = max(total ** (1 - weight) * PRIOR_SITE_PAGES**weight, float(known_pages))
    expected = max(total - evidence.fetched_pages, coming_pages) * size
    return _limited(evidence, Remaining(min(low, expected), expected, expected * (1 + doubt)))


def spread_of(evidence: Evidence) -> float:
    """About the deviation of the logarithm of what is left from its expected value."""
    whole, coming_pages = evidence.whole_bytes, evidence.waiting_pages + evidence.in_flight_pages
    if whole is None or not coming_pages:
        return _GUESS_SPREAD / math.sqrt(1 + evidence.fetched_pages)
    given, links = _errors(evidence, whole, _left_by_links(evidence))
    return given * links / math.hypot(given, links)


def _corrected(evidence: Evidence, whole: float) -> float:
    """What is left by the given size and by the site's links, each weighted by how precise it is.

    The given size is precise at the beginning. What the links say is precise when many pages have been
    fetched, most of the others are known, and many of these still wait.
    """
    left, by_links = whole - evidence.fetched_bytes, _left_by_links(evidence)
    if left <= 0 or not evidence.fetched_pages:
        return by_links if left <= 0 else left
    given_error, links_error = _errors(evidence, whole, by_links)
    weight = given_error**2 / (given_error**2 + links_error**2)
    return float(left * (by_links / left) ** weight)


def _left_by_links(evidence: Evidence) -> float:
    coming_pages = evidence.waiting_pages + evidence.in_flight_pages
    pages = _pages_by_coverage(evidence, evidence.fetched_pages + coming_pages)
    return max(pages - evidence.fetched_pages, coming_pages) * page_bytes(evidence)


def _errors(evidence: Evidence, whole: float, by_links: float) -> tuple[float, float]:
    """The deviations of the logarithms of what is left by the given size and by links."""
    coming_pages = evidence.waiting_pages + evidence.in_flight_pages
    coming = coming_pages * page_bytes(evidence)
    given = _GIVEN_SPREAD * whole / max(whole - evidence.fetched_bytes, 1e-3 * whole)
    sizes = _PAGE_SPREAD * math.sqrt(1 / (1 + evidence.fetched_pages) + 1 / coming_pages)
    return given, math.hypot(sizes, math.log(by_links / coming))


def cap_bytes_per_s(
    size_bytes: float,
    *,
    pause_s: Seconds,
    server_rate_bytes_per_s: BytesPerSecond,
) -> BytesPerSecond:
    """The highest rate of a polite crawl of one site: one page after another, with the pause between them."""
    transfer_s = size_bytes / server_rate_bytes_per_s if math.isfinite(server_rate_bytes_per_s) else 0.0
    page_s = pause_s + transfer_s
    return BytesPerSecond(size_bytes / page_s if page_s > 0 else math.inf)


def forecast_range(now: Instant, end_at: Instant, remaining: Remaining) -> tuple[Instant, Instant]:
    """The earliest and latest end of a site whose end at `end_at` was forecast for `remaining.guarded()`."""
    planned = remaining.guarded()
    if planned <= 0 or not math.isfinite(end_at):
        return end_at, end_at
    left_s = end_at - now
    early, late = (now + left_s * share / planned for share in (remaining.low, remaining.high))
    return Instant(early), Instant(late)


def fit_xi(downloads: Iterable[tuple[float, float, float]]) -> float:
    """zhu2020's xi in t = xi * D / v, from past downloads (D bytes, v bytes/s, t seconds), by least squares
    through the origin. 1 without downloads."""
    above = below = 0.0
    for data_bytes, rate_bytes_per_s, seconds in downloads:
        if data_bytes > 0 and rate_bytes_per_s > 0 and seconds > 0:
            ideal_s = data_bytes / rate_bytes_per_s
            above += seconds * ideal_s
            below += ideal_s * ideal_s
    return above / below if below > 0 else 1.0


def _pages_by_coverage(evidence: Evidence, known_pages: int) -> float:
    new, seen = evidence.links_new + _PRIOR_UNKNOWN_LINKS, evidence.links_seen + 2 * _PRIOR_UNKNOWN_LINKS
    coverage = max(1 - new / seen, 1 / _MOST_GROWTH)
    total = known_pages / coverage
    if evidence.new_per_page is not None:
        # Each waiting page leads to this many new pages, and these again (a geometric series). If few pages
        # are found now, few are left, however many links the first pages had.
        again = min(evidence.new_per_page, 1 - 1 / _MOST_GROWTH)
        coming_pages = evidence.waiting_pages + evidence.in_flight_pages
        total = min(total, known_pages + coming_pages * again / (1 - again))
    return total


def _limited(evidence: Evidence, remaining: Remaining) -> Remaining:
    """Apply the limits of the site on pages and bytes."""
    most = math.inf
    if evidence.max_pages is not None:
        most = max(0, evidence.max_pages - evidence.fetched_pages) * page_bytes(evidence)
    if evidence.max_bytes is not None:
        most = min(most, max(0.0, float(evidence.max_bytes - evidence.fetched_bytes)))
    return Remaining(*(min(value, most) for value in remaining))
