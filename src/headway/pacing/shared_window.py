"""One second of the link, shared by all crawler processes of `headway run-scrapy`.

Each crawler paces its own share, and the bytes of a small share come in bursts: six crawlers, each within its
share, may together exceed the bound in some second. So each writes the bytes that arrived and those that it
expects into its row of a small shared file, and grants nothing for which the second has no room.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from headway.model.page import Site
from headway.pacing.grants import GrantScheduler, PeakGuard
from headway.pacing.pacer import Pacer

_AHEAD = 100
"""Slots of the guard's rings before and after the current one: a second each."""
_SLOTS = 2 * _AHEAD + 1
_AT, _LATE, _RINGS = 0, 1, 2
_COLUMNS = _RINGS + 2 * _SLOTS
_TOLERANCE = 0.02
"""Less than for a single process: what the others do is seen late."""
_MAX_LATE_S = 0.3
_LARGE_PART = 0.1
_HEARTBEAT_S = 0.01
_INDEX = np.arange(_SLOTS)


class SharedRateWindow:
    """The shared file: a row with the bound of the whole link, then a row for each crawler."""

    def __init__(self, path: Path, *, crawlers: int | None = None) -> None:
        """Create the file with a row for each of `crawlers`, or open the one that the supervisor created."""
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

    def write(
        self, row: int, slot: int, late_bytes: float, arrived: list[float], coming: list[float]
    ) -> None:
        """Replace a row by the state of its crawler's guard in `slot`."""
        mine = self._rows[row]
        mine[_RINGS : _RINGS + _SLOTS] = arrived
        mine[_RINGS + _SLOTS :] = coming
        mine[_LATE] = late_bytes
        mine[_AT] = slot

    def clear(self, row: int) -> None:
        """Remove what a crawler that has ended expected. What arrived stays part of the second."""
        mine = self._rows[row]
        mine[_LATE] = 0.0
        mine[_RINGS + _SLOTS :] = 0.0

    def recent_arrivals(self, row: int, slot: int) -> list[float]:
        """The ring of bytes that arrived in the last second, as the previous crawler of the row wrote it."""
        at = int(self._rows[row, _AT])
        since = slot - at + (at - _INDEX) % _SLOTS
        ring = self._rows[row, _RINGS : _RINGS + _SLOTS]
        recent: list[float] = np.where(since <= _AHEAD, ring, 0.0).tolist()
        return recent

    def arrived_bytes(self, from_slot: int, to_slot: int) -> float:
        """Bytes of all crawlers from one slot up to, but without, another; up to a second ago."""
        at = self._rows[:, _AT].astype(np.int64)[:, None]
        slots = at - (at - _INDEX) % _SLOTS
        wanted = (slots >= from_slot) & (slots < to_slot)
        return float(self._rows[:, _RINGS : _RINGS + _SLOTS][wanted].sum())

    def fullest_second(self, slot: int, arrives_in: int) -> tuple[float, float]:
        """The most bytes of any second that contains the slot `arrives_in`, and the late bytes of all."""
        rows = self._rows[self._rows[:, _AT] > slot - _AHEAD]
        at = rows[:, _AT].astype(np.int64)[:, None]
        # The slot of a place in the ring follows from the slot in which the row was written.
        since = slot - at + (at - _INDEX) % _SLOTS
        until = at + (_INDEX - at) % _SLOTS - slot
        arrived_in, coming_in = rows[:, _RINGS : _RINGS + _SLOTS], rows[:, _RINGS + _SLOTS :]
        late_bytes = float(rows[:, _LATE].sum() + coming_in[until < 0].sum())
        recent, ahead = since <= _AHEAD, until >= 0
        arrived = np.bincount(np.maximum(since[recent], 0), arrived_in[recent], _AHEAD + 1)
        coming = np.bincount(np.minimum(until[ahead], _AHEAD), coming_in[ahead], _AHEAD + 1)
        # The second that ends n slots from now: what arrived within it, and what arrives until its end.
        seconds = np.cumsum(arrived)[::-1] + np.cumsum(coming)
        return float(seconds[arrives_in - slot :].max()), late_bytes


