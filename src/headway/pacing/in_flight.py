"""Limits how many responses of a spider are in flight at once.

A server fills a connection's receive window whether or not it is read, so the windows of all connections
together are a burst that pacing cannot prevent. A spider may have dozens of requests in flight; here they
wait until the windows fit into a part of a second of the link. The site with the fewest bytes in flight for
its share goes first. A server that does not answer loses its place, so that it does not delay the others.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

from headway.model.page import Site
from headway.pacing.pacer import Pacer
from headway.pacing.wire import held_unread_bytes

_MAX_IN_FLIGHT_S = 0.3
"""Responses in flight may have this much of the link's time; measured in the lab, see benchmarks/scrapy."""
_MIN_IN_FLIGHT = 2
"""With one request at a time, the link would be idle between a response and the next."""
_FIRST_PAGE_S = 0.12
"""The estimate for the first page of a site: what the link carries in this time."""
_SHUT_BYTES_PER_S = 1.0
"""A lower bound means that the crawler may not start yet: no estimate of a first page follows from it."""
_SILENT_S = 2.0
_CHECK_EVERY_S = 0.5


class WatchedConnection(Protocol):
    """What the limiter needs of a connection."""

    def silent_s(self) -> float: ...


class Permit:
    """Permission to have one response in flight."""

    __slots__ = ("burst_bytes", "connection", "site")

    def __init__(self, site: Site) -> None:
        self.site = site
        self.burst_bytes = 0.0
        """Bytes that the response may send at once."""
        self.connection: WatchedConnection | None = None


class InFlightLimiter:
    """Call `enter` before a request and `leave` after its response."""

    def __init__(self, pacer: Pacer) -> None:
        self._pacer = pacer
        self._admitted: set[Permit] = set()
        self._bytes_by_site: dict[Site, float] = {}
        self._queues: dict[Site, deque[tuple[Permit, asyncio.Future[None]]]] = {}
        self._known: set[Site] = set()
        self._timer: asyncio.TimerHandle | None = None

    async def enter(self, site: Site) -> Permit:
        """Wait for a permit. Without a bound it is given at once."""
        permit = Permit(site)
        if not self._pacer.bounded:
            return permit
        permit.burst_bytes = self._burst_bytes(site)
        if not self._queues and self._has_room(permit.burst_bytes):
            self._admit(permit)
            return permit
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queues.setdefault(site, deque()).append((permit, turn))
        self._set_timer()
        try:
            await turn
        except asyncio.CancelledError:
            self.leave(permit)
            raise
        return permit

    def leave(self, permit: Permit) -> None:
        self._release(permit)
        self.admit_waiting()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _burst_bytes(self, site: Site) -> float:
        """The bytes that may arrive at once: the response, or the receive window if that is less."""
        if site not in self._known and self._pacer.capacity_bytes_per_s > _SHUT_BYTES_PER_S:
            # On a narrow link, waiting for room for an average page takes long, and this one may be small.
            self._known.add(site)
            readings = self._pacer.readings(site)
            first_bytes = max(_FIRST_PAGE_S * self._pacer.capacity_bytes_per_s, self._pacer.chunk_bytes)
            readings.page_bytes = min(readings.page_bytes, first_bytes)
        window_bytes = held_unread_bytes(self._pacer.buffer_bytes(site)) + self._pacer.chunk_bytes
        return max(1.0, min(self._pacer.readings(site).page_bytes, window_bytes))

    def _has_room(self, burst_bytes: float) -> bool:
        taken = sum(self._bytes_by_site.values())
        fits = taken + burst_bytes <= _MAX_IN_FLIGHT_S * self._pacer.capacity_bytes_per_s
        return fits or len(self._admitted) < _MIN_IN_FLIGHT

    def _admit(self, permit: Permit) -> None:
        self._admitted.add(permit)
        self._bytes_by_site[permit.site] = self._bytes_by_site.get(permit.site, 0.0) + permit.burst_bytes

    def _release(self, permit: Permit) -> None:
        if permit not in self._admitted:
            return
        self._admitted.discard(permit)
        left = self._bytes_by_site[permit.site] - permit.burst_bytes
        if left > 0.5:
            self._bytes_by_site[permit.site] = left
        else:
            del self._bytes_by_site[permit.site]

    def admit_waiting(self) -> None:
        """Admit the requests for which there is room now."""
        while self._queues:
            site = min(self._queues, key=self._load)
            queue = self._queues[site]
            permit, turn = queue[0]
            if not turn.done():
                if self._pacer.bounded and not self._has_room(permit.burst_bytes):
                    self._set_timer()
                    return
                self._admit(permit)
                turn.set_result(None)
            queue.popleft()
            if not queue:
                del self._queues[site]

    def _load(self, site: Site) -> float:
        """Bytes in flight for each byte/s of the site's share."""
        share = self._pacer.share_bytes_per_s(site)
        return self._bytes_by_site.get(site, 0.0) / max(share, 1.0)

    def _set_timer(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_CHECK_EVERY_S, self._drop_silent)

    def _drop_silent(self) -> None:
        """Release the permits of servers that do not answer: nothing is on its way from them."""
        self._timer = None
        for permit in list(self._admitted):
            if permit.connection is not None and permit.connection.silent_s() > _SILENT_S:
                self._release(permit)
        self.admit_waiting()
