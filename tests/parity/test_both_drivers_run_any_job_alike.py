"""Whatever the job asks for, and whatever people do meanwhile: the live driver and the simulator's driver
take the same decisions in the same scripted world, with engines from the one builder."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.script import Answer, LoopClock, MemoryJournal, Script, ScriptedCollector, ScriptedWorld
from tests.support.virtualtime import run_in_virtual_time

from headway.config.job import Job
from headway.http.robots import rules_from_text
from headway.model.command import AddSite, Decision, Pause, Resume, SetDeadline, StopSite
from headway.model.event import CapacityChanged, Draining, Found, FromOutside, LinkShared, Ordered
from headway.model.page import Kind, Outcome, Page, PageKey, Sighting, Site, Task
from headway.policy.revisit import add_visit
from headway.runtime.driver import VirtualClock, VirtualDriver
from headway.runtime.runtime import Runtime
from headway.units import FOREVER, BytesPerSecond, Instant, Seconds

from live_crawl import job_of

START = 1_795_132_790.0 - 1_795_132_790.0 % 86_400.0 + 86_390.0
"""Ten seconds before midnight in UTC, when quotas are renewed and the timetable changes."""
SITES = tuple(Site(f"http://s{number}.test") for number in range(4))
ADDED = Site("http://added.test")
CALENDAR = 60
"""Months of an endless calendar, enough for it to be given up."""
PAGES_FROM = 1000

# Quarters of a second add up without rounding, so that many answers and orders fall on one instant.
quarters = st.integers(0, 12).map(lambda quarter: Seconds(quarter / 4))
instants = st.integers(1, 59).map(lambda quarter: Instant(START + quarter / 4))
peers = st.sampled_from(["192.0.2.1", "192.0.2.2", "192.0.2.3"])
failures = st.sampled_from(
    [
        Outcome(Kind.TIMEOUT_IDLE, keep_alive=False),
        Outcome(Kind.SERVER_ERROR, 500, 300, Seconds(0.25)),
        Outcome(Kind.THROTTLED, 429, 200, Seconds(0.25), retry_after_s=Seconds(4.0)),
        Outcome(Kind.MISSING, 404, 100, Seconds(0.25)),
    ]
)


def page(number: int, depth: int = 0) -> Page:
    site = SITES[number % len(SITES)]
    shelf = "private" if number % 7 == 6 else "shelf"
    return Page(f"{site}/{shelf}/{'abcdefghijklmnop'[number]}", site, PageKey(PAGES_FROM + number), depth)


def month(number: int, depth: int) -> Page:
    url = f"{SITES[3]}/calendar/{2027 + number // 12}/{number % 12 + 1}"
    return Page(url, SITES[3], PageKey(number + 1), depth)


def seed(site: Site) -> Page:
    return Page(f"{site}/", site, PageKey(500 + [*SITES, ADDED].index(site)))


@st.composite
def successes(draw: st.DrawFn, duration_s: Seconds, *, kind: Kind = Kind.FETCHED) -> Outcome:
    return Outcome(
        kind,
        200,
        draw(st.integers(100, 20_000)),
        max(duration_s, Seconds(0.25)),
        "text/html",
        1000,
        peer=draw(peers),
        waited_s=draw(st.sampled_from([Seconds(0.0), Seconds(0.5)])),
        held_s=draw(st.sampled_from([Seconds(0.0), Seconds(0.125)])),
        fingerprint=draw(st.integers(1, 2**63)),
    )


@st.composite
def answers(draw: st.DrawFn, links: Sequence[Page]) -> list[Answer]:
    before = [Answer(draw(quarters), draw(failures)) for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2])))]
    duration_s = draw(quarters)
    return [*before, Answer(duration_s, draw(successes(duration_s)), tuple(links))]


@st.composite
def visits(draw: st.DrawFn) -> list[Answer]:
    kind = draw(st.sampled_from([Kind.FETCHED, Kind.NOT_MODIFIED]))
    history = b""
    for _ in range(draw(st.integers(1, 4))):
        history = add_visit(history, draw(st.floats(1.0, 100.0)), is_changed=draw(st.booleans()))
    outcome = draw(successes(Seconds(0.25), kind=kind))
    return [Answer(Seconds(0.25), outcome, sighting=Sighting(history=history))]


@st.composite
def scripts(draw: st.DrawFn) -> Script:
    count = draw(st.integers(1, 14))
    pages, again = {}, {}
    for number in range(count):
        links = [page(each, 1) for each in draw(st.lists(st.integers(0, count - 1), max_size=4))]
        pages[page(number).url] = draw(answers(links))
        again[page(number).url] = draw(visits())
    for site in (*SITES, ADDED):
        links = [page(number, 1) for number in range(count) if page(number).site == site]
        links += [month(0, 1)] if site == SITES[3] else [seed(ADDED)]
        pages[seed(site).url] = draw(answers(links))
    month_s = draw(st.sampled_from([Seconds(0.0), Seconds(0.25)]))
    likeness = Outcome(Kind.FETCHED, 200, 900, Seconds(0.25), "text/html", 900, fingerprint=0x1234_5678)
    for number in range(CALENDAR):
        ahead = tuple(month(number + by, number // 4 + 2) for by in (1, 2) if number + by < CALENDAR)
        pages[month(number, 0).url] = [Answer(month_s, likeness, ahead)]
    if draw(st.integers(0, 9)) == 0:
        pages[page(0).url] = [Answer(Seconds(FOREVER))]
    rules = "User-agent: *\nDisallow: /private/\n" + draw(st.sampled_from(["", "Crawl-delay: 1\n"]))
    return Script(
        pages,
        {site: draw(answers(())) for site in SITES},
        dict.fromkeys(SITES, rules_from_text(rules, "headway")),
        again=again,
    )


def maybe(*values: object) -> st.SearchStrategy[Any]:
    """None: the job does not name it."""
    return st.sampled_from([None, *values])


@st.composite
def jobs(draw: st.DrawFn, *, has_everything: bool = False) -> Job:
    def either(*values: object) -> Any:
        return draw(st.sampled_from(values) if has_everything else maybe(*values))

    # Planning takes most of the time, so most of the jobs that may do without do without.
    is_planned = has_everything or draw(st.integers(0, 3)) == 3
    every = either("2 s", "3 s")
    bandwidth = either("100 kbit/s", "1 Mbit/s") if is_planned else None
    crawl = {
        "bandwidth": bandwidth,
        "objective": draw(maybe("late-sites", "tardiness", "sum-completion")),
        "strategy": draw(maybe("depth", "length", "klwf", "random", "deadline", "batch(4)", "flow(4)")),
        "interval": draw(st.sampled_from(["0 s", "250 ms"])),
        "pages_per_connection": draw(maybe(3)),
        "max_connections": draw(st.integers(2, 5)),
        "admission_depth": either(1, 3),
        "retry_penalty": "1 s",
        "backoff": "1 s",
        "every": every,
        "revisit": draw(maybe({"adapt": True, "shortest": "1 s", "longest": "5 s"})) if every else None,
        # The planner looks at each of the next fourteen days then, which takes it too long for many examples.
        "quota": None if is_planned else draw(maybe({"day": "60 KB"})),
        "timetable": draw(maybe([{"hours": "00:00-06:00", "bandwidth": "300 kbit/s"}]))
        if is_planned
        else None,
        "background": draw(maybe(True)) if bandwidth else None,
        "traps": True if has_everything else draw(maybe(False)),
        "max_pages": None if has_everything else draw(maybe(5, 50)),
        "country": draw(maybe("BR")),
        "timezone": "UTC",
        "scope": {"hosts": [f"s{number}.test" for number in range(4)]},
    }
    sites = [
        {
            "url": seed(site).url,
            "deadline": either("3 s", "20 s", "1 h") if is_planned else None,
            "weight": draw(maybe(2.5)),
            "cap": draw(maybe("50 kbit/s")),
            "data": draw(maybe("200 KB")),
        }
        for site in SITES
    ]
    named = [{key: value for key, value in table.items() if value is not None} for table in (crawl, *sites)]
    return job_of({"crawl": named[0], "site": named[1:]})


orders = st.one_of(
    st.just(Pause()),
    st.just(Resume()),
    st.builds(SetDeadline, st.sampled_from([*SITES, ADDED]), st.one_of(st.none(), instants)),
    st.builds(StopSite, st.sampled_from([*SITES, ADDED])),
    st.just(AddSite(Task(ADDED, (seed(ADDED).url,), Instant(START + 30.0)), (seed(ADDED),))),
).map(Ordered)
from_outside = st.one_of(
    orders,
    st.sampled_from([None, 5_000.0, 40_000.0, 400_000.0]).map(
        lambda rate: CapacityChanged(None if rate is None else BytesPerSecond(rate))
    ),
    st.builds(
        LinkShared,
        st.sampled_from([BytesPerSecond(2e4), BytesPerSecond(1e6)]),
        st.just(5e4),
        st.sampled_from([None, 0.0, 0.05]),
        st.just("growing"),
    ),
    st.integers(0, 13).map(lambda number: Found((page(number, 2),))),
)
Outside = list[tuple[Instant, FromOutside]]


@st.composite
def meanwhile(draw: st.DrawFn) -> Outside:
    """What people do, in order, and at last that they end the crawl."""
    events: Outside = sorted(
        draw(st.lists(st.tuples(instants, from_outside), max_size=8)), key=lambda each: each[0]
    )
    return [*events, (Instant(START + draw(st.integers(60, 80)) / 4), Draining())]


def lived_decisions(job: Job, script: Script, outside: Outside) -> list[Decision]:
    journal = MemoryJournal()

    async def run() -> None:
        loop = asyncio.get_running_loop()
        runtime = Runtime.from_job(job, LoopClock(), ScriptedCollector(script))
        driver = runtime.live_driver(journal)

        def tell(events: Sequence[FromOutside]) -> None:
            for event in events:
                driver.tell(event)

        timers = [
            loop.call_at(at, tell, [event for _, event in events])
            for at, events in groupby(outside, key=lambda each: each[0])
        ]
        await driver.run([runtime.seeded(Instant(START))])
        for timer in timers:
            timer.cancel()

    run_in_virtual_time(run(), start_at=START)
    return journal.decisions


def simulated_decisions(job: Job, script: Script, outside: Outside) -> list[Decision]:
    decisions: list[Decision] = []
    clock = VirtualClock(Instant(START))
    runtime = Runtime.from_job(job, clock, ScriptedWorld(script))
    driver = VirtualDriver(runtime.engine, runtime.world, log=decisions.append)
    # As an event loop rounds it, which knows how long to wait rather than until when.
    driver.alarm = lambda now, at: Instant(now + max(0.0, at - now))
    driver.run([runtime.seeded(clock.now())], start_at=clock.now(), outside=outside)
    return decisions


def alike(job: Job, script: Script, outside: Outside) -> set[str]:
    """What kinds of decisions both took."""
    simulated = simulated_decisions(job, script, outside)
    assert simulated == lived_decisions(job, script, outside)
    return {decision.decision for decision in simulated}


@pytest.mark.filterwarnings("ignore:Generating overly large repr")
@given(job=jobs(), script=scripts(), outside=meanwhile())
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_job_with_any_orders_gives_the_same_decisions(job: Job, script: Script, outside: Outside) -> None:
    alike(job, script, outside)


def test_with_bound_planner_deadlines_admission_traps_revisits_and_orders_they_decide_alike() -> None:
    met: Counter[str] = Counter()

    @given(job=jobs(has_everything=True), script=scripts(), outside=meanwhile())
    @settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
    def decide_alike(job: Job, script: Script, outside: Outside) -> None:
        met.update(alike(job, script, outside))

    decide_alike()
    rare = {"foresee-late", "order-add", "order-pause"}
    assert {"set-rates", "set-capacity", "fetch-again", "exclude", "retry", "finish"} | rare <= met.keys()
