from __future__ import annotations

from datetime import datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

from hypothesis import given
from hypothesis import strategies as st

from headway.policy.timetable import Period, Quota, QuotaTally, Segment
from headway.units import UNBOUNDED, Bytes, BytesPerSecond, Instant, Seconds

ROME = ZoneInfo("Europe/Rome")
DAILY = Quota(Bytes(1000), Period.DAY, ROME)
MONTHLY = Quota(Bytes(1000), Period.MONTH, ROME)


def at(text: str) -> Instant:
    return Instant(datetime.fromisoformat(text).replace(tzinfo=ROME).timestamp())


def test_a_day_is_renewed_at_local_midnight() -> None:
    assert DAILY.window(at("2026-11-09T15:30")) == (at("2026-11-09"), at("2026-11-10"))


def test_a_month_is_renewed_on_its_first_day() -> None:
    assert MONTHLY.window(at("2026-12-31T23:59:59")) == (at("2026-12-01"), at("2027-01-01"))
    assert MONTHLY.window(at("2028-02-29T12:00")) == (at("2028-02-01"), at("2028-03-01"))


def test_the_day_on_which_the_clock_is_moved_has_its_own_length() -> None:
    begin, end = DAILY.window(at("2026-10-25T12:00"))
    assert end - begin == 25 * 3600


def test_what_is_spent_is_gone_until_it_is_renewed() -> None:
    tally = QuotaTally(DAILY)
    tally.spend(at("2026-11-09T10:00"), 700)
    assert tally.remaining_bytes(at("2026-11-09T11:00")) == 300
    tally.spend(at("2026-11-09T12:00"), 700)
    assert tally.remaining_bytes(at("2026-11-09T23:00")) == 0
    assert tally.remaining_bytes(at("2026-11-10T00:00")) == 1000


def test_a_clock_set_back_does_not_renew_the_volume() -> None:
    tally = QuotaTally(DAILY)
    tally.spend(at("2026-11-10T00:10"), 900)
    assert tally.remaining_bytes(at("2026-11-09T23:50")) == 100
    assert tally.remaining_bytes(at("2026-11-10T00:20")) == 100


def test_used_bytes_are_restored_and_those_of_an_old_period_dropped() -> None:
    begin = DAILY.window(at("2026-11-09T10:00"))[0]
    again = QuotaTally(DAILY, used_bytes=700, period_from=begin)
    assert again.remaining_bytes(at("2026-11-09T10:01")) == 300
    assert QuotaTally(DAILY, used_bytes=700, period_from=begin).remaining_bytes(at("2026-11-12")) == 1000


def test_segments_are_cut_where_the_volume_is_used_up_and_go_on_when_it_is_renewed() -> None:
    tally = QuotaTally(DAILY)
    now = at("2026-11-09T23:00")
    tally.spend(now, 600)
    segments: list[Segment] = [
        (Seconds(0.0), Seconds(100.0), BytesPerSecond(2.0)),
        (Seconds(100.0), Seconds(7200.0), BytesPerSecond(1.0)),
    ]
    assert tally.cut(now, segments) == [
        (0.0, 100.0, 2.0),
        (100.0, 300.0, 1.0),
        (300.0, 3600.0, 0.0),
        (3600.0, 4600.0, 1.0),
        (4600.0, 7200.0, 0.0),
    ]


def test_an_unbounded_rate_leaves_nothing_of_a_spent_quota() -> None:
    tally = QuotaTally(DAILY)
    now = at("2026-11-09T12:00")
    tally.spend(now, 1000)
    unbounded: list[Segment] = [(Seconds(0.0), Seconds(60.0), UNBOUNDED)]
    assert tally.cut(now, unbounded) == [(0.0, 60.0, 0.0)]


@given(
    st.lists(st.tuples(st.floats(0.5, 40_000.0), st.floats(0.0, 3.0)), min_size=1, max_size=6),
    st.integers(0, 1500),
)
def test_cut_segments_cover_the_same_time_and_never_exceed_the_volume_of_a_day(
    spans: list[tuple[float, float]], used: int
) -> None:
    now = at("2026-11-09T12:00")
    tally = QuotaTally(DAILY)
    tally.spend(now, used)
    segments: list[Segment] = []
    begin = 0.0
    for length, rate in spans:
        segments.append((Seconds(begin), Seconds(begin + length), BytesPerSecond(rate)))
        begin += length
    pieces = tally.cut(now, segments)
    assert pieces[0][0] == 0.0
    assert pieces[-1][1] == segments[-1][1]
    assert all(left[1] == right[0] for left, right in pairwise(pieces))
    volume: dict[int, float] = {}
    for from_s, to_s, rate in pieces:
        midnights = [43200.0 + 86400.0 * day for day in range(4)]
        marks = [from_s, *(mark for mark in midnights if from_s < mark < to_s), to_s]
        for begin, end in pairwise(marks):
            day = int((begin + 43200) // 86400)
            volume[day] = volume.get(day, 0.0) + rate * (end - begin)
    assert volume.get(0, 0.0) <= max(0, 1000 - used) * (1 + 1e-9) + 1e-6
    assert all(spent <= 1000 * (1 + 1e-9) for day, spent in volume.items() if day)
