"""The waiting room of one site under an ordering that changes keys after pages have come in.

A page whose key changes is entered anew, and its old entry is passed over when it comes to the front.
Pages with the key HELD wait, and are counted, but do not make their site ready.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush

from headway.frontier.line import Waiting
from headway.frontier.room import Room
from headway.model.page import Page, PageKey, Site
from headway.policy.ordering.base import HELD, Key
from headway.units import FOREVER, Instant


class ShiftingRoom(Room):
    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._current: dict[PageKey, Waiting] = {}
        """The one entry of each page that counts."""
        self._entries: list[Waiting] = []
        """A heap of those that are in line, and of entries that are void."""

    def put(self, waiting: Waiting, not_before: Instant | None = None) -> None:
        self.waiting += 1
        self._current[waiting.page.key] = waiting
        if not_before is None:
            heappush(self._entries, waiting)
        else:
            self._put_off(waiting, not_before)

    def admit_due(self, now: Instant) -> None:
        while self._later and self._later[0][0] <= now:
            heappush(self._entries, self._next_due())

    def take(self) -> Waiting:
        self._pass_over_void()
        waiting = heappop(self._entries)
        del self._current[waiting.page.key]
        self.waiting -= 1
        return waiting

    def take_all(self) -> list[Waiting]:
        everyone = sorted(self._current.values())
        self._entries, self._later = [], []
        self.waiting = self.put_off = 0
        self._current.clear()
        return everyone

    def everyone(self) -> list[Waiting]:
        return list(self._current.values())

    def change_key(self, page: PageKey, key: Key) -> bool:
        """Move a page to another place, if it is here and the key is another."""
        before = self._current.get(page)
        if before is None or before.key == key:
            return False
        after = before._replace(key=key)
        self._current[page] = after
        for place, (not_before, waiting) in enumerate(self._later):
            if waiting is before:
                self._later[place] = (not_before, after)
                heapify(self._later)
                return True
        heappush(self._entries, after)
        return True

    def change_keys(self, page_key: Callable[[Page], Key]) -> None:
        """Put everyone in a new order."""
        later = {waiting.page.key for _, waiting in self._later}
        self._current = {
            page: waiting._replace(key=page_key(waiting.page)) for page, waiting in self._current.items()
        }
        self._later = [(not_before, self._current[waiting.page.key]) for not_before, waiting in self._later]
        self._entries = [waiting for page, waiting in self._current.items() if page not in later]
        heapify(self._entries)
        heapify(self._later)

    def ready_at(self) -> Instant:
        if self.busy or not self._current:
            return FOREVER
        self._pass_over_void()
        if self._entries and self._entries[0].key < HELD:
            return self.free_at
        coming = [at for at, waiting in self._later if waiting.key < HELD]
        return max(self.free_at, min(coming)) if coming else FOREVER

    @property
    def first_key(self) -> Key:
        return self._first().key

    @property
    def first_serial(self) -> int:
        return self._first().serial

    def _first(self) -> Waiting:
        self._pass_over_void()
        return self._entries[0] if self._entries else self._later[0][1]

    def _pass_over_void(self) -> None:
        entries, current = self._entries, self._current
        while entries and current.get(entries[0].page.key) is not entries[0]:
            heappop(entries)
