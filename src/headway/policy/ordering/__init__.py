"""Orderings: which site, and which page of it, is fetched next (castillo2004, cobweb1999); and orderings and
scorers by name, such as "length", "batch(10000)" or "mypackage.orders:Newest"."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from headway import plugins
from headway.errors import HeadwayError, JobError
from headway.model.page import Page, PageKey, Site
from headway.policy.ordering.base import HELD, Key, LearningOrdering, Ordering, SiteQueue
from headway.policy.ordering.ranked import Batch, Flow, Optimal, Partial
from headway.policy.ordering.simple import Deadline, Depth, Length, LongestWait, Random, Score, score_as_found
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


T = TypeVar("T")


def make_ordering(
    name: str,
    *,
    ranks: Mapping[PageKey, float] | Callable[[Page], float] | None = None,
    latest_start_at: Callable[[Site], Instant] | None = None,
    score_of: Callable[[Page], float] | None = None,
    seed: int = 0,
) -> Ordering:
    """A new ordering for one crawl. Arguments that it does not need are ignored, so that several names can be
    tried with the same arguments."""
    if plugins.is_reference(name):
        return _users_ordering(name)
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
                raise JobError("the ordering 'optimal' needs page ranks from an earlier crawl")
            return Optimal(ranks if callable(ranks) else lambda page: ranks.get(page.key, 0.0))
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
    """The name of an ordering, and K if it has one. The dotted path of a user's ordering is returned
    unchanged."""
    if plugins.is_reference(name):
        return name, None
    match = re.fullmatch(r"\s*([a-z]+)\s*(?:\(\s*(\d[\d,_]*)\s*\))?\s*", name.lower())
    word = match[1] if match else ""
    words = {known.partition("(")[0]: "(" in known for known in ORDERING_NAMES}
    if match is None or word not in words:
        raise JobError(
            f"{name!r} is not an ordering; use one of {', '.join(ORDERING_NAMES)}, or the dotted path of your"
            " own, such as 'mypackage.orders:Newest'"
        )
    if words[word] and match[2] is None:
        raise JobError(f"{name!r} needs a number of pages, for example '{word}(10000)'")
    if not words[word] and match[2] is not None:
        raise JobError(f"{name!r}: {word} takes no number")
    size = int(re.sub("[,_]", "", match[2])) if match[2] else None
    if size == 0:
        raise JobError(f"{name!r}: a batch must have at least one page")
    return word, size


class UserScorer:
    """A user's function from a page to its score. Failures are handled as in `UserOrdering`."""

    def __init__(self, inner: Callable[[Page], Any], name: str) -> None:
        self.name = name
        self.version = plugins.version_of(inner)
        self.problem: HeadwayError | None = None
        self._inner = inner

    def __call__(self, page: Page) -> float:
        if self.problem is not None:
            return 0.0
        try:
            return _finite(self._inner(page), "a score")
        except (Exception, SystemExit) as problem:
            self.problem = plugins.failure(f"the scorer {self.name}", page.url, problem)
            return 0.0


def make_scorer(name: str) -> UserScorer:
    """The scorer at a dotted path. JobError if it is not a function of one page."""
    what = "a scorer"
    made = plugins.make(name, is_made=plugins.is_function, what=what)
    try:
        plugins.check_method(made, "__call__", ("page",), what)
    except JobError as problem:
        raise JobError(f"{name!r} cannot be used: {problem}") from None
    return UserScorer(made, name)


def ordering_text(strategy: object) -> str:
    """The text that a job stores for an ordering given as an object, a class or a name."""
    return strategy if isinstance(strategy, str) else plugins.text_of(strategy, is_made=_is_ordering)


def check_ordering(name: str) -> tuple[str, int | None]:
    """`parse_ordering`, and JobError if a user's ordering cannot be used."""
    if plugins.is_reference(name):
        _users_ordering(name)
    return parse_ordering(name)


class UserOrdering:
    """A user's ordering. Its exceptions must not leave the engine in an inconsistent state.

    At the first failure `problem` is set. From then on the ordering returns keys without meaning, and the
    driver ends the crawl when the current step of the engine is complete.
    """

    may_hold = False
    """Whether it may return `HELD`."""

    def __init__(self, inner: Any, name: str) -> None:
        self.name = name
        self.version = plugins.version_of(inner)
        self.problem: HeadwayError | None = None
        self._inner = inner

    def page_key(self, page: Page) -> Key:
        return self._key("page_key", page.url, self._inner.page_key, page)

    def site_key(self, queue: SiteQueue) -> Key:
        return self._key("site_key", queue.site, self._inner.site_key, queue)

    def _key(self, method: str, about: str, ask: Callable[[Any], Any], thing: object) -> Key:
        return self._ask(method, about, lambda: self._as_key(ask(thing)), 0.0)

    def _as_key(self, value: Any) -> Key:
        return HELD if self.may_hold and value == HELD else _finite(value, "a key")

    def _ask(self, method: str, about: str, ask: Callable[[], T], otherwise: T) -> T:
        if self.problem is None:
            try:
                return ask()
            except (Exception, SystemExit) as problem:
                doing = f"{method} for {about}" if about else method
                self.problem = plugins.failure(f"the ordering {self.name}", doing, problem)
        return otherwise


class UserLearningOrdering(UserOrdering):
    """`UserOrdering` for an ordering that learns."""

    may_hold = True

    def settled(self, page: Page, links: Sequence[Page]) -> Sequence[Page]:
        def ask() -> Sequence[Page]:
            changed = tuple(self._inner.settled(page, links))
            if not all(isinstance(each, Page) for each in changed):
                raise TypeError(f"it must return pages, not {changed!r:.100}")
            return changed

        return self._ask("settled", page.url, ask, ())

    def is_due(self) -> bool:
        return self._ask("is_due", "", lambda: bool(self._inner.is_due()), False)

    def reorder(self, waiting: Sequence[Page]) -> None:
        self._ask("reorder", "", lambda: self._inner.reorder(waiting), None)


def _finite(value: Any, what: str) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"it returned {value!r}; {what} must be a finite number")
    return number


def _is_ordering(thing: object) -> bool:
    return not inspect.isclass(thing) and hasattr(thing, "page_key") and hasattr(thing, "site_key")


def _users_ordering(name: str) -> Ordering:
    what = "an ordering"
    made = plugins.make(name, is_made=_is_ordering, what=what)
    try:
        plugins.check_method(made, "page_key", ("page",), what)
        plugins.check_method(made, "site_key", ("queue",), what)
        learns = any(hasattr(made, method) for method in ("settled", "is_due", "reorder"))
        if learns:
            what = "an ordering that learns"
            plugins.check_method(made, "settled", ("page", "links"), what)
            plugins.check_method(made, "is_due", (), what)
            plugins.check_method(made, "reorder", ("waiting",), what)
    except JobError as problem:
        raise JobError(f"{name!r} cannot be used: {problem}") from None
    return UserLearningOrdering(made, name) if learns else UserOrdering(made, name)


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
