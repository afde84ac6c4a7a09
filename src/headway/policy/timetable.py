"""The bound by weekday and hour of the local clock.

An entry holds on the days on which it begins: "fri" with "22:00-06:00" ends on Saturday morning. Where
entries overlap the later one wins, so that a job file goes from the general to the particular. Times are
wall-clock times: on the days on which the clock is moved, a span is an hour shorter or longer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo

import msgspec

from headway.errors import JobError
from headway.units import BytesPerSecond, Instant, Seconds

DAY_NAMES = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
DAY_MINUTES = 24 * 60

Segment = tuple[Seconds, Seconds, BytesPerSecond]
"""From, to (both reckoned from now) and the rate in between."""


def parse_days(text: str) -> frozenset[int]:
    """Read "mon-fri", "sat,sun", "fri-mon" or "daily" as weekday numbers, Monday being 0."""
    days: set[int] = set()
    for part in text.lower().replace(" ", "").split(","):
        if part in {"daily", "all"}:
            days.update(range(7))
            continue
        first, dash, last = part.partition("-")
        if first not in DAY_NAMES or (dash and last not in DAY_NAMES):
            raise JobError(f"{text!r} is not a list of days such as 'mon-fri' or 'mon,wed,sat-sun'")
        begin = DAY_NAMES.index(first)
        length = (DAY_NAMES.index(last) - begin) % 7 if dash else 0
        days.update((begin + ahead) % 7 for ahead in range(length + 1))
    return frozenset(days)


def parse_hours(text: str) -> tuple[int, int]:
    """Read "08:00-18:00" as minutes of the day; "22:00-06:00" goes past midnight and ends at 30 h."""
    match = re.fullmatch(r"\s*(\d{1,2}):(\d\d)\s*-\s*(\d{1,2}):(\d\d)\s*", text)
    if match is None:
        raise JobError(f"{text!r} is not a span of hours such as '08:00-18:00'")
    from_h, from_min, to_h, to_min = map(int, match.groups())
    begin, end = from_h * 60 + from_min, to_h * 60 + to_min
    if from_min > 59 or to_min > 59 or begin >= DAY_MINUTES or end > DAY_MINUTES:
        raise JobError(f"{text!r} has an hour that the day has not")
    if begin == end:
        raise JobError(f"{text!r} is empty; write '00:00-24:00' for the whole day")
    return begin, end if end > begin else end + DAY_MINUTES


class Entry(msgspec.Struct, frozen=True):
    days: frozenset[int]
    from_minute: int
    to_minute: int
    """More than 24 h when it ends on the next day."""
    rate_bytes_per_s: BytesPerSecond

    @classmethod
    def parse(cls, days: str, hours: str, rate_bytes_per_s: BytesPerSecond) -> Entry:
        return cls(parse_days(days), *parse_hours(hours), rate_bytes_per_s)

    def holds(self, weekday: int, minute: int) -> bool:
        begun_today = weekday in self.days and self.from_minute <= minute < self.to_minute
        begun_yesterday = (weekday - 1) % 7 in self.days and minute + DAY_MINUTES < self.to_minute
        return begun_today or begun_yesterday


class Timetable(msgspec.Struct, frozen=True):
    usual_bytes_per_s: BytesPerSecond
    """Whenever no entry holds."""
    entries: tuple[Entry, ...] = ()
    zone: tzinfo = UTC

    def capacity_at(self, at: Instant) -> BytesPerSecond:
        local = datetime.fromtimestamp(at, self.zone)
        return self._capacity_on(local.weekday(), local.hour * 60 + local.minute)

    def next_change_after(self, at: Instant) -> Instant | None:
        """When another bound begins to hold; None when there is only one."""
        current = self.capacity_at(at)
        return next((turn for turn in self._turns(at) if self.capacity_at(turn) != current), None)

    def segments(self, now: Instant, horizon_s: Seconds) -> list[Segment]:
        """The bound from now to the horizon, piece by piece without a gap."""
        pieces: list[Segment] = []
        begin = now
        while begin - now < horizon_s:
            change = self.next_change_after(begin)
            end_s = horizon_s if change is None else min(horizon_s, Seconds(change - now))
            pieces.append((Seconds(begin - now), Seconds(end_s), self.capacity_at(begin)))
            if change is None:
                break
            begin = change
        return pieces

    def _capacity_on(self, weekday: int, minute: int) -> BytesPerSecond:
        holding = (entry for entry in reversed(self.entries) if entry.holds(weekday, minute))
        entry = next(holding, None)
        return self.usual_bytes_per_s if entry is None else entry.rate_bytes_per_s

    def _turns(self, at: Instant) -> Iterator[Instant]:
        """Every instant of the week to come at which the bound may change, in order."""
        if not self.entries:
            return
        marks = sorted({m % DAY_MINUTES for e in self.entries for m in (e.from_minute, e.to_minute)} | {0})
        today = datetime.fromtimestamp(at, self.zone).date()
        before = at
        for ahead in range(9):
            day = today + timedelta(days=ahead)
            wall = [datetime(day.year, day.month, day.day, *divmod(m, 60), tzinfo=self.zone) for m in marks]
            # In the hour that the clock repeats, a wall-clock time comes twice.
            instants = {Instant(time.replace(fold=fold).timestamp()) for time in wall for fold in (0, 1)}
            for turn in sorted(instant for instant in instants if instant > at):
                # A time that the clock leaps over never comes; the leap itself is the turn then.
                leap = self._leap_between(before, turn)
                if leap is not None:
                    yield leap
                yield turn
                before = turn

    def _leap_between(self, begin: Instant, end: Instant) -> Instant | None:
        if self._offset(begin) == self._offset(end):
            return None
        low, high = int(begin), int(end)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._offset(middle) != self._offset(begin) else (middle, high)
        return Instant(float(high)) if high > begin else None

    def _offset(self, at: float) -> timedelta | None:
        return datetime.fromtimestamp(at, self.zone).utcoffset()
