"""The waiting room of one site: its pages in order, and the pages that must not be tried again yet.

States of a known page, and what may follow:
    WAITING -> leased (its turn has come) | FAILED or EXCLUDED (its site is given up, denied, or full)
    leased  -> DONE | WAITING (to be tried again) | FAILED | EXCLUDED
    DONE, FAILED, EXCLUDED are final.
Only WAITING pages are in a room; the machine holds the leased ones, which count as WAITING in the store.
"""

from __future__ import annotations

from heapq import heappop, heappush

from headway.frontier.line import Line, Waiting
from headway.model.page import Site, is_again
from headway.policy.ordering.base import Key
from headway.units import FOREVER, Instant

__all__ = ["Room", "Waiting"]


class Room:
    __slots__ = (
        "_later",
        "_line",
        "busy",
        "free_at",
        "is_changed",
        "number",
        "put_off",
        "site",
        "waiting",
    )

    def __init__(self, site: Site) -> None:
        self.site = site
        self.free_at = Instant(0.0)
        self.busy = False
        """Until `free_at`, whatever else comes in: no page can make the site ready any sooner."""
        self.is_changed = False
        """Its place among the sites has to be found anew."""
        self.number = 0
        """By which the site is known where the sites stand in order."""
        self.waiting = 0
        self.put_off = 0
        """Of those waiting, pages fetched before whose next visit is not due yet."""
        self._line = Line()
        self._later: list[tuple[Instant, Waiting]] = []

    @property
    def first_key(self) -> Key:
        return self._line.first_key if self._line.count else self._later[0][1].key

    @property
    def first_serial(self) -> int:
        return self._line.first_serial if self._line.count else self._later[0][1].serial

    def put(self, waiting: Waiting, not_before: Instant | None = None) -> None:
        self.waiting += 1
        if not_before is None:
            self._line.push(waiting)
        else:
            self._put_off(waiting, not_before)

    @property
    def has_later(self) -> bool:
        return bool(self._later)

    def admit_due(self, now: Instant) -> None:
        """Let pages whose penalty is over back into line."""
        while self._later and self._later[0][0] <= now:
            self._line.push(self._next_due())

    @property
    def due(self) -> int:
        """Pages that wait for anything else than the day of their next visit."""
        return self.waiting - self.put_off

    def _put_off(self, waiting: Waiting, not_before: Instant) -> None:
        self.put_off += is_again(waiting.attempt)
        heappush(self._later, (not_before, waiting))

    def _next_due(self) -> Waiting:
        waiting = heappop(self._later)[1]
        self.put_off -= is_again(waiting.attempt)
        return waiting

    def take(self) -> Waiting:
        self.waiting -= 1
        return self._line.pop()

    def take_all(self) -> list[Waiting]:
        """Empty the room, in order."""
        everyone = self._line.pop_all() + [waiting for _, waiting in sorted(self._later)]
        self._later = []
        self.waiting = self.put_off = 0
        return everyone

    def ready_at(self) -> Instant:
        """When the site could next be asked for a page; FOREVER while it is busy or empty."""
        if self.busy or not self.waiting:
            return FOREVER
        return self.free_at if self._line.count else max(self.free_at, self._later[0][0])
