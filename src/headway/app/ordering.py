"""The order of a job's sites and pages: its strategy with what that needs, scores or the ranks of a run."""

from __future__ import annotations

import functools
from pathlib import Path

from headway.config.job import Job
from headway.model.page import PageKey
from headway.policy.ordering import LearningOrdering, Ordering, make_ordering, parse_ordering
from headway.policy.ordering.worth import Worth
from headway.sim.recorded import ranks_of_run
from headway.store.reader import DATABASE
from headway.store.runfolder import WaitingOrder


def build_ordering(job: Job) -> Ordering:
    crawl = job.file.crawl
    ranks = None
    if parse_ordering(job.strategy)[0] == "optimal" and crawl.ranks_from is not None:
        ranks = _ranks_of(Path(crawl.ranks_from))
    return make_ordering(job.strategy, ranks=ranks, score_of=Worth(crawl.scores) if crawl.scores else None)


def waiting_order(job: Job) -> WaitingOrder:
    """How the store keeps the pages that wait, so that the next ones can be had from it."""
    crawl, ordering = job.file.crawl, build_ordering(job)
    if isinstance(ordering, LearningOrdering):
        return WaitingOrder("found", lambda _: 0.0, None)
    # Other scores or ranks are another order, though its name is the same.
    name = " ".join(map(str, filter(None, (ordering.name, crawl.ranks_from, sorted(crawl.scores.items())))))
    return WaitingOrder(name, ordering.page_key, crawl.waiting_in_memory)


def _ranks_of(run: Path) -> dict[PageKey, float]:
    database = run / DATABASE
    changed_at = database.stat().st_mtime_ns if database.exists() else 0
    return _ranks_as_of(run, changed_at)


@functools.lru_cache(maxsize=1)
def _ranks_as_of(run: Path, _changed_at: int) -> dict[PageKey, float]:
    """A crawl asks twice: for itself and for its store."""
    return ranks_of_run(run)
