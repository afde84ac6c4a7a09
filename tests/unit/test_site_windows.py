"""Windows and hard deadlines of single sites and of groups: what is asked when, and what is cut."""

from __future__ import annotations

import datetime as dt
import itertools
from typing import Any

import pytest
from tests.support.script import Answer, Script, ScriptedWorld
from tests.unit.test_runtime import chain, page

from headway.config.job import Job, build_job
from headway.config.reading import Source, convert
from headway.model.command import CutRequests, FetchPage, FetchRobots
from headway.model.event import Event, PageSettled, RobotsSettled
from headway.model.page import Kind, Outcome
from headway.planning.policies import StartPlan, run_policy
from headway.policy.site_rules import SiteHours
from headway.policy.timetable import Entry, Timetable
from headway.report.plan_text import hours_of
from headway.runtime.commands import WorldCommand
from headway.runtime.driver import VirtualClock
from headway.runtime.plan import make_outlook, plan_from_job
from headway.runtime.runtime import Runtime
from headway.units import FOREVER, UNBOUNDED, BytesPerSecond, Instant, Seconds
from headway.view.live import EngineMonitor

NIGHT = {"from": "22:00", "until": "07:30"}
SCRIPT = Script(chain("http://a.test", 8) | chain("http://b.test", 8))
SLOW = Script({"http://a.test/": (Answer(Seconds(3600.0)),)} | dict(chain("http://b.test", 8)))


class CuttingWorld(ScriptedWorld):
    """Ends requests when it is asked to."""

    def start(self, now: Instant, command: WorldCommand) -> None:
        super().start(now, command)
        if not isinstance(command, CutRequests):
            return
        kept = []
        for at, serial, event in self._coming:
            site = event.site if isinstance(event, RobotsSettled) else event.lease.page.site
            if command.sites is not None and site not in command.sites:
                kept.append((at, serial, event))
                continue
            cut: Event
            if isinstance(event, RobotsSettled):
                cut = RobotsSettled(site, None, FOREVER, Outcome(Kind.CANCELLED))
            else:
                cut = PageSettled(event.lease, Outcome(Kind.CANCELLED))
            kept.append((now, serial, cut))
        self._coming = sorted(kept, key=lambda coming: coming[:2])


class Seen:
    def __init__(self) -> None:
        self.asked: list[tuple[Instant, str]] = []
        self.cuts: list[tuple[Instant, CutRequests]] = []

    def __call__(self, now: Instant, command: object) -> None:
        if isinstance(command, FetchPage):
            self.asked.append((now, command.lease.page.url))
        elif isinstance(command, FetchRobots):
            self.asked.append((now, command.url))
        elif isinstance(command, CutRequests):
            self.cuts.append((now, command))


def job_of(*sites: dict[str, Any], crawl: dict[str, Any] | None = None, **tables: Any) -> Job:
    made = {
        "crawl": {"interval": "1 s", "timezone": "UTC", **(crawl or {})},
        "site": [{"url": "http://a.test/"} | sites[0], {"url": "http://b.test/"} | sites[1]],
        **tables,
    }
    source = Source("the test")
    return build_job(convert(made, source), source)


def at(text: str) -> Instant:
    return Instant(dt.datetime.fromisoformat(f"{text}+00:00").timestamp())


def run(job: Job, begin_at: Instant, script: Script = SCRIPT) -> tuple[Seen, Runtime[CuttingWorld], Instant]:
    seen = Seen()
    runtime = Runtime.from_job(job, VirtualClock(begin_at), CuttingWorld(script))
    return seen, runtime, runtime.run_virtually(on_command=seen)


BOUNDS = [{}, {"bandwidth": "1 MB/s"}]


@pytest.mark.parametrize("crawl", BOUNDS, ids=["unbounded", "planned"])
def test_a_site_outside_its_window_is_not_asked_and_the_others_are(crawl: dict[str, Any]) -> None:
    job = job_of({"window": [NIGHT], "deadline": "20 h"}, {}, crawl=crawl)
    seen, runtime, ended_at = run(job, at("2030-01-08T12:00"))
    of_a = [time for time, url in seen.asked if "//a.test" in url]
    of_b = [time for time, url in seen.asked if "//b.test" in url]
    assert min(of_a) >= at("2030-01-08T22:00")
    assert max(of_b) < at("2030-01-08T12:10")
    assert runtime.engine.stats.done == 16
    assert ended_at < at("2030-01-08T22:10")


