"""Predicted download rate of a server at a time of day: B(IP, hour, workday) of diligenti2004.

Each server has 24 values for working days and 24 for holidays. Each finished download updates the hours
around its own with a Gaussian weight, so that the table follows both time of day and server.
"""

from __future__ import annotations

import math
import struct
from array import array
from collections.abc import Iterable, Iterator

from headway.policy.timetable import Calendar
from headway.units import BytesPerSecond, Instant

HOURS = 24
MINUTES = 24 * 60

_ROW = struct.Struct(f"<{2 * HOURS}f")


class Prediction:
    """The predicted rates by server address."""

    def __init__(
        self,
        prior_bytes_per_s: BytesPerSecond,
        calendar: Calendar | None = None,
        *,
        k: float = 0.3,
        sigma_min: float = 120.0,
        starts_from_prior: bool = True,
    ) -> None:
        """`starts_from_prior`: the first measurement of a server corrects the mean of the others, as in the
        paper; otherwise it counts alone."""
        if not (prior_bytes_per_s > 0 and math.isfinite(prior_bytes_per_s)):
            raise ValueError(f"the prior rate must be positive and finite, not {prior_bytes_per_s}")
        self._calendar = calendar or Calendar()
        self._k = k
        self._sigma_min = sigma_min
        self._prior = float(prior_bytes_per_s)
        self._starts_from_prior = starts_from_prior
        # The hours of holidays, then of working days: 192 bytes per server, because there may be very many.
        self._rates: dict[str, array[float]] = {}
        # Every unknown server needs the mean of the known ones, so the sums are kept up to date.
        self._sum = [0.0] * (2 * HOURS)
        self._changed: set[str] = set()
        self._minute = -1
        self._minute_and_workday = (0, False)
        self._weighed_minute = -1
        self._weights: list[float] = []

    def __len__(self) -> int:
        return len(self._rates)

    def __contains__(self, server: str) -> bool:
        return server in self._rates

    def predict(self, now: Instant, server: str) -> BytesPerSecond:
        """The rate that a download from this server would have now."""
        minute, workday = self._minute_of_day(now)
        # `learn` centres hour h on minute 60 h, so an instant belongs to the nearest full hour.
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
        """Update the table with M = bytes / (request sent -> body complete) of a download that just ended.

        `held_back`: our own pacing limited the rate, not the server. The measurement is then a lower bound,
        and only raises the prediction; otherwise a paced site could never be found to be fast.
        """
        if not (measured_bytes_per_s > 0 and math.isfinite(measured_bytes_per_s)):
            return
        measured = float(measured_bytes_per_s)
        minute, workday = self._minute_of_day(now)
        rates = self._rates.get(server)
        if rates is None:
            known = len(self._rates)
            if not self._starts_from_prior:
                self._add(server, array("f", [measured] * (2 * HOURS)))
                self._changed.add(server)
                return
            rates = array("f", [each / known for each in self._sum] if known else [self._prior] * (2 * HOURS))
            self._add(server, rates)
        if minute != self._weighed_minute:
            self._weighed_minute = minute
            self._weights = [self._weight(minute - 60 * hour) for hour in range(HOURS)]
        # For 24 values a loop is faster than NumPy.
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
        """The weight at a distance on the 24-hour circle: 23:50 updates hour 0 as well."""
        apart = abs(minutes_apart)
        apart = min(apart, MINUTES - apart)
        # The paper prints the exponent without its minus sign.
        return self._k * math.exp(-((apart / self._sigma_min) ** 2))

    def _minute_of_day(self, now: Instant) -> tuple[int, bool]:
        """Minute of the day and whether it is a working day, computed once a minute."""
        minute = int(now // 60)
        if minute != self._minute:
            self._minute, self._minute_and_workday = minute, self._calendar.minute_and_workday(now)
        return self._minute_and_workday

    def changed_rows(self) -> Iterator[tuple[str, bytes]]:
        """Each server whose values changed since the last call, with its 48 values packed in 192 bytes."""
        changed, self._changed = self._changed, set()
        for server in sorted(changed):
            yield server, _ROW.pack(*self._rates[server])

    def restore(self, rows: Iterable[tuple[str, bytes]]) -> None:
        """Load what `changed_rows` returned. Rows of the wrong length or with impossible values are
        ignored."""
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


_FOLD_EVERY_S = 60.0


class ServerTally:
    """Learns the rates of servers in a crawl that does not need them: the answers of a minute are added up,
    and taken in as one, so that an answer costs next to nothing."""

    def __init__(self, prediction: Prediction) -> None:
        self._prediction = prediction
        self._sums: dict[str, tuple[int, float]] = {}
        self.due_at = Instant(-math.inf)
        """When `fold` is to be called next."""

    def count(self, server: str, wire_bytes: int, duration_s: float) -> None:
        known_bytes, known_s = self._sums.get(server, (0, 0.0))
        self._sums[server] = known_bytes + wire_bytes, known_s + duration_s

    def restore(self, rows: Iterable[tuple[str, bytes]]) -> None:
        self._prediction.restore(rows)

    def fold(self, now: Instant) -> tuple[tuple[str, bytes], ...]:
        """Take in what was counted; returns the servers whose values have changed, as rows for the store."""
        self.due_at = Instant(now + _FOLD_EVERY_S)
        for server, (wire_bytes, duration_s) in self._sums.items():
            if duration_s > 0:
                self._prediction.learn(now, server, BytesPerSecond(wire_bytes / duration_s))
        self._sums.clear()
        return tuple(self._prediction.changed_rows())


def _first_hour(workday: bool) -> int:
    return HOURS if workday else 0
