"""The sites in order: each has at most one place, by a key and then by a serial number, and can be moved.

`Places` is the C code of `_places.c` where headway was built with a compiler, and `PythonPlaces` else.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Protocol, cast

NOBODY = -1
UNSURE = math.nan
"""In the place of the key that a site will have elsewhere: it has to be asked when the time comes."""


class Order(Protocol):
    """What both can do. Sites are known by numbers, from 0 on."""

    def __len__(self) -> int: ...

    def put(self, number: int, key: float, serial: int, then: float) -> None:
        """Give a site its place, or another one; `then` is its key in the other places that it moves to."""
        ...

    def remove(self, number: int) -> None:
        """Whether or not it has a place."""
        ...

    def first(self) -> int:
        """NOBODY if there is none."""
        ...

    def first_key(self) -> float: ...

    def first_few(self, most: int) -> list[int]:
        """In order; they keep their places."""
        ...

    def move_until(self, key: float, other: Order) -> list[int]:
        """Those up to a key move to other places; returns those that are UNSURE where, and have none now."""
        ...


class PythonPlaces:
    """Entries are not moved but voided, and passed over when they come to the front."""

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
        self._pass_over_void()
        return self._entries[0][2] if self._entries else NOBODY

    def first_key(self) -> float:
        self._pass_over_void()
        return self._entries[0][0] if self._entries else math.inf

    def first_few(self, most: int) -> list[int]:
        chosen: list[tuple[float, int, int, float]] = []
        while len(chosen) < most and self.first() != NOBODY:
            chosen.append(heappop(self._entries))
        for entry in chosen:
            heappush(self._entries, entry)
        return [number for _, _, number, _ in chosen]

    def move_until(self, key: float, other: Order) -> list[int]:
        unsure: list[int] = []
        while self.first() != NOBODY and self._entries[0][0] <= key:
            _, serial, number, then = heappop(self._entries)
            del self._current[number]
            if math.isnan(then):
                unsure.append(number)
            else:
                other.put(number, then, serial, then)
        return unsure

    def _pass_over_void(self) -> None:
        entries, current = self._entries, self._current
        while entries and current.get(entries[0][2]) is not entries[0]:
            heappop(entries)


def _quickest() -> Callable[[], Order]:
    try:
        return cast("Callable[[], Order]", importlib.import_module("headway.frontier._places").Places)
    except ImportError:
        return PythonPlaces


Places = _quickest()
