"""Bandwidth over time: the bound by weekday and hour, and quotas of a day or month.

A timetable entry applies on the days on which it starts: "fri" with "22:00-06:00" ends on Saturday morning.
Where entries overlap the later one wins, so that a job file goes from the general to the particular. Times
are wall-clock times: when the clock changes, an entry is an hour shorter or longer.
"""

from __future__ import annotations

import enum
import heapq
import re
from collections.abc import Container, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta, tzinfo

import msgspec

from headway.errors import JobError
from headway.units import Bytes, BytesPerSecond, Instant, Seconds

SATURDAY = 5


class Calendar(msgspec.Struct, frozen=True):
    """Tells the time of day and whether a day is a working day. `holidays` is any container of dates, such
    as a set or the calendar of a country."""

    zone: tzinfo = UTC
    holidays: Container[date] = frozenset()

    def minute_and_workday(self, now: Instant) -> tuple[int, bool]:
        """Minute of the local day, and whether that is a working day."""
        local = datetime.fromtimestamp(now, self.zone)
        workday = local.weekday() < SATURDAY and local.date() not in self.holidays
        return local.hour * 60 + local.minute, workday


DAY_NAMES = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
DAY_MINUTES = 24 * 60

Segment = tuple[Seconds, Seconds, BytesPerSecond]
"""From and to, in seconds from now, and the rate in between."""


def parse_days(text: str) -> frozenset[int]:
    """Parse "mon-fri", "sat,sun", "fri-mon" or "daily" to weekday numbers; Monday is 0."""
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
    """Parse "08:00-18:00" to minutes of the day; "22:00-06:00" crosses midnight and ends at 30 h."""
    match = re.fullmatch(r"\s*(\d{1,2}):(\d\d)\s*-\s*(\d{1,2}):(\d\d)\s*", text)
    if match is None:
        raise JobError(f"{text!r} is not a time range such as '08:00-18:00'")
    from_h, from_min, to_h, to_min = map(int, match.groups())
    begin, end = from_h * 60 + from_min, to_h * 60 + to_min
    if from_min > 59 or to_min > 59 or begin >= DAY_MINUTES or end > DAY_MINUTES:
        raise JobError(f"{text!r} has a time that is not between 00:00 and 24:00")
    if begin == end:
        raise JobError(f"{text!r} is empty; write '00:00-24:00' for the whole day")
    return begin, end if end > begin else end + DAY_MINUTES


class Entry(msgspec.Struct, frozen=True):
    days: frozenset[int]
    from_minute: int
    to_minute: int
    """More than 24 h if the entry ends on the next day."""
    rate_bytes_per_s: BytesPerSecond = BytesPerSecond(0.0)

    @classmethod
    def parse(cls, days: str, hours: str, rate_bytes_per_s: BytesPerSecond) -> Entry:
        return cls(parse_days(days), *parse_hours(hours), rate_bytes_per_s)

    @classmethod
    def window(cls, days: frozenset[int], begin: int, end: int) -> Entry:
        """A time without a rate of its own; one that ends before it begins ends on the next day."""
        return cls(days, begin, end + DAY_MINUTES if end < begin else end)

    def overlaps(self, other: Entry) -> bool:
        week = 7 * DAY_MINUTES
        for day in self.days:
            for other_day in other.days:
                after = (other_day - day) * DAY_MINUTES + other.from_minute - self.from_minute
                is_within = after % week < self.to_minute - self.from_minute
                if is_within or -after % week < other.to_minute - other.from_minute:
                    return True
        return False

    def holds(self, weekday: int, minute: int) -> bool:
        started_today = weekday in self.days and self.from_minute <= minute < self.to_minute
        started_yesterday = (weekday - 1) % 7 in self.days and minute + DAY_MINUTES < self.to_minute
        return started_today or started_yesterday


def problem_of_windows(windows: Sequence[Entry]) -> tuple[int, str, str] | tuple[int, str] | None:
    """The number of the first window that makes no sense, its key if there is one, and what is wrong."""
    for number, window in enumerate(windows):
        if window.from_minute == window.to_minute:
            return number, "until", "it is the begin, too: the window never opens"
        if any(window.overlaps(other) for other in windows[:number]):
            return number, "it overlaps a window above; write one window for both"
    return None


