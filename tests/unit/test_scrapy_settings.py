"""The add-on's settings: what they mean, and one clear line for each mistake."""

from __future__ import annotations

import datetime as dt

import pytest
from scrapy.settings import Settings

from headway.errors import JobError
from headway.model.page import Site
from headway.scrapy.link import read_settings
from headway.units import Instant

NOW = Instant(1_800_000_000.0)


def read(**settings: object):
    return read_settings(NOW, Settings(settings))


def test_without_settings_there_is_no_bound_and_no_deadline() -> None:
    found = read()
    assert found.timetable.capacity_at(NOW) == float("inf")
    assert found.deadline_at is None


def test_bandwidth_timetable_and_deadline_are_read() -> None:
    found = read(
        HEADWAY_BANDWIDTH="2 Mbit/s",
        HEADWAY_TIMETABLE=[{"bandwidth": "80 KB/s"}],
        HEADWAY_DEADLINE="2 h",
        HEADWAY_TIMEZONE="Europe/Berlin",
    )
    assert found.timetable.usual_bytes_per_s == 250_000
    assert found.timetable.capacity_at(NOW) == 80_000
    assert found.deadline_at == NOW + 7200


def test_scrapys_own_names_count() -> None:
    found = read(CONCURRENT_REQUESTS_PER_DOMAIN=3, DOWNLOAD_DELAY=1.5, LOGSTATS_INTERVAL=30)
    assert (found.max_in_flight, found.delay_s, found.log_every_s) == (3, 1.5, 30)


def test_a_site_is_found_by_its_host_or_its_origin() -> None:
    found = read(HEADWAY_SITES={"a.invalid": {"weight": 2}, "https://b.invalid/": {"data": "1 MB"}})
    assert found.settings_of(Site("https://a.invalid")).weight == 2
    assert found.settings_of(Site("https://b.invalid")).data_bytes == 1_000_000
    assert found.settings_of(Site("http://b.invalid")).data_bytes is None


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"HEADWAY_BANDWIDTH": "2 Mb/s"}, "HEADWAY_BANDWIDTH: '2 Mb/s' is not a rate"),
        (
            {"HEADWAY_BANDWIDTH": 2000},
            'the unit is missing; write it as text, such as HEADWAY_BANDWIDTH = "2 Mbit/s"',
        ),
        ({"HEADWAY_BANDWIDTH": "0 B/s"}, "is too small; write a rate (above 0)"),
        ({"HEADWAY_DEADLINE": "soon"}, "HEADWAY_DEADLINE: 'soon' is not a deadline"),
        ({"HEADWAY_TIMETABLE": {"bandwidth": "1 KB/s"}}, "HEADWAY_TIMETABLE: "),
        ({"HEADWAY_TIMETABLE": [{"hours": "8-9"}]}, "HEADWAY_TIMETABLE[0]: the key 'bandwidth' is missing"),
        ({"HEADWAY_TIMETABLE": [{"bandwidth": "1 KB/s", "hours": "8-9"}]}, "not a time range"),
        (
            {"HEADWAY_SITES": {"a.invalid": {"wait": 1}}},
            "HEADWAY_SITES['a.invalid']['wait']: there is no such key",
        ),
        ({"HEADWAY_SITES": {"a.invalid": {"weight": -1}}}, "-1.0 is too small; write a number (above 0)"),
        ({"HEADWAY_OBJECTIVE": "best"}, "HEADWAY_OBJECTIVE: 'best' is none of"),
        ({"HEADWAY_TIMEZONE": "Mars"}, "HEADWAY_TIMEZONE: 'Mars' is not a time zone"),
    ],
)
def test_a_mistake_names_its_setting(settings: dict, said: str) -> None:
    with pytest.raises(JobError) as caught:
        read(**settings)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("setting", "nearest"),
    [
        ("HEADWAY_BANDWITH", "HEADWAY_BANDWIDTH"),
        ("HEADWAY_BANDWDITH", "HEADWAY_BANDWIDTH"),
        ("HEADWAY_RATE", "HEADWAY_BANDWIDTH"),
        ("HEADWAY_LIMIT", "HEADWAY_BANDWIDTH"),
        ("HEDWAY_BANDWIDTH", "HEADWAY_BANDWIDTH"),
        ("headway_bandwidth", "HEADWAY_BANDWIDTH"),
        ("HEADWAY_UNTIL", "HEADWAY_DEADLINE"),
        ("HEADWAY_ENABLE", "HEADWAY_ENABLED"),
        ("HEADWAY_TASKS", "HEADWAY_SITES"),
        ("HEADWAY_TIME_TABLE", "HEADWAY_TIMETABLE"),
        ("HEADWAY_RETRY_AFTER", "HEADWAY_MAX_RETRY_AFTER"),
    ],
)
def test_a_misspelt_setting_is_an_error_that_names_the_right_one(setting: str, nearest: str) -> None:
    with pytest.raises(JobError, match=f"^{setting}: there is no such setting; did you mean '{nearest}'"):
        read(**{setting: "1 KB/s"})


def test_a_setting_like_no_other_is_an_error_with_all_that_there_are() -> None:
    with pytest.raises(JobError, match="known are HEADWAY_ENABLED, HEADWAY_BANDWIDTH"):
        read(HEADWAY_COLOUR="blue")


def test_settings_of_the_project_and_of_scrapy_are_left_alone() -> None:
    read(HEADERS_ENABLED=True, HEAD_OFFICE="Rome", HIGHWAY_TOLL=3, WAY_OUT=1, HTTPCACHE_DIR="cache")


def test_settings_of_the_command_line_are_text() -> None:
    """As `scrapy crawl -s NAME=VALUE` gives them."""
    found = read(
        HEADWAY_ALLOW_PRIVATE="False",
        HEADWAY_TIMETABLE='[{"bandwidth": "80 KB/s"}]',
        HEADWAY_SITES='{"a.invalid": {"weight": 2}}',
    )
    assert not found.allow_private
    assert found.timetable.capacity_at(NOW) == 80_000
    assert found.settings_of(Site("https://a.invalid")).weight == 2
    with pytest.raises(JobError, match=r"HEADWAY_SITES: expected a table such as .*, but got the text 'a=1'"):
        read(HEADWAY_SITES="a=1")


def test_a_length_of_time_may_be_seconds_or_a_timedelta() -> None:
    found = read(HEADWAY_DEADLINE=dt.timedelta(hours=2), HEADWAY_MAX_RETRY_AFTER=90)
    assert found.deadline_at == NOW + 7200
    assert found.longest_hold_s == 90
