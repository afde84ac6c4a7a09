"""Yielding in real time: reads the round trips of all transfers 20 times a second, and paces the crawl below
its bound so that no queue stands at the link's bottleneck. `policy.yielding` decides.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from headway.pacing.wire import OVERHEAD_FACTOR, SEGMENT_PAYLOAD_BYTES, Arrivals
from headway.policy.yielding import PACKET_BYTES, STEP_S, Doing, GroupYield, LinkUse, QueueDelay
from headway.units import BytesPerSecond, Instant, Seconds

if TYPE_CHECKING:
    from headway.pacing.meter import Meter  # which imports this module

_DELIVERED_OVER_S = 0.4
_DELIVERED_PACKETS = 8
_LONGEST_DELIVERED_S = 2.0
_LOSSES_WITHIN_S = 0.25
_LOSSES_ON_PATHS = 2
"""Losses on one path only are near its server."""
_RISE_PART = 1.0 / 8.0
"""The kernel adds this part of each measurement above its average to the average; one below replaces it."""
_MOST_SEGMENTS = 16


class PathReader:
    """Recovers single round trips from the kernel's moving average of a connection."""

    __slots__ = ("_out_of_order", "_smoothed_s", "_stream_bytes", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        """The server's address: connections to it share a way through the network."""
        self._stream_bytes = 0
        self._smoothed_s = 0.0
        self._out_of_order = 0

    def read(self, arrivals: Arrivals) -> tuple[int, float | None, bool]:
        """Bytes of the stream since the last call, the last round trip if there was one, and whether a packet
        is missing."""
        new_bytes = arrivals.stream_bytes - self._stream_bytes
        is_missing = arrivals.out_of_order > self._out_of_order
        self._out_of_order = arrivals.out_of_order
        self._stream_bytes = arrivals.stream_bytes
        before_s, self._smoothed_s = self._smoothed_s, arrivals.round_trip_s
        segments = new_bytes // SEGMENT_PAYLOAD_BYTES
        if segments < 1 or arrivals.round_trip_s <= 0.0:
            return new_bytes, None, is_missing
        rise_s = arrivals.round_trip_s - before_s
        if before_s <= 0.0 or rise_s <= 0.0:
            return new_bytes, arrivals.round_trip_s, is_missing
        weight = 1.0 - (1.0 - _RISE_PART) ** min(segments, _MOST_SEGMENTS)
        return new_bytes, before_s + rise_s / weight, is_missing


class BackgroundPacing:
    """Calls `set_pace` with a new rate every 50 ms while transfers are in progress."""

    def __init__(self, set_pace: Callable[[float], None]) -> None:
        self._set_pace = set_pace
        self.is_on = True
        """Otherwise it only measures."""
        self._bound = math.inf
        self._control: GroupYield | None = None
        self._delay = QueueDelay()
        self._transfers: set[Meter] = set()
        self._arrived_bytes = 0.0
        self._marks: deque[tuple[float, float]] = deque()
        """When so many bytes had arrived in all."""
        self._lost: dict[str, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._delivered_bytes_per_s = 0.0

    @property
    def is_pacing(self) -> bool:
        """False without a bound."""
        return self._control is not None

    @property
    def rate_bytes_per_s(self) -> float:
        """For all processes behind the link."""
        return math.inf if self._control is None else self._control.control.rate_bytes_per_s

    @property
    def delivered_bytes_per_s(self) -> float:
        """What arrives for all processes behind the link."""
        control = self._control
        return self._delivered_bytes_per_s if control is None else control.delivered_bytes_per_s

    @property
    def queue_s(self) -> float | None:
        return None if self._control is None else self._control.control.queue_s

    @property
    def doing(self) -> Doing:
        return Doing.AT_BOUND if self._control is None else self._control.control.doing

    def set_bound(self, bound_bytes_per_s: float) -> None:
        """Without a bound, or with a bound of zero, nothing is paced."""
        self._bound = bound_bytes_per_s
        if not 0.0 < bound_bytes_per_s < math.inf:
            self._control = None
            self._set_pace(math.inf)
            return
        if self._control is None:
            self._control = GroupYield(BytesPerSecond(bound_bytes_per_s))
        else:
            self._control.set_bound(BytesPerSecond(bound_bytes_per_s))
        self._apply()

    def look(self, from_bytes_per_s: float, bound_bytes_per_s: float) -> None:
        """Look for what the link carries: start at a rate, and grow until packets wait at the bottleneck."""
        self.is_on = True
        self._control = GroupYield(BytesPerSecond(bound_bytes_per_s), from_bytes_per_s)
        self._apply()

    def hold(self) -> None:
        """The look has ended: use the bound, whatever the others do."""
        self.is_on = False
        self._apply()

    def use(self, now: Instant) -> LinkUse | None:
        """What this process does, for the others behind the link; None without a bound. `now`: by the clock
        that all of them follow."""
        return None if self._control is None else self._control.use(now)

    def hear(self, now: Instant, others: Sequence[LinkUse]) -> None:
        """What the other processes do."""
        if self._control is not None:
            self._control.hear(Instant(asyncio.get_running_loop().time()), now, others)
            self._apply()

    @property
    def cuts(self) -> int:
        """How often it has given way."""
        return 0 if self._control is None else self._control.control.cuts

    def _apply(self) -> None:
        if self._control is not None:
            self._set_pace(self._control.pace_bytes_per_s if self.is_on else math.inf)

    def begin(self, transfer: Meter) -> None:
        """A transfer starts."""
        self._transfers.add(transfer)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(STEP_S, self._step)

    def end(self, now: float, transfer: Meter) -> None:
        """A transfer has ended: a short one may begin and end between two steps."""
        self._transfers.discard(transfer)
        self._read(now, transfer)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _step(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._timer = loop.call_later(STEP_S, self._step)
        for transfer in self._transfers:
            self._read(now, transfer)
        self._measure_delivered(now)
        if self._control is not None:
            self._control.step(
                Instant(now), self._delay, self._delivered_bytes_per_s, has_lost=self._has_lost(now)
            )
            self._apply()

    def _read(self, now: float, transfer: Meter) -> None:
        arrivals = transfer.arrivals()
        if arrivals is None:
            return
        reader = transfer.path_reader
        new_bytes, round_trip_s, is_missing = reader.read(arrivals)
        if new_bytes > 0:
            self._arrived_bytes += new_bytes * OVERHEAD_FACTOR
        if round_trip_s is not None:
            self._delay.add(Instant(now), reader.path, Seconds(round_trip_s))
        if is_missing:
            self._lost[reader.path] = now

    def _measure_delivered(self, now: float) -> None:
        over_s = max(_DELIVERED_OVER_S, _DELIVERED_PACKETS * PACKET_BYTES / max(1.0, self.rate_bytes_per_s))
        over_s = min(over_s, _LONGEST_DELIVERED_S)
        marks = self._marks
        marks.append((now, self._arrived_bytes))
        while len(marks) > 2 and marks[1][0] <= now - over_s:
            marks.popleft()
        # A late step covers more time: what arrived belongs to the time between two marks, not to the window.
        lasted_s = max(now - marks[0][0], over_s / 2)
        self._delivered_bytes_per_s = (self._arrived_bytes - marks[0][1]) / lasted_s

    def _has_lost(self, now: float) -> bool:
        for path in [path for path, at in self._lost.items() if at < now - _LOSSES_WITHIN_S]:
            del self._lost[path]
        if len(self._lost) < _LOSSES_ON_PATHS:
            return False
        self._lost.clear()
        return True
