"""The interface of orderings, and the user's scores of paths.

An ordering gives each page a key among the pages of its site, and each site a key among the free sites. Lower
keys go first. Equal keys go in the order of arrival, so that a run can be repeated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from headway.errors import JobError
from headway.model.page import Page, Site
from headway.policy.scope import fits
from headway.units import Seconds

Key = float
HELD: Key = math.inf
"""The key of a page that is not fetched until a `LearningOrdering` gives it another key."""


class SiteQueue(Protocol):
    """What an ordering sees of a site: its waiting pages."""

    @property
    def site(self) -> Site: ...

    @property
    def waiting(self) -> int:
        """The number of waiting pages."""
        ...

    @property
    def first_key(self) -> Key:
        """The key of the page that would be fetched next."""
        ...

    @property
    def first_serial(self) -> int:
        """When that page arrived, as a sequence number over the whole crawl."""
        ...


class Ordering(Protocol):
    @property
    def name(self) -> str: ...

    def page_key(self, page: Page) -> Key: ...

    def site_key(self, queue: SiteQueue) -> Key: ...


@runtime_checkable
class LearningOrdering(Ordering, Protocol):
    """An ordering that learns from the links of fetched pages and changes keys given before."""

    def settled(self, page: Page, links: Sequence[Page]) -> Sequence[Page]:
        """A page that was being fetched has settled. Returns the known pages whose keys have changed."""
        ...

    def is_due(self) -> bool:
        """Whether all waiting pages must be reordered before the next page is fetched."""
        ...

    def reorder(self, waiting: Sequence[Page]) -> None:
        """Compute new keys. `waiting` has all waiting pages in the order found; afterwards `page_key` is
        called for these pages only."""
        ...


@runtime_checkable
class RestoredOrdering(LearningOrdering, Protocol):
    """A learning ordering that takes in what an earlier run has fetched, before a crawl goes on."""

    def restore(self, keys: Sequence[int], targets: Sequence[int], counts: Sequence[int]) -> None:
        """Pages that were fetched, the keys of the pages that they link to, concatenated, and how many links
        each has."""
        ...


@runtime_checkable
class RankingOrdering(LearningOrdering, Protocol):
    """A learning ordering that can compute its keys again beside the crawl, which goes on with the earlier
    ones meanwhile: `ranking`, `adopt`, then `choose` for all waiting pages in parts, and `chosen`."""

    def ranking(self) -> tuple[Seconds, Callable[[], Any]] | None:
        """After how long to take the result, and what computes it in any thread; None: `reorder` is quick."""
        ...

    def adopt(self, ranks: Any) -> None:
        """Take the result."""
        ...

    def choose(self, waiting: Sequence[Page]) -> Sequence[Page]:
        """Of a part of the waiting pages, those whose keys have to be computed again."""
        ...

    def chosen(self) -> Sequence[Page]:
        """Further such pages, when all were given to `choose`."""
        ...


class PathScores:
    """Scores of pages by path pattern. The longest matching pattern decides; a page that matches none keeps
    the score with which it was found."""

    def __init__(self, scores: Mapping[str, float]) -> None:
        for pattern, score in scores.items():
            if not pattern.startswith(("/", "*")):
                raise JobError(f"{pattern!r} matches no path: a path pattern must start with '/' or '*'")
            if not math.isfinite(score):
                raise JobError(f"the score of {pattern!r} must be a finite number, not {score}")
        self._scores = sorted(scores.items(), key=lambda item: -len(item[0]))

    def __call__(self, page: Page) -> float:
        path = page.url[len(page.site) :]
        for pattern, score in self._scores:
            if fits(pattern, path):
                return float(score)
        return page.score
