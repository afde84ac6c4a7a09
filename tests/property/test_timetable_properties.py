from __future__ import annotations

from itertools import pairwise
from zoneinfo import ZoneInfo

from hypothesis import given, settings
from hypothesis import strategies as st

from headway.policy.timetable import Entry, Timetable
from headway.units import BytesPerSecond, Instant, Seconds

ZONES = st.sampled_from(["UTC", "Europe/Rome", "America/St_Johns", "Australia/Lord_Howe", "Asia/Kathmandu"])


@st.composite
def timetables(draw: st.DrawFn) -> Timetable:
    entries = []
    for _ in range(draw(st.integers(0, 4))):
        begin = draw(st.integers(0, 95)) * 15
        length = draw(st.integers(1, 96)) * 15
        days = draw(st.frozensets(st.integers(0, 6), min_size=1))
        entries.append(Entry(days, begin, begin + length, BytesPerSecond(float(draw(st.integers(0, 3))))))
    return Timetable(BytesPerSecond(1.0), tuple(entries), ZoneInfo(draw(ZONES)))


# Around the days on which the clock is moved in 2026, and any other.
INSTANTS = st.one_of(
    st.integers(1_774_600_000, 1_774_900_000),
    st.integers(1_792_700_000, 1_793_100_000),
    st.integers(0, 2**31),
).map(lambda s: Instant(float(s)))


@settings(max_examples=60, deadline=None)
@given(timetables(), INSTANTS, st.lists(st.integers(0, 3 * 86400 - 1), min_size=1, max_size=30))
def test_between_changes_the_bound_is_what_the_segment_says(
    timetable: Timetable, now: Instant, seconds: list[int]
) -> None:
    horizon_s = Seconds(3 * 86400.0)
    pieces = timetable.segments(now, horizon_s)
    assert pieces[0][0] == 0.0
    assert pieces[-1][1] == horizon_s
    for (_, end, rate), (begin, _, next_rate) in pairwise(pieces):
        assert end == begin
        assert rate != next_rate
    for later_s in seconds:
        expected = timetable.capacity_at(Instant(now + later_s))
        assert [rate for begin, end, rate in pieces if begin <= later_s < end] == [expected]
