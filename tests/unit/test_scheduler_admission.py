"""Admission in the crawl: predicted rates of what is under way stay under the bound, and nobody starves."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.script import Answer, Script, ScriptedWorld

from headway.engine.bandwidth import BandwidthPlanner, LinkBound
from headway.engine.frontier import Frontier
from headway.engine.machine import Engine
from headway.engine.scheduler import EngineSettings, Policies
from headway.model.command import Command, FetchPage
from headway.model.event import Seeded
from headway.model.page import Kind, Outcome, Page, PageKey, Site, Task
from headway.planning.allocator import Allocator
from headway.policy.admission import Admission
from headway.policy.ordering.simple import Depth
from headway.policy.politeness import Politeness, RetryPolicy
from headway.policy.prediction import Prediction
from headway.policy.scope import Scope
from headway.policy.timetable import Timetable
from headway.runtime.driver import simulate
from headway.units import BytesPerSecond, Instant, Seconds

SLOW_RATE, FAST_RATE = 10_000, 80_000
"""What a server of each kind sends in a second; a page takes one second of either."""
SLOW = [Site(f"http://slow{number}.test") for number in range(12)]
FAST = [Site(f"http://fast{number}.test") for number in range(4)]
PAGES = 30
KNOWN_AFTER = 8
"""Pages of a server, until its rate is learnt."""


def page(site: Site, number: int) -> Page:
    return Page(f"{site}/{number}", site, PageKey(hash((site, number))), depth=1)


def pages() -> Iterator[Page]:
    return (page(site, number) for number in range(PAGES) for site in SLOW + FAST)


def web() -> Script:
    answers = {}
    for each in pages():
        rate = SLOW_RATE if each.site in SLOW else FAST_RATE
        peer = f"192.0.2.{1 + (SLOW + FAST).index(each.site)}"
        answers[each.url] = [Answer(Seconds(1.0), Outcome(Kind.FETCHED, 200, rate, Seconds(1.0), peer=peer))]
    return Script(answers)


def rates_under_way(depth: int | None, capacity: float) -> tuple[list[float], set[str]]:
    """The true sum of the rates under way whenever a page is asked for, once servers are known; the URLs."""
    politeness = Politeness(interval_s=Seconds(0.5))
    crawl = Engine(
        Policies(
            ordering=Depth(),
            scope=Scope(),
            politeness=politeness,
            retry=RetryPolicy(),
            admission=None if depth is None else Admission(BytesPerSecond(1.0), max_depth=depth),
        ),
        EngineSettings(max_connections=64, lease_s=Seconds(1e6), asks_robots=False),
        bound=LinkBound(Timetable(BytesPerSecond(capacity))),
        planner=BandwidthPlanner(Allocator(), politeness, Prediction(BytesPerSecond(20_000))),
    )
    sums: list[float] = []
    asked: set[str] = set()
    under_way: dict[Site, Instant] = {}
    asked_of = dict.fromkeys(SLOW + FAST, 0)

    def look(now: Instant, command: Command) -> None:
        if isinstance(command, FetchPage):
            asked.add(command.lease.page.url)
            under_way[command.lease.page.site] = now
            asked_of[command.lease.page.site] += 1
            if min(asked_of.values()) > KNOWN_AFTER:
                busy = [site for site, since in under_way.items() if now - since < 1.0]
                sums.append(sum(FAST_RATE if site in FAST else SLOW_RATE for site in busy))

    tasks = tuple(Task(site) for site in SLOW + FAST)
    simulate(crawl, ScriptedWorld(web()), [Seeded(tasks, tuple(pages()))], on_command=look)
    return sums, asked


@pytest.mark.parametrize("depth", [2, 6])
def test_rates_under_way_stay_under_the_bound_once_servers_are_known(depth: int) -> None:
    sums, _ = rates_under_way(depth, capacity=140_000)
    assert sums
    assert max(sums) <= 140_000


def test_without_admission_they_do_not() -> None:
    sums, asked = rates_under_way(None, capacity=140_000)
    assert len(asked) == PAGES * len(SLOW + FAST)
    assert max(sums) > 140_000


@pytest.mark.parametrize("depth", [1, 2, 6])
@pytest.mark.parametrize("capacity", [5_000, 140_000])
def test_every_page_is_asked_for_even_of_servers_faster_than_the_bound(depth: int, capacity: float) -> None:
    _, asked = rates_under_way(depth, capacity)
    assert asked == {each.url for each in pages()}


def test_a_deeper_look_makes_more_use_of_the_bound() -> None:
    shallow, _ = rates_under_way(1, capacity=90_000)
    deep, _ = rates_under_way(8, capacity=90_000)
    assert sum(deep) / len(deep) > 1.1 * sum(shallow) / len(shallow)


def test_the_sites_next_in_turn_are_named_without_being_moved() -> None:
    frontier = Frontier(Depth())
    for number, site in enumerate(SLOW):
        frontier.put(Page(f"{site}/", site, PageKey(number), depth=number))
    first = frontier.next_sites(Instant(1.0), 3)
    assert [queue.site for queue in first] == SLOW[:3]
    assert frontier.next_sites(Instant(1.0), 99) == frontier.next_sites(Instant(1.0), len(SLOW))
    assert frontier.next_site(Instant(1.0)) is first[0]
