"""For the same web, the simulator and the live driver write the same decision log."""

from __future__ import annotations

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.script import Answer, LoopClock, MemoryJournal, Script, ScriptedCollector, ScriptedWorld
from tests.support.virtualtime import run_in_virtual_time

from headway.engine.machine import Engine
from headway.engine.scheduler import EngineSettings, Policies
from headway.model.command import Decision
from headway.model.event import Event, Seeded
from headway.model.page import Kind, Outcome, Page, PageKey, Site, Task
from headway.policy.ordering.base import Ordering
from headway.policy.ordering.simple import Depth, Length, LongestWait, Random
from headway.policy.politeness import Politeness, RetryPolicy
from headway.policy.scope import Scope
from headway.runtime.driver import LiveDriver, simulate
from headway.units import FOREVER, Seconds

SITES = tuple(Site(f"http://s{number}.test") for number in range(4))
# Quarters of a second add up without rounding, so that many answers fall on the same instant: ties.
quarters = st.integers(0, 12).map(lambda quarter: Seconds(quarter / 4))
failures = st.sampled_from(
    [
        Outcome(Kind.TIMEOUT_IDLE, keep_alive=False),
        Outcome(Kind.CONNECT, keep_alive=False),
        Outcome(Kind.SERVER_ERROR, 500, 300),
        Outcome(Kind.THROTTLED, 429, 200, retry_after_s=Seconds(4.0)),
        Outcome(Kind.MISSING, 404, 100),
        Outcome(Kind.REFUSED, 403, 100),
    ]
)
ok = st.builds(lambda size: Outcome(Kind.FETCHED, 200, size), st.integers(100, 20_000))


def page(number: int, depth: int) -> Page:
    site = SITES[number % len(SITES)]
    return Page(f"{site}/{number}", site, PageKey(number), depth)


@st.composite
def scripts(draw: st.DrawFn) -> Script:
    count = draw(st.integers(1, 16))
    pages = {}
    for number in range(count):
        links = tuple(page(target, 1) for target in draw(st.lists(st.integers(0, count - 1), max_size=5)))
        answers = [Answer(draw(quarters), draw(failures)) for _ in range(draw(st.integers(0, 3)))]
        if draw(st.integers(0, 9)) == 0:
            answers.append(Answer(Seconds(FOREVER)))
        answers.append(Answer(draw(quarters), draw(ok), links))
        pages[page(number, 0).url] = answers
    robots = {
        site: [Answer(draw(quarters), draw(failures)) for _ in range(draw(st.integers(0, 4)))]
        + [Answer(draw(quarters))]
        for site in SITES
    }
    return Script(pages, robots)


def crawl_with(ordering: Ordering, connections: int, per_connection: int) -> Engine:
    return Engine(
        Policies(
            ordering=ordering,
            scope=Scope(hosts=frozenset(f"s{number}.test" for number in range(4))),
            politeness=Politeness(interval_s=Seconds(1.5), pages_per_connection=per_connection),
            retry=RetryPolicy(max_attempts=3),
        ),
        EngineSettings(max_connections=connections, lease_s=Seconds(60.0)),
    )


def opening() -> list[Event]:
    seeds = tuple(page(number, 0) for number in range(2))
    return [Seeded(tuple(Task(site) for site in SITES), seeds)]


def decisions_in_virtual_time(crawl: Engine, script: Script) -> list[Decision]:
    decisions: list[Decision] = []
    simulate(crawl, ScriptedWorld(script), opening(), log=decisions.append)
    return decisions


def decisions_of_the_live_driver(crawl: Engine, script: Script) -> list[Decision]:
    journal = MemoryJournal()

    async def run() -> None:
        driver = LiveDriver(crawl, ScriptedCollector(script), journal, LoopClock())
        await asyncio.wait_for(driver.run(opening()), timeout=10_000_000)

    run_in_virtual_time(run())
    return journal.decisions


@given(
    script=scripts(),
    ordering=st.sampled_from([Depth(), Length(), LongestWait(), Random(7)]),
    connections=st.integers(1, 5),
    per_connection=st.integers(1, 3),
)
@settings(max_examples=300, deadline=None)
def test_same_web_same_decisions(
    script: Script, ordering: Ordering, connections: int, per_connection: int
) -> None:
    simulated = decisions_in_virtual_time(crawl_with(ordering, connections, per_connection), script)
    lived = decisions_of_the_live_driver(crawl_with(ordering, connections, per_connection), script)
    assert simulated == lived
    assert simulated[-1].decision == "finish"
