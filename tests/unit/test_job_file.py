"""Every mistake in a job file becomes one message that names file, line, key and cure."""

from __future__ import annotations

import datetime as dt
import math
import zoneinfo
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.config import load_job
from headway.config.reading import line_of
from headway.config.values import deadline_at
from headway.errors import HeadwayError, JobError, UnitError
from headway.model.page import Site
from headway.units import Instant

GOOD = """\
[crawl]
bandwidth = "5 Mbit/s"
objective = "sum-completion"
user_agent = "mybot/1.0 (+https://example.org/bot)"
timezone = "Europe/Berlin"

[[crawl.timetable]]
days = "mon-fri"
hours = "08:00-18:00"
bandwidth = "1 Mbit/s"

[[site]]
url = "https://www.Example.org"
deadline = "2 h"
max_pages = 20000

[[site]]
url = "http://example.net:80/a/../b"
seeds = ["http://example.net/c"]
deadline = 07:30:00
"""


@pytest.fixture
def write(tmp_path: Path):  # type: ignore[no-untyped-def]
    def write_text(text: str) -> Path:
        path = tmp_path / "job.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write_text


def test_a_good_job_file_becomes_values(write) -> None:  # type: ignore[no-untyped-def]
    job = load_job(write(GOOD))
    assert [wish.site for wish in job.sites] == [Site("https://www.example.org"), Site("http://example.net")]
    assert [page.url for page in job.seeds()] == [
        "https://www.example.org/",
        "http://example.net/b",
        "http://example.net/c",
    ]
    monday_noon = Instant(
        dt.datetime(2026, 11, 16, 12, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin")).timestamp()
    )
    assert job.timetable.capacity_at(monday_noon) == 125_000
    assert job.timetable.capacity_at(Instant(monday_noon + 12 * 3600)) == 625_000
    first, second = job.tasks(monday_noon)
    assert first.deadline_at == monday_noon + 7200
    assert second.deadline_at == monday_noon + 19.5 * 3600
    assert first.max_pages == 20000


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            'bandwidth = "5 Mbit/s"',
            'bandwith = "5 Mbit/s"',
            r"line 2: crawl.bandwith: .*did you mean 'bandwidth'",
        ),
        (
            'bandwidth = "5 Mbit/s"',
            "bandwidth = 5",
            r'line 2: crawl.bandwidth: the unit is missing.*"5 Mbit/s"',
        ),
        ('bandwidth = "5 Mbit/s"', 'bandwidth = "5 Mb/s"', r"line 2: crawl.bandwidth: .*'bit' for bits"),
        ('bandwidth = "5 Mbit/s"', 'bandwidth = "0 B/s"', r"line 2: crawl.bandwidth: .*above 0"),
        ('hours = "08:00-18:00"', 'hours = "8-25"', r"line 9: crawl.timetable.hours: '8-25'"),
        ('objective = "sum-completion"', 'strategy = "fastest"', r"line 3: crawl.strategy: 'fastest' is no"),
        ('"sum-completion"', '"cheapest"', r"line 3: crawl.objective"),
        ("max_pages = 20000", "max_pages = 0", r"line 15: site.max_pages: 0 is too small"),
        ("max_pages = 20000", 'max_pages = "many"', r"line 15: site.max_pages: expected"),
        (
            '"https://www.Example.org"',
            '"ftp://example.org"',
            r"line 13: site.url: 'ftp://example.org' is not an http",
        ),
        ('"https://www.Example.org"', '"http://example.net/x"', r"line 18: site.url: .*there already"),
        (
            '["http://example.net/c"]',
            '["http://example.com/c"]',
            r"line 19: site.seeds: .*not on http://example.net",
        ),
        ('"Europe/Berlin"', '"Mars/Base"', r"line 5: crawl.timezone"),
        ("[[site]]", "[[sites]]", r"line 12: sites: there is no such key; write \[\[site\]\]"),
        ('url = "http://example.net:80/a/../b"', "", r"line 17: site: the key 'url' is missing"),
        ("[crawl]\n", "[crawl\n", r"not valid TOML: .*line 1"),
    ],
)
def test_a_mistake_is_named_with_its_line(write, old: str, new: str, message: str) -> None:  # type: ignore[no-untyped-def]
    assert old in GOOD
    with pytest.raises(JobError, match=message):
        load_job(write(GOOD.replace(old, new)))


def test_a_file_that_cannot_be_read_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="no such job file"):
        load_job(tmp_path / "absent.toml")
    with pytest.raises(JobError, match="folder"):
        load_job(tmp_path)
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(JobError, match="UTF-8"):
        load_job(tmp_path / "binary.toml")


def test_a_job_without_sites_says_so(write) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(JobError, match="no site is named"):
        load_job(write('[crawl]\nbandwidth = "1 MB/s"\n'))


@given(st.text(max_size=300) | st.text(alphabet='[]="crawlsite.\n#0 -', max_size=200))
def test_no_text_makes_it_fail_otherwise(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.mktemp("job") / "job.toml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(HeadwayError):
        load_job(path)


ZONE = zoneinfo.ZoneInfo("Europe/Berlin")
NOON = Instant(dt.datetime(2026, 11, 16, 12, tzinfo=ZONE).timestamp())


@pytest.mark.parametrize(
    ("text", "after_s"),
    [
        ("2 h", 7200),
        ("12:30", 1800),
        ("11:00", 23 * 3600),
        ("2026-11-17T12:00", 86400),
        ("2026-11-17 12:00:00+01:00", 86400),
        ("2026-11-17T11:00Z", 86400),
    ],
)
def test_deadlines_can_be_lengths_clock_times_and_dates(text: str, after_s: float) -> None:
    assert math.isclose(deadline_at(text, NOON, ZONE), NOON + after_s)


@pytest.mark.parametrize("text", ["2020-01-01T00:00", "soon", "0 s", "25:00", "7", "", "2026-13-40"])
def test_deadlines_that_are_past_or_unreadable_are_refused(text: str) -> None:
    with pytest.raises(UnitError, match=r"deadline|past|no time"):
        deadline_at(text, NOON, ZONE)


def test_lines_are_found_for_keys_tables_and_nested_arrays() -> None:
    assert line_of(GOOD, ("crawl", "timetable", 0, "hours")) == 9
    assert line_of(GOOD, ("site", 1, "deadline")) == 20
    assert line_of(GOOD, ("site", 1, "absent")) == 17
    assert line_of(GOOD, ("nowhere",)) is None
