"""PageRank by power iteration on a sparse matrix, for webs of millions of pages.

Pages without links hand their rank to all pages alike, so that the ranks always add up to one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headway.errors import HeadwayError

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
    """Rank the pages of a web in rows: page i links to `targets[starts[i]:starts[i + 1]]`.

    Ends when a step moves less than `tolerance` of the total rank. `begin_with` (ranks of an earlier,
    similar web) saves steps and does not change the result beyond the tolerance.
    """
    import scipy.sparse

    if not 0.0 <= damping < 1.0:
        raise HeadwayError(f"a damping of {damping} is not between 0 and 1")
    count = len(starts) - 1
    if count == 0:
        return np.zeros(0)
    out_links = np.diff(starts)
    dangling = np.flatnonzero(out_links == 0)
    share = np.divide(damping, out_links, out=np.zeros(count), where=out_links > 0)
    links = scipy.sparse.csr_array((np.ones(len(targets)), targets, starts), shape=(count, count))
    # The transpose is a view in the other layout: no second copy of millions of links.
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
    raise HeadwayError(f"PageRank has not settled to {tolerance} within {max_iterations} steps")


def rows_of_links(
    count: int, sources: NDArray[np.int64], targets: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """The rows that `pagerank` reads, from single links in any order."""
    starts = np.zeros(count + 1, dtype=np.int64)
    np.cumsum(np.bincount(sources, minlength=count), out=starts[1:])
    return starts, targets[np.argsort(sources, kind="stable")].astype(np.int32)
