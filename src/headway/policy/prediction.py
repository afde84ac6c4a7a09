"""How fast a server answers at this hour: B(IP, hour, workday) of diligenti2004.

Each server has 24 hours for working days and 24 for holidays. Every finished download moves the hours
around its own by a Gaussian weight, so that the table follows both the clock and the server.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Iterator
from datetime import UTC, date, datetime, tzinfo
from functools import lru_cache

import msgspec
import numpy as np
import numpy.typing as npt

from headway.units import BytesPerSecond, Instant

HOURS = 24
MINUTES = 24 * 60
SATURDAY = 5

Rates = npt.NDArray[np.float32]


class Calendar(msgspec.Struct, frozen=True):
    """Which hour and which class of day an instant belongs to. `holidays` is anything that answers `in`
    for a date: a set, or a country's calendar."""

    zone: tzinfo = UTC
    holidays: Container[date] = frozenset()

    def moment(self, now: Instant) -> tuple[int, bool]:
        """Minute of the local day, and whether that is a working day."""
        local = datetime.fromtimestamp(now, self.zone)
        workday = local.weekday() < SATURDAY and local.date() not in self.holidays
        return local.hour * 60 + local.minute, workday


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
        self._weights = _weights_by_minute(k, sigma_min)
        self._prior = float(prior_bytes_per_s)
        self._row_of: dict[str, int] = {}
        self._rates: Rates = np.empty((16, 2, HOURS), dtype=np.float32)
        # The mean of the known servers is asked for at every unknown one, so its sum is kept, not made.
        self._sum = np.zeros((2, HOURS), dtype=np.float64)
        self._changed: set[str] = set()
        self._minute = -1
        self._moment = (0, False)

    def __len__(self) -> int:
        return len(self._row_of)

    def __contains__(self, server: str) -> bool:
        return server in self._row_of

    def predict(self, now: Instant, server: str) -> BytesPerSecond:
        """What a download from this server would use of the link now."""
        minute, workday = self._moment_of(now)
        # The update centres hour h on minute 60 h, so an instant belongs to the nearest full hour.
        hour = (minute + 30) // 60 % HOURS
        row = self._row_of.get(server)
        if row is not None:
            return BytesPerSecond(float(self._rates[row, int(workday), hour]))
        if self._row_of:
            return BytesPerSecond(float(self._sum[int(workday), hour]) / len(self._row_of))
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
        minute, workday = self._moment_of(now)
        row = self._row_of.get(server)
        if row is None:
            row = self._add(server, self._sum / len(self._row_of) if self._row_of else self._prior)
        rates = self._rates[row, int(workday)]
        # The paper prints the exponent of the weight without its minus sign.
        step = self._weights[minute] * (measured_bytes_per_s - rates)
        if held_back:
            np.maximum(step, 0.0, out=step)
        rates += step
        self._sum[int(workday)] += step
        self._changed.add(server)

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
            yield server, self._rates[self._row_of[server]].astype("<f4").tobytes()

    def restore(self, rows: Iterable[tuple[str, bytes]]) -> None:
        """Take up what `changed_rows` gave; a row of another length or with impossible values is left out."""
        for server, packed in rows:
            if len(packed) != 2 * HOURS * 4:
                continue
            rates = np.frombuffer(packed, dtype="<f4").reshape(2, HOURS)
            if not (np.isfinite(rates).all() and (rates >= 0).all()):
                continue
            row = self._row_of.get(server)
            if row is None:
                self._add(server, rates)
            else:
                self._sum += rates - self._rates[row]
                self._rates[row] = rates

    def _add(self, server: str, rates: npt.ArrayLike) -> int:
        row = len(self._row_of)
        if row == len(self._rates):
            self._rates = np.concatenate([self._rates, np.empty_like(self._rates)])
        self._rates[row] = rates
        self._sum += self._rates[row]
        self._row_of[server] = row
        return row


@lru_cache(maxsize=4)
def _weights_by_minute(k: float, sigma_min: float) -> Rates:
    """a(t - 60 h) for every minute t and hour h, on the 24-hour circle: 23:50 informs hour 0, too."""
    apart = np.abs(np.arange(MINUTES)[:, None] - 60 * np.arange(HOURS)[None, :])
    apart = np.minimum(apart, MINUTES - apart)
    weights: Rates = (k * np.exp(-((apart / sigma_min) ** 2))).astype(np.float32)
    weights.setflags(write=False)
    return weights
