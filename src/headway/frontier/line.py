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

from headway.model.page import Page
from headway.policy.ordering.base import Key

_FEW = 32


class Waiting(NamedTuple):
    """A page in line. Compared from the left, so the serial decides ties and pages are never compared."""

    key: Key
    serial: int
    page: Page
    attempt: int


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
        return Waiting(key, serial, page, attempt)


class Line:
    __slots__ = ("_count", "_keys", "_queues")

    def __init__(self) -> None:
        self._count = 0
        self._keys: list[Key] = []
        self._queues: dict[Key, Waiting | _Queue] = {}
        """A page that is alone with its key stands for itself."""

    def __len__(self) -> int:
        return self._count

    def push(self, waiting: Waiting) -> None:
        key = waiting.key
        queue = self._queues.get(key)
        self._count += 1
        if queue is None:
            self._queues[key] = waiting
            heappush(self._keys, key)
        elif isinstance(queue, Waiting):
            self._queues[key] = both = _Queue()
            both.push(queue)
            both.push(waiting)
        else:
            queue.push(waiting)

    @property
    def first_key(self) -> Key:
        return self._keys[0]

    @property
    def first_serial(self) -> int:
        queue = self._queues[self._keys[0]]
        return queue.serial if isinstance(queue, Waiting) else queue.serials[queue.head]

    def pop(self) -> Waiting:
        key = self._keys[0]
        queue = self._queues[key]
        self._count -= 1
        if isinstance(queue, Waiting):
            heappop(self._keys)
            del self._queues[key]
            return queue
        first = queue.pop(key)
        if queue.head == len(queue.pages):
            heappop(self._keys)
            del self._queues[key]
        return first

    def pop_all(self) -> list[Waiting]:
        everyone = []
        while self._count:
            everyone.append(self.pop())
        return everyone
