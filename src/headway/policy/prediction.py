"""How fast a server answers at this hour: B(IP, hour, workday) of diligenti2004.

Each server has 24 hours for working days and 24 for holidays. Every finished download moves the hours
around its own by a Gaussian weight, so that the table follows both the clock and the server.
"""

from __future__ import annotations

import math
import struct
from array import array
from collections.abc import Iterable, Iterator

from headway.policy.calendar import Calendar
from headway.units import BytesPerSecond, Instant

HOURS = 24
MINUTES = 24 * 60

_ROW = struct.Struct(f"<{2 * HOURS}f")


class Prediction:
    """The table of rates by server address."""

    def __init__(
        self,
        prior_bytes_per_s: BytesPerSecond,
        calendar: Calendar | None = None,
        *,
        k: float = 0.3,
        sigma_min: float = 120.0,
    ) -> None:
        if not (prior_bytes_per_s > 0 and math.isfinite(prior_bytes_per_s)):
            raise ValueError(f"the prior rate must be positive and finite, not {prior_bytes_per_s}")
        self._calendar = calendar or Calendar()
        self._k = k
        self._sigma_min = sigma_min
        self._prior = float(prior_bytes_per_s)
        # The hours of holidays, then those of working days; 192 bytes for a server, of which there may be
        # very many.
        self._rates: dict[str, array[float]] = {}
        # The mean of the known servers is asked for at every unknown one, so its sum is kept, not made.
        self._sum = [0.0] * (2 * HOURS)
        self._changed: set[str] = set()
        self._minute = -1
        self._moment = (0, False)
        self._weighed_minute = -1
        self._weights: list[float] = []

    def __len__(self) -> int:
        return len(self._rates)

    def __contains__(self, server: str) -> bool:
        return server in self._rates

    def predict(self, now: Instant, server: str) -> BytesPerSecond:
        """What a download from this server would use of the link now."""
        minute, workday = self._moment_of(now)
        # The update centres hour h on minute 60 h, so an instant belongs to the nearest full hour.
        hour = _first_hour(workday) + (minute + 30) // 60 % HOURS
        rates = self._rates.get(server)
        if rates is not None:
            return BytesPerSecond(rates[hour])
        if self._rates:
            return BytesPerSecond(self._sum[hour] / len(self._rates))
        return BytesPerSecond(self._prior)

    def learn(
        self, now: Instant, server: str, measured_bytes_per_s: BytesPerSecond, *, held_back: bool = False
    ) -> None:
        """Take in M = bytes / (request issued -> body complete) of a download that has just ended.

        `held_back` says that our own pacing, not the server, set the pace: then the measure is a lower
        bound, and only raises what was predicted. Without this, a paced site could never be found fast.
        """
        if not (measured_bytes_per_s > 0 and math.isfinite(measured_bytes_per_s)):
            return
        measured = float(measured_bytes_per_s)
        minute, workday = self._moment_of(now)
        rates = self._rates.get(server)
        if rates is None:
            known = len(self._rates)
            rates = array("f", [each / known for each in self._sum] if known else [self._prior] * (2 * HOURS))
            self._add(server, rates)
        if minute != self._weighed_minute:
            self._weighed_minute = minute
            self._weights = [self._weight(minute - 60 * hour) for hour in range(HOURS)]
        # For so few values numpy takes longer than a loop does.
        weights, sums, first = self._weights, self._sum, _first_hour(workday)
        moved: list[float] = rates[first : first + HOURS].tolist()
        for hour in range(HOURS):
            rate = moved[hour]
            step = weights[hour] * (measured - rate)
            if held_back and step < 0.0:
                step = 0.0
            moved[hour] = rate + step
            sums[first + hour] += step
        rates[first : first + HOURS] = array("f", moved)
        self._changed.add(server)

    def _weight(self, minutes_apart: int) -> float:
        """On the 24-hour circle: 23:50 informs hour 0, too."""
        apart = abs(minutes_apart)
        apart = min(apart, MINUTES - apart)
        # The paper prints the exponent without its minus sign.
        return self._k * math.exp(-((apart / self._sigma_min) ** 2))

    def _moment_of(self, now: Instant) -> tuple[int, bool]:
        """The calendar's word, which holds for a minute."""
        minute = int(now // 60)
        if minute != self._minute:
            self._minute, self._moment = minute, self._calendar.moment(now)
        return self._moment

    def changed_rows(self) -> Iterator[tuple[str, bytes]]:
        """The servers learnt about since the last call, each with its 48 values (192 bytes) to be kept."""
        changed, self._changed = self._changed, set()
        for server in sorted(changed):
            yield server, _ROW.pack(*self._rates[server])

    def restore(self, rows: Iterable[tuple[str, bytes]]) -> None:
        """Take up what `changed_rows` gave; a row of another length or with impossible values is left out."""
        for server, packed in rows:
            if len(packed) != _ROW.size:
                continue
            rates = array("f", _ROW.unpack(packed))
            if not all(math.isfinite(rate) and rate >= 0 for rate in rates):
                continue
            before = self._rates.get(server)
            if before is not None:
                for hour, rate in enumerate(before):
                    self._sum[hour] -= rate
            self._add(server, rates)

    def _add(self, server: str, rates: array[float]) -> None:
        self._rates[server] = rates
        for hour, rate in enumerate(rates):
            self._sum[hour] += rate


def _first_hour(workday: bool) -> int:
    return HOURS if workday else 0
