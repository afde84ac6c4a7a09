"""A heap of sites: each has at most one place, by a key and then by a serial number, and can be moved.

`SiteHeap` is the C code of `_site_heap.c` where headway was installed with a compiler, else `PythonSiteHeap`.
That class is not compiled by mypyc, because it compares entries by identity, which mypyc does not keep for
tuples.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Protocol, cast

NO_SITE = -1
UNSURE = math.nan
"""Instead of the key for the other heap: it has to be computed when the site moves."""


class SiteOrder(Protocol):
    """Sites, by their numbers from 0 on: each has at most one place, by a key and then by a serial number."""

    def __len__(self) -> int: ...

    def put(self, number: int, key: float, serial: int, then: float) -> None:
        """Insert a site or move it; `then` is the key that it will have in the heap that `move_until` moves
        it to."""
        ...

    def remove(self, number: int) -> None:
        """Remove a site, if it is in the heap."""
        ...

    def first(self) -> int:
        """The number of the first site; NO_SITE if the heap is empty."""
        ...

    def first_key(self) -> float:
        """The key of the first site; infinite if the heap is empty."""
        ...

    def first_few(self, most: int) -> list[int]:
        """The first sites in order, without removing them."""
        ...

    def move_until(self, key: float, other: SiteOrder) -> list[int]:
        """Move the sites up to a key to another heap. Returns those whose key there is UNSURE; they are in
        neither."""
        ...


class PythonSiteHeap:
    """A heap in which a moved or removed site leaves a stale entry, which is dropped when it comes to the
    front."""

    def __init__(self) -> None:
        self._entries: list[tuple[float, int, int, float]] = []
        self._current: dict[int, tuple[float, int, int, float]] = {}

    def __len__(self) -> int:
        return len(self._current)

    def put(self, number: int, key: float, serial: int, then: float) -> None:
        entry = (math.inf if math.isnan(key) else key, serial, number, then)
        self._current[number] = entry
        heappush(self._entries, entry)
        if len(self._entries) > 4 * len(self._current) + 64:
            self._entries = list(self._current.values())
            heapify(self._entries)

    def remove(self, number: int) -> None:
        self._current.pop(number, None)

    def first(self) -> int:
        self._drop_stale()
        return self._entries[0][2] if self._entries else NO_SITE

    def first_key(self) -> float:
        self._drop_stale()
        return self._entries[0][0] if self._entries else math.inf

    def first_few(self, most: int) -> list[int]:
        chosen: list[tuple[float, int, int, float]] = []
        while len(chosen) < most and self.first() != NO_SITE:
            chosen.append(heappop(self._entries))
        for entry in chosen:
            heappush(self._entries, entry)
        return [number for _, _, number, _ in chosen]

    def move_until(self, key: float, other: SiteOrder) -> list[int]:
        unsure: list[int] = []
        while self.first() != NO_SITE and self._entries[0][0] <= key:
            _, serial, number, then = heappop(self._entries)
            del self._current[number]
            if math.isnan(then):
                unsure.append(number)
            else:
                other.put(number, then, serial, then)
        return unsure

    def _drop_stale(self) -> None:
        entries, current = self._entries, self._current
        while entries and current.get(entries[0][2]) is not entries[0]:
            heappop(entries)


def _site_heap_type() -> Callable[[], SiteOrder]:
    try:
        return cast("Callable[[], SiteOrder]", importlib.import_module("headway.engine._site_heap").SiteHeap)
    except ImportError:
        return PythonSiteHeap


SiteHeap = _site_heap_type()
