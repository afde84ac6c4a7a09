"""A volume that may be fetched in a day or a month: what is left of it, and when it is renewed."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, tzinfo

import msgspec

from headway.policy.timetable import Segment
from headway.units import Bytes, BytesPerSecond, Instant, Seconds


class Period(enum.StrEnum):
    DAY = "day"
    MONTH = "month"


class Quota(msgspec.Struct, frozen=True):
    limit_bytes: Bytes
    period: Period
    zone: tzinfo = UTC

    def window(self, now: Instant) -> tuple[Instant, Instant]:
        """When the period that `now` lies in began, and when it is renewed (local midnight)."""
        midnight = datetime.fromtimestamp(now, self.zone).replace(
            hour=0, minute=0, second=0, microsecond=0, fold=0
        )
        if self.period is Period.DAY:
            begin, end = midnight, midnight + timedelta(days=1)
        else:
            begin = midnight.replace(day=1)
            end = (begin + timedelta(days=32)).replace(day=1)
        return Instant(begin.timestamp()), Instant(end.timestamp())


class QuotaTally:
    """How much of a quota has been used in the current period."""

    def __init__(self, quota: Quota, *, used_bytes: int = 0, period_from: Instant | None = None) -> None:
        self.quota = quota
        self._used_bytes = used_bytes
        self._period_from = period_from

    def spend(self, now: Instant, received_bytes: int) -> None:
        self._turn(now)
        self._used_bytes += received_bytes

    def remaining_bytes(self, now: Instant) -> Bytes:
        self._turn(now)
        return Bytes(max(0, self.quota.limit_bytes - self._used_bytes))

    def renews_at(self, now: Instant) -> Instant:
        return self.quota.window(now)[1]

    def cut(self, now: Instant, segments: Sequence[Segment]) -> list[Segment]:
        """The segments of a timetable with a rate of zero wherever the quota would be used up.

        Each renewal within the horizon brings the whole volume again, and a segment is split there.
        """
        remaining = float(self.remaining_bytes(now))
        renewal_s = self.renews_at(now) - now
        pieces: list[Segment] = []
        for from_s, to_s, rate in segments:
            begin = float(from_s)
            while begin < to_s:
                if begin >= renewal_s:
                    remaining = float(self.quota.limit_bytes)
                    renewal_s = self.renews_at(Instant(now + renewal_s)) - now
                end = min(float(to_s), renewal_s)
                lasting_s = max(0.0, remaining) / rate if rate > 0 else end - begin
                spent_at = min(end, begin + lasting_s)
                _append(pieces, begin, spent_at, rate)
                _append(pieces, spent_at, end, BytesPerSecond(0.0))
                remaining = remaining - rate * (spent_at - begin) if spent_at == end else 0.0
                begin = end
        return pieces

    def _turn(self, now: Instant) -> None:
        begin = self.quota.window(now)[0]
        if self._period_from is None:
            self._period_from = begin
        # A clock set back must not renew the volume.
        if begin > self._period_from:
            self._period_from, self._used_bytes = begin, 0


def _append(pieces: list[Segment], begin: float, end: float, rate: BytesPerSecond) -> None:
    if end <= begin:
        return
    if pieces and pieces[-1][2] == rate and pieces[-1][1] == begin:
        begin = pieces.pop()[0]
    pieces.append((Seconds(begin), Seconds(end), rate))