class SharedGuard(PeakGuard):
    """Checks the second of the whole link. Its own rings are this crawler's part of it."""

    def __init__(self, now: float, window: SharedRateWindow, row: int) -> None:
        self._window = window
        self._row = row
        super().__init__(now, math.inf, _TOLERANCE)
        # Otherwise the first write would erase bytes that are still part of the second.
        self._arrived = window.recent_arrivals(row, self._slot)
        self._arrived_bytes = sum(self._arrived, 0.0)

    def set_bound(self, bound_bytes_per_s: float) -> None:
        """Ignored: the guard checks the bound of the whole link, not this crawler's share."""

    def reserve(self, now: float, arrives_at: float, size_bytes: float) -> None:
        super().reserve(now, arrives_at, size_bytes)
        self._publish()

    def reserve_if_quiet(self, now: float, arrives_at: float, size_bytes: float) -> bool:
        if not self.fits(now, arrives_at, size_bytes):
            return False
        self.reserve(now, arrives_at, size_bytes)
        return True

    def observe(self, now: float, arrived_bytes: float, outstanding_bytes: float) -> None:
        super().observe(now, arrived_bytes, outstanding_bytes)
        self._publish()

    def fits(self, now: float, arrives_at: float, size_bytes: float) -> bool:
        self._advance(now)
        bound = self._window.bound_bytes_per_s
        second, late_bytes = self._window.fullest_second(self._slot, self._slot_of(arrives_at))
        second += min(late_bytes, _MAX_LATE_S * bound)
        # A grant that is a large part of a second's bytes may exceed the bound, or it would wait forever.
        room = bound if size_bytes > _LARGE_PART * bound else (1 + _TOLERANCE) * bound - size_bytes
        return second <= room

    def _publish(self) -> None:
        self._window.write(self._row, self._slot, self._late_bytes, self._arrived, self._coming)


class SpiderPacer(Pacer):
    """A pacer that may share the link with the pacers of other processes."""

    def __init__(self, capacity_bytes_per_s: float) -> None:
        self._shared: tuple[SharedRateWindow, int] | None = None
        self._heartbeat: asyncio.TimerHandle | None = None
        self.on_bound_change: Callable[[], None] | None = None
        """Called when the bound has changed: more requests may be admitted."""
        super().__init__(capacity_bytes_per_s)

    def set_capacity(self, capacity_bytes_per_s: float) -> None:
        super().set_capacity(capacity_bytes_per_s)
        if self.on_bound_change is not None:
            self.on_bound_change()

    def share_link(self, window: SharedRateWindow, row: int) -> None:
        """Share the link through `window`, in which this crawler has `row`. Call it before the first
        grant."""
        self._shared = window, row

    def close(self) -> None:
        if self._heartbeat is not None:
            self._heartbeat.cancel()
            self._poll(self._now())  # publish the last bytes
        super().close()

    def _make_scheduler(self, now: float) -> GrantScheduler[Site]:
        if self._shared is None:
            return super()._make_scheduler(now)
        self._heartbeat = asyncio.get_running_loop().call_later(_HEARTBEAT_S, self._poll_again)
        return _SpiderGrants(now, self._capacity, SharedGuard(now, *self._shared))

    def _poll_again(self) -> None:
        """Poll regularly: with a small share grants are rare, and bytes observed late would be published as
        if they had arrived late."""
        loop = asyncio.get_running_loop()
        self._heartbeat = loop.call_later(_HEARTBEAT_S, self._poll_again)
        if self._meters or self.arrived_bytes:
            self._poll(loop.time())


class _SpiderGrants(GrantScheduler[Site]):
    def __init__(self, now: float, capacity_bytes_per_s: float, guard: PeakGuard) -> None:
        super().__init__(now, capacity_bytes_per_s)
        self._peak = guard
