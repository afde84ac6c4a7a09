"""Orderings by the names that people write: "length", "batch(10000)", "optimal"."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from headway.errors import JobError
from headway.model.page import Page, PageKey, Site
from headway.policy.ordering.base import Ordering
from headway.policy.ordering.deadline import Deadline
from headway.policy.ordering.ranked import Batch, Flow, Optimal, Partial
from headway.policy.ordering.simple import Depth, Length, LongestWait, Random, Score, score_as_found
from headway.units import Instant

ORDERING_NAMES = (
    "depth",
    "length",
    "batch(K)",
    "partial(K)",
    "flow(K)",
    "optimal",
    "random",
    "klwf",
    "score",
    "deadline",
)


def make_ordering(
    name: str,
    *,
    ranks: Mapping[PageKey, float] | Callable[[PageKey], float] | None = None,
    latest_start_at: Callable[[Site], Instant] | None = None,
    score_of: Callable[[Page], float] | None = None,
    seed: int = 0,
) -> Ordering:
    """An ordering of its own for one crawl. What it does not need of the rest is ignored, so that a whole
    list of names can be tried with the same values."""
    word, size = parse_ordering(name)
    match word:
        case "batch":
            assert size is not None
            return Batch(size)
        case "partial":
            assert size is not None
            return Partial(size)
        case "flow":
            assert size is not None
            return Flow(size)
        case "optimal":
            if ranks is None:
                raise JobError("the ordering 'optimal' needs the ranks of the pages, from an earlier crawl")
            return Optimal(ranks if callable(ranks) else lambda key: ranks.get(key, 0.0))
        case "random":
            return Random(seed)
        case "deadline":
            return Deadline(latest_start_at, score_of=score_of)
        case "score":
            return Score(score_of or score_as_found)
        case _:
            plain: dict[str, Callable[[], Ordering]] = {
                "depth": Depth,
                "length": Length,
                "klwf": LongestWait,
            }
            return plain[word]()


def parse_ordering(name: str) -> tuple[str, int | None]:
    """The word, and K for the orderings that have one."""
    match = re.fullmatch(r"\s*([a-z]+)\s*(?:\(\s*(\d[\d,_]*)\s*\))?\s*", name.lower())
    word = match[1] if match else ""
    words = {known.partition("(")[0]: "(" in known for known in ORDERING_NAMES}
    if match is None or word not in words:
        raise JobError(f"{name!r} is no ordering; choose one of {', '.join(ORDERING_NAMES)}")
    if words[word] and match[2] is None:
        raise JobError(f"{name!r} needs its number of pages, for example '{word}(10000)'")
    if not words[word] and match[2] is not None:
        raise JobError(f"{name!r}: {word} takes no number")
    size = int(re.sub("[,_]", "", match[2])) if match[2] else None
    if size == 0:
        raise JobError(f"{name!r}: a batch needs at least one page")
    return word, size
