"""The two-level frontier of castillo2004: heaps of sites, and for each site a queue of its pages."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

from headway.engine.site_heap import NO_SITE, UNSURE, SiteHeap, SiteOrder
from headway.engine.site_queue import (
    DiskBackedSiteQueue,
    IdleQueues,
    MemorySiteQueue,
    ReorderableSiteQueue,
    Waiting,
    pages_held_each,
    pages_loaded_each,
)
from headway.engine.stats import SiteNumbers
from headway.model.command import WaitingRecord
from headway.model.page import Page, PageKey, Site
from headway.policy.ordering.base import Key, LearningOrdering, Ordering, RankingOrdering
from headway.units import FOREVER, Instant, Seconds

_LOADED_AHEAD = 256
"""For so many of the next sites, pages are loaded together."""
_RANKED_AT_ONCE = 1500
"""Pages whose keys are computed again in one step."""
_beside = ThreadPoolExecutor(1, thread_name_prefix="headway-ranks")
_HAS_QUEUE, _NOTED, _UNSEEN, _UNCOUNTED, _UNJUDGED = 1, 2, 4, 8, 16


class Frontier:
    """The waiting pages of a crawl, by site; it says which site is next.

    A site that has pages and is not busy is in one of two heaps: `sleeping`, by the instant from which it may
    be asked, or `ready`, by the ordering's key. A learning ordering is given the links of settled pages, and
    may change the keys of waiting pages; other orderings have no cost for that.

    A queue is an object while pages of it are in memory or in flight; an idle one, whose pages are in the
    store, is put away in columns.
    """

    def __init__(
        self,
        ordering: Ordering,
        most_held: int | None = None,
        *,
        holds_sites: bool = False,
        numbers: SiteNumbers | None = None,
        page_key: Callable[[Page], Key] | None = None,
    ) -> None:
        """`page_key`: the order of the pages within their sites, if it is not the ordering's. `most_held`:
        how many waiting pages that are due are kept in memory, the others in the store; None: all. A learning
        ordering keeps all of them in memory. `holds_sites`: a site gives out pages only when `serve_only`
        allows."""
        self._ordering = ordering
        self._page_key = page_key or ordering.page_key
        self._learning = ordering if isinstance(ordering, LearningOrdering) else None
        self._holds_sites = holds_sites
        self._lent: set[PageKey] = set()
        """Pages in flight, if the ordering learns from their links."""
        self._ranking: Iterator[Instant] | None = None
        """New keys of all pages that are being computed beside the crawl: it yields when to go on."""
        self._ranked = 0
        """Pages given to the ordering in the present step of it."""
        self._go_on_at = FOREVER
        self._numbers = SiteNumbers() if numbers is None else numbers
        self._queues: list[MemorySiteQueue | None] = []
        """By number; None: the site is idle, or has no queue."""
        self._idle = IdleQueues()
        self._flags = bytearray()
        """By number: whether a site has a queue, and for whom it has changed."""
        self._count = 0
        self._sleeping: SiteOrder = SiteHeap()
        """Each with its key for `_ready`, unless deferred pages become due before the site wakes."""
        self._ready: SiteOrder = SiteHeap()
        self._changed: list[MemorySiteQueue] = []
        self._noted = array("i")
        """The numbers of queues that have changed since `take_changed`."""
        self._unseen = array("i")
        """The numbers of queues that have changed since `take_unseen`."""
        self._uncounted = array("i")
        """The numbers of queues that have changed since `active`."""
        self._active: dict[int, None] = {}
        self._unjudged = array("i")
        """The numbers of queues that have changed since `serve_only`."""
        self._served: frozenset[int] | None = frozenset() if holds_sites else None
        self._held_back: set[int] = set()
        self._serial = 0
        self._most_held = most_held if self._learning is None else None
        self._held_each = self._loaded_each = self._trimmed_to = 0
        self._short: dict[Site, DiskBackedSiteQueue] = {}
        self.waiting = 0
        self._loaded: dict[int, DiskBackedSiteQueue] = {}
        """Queues that had such pages when they were last looked at, by number."""
        self._loading = 0
        """Queues whose pages have been asked for."""
        self.held = 0
        """Waiting pages in memory that are due, if others are in the store."""

    def queue(self, site: Site) -> MemorySiteQueue:
        """The queue of a site, to be changed; a site without one gets one."""
        number = self._numbers.number(site)
        if number >= len(self._flags):
            more = max(number + 1, len(self._flags) * 9 // 8) - len(self._flags)
            self._flags += bytes(more)
            self._queues += [None] * more
        queue = self._queues[number]
        if queue is None:
            name = self._numbers.sites[number]
            if self._flags[number] & _HAS_QUEUE:
                queue = self._idle.take(name, number)
            else:
                self._flags[number] = _HAS_QUEUE
                self._count += 1
                queue = self._new_queue(name)
                queue.number = number
                queue.is_held = self._holds_sites
            self._queues[number] = queue
        return queue

    def peek(self, site: Site) -> MemorySiteQueue | None:
        """The queue of a site, if it has one, to be read. Readers must not create queues: the order of their
        creation decides ties, so the crawl would depend on when it was looked at."""
        number = self.number_of(site)
        return None if number < 0 else self.at(number)

    def number_of(self, site: Site) -> int:
        """The number of a site that has a queue, else -1."""
        number = self._numbers.find(site)
        return number if 0 <= number < len(self._flags) and self._flags[number] & _HAS_QUEUE else -1

    def at(self, number: int) -> MemorySiteQueue:
        """The queue with a number, to be read."""
        return self._queues[number] or self._idle.take(self._numbers.sites[number], number)

    def waiting_of(self, site: Site) -> int:
        """The number of waiting pages of a site. Like `peek`, it creates no queue."""
        number = self.number_of(site)
        if number < 0:
            return 0
        queue = self._queues[number]
        return self._idle.waiting(number) if queue is None else queue.waiting

    def _new_queue(self, site: Site) -> MemorySiteQueue:
        if self._learning is not None:
            return ReorderableSiteQueue(site)
        if self._most_held is None:
            return MemorySiteQueue(site)
        self._held_each = pages_held_each(self._most_held, self._count)
        self._loaded_each = pages_loaded_each(self._most_held, self._held_each)
        if 2 * self._held_each <= self._trimmed_to:
            # With more sites, each earlier queue may keep fewer pages.
            for queue in self._queues:
                if not isinstance(queue, DiskBackedSiteQueue):
                    continue
                before = queue.held
                queue.trim(self._held_each, self._loaded_each)
                self.held += queue.held - before
        if 2 * self._held_each <= self._trimmed_to or not self._trimmed_to:
            self._trimmed_to = self._held_each
        return DiskBackedSiteQueue(site)

    @property
    def most_held(self) -> int | None:
        """About how many waiting pages are kept in memory; None: all."""
        return self._most_held

    def queues(self) -> Iterator[MemorySiteQueue]:
        """All queues, to be read."""
        # By number: mypyc does not iterate a bytearray.
        return (self.at(number) for number in range(len(self._flags)) if self._flags[number] & _HAS_QUEUE)

    def put(self, page: Page, attempt: int = 0, not_before: Instant | None = None) -> None:
        self._serial += 1
        queue = self.queue(page.site)
        waiting = Waiting(self._page_key(page), self._serial, page, attempt)
        self.waiting += 1
        self._mark(queue)
        if isinstance(queue, DiskBackedSiteQueue):
            before = queue.held
            queue.put(waiting, not_before)
            queue.trim(self._held_each, self._loaded_each)
            self._count_held(queue, before)
        else:
            queue.put(waiting, not_before)

    def occupy(self, site: Site) -> None:
        """Mark a site as busy: no page of it is given out until `free`."""
        queue = self.queue(site)
        queue.busy = True
        self._mark(queue)

    def free(self, site: Site, at: Instant) -> None:
        """Mark a site as free from an instant on."""
        queue = self.queue(site)
        queue.busy = False
        queue.free_at = at
        self._mark(queue)
        if isinstance(queue, DiskBackedSiteQueue):
            self._count_held(queue, queue.held)

    def park(self, queue: MemorySiteQueue) -> tuple[Key, int]:
        """Keep a ready site from being served until `unpark`; returns its place among the ready ones."""
        place = self._ordering.site_key(queue), queue.first_serial
        queue.is_parked = True
        self._mark(queue, is_noted=False)
        return place

    def unpark(self, site: Site) -> None:
        queue = self.queue(site)
        queue.is_parked = False
        self._mark(queue, is_noted=False)

    def serve_only(self, served: frozenset[int] | None) -> None:
        """Hold back the sites without a number among these; None: no site. A site of which nothing is due is
        not held back: the planner learns of a page when the time of its next visit has come.

        Only sites are looked at that have changed, or that are served now and were not before, or the other
        way round."""
        before, self._served = self._served, served
        numbers = set(self._unjudged)
        del self._unjudged[:]
        for number in numbers:
            self._flags[number] &= ~_UNJUDGED
        if served is None:
            numbers |= self._held_back
        elif before is None:
            numbers.update(self.active())
        else:
            numbers |= before ^ served
        for number in sorted(numbers):
            if number < len(self._flags) and self._flags[number] & _HAS_QUEUE:
                self._judge(number)

    def _judge(self, number: int) -> None:
        """Hold a site back, or release it."""
        looked_at = self.at(number)
        is_held = self._served is not None and looked_at.due > 0 and number not in self._served
        if is_held:
            self._held_back.add(number)
        else:
            self._held_back.discard(number)
        if is_held != looked_at.is_held:
            queue = self.queue(looked_at.site)
            queue.is_held = is_held
            self._mark(queue)

    def count_elsewhere(self, site: Site, waiting: int) -> None:
        """Count the pages of a site that wait in the process that crawls it. None is given out here."""
        queue = self.queue(site)
        self.waiting += waiting - queue.waiting
        queue.waiting = waiting
        self._mark(queue)
        if not queue.busy:
            self.occupy(site)

    def next_site(self, now: Instant) -> MemorySiteQueue | None:
        """The free site that comes next in the ordering and has a page to fetch; it stays in the heap."""
        self._update_heaps(now)
        number = self._ready.first()
        if number == NO_SITE:
            return None
        queue = self._queues[number]
        if queue is None or not queue.is_loaded:
            self._load_next()
            number = self._ready.first()
            queue = None if number == NO_SITE else self._queues[number]
        return None if queue is None or not queue.is_loaded else queue

    def next_sites(self, now: Instant, most: int) -> list[MemorySiteQueue]:
        """The first free sites, in the order in which `next_site` would return them."""
        self._update_heaps(now)
        found = [self._queues[number] for number in self._ready.first_few(most)]
        queues = [queue for queue in found if queue is not None and queue.is_loaded]
        if len(queues) < len(found):
            self._load_next()
        return queues

    @property
    def _ahead(self) -> int:
        """For how many sites pages are loaded together: they take half of the memory at most."""
        most = self._most_held or 0
        return max(1, min(_LOADED_AHEAD, most // (2 * max(1, self._loaded_each))))

    def _load_next(self) -> None:
        """Ask for the pages of the next sites. Until they are loaded, the sites are not ready."""
        for number in self._ready.first_few(max(0, self._ahead - self._loading - len(self._short))):
            queue = self._queues[number]
            if queue is None:
                queue = self.queue(self._numbers.sites[number])
            if isinstance(queue, DiskBackedSiteQueue) and not queue.is_loaded:
                self._short[queue.site] = queue
                self._ready.remove(number)

    def take(self, queue: MemorySiteQueue) -> Waiting:
        """Remove and return the next page of a site that `next_site` or `next_sites` returned."""
        self.waiting -= 1
        self._mark(queue)
        waiting = queue.take()
        if isinstance(queue, DiskBackedSiteQueue):
            self.held -= 1
        if self._learning is not None:
            self._lent.add(waiting.page.key)
        elif self._most_held is not None:
            self._note_if_short(queue)
        return waiting

    def take_all(self, site: Site) -> list[Waiting]:
        """Remove and return the pages of a site that are in memory."""
        queue = self.queue(site)
        if isinstance(queue, DiskBackedSiteQueue):
            self.held -= queue.held
        pages = queue.take_all()
        self.waiting -= len(pages)
        self._mark(queue)
        if self._learning is not None:
            for waiting in pages:
                self._learning.settled(waiting.page, ())
        self._note_if_short(queue)
        return pages

    def leave(self, site: Site) -> None:
        """Drop all pages of a site, also those counted in the store: another collector crawls it from now
        on."""
        self.take_all(site)
        queue = self.queue(site)
        if isinstance(queue, DiskBackedSiteQueue):
            self._short.pop(site, None)
            self._loading -= queue.is_loading
            self.waiting -= queue.forget_stored()

    # -- pages that wait in the store -------------------------------------------------------------------

    def count_stored(self, site: Site, count: int, first_key: Key | None = None) -> None:
        """Count pages of a site that wait in the store, in addition to the pages put in. `first_key`:
        the key of the first of them, if none was put in."""
        queue = self.queue(site)
        assert isinstance(queue, DiskBackedSiteQueue)
        self._serial += 1
        queue.count_stored(count, (-math.inf if first_key is None else first_key, self._serial))
        self.waiting += count
        self._mark(queue)
        if queue.is_loaded:
            self._note_if_short(queue)

    @property
    def is_short(self) -> bool:
        """Whether a queue needs pages from the store: see `load_requests`."""
        return bool(self._short)

    def load_requests(self, lent: Collection[PageKey]) -> list[tuple[Site, int]]:
        """The sites that need pages from the store, and how many of the first pages there to load. Each
        request is returned once. `lent`: the pages in flight, which still wait in the store."""
        requests = [
            (queue.site, queue.request_load(self._loaded_each, lent)) for queue in self._short.values()
        ]
        self._loading += len(requests)
        self._short.clear()
        return requests

    def count_unseen(self, site: Site, count: int) -> None:
        """Count pages that wait in the store and were found by another collector."""
        queue = self.queue(site)
        assert isinstance(queue, DiskBackedSiteQueue)
        queue.spilled += count
        queue.waiting += count
        self.waiting += count
        self._mark(queue)

    def load(
        self, site: Site, records: Sequence[WaitingRecord], lent: Collection[PageKey], *, is_all: bool
    ) -> None:
        """Add the first pages that the store has of a site, in order. Pages in memory or in flight may be
        among them."""
        queue = self.queue(site)
        assert isinstance(queue, DiskBackedSiteQueue)
        before = queue.held
        self._loading -= queue.is_loading
        self.waiting -= queue.load(records, lent, self._page_key, self._serial + 1, is_all=is_all)
        self._serial += len(records)
        queue.trim(self._held_each, self._loaded_each)
        self._count_held(queue, before, is_wanted=True)
        self._mark(queue)
        self._note_if_short(queue)

    def _count_held(self, queue: DiskBackedSiteQueue, before: int, *, is_wanted: bool = False) -> None:
        """Count what a change has brought into memory. Beyond the bound, the pages of the queue are left to
        the store until its site is among the next ones; or if its pages are wanted now, those of the queues
        whose pages have been in memory for longest."""
        self.held += queue.held - before
        if is_wanted:
            self._loaded.pop(queue.number, None)
        if queue.held:
            self._loaded[queue.number] = queue
        if self._most_held is None or self.held <= self._most_held or len(self._loaded) <= self._ahead:
            return  # a few sites may fill the memory: each is trimmed by itself
        if not is_wanted:
            self.held -= queue.unload()
            return
        while self.held > self._most_held and len(self._loaded) > self._ahead:
            other = self._loaded.pop(next(iter(self._loaded)))
            self.held -= other.unload()
            self._mark(other, is_noted=False)

    def _note_if_short(self, queue: MemorySiteQueue) -> None:
        if not isinstance(queue, DiskBackedSiteQueue) or not queue.is_short(self._held_each):
            return
        if self._most_held is None or self.held < self._most_held:
            self._short[queue.site] = queue

    # -- learning orderings, and the heaps of sites -----------------------------------------------------

    def settled(self, page: Page, links: Sequence[Page] = ()) -> None:
        """Tell a learning ordering that a page that was taken has settled with these links. Call it before
        the links, or the page itself, are put in."""
        if self._learning is None or page.key not in self._lent:
            return
        self._lent.discard(page.key)
        for shifted in self._learning.settled(page, links):
            number = self.number_of(shifted.site)
            queue = None if number < 0 else self._queues[number]
            if isinstance(queue, ReorderableSiteQueue) and queue.change_key(
                shifted.key, self._page_key(shifted)
            ):
                self._mark(queue)

    def sites_changed(self, numbers: Iterable[int] | None = None) -> None:
        """Compute the keys of these sites again, or of all, because what the ordering knows of them has
        changed."""
        if numbers is None:
            # By number: mypyc does not iterate a bytearray.
            numbers = [number for number in range(len(self._flags)) if self._flags[number] & _HAS_QUEUE]
        for number in numbers:
            self._mark(self.queue(self._numbers.sites[number]), is_noted=False)

    def task_changed(self, site: Site) -> None:
        """The deadline or the limits of a site have changed."""
        if self.number_of(site) >= 0:
            self._mark(self.queue(site))

    def take_changed(self, most: int) -> Sequence[int]:
        """The numbers of queues that have changed since they were last returned, each once and at most so
        many."""
        changed = self._noted[:most]
        del self._noted[:most]
        for number in changed:
            self._flags[number] &= ~_NOTED
        return changed

    @property
    def unseen(self) -> int:
        """How many queues `take_unseen` would return."""
        return len(self._unseen)

    def take_unseen(self, most: int) -> Sequence[int]:
        """As `take_changed`, for one who only looks."""
        unseen = self._unseen[:most]
        del self._unseen[:most]
        for number in unseen:
            self._flags[number] &= ~_UNSEEN
        return unseen

    def active(self) -> Collection[int]:
        """The numbers of queues with pages that wait or are in flight. The queues that have changed since the
        last call are looked at, not the others."""
        for number in self._uncounted:
            self._flags[number] &= ~_UNCOUNTED
            queue = self._queues[number]
            is_active = self._idle.waiting(number) > 0 if queue is None else queue.waiting > 0 or queue.busy
            if is_active:
                self._active[number] = None
            else:
                self._active.pop(number, None)
        del self._uncounted[:]
        return self._active.keys()

    def next_active(self, most: int) -> list[Site]:
        """Some of the sites of `active`, others each time if there are more."""
        self.active()
        numbers = list(islice(self._active, most))
        if len(numbers) < len(self._active):
            for number in numbers:
                del self._active[number]
                self._active[number] = None
        return [self._numbers.sites[number] for number in sorted(numbers)]

    def next_ready_at(self, now: Instant) -> Instant:
        """The next instant at which a sleeping site may be asked; FOREVER if none sleeps."""
        self._update_heaps(now)
        return Instant(min(self._sleeping.first_key(), self._go_on_at))

    def _update_heaps(self, now: Instant) -> None:
        """Bring both heaps up to date: place changed sites, and wake sleeping sites that are due."""
        if self._learning is not None:
            self._learn(now, self._learning)
        for number in self._sleeping.move_until(now, self._ready):
            self._mark(self.queue(self._numbers.sites[number]))
        if self._changed:
            self.place_changed(now)

    def place_changed(self, now: Instant) -> None:
        """Bring the places of changed sites in the heaps up to date."""
        changed, self._changed = self._changed, []
        for queue in changed:
            self._place(now, queue)

    def _mark(self, queue: MemorySiteQueue, *, is_noted: bool = True) -> None:
        """Place a queue again. `is_noted`: because it has changed, and not only what is known of it."""
        if not queue.is_changed:
            queue.is_changed = True
            self._changed.append(queue)
        if is_noted:
            self._note(queue.number)

    def _note(self, number: int) -> None:
        flags = self._flags[number]
        if not flags & _NOTED:
            self._noted.append(number)
        if not flags & _UNSEEN:
            self._unseen.append(number)
        if not flags & _UNCOUNTED:
            self._uncounted.append(number)
        if not flags & _UNJUDGED:
            self._unjudged.append(number)
        self._flags[number] = flags | _NOTED | _UNSEEN | _UNCOUNTED | _UNJUDGED

    def _put_away(self, queue: MemorySiteQueue) -> None:
        """Keep an idle queue in columns."""
        if isinstance(queue, DiskBackedSiteQueue) and queue.is_idle and queue.site not in self._short:
            self._loaded.pop(queue.number, None)
            self._idle.put(queue)
            self._queues[queue.number] = None

    def _learn(self, now: Instant, learning: LearningOrdering) -> None:
        """Have all waiting pages ordered again when it is time: at once, or if they are many in steps."""
        if self._ranking is None and self.waiting and learning.is_due():
            ranking = learning.ranking() if isinstance(learning, RankingOrdering) else None
            if ranking is None:
                self._reorder(learning)
                return
            assert isinstance(learning, RankingOrdering)
            self._ranking = self._rank_in_steps(now, learning, *ranking)
            self._go_on_at = now
        if self._ranking is not None and now >= self._go_on_at:
            self._go_on_at = FOREVER
            for at in self._ranking:
                self._go_on_at = max(at, now)
                return
            self._ranking = None

    def _rank_in_steps(
        self, now: Instant, learning: RankingOrdering, after_s: Seconds, compute: Callable[[], object]
    ) -> Iterator[Instant]:
        begun = _beside.submit(compute)
        yield Instant(now + after_s)
        learning.adopt(begun.result())
        for queue in [queue for queue in self._queues if isinstance(queue, ReorderableSiteQueue)]:
            pages = queue.all_pages()
            for first in range(0, len(pages), _RANKED_AT_ONCE):
                part = [waiting.page for waiting in pages[first : first + _RANKED_AT_ONCE]]
                changed = learning.choose(part)
                self._change_keys(changed)
                if self._is_enough(len(part)):
                    yield now
        chosen = learning.chosen()
        for first in range(0, len(chosen), _RANKED_AT_ONCE):
            self._change_keys(chosen[first : first + _RANKED_AT_ONCE])
            yield now

    def _is_enough(self, pages: int) -> bool:
        """Whether a step has done enough, with these further pages."""
        self._ranked += pages
        if self._ranked < _RANKED_AT_ONCE:
            return False
        self._ranked = 0
        return True

    def _change_keys(self, pages: Iterable[Page]) -> None:
        for page in pages:
            number = self.number_of(page.site)
            queue = None if number < 0 else self._queues[number]
            if isinstance(queue, ReorderableSiteQueue) and queue.change_key(page.key, self._page_key(page)):
                self._mark(queue)

    def _reorder(self, learning: LearningOrdering) -> None:
        queues = [queue for queue in self._queues if isinstance(queue, ReorderableSiteQueue)]
        pages = [waiting for queue in queues for waiting in queue.all_pages()]
        pages.sort(key=lambda waiting: waiting.serial)
        learning.reorder([waiting.page for waiting in pages])
        for queue in queues:
            queue.change_keys(learning.page_key)
        self.sites_changed()

    def _place(self, now: Instant, queue: MemorySiteQueue) -> None:
        self._place_in_heap(now, queue)
        self._put_away(queue)

    def _place_in_heap(self, now: Instant, queue: MemorySiteQueue) -> None:
        queue.is_changed = False
        number, at = queue.number, queue.ready_at()
        if at > now:
            self._ready.remove(number)
        else:
            self._sleeping.remove(number)
            visits = queue.deferred_visits
            if isinstance(queue, DiskBackedSiteQueue):
                before = queue.held
                queue.admit_due(now)
                self.held += queue.held - before
            else:
                queue.admit_due(now)
            if queue.deferred_visits != visits:
                self._note(number)
            key = self._ordering.site_key(queue)
            self._ready.put(number, key, queue.first_serial, key)
            return
        if at >= FOREVER:
            self._sleeping.remove(number)
        else:
            # The key stays valid while the site sleeps: a site that changes is placed again.
            then = UNSURE if queue.has_deferred else self._ordering.site_key(queue)
            self._sleeping.put(number, at, queue.first_serial, then)
