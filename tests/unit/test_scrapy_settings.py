"""The add-on's settings: what they mean, and one clear line for each mistake."""

from __future__ import annotations

import pytest
from scrapy.settings import Settings

from headway.errors import JobError
from headway.model.page import Site
from headway.scrapy.settings import read_settings
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
    assert (found.lanes, found.delay_s, found.log_every_s) == (3, 1.5, 30)


def test_a_site_is_found_by_its_host_or_its_origin() -> None:
    found = read(HEADWAY_SITES={"a.invalid": {"weight": 2}, "https://b.invalid/": {"data": "1 MB"}})
    assert found.wish_for(Site("https://a.invalid")).weight == 2
    assert found.wish_for(Site("https://b.invalid")).data_bytes == 1_000_000
    assert found.wish_for(Site("http://b.invalid")).data_bytes is None


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"HEADWAY_BANDWIDTH": "2 Mb/s"}, "HEADWAY_BANDWIDTH: '2 Mb/s' is not a rate"),
        ({"HEADWAY_BANDWIDTH": 2000}, "HEADWAY_BANDWIDTH: 2000 is not text with a unit"),
        ({"HEADWAY_BANDWIDTH": "0 B/s"}, "would let nothing through"),
        ({"HEADWAY_DEADLINE": "soon"}, "HEADWAY_DEADLINE: 'soon' is not a deadline"),
        ({"HEADWAY_TIMETABLE": {"bandwidth": "1 KB/s"}}, "HEADWAY_TIMETABLE: "),
        ({"HEADWAY_TIMETABLE": [{"hours": "8-9"}]}, "HEADWAY_TIMETABLE[0]: the key 'bandwidth' is missing"),
        ({"HEADWAY_TIMETABLE": [{"bandwidth": "1 KB/s", "hours": "8-9"}]}, "not a span of hours"),
        ({"HEADWAY_SITES": {"a.invalid": {"wait": 1}}}, "there is no key 'wait'"),
        ({"HEADWAY_SITES": {"a.invalid": {"weight": -1}}}, "not a number above zero"),
        ({"HEADWAY_OBJECTIVE": "best"}, "HEADWAY_OBJECTIVE: 'best' is none of"),
        ({"HEADWAY_TIMEZONE": "Mars"}, "HEADWAY_TIMEZONE: 'Mars' is not a time zone"),
    ],
)
def test_a_mistake_names_its_setting(settings: dict, said: str) -> None:
    with pytest.raises(JobError) as caught:
        read(**settings)
    assert said in str(caught.value)
