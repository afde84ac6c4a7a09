"""Windows in which a crawl may run, in plan, simulation and the bound of a live crawl alike."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from tests.support.script import ScriptedWorld
from tests.unit.test_runtime import SCRIPT, Seen

from headway.config.job import Job, build_job
from headway.config.reading import Source, convert
from headway.engine.bandwidth import LinkBound
from headway.errors import JobError
from headway.model.command import FetchPage
from headway.policy.timetable import Entry, Timetable
from headway.runtime.driver import VirtualClock
from headway.runtime.runtime import Runtime
from headway.units import UNBOUNDED, BytesPerSecond, Instant, Seconds

NIGHT = {"from": "22:00", "until": "07:30"}


def job_of(*windows: dict[str, str], **crawl: Any) -> Job:
    tables = {
        "crawl": {"interval": "1 s", "timezone": "UTC", **crawl},
        "window": list(windows),
        "site": [{"url": "http://a.test/"}],
    }
    source = Source("the test")
    return build_job(convert(tables, source), source)


def at(text: str) -> Instant:
    return Instant(dt.datetime.fromisoformat(f"{text}+00:00").timestamp())


def test_outside_its_windows_the_bound_is_zero() -> None:
    timetable = job_of(NIGHT).timetable
    assert timetable.capacity_at(at("2030-01-07T21:59")) == 0
    assert timetable.capacity_at(at("2030-01-07T22:00")) == UNBOUNDED
    assert timetable.capacity_at(at("2030-01-08T07:29")) == UNBOUNDED
    assert timetable.capacity_at(at("2030-01-08T07:30")) == 0
    assert timetable.next_change_after(at("2030-01-08T08:00")) == at("2030-01-08T22:00")


def test_a_window_opens_on_its_days_and_closes_on_the_next() -> None:
    timetable = job_of(NIGHT | {"days": "fri"}).timetable
    assert timetable.capacity_at(at("2030-01-12T07:00")) == UNBOUNDED, "Saturday morning"
    assert timetable.capacity_at(at("2030-01-12T23:00")) == 0, "Saturday night"


def test_summer_time_makes_a_window_shorter() -> None:
    timetable = job_of(NIGHT, timezone="Europe/Berlin").timetable
    night = timetable.segments(at("2030-03-30T21:00"), Seconds(24 * 3600.0))
    (length_s,) = [to_s - from_s for from_s, to_s, rate in night if rate and from_s == 0]
    assert length_s == 8.5 * 3600


def test_a_new_limit_keeps_the_windows() -> None:
    bound = LinkBound(job_of(NIGHT).timetable)
    bound.set(at("2030-01-07T12:00"), BytesPerSecond(1000.0))
    bound.look(at("2030-01-07T12:00"))
    assert bound.capacity_bytes_per_s == 0
    assert not bound.allows(at("2030-01-07T12:00"), 1.0)
    bound.look(at("2030-01-07T23:00"))
    assert bound.capacity_bytes_per_s == 1000


@pytest.mark.parametrize(
    "job",
    [job_of(NIGHT), job_of(timetable=[{"hours": "07:30-22:00", "bandwidth": "0"}])],
    ids=["window", "bandwidth-0"],
)
def test_nothing_is_requested_outside_and_all_is_fetched_in_the_end(job: Job) -> None:
    begin_at = at("2030-01-08T07:29:57")
    seen = Seen()
    runtime = Runtime.from_job(job, VirtualClock(begin_at), ScriptedWorld(SCRIPT))
    ended_at = runtime.run_virtually(on_command=seen)
    asked = [time + 1_700_000_000.0 for time, _ in seen.of(FetchPage)]
    inside = [job.timetable.capacity_at(Instant(time)) > 0 for time in asked]
    assert all(inside)
    assert len(asked) == 8
    assert ended_at >= at("2030-01-08T22:00")


@pytest.mark.parametrize(
    ("windows", "words"),
    [
        ([{"from": "22:00", "until": "22:00"}], "the window never opens"),
        ([NIGHT, {"from": "06:00", "until": "08:00"}], "it overlaps a window above"),
        ([{"from": "22", "until": "07:30"}], "is not a time of day such as '22:00'"),
        ([{"from": "22:00"}], "the key 'until' is missing"),
        ([{"until": "22:00"}], "the key 'from' is missing"),
        ([NIGHT | {"days": "someday"}], "is not a list of days"),
    ],
)
def test_a_window_that_makes_no_sense_is_refused(windows: list[dict[str, str]], words: str) -> None:
    with pytest.raises(JobError, match=words):
        job_of(*windows)


def test_windows_that_only_touch_are_two_windows() -> None:
    job = job_of({"from": "22:00", "until": "00:00"}, {"from": "00:00", "until": "07:30"})
    assert job.timetable.capacity_at(at("2030-01-08T00:00")) == UNBOUNDED


def test_a_timetable_without_windows_is_always_open() -> None:
    entry = Entry.parse("mon", "08:00-09:00", BytesPerSecond(1.0))
    assert Timetable(BytesPerSecond(5.0), (entry,)).capacity_at(at("2030-01-08T00:00")) == 5
