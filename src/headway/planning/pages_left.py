"""How many pages of a site are still to be found: from how it has grown so far, by a model fitted on other
sites.

`Growth` is kept page by page. The model predicts y = ln(left / waiting), which has no scale and is 0 where
all pages are known: boosted trees, then the median y of the fitted sites with a like prediction. Its
numbers are in `forecast_table`, made by `benchmarks/foresight/fit.py`.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

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
