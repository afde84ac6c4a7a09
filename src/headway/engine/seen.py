"""The set of all pages ever seen. `seen_set` makes one in C (`_seen_set.c`) where headway was installed with
a compiler, else a `PythonSeenSet`.

A page is known by its key, of 64 bits, and by 16 more bits of another hash of its URL, the check bits. So of
10^9 pages none is taken for another with a probability of 1 - 4 * 10^-7. The store and the queues tell pages
apart by the key alone: a page whose key is another's gets the next key that is free (`next_key`).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Protocol, cast

import numpy as np
from msgspec import structs
from numpy.typing import NDArray
from xxhash import xxh3_64_intdigest

from headway.model.page import Page, PageKey

_RECENT_LIMIT = 1 << 18
_CHECK_MASK = 0xFFFF
_NO_CHECKS = np.zeros(0, dtype=np.uint16)


def check_bits(url: str) -> int:
    """Bits that tell two URLs with the same key apart; never 0, which stands for unknown ones."""
    return xxh3_64_intdigest(url.encode("utf-8", "surrogatepass")) & _CHECK_MASK or 1


def next_key(key: PageKey) -> PageKey:
    """The key to try for a page if this one is another page's."""
    following = (key + 0x9E3779B97F4A7C15) & (2**64 - 1)
    return PageKey(following - (1 << 64) if following >> 63 else following)


def new_pages(seen: SeenSet, pages: Sequence[Page]) -> list[Page]:
    """Add pages, and return those that are new, each once. One whose key is that of another page gets a key
    of its own, the same each time that it is found."""
    keys = [page.key for page in pages]
    checks = [check_bits(page.url) for page in pages]
    new = []
    for position in seen.add_all(keys, checks):
        page = pages[position] if position >= 0 else _with_key_of_its_own(seen, pages[~position])
        if page is not None:
            new.append(page)
    return new


def _with_key_of_its_own(seen: SeenSet, page: Page) -> Page | None:
    """None if the page is known by such a key."""
    key, check = page.key, check_bits(page.url)
    while True:
        key = next_key(key)
        answer = seen.add_all([key], [check])
        if not answer:
            return None
        if answer[0] >= 0:
            return structs.replace(page, key=key)


class SeenSet(Protocol):
    """A set of 64-bit page keys, each with its check bits."""

    def __len__(self) -> int: ...

    def __contains__(self, key: PageKey, /) -> bool: ...

    def add(self, key: PageKey, /) -> bool:
        """True if the key is new."""
        ...

    def add_all(self, keys: Sequence[PageKey], checks: Sequence[int] = ..., /) -> list[int]:
        """Add keys and return the positions of the new ones, each key once; inverted (`~`) where the key is
        that of a page with other check bits, which then is not added."""
        ...

    def add_many(self, keys: NDArray[np.int64], checks: NDArray[np.uint16], /) -> None:
        """Add keys, without an object for each, and without reporting which are new. No check bits: they are
        not known."""
        ...


class PythonSeenSet:
    """New keys go to a small hash table; when that is full, it is merged into sorted arrays of ten bytes per
    key. So ten million pages take about 100 MB; a set of Python integers would take a gigabyte."""

    def __init__(self, keys: NDArray[np.int64], checks: NDArray[np.uint16], recent_limit: int) -> None:
        self._settled = np.zeros(0, dtype=np.int64)
        self._checks = _NO_CHECKS
        self._recent: dict[PageKey, int] = {}
        self._recent_limit = recent_limit
        self._settle(keys, checks)

    def __len__(self) -> int:
        return len(self._settled) + len(self._recent)

    def __contains__(self, key: PageKey, /) -> bool:
        return key in self._recent or self._settled_checks([key])[0] is not None

    def add(self, key: PageKey, /) -> bool:
        return bool(self.add_all([key]))

    def add_all(self, keys: Sequence[PageKey], checks: Sequence[int] = (), /) -> list[int]:
        given = checks or [0] * len(keys)
        recent = self._recent
        new = []
        settled = self._settled_checks(keys)
        for position, (key, check, before) in enumerate(zip(keys, given, settled, strict=True)):
            known = recent.get(key) if before is None else before
            if known is None:
                recent[key] = check
                new.append(position)
            elif known != check and known and check:
                new.append(~position)
        if len(recent) > self._recent_limit:
            self._merge()
        return new

    def add_many(self, keys: NDArray[np.int64], checks: NDArray[np.uint16], /) -> None:
        if len(keys) <= self._recent_limit // 16:
            self.add_all(keys.tolist(), checks.tolist())
        else:
            self._merge()
            self._settle(keys, checks)

    def _settled_checks(self, keys: Sequence[PageKey]) -> list[int | None]:
        """The check bits of each key; None if it is not known."""
        settled = self._settled
        if not len(settled):
            return [None] * len(keys)
        wanted = np.array(keys, dtype=np.int64)
        places = np.minimum(np.searchsorted(settled, wanted), len(settled) - 1)
        found = (settled[places] == wanted).tolist()
        checks = self._checks[places].tolist()
        return [check if is_known else None for is_known, check in zip(found, checks, strict=True)]

    def _merge(self) -> None:
        fresh = np.fromiter(self._recent, dtype=np.int64, count=len(self._recent))
        checks = np.fromiter(self._recent.values(), dtype=np.uint16, count=len(self._recent))
        self._settle(fresh, checks)
        self._recent.clear()

    def _settle(self, keys: NDArray[np.int64], checks: NDArray[np.uint16]) -> None:
        if not len(keys):
            return
        checks = checks if len(checks) else np.zeros(len(keys), dtype=np.uint16)
        both = np.concatenate((self._settled, keys))
        # Stable, so that of two with one key the first stays.
        order = np.argsort(both, kind="stable")
        both = both[order]
        first = np.ones(len(both), dtype=np.bool_)
        first[1:] = both[1:] != both[:-1]
        self._settled, self._checks = both[first], np.concatenate((self._checks, checks))[order][first]


_Maker = Callable[[NDArray[np.int64], NDArray[np.uint16], int], SeenSet]


def _seen_set_type() -> _Maker:
    try:
        made = importlib.import_module("headway.engine._seen_set").SeenSet
    except ImportError:
        return PythonSeenSet
    return cast("_Maker", made)


_new_seen_set = _seen_set_type()


def seen_set(
    keys: Sequence[PageKey] | NDArray[np.int64] = (),
    checks: Sequence[int] | NDArray[np.uint16] = (),
    *,
    recent_limit: int = _RECENT_LIMIT,
) -> SeenSet:
    """A set with these keys, in C where that was built. `checks`: the check bits of each; none: unknown."""
    return _new_seen_set(np.asarray(keys, dtype=np.int64), np.asarray(checks, dtype=np.uint16), recent_limit)
