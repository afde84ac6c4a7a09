"""A waiting room that holds the first pages of its site, and leaves the rest to the store.

The order is the same as without: every page in the room comes before every page that is only in the store,
and a page that belongs behind the last one held goes there at once. When the room is nearly empty, the
next ones are asked for; until they are there it counts them, but has nothing more to give.

What the store says may be some moments old when it comes, since where several work on a crawl the store is
elsewhere. So what leaves the room meanwhile is remembered, and what is sent to the store meanwhile is not
taken for missing there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence

from headway.frontier.line import Waiting
from headway.frontier.room import Room
from headway.model.page import Page, PageKey, Site
from headway.model.snapshot import WaitingRecord
from headway.policy.ordering.base import Key
from headway.units import FOREVER, Instant

_MOST_EACH = 4096
_LEAST_EACH = 8
_WELL_LOADED = 64
_OF_ALL = 1 / 16
_NO_END: tuple[Key, float] = (math.inf, math.inf)


def pages_held_each(in_all: int, sites: int) -> int:
    """How many pages of each site are held when so many may be held of all of them."""
    return max(_LEAST_EACH, min(_MOST_EACH, in_all // max(1, sites)))


def pages_loaded_each(in_all: int, held_each: int) -> int:
    """How many pages a site is given when it runs short: few large loads cost less than many small ones, and
    of all sites only those are loaded whose turn comes often."""
    return max(held_each, min(_WELL_LOADED, int(_OF_ALL * in_all)))


class SpillingRoom(Room):
    __slots__ = ("_end", "_gone", "_is_certain", "spilled")

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self.spilled = 0
        """Pages that wait in the store only; they are counted in `waiting`."""
        self._gone: set[PageKey] | None = None
        """While pages are being loaded, those that have left the room, or were lent out, since they were
        asked for."""
        self._is_certain = True
        """The store was asked when it had all that this room has left to it."""
        self._end: tuple[Key, float] = _NO_END
        """The place of the last page held: what comes behind it is not."""

    def put(self, waiting: Waiting, not_before: Instant | None = None) -> None:
        # A page that is to be tried again stays: only the room knows when its penalty is over.
        if not_before is None and self.spilled and (waiting.key, waiting.serial) > self._end:
            self.spilled += 1
            self.waiting += 1
            self._is_certain = False
        else:
            super().put(waiting, not_before)

    @property
    def is_loading(self) -> bool:
        return self._gone is not None

    def take(self) -> Waiting:
        waiting = super().take()
        if self._gone is not None:
            self._gone.add(waiting.page.key)
        return waiting

    def trim(self, each: int, loaded: int) -> None:
        """Hold no more than so many of those in line, once it has become twice as many, or twice a load."""
        if self._line.count <= 2 * (loaded if self.spilled else each):
            return
        everyone = self._line.pop_all()
        for waiting in everyone[:each]:
            self._line.push(waiting)
        self.spilled += len(everyone) - each
        self._is_certain = False
        self._end = everyone[each - 1].key, everyone[each - 1].serial

    def is_short(self, each: int) -> bool:
        """Whether it is time to ask for more."""
        return self.spilled > 0 and not self.is_loading and self._line.count <= each // 4

    def wish(self, more: int, lent: Collection[PageKey]) -> int:
        """How many pages to ask the store for: it has those held here, and the one lent out, as well."""
        self._gone, self._is_certain = set(lent), True
        return more + len(self._line) + len(self._later) + 1

    def spill_all_but_held(self, count: int) -> None:
        """So many more wait in the store than have been put in."""
        everyone = self._line.pop_all()
        for waiting in everyone:
            self._line.push(waiting)
        self._end = (everyone[-1].key, everyone[-1].serial) if everyone else (-math.inf, 0)
        self.spilled += count
        self.waiting += count

    def load(
        self,
        records: Sequence[WaitingRecord],
        lent: Collection[PageKey],
        page_key: Callable[[Page], Key],
        serial: int,
        *,
        is_all: bool,
    ) -> int:
        """Take in what the store has first, with serials from `serial` on; returns by how much fewer pages
        wait than was thought."""
        here = self._line.page_keys() | (self._gone or set())
        here.update([waiting.page.key for _, waiting in self._later], lent)
        self._gone = None
        fresh = [record for record in records if record.page.key not in here]
        if fresh:
            last_key = page_key(fresh[-1].page)
            if last_key == page_key(fresh[0].page) and _all_new(fresh):
                # In order, so those in between have the same key; so it is with most loads.
                self._line.extend(last_key, serial, [record.page for record in fresh])
            else:
                self._load_mixed(fresh, page_key, serial)
            self._end = max(self._end, (last_key, serial + len(fresh) - 1))
        self.spilled -= len(fresh)
        missing = self.spilled if (is_all and self._is_certain) or self.spilled < 0 else 0
        self.spilled -= missing
        self.waiting -= missing
        if not self.spilled:
            self._end = _NO_END
        return missing

    def _load_mixed(
        self, fresh: Sequence[WaitingRecord], page_key: Callable[[Page], Key], serial: int
    ) -> None:
        alike: list[Page] = []
        last_key = math.nan
        for place, record in enumerate(fresh, serial):
            page, attempt, retry_at = record.page, record.attempt, record.retry_at
            key = page_key(page)
            if alike and (key != last_key or attempt or retry_at is not None):
                self._line.extend(last_key, place - len(alike), alike)
                alike = []
            if retry_at is not None:
                self._put_off(Waiting(key, place, page, attempt), retry_at)
            elif attempt:
                self._line.push(Waiting(key, place, page, attempt))
            else:
                alike.append(page)
            last_key = key
        if alike:
            self._line.extend(last_key, serial + len(fresh) - len(alike), alike)

    def take_all(self) -> list[Waiting]:
        everyone = super().take_all()
        self.waiting = self.spilled
        if self._gone is not None:
            self._gone.update([waiting.page.key for waiting in everyone])
        return everyone

    def forget_the_store(self) -> int:
        """What waits there is others' business from now on; returns how many pages that were."""
        count, self.spilled = self.spilled, 0
        self.waiting -= count
        self._gone, self._end = None, _NO_END
        return count

    def ready_at(self) -> Instant:
        if self._line.count:
            return FOREVER if self.busy else self.free_at
        return super().ready_at() if self._later else FOREVER


def _all_new(records: Sequence[WaitingRecord]) -> bool:
    return not any(record.attempt or record.retry_at is not None for record in records)
