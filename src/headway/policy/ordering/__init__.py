"""castillo2004 and cobweb1999: which site, and which page of it, comes next."""

from headway.policy.ordering.base import HELD, Key, LearningOrdering, Ordering, SiteQueue
from headway.policy.ordering.registry import ORDERING_NAMES, make_ordering, parse_ordering

__all__ = [
    "HELD",
    "ORDERING_NAMES",
    "Key",
    "LearningOrdering",
    "Ordering",
    "SiteQueue",
    "make_ordering",
    "parse_ordering",
]
