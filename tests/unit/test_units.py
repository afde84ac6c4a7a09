from __future__ import annotations

import math

import pytest

from headway.config.values import pause
from headway.errors import UnitError
from headway.units import (
    format_duration,
    format_rate,
    format_size,
    parse_duration,
    parse_rate,
    parse_size,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5 Mbit/s", 625_000),
        ("200 KB/s", 200_000),
        ("200kB/s", 200_000),
        ("1 KiB/s", 1024),
        ("8bit/s", 1),
        ("1.5 MB / s", 1_500_000),
        ("1000Kbit/s", 125_000),
    ],
)
def test_rates_are_read_as_bytes_per_second(text: str, expected: float) -> None:
    assert parse_rate(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"), [("1 GiB", 2**30), ("200 KB", 200_000), ("8 Mbit", 10**6), ("0 B", 0)]
)
def test_sizes_are_read_as_bytes(text: str, expected: int) -> None:
    assert parse_size(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("2 h", 7200), ("90s", 90), ("1 h 30 min", 5400), ("1h30m", 5400), ("250 ms", 0.25), ("1 d", 86400)],
)
def test_durations_are_read_as_seconds(text: str, expected: float) -> None:
    assert parse_duration(text) == expected


@pytest.mark.parametrize(
    "text", ["5", "5 Mb/s", "5 Mbps", "", "fast", "-5 Mbit/s", "5 Mbit", "nan MB/s", "1e999 MB/s"]
)
def test_a_rate_that_could_mean_two_things_or_none_is_refused(text: str) -> None:
    with pytest.raises(UnitError, match="rate"):
        parse_rate(text)


def test_the_message_says_what_is_amiss() -> None:
    with pytest.raises(UnitError, match="unit is missing"):
        parse_size("500")
    with pytest.raises(UnitError, match="'bit' for bits"):
        parse_rate("5 Mb/s")
    with pytest.raises(UnitError, match="negative"):
        parse_duration("-2 h")


@pytest.mark.parametrize(
    ("rate", "expected"),
    [(999, "999 B/s"), (1000, "1 KB/s"), (140_000, "140 KB/s"), (2.5e6, "2.5 MB/s"), (math.inf, "unbounded")],
)
def test_rates_are_shown_in_decimal_units(rate: float, expected: str) -> None:
    assert format_rate(rate) == expected


def test_sizes_and_durations_are_shown_for_people() -> None:
    assert format_size(0) == "0 B"
    assert format_size(999_999) == "1 MB"
    assert format_duration(5) == "5.0 s"
    assert format_duration(59.99) == "60.0 s"
    assert format_duration(3600) == "1 h"
    assert format_duration(3660 + 86400) == "1 d 1 h 1 min"
    assert format_duration(math.inf) == "never"
    assert format_duration(-90) == "-1 min 30 s"


def test_an_exponent_is_part_of_the_number() -> None:
    assert parse_duration("1e3 s") == 1000.0
    assert parse_duration("1e1 h 5 min") == 36_300.0
    with pytest.raises(UnitError, match="'1e30 s' is more than a hundred years"):
        pause("1e30 s")
    with pytest.raises(UnitError, match="'1e400 s' is too large to be a duration"):
        parse_duration("1e400 s")
