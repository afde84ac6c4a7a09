"""The planner: shares by the allocation, forecasts, and warnings, in a crawl played in virtual time."""

from __future__ import annotations

from tests.support.script import Answer, Script, ScriptedWorld

from headway.engine.bandwidth import BandwidthPlanner, LinkBound
from headway.engine.machine import Engine
from headway.engine.scheduler import EngineSettings, Policies
from headway.model.command import Command, DeadlineForecast, SaveServers, SetRates, Snapshot
from headway.model.event import Restored, Seeded
from headway.model.page import Kind, Outcome, Page, PageKey, Site, Task
from headway.planning.allocator import Allocator
from headway.policy.ordering.simple import Deadline
from headway.policy.politeness import Politeness, RetryPolicy
from headway.policy.prediction import Prediction
from headway.policy.scope import Scope
from headway.policy.timetable import Timetable
from headway.runtime.driver import simulate
from headway.units import BytesPerSecond, Instant, Seconds

URGENT, PATIENT = Site("http://urgent.test"), Site("http://patient.test")
PAGES = 60
PAGE_BYTES = 10_000


def page(site: Site, number: int) -> Page:
    return Page(f"{site}/{number}", site, PageKey(hash((site, number))), depth=1)


def web() -> Script:
    """Two sites of sixty pages, each found on the first; a page takes a tenth of a second."""
    ok = Outcome(Kind.FETCHED, 200, PAGE_BYTES, Seconds(0.1), peer="192.0.2.1")
    answers = {}
    for site in (URGENT, PATIENT):
        links = tuple(page(site, number) for number in range(1, PAGES))
        answers[page(site, 0).url] = [Answer(Seconds(0.1), ok, links)]
        answers |= {page(site, number).url: [Answer(Seconds(0.1), ok)] for number in range(1, PAGES)}
    return Script(answers)


def crawl_within(capacity: float) -> Engine:
    politeness = Politeness(interval_s=Seconds(0.4))
    return Engine(
        Policies(ordering=Deadline(), scope=Scope(), politeness=politeness, retry=RetryPolicy()),
        EngineSettings(max_connections=8, lease_s=Seconds(1e6), asks_robots=False),
        bound=LinkBound(Timetable(BytesPerSecond(capacity))),
        planner=BandwidthPlanner(Allocator(), politeness, Prediction(BytesPerSecond(1e6))),
    )


def play(crawl: Engine, deadline_s: float) -> list[tuple[Instant, Command]]:
    seen: list[tuple[Instant, Command]] = []
    tasks = (Task(URGENT, deadline_at=Instant(deadline_s)), Task(PATIENT))
    seeded = Seeded(tasks, (page(URGENT, 0), page(PATIENT, 0)))
    world = ScriptedWorld(web())
    simulate(crawl, world, [seeded], on_command=lambda now, c: seen.append((now, c)))
    return seen


def test_the_site_with_the_deadline_has_the_link_when_there_is_not_enough_for_both() -> None:
    commands = play(crawl_within(25_000), deadline_s=40.0)
    rates = [c.rates_bytes_per_s for now, c in commands if isinstance(c, SetRates) and now < 10]
    assert rates
    assert all(each.get(URGENT, 0.0) > each.get(PATIENT, 0.0) for each in rates)


def test_no_claim_is_above_the_capacity() -> None:
    played = play(crawl_within(25_000), deadline_s=40.0)
    rates = [rate for _, c in played if isinstance(c, SetRates) for rate in c.rates_bytes_per_s.values()]
    assert rates
    assert 0 < min(rates) <= max(rates) <= 25_000


def test_a_deadline_out_of_reach_is_reported_once_with_no_false_alarm_for_one_within() -> None:
    hopeless = [c for _, c in play(crawl_within(1e6), deadline_s=15.0) if isinstance(c, DeadlineForecast)]
    assert [(told.site, told.is_late) for told in hopeless] == [(URGENT, True)]
    assert not [c for _, c in play(crawl_within(1e6), deadline_s=60.0) if isinstance(c, DeadlineForecast)]


def test_the_forecast_range_holds_the_end() -> None:
    crawl = crawl_within(1e6)
    ranges = []

    def look(now: Instant, _: Command) -> None:
        if crawl.planner is not None and 5 < now < 25:
            ranges.append(crawl.planner.range_of(now, crawl.stats.site_stats(URGENT), crawl.frontier))

    world = ScriptedWorld(web())
    seeded = Seeded((Task(URGENT), Task(PATIENT)), (page(URGENT, 0), page(PATIENT, 0)))
    simulate(crawl, world, [seeded], on_command=look)
    ended_at = crawl.stats.site_stats(URGENT).ended_at
    known = [ends for ends in ranges if ends is not None]
    assert known
    assert ended_at is not None
    assert sum(early - 1 <= ended_at <= late + 1 for early, late in known) >= 0.8 * len(known)


def test_what_was_learnt_of_servers_is_saved_and_restored() -> None:
    rows = [c.rows for _, c in play(crawl_within(25_000), 40.0) if isinstance(c, SaveServers)]
    assert rows
    again = crawl_within(25_000)
    snapshot = Snapshot(Instant(0.0), (), (), (), (), servers=rows[-1])
    again.step(Instant(0.0), Restored(snapshot, {}))
    assert again.planner is not None
    (address, _), *_ = rows[-1]
    assert address in again.planner.prediction
