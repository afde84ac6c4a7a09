"""castillo2004's orderings by PageRank: of the whole web (Optimal), or of the part known so far."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence

import numpy as np

from headway.errors import JobError
from headway.model.page import Page, PageKey
from headway.policy.ordering.base import HELD, Key, SiteQueue
from headway.policy.pagerank import Ranks, pagerank, rows_of_links

ORDERING_TOLERANCE = 1e-4
"""A ten-thousandth of the total rank misplaced does not show in an order."""


class Optimal:
    """The page with the highest rank first, by an oracle: in a simulation the ranks of the whole web, in
    a live crawl those of an earlier one. Pages that the oracle does not know come last."""

    name = "optimal"

    def __init__(self, rank_of: Callable[[PageKey], float]) -> None:
        self._rank_of = rank_of

    def page_key(self, page: Page) -> Key:
        return -self._rank_of(page.key)

    def site_key(self, queue: SiteQueue) -> Key:
        return queue.first_key


class KnownWeb:
    """The links seen so far among the pages known so far, numbered as they came."""

    def __init__(self) -> None:
        self._number: dict[PageKey, int] = {}
        self._sources = array("q")
        self._targets = array("q")
        self._ranks: Ranks = np.zeros(0)

    def number(self, key: PageKey) -> int:
        return self._number.setdefault(key, len(self._number))

    def add_links(self, source: PageKey, targets: Sequence[PageKey]) -> None:
        number = self.number(source)
        self._sources.extend([number] * len(targets))
        self._targets.extend([self.number(target) for target in targets])

    def rank(self) -> None:
        """Reckon the ranks of all pages known now."""
        count = len(self._number)
        sources = np.frombuffer(self._sources, dtype=np.int64) if self._sources else np.zeros(0, np.int64)
        targets = np.frombuffer(self._targets, dtype=np.int64) if self._targets else np.zeros(0, np.int64)
        starts, rows = rows_of_links(count, sources, targets)
        self._ranks = rank_again(self._ranks, starts, rows)

    def rank_of(self, key: PageKey) -> float | None:
        """The rank at the last reckoning; None for a page found after it."""
        number = self._number.get(key)
        return float(self._ranks[number]) if number is not None and number < len(self._ranks) else None


def rank_again(before: Ranks, starts: np.ndarray, rows: np.ndarray) -> Ranks:
    """Ranks of a known web that has grown: pages known before begin with the rank that they had."""
    count = len(starts) - 1
    begin = np.full(count, 1.0 / count if count else 0.0)
    begin[: len(before)] = before
    return pagerank(starts, rows, tolerance=ORDERING_TOLERANCE, begin_with=begin)


class Batch:
    """PageRank of the known web forms a batch of K pages; the next one is formed when all are settled."""

    def __init__(self, size: int) -> None:
        self._size = _whole(size, "batch")
        self._web = KnownWeb()
        self._members: dict[PageKey, Key] = {}
        self.name = f"batch({size})"

    def page_key(self, page: Page) -> Key:
        return self._members.get(page.key, HELD)

    def site_key(self, queue: SiteQueue) -> Key:
        return queue.first_key

    def settled(self, page: Page, links: Sequence[Page]) -> Sequence[Page]:
        self._members.pop(page.key, None)
        self._web.add_links(page.key, list(dict.fromkeys(link.key for link in links)))
        return ()

    def is_due(self) -> bool:
        return not self._members

    def reorder(self, waiting: Sequence[Page]) -> None:
        for page in waiting:
            self._web.number(page.key)
        self._web.rank()
        ranks = np.array([self._web.rank_of(page.key) for page in waiting], dtype=np.float64)
        best = np.argsort(-ranks, kind="stable")[: self._size]
        self._members = {waiting[place].key: -float(ranks[place]) for place in best}


class Partial:
    """PageRank of the known web after each K pages; a page found in between counts as the sum of the ranks
    of the pages that point to it. "Normalised" in the paper is read as: of ranks that add up to one; only
    then does Partial do as badly as the paper found."""

    word = "partial"

    def __init__(self, every: int) -> None:
        self._every = _whole(every, self.word)
        self._web = KnownWeb()
        self._found_since: dict[PageKey, float] = {}
        self._settled_since: int | None = None
        self.name = f"{self.word}({every})"

    def page_key(self, page: Page) -> Key:
        return -self._rank_of(page.key)

    def site_key(self, queue: SiteQueue) -> Key:
        return queue.first_key

    def settled(self, page: Page, links: Sequence[Page]) -> Sequence[Page]:
        if self._settled_since is not None:
            self._settled_since += 1
        targets = {link.key: link for link in links}
        self._web.add_links(page.key, list(targets))
        if not targets:
            return ()
        share = self._share(self._rank_of(page.key), len(targets))
        newcomers = [link for key, link in targets.items() if self._web.rank_of(key) is None]
        for link in newcomers:
            self._found_since[link.key] = self._found_since.get(link.key, 0.0) + share
        return newcomers

    def is_due(self) -> bool:
        return self._settled_since is None or self._settled_since >= self._every

    def reorder(self, waiting: Sequence[Page]) -> None:
        for page in waiting:
            self._web.number(page.key)
        self._web.rank()
        self._found_since.clear()
        self._settled_since = 0

    def _share(self, rank: float, links: int) -> float:
        """What a page passes on to each page that it links to."""
        return rank

    def _rank_of(self, key: PageKey) -> float:
        rank = self._web.rank_of(key)
        return self._found_since.get(key, 0.0) if rank is None else rank


class Flow(Partial):
    """Partial with each page's rank divided among its links, as PageRank itself does. Not in the paper, and
    the best of its kind on every web tried (`experiments/castillo2004`)."""

    word = "flow"

    def _share(self, rank: float, links: int) -> float:
        return rank / links


def _whole(number: int, name: str) -> int:
    if number < 1:
        raise JobError(f"{name}({number}): a batch needs at least one page")
    return number
