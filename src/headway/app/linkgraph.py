"""The web of a run as numbers: who is linked to how often, and the PageRank of what was fetched.

Keys become places in one sorted array, so that a million pages with twenty million links fit into a few
hundred megabytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.policy.pagerank import pagerank
from headway.report.run_facts import Ranks, Referenced
from headway.store.aggregates import RunSums

MOST_LINKS = 60_000_000
"""Beyond so many the ranks are left out: they would take gigabytes."""
_TOLERANCE = 1e-5


class LinkGraph:
    """Read once; then `ranks` and `most_referenced` are reckoned from it."""

    def __init__(self, sums: RunSums, *, most_links: int = MOST_LINKS) -> None:
        self._sums = sums
        self._known = sums.seen_keys()
        self.is_whole = True
        keys: list[Any] = []
        depths: list[Any] = []
        settled: list[Any] = []
        targets: list[Any] = []
        counts: list[Any] = []
        links = 0
        for part in sums.fetched():
            keys.append(self._place(part.keys))
            depths.append(part.depths)
            settled.append(part.settled_at)
            found = self._place(part.links)
            links += len(found)
            if links > most_links:
                self.is_whole = False
                targets.clear()
            if self.is_whole:
                targets.append(found.astype(np.int32))
                counts.append(part.link_counts)
        self._own = _joined(keys, np.int64)
        self._depths = _joined(depths, np.int64)
        self._settled_at = _joined(settled, np.float64)
        self._targets = _joined(targets, np.int32)
        self._counts = _joined(counts, np.int64)
        self._references = self._count_references()

    def _count_references(self) -> NDArray[np.int64]:
        """Of a page that was fetched more than once, the links of its last version count."""
        last_row = np.full(len(self._known) + 1, -1, dtype=np.int64)
        last_row[self._own] = np.arange(len(self._own))
        is_last = last_row[self._own] == np.arange(len(self._own))
        if self.is_whole:
            return self._counted(self._targets, np.repeat(is_last, self._counts))
        references = np.zeros(len(self._known), dtype=np.int64)
        row = 0
        for part in self._sums.fetched():
            known = is_last[row : row + len(part.keys)]
            flags = np.zeros(len(part.keys), dtype=np.bool_)  # what came since we first read is left out
            flags[: len(known)] = known
            references += self._counted(self._place(part.links), np.repeat(flags, part.link_counts))
            row += len(part.keys)
        return references

    def _counted(self, targets: NDArray[Any], is_kept: NDArray[np.bool_]) -> NDArray[np.int64]:
        return np.bincount(targets[is_kept & (targets >= 0)], minlength=len(self._known))

    def ranks(self, started_at: float) -> Ranks | None:
        """None when nothing was fetched, or the web is too large."""
        if not len(self._own) or not self.is_whole:
            return None
        # A page that was fetched again counts where it was fetched first, with the links it had then.
        first = np.zeros(len(self._own), dtype=np.bool_)
        first[np.unique(self._own, return_index=True)[1]] = True
        node_of = np.full(len(self._known) + 1, -1, dtype=np.int32)  # the last place: not known at all
        node_of[self._own[first]] = np.arange(first.sum(), dtype=np.int32)
        targets = node_of[self._targets]
        page_of = np.repeat(np.arange(len(self._own)), self._counts)
        own_node = node_of[self._own[page_of]]
        kept = first[page_of] & (targets >= 0) & (targets != own_node)
        count = int(first.sum())
        starts = np.zeros(count + 1, dtype=np.int64)
        np.cumsum(np.bincount(own_node[kept], minlength=count), out=starts[1:])
        rank = pagerank(starts, targets[kept], tolerance=_TOLERANCE)
        return Ranks(self._settled_at[first] - started_at, rank, self._depths[first], int(kept.sum()))

    def most_referenced(self, most: int) -> list[Referenced]:
        """The pages that most links lead to, fetched or not."""
        order = np.argsort(self._references, kind="stable")[::-1][:most]
        fetched = set(self._own[np.isin(self._own, order)].tolist())
        found = []
        for place in order:
            links = int(self._references[place])
            url = self._sums.url_of(int(self._known[place])) if links else None
            if url is not None:
                found.append(Referenced(url, links, int(place) in fetched))
        return found

    def _place(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where each key stands among the known ones; -1 for one that does not."""
        if not len(self._known):
            return np.full(len(keys), -1, dtype=np.int64)
        # In order the search walks through memory from front to back, which is several times quicker.
        order = np.argsort(keys)
        ascending = keys[order]
        found = np.searchsorted(self._known, ascending)
        found[found == len(self._known)] = 0
        found[self._known[found] != ascending] = -1
        place = np.empty_like(found)
        place[order] = found
        return place


def _joined(parts: list[Any], kind: type[np.generic]) -> NDArray[Any]:
    return np.concatenate(parts) if parts else np.empty(0, dtype=kind)
