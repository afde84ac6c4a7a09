"""The queue of one site's waiting pages.

`PageQueue` has the pages that may be fetched now, in order: by key, and with equal keys first in, first out.
Most orderings give few different keys (such as the depth), so there is a FIFO for each key, and only the keys
are in a heap. A FIFO keeps its pages and their serial numbers in parallel arrays, without an object for each
entry: with millions of waiting pages, objects scattered over memory cost cache misses.

`MemorySiteQueue` keeps all pages in memory. `ReorderableSiteQueue` is for orderings that change the keys of
waiting pages, `DiskBackedSiteQueue` keeps only the first pages in memory and the others in the store.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from headway.model.command import WaitingRecord
from headway.model.page import Page, PageKey, Site, is_again
from headway.policy.ordering.base import HELD, Key
from headway.units import FOREVER, Instant

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


class MemorySiteQueue:
    """The queue of one site: its pages in order, and the pages that are deferred until some instant.

    States of a known page, and what may follow:
        WAITING -> leased (it is requested) | FAILED or EXCLUDED (its site is unreachable, denied, or full)
        leased  -> DONE | WAITING (for a retry) | FAILED | EXCLUDED
        DONE, FAILED, EXCLUDED are final.
    Only WAITING pages are in a queue. Leased pages are in `Leases`, and count as WAITING in the store.
    """

    __slots__ = (
        "_deferred",
        "_pages",
        "busy",
        "deferred_visits",
        "free_at",
        "is_changed",
        "is_held",
        "is_parked",
        "number",
        "site",
        "waiting",
    )

    def __init__(self, site: Site) -> None:
        self.site = site
        self.free_at = Instant(0.0)
        self.busy = False
        """A request is in flight: the site is not ready, whatever pages are added."""
        self.is_held = False
        """No page is given out, because other sites are to be crawled first."""
        self.is_parked = False
        """No page is given out, because its server or domain is not free, or is being looked up."""
        self.is_changed = False
        """Its place in the heaps of sites has to be updated."""
        self.number = 0
        """The number of the site in the heaps of sites."""
        self.waiting = 0
        self.deferred_visits = 0
        """How many waiting pages were fetched before and are not due for their next visit yet."""
        self._pages = PageQueue()
        self._deferred: list[tuple[Instant, Waiting]] = []

    @property
    def first_key(self) -> Key:
        return self._pages.first_key if self._pages.count else self._deferred[0][1].key

    @property
    def first_serial(self) -> int:
        return self._pages.first_serial if self._pages.count else self._deferred[0][1].serial

    def put(self, waiting: Waiting, not_before: Instant | None = None) -> None:
        self.waiting += 1
        if not_before is None:
            self._pages.push(waiting)
        else:
            self._defer(waiting, not_before)

    @property
    def is_loaded(self) -> bool:
        """Whether the page that is due next is in memory."""
        return True

    @property
    def has_deferred(self) -> bool:
        """Whether pages are deferred until some instant."""
        return bool(self._deferred)

    def admit_due(self, now: Instant) -> None:
        """Move deferred pages that are due to the others."""
        while self._deferred and self._deferred[0][0] <= now:
            self._pages.push(self._pop_deferred())

    @property
    def due(self) -> int:
        """How many pages wait for anything but the time of their next visit."""
        return self.waiting - self.deferred_visits

    def _defer(self, waiting: Waiting, not_before: Instant) -> None:
        self.deferred_visits += is_again(waiting.attempt)
        heappush(self._deferred, (not_before, waiting))

    def _pop_deferred(self) -> Waiting:
        waiting = heappop(self._deferred)[1]
        self.deferred_visits -= is_again(waiting.attempt)
        return waiting

    def take(self) -> Waiting:
        self.waiting -= 1
        return self._pages.pop()

    def take_all(self) -> list[Waiting]:
        """Remove and return all pages, in order."""
        pages = self._pages.pop_all() + [waiting for _, waiting in sorted(self._deferred)]
        self._deferred = []
        self.waiting = self.deferred_visits = 0
        return pages

    def ready_at(self) -> Instant:
        """The instant from which a page of the site may be fetched; FOREVER while it is busy or empty."""
        if self.busy or self.is_held or self.is_parked or not self.waiting:
            return FOREVER
        return self.free_at if self._pages.count else max(self.free_at, self._deferred[0][0])


_MOST_STALE, _FEW_ENTRIES = 4, 1000


class ReorderableSiteQueue(MemorySiteQueue):
    """A queue for an ordering that changes the keys of waiting pages.

    A page whose key changes gets a new entry; the stale one is dropped when it comes to the front. Pages with
    the key HELD are counted as waiting, but do not make their site ready.
    """

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._current: dict[PageKey, Waiting] = {}
        """The valid entry of each page."""
        self._entries: list[Waiting] = []
        """A heap of the entries that are not deferred, and of stale ones."""

    def put(self, waiting: Waiting, not_before: Instant | None = None) -> None:
        self.waiting += 1
        self._current[waiting.page.key] = waiting
        if not_before is None:
            heappush(self._entries, waiting)
        else:
            self._defer(waiting, not_before)

    def admit_due(self, now: Instant) -> None:
        while self._deferred and self._deferred[0][0] <= now:
            heappush(self._entries, self._pop_deferred())

    def take(self) -> Waiting:
        self._drop_stale()
        waiting = heappop(self._entries)
        del self._current[waiting.page.key]
        self.waiting -= 1
        return waiting

    def take_all(self) -> list[Waiting]:
        pages = sorted(self._current.values())
        self._entries, self._deferred = [], []
        self.waiting = self.deferred_visits = 0
        self._current.clear()
        return pages

    def all_pages(self) -> list[Waiting]:
        return list(self._current.values())

    def change_key(self, page: PageKey, key: Key) -> bool:
        """Give a page another key. False if it is not in the queue, or has that key already."""
        before = self._current.get(page)
        if before is None or before.key == key:
            return False
        after = before._replace(key=key)
        self._current[page] = after
        for place, (not_before, waiting) in enumerate(self._deferred):
            if waiting is before:
                self._deferred[place] = (not_before, after)
                heapify(self._deferred)
                return True
        heappush(self._entries, after)
        if len(self._entries) > _MOST_STALE * len(self._current) + _FEW_ENTRIES:
            self._entries = [each for each in self._entries if self._current.get(each.page.key) is each]
            heapify(self._entries)
        return True

    def change_keys(self, page_key: Callable[[Page], Key]) -> None:
        """Compute the keys of all pages again."""
        later = {waiting.page.key for _, waiting in self._deferred}
        self._current = {
            page: waiting._replace(key=page_key(waiting.page)) for page, waiting in self._current.items()
        }
        self._deferred = [
            (not_before, self._current[waiting.page.key]) for not_before, waiting in self._deferred
        ]
        self._entries = [waiting for page, waiting in self._current.items() if page not in later]
        heapify(self._entries)
        heapify(self._deferred)

    def ready_at(self) -> Instant:
        if self.busy or self.is_held or self.is_parked or not self._current:
            return FOREVER
        self._drop_stale()
        if self._entries and self._entries[0].key < HELD:
            return self.free_at
        due = [at for at, waiting in self._deferred if waiting.key < HELD]
        return max(self.free_at, min(due)) if due else FOREVER

    @property
    def first_key(self) -> Key:
        return self._first().key

    @property
    def first_serial(self) -> int:
        return self._first().serial

    def _first(self) -> Waiting:
        self._drop_stale()
        return self._entries[0] if self._entries else self._deferred[0][1]

    def _drop_stale(self) -> None:
        entries, current = self._entries, self._current
        while entries and current.get(entries[0].page.key) is not entries[0]:
            heappop(entries)


_MAX_HELD = 4096
_MIN_HELD = 8
_MAX_LOADED = 64
_MAX_LOADED_SHARE = 1 / 16
_NO_END: tuple[Key, float] = (math.inf, math.inf)
_NOTHING_HELD: tuple[Key, float] = (-math.inf, 0)
_FIRST: tuple[Key, int] = (-math.inf, 0)


def pages_held_each(in_all: int, sites: int) -> int:
    """How many pages of each site to keep in memory, if `in_all` may be kept of all sites."""
    return max(_MIN_HELD, min(_MAX_HELD, in_all // max(1, sites)))


def pages_loaded_each(in_all: int, held_each: int) -> int:
    """How many pages to load from the store when a queue runs low. That may be more than are kept otherwise:
    few large loads cost less than many small ones, and only the queues of sites in progress are loaded."""
    return max(held_each, min(_MAX_LOADED, int(_MAX_LOADED_SHARE * in_all)))


class DiskBackedSiteQueue(MemorySiteQueue):
    """A queue that keeps the first pages of its site in memory, and leaves the others to the store.

    The order is the same as with all pages in memory: every page in memory comes before every page that is
    only in the store, and a new page that belongs after the last one in memory is left to the store. When the
    queue is nearly empty, the next pages are requested from the store; until they arrive, they count as
    waiting, but none can be taken.

    All pages that are due may be left to the store (`unload`). The queue keeps the key of the first one, so
    that its site has its place among the others; pages are loaded when the site is among the next ones.

    If the store is on another machine, its answer can be older than the queue. So the queue remembers which
    pages it has given out since the request, and does not treat pages that were saved since then as missing.
    """

    __slots__ = ("_end", "_first_stored", "_is_certain", "_kept_serial", "_taken", "spilled")

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self.spilled = 0
        """Pages that are only in the store; `waiting` includes them."""
        self._taken: set[PageKey] | None = None
        """While a load is in progress: the pages that were taken since it was requested, or were in flight
        then."""
        self._is_certain = True
        """Whether the store had all pages left to it when the load was requested."""
        self._end: tuple[Key, float] = _NO_END
        """The place of the last page in memory; pages after it are only in the store."""
        self._kept_serial: int | None = None
        """The site keeps its place among equals while its pages are loaded, until one is taken."""
        self._first_stored: tuple[Key, int] = _FIRST
        """The place of the first page in the store, or before it."""

    @property
    def held(self) -> int:
        """How many pages are in memory that are not deferred."""
        return self._pages.count

    @property
    def is_loaded(self) -> bool:
        return self._pages.count > 0

    @property
    def first_key(self) -> Key:
        if self._pages.count or not self.spilled:
            return super().first_key
        return self._first_stored[0]

    @property
    def first_serial(self) -> int:
        if self._kept_serial is not None:
            return self._kept_serial
        if self._pages.count or not self.spilled:
            return super().first_serial
        return self._first_stored[1]

    def put(self, waiting: Waiting, not_before: Instant | None = None) -> None:
        # A deferred page stays in memory: the queue must know when it is due.
        if not_before is None and self.spilled and (waiting.key, waiting.serial) > self._end:
            self.spilled += 1
            self.waiting += 1
            self._is_certain = False
            self._first_stored = min(self._first_stored, (waiting.key, waiting.serial))
        else:
            super().put(waiting, not_before)

    @property
    def is_loading(self) -> bool:
        return self._taken is not None

    @property
    def is_idle(self) -> bool:
        """Whether nothing of it is in memory but what `IdleQueues` keeps."""
        is_empty = not self._pages.count and not self._deferred and self._taken is None
        return is_empty and not self.busy and not self.is_parked and self.waiting == self.spilled

    @property
    def is_certain(self) -> bool:
        """Whether the store has all pages that were left to it."""
        return self._is_certain

    def resume(self, waiting: int, first: tuple[Key, int], *, is_certain: bool) -> None:
        """Go on as an idle queue that was put away: its pages are in the store."""
        self.waiting = self.spilled = waiting
        self._first_stored, self._is_certain = first, is_certain
        self._end = _NOTHING_HELD if waiting else _NO_END

    def take(self) -> Waiting:
        waiting = super().take()
        self._kept_serial = None
        if self._taken is not None:
            self._taken.add(waiting.page.key)
        return waiting

    def trim(self, each: int, loaded: int) -> None:
        """Keep `each` pages that are due in memory, once there are twice as many, or twice as many as a load
        brings."""
        if self._pages.count <= 2 * (loaded if self.spilled else each):
            return
        pages = self._pages.pop_all()
        for waiting in pages[:each]:
            self._pages.push(waiting)
        self.spilled += len(pages) - each
        self._is_certain = False
        self._end = pages[each - 1].key, pages[each - 1].serial
        self._first_stored = pages[each].key, pages[each].serial

    def unload(self) -> int:
        """Leave all pages that are due to the store; returns how many."""
        count = self._pages.count
        if not count or self.is_loading:
            return 0
        first = self._pages.first_key, self._pages.first_serial
        self._first_stored = min(self._first_stored, first) if self.spilled else first
        self._pages = PageQueue()
        self.spilled += count
        self._is_certain = False
        self._end = _NOTHING_HELD
        return count

    def is_short(self, each: int) -> bool:
        """Whether pages should be loaded from the store."""
        return self.spilled > 0 and not self.is_loading and self._pages.count <= each // 4

    def request_load(self, more: int, lent: Collection[PageKey]) -> int:
        """Begin a load; returns how many of the first pages in the store to read. The store also has those
        that are in memory, and the one in flight (`lent`)."""
        self._taken, self._is_certain = set(lent), True
        return more + len(self._pages) + len(self._deferred) + 1

    def count_stored(self, count: int, first: tuple[Key, int] = _FIRST) -> None:
        """Count pages that wait in the store, after all pages in memory. `first`: the place of the first."""
        pages = self._pages.pop_all()
        for waiting in pages:
            self._pages.push(waiting)
        self._end = (pages[-1].key, pages[-1].serial) if pages else _NOTHING_HELD
        self._first_stored = first
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
        """Add the first pages of the store, with serials from `serial` on. Returns how many pages that were
        counted as waiting in the store are not there."""
        if not self._pages.count and self.spilled:
            self._kept_serial = self.first_serial
        here = self._pages.page_keys() | (self._taken or set())
        here.update([waiting.page.key for _, waiting in self._deferred], lent)
        self._taken = None
        fresh = [record for record in records if record.page.key not in here]
        if fresh:
            last_key = page_key(fresh[-1].page)
            if last_key == page_key(fresh[0].page) and _all_new(fresh):
                # Records come in order, so all have this key: the usual case.
                self._pages.extend(last_key, serial, [record.page for record in fresh])
            else:
                self._load_mixed(fresh, page_key, serial)
            self._end = max(self._end, (last_key, serial + len(fresh) - 1))
        self.spilled -= len(fresh)
        missing = self.spilled if (is_all and self._is_certain) or self.spilled < 0 else 0
        self.spilled -= missing
        self.waiting -= missing
        if not self.spilled:
            self._end = _NO_END
        elif fresh:
            self._first_stored = self._end[0], serial + len(fresh) - 1
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
                self._pages.extend(last_key, place - len(alike), alike)
                alike = []
            if retry_at is not None:
                self._defer(Waiting(key, place, page, attempt), retry_at)
            elif attempt:
                self._pages.push(Waiting(key, place, page, attempt))
            else:
                alike.append(page)
            last_key = key
        if alike:
            self._pages.extend(last_key, serial + len(fresh) - len(alike), alike)

    def take_all(self) -> list[Waiting]:
        pages = super().take_all()
        self.waiting = self.spilled
        if self._taken is not None:
            self._taken.update([waiting.page.key for waiting in pages])
        return pages

    def forget_stored(self) -> int:
        """Stop counting the pages in the store, because another collector crawls the site. Returns how many
        they were."""
        count, self.spilled = self.spilled, 0
        self.waiting -= count
        self._taken, self._end = None, _NO_END
        return count

    def ready_at(self) -> Instant:
        if self._pages.count or (self.spilled and not self.is_loading):
            return FOREVER if self.busy or self.is_held or self.is_parked else self.free_at
        return super().ready_at() if self._deferred else FOREVER


_HELD, _CERTAIN = 1, 2


class IdleQueues:
    """The queues of idle sites, in columns: nothing of them is in memory or in flight. A site of a million
    takes 29 bytes here, and several hundred as an object."""

    def __init__(self) -> None:
        self._free_at = array("d")
        self._keys = array("d")
        self._serials = array("q")
        self._waiting = array("i")
        self._flags = bytearray()

    def put(self, queue: DiskBackedSiteQueue) -> None:
        number = queue.number
        if number >= len(self._flags):
            more = max(number + 1, len(self._flags) * 9 // 8) - len(self._flags)
            for column in (self._free_at, self._keys, self._serials, self._waiting):
                column.frombytes(bytes(more * column.itemsize))
            self._flags += bytes(more)
        self._free_at[number] = queue.free_at
        self._waiting[number] = queue.waiting
        self._flags[number] = (_HELD if queue.is_held else 0) | (_CERTAIN if queue.is_certain else 0)
        if queue.waiting:
            self._keys[number], self._serials[number] = queue.first_key, queue.first_serial

    def take(self, site: Site, number: int) -> DiskBackedSiteQueue:
        """The queue of an idle site, as an object again."""
        queue = DiskBackedSiteQueue(site)
        flags = self._flags[number]
        queue.number = number
        queue.free_at = Instant(self._free_at[number])
        queue.is_held = flags & _HELD > 0
        first = (self._keys[number], self._serials[number])
        queue.resume(self._waiting[number], first, is_certain=flags & _CERTAIN > 0)
        return queue

    def waiting(self, number: int) -> int:
        return self._waiting[number]


def _all_new(records: Sequence[WaitingRecord]) -> bool:
    return not any(record.attempt or record.retry_at is not None for record in records)
