"""One second of the link as all crawlers of `headway run-scrapy` see it.

Each crawler paces its own share, and a share of a narrow link comes in lumps: six crawlers that each keep to
theirs may together be far over the bound for a second. So all write what arrived and what they expect into
one small file, each into a row of its own, and nobody grants itself what the second has no room for.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from headway.fetch.grants import Grants
from headway.fetch.pacer import Pacer
from headway.fetch.peak import PeakGuard
from headway.model.page import Site

_AHEAD = 100
"""Slots of the guard's rings before and behind the present one: a second each way."""
_SLOTS = 2 * _AHEAD + 1
_AT, _LATE, _RINGS = 0, 1, 2
_COLUMNS = _RINGS + 2 * _SLOTS
_TOLERANCE = 0.02
"""Less than a single crawler allows itself: what one sees late of another comes on top."""
_LATE_AT_MOST_S = 0.3
_LARGE_PART = 0.1
_BEAT_S = 0.01
_INDEX = np.arange(_SLOTS)


class Neighbours:
    """The file: a row for the bound of the whole link, then one for each crawler."""

    def __init__(self, path: Path, *, crawlers: int | None = None) -> None:
        """With `crawlers` it is made anew; without, the one that the master made is opened."""
        if crawlers is not None:
            np.zeros((crawlers + 1, _COLUMNS)).tofile(path)
        table: Any = np.memmap(path, dtype=np.float64, mode="r+").reshape(-1, _COLUMNS)
        self._head = table[0]
        self._rows = table[1:]

    @property
    def bound_bytes_per_s(self) -> float:
        return float(self._head[0])

    @bound_bytes_per_s.setter
    def bound_bytes_per_s(self, bound_bytes_per_s: float) -> None:
        self._head[0] = bound_bytes_per_s

    def tell(self, row: int, slot: int, late_bytes: float, arrived: list[float], coming: list[float]) -> None:
        mine = self._rows[row]
        mine[_RINGS : _RINGS + _SLOTS] = arrived
        mine[_RINGS + _SLOTS :] = coming
        mine[_LATE] = late_bytes
        mine[_AT] = slot

    def forget(self, row: int) -> None:
        """Whoever had the row is gone, and nothing more comes for it; what came was part of the second."""
        mine = self._rows[row]
        mine[_LATE] = 0.0
        mine[_RINGS + _SLOTS :] = 0.0

    def came_before(self, row: int, slot: int) -> list[float]:
        """What came in the last second for whoever had the row before."""
        at = int(self._rows[row, _AT])
        since = slot - at + (at - _INDEX) % _SLOTS
        came: list[float] = np.where(since <= _AHEAD, self._rows[row, _RINGS : _RINGS + _SLOTS], 0.0).tolist()
        return came

    def arrived_bytes(self, from_slot: int, to_slot: int) -> float:
        """Of all, in the slots from the one to the other, which is not among them; a second back at most."""
        at = self._rows[:, _AT].astype(np.int64)[:, None]
        slots = at - (at - _INDEX) % _SLOTS
        wanted = (slots >= from_slot) & (slots < to_slot)
        return float(self._rows[:, _RINGS : _RINGS + _SLOTS][wanted].sum())

    def fullest_second(self, slot: int, arrives_in: int) -> tuple[float, float]:
        """The most bytes of any second that bytes in that slot would be part of, and what is late."""
        rows = self._rows[self._rows[:, _AT] > slot - _AHEAD]
        at = rows[:, _AT].astype(np.int64)[:, None]
        # A ring's place says its slot, given the slot in which it was written.
        since = slot - at + (at - _INDEX) % _SLOTS
        until = at + (_INDEX - at) % _SLOTS - slot
        came, comes = rows[:, _RINGS : _RINGS + _SLOTS], rows[:, _RINGS + _SLOTS :]
        late_bytes = float(rows[:, _LATE].sum() + comes[until < 0].sum())
        recent, ahead = since <= _AHEAD, until >= 0
        arrived = np.bincount(np.maximum(since[recent], 0), came[recent], _AHEAD + 1)
        coming = np.bincount(np.minimum(until[ahead], _AHEAD), comes[ahead], _AHEAD + 1)
        # The second that ends so many slots from now: what came late enough, and what comes soon enough.
        seconds = np.cumsum(arrived)[::-1] + np.cumsum(coming)
        return float(seconds[arrives_in - slot :].max()), late_bytes


