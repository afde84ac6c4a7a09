"""Orderings by PageRank (castillo2004): of the whole graph (`Optimal`), or of the part seen so far.

PageRank is computed by power iteration on a sparse matrix, for graphs of millions of pages. Pages without
links distribute their rank equally to all pages, so that the ranks always add up to one.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Callable, Sequence
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from headway.errors import HeadwayError, JobError
from headway.model.page import Page, PageKey
from headway.policy.ordering.base import HELD, Key, SiteQueue
from headway.units import Seconds

Ranks = NDArray[np.float64]


def pagerank(
    starts: NDArray[np.int64],
    targets: NDArray[np.int32],
    *,
    damping: float = 0.85,
    tolerance: float = 1e-9,
    max_iterations: int = 1000,
    begin_with: Ranks | None = None,
) -> Ranks:
    """The PageRank of a graph in CSR form: page i links to `targets[starts[i]:starts[i + 1]]`.

    Iteration ends when a step moves less than `tolerance` of the total rank. `begin_with`, the ranks of an
    earlier, similar graph, saves steps and does not change the result beyond the tolerance.
    """
    import scipy.sparse

    if not 0.0 <= damping < 1.0:
        raise HeadwayError(f"damping must be at least 0 and less than 1, not {damping}")
    count = len(starts) - 1
    if count == 0:
        return np.zeros(0)
    out_links = np.diff(starts)
    dangling = np.flatnonzero(out_links == 0)
    share = np.divide(damping, out_links, out=np.zeros(count), where=out_links > 0)
    links = scipy.sparse.csr_array((np.ones(len(targets)), targets, starts), shape=(count, count))
    # The transpose is a view: it does not copy millions of links.
    inbound = links.T
    ranks = np.full(count, 1.0 / count) if begin_with is None else begin_with / begin_with.sum()
    for _ in range(max_iterations):
        everywhere = (1.0 - damping + damping * ranks[dangling].sum()) / count
        after: Ranks = inbound @ (ranks * share)
        after += everywhere
        moved = np.abs(after - ranks).sum()
        ranks = after
        if moved < tolerance:
            return ranks
    raise HeadwayError(f"PageRank did not converge to {tolerance} within {max_iterations} iterations")


def rows_of_links(
    count: int, sources: NDArray[np.int64], targets: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """The CSR form that `pagerank` reads, from links in any order."""
    starts = np.zeros(count + 1, dtype=np.int64)
    np.cumsum(np.bincount(sources, minlength=count), out=starts[1:])
    return starts, targets[np.argsort(sources, kind="stable")].astype(np.int32)


ORDERING_TOLERANCE = 1e-4
"""An error of a ten-thousandth of the total rank does not matter for an ordering."""


class Optimal:
    """The page with the highest known rank first: in a simulation the ranks of the whole graph, in a live
    crawl those of an earlier one. Unknown pages come last."""

    name = "optimal"

    def __init__(self, rank_of: Callable[[Page], float]) -> None:
        self._rank_of = rank_of

    def page_key(self, page: Page) -> Key:
        return -self._rank_of(page)

    def site_key(self, queue: SiteQueue) -> Key:
        return queue.first_key


_FEW_PAGES = 5_000
"""Ranks of a larger web are computed in a thread beside the crawl."""
_RANKED_S, _RANKED_S_PER_LINK = 0.25, 1.5e-6
"""They take effect so much later, and not when the thread has finished, so that the same events lead to the
same decisions."""


class KnownWeb:
    """The links seen so far between the pages known so far, numbered in the order found."""

    def __init__(self) -> None:
        self._number: dict[PageKey, int] = {}
        self._sources = array("q")
        self._targets = array("q")
        self._earlier: list[tuple[array[int], array[int]]] = []
        """Sources and targets that do not grow any more, so that a thread may read them."""
        self._links = 0
        self._ranks: Ranks = np.zeros(0)

    def number(self, key: PageKey) -> int:
        return self._number.setdefault(key, len(self._number))

    def add_links(self, source: PageKey, targets: Sequence[PageKey]) -> None:
        number = self.number(source)
        self._sources.extend([number] * len(targets))
        self._targets.extend([self.number(target) for target in targets])

    def restore(self, keys: Sequence[int], targets: Sequence[int], counts: Sequence[int]) -> None:
        """Add pages that were fetched earlier: the keys of their links, concatenated, and how many each
        has."""
        numbers = [self.number(PageKey(key)) for key in keys]
        self._sources.extend(np.repeat(np.array(numbers, dtype=np.int64), counts).tolist())
        self._targets.extend([self.number(PageKey(target)) for target in targets])

    @property
    def links(self) -> int:
        return self._links + len(self._sources)

    def rank(self) -> None:
        """Compute the ranks of all known pages."""
        self.adopt(self.ranking()())

    def ranking(self) -> Callable[[], Ranks]:
        """What computes the ranks of all pages known now, in this thread or another."""
        if self._sources:
            self._links += len(self._sources)
            self._earlier.append((self._sources, self._targets))
            self._sources, self._targets = array("q"), array("q")
        count, parts, before = len(self._number), tuple(self._earlier), self._ranks

        def compute() -> Ranks:
            none = np.zeros(0, np.int64)
            sources = np.concatenate([none, *(np.frombuffer(each, dtype=np.int64) for each, _ in parts)])
            targets = np.concatenate([none, *(np.frombuffer(each, dtype=np.int64) for _, each in parts)])
            starts, rows = rows_of_links(count, sources, targets)
            return rank_again(before, starts, rows)

        return compute

    def adopt(self, ranks: Ranks) -> None:
        """Use these ranks from now on."""
        self._ranks = ranks

    @property
    def is_small(self) -> bool:
        return len(self._number) <= _FEW_PAGES

    def rank_of(self, key: PageKey) -> float | None:
        """The rank from the last call of `rank`; None for a page found after it."""
        number = self._number.get(key)
        return float(self._ranks[number]) if number is not None and number < len(self._ranks) else None


def rank_again(before: Ranks, starts: np.ndarray, rows: np.ndarray) -> Ranks:
    """The ranks of a graph that has grown. The iteration starts with the earlier ranks of the known pages."""
    count = len(starts) - 1
    begin = np.full(count, 1.0 / count if count else 0.0)
    begin[: len(before)] = before
    return pagerank(starts, rows, tolerance=ORDERING_TOLERANCE, begin_with=begin)


class RankedOrdering:
    """What the orderings of this module share: the part of the web that is known."""

    def __init__(self) -> None:
        self.web = KnownWeb()

    def restore(self, keys: Sequence[int], targets: Sequence[int], counts: Sequence[int]) -> None:
        """Take in pages that were fetched before a restart, with their links."""
        self.web.restore(keys, targets, counts)

    def ranking(self) -> tuple[Seconds, Callable[[], Ranks]] | None:
        """How to compute the ranks again beside the crawl, and when to `adopt` them; None for a small web,
        which is ranked at once by `reorder`."""
        if self.web.is_small:
            return None
        return Seconds(_RANKED_S + _RANKED_S_PER_LINK * self.web.links), self.web.ranking()

    def adopt(self, ranks: Ranks) -> None:
        self.web.adopt(ranks)

    def choose(self, waiting: Sequence[Page]) -> Sequence[Page]:
        """Of these pages, which are all that wait or a part of them, those whose keys have to be computed
        again."""
        return waiting

    def chosen(self) -> Sequence[Page]:
        """Further such pages, when all were given to `choose`."""
        return ()


class Batch(RankedOrdering):
    """Fetches batches of the K waiting pages with the highest PageRank in the known graph. The next batch is
    chosen when all pages of the last one have settled."""

    def __init__(self, size: int) -> None:
        self._size = _whole(size, "batch")
        super().__init__()
        self._members: dict[PageKey, Key] = {}
        self._candidates: list[tuple[float, Page]] = []
        self.name = f"batch({size})"

    def page_key(self, page: Page) -> Key:
        return self._members.get(page.key, HELD)

    def site_key(self, queue: SiteQueue) -> Key:
        return queue.first_key

    def settled(self, page: Page, links: Sequence[Page]) -> Sequence[Page]:
        self._members.pop(page.key, None)
        self.web.add_links(page.key, list(dict.fromkeys(link.key for link in links)))
        return ()

    def is_due(self) -> bool:
        return not self._members

    def reorder(self, waiting: Sequence[Page]) -> None:
        for page in waiting:
            self.web.number(page.key)
        self.web.rank()
        ranks = np.array([self.web.rank_of(page.key) for page in waiting], dtype=np.float64)
        best = np.argsort(-ranks, kind="stable")[: self._size]
        self._members = {waiting[place].key: -float(ranks[place]) for place in best}

    def choose(self, waiting: Sequence[Page]) -> Sequence[Page]:
        rank_of = self.web.rank_of
        self._candidates += [(-(rank_of(page.key) or 0.0), page) for page in waiting]
        if len(self._candidates) > 4 * self._size + _FEW_PAGES:
            self._candidates = heapq.nsmallest(self._size, self._candidates, key=_first)
        return ()

    def chosen(self) -> Sequence[Page]:
        best = heapq.nsmallest(self._size, self._candidates, key=_first)
        self._candidates = []
        self._members = {page.key: key for key, page in best}
        return [page for _, page in best]


_first = itemgetter(0)


class Partial(RankedOrdering):
    """Computes the PageRank of the known graph after every K pages. A page found in between gets the sum of
    the ranks of the pages that link to it.

    The paper's "normalised" is read as ranks that add up to one: only then does Partial perform as badly as
    the paper reports.
    """

    word = "partial"

    def __init__(self, every: int) -> None:
        self._every = _whole(every, self.word)
        super().__init__()
        self._found_since: dict[PageKey, float] = {}
        self._found_before: dict[PageKey, float] = {}
        """As `_found_since`, of pages that the ranks being computed will have."""
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
        self.web.add_links(page.key, list(targets))
        if not targets:
            return ()
        share = self._share(self._rank_of(page.key), len(targets))
        newcomers = [link for key, link in targets.items() if self.web.rank_of(key) is None]
        for link in newcomers:
            self._found_since[link.key] = self._rank_of(link.key) + share
        return newcomers

    def is_due(self) -> bool:
        return self._settled_since is None or self._settled_since >= self._every

    def reorder(self, waiting: Sequence[Page]) -> None:
        for page in waiting:
            self.web.number(page.key)
        self.web.rank()
        self._found_since.clear()
        self._settled_since = 0

    def ranking(self) -> tuple[Seconds, Callable[[], Ranks]] | None:
        begun = super().ranking()
        if begun is not None:
            self._settled_since = 0
            self._found_before, self._found_since = self._found_since, {}
        return begun

    def adopt(self, ranks: Ranks) -> None:
        super().adopt(ranks)
        self._found_before = {}

    def _share(self, rank: float, links: int) -> float:
        """The rank that a page passes to each page that it links to."""
        return rank

    def _rank_of(self, key: PageKey) -> float:
        rank = self.web.rank_of(key)
        if rank is not None:
            return rank
        found = self._found_since.get(key)
        return self._found_before.get(key, 0.0) if found is None else found


class Flow(Partial):
    """Partial with the rank of a page divided among its links, as in PageRank itself. Not in the paper; it
    was the best ordering of this kind on every graph tried (`experiments/castillo2004`)."""

    word = "flow"

    def _share(self, rank: float, links: int) -> float:
        return rank / links


def _whole(number: int, name: str) -> int:
    if number < 1:
        raise JobError(f"{name}({number}): a batch must have at least one page")
    return number
