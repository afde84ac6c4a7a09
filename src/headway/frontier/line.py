"""The pages of a site that may be asked for, in order: by key, and with equal keys as they came.

Most orderings give few different keys (a depth), so pages stand in one queue for each key, and only the keys
are in a heap. A queue has its pages and their serial numbers side by side, without an object of its own for
each: with millions of pages waiting, what an object costs is that it lies far from all others in memory.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from heapq import heappop, heappush
from typing import NamedTuple

from headway.model.page import Page, PageKey
from headway.policy.ordering.base import HELD, Key

_FEW = 32


class Waiting(NamedTuple):
    """A page in line. Compared from the left, so the serial decides ties and pages are never compared."""

    key: Key
    serial: int
    page: Page
    attempt: int


_new_tuple = tuple.__new__  # what `Waiting(...)` comes to, without its check of the arguments


class _Queue:
    """First in, first out; the places of those taken are cut off now and then."""

    __slots__ = ("attempts", "head", "pages", "serials")

    def __init__(self) -> None:
        self.pages: list[Page | None] = []
        self.serials = array("q")
        self.attempts: dict[int, int] | None = None
        """By serial, of the pages that have been tried before."""
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
        # A page that had a penalty comes back to where it was.
        place = bisect_left(serials, serial, lo=self.head)
        serials.insert(place, serial)
        self.pages.insert(place, page)

    def pop(self, key: Key) -> Waiting:
        head, serial = self.head, self.serials[self.head]
        page = self.pages[head]
        assert page is not None
        self.pages[head] = None
        head += 1
        if head > _FEW and head * 2 > len(self.pages):
            del self.pages[:head], self.serials[:head]
            head = 0
        self.head = head
        attempt = self.attempts.pop(serial, 0) if self.attempts else 0
        return _new_tuple(Waiting, (key, serial, page, attempt))


class Line:
    __slots__ = ("_first", "_keys", "_others", "count", "first_key")

    def __init__(self) -> None:
        self.count = 0
        self.first_key: Key = HELD
        """Of the page that would be taken next."""
        self._first: Waiting | _Queue | None = None
        """All pages with that key; a page that is alone with its key stands for itself."""
        self._others: dict[Key, Waiting | _Queue] = {}
        self._keys: list[Key] = []
        """A heap of the keys of the others."""

    def __len__(self) -> int:
        return self.count

    def push(self, waiting: Waiting) -> None:
        key = waiting.key
        self.count += 1
        if self._first is None:
            self.first_key, self._first = key, waiting
        elif key == self.first_key:
            self._first = _together(self._first, waiting)
        elif key < self.first_key:
            self._others[self.first_key] = self._first
            heappush(self._keys, self.first_key)
            self.first_key, self._first = key, waiting
        elif (others := self._others.get(key)) is not None:
            self._others[key] = _together(others, waiting)
        else:
            self._others[key] = waiting
            heappush(self._keys, key)

    def extend(self, key: Key, serial: int, pages: list[Page]) -> None:
        """Pages that were not tried before, of one key, with the newest serials of all, from `serial` on."""
        first = Waiting(key, serial, pages[0], 0)
        self.push(first)
        if len(pages) == 1:
            return
        those = self._first if key == self.first_key else self._others[key]
        if not isinstance(those, _Queue):
            those = _Queue()
            those.push(first)
            if key == self.first_key:
                self._first = those
            else:
                self._others[key] = those
        those.pages.extend(pages[1:])
        those.serials.extend(range(serial + 1, serial + len(pages)))
        self.count += len(pages) - 1

    @property
    def first_serial(self) -> int:
        first = self._first
        assert first is not None
        return first.serials[first.head] if isinstance(first, _Queue) else first.serial

    def pop(self) -> Waiting:
        first = self._first
        assert first is not None
        self.count -= 1
        if isinstance(first, _Queue):
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
        """Which pages are in line, in no order."""
        keys: set[PageKey] = set()
        for those in (self._first, *self._others.values()):
            if isinstance(those, _Queue):
                keys.update([page.key for page in those.pages if page is not None])
            elif those is not None:
                keys.add(those.page.key)
        return keys

    def pop_all(self) -> list[Waiting]:
        everyone = []
        while self.count:
            everyone.append(self.pop())
        return everyone


def _together(those: Waiting | _Queue, one: Waiting) -> _Queue:
    if isinstance(those, _Queue):
        queue = those
    else:
        queue = _Queue()
        queue.push(those)
    queue.push(one)
    return queue
