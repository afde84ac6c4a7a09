"""How many answers may be on their way at once under a bound.

A server fills a connection's receive window whether or not we read, so the windows of all connections
together are a burst that no pacing can take back. A spider is free to have dozens of requests under way; here
they wait until those windows fit into a part of a second of the link. The site that has least under way for
its share goes first, and a server that keeps silent loses its place, so that it holds nobody up.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

from headway.fetch.pacer import Pacer
from headway.fetch.wire import held_unread_bytes
from headway.model.page import Site

_AHEAD_S = 0.3
"""So much of the link's time may be on its way: measured in the lab, see benchmarks/scrapy."""
_ALWAYS = 2
"""While one answer comes the next request must be on its way, or the link stands idle in between."""
_FIRST_PAGE_S = 0.12
_SHUT_BYTES_PER_S = 1.0
"""A crawler that is not let go yet: from its bound nothing follows for its first pages."""
_SILENT_S = 2.0
_LOOK_EVERY_S = 0.5


class Talk(Protocol):
    """What the gate wants to know of a connection."""

    def silent_s(self) -> float: ...


class Pass:
    """Leave to have one answer on its way."""

    __slots__ = ("burst_bytes", "site", "talk")

    def __init__(self, site: Site) -> None:
        self.site = site
        self.burst_bytes = 0.0
        """What it takes up of the room; 0 once its place is lost or left."""
        self.talk: Talk | None = None


class Gate:
    def __init__(self, pacer: Pacer) -> None:
        self._pacer = pacer
        self._inside: set[Pass] = set()
        self._bytes_by_site: dict[Site, float] = {}
        self._queues: dict[Site, deque[tuple[Pass, asyncio.Future[None]]]] = {}
        self._known: set[Site] = set()
        self._timer: asyncio.TimerHandle | None = None

    async def enter(self, site: Site) -> Pass:
        """Wait for a place. Without a bound there is room for everybody."""
        one = Pass(site)
        if not self._pacer.bounded:
            return one
        one.burst_bytes = self._burst_bytes(site)
        if not self._queues and self._has_room(one.burst_bytes):
            self._admit(one)
            return one
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queues.setdefault(site, deque()).append((one, turn))
        self._set_timer()
        try:
            await turn
        except asyncio.CancelledError:
            self.leave(one)
            raise
        return one

    def leave(self, one: Pass) -> None:
        self._lose_place(one)
        self.call_next()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _burst_bytes(self, site: Site) -> float:
        """What comes at once: the answer, or the window where that is less."""
        if site not in self._known and self._pacer.capacity_bytes_per_s > _SHUT_BYTES_PER_S:
            # On a narrow link a page's worth of permission is a long wait for a page that may be small.
            self._known.add(site)
            book = self._pacer.book(site)
            first_bytes = max(_FIRST_PAGE_S * self._pacer.capacity_bytes_per_s, self._pacer.chunk_bytes)
            book.page_bytes = min(book.page_bytes, first_bytes)
        window_bytes = held_unread_bytes(self._pacer.buffer_bytes(site)) + self._pacer.chunk_bytes
        return max(1.0, min(self._pacer.book(site).page_bytes, window_bytes))

    def _has_room(self, burst_bytes: float) -> bool:
        taken = sum(self._bytes_by_site.values())
        fits = taken + burst_bytes <= _AHEAD_S * self._pacer.capacity_bytes_per_s
        return fits or len(self._inside) < _ALWAYS

    def _admit(self, one: Pass) -> None:
        self._inside.add(one)
        self._bytes_by_site[one.site] = self._bytes_by_site.get(one.site, 0.0) + one.burst_bytes

    def _lose_place(self, one: Pass) -> None:
        if one not in self._inside:
            return
        self._inside.discard(one)
        left = self._bytes_by_site[one.site] - one.burst_bytes
        if left > 0.5:
            self._bytes_by_site[one.site] = left
        else:
            del self._bytes_by_site[one.site]

    def call_next(self) -> None:
        """Let in whoever has room now."""
        while self._queues:
            site = min(self._queues, key=self._under_way_for_its_share)
            queue = self._queues[site]
            one, turn = queue[0]
            if not turn.done():
                if self._pacer.bounded and not self._has_room(one.burst_bytes):
                    self._set_timer()
                    return
                self._admit(one)
                turn.set_result(None)
            queue.popleft()
            if not queue:
                del self._queues[site]

    def _under_way_for_its_share(self, site: Site) -> float:
        share = self._pacer.share_bytes_per_s(site)
        return self._bytes_by_site.get(site, 0.0) / max(share, 1.0)

    def _set_timer(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_LOOK_EVERY_S, self._look)

    def _look(self) -> None:
        """Take the places of those whose servers keep silent: nothing is on its way from them."""
        self._timer = None
        for one in [one for one in self._inside if one.talk is not None and one.talk.silent_s() > _SILENT_S]:
            self._lose_place(one)
        self.call_next()