def test_a_view_of_a_closed_crawl_has_the_time_at_which_it_opens() -> None:
    noon = at("2030-01-08T12:00")
    for job, opens in (
        (job_of({}, {}, window=[NIGHT]), "22:00"),
        (job_of({"window": [NIGHT]}, {"window": [NIGHT | {"from": "20:00"}]}), "20:00"),
        (job_of({"window": [NIGHT]}, {}), ""),
    ):
        runtime = Runtime.from_job(job, VirtualClock(noon), ScriptedWorld(SCRIPT))
        runtime.run_virtually(until=noon)
        view = EngineMonitor("run", noon).view(runtime.engine, noon)
        assert view.closed_until == (at(f"2030-01-08T{opens}") if opens else None)


def test_the_progress_counts_only_pages_that_the_limit_lets_through() -> None:
    begin_at = at("2030-01-08T12:00")
    links = tuple(page(f"http://a.test/{number}") for number in range(7))
    script = Script({"http://a.test/": [Answer(Seconds(1.0), Outcome(Kind.FETCHED, 200, 1000), links)]})
    job = job_of({"max_pages": 3}, {}, crawl={"interval": "1 min"})
    runtime = Runtime.from_job(job, VirtualClock(begin_at), ScriptedWorld(script))
    runtime.run_virtually(until=Instant(begin_at + 90.0))
    view = EngineMonitor("run", begin_at).view(runtime.engine, Instant(begin_at + 90.0))
    (site,) = [each for each in view.sites if each.site == "http://a.test"]
    assert (site.done, site.waiting) == (1, 2)
    assert view.waiting == 2
    assert site.progress == pytest.approx(1 / 3)


@pytest.mark.parametrize("crawl", BOUNDS, ids=["unbounded", "planned"])
def test_a_group_shares_its_window_and_its_interval(crawl: dict[str, Any]) -> None:
    group = {"name": "g", "window": [NIGHT], "interval": "10 s"}
    job = job_of({"group": "g"}, {"group": "g", "interval": "2 s"}, crawl=crawl, group=[group])
    seen, _, _ = run(job, at("2030-01-08T12:00"))
    assert min(time for time, _ in seen.asked) >= at("2030-01-08T22:00")
    pauses = {}
    for site in ("a", "b"):
        times = [time for time, url in seen.asked if f"//{site}.test" in url]
        pauses[site] = min(after - before for before, after in itertools.pairwise(times))
    assert pauses["a"] >= 10.0
    assert 2.0 <= pauses["b"] < 10.0


class DownWorld(ScriptedWorld):
    """The server of http://a.test cannot be reached for a while."""

    def __init__(self, script: Script, down: tuple[float, float]) -> None:
        super().__init__(script)
        self._down = down

    def start(self, now: Instant, command: WorldCommand) -> None:
        super().start(now, command)
        if not isinstance(command, FetchPage | FetchRobots) or not self._down[0] <= now < self._down[1]:
            return
        (coming,) = [each for each in self._coming if each[1] == self._serial]
        site = command.site if isinstance(command, FetchRobots) else command.lease.page.site
        if site != "http://a.test":
            return
        failed: Event
        if isinstance(command, FetchRobots):
            failed = RobotsSettled(site, None, FOREVER, REFUSED)
        else:
            failed = PageSettled(command.lease, REFUSED)
        self._coming = sorted(
            (each if each is not coming else (now, coming[1], failed) for each in self._coming),
            key=lambda each: each[:2],
        )


REFUSED = Outcome(Kind.CONNECT, keep_alive=False)


def run_down(job: Job, begin_at: Instant, *, from_s: float, for_s: float) -> tuple[Seen, Any, Instant]:
    """A crawl during an outage of a.test, which begins `from_s` after it."""
    seen = Seen()
    world = DownWorld(SCRIPT, (begin_at + from_s, begin_at + from_s + for_s))
    runtime = Runtime.from_job(job, VirtualClock(begin_at), world)
    ended_at = runtime.run_virtually(on_command=seen)
    return seen, runtime.engine.stats, ended_at


@pytest.mark.parametrize(
    ("own", "tables", "from_s"),
    [
        ({"deadline": "07:30"}, {}, 4.0),
        ({"deadline": "07:30"}, {"window": [NIGHT]}, 0.0),
        ({}, {"window": [NIGHT]}, 4.0),
        ({"window": [NIGHT]}, {}, 0.0),
    ],
    ids=["deadline", "deadline and window", "window", "window of the site"],
)
def test_an_outage_of_ten_minutes_costs_no_page(
    own: dict[str, Any], tables: dict[str, Any], from_s: float
) -> None:
    begin_at = at("2030-01-08T22:00")
    seen, stats, ended_at = run_down(job_of(own, {}, **tables), begin_at, from_s=from_s, for_s=600.0)
    assert (stats.done, stats.failed) == (16, 0)
    assert begin_at + 600.0 < ended_at < at("2030-01-08T23:00")
    tries = [time for time, url in seen.asked if "//a.test" in url and time < begin_at + from_s + 600.0]
    assert len(tries) < 20, "it is asked with growing pauses"
    site = stats.by_site["http://a.test"]
    assert site.ended_at < at("2030-01-09T07:30")
    assert site.down_since is None


