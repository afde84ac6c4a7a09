"""A live crawl with everything on is recorded. The same events give the same commands in a fresh engine, to
the last rate, and the same decisions in the simulator's driver."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest

from headway.model.command import (
    DeadlineForecast,
    FetchPage,
    PageState,
    SaveNotice,
    SaveSettled,
    SetCapacity,
    SetRates,
)
from headway.model.event import Draining, PageSettled, PagesLoaded, Restored, RobotsSettled
from headway.model.page import Kind, is_again
from headway.runtime.crawling import Chronicle
from headway.runtime.runtime import build_engine
from headway.view.live import EngineMonitor

import recording
from live_crawl import MIDNIGHT, Lived, job_of
from recorded_world import simulated_decisions
from recording import Begin, Recording, Step

GetLived = Callable[[str], Lived]
CRAWLS = ["everything", "interrupted", "resumed", "again"]
each_crawl = pytest.mark.parametrize("name", CRAWLS)


# -- what the recordings hold: without it, the claims below would say nothing --------------------------------


def _kinds(recorded: Recording, of: type) -> list[Any]:
    return [command for _, command in recorded.commands() if type(command) is of]


def _answers(recorded: Recording) -> list[PageSettled]:
    return [event for _, event in recorded.events() if isinstance(event, PageSettled)]


def _words(lived: Lived, *words: str) -> bool:
    return all(lived.count()[word] for word in words)


HELD: Mapping[str, Callable[[Lived], object]] = {
    "rates that change, for several sites": lambda lived: (
        len(rates := _kinds(lived.recording, SetRates)) > 5
        and len({tuple(each.rates_bytes_per_s.items()) for each in rates}) > 5
        and max(len(each.rates_bytes_per_s) for each in rates) > 1
    ),
    "the bound of the job and two limits": lambda lived: (
        [each.capacity_bytes_per_s for each in _kinds(lived.recording, SetCapacity)]
        == [100_000.0, 250_000.0, 75_000.0]
    ),
    "a pause and its end": lambda lived: _words(lived, "order-pause", "order-resume"),
    "a site that was added": lambda lived: _words(lived, "order-add"),
    "a deadline that was changed": lambda lived: _words(lived, "order-deadline"),
    "a deadline that cannot hold": lambda lived: any(
        each.is_late for each in _kinds(lived.recording, DeadlineForecast)
    ),
    "a trap with a notice": lambda lived: any(
        "calendar" in each.what for each in _kinds(lived.recording, SaveNotice)
    ),
    "links that a trap left out": lambda lived: any(
        each.outcome.detail.startswith("trap") for each in _kinds(lived.recording, SaveSettled)
    ),
    "pages that robots.txt denies": lambda lived: any(
        each.outcome.kind is Kind.ROBOTS_DENIED for each in _kinds(lived.recording, SaveSettled)
    ),
    "a robots.txt that came at the second attempt": lambda lived: any(
        isinstance(event, RobotsSettled) and event.rules is None for _, event in lived.recording.events()
    ),
    "revisits of pages that changed, and that did not": lambda lived: (
        {Kind.FETCHED, Kind.NOT_MODIFIED}
        <= {each.outcome.kind for each in _answers(lived.recording) if is_again(each.lease.attempt)}
    ),
    "pages tried again, and given up": lambda lived: (
        {PageState.WAITING, PageState.FAILED} <= {each.state for each in _kinds(lived.recording, SaveSettled)}
    ),
    "pages loaded from the store": lambda lived: any(
        isinstance(event, PagesLoaded) for _, event in lived.recording.events()
    ),
}


@pytest.mark.parametrize("what", HELD)
def test_the_recorded_crawl_has(lived: GetLived, what: str) -> None:
    assert HELD[what](lived("everything"))


def test_the_interrupted_crawl_left_pages_waiting_and_the_next_process_restored_them(lived: GetLived) -> None:
    assert not lived("interrupted").count()["finish"]
    restored = [event for _, event in lived("resumed").recording.events() if isinstance(event, Restored)]
    # What it does not keep in memory is counted, and loaded when its site is next.
    assert any(event.snapshot.waiting or event.snapshot.unloaded for event in restored)
    assert any(event.rules for event in restored)


def test_the_resumed_crawl_used_its_quota_up_and_went_on_after_midnight_with_another_bound(
    lived: GetLived,
) -> None:
    resumed = lived("resumed").recording
    asked_at = [now for now, command in resumed.commands() if isinstance(command, FetchPage)]
    bounds = [(now >= MIDNIGHT, each.capacity_bytes_per_s) for now, each in resumed.commands()
              if isinstance(each, SetCapacity)]  # fmt: skip
    assert bounds == [(False, 100_000.0), (True, 150_000.0)]
    assert min(asked_at) < MIDNIGHT < max(asked_at)
    assert _first_change(resumed, _changed(resumed.begin, quota=None)) is not None


def test_the_crawl_begun_again_asked_for_known_pages_only(lived: GetLived) -> None:
    asked = _kinds(lived("again").recording, FetchPage)
    assert sum(is_again(each.lease.attempt) for each in asked) > 20


FEATURES: Mapping[str, dict[str, object]] = {
    "the bound": {"bandwidth": None},
    "admission": {"admission_depth": None},
    "politeness": {"interval": "31 ms"},
    "robots.txt": {"respect_robots": False},
    "watching for traps": {"traps": False},
    "revisits": {"every": None, "revisit": None},
    "adapting the revisits": {"revisit": None},
}


@pytest.mark.parametrize("feature", FEATURES)
def test_the_commands_hang_on(lived: GetLived, feature: str) -> None:
    """An engine without it, or with another setting, gives other commands for the same events."""
    recorded = lived("everything").recording
    assert _first_change(recorded, _changed(recorded.begin, **FEATURES[feature])) is not None


def test_the_commands_hang_on_the_deadlines(lived: GetLived) -> None:
    recorded = lived("everything").recording
    sites = [{"url": site["url"]} for site in recorded.begin.job["site"]]
    begin = _with_job(recorded.begin, {**recorded.begin.job, "site": sites})
    assert _first_change(recorded, begin) is not None


def test_the_commands_hang_on_how_many_pages_are_held_in_memory(lived: GetLived) -> None:
    recorded = lived("everything").recording
    begin = msgspec.structs.replace(recorded.begin, most_held=10_000)
    assert _first_change(recorded, begin) is not None


def test_admission_put_downloads_off_that_were_ready(lived: GetLived) -> None:
    """At the first step at which it matters, an engine without admission asks for more at once."""
    recorded = lived("everything").recording
    change = _first_change(recorded, _changed(recorded.begin, admission_depth=None))
    assert change is not None
    step, commands = change
    assert _fetches(commands) > _fetches(step.commands)


def test_a_step_that_is_left_out_is_noticed(lived: GetLived) -> None:
    recorded = lived("everything").recording
    first = next(place for place, step in enumerate(recorded.steps) if step.event.kind == "PageSettled")
    del recorded.steps[first]
    try:
        assert recorded.first_difference(recorded.begin.engine()) is not None
    finally:
        recorded.steps[:] = Recording(lived("everything").path).steps


# -- the claims ----------------------------------------------------------------------------------------------


@each_crawl
def test_the_same_events_give_the_same_commands_in_a_fresh_engine(lived: GetLived, name: str) -> None:
    recorded = lived(name).recording
    assert recorded.first_difference(recorded.begin.engine()) is None


@pytest.mark.parametrize(("hash_seed", "zone"), [("0", "UTC"), ("1", "Asia/Tokyo"), ("4242", "America/Lima")])
def test_and_in_another_process_with_other_hashes_and_another_time_zone(
    lived: GetLived, hash_seed: str, zone: str
) -> None:
    paths = [lived(name).path for name in CRAWLS]
    done = subprocess.run(
        [sys.executable, recording.__file__, *paths],
        env=os.environ | {"PYTHONHASHSEED": hash_seed, "TZ": zone},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("the same") == len(CRAWLS)


@each_crawl
def test_looking_at_the_engine_changes_no_command(lived: GetLived, name: str) -> None:
    """A view and a sample between any two steps, where the live crawl had one each second."""
    recorded = lived(name).recording
    engine = recorded.begin.engine()
    chronicle, monitor = Chronicle(engine), EngineMonitor("parity", recorded.begin.at)
    for step, commands in recorded.replay(engine):
        assert commands == step.commands
        chronicle.gauges(step.now)
        chronicle.end(step.now)
        assert len(monitor.view(engine, step.now, None).sites) >= len(recorded.begin.job["site"])


@pytest.mark.parametrize("name", ["everything", "resumed", "again"])
def test_the_simulator_in_the_recorded_world_writes_the_same_decision_log(lived: GetLived, name: str) -> None:
    crawl = lived(name)
    assert simulated_decisions(crawl.recording, crawl.recording.begin.engine()) == crawl.decisions()


def test_the_simulator_writes_the_same_decision_log_up_to_an_interruption(lived: GetLived) -> None:
    crawl = lived("interrupted")
    ended_at = next(now for now, event in crawl.recording.events() if isinstance(event, Draining))
    simulated = simulated_decisions(crawl.recording, crawl.recording.begin.engine(), until=ended_at)
    before = [decision for decision in simulated if decision.at < ended_at]
    assert before
    assert crawl.decisions()[: len(before)] == before


# -- other engines for the same events -----------------------------------------------------------------------


def _with_job(begin: Begin, tables: dict[str, Any]) -> Begin:
    left = begin.quotas_left if job_of(tables).quotas else ()
    return msgspec.structs.replace(begin, job=tables, quotas_left=left)


def _changed(begin: Begin, **keys: object) -> Begin:
    """With other values in the job's table `crawl`; None: as if it did not name the key."""
    crawl = {key: value for key, value in (begin.job["crawl"] | keys).items() if value is not None}
    return _with_job(begin, {**begin.job, "crawl": crawl})


def _first_change(recorded: Recording, begin: Begin) -> tuple[Step, tuple[recording.Packed, ...]] | None:
    """The first step to which an engine that was built otherwise gives other commands."""
    for step, commands in recorded.replay(build_engine(begin.job_again(), begin.circumstances())):
        if commands != step.commands:
            return step, commands
    return None


def _fetches(commands: tuple[recording.Packed, ...]) -> int:
    return sum(each.kind in {"FetchPage", "FetchRobots"} for each in commands)
