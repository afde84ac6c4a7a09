from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from headway.errors import JobError
from headway.policy.timetable import Entry, Timetable, parse_days, parse_hours
from headway.units import BytesPerSecond, Instant, Seconds

ROME = ZoneInfo("Europe/Rome")
SLOW, USUAL, FAST = BytesPerSecond(1.0), BytesPerSecond(5.0), BytesPerSecond(9.0)


def at(text: str, fold: int = 0) -> Instant:
    return Instant(datetime.fromisoformat(text).replace(tzinfo=ROME, fold=fold).timestamp())


def table(*entries: tuple[str, str, BytesPerSecond]) -> Timetable:
    return Timetable(USUAL, tuple(Entry.parse(*entry) for entry in entries), ROME)


OFFICE = table(("mon-fri", "08:00-18:00", SLOW))


def test_days_are_read_as_single_days_spans_and_lists() -> None:
    assert parse_days("mon-fri") == {0, 1, 2, 3, 4}
    assert parse_days("mon, wed, Sat-Sun") == {0, 2, 5, 6}
    assert parse_days("sat-mon") == {5, 6, 0}
    assert parse_days("daily") == set(range(7))


@pytest.mark.parametrize("text", ["", "monday", "mon-", "mon fri", "mon-fri-sun", "mo"])
def test_days_that_cannot_be_read_are_named(text: str) -> None:
    with pytest.raises(JobError, match="not a list of days"):
        parse_days(text)


def test_hours_are_read_as_minutes_and_may_pass_midnight() -> None:
    assert parse_hours("08:00-18:30") == (480, 1110)
    assert parse_hours("22:00-06:00") == (1320, 1800)
    assert parse_hours("00:00-24:00") == (0, 1440)


@pytest.mark.parametrize(
    "text", ["", "8-18", "08:00", "08:00-08:00", "24:00-06:00", "08:60-09:00", "00:00-24:01"]
)
def test_hours_that_cannot_be_read_are_refused(text: str) -> None:
    with pytest.raises(JobError):
        parse_hours(text)


def test_the_entry_holds_from_its_first_minute_to_before_its_last() -> None:
    assert OFFICE.capacity_at(at("2026-11-09T07:59:59")) == USUAL
    assert OFFICE.capacity_at(at("2026-11-09T08:00")) == SLOW
    assert OFFICE.capacity_at(at("2026-11-09T17:59:59")) == SLOW
    assert OFFICE.capacity_at(at("2026-11-09T18:00")) == USUAL
    assert OFFICE.capacity_at(at("2026-11-08T12:00")) == USUAL, "a Sunday"


def test_a_span_past_midnight_belongs_to_the_day_it_begins_on() -> None:
    night = table(("fri", "22:00-06:00", FAST))
    assert night.capacity_at(at("2026-11-13T05:00")) == USUAL, "Friday before dawn"
    assert night.capacity_at(at("2026-11-13T23:00")) == FAST
    assert night.capacity_at(at("2026-11-14T05:59")) == FAST, "Saturday before dawn"
    assert night.capacity_at(at("2026-11-14T06:00")) == USUAL


def test_where_entries_overlap_the_later_wins() -> None:
    both = table(("daily", "00:00-24:00", SLOW), ("daily", "12:00-13:00", FAST))
    assert both.capacity_at(at("2026-11-09T12:30")) == FAST
    assert both.capacity_at(at("2026-11-09T13:30")) == SLOW


def test_the_next_change_is_the_first_at_which_the_bound_differs() -> None:
    assert OFFICE.next_change_after(at("2026-11-09T07:00")) == at("2026-11-09T08:00")
    assert OFFICE.next_change_after(at("2026-11-09T08:00")) == at("2026-11-09T18:00")
    assert OFFICE.next_change_after(at("2026-11-13T18:00")) == at("2026-11-16T08:00"), "over the weekend"


def test_a_weekly_entry_is_found_from_just_after_its_end() -> None:
    once = table(("mon", "08:00-09:00", SLOW))
    assert once.next_change_after(at("2026-11-09T09:00")) == at("2026-11-16T08:00")


def test_entries_that_meet_with_one_rate_are_no_change() -> None:
    whole = table(("daily", "00:00-12:00", SLOW), ("daily", "12:00-24:00", SLOW))
    assert whole.next_change_after(at("2026-11-09T07:00")) is None
    assert table().next_change_after(at("2026-11-09T07:00")) is None


def test_segments_follow_one_another_to_the_horizon() -> None:
    assert OFFICE.segments(at("2026-11-09T07:00"), Seconds(86400.0)) == [
        (0.0, 3600.0, USUAL),
        (3600.0, 39600.0, SLOW),
        (39600.0, 86400.0, USUAL),
    ]
    assert table().segments(at("2026-11-09T07:00"), Seconds(10.0)) == [(0.0, 10.0, USUAL)]


def test_when_the_clock_leaps_forward_a_span_across_it_is_an_hour_shorter() -> None:
    night = table(("sat", "22:00-06:00", FAST))
    begin = night.next_change_after(at("2026-03-28T20:00"))
    assert begin == at("2026-03-28T22:00")
    end = night.next_change_after(begin)
    assert end == at("2026-03-29T06:00")
    assert end - begin == 7 * 3600


def test_when_the_clock_is_set_back_a_span_across_it_is_an_hour_longer() -> None:
    night = table(("sat", "22:00-06:00", FAST))
    begin = at("2026-10-24T22:00")
    end = night.next_change_after(begin)
    assert end is not None
    assert end - begin == 9 * 3600


def test_a_time_that_the_clock_leaps_over_takes_effect_at_the_leap() -> None:
    early = table(("sun", "02:30-05:00", FAST))
    assert early.next_change_after(at("2026-03-29T01:00")) == at("2026-03-29T03:00")


def test_a_span_in_the_repeated_hour_comes_twice() -> None:
    twice = table(("sun", "02:15-02:45", FAST))
    changes = []
    now: Instant | None = at("2026-10-25T01:00")
    while now is not None and len(changes) < 4:
        now = twice.next_change_after(now)
        changes.append(now)
    assert changes == [
        at("2026-10-25T02:15"),
        at("2026-10-25T02:45"),
        at("2026-10-25T02:15", fold=1),
        at("2026-10-25T02:45", fold=1),
    ]