SHORT = {"from": "22:00", "until": "22:15"}
QUICK = {"backoff": "5 s", "max_backoff": "2 min"}


@pytest.mark.parametrize("own", [{"deadline": "22:15"}, {}], ids=["deadline", "none"])
def test_a_site_that_stays_down_is_given_up_when_the_window_closes_and_not_a_day_later(
    own: dict[str, Any],
) -> None:
    begin_at = at("2030-01-08T22:00")
    _, stats, ended_at = run_down(
        job_of(own, {}, window=[SHORT], crawl=QUICK), begin_at, from_s=0.0, for_s=864000.0
    )
    assert at("2030-01-08T22:12") <= ended_at <= at("2030-01-08T22:15")
    assert stats.done == 8
    assert not stats.by_site["http://a.test"].has_content


def test_a_site_with_a_later_deadline_is_tried_in_the_next_window_too() -> None:
    begin_at = at("2030-01-08T22:00")
    job = job_of({"window": [SHORT], "deadline": "40 h"}, {}, crawl=QUICK)
    _, stats, ended_at = run_down(job, begin_at, from_s=0.0, for_s=15 * 3600.0)
    assert (stats.done, stats.failed) == (16, 0)
    assert at("2030-01-09T22:00") < ended_at < at("2030-01-09T22:10")


def test_what_is_under_way_is_cut_after_the_grace_and_repeated_in_the_next_window() -> None:
    job = job_of({"window": [NIGHT | {"grace": "2 min"}]}, {})
    seen, runtime, ended_at = run(job, at("2030-01-08T07:00"), SLOW)
    (cut,) = seen.cuts
    assert cut == (at("2030-01-08T07:32"), CutRequests(frozenset({"http://a.test"})))
    of_a = [time for time, url in seen.asked if url == "http://a.test/"]
    assert len(of_a) == 2
    assert of_a[1] >= at("2030-01-08T22:00")
    assert ended_at > at("2030-01-08T22:00")
    assert runtime.engine.stats.done == 9
    assert runtime.engine.stats.failed == 0


def test_a_window_of_the_crawl_cuts_all_after_its_grace() -> None:
    job = job_of({}, {}, window=[NIGHT | {"grace": "0 s"}], crawl={"bandwidth": "1 MB/s"})
    seen, runtime, _ = run(job, at("2030-01-08T07:29:30"), SLOW)
    assert seen.cuts == [(at("2030-01-08T07:30"), CutRequests(None))]
    assert runtime.engine.stats.failed == 0


def test_a_request_that_ends_within_the_grace_is_kept() -> None:
    job = job_of({"window": [NIGHT | {"grace": "40 min"}]}, {})
    seen, runtime, _ = run(job, at("2030-01-08T07:00"), SLOW)
    assert seen.cuts == []
    assert runtime.engine.stats.done == 9


@pytest.mark.parametrize("where", ["site", "crawl"])
def test_a_hard_deadline_leaves_out_what_is_left(where: str) -> None:
    stops = {"stop_at_deadline": True}
    site = {"deadline": "4 s"} | (stops if where == "site" else {})
    job = job_of(site, {}, crawl=stops if where == "crawl" else {})
    begin_at = at("2030-01-08T12:00")
    seen, runtime, _ = run(job, begin_at)
    of_a = [time for time, url in seen.asked if "//a.test" in url]
    assert max(of_a) < begin_at + 4.0
    stats = runtime.engine.stats.site_stats(job.sites[0].site)
    assert 0 < stats.done < 8
    assert stats.excluded >= 1
    assert runtime.engine.stats.site_stats(job.sites[1].site).done == 8


def test_without_it_a_late_site_is_crawled_to_its_end() -> None:
    _, runtime, _ = run(job_of({"deadline": "4 s"}, {}), at("2030-01-08T12:00"))
    assert runtime.engine.stats.done == 16


def test_a_hard_deadline_cuts_what_is_under_way() -> None:
    job = job_of({"deadline": "60 s", "stop_at_deadline": True}, {})
    begin_at = at("2030-01-08T12:00")
    seen, _, ended_at = run(job, begin_at, SLOW)
    assert seen.cuts == [(Instant(begin_at + 60.0), CutRequests(frozenset({"http://a.test"})))]
    assert ended_at < begin_at + 120


