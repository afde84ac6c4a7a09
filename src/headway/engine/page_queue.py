"""The pages of a site that may be fetched now, in order: by key, and with equal keys first in, first out.

Most orderings give few different keys (such as the depth), so there is a FIFO for each key, and only the keys
are in a heap. A FIFO keeps its pages and their serial numbers in parallel arrays, without an object for each
entry: with millions of waiting pages, objects scattered over memory cost cache misses.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from heapq import heappop, heappush
from typing import NamedTuple

from headway.model.page import Page, PageKey
from headway.policy.ordering.base import HELD, Key

_MIN_COMPACTED = 32
"""A FIFO with fewer taken entries is not compacted."""


class Waiting(NamedTuple):
    """A waiting page. Tuples are compared from the left, so the serial decides ties and pages are never
    compared."""

    key: Key
    serial: int
    page: Page
    attempt: int


_new_tuple = tuple.__new__  # faster than `Waiting(...)`, which checks its arguments


class _Fifo:
    """The pages of one key, by serial number. Taken entries at the front are removed in bulk."""

    __slots__ = ("attempts", "head", "pages", "serials")

    def __init__(self) -> None:
        self.pages: list[Page | None] = []
        self.serials = array("q")
        self.attempts: dict[int, int] | None = None
        """By serial, for the pages that have been tried before."""
        self.head = 0

    def push(self, waiting: Waiting) -> None:
        _, serial, page, attempt = waiting
        if attempt:
            if self.attempts is None:
                self.attempts = {}
            self.attempts[serial] = attempt
        serials = self.serials
        if not serials or serials[-1] < serial:
            serials.append(serial)
            self.pages.append(page)
            return
        # A page whose retry delay is over returns to its former position.
        place = bisect_left(serials, serial, lo=self.head)
        serials.insert(place, serial)
        self.pages.insert(place, page)

    def pop(self, key: Key) -> Waiting:
        head, serial = self.head, self.serials[self.head]
        page = self.pages[head]
        assert page is not None
        self.pages[head] = None
        head += 1
        if head > _MIN_COMPACTED and head * 2 > len(self.pages):
            del self.pages[:head], self.serials[:head]
            head = 0
        self.head = head
        attempt = self.attempts.pop(serial, 0) if self.attempts else 0
        return _new_tuple(Waiting, (key, serial, page, attempt))


class PageQueue:
    """Pages by key and serial number."""

    __slots__ = ("_first", "_keys", "_others", "count", "first_key")

    def __init__(self) -> None:
        self.count = 0
        self.first_key: Key = HELD
        """The key of the page that comes next."""
        self._first: Waiting | _Fifo | None = None
        """All pages with that key; a page that is alone with its key has no FIFO."""
        self._others: dict[Key, Waiting | _Fifo] = {}
        self._keys: list[Key] = []
        """A heap of the keys of `_others`."""

    def __len__(self) -> int:
        return self.count

    def push(self, waiting: Waiting) -> None:
        key = waiting.key
        self.count += 1
        if self._first is None:
            self.first_key, self._first = key, waiting
        elif key == self.first_key:
            self._first = _appended(self._first, waiting)
        elif key < self.first_key:
            self._others[self.first_key] = self._first
            heappush(self._keys, self.first_key)
            self.first_key, self._first = key, waiting
        elif (others := self._others.get(key)) is not None:
            self._others[key] = _appended(others, waiting)
        else:
            self._others[key] = waiting
            heappush(self._keys, key)

    def extend(self, key: Key, serial: int, pages: list[Page]) -> None:
        """Add pages that have one key and were not tried before, with serials from `serial` on, higher than
        all others."""
        first = Waiting(key, serial, pages[0], 0)
        self.push(first)
        if len(pages) == 1:
            return
        same_key = self._first if key == self.first_key else self._others[key]
        if not isinstance(same_key, _Fifo):
            same_key = _Fifo()
            same_key.push(first)
            if key == self.first_key:
                self._first = same_key
            else:
                self._others[key] = same_key
        same_key.pages.extend(pages[1:])
        same_key.serials.extend(range(serial + 1, serial + len(pages)))
        self.count += len(pages) - 1

    @property
    def first_serial(self) -> int:
        first = self._first
        assert first is not None
        return first.serials[first.head] if isinstance(first, _Fifo) else first.serial

    def pop(self) -> Waiting:
        first = self._first
        assert first is not None
        self.count -= 1
        if isinstance(first, _Fifo):
            waiting = first.pop(self.first_key)
            if first.head < len(first.pages):
                return waiting
        else:
            waiting = first
        if self._keys:
            self.first_key = heappop(self._keys)
            self._first = self._others.pop(self.first_key)
        else:
            self.first_key, self._first = HELD, None
        return waiting

    def page_keys(self) -> set[PageKey]:
        """The keys of all pages, in no order."""
        keys: set[PageKey] = set()
        for same_key in (self._first, *self._others.values()):
            if isinstance(same_key, _Fifo):
                keys.update([page.key for page in same_key.pages if page is not None])
            elif same_key is not None:
                keys.add(same_key.page.key)
        return keys

    def pop_all(self) -> list[Waiting]:
        pages = []
        while self.count:
            pages.append(self.pop())
        return pages


def _appended(same_key: Waiting | _Fifo, one: Waiting) -> _Fifo:
    if isinstance(same_key, _Fifo):
        queue = same_key
    else:
        queue = _Fifo()
        queue.push(same_key)
    queue.push(one)
    return queue