class SharedGuard(PeakGuard):
    """Looks at the whole link's second; its own rings are this crawler's part of it."""

    def __init__(self, now: float, neighbours: Neighbours, row: int) -> None:
        self._neighbours = neighbours
        self._row = row
        super().__init__(now, math.inf, _TOLERANCE)
        # The first word of ours would else wipe out what is still part of the second.
        self._arrived = neighbours.came_before(row, self._slot)
        self._arrived_bytes = sum(self._arrived, 0.0)

    def set_bound(self, bound_bytes_per_s: float) -> None:
        """A share may change as it likes: what is guarded is the whole."""

    def book(self, now: float, arrives_at: float, size_bytes: float) -> None:
        super().book(now, arrives_at, size_bytes)
        self._tell()

    def book_if_quiet(self, now: float, arrives_at: float, size_bytes: float) -> bool:
        if not self.fits(now, arrives_at, size_bytes):
            return False
        self.book(now, arrives_at, size_bytes)
        return True

    def saw(self, now: float, arrived_bytes: float, outstanding_bytes: float) -> None:
        super().saw(now, arrived_bytes, outstanding_bytes)
        self._tell()

    def fits(self, now: float, arrives_at: float, size_bytes: float) -> bool:
        self._advance(now)
        bound = self._neighbours.bound_bytes_per_s
        second, late_bytes = self._neighbours.fullest_second(self._slot, self._slot_of(arrives_at))
        second += min(late_bytes, _LATE_AT_MOST_S * bound)
        # A lump that is a good part of a second may exceed it, or it would never have its turn.
        room = bound if size_bytes > _LARGE_PART * bound else (1 + _TOLERANCE) * bound - size_bytes
        return second <= room

    def _tell(self) -> None:
        self._neighbours.tell(self._row, self._slot, self._late_bytes, self._arrived, self._coming)


class SpiderPacer(Pacer):
    """A pacer that may have neighbours on the same link."""

    def __init__(self, capacity_bytes_per_s: float) -> None:
        self._seat: tuple[Neighbours, int] | None = None
        self._beat: asyncio.TimerHandle | None = None
        self.on_bound: Callable[[], None] | None = None
        """Called when the bound has changed: there may be room for more."""
        super().__init__(capacity_bytes_per_s)

    def set_capacity(self, capacity_bytes_per_s: float) -> None:
        super().set_capacity(capacity_bytes_per_s)
        if self.on_bound is not None:
            self.on_bound()

    def sit_down(self, neighbours: Neighbours, row: int) -> None:
        """Before the first grant."""
        self._seat = neighbours, row

    def close(self) -> None:
        if self._beat is not None:
            self._beat.cancel()
            self._look(self._now())  # the others count on hearing of the last bytes
        super().close()

    def _open_books(self, now: float) -> Grants[Site]:
        if self._seat is None:
            return super()._open_books(now)
        self._beat = asyncio.get_running_loop().call_later(_BEAT_S, self._look_and_tell)
        return _SpiderGrants(now, self._capacity, SharedGuard(now, *self._seat))

    def _look_and_tell(self) -> None:
        """A small share asks rarely, and what is seen late would be told as if it had come late."""
        loop = asyncio.get_running_loop()
        self._beat = loop.call_later(_BEAT_S, self._look_and_tell)
        if self._meters or self.arrived_bytes:
            self._look(loop.time())


class _SpiderGrants(Grants[Site]):
    def __init__(self, now: float, capacity_bytes_per_s: float, guard: PeakGuard) -> None:
        super().__init__(now, capacity_bytes_per_s)
        self._peak = guard