def test_a_site_whose_deadline_comes_before_its_window_ends_there() -> None:
    job = job_of({"window": [NIGHT], "deadline": "2 h", "stop_at_deadline": True}, {})
    seen, _, ended_at = run(job, at("2030-01-08T12:00"))
    assert not [url for _, url in seen.asked if "//a.test" in url]
    assert ended_at == at("2030-01-08T14:00")


def test_the_time_that_is_shut_is_counted_with_summer_time() -> None:
    berlin = job_of({"window": [NIGHT | {"timezone": "Europe/Berlin"}]}, {}).sites[0].own
    assert berlin is not None
    begin = Instant(dt.datetime.fromisoformat("2030-03-30T12:00+01:00").timestamp())
    assert berlin.hours.shut_s(begin, begin + 24 * 3600) == 10 * 3600 + (24 - 10 - 8.5) * 3600
    assert berlin.hours.opens_at(begin) == begin + 10 * 3600


def test_the_time_that_is_shut_of_months_ahead_is_that_of_the_weeks_before() -> None:
    hours = SiteHours(Timetable(UNBOUNDED, windows=(Entry.window(frozenset(range(7)), 0, 12 * 60),)))
    assert hours.shut_s(at("2030-01-07T00:00"), at("2030-01-07T00:00") + 100 * 86400) == pytest.approx(
        50 * 86400, rel=0.05
    )


# -- the plan -----------------------------------------------------------------------------------------------


def plan_of(*sites: dict[str, Any], begin: str = "2030-01-08T12:00", **tables: Any) -> StartPlan:
    job = job_of(*sites, crawl={"bandwidth": "1 MB/s", "interval": "0 s"}, **tables)
    return plan_from_job(job, at(begin))


def test_the_plan_has_each_site_within_its_windows_only() -> None:
    plan = plan_of({"window": [NIGHT], "data": "20 GB"}, {"data": "1 GB"})
    schedule = run_policy("headway", plan.problem)
    begin_at = at("2030-01-08T12:00")
    windows = plan_windows()
    for from_s, to_s, _ in schedule.segments_by_site()[0]:
        middle = Instant(begin_at + (from_s + to_s) / 2)
        assert windows.capacity_at(middle) > 0
        assert windows.capacity_at(Instant(begin_at + to_s - 1)) > 0
    planned = [sum((b - a) * rate for a, b, rate in one) for one in schedule.segments_by_site()]
    assert planned == pytest.approx([20e9, 1e9], rel=1e-6)


def plan_windows() -> Timetable:
    rules = job_of({"window": [NIGHT]}, {}).sites[0].own
    assert rules is not None
    assert rules.hours.windows is not None
    return rules.hours.windows


def test_a_deadline_that_the_windows_make_impossible_is_late_by_the_plan() -> None:
    due = {"deadline": "2030-01-09T00:00", "data": "10 GB"}
    assert plan_late(plan_of(due, {})) == 0
    assert plan_late(plan_of(due | {"window": [NIGHT]}, {})) == 1
    assert plan_late(plan_of(due, {}, window=[NIGHT])) == 1


def plan_late(plan: StartPlan) -> int:
    return make_outlook(plan.problem, "headway").schedule.late


def test_the_least_bandwidth_counts_the_time_that_is_open() -> None:
    plan = plan_of({"deadline": "07:30", "data": "1 GB"}, {}, window=[NIGHT])
    needed = make_outlook(plan.problem, "headway").required_bytes_per_s
    assert needed == pytest.approx(1e9 / (9.5 * 3600), rel=0.01)


def test_the_hours_of_the_plan_add_up_to_it() -> None:
    plan = plan_of({"window": [NIGHT], "data": "5 GB"}, {"data": "1 GB"}, begin="2030-01-08T12:20")
    schedule = run_policy("headway", plan.problem)
    hours = hours_of(plan, schedule)
    assert sum(hour.planned_bytes for hour in hours) == pytest.approx(6e9, rel=1e-6)
    assert all(hour.planned_bytes <= hour.capacity_bytes * (1 + 1e-9) for hour in hours)
    assert hours[0].to_at == at("2030-01-08T13:00")
    assert {name for hour in hours for name in hour.ends} == {"http://a.test", "http://b.test"}
    shut = [hour for hour in hours if at("2030-01-08T13:00") <= hour.from_at < at("2030-01-08T22:00")]
    assert all("http://a.test" not in hour.sites for hour in shut)


def test_another_bandwidth_keeps_the_windows_of_the_plan() -> None:
    job = job_of({}, {}, window=[NIGHT])
    plan = plan_from_job(job, at("2030-01-08T12:00"), BytesPerSecond(1000.0))
    assert plan.problem.capacity.at(0.0) == 0
    assert plan.problem.capacity.most == 1000.0
