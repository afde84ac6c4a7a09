"""The bound on the link in real time: `Grants` on the event loop's clock, and what is known of each site."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from typing import Protocol

from headway.fetch.book import SiteBook
from headway.fetch.grants import Grants
from headway.fetch.wire import SEGMENT_PAYLOAD_BYTES, buffer_for
from headway.fetch.wishes import Ask
from headway.model.page import Site

_CHUNKS_PER_SECOND = 600
_LARGEST_CHUNK_BYTES = 64 * 1024
_CORRECT_EVERY_BYTES = 128 * 1024
_FIRST_SHARE = 0.25  # begin small: a buffer grows more easily than it shrinks
_GROWTH = 1.5
_QUICK_PART = 0.25
_LARGEST_LUMP_S = 0.015
_BUSY_OVER_S = 0.5
_LONGEST_LOOK_S = 0.05
_SLACK_S = 0.005
_HEADROOM = 1.15
_HEADROOM_OF_PROMISE = 1.3
_SLACK_OF_PROMISE_S = 0.01
_LEAVES_AFTER_S = 0.25
_MAX_SITES = 8192
# A look costs about a microsecond for each transfer under way; with many of them it is taken more rarely.
_LOOK_SOON_S = 0.003
_LOOK_EVERY_S = 0.02
_LOOK_COST_S = 1e-4

OnGranted = Callable[[], None]


class Watched(Protocol):
    """A transfer under way."""

    def look(self, now: float, lasted_s: float) -> tuple[float, float]:
        """Wire bytes that have arrived since the last look, and those granted that are still to come."""
        ...


class Pacer:
    """Asks are answered by calling back; nothing here ever sleeps."""

    def __init__(self, capacity_bytes_per_s: float = math.inf, *, charge_uploads: bool = False) -> None:
        self.bounded = False
        self.chunk_bytes = _LARGEST_CHUNK_BYTES
        """How much one grant lets arrive: about a six-hundredth of a second's worth, in whole segments."""
        self.correct_every_bytes = _CORRECT_EVERY_BYTES
        self.version = 0
        """Goes up with every change of the bound or of the rates, so that buffers can follow at once."""
        self.received_bytes = 0
        self.sent_bytes = 0
        self.arrived_bytes = 0.0
        """Seen by meters that have settled since, and not yet told to the guard."""
        self.charge_uploads = charge_uploads
        self.asks_until = math.inf
        """On the loop's clock: nothing is asked for after it, whoever wakes then with a request in hand."""
        self._capacity = capacity_bytes_per_s
        self._grants: Grants[Site] | None = None
        self._rates: Mapping[Site, float] = {}
        self._left: dict[Site, SiteBook] = {}
        """Sites whose last connection has stopped, unless it has begun again since."""
        self._meters: set[Watched] = set()
        self._busy = 1.0
        """The part of the time, of late, in which somebody waited for a grant."""
        self._look_at = self._look_soon_at = self._looked_at = 0.0
        self._sweep_at = 0.0
        self._callbacks: dict[Ask[Site], OnGranted] = {}
        self._books: dict[Site, SiteBook] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf
        self._loop: asyncio.AbstractEventLoop | None = None
        self._adopt(capacity_bytes_per_s)

    @property
    def capacity_bytes_per_s(self) -> float:
        return self._capacity

    def set_capacity(self, capacity_bytes_per_s: float) -> None:
        self._adopt(capacity_bytes_per_s)
        if self._grants is not None:
            self._grants.set_capacity(self._now(), capacity_bytes_per_s)
            self._pump()

    def set_rates(self, rates_bytes_per_s: Mapping[Site, float]) -> None:
        self._rates = dict(rates_bytes_per_s)
        self.version += 1
        if self._grants is not None:
            self._grants.set_rates(self._rates)
            self._pump()

    def book(self, site: Site) -> SiteBook:
        book = self._books.get(site)
        if book is None:
            if len(self._books) >= _MAX_SITES:
                gone = next((site for site, book in self._books.items() if not book.is_sharing), None)
                self._books.pop(gone or next(iter(self._books)))
            self._books[site] = book = SiteBook()
        return book

    def buffer_bytes(self, site: Site) -> int:
        """The receive buffer with which the site can have its share, or the rate that it is lent.

        Where several connections of the site are at work, each has its part of that.
        """
        book = self.book(site)
        grants = self._running()
        share = grants.share_bytes_per_s(site) / max(1, book.inside)
        path_s = book.round_trip_s + _SLACK_S
        # On a busy link small windows lose nothing, since others take what one leaves, and fill it smoothly.
        largest_bytes = self._capacity * (_LARGEST_LUMP_S if self._busy > 0.5 else path_s)
        if grants.claim_bytes_per_s(site):
            flowing_bytes = _HEADROOM_OF_PROMISE * share * (book.round_trip_s + _SLACK_OF_PROMISE_S)
        else:
            part = share / self._capacity if 0.0 < self._capacity < math.inf else 0.0
            book.share += 0.2 * (part - book.share) if book.share else _FIRST_SHARE * part
            flowing_bytes = min(_HEADROOM * book.share * path_s * self._capacity, largest_bytes)
        if book.at_once > 0.5:
            # Its asks are granted at once: it is held back by its buffer alone, and may be lent more.
            lent_bytes = _HEADROOM * _GROWTH * book.rate_bytes_per_s * path_s
            flowing_bytes = max(flowing_bytes, min(lent_bytes, largest_bytes))
        return buffer_for(flowing_bytes)

    def share_bytes_per_s(self, site: Site) -> float:
        """What the site gets when all that are at work want more than there is."""
        return self._running().share_bytes_per_s(site)

    def enter(self, now: float, site: Site, book: SiteBook, meter: Watched) -> None:
        """The site shares the link from now on."""
        self._meters.add(meter)
        book.inside += 1
        if not book.is_sharing:
            book.is_sharing = True
            self._running().enter(site)
        if now >= self._sweep_at:
            self._sweep(now)

    def leave(self, now: float, site: Site, book: SiteBook, meter: Watched) -> None:
        """It does not; but most come back with their next page, so this takes effect a little later."""
        self._meters.discard(meter)
        book.inside -= 1
        if not book.inside:
            book.left_at = now
            self._left[site] = book

    def try_at_once(self, now: float, site: Site, book: SiteBook, wire_bytes: float) -> bool:
        """Whether the bytes may arrive without anybody having to wait; if so, they are granted."""
        grants = self._grants or self._running()
        if now >= self._look_at:
            self._look(now)
        if grants.try_at_once(now, site, wire_bytes, book.delay_s):
            book.at_once += 0.1 * (1.0 - book.at_once)
            return True
        return False

    def ask(
        self, site: Site, wire_bytes: float, on_granted: OnGranted, brings_bytes: float | None = None
    ) -> Ask[Site] | None:
        """None when it is granted at once; else `on_granted` is called later, unless withdrawn."""
        grants, now, book = self._running(), self._now(), self.book(site)
        if now >= self._look_soon_at:
            self._look(now)
        wish = grants.ask(
            now, site, wire_bytes, book.delay_s, soonest_s=book.round_trip_s, brings_bytes=brings_bytes
        )
        if not self._timer:
            for granted in grants.take(now):
                if granted is not wish:
                    self._call(now, granted)
            if wish.granted:
                book.at_once += 0.1 * (1.0 - book.at_once)
                self._arm(now)
                return None
        self._callbacks[wish] = on_granted
        self._arm(now)
        return wish

    def wait(self, site: Site, wire_bytes: float) -> asyncio.Future[None]:
        """Done when the bytes may arrive; a cancelled wait gives them back."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        wish = self.ask(site, wire_bytes, lambda: None if waiter.done() else waiter.set_result(None))
        if wish is None:
            waiter.set_result(None)
        else:
            waiter.add_done_callback(lambda done: self.withdraw(wish) if done.cancelled() else None)
        return waiter

    def withdraw(self, wish: Ask[Site]) -> None:
        self._callbacks.pop(wish, None)
        self._running().withdraw(self._now(), wish)
        self._pump()

    def charge(self, site: Site, wire_bytes: float) -> None:
        if self.bounded:
            self._running().charge(self._now(), site, wire_bytes)
            if self._callbacks and wire_bytes < 0:
                self._pump()

    def note_sent(self, site: Site, wire_bytes: int) -> None:
        """Requests and acknowledgements: counted, and charged where the link counts both ways."""
        self.sent_bytes += wire_bytes
        if self.charge_uploads:
            self.arrived_bytes += wire_bytes
            self.charge(site, wire_bytes)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._callbacks.clear()

    def _adopt(self, capacity_bytes_per_s: float) -> None:
        self._capacity = capacity_bytes_per_s
        self.version += 1
        self.bounded = math.isfinite(capacity_bytes_per_s)
        if self.bounded:
            segments = round(capacity_bytes_per_s / _CHUNKS_PER_SECOND / SEGMENT_PAYLOAD_BYTES)
            self.correct_every_bytes = min(
                max(int(capacity_bytes_per_s / 8), 11 * SEGMENT_PAYLOAD_BYTES), _CORRECT_EVERY_BYTES
            )
            self.chunk_bytes = min(max(1, segments) * SEGMENT_PAYLOAD_BYTES, _LARGEST_CHUNK_BYTES)

    def _sweep(self, now: float) -> None:
        self._sweep_at = now + _LEAVES_AFTER_S
        for site, book in list(self._left.items()):
            if book.inside:
                del self._left[site]
            elif book.left_at < now - _LEAVES_AFTER_S:
                del self._left[site]
                book.is_sharing = False
                self._running().leave(site)

    def _running(self) -> Grants[Site]:
        """The books are opened with the first use, when there is a loop whose clock they can follow."""
        if self._grants is None:
            self._loop = asyncio.get_running_loop()
            self._grants = self._open_books(self._loop.time())
            self._grants.set_rates(self._rates)
        return self._grants

    def _open_books(self, now: float) -> Grants[Site]:
        return Grants(now, self._capacity)

    def _now(self) -> float:
        loop = self._loop or asyncio.get_running_loop()
        return loop.time()

    def _pump(self) -> None:
        self._timer = None
        grants, now = self._running(), self._now()
        if now >= self._look_soon_at:
            self._look(now)
        for granted in grants.take(now):
            self._call(now, granted)
        self._arm(now)

    def _look(self, now: float) -> None:
        """Ask the kernel what has arrived, for all transfers under way, and tell the guard."""
        lasted_s, self._looked_at = now - self._looked_at, now
        part = min(lasted_s, _LONGEST_LOOK_S) / _BUSY_OVER_S
        self._busy += part * ((self._running().waiting > 0) - self._busy)
        self._look_soon_at = now + max(_LOOK_SOON_S, _LOOK_COST_S * len(self._meters))
        self._look_at = self._look_soon_at + _LOOK_EVERY_S
        if not self.bounded:
            return
        arrived, outstanding = self.arrived_bytes, 0.0
        self.arrived_bytes = 0.0
        for meter in self._meters:
            came, to_come = meter.look(now, lasted_s)
            arrived += came
            outstanding += to_come
        self._running().saw(now, arrived, outstanding)

    def _call(self, now: float, granted: Ask[Site]) -> None:
        callback = self._callbacks.pop(granted, None)
        if callback is not None:
            book = self.book(granted.key)
            turn_bytes = (now - granted.asked_at) * self._running().share_bytes_per_s(granted.key)
            book.at_once += 0.1 * ((turn_bytes < _QUICK_PART * granted.cost_bytes) - book.at_once)
            callback()

    def _arm(self, now: float) -> None:
        """One timer for whoever is next, moved only when it would fire too late or long before its time."""
        due_at = self._running().next_at(now)
        if self._timer is not None:
            if self._timer_at == due_at:
                return
            self._timer.cancel()
            self._timer = None
        if due_at < math.inf and self._loop is not None:
            self._timer_at = due_at
            self._timer = self._loop.call_at(due_at, self._pump)
