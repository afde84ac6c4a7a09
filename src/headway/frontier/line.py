"""The pages of a site that may be asked for, in order: by key, and with equal keys as they came.

Most orderings give few different keys (a depth), so pages stand in one queue for each key, and only the keys
are in a heap: taking the first page of a long line then touches a few objects rather than dozens, which
with millions of pages lie far apart in memory.
"""

from __future__ import annotations

from bisect import insort
from heapq import heappop, heappush
from operator import attrgetter
from typing import NamedTuple

from headway.model.page import Page
from headway.policy.ordering.base import Key

_BY_SERIAL = attrgetter("serial")
_FEW = 32


class Waiting(NamedTuple):
    """A page in line. Compared from the left, so the serial decides ties and pages are never compared."""

    key: Key
    serial: int
    page: Page
    attempt: int


class _Queue:
    """First in, first out; what has been taken is cut off now and then."""

    __slots__ = ("head", "items")

    def __init__(self, *items: Waiting) -> None:
        self.items: list[Waiting] = sorted(items)
        self.head = 0


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
            self._queues[key] = _Queue(queue, waiting)
        elif queue.items[-1].serial < waiting.serial:
            queue.items.append(waiting)
        else:
            # A page that had a penalty comes back to where it was.
            insort(queue.items, waiting, lo=queue.head, key=_BY_SERIAL)

    def first(self) -> Waiting:
        queue = self._queues[self._keys[0]]
        return queue if isinstance(queue, Waiting) else queue.items[queue.head]

    def pop(self) -> Waiting:
        key = self._keys[0]
        queue = self._queues[key]
        self._count -= 1
        if isinstance(queue, Waiting):
            heappop(self._keys)
            del self._queues[key]
            return queue
        first = queue.items[queue.head]
        queue.head += 1
        if queue.head == len(queue.items):
            heappop(self._keys)
            del self._queues[key]
        elif queue.head > _FEW and queue.head * 2 > len(queue.items):
            del queue.items[: queue.head]
            queue.head = 0
        return first

    def pop_all(self) -> list[Waiting]:
        everyone = []
        while self._count:
            everyone.append(self.pop())
        return everyone
