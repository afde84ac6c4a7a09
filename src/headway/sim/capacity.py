"""The link's capacity over time, as arrays that grow as far as a simulation gets."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headway.policy.timetable import Timetable
from headway.units import FOREVER, Instant, Seconds

_STRETCH_S = Seconds(28 * 86400.0)


class CapacityLine:
    """From `from_at[i]` on the link has `bytes_per_s[i]`; known up to `known_until`."""

    def __init__(self, timetable: Timetable, start_at: Instant = Instant(0.0)) -> None:
        self._timetable = timetable
        self.from_at: NDArray[np.float64] = np.array([start_at], dtype=np.float64)
        self.bytes_per_s: NDArray[np.float64] = np.array([timetable.capacity_at(start_at)], dtype=np.float64)
        self.known_until = FOREVER if not timetable.entries else start_at

    def extend(self) -> None:
        """Look four weeks further ahead."""
        begin = self.known_until
        pieces = self._timetable.segments(begin, _STRETCH_S)
        from_at = [begin + piece[0] for piece in pieces]
        rates = [piece[2] for piece in pieces]
        at = np.concatenate((self.from_at, from_at))
        bytes_per_s = np.concatenate((self.bytes_per_s, rates))
        is_change = np.concatenate(([True], np.diff(bytes_per_s) != 0))
        self.from_at, self.bytes_per_s = at[is_change], bytes_per_s[is_change]
        self.known_until = Instant(begin + _STRETCH_S)