class Timetable(msgspec.Struct, frozen=True):
    usual_bytes_per_s: BytesPerSecond
    """The bound when no entry applies."""
    entries: tuple[Entry, ...] = ()
    zone: tzinfo = UTC
    windows: tuple[Entry, ...] = ()
    """When the crawl may run; outside them the bound is zero. None given: at any time."""
    window_zone: tzinfo | None = None
    """None: as `zone`."""
    grace_s: Seconds = Seconds(30.0)
    """When the bound becomes zero, what is under way may go on for so long."""

    def with_rate(self, rate_bytes_per_s: BytesPerSecond) -> Timetable:
        """One rate at any time, within the same windows."""
        return msgspec.structs.replace(self, usual_bytes_per_s=rate_bytes_per_s, entries=())

    def capacity_at(self, at: Instant) -> BytesPerSecond:
        if self.windows:
            local = datetime.fromtimestamp(at, self.window_zone or self.zone)
            weekday, minute = local.weekday(), local.hour * 60 + local.minute
            if not any(window.holds(weekday, minute) for window in self.windows):
                return BytesPerSecond(0.0)
        if not self.entries:
            return self.usual_bytes_per_s
        local = datetime.fromtimestamp(at, self.zone)
        return self._rate_on(local.weekday(), local.hour * 60 + local.minute)

    def next_change_after(self, at: Instant) -> Instant | None:
        """When the bound next changes; None if it never does."""
        current = self.capacity_at(at)
        return next((change for change in self._changes(at) if self.capacity_at(change) != current), None)

    def segments(self, now: Instant, horizon_s: Seconds) -> list[Segment]:
        """The bound from now to the horizon, in segments without gaps."""
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

    def _rate_on(self, weekday: int, minute: int) -> BytesPerSecond:
        holding = (entry for entry in reversed(self.entries) if entry.holds(weekday, minute))
        entry = next(holding, None)
        return self.usual_bytes_per_s if entry is None else entry.rate_bytes_per_s

    def _changes(self, at: Instant) -> Iterator[Instant]:
        """Every instant of the next nine days at which the bound may change, in order."""
        if self.window_zone is None or self.window_zone == self.zone:
            return _changes_of((*self.entries, *self.windows), at, self.zone)
        both = _changes_of(self.entries, at, self.zone), _changes_of(self.windows, at, self.window_zone)
        return heapq.merge(*both)


def _changes_of(entries: Sequence[Entry], at: Instant, zone: tzinfo) -> Iterator[Instant]:
    """The instants of the next nine days at which an entry may begin or end, in order."""
    if not entries:
        return
    marks = sorted({m % DAY_MINUTES for e in entries for m in (e.from_minute, e.to_minute)} | {0})
    today = datetime.fromtimestamp(at, zone).date()
    before = at
    for ahead in range(9):
        day = today + timedelta(days=ahead)
        wall = [datetime(day.year, day.month, day.day, *divmod(m, 60), tzinfo=zone) for m in marks]
        # When the clock is set back, a wall-clock time occurs twice.
        instants = {Instant(time.replace(fold=fold).timestamp()) for time in wall for fold in (0, 1)}
        for change in sorted(instant for instant in instants if instant > at):
            # A wall-clock time that is skipped never occurs; the bound changes at the skip instead.
            clock_change = _clock_change_between(before, change, zone)
            if clock_change is not None:
                yield clock_change
            yield change
            before = change


def _clock_change_between(begin: Instant, end: Instant, zone: tzinfo) -> Instant | None:
    if _offset(begin, zone) == _offset(end, zone):
        return None
    low, high = int(begin), int(end)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _offset(middle, zone) != _offset(begin, zone) else (middle, high)
    return Instant(float(high)) if high > begin else None


def _offset(at: float, zone: tzinfo) -> timedelta | None:
    return datetime.fromtimestamp(at, zone).utcoffset()


class Period(enum.StrEnum):
    DAY = "day"
    MONTH = "month"


class Quota(msgspec.Struct, frozen=True):
    limit_bytes: Bytes
    period: Period
    zone: tzinfo = UTC

    def window(self, now: Instant) -> tuple[Instant, Instant]:
        """Start and end of the period that contains `now` (local midnight)."""
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
        self._renew(now)
        self._used_bytes += received_bytes

    def remaining_bytes(self, now: Instant) -> Bytes:
        self._renew(now)
        return Bytes(max(0, self.quota.limit_bytes - self._used_bytes))

    def renews_at(self, now: Instant) -> Instant:
        return self.quota.window(now)[1]

    def cut(self, now: Instant, segments: Sequence[Segment]) -> list[Segment]:
        """The segments of a timetable, with a rate of zero from where the quota is used up.

        At each renewal within the horizon the whole volume is available again.
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

    def _renew(self, now: Instant) -> None:
        begin = self.quota.window(now)[0]
        if self._period_from is None:
            self._period_from = begin
        # Setting the clock back must not renew the quota.
        if begin > self._period_from:
            self._period_from, self._used_bytes = begin, 0


def _append(pieces: list[Segment], begin: float, end: float, rate: BytesPerSecond) -> None:
    if end <= begin:
        return
    if pieces and pieces[-1][2] == rate and pieces[-1][1] == begin:
        begin = pieces.pop()[0]
    pieces.append((Seconds(begin), Seconds(end), rate))
