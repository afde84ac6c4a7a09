"""The set of all pages ever seen: `seen_set` makes one in C (`_seen.c`) where headway was installed with a
compiler, else a `PythonSeenSet`."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Protocol, cast

import numpy as np
from numpy.typing import NDArray

from headway.model.page import PageKey

_RECENT_LIMIT = 1 << 18


class SeenSet(Protocol):
    """A set of 64-bit page keys."""

    def __len__(self) -> int: ...

    def __contains__(self, key: PageKey, /) -> bool: ...

    def add(self, key: PageKey, /) -> bool:
        """True if the key is new."""
        ...

    def add_all(self, keys: Sequence[PageKey], /) -> list[int]:
        """Add keys and return the positions of the new ones, each key once."""
        ...

    def add_many(self, keys: NDArray[np.int64], /) -> None:
        """Add keys, without an object for each, and without reporting which are new."""
        ...


class PythonSeenSet:
    """New keys go to a small hash set; when that is full, it is merged into one sorted array of eight bytes
    per key. So ten million pages take about 80 MB; a set of Python integers would take a gigabyte."""

    def __init__(self, keys: NDArray[np.int64], recent_limit: int) -> None:
        # `np.unique` would load a large module, also for an empty array.
        self._settled = np.unique(keys) if len(keys) else keys
        self._recent: set[PageKey] = set()
        self._recent_limit = recent_limit

    def __len__(self) -> int:
        return len(self._settled) + len(self._recent)

    def __contains__(self, key: PageKey, /) -> bool:
        return key in self._recent or bool(self._in_settled([key])[0])

    def add(self, key: PageKey, /) -> bool:
        return bool(self.add_all([key]))

    def add_all(self, keys: Sequence[PageKey], /) -> list[int]:
        recent = self._recent
        fresh = [position for position, key in enumerate(keys) if key not in recent]
        if fresh and len(self._settled):
            known = self._in_settled([keys[position] for position in fresh])
            fresh = [position for position, is_known in zip(fresh, known, strict=True) if not is_known]
        new = []
        for position in fresh:
            key = keys[position]
            if key not in recent:
                recent.add(key)
                new.append(position)
        if len(recent) > self._recent_limit:
            self._merge()
        return new

    def add_many(self, keys: NDArray[np.int64], /) -> None:
        if len(keys) <= self._recent_limit // 16:
            self.add_all(keys.tolist())
        else:
            self._merge()
            self._settled = np.union1d(self._settled, keys)

    def _in_settled(self, keys: Sequence[PageKey]) -> list[bool]:
        settled = self._settled
        if not len(settled):
            return [False] * len(keys)
        wanted = np.array(keys, dtype=np.int64)
        places = np.minimum(np.searchsorted(settled, wanted), len(settled) - 1)
        found: list[bool] = (settled[places] == wanted).tolist()
        return found

    def _merge(self) -> None:
        fresh = np.fromiter(self._recent, dtype=np.int64, count=len(self._recent))
        merged = np.concatenate((self._settled, fresh))
        # Two sorted runs: timsort merges them in nearly linear time.
        fresh.sort()
        merged[len(self._settled) :] = fresh
        merged.sort(kind="stable")
        self._settled = merged
        self._recent.clear()


def _seen_set_type() -> Callable[[NDArray[np.int64], int], SeenSet]:
    try:
        made = importlib.import_module("headway.engine._seen").SeenSet
    except ImportError:
        return PythonSeenSet
    return cast("Callable[[NDArray[np.int64], int], SeenSet]", made)


_new_seen_set = _seen_set_type()


def seen_set(
    keys: Sequence[PageKey] | NDArray[np.int64] = (), *, recent_limit: int = _RECENT_LIMIT
) -> SeenSet:
    """A set with these keys, in C where that was built."""
    return _new_seen_set(np.asarray(keys, dtype=np.int64), recent_limit)
