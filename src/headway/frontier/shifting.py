"""The waiting room of one site under an ordering that changes keys after pages have come in.

A page whose key changes is entered anew, and its old entry is passed over when it comes to the front.
Pages with the key HELD wait, and are counted, but do not make their site ready.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush

from headway.frontier.room import Room, Waiting
from headway.model.page import Page, PageKey, Site
from headway.policy.ordering.base import HELD, Key
from headway.units import FOREVER, Instant


class ShiftingRoom(Room):
    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._current: dict[PageKey, Waiting] = {}
        """The one entry of each page that counts."""

    def put(self, waiting: Waiting, not_before: Instant | None = None) -> None:
        self._current[waiting.page.key] = waiting
        super().put(waiting, not_before)

    def take(self) -> Waiting:
        self._pass_over_void()
        waiting = super().take()
        del self._current[waiting.page.key]
        return waiting

    def take_all(self) -> list[Waiting]:
        everyone = sorted(self._current.values())
        self._line, self._later = [], []
        self.waiting = 0
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
        heappush(self._line, after)
        return True

    def change_keys(self, page_key: Callable[[Page], Key]) -> None:
        """Put everyone in a new order."""
        later = {waiting.page.key for _, waiting in self._later}
        self._current = {
            page: waiting._replace(key=page_key(waiting.page)) for page, waiting in self._current.items()
        }
        self._later = [(not_before, self._current[waiting.page.key]) for not_before, waiting in self._later]
        self._line = [waiting for page, waiting in self._current.items() if page not in later]
        heapify(self._line)
        heapify(self._later)

    @property
    def in_line(self) -> int:
        return len(self._current) - len(self._later)

    def ready_at(self) -> Instant:
        if self.busy or not self._current:
            return FOREVER
        self._pass_over_void()
        if self._line and self._line[0].key < HELD:
            return self.free_at
        coming = [at for at, waiting in self._later if waiting.key < HELD]
        return max(self.free_at, min(coming)) if coming else FOREVER

    def _first(self) -> Waiting:
        self._pass_over_void()
        return super()._first()

    def _pass_over_void(self) -> None:
        line, current = self._line, self._current
        while line and current.get(line[0].page.key) is not line[0]:
            heappop(line)
