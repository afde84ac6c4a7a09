"""Orderings: which site, and which page of it, is fetched next (castillo2004, cobweb1999)."""

from headway.policy.ordering.base import HELD, Key, LearningOrdering, Ordering, SiteQueue
from headway.policy.ordering.registry import (
    ORDERING_NAMES,
    check_ordering,
    make_ordering,
    make_scorer,
    ordering_text,
    parse_ordering,
)

__all__ = [
    "HELD",
    "ORDERING_NAMES",
    "Key",
    "LearningOrdering",
    "Ordering",
    "SiteQueue",
    "check_ordering",
    "make_ordering",
    "make_scorer",
    "ordering_text",
    "parse_ordering",
]
