"""The two-level waiting room of castillo2004: a heap of sites, and for each site a heap of pages.

A site stands in one of two heaps while it has pages and is not busy: `sleeping`, by the instant from
which it may be asked, or `ready`, by the ordering's key. An ordering that learns from links is told of the
pages that are done with, and may change the keys of those that wait; others pay nothing for that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from headway.frontier.line import Waiting
from headway.frontier.places import NOBODY, UNSURE, Order, Places
from headway.frontier.room import Room
from headway.frontier.shifting import ShiftingRoom
from headway.frontier.spilling import SpillingRoom, pages_held_each, pages_loaded_each
from headway.model.page import Page, PageKey, Site
from headway.model.snapshot import WaitingRecord
from headway.policy.ordering.base import LearningOrdering, Ordering
from headway.units import FOREVER, Instant


class Frontier:
    def __init__(self, ordering: Ordering, most_held: int | None = None) -> None:
        """Of the pages that wait, about `most_held` are in memory and the others in the store; None: all. An
        ordering that learns needs all of them at hand."""
        self._ordering = ordering
        self._learning = ordering if isinstance(ordering, LearningOrdering) else None
        self._lent: set[PageKey] = set()
        """Pages that a learning ordering waits to hear of."""
        self._rooms: dict[Site, Room] = {}
        self._numbered: list[Room] = []
        self._sleeping: Order = Places()
        """Each with its key among the ready, unless pages come into line before the site wakes."""
        self._ready: Order = Places()
        self._changed: list[Room] = []
        self._serial = 0
        self._most_held = most_held if self._learning is None else None
        self._held_each = self._loaded_each = self._trimmed_to = 0
        self._short: dict[Site, SpillingRoom] = {}
        self.waiting = 0

    def room(self, site: Site) -> Room:
        room = self._rooms.get(site)
        if room is None:
            room = self._rooms[site] = self._new_room(site)
            room.number = len(self._numbered)
            self._numbered.append(room)
        return room

    def _new_room(self, site: Site) -> Room:
        if self._learning is not None:
            return ShiftingRoom(site)
        if self._most_held is None:
            return Room(site)
        self._held_each = pages_held_each(self._most_held, len(self._rooms) + 1)
        self._loaded_each = pages_loaded_each(self._most_held, self._held_each)
        if 2 * self._held_each <= self._trimmed_to:
            # With so many sites, those that came before have to hold less than they did.
            for room in self._rooms.values():
                assert isinstance(room, SpillingRoom)
                room.trim(self._held_each, self._loaded_each)
        if 2 * self._held_each <= self._trimmed_to or not self._trimmed_to:
            self._trimmed_to = self._held_each
        return SpillingRoom(site)

    @property
    def most_held(self) -> int | None:
        """About how many of the pages that wait are in memory; None: all."""
        return self._most_held

    def rooms(self) -> Iterator[Room]:
        return iter(self._rooms.values())

    def put(self, page: Page, attempt: int = 0, not_before: Instant | None = None) -> None:
        self._serial += 1
        room = self.room(page.site)
        room.put(Waiting(self._ordering.page_key(page), self._serial, page, attempt), not_before)
        self.waiting += 1
        self._mark(room)
        if isinstance(room, SpillingRoom):
            room.trim(self._held_each, self._loaded_each)

    def occupy(self, site: Site) -> None:
        """The site is being asked: nothing more to it until `free`."""
        room = self._rooms[site]
        room.busy = True
        if not room.is_changed:
            self._mark(room)

    def free(self, site: Site, at: Instant) -> None:
        """The site has answered, and may be asked again from an instant on."""
        room = self._rooms.get(site) or self.room(site)
        room.busy = False
        room.free_at = at
        if not room.is_changed:
            self._mark(room)

    def next_site(self, now: Instant) -> Room | None:
        """The free site that the ordering wants next, with at least one page in line; it is not taken yet."""
        self._settle(now)
        number = self._ready.first()
        return None if number == NOBODY else self._numbered[number]

    def next_sites(self, now: Instant, most: int) -> list[Room]:
        """The first few of the free sites, in the order in which `next_site` would name them."""
        self._settle(now)
        return [self._numbered[number] for number in self._ready.first_few(most)]

    def take(self, room: Room) -> Waiting:
        """The next page of a site that `next_site` or `next_sites` named."""
        self.waiting -= 1
        if not room.is_changed:
            self._mark(room)
        waiting = room.take()
        if self._learning is not None:
            self._lent.add(waiting.page.key)
        elif self._most_held is not None:
            self._mind(room)
        return waiting

    def take_all(self, site: Site) -> list[Waiting]:
        room = self.room(site)
        everyone = room.take_all()
        self.waiting -= len(everyone)
        self._mark(room)
        if self._learning is not None:
            for waiting in everyone:
                self._learning.settled(waiting.page, ())
        self._mind(room)
        return everyone

    def leave(self, site: Site) -> None:
        """Others will ask this site: nothing of it waits here any more, in the room or behind it."""
        self.take_all(site)
        room = self.room(site)
        if isinstance(room, SpillingRoom):
            self._short.pop(site, None)
            self.waiting -= room.forget_the_store()

    # -- pages that wait in the store -------------------------------------------------------------------

    def left_in_store(self, site: Site, count: int) -> None:
        """Of this site, so many pages more wait than have been put in."""
        room = self.room(site)
        assert isinstance(room, SpillingRoom)
        room.spill_all_but_held(count)
        self.waiting += count
        self._mind(room)

    @property
    def is_short(self) -> bool:
        """Whether there are any `wishes`."""
        return bool(self._short)

    def wishes(self, lent: Collection[PageKey]) -> list[tuple[Site, int]]:
        """Sites whose next pages are wanted from the store, and how many of the first it has. Asked once."""
        wishes = [(room.site, room.wish(self._loaded_each, lent)) for room in self._short.values()]
        self._short.clear()
        return wishes

    def wait_unknown(self, site: Site, count: int) -> None:
        """In the store, so many pages of this site wait that nobody has told us of."""
        room = self.room(site)
        assert isinstance(room, SpillingRoom)
        room.spilled += count
        room.waiting += count
        self.waiting += count

    def load(
        self, site: Site, records: Sequence[WaitingRecord], lent: Collection[PageKey], *, is_all: bool
    ) -> None:
        """The first pages of a site that the store has, in order; those held or lent out are among them."""
        room = self.room(site)
        assert isinstance(room, SpillingRoom)
        self.waiting -= room.load(records, lent, self._ordering.page_key, self._serial + 1, is_all=is_all)
        self._serial += len(records)
        room.trim(self._held_each, self._loaded_each)
        self._mark(room)
        self._mind(room)

    def _mind(self, room: Room) -> None:
        if isinstance(room, SpillingRoom) and room.is_short(self._held_each):
            self._short[room.site] = room

    # -- the heaps of sites -----------------------------------------------------------------------------

    def settled(self, page: Page, links: Sequence[Page] = ()) -> None:
        """A page that was taken is done with, for now or for good, and had these links. To be told before
        the links, or the page itself, are put in."""
        if self._learning is None or page.key not in self._lent:
            return
        self._lent.discard(page.key)
        for shifted in self._learning.settled(page, links):
            room = self._rooms.get(shifted.site)
            if isinstance(room, ShiftingRoom) and room.change_key(
                shifted.key, self._ordering.page_key(shifted)
            ):
                self._mark(room)

    def sites_changed(self) -> None:
        """What the ordering knows of the sites has changed: all of them find their places anew."""
        for room in self._rooms.values():
            self._mark(room)

    def next_ready_at(self, now: Instant) -> Instant:
        """When a site that sleeps now may be asked; FOREVER when none does."""
        self._settle(now)
        return Instant(min(self._sleeping.first_key(), FOREVER))

    def _settle(self, now: Instant) -> None:
        """Bring both heaps up to date: changed sites anew, and sleepers whose time has come."""
        if self._learning is not None and self.waiting and self._learning.is_due():
            self._reorder(self._learning)
        for number in self._sleeping.move_until(now, self._ready):
            self._mark(self._numbered[number])
        if not self._changed:
            return
        changed, self._changed = self._changed, []
        for room in changed:
            self._place(now, room)

    def _mark(self, room: Room) -> None:
        if not room.is_changed:
            room.is_changed = True
            self._changed.append(room)

    def _reorder(self, learning: LearningOrdering) -> None:
        rooms = [room for room in self._rooms.values() if isinstance(room, ShiftingRoom)]
        everyone = [waiting for room in rooms for waiting in room.everyone()]
        everyone.sort(key=lambda waiting: waiting.serial)
        learning.reorder([waiting.page for waiting in everyone])
        for room in rooms:
            room.change_keys(learning.page_key)
        self.sites_changed()

    def _place(self, now: Instant, room: Room) -> None:
        room.is_changed = False
        number, at = room.number, room.ready_at()
        if at > now:
            self._ready.remove(number)
        else:
            self._sleeping.remove(number)
            room.admit_due(now)
            key = self._ordering.site_key(room)
            self._ready.put(number, key, room.first_serial, key)
            return
        if at >= FOREVER:
            self._sleeping.remove(number)
        else:
            # Nothing about a site changes while it sleeps, or else it is placed anew: its key holds.
            then = UNSURE if room.has_later else self._ordering.site_key(room)
            self._sleeping.put(number, at, room.first_serial, then)
