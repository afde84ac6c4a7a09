"""The table B(IP, hour, workday) of diligenti2004, against the paper's formula worked out by hand."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from zoneinfo import ZoneInfo

import holidays
import pytest

from headway.policy.prediction import Prediction
from headway.policy.timetable import Calendar
from headway.units import BytesPerSecond, Instant

KB = 1000.0


def at(text: str, zone: str = "UTC") -> Instant:
    return Instant(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp())


MONDAY_8 = at("2026-11-09T08:00")
SUNDAY_8 = at("2026-11-08T08:00")


def rate(value: float) -> BytesPerSecond:
    return BytesPerSecond(value)


def test_the_hour_of_the_download_moves_by_k_towards_the_measure() -> None:
    table = Prediction(rate(100 * KB))
    table.learn(MONDAY_8, "192.0.2.1", rate(200 * KB))
    assert table.predict(MONDAY_8, "192.0.2.1") == pytest.approx(130 * KB)


def test_hours_around_it_move_by_the_gaussian_weight() -> None:
    table = Prediction(rate(100 * KB))
    table.learn(MONDAY_8, "a", rate(200 * KB))
    for hours_apart in (-3, -1, 1, 2, 5):
        weight = 0.3 * math.exp(-((60 * hours_apart) ** 2) / 120**2)
        assert table.predict(Instant(MONDAY_8 + 3600 * hours_apart), "a") == pytest.approx(
            (100 + 100 * weight) * KB, rel=1e-5
        )


def test_ten_minutes_before_midnight_inform_the_first_hour_of_the_day() -> None:
    table = Prediction(rate(100 * KB))
    table.learn(at("2026-11-09T23:50"), "a", rate(200 * KB))
    weight = 0.3 * math.exp(-(10**2) / 120**2)
    assert table.predict(at("2026-11-10T00:05"), "a") == pytest.approx((100 + 100 * weight) * KB, rel=1e-5)


def test_working_days_and_holidays_are_learnt_apart() -> None:
    table = Prediction(rate(100 * KB))
    table.learn(MONDAY_8, "a", rate(200 * KB))
    assert table.predict(SUNDAY_8, "a") == pytest.approx(100 * KB)


def test_a_listed_date_counts_as_a_holiday() -> None:
    calendar = Calendar(UTC, frozenset({date(2026, 11, 9)}))
    assert calendar.minute_and_workday(MONDAY_8) == (8 * 60, False)
    assert calendar.minute_and_workday(Instant(MONDAY_8 + 86400)) == (8 * 60, True)


def test_a_countrys_calendar_can_be_given() -> None:
    calendar = Calendar(ZoneInfo("Europe/Rome"), holidays.country_holidays("IT"))
    assert calendar.minute_and_workday(at("2026-06-02T10:30", "Europe/Rome")) == (630, False)
    assert calendar.minute_and_workday(at("2026-06-03T10:30", "Europe/Rome")) == (630, True)


def test_the_class_of_day_is_that_of_the_local_date() -> None:
    tokyo = Calendar(ZoneInfo("Asia/Tokyo"))
    # Sunday evening in London is Monday morning in Tokyo.
    assert tokyo.minute_and_workday(at("2026-11-08T23:00")) == (8 * 60, True)


def test_an_unknown_server_is_given_the_prior_and_then_the_mean_of_the_known() -> None:
    table = Prediction(rate(50 * KB))
    assert table.predict(MONDAY_8, "new") == 50 * KB
    for _ in range(60):
        table.learn(MONDAY_8, "slow", rate(10 * KB))
    for _ in range(60):
        table.learn(MONDAY_8, "fast", rate(90 * KB))
    assert table.predict(MONDAY_8, "new") == pytest.approx(50 * KB, rel=1e-3)
    for _ in range(60):
        table.learn(MONDAY_8, "faster", rate(200 * KB))
    assert table.predict(MONDAY_8, "new") == pytest.approx(100 * KB, rel=1e-3)
    assert "new" not in table


def test_a_download_that_we_held_back_never_lowers_what_is_predicted() -> None:
    table = Prediction(rate(100 * KB))
    table.learn(MONDAY_8, "a", rate(1 * KB), held_back=True)
    assert table.predict(MONDAY_8, "a") == pytest.approx(100 * KB)
    table.learn(MONDAY_8, "a", rate(200 * KB), held_back=True)
    assert table.predict(MONDAY_8, "a") == pytest.approx(130 * KB)


@pytest.mark.parametrize("measured", [0.0, -1.0, math.inf, math.nan])
def test_an_impossible_measure_is_left_out(measured: float) -> None:
    table = Prediction(rate(100 * KB))
    table.learn(MONDAY_8, "a", rate(measured))
    assert "a" not in table


def test_what_was_kept_predicts_the_same_after_a_restart() -> None:
    table = Prediction(rate(100 * KB))
    for number in range(40):
        table.learn(MONDAY_8, f"server {number}", rate((number + 1) * KB))
    rows = dict(table.changed_rows())
    assert len(rows) == 40
    assert all(len(packed) == 192 for packed in rows.values())
    assert list(table.changed_rows()) == []

    again = Prediction(rate(1.0))
    again.restore(rows.items())
    for hour in range(24):
        now = Instant(MONDAY_8 + 3600 * hour)
        assert again.predict(now, "server 7") == table.predict(now, "server 7")
        assert again.predict(now, "unknown") == pytest.approx(table.predict(now, "unknown"), rel=1e-5)


def test_a_later_row_of_the_same_server_replaces_the_earlier() -> None:
    table = Prediction(rate(100 * KB))
    table.learn(MONDAY_8, "a", rate(200 * KB))
    (first,) = table.changed_rows()
    table.learn(MONDAY_8, "a", rate(200 * KB))
    (second,) = table.changed_rows()
    again = Prediction(rate(1.0))
    again.restore([first, second])
    assert len(again) == 1
    assert again.predict(MONDAY_8, "a") == again.predict(MONDAY_8, "unknown") == table.predict(MONDAY_8, "a")


def test_rows_that_cannot_be_read_are_left_out() -> None:
    table = Prediction(rate(100 * KB))
    nonsense = b"\xff\xff\xff\x7f" * 48  # not a number, 48 times
    table.restore([("short", b"\0" * 5), ("nan", nonsense)])
    assert len(table) == 0


def test_the_first_measurement_may_count_alone() -> None:
    table = Prediction(BytesPerSecond(1_000_000.0), starts_from_prior=False)
    table.learn(MONDAY_8, "a", BytesPerSecond(10_000.0))
    assert table.predict(MONDAY_8, "a") == pytest.approx(10_000.0)
    assert len(list(table.changed_rows())) == 1
