"""A person's orders in the machine: each does what it says, at once, and leaves its line."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from headway.engine.decisions import decision_of
from headway.engine.machine import Engine
from headway.engine.scheduler import EngineSettings, Policies
from headway.model.command import (
    AddSite,
    Command,
    FetchPage,
    Finished,
    Order,
    OrderAnswered,
    PageState,
    Pause,
    Resume,
    SaveAgain,
    SaveSettled,
    SaveTasks,
    SetDeadline,
    StopSite,
)
from headway.model.event import Draining, Ordered, PageSettled, Seeded, Tick
from headway.model.page import Kind, Outcome, Page, PageKey, Site, Task
from headway.policy.ordering.simple import Depth
from headway.policy.politeness import Politeness, RetryPolicy
from headway.policy.scope import Scope
from headway.units import Instant, Seconds

A, B, C = (Site(f"http://{name}.test") for name in "abc")
OK = Outcome(Kind.FETCHED, 200, 1000, Seconds(0.1))


def page(site: Site, number: int) -> Page:
    return Page(f"{site}/{number}", site, PageKey(hash((site, number))))


class Bench:
    """A crawl of two sites with ten pages each, one step at a time."""

    def __init__(self) -> None:
        self.now = 0.0
        self.crawl = Engine(
            Policies(
                ordering=Depth(),
                scope=Scope(hosts=frozenset({"a.test", "b.test"})),
                politeness=Politeness(interval_s=Seconds(1.0)),
                retry=RetryPolicy(),
            ),
            EngineSettings(max_connections=8, lease_s=Seconds(1e6), asks_robots=False),
        )
        pages = tuple(page(site, number) for number in range(10) for site in (A, B))
        self.commands = list(self.crawl.step(Instant(0.0), Seeded((Task(A), Task(B)), pages)))
        self.under_way = self.asked()

    def asked(self) -> list[FetchPage]:
        return [command for command in self.commands if isinstance(command, FetchPage)]

    def tell(self, order: Order) -> Sequence[Command]:
        self.commands = list(self.crawl.step(Instant(self.now), Ordered(order)))
        self.under_way += self.asked()
        return self.commands

    def answer_all(self, links: tuple[Page, ...] = ()) -> list[FetchPage]:
        """Let everything under way end, and the interval pass; what is asked for then."""
        before, self.under_way = self.under_way, []
        asked: list[FetchPage] = []
        for fetch in before:
            self.commands = list(self.crawl.step(Instant(self.now), PageSettled(fetch.lease, OK, links)))
            asked += self.asked()
        self.now += 2.0
        self.commands = list(self.crawl.step(Instant(self.now), Tick()))
        asked += self.asked()
        self.under_way = asked
        return asked

    def line(self) -> tuple[str, str]:
        (obeyed,) = [command for command in self.commands if isinstance(command, OrderAnswered)]
        decision = decision_of(Instant(self.now), obeyed)
        assert decision is not None
        return decision.decision, decision.reason


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_paused_crawl_asks_for_nothing_and_does_not_end(bench: Bench) -> None:
    bench.tell(Pause())
    assert bench.line() == ("order-pause", "")
    for _ in range(3):
        assert not bench.answer_all()
        assert not any(isinstance(command, Finished) for command in bench.commands)


def test_a_resumed_crawl_asks_at_once(bench: Bench) -> None:
    bench.tell(Pause())
    bench.answer_all()
    bench.tell(Resume())
    assert bench.line() == ("order-resume", "")
    assert {fetch.lease.page.site for fetch in bench.asked()} == {A, B}


def test_a_paused_crawl_can_be_drained(bench: Bench) -> None:
    bench.tell(Pause())
    bench.answer_all()
    commands = bench.crawl.step(Instant(bench.now), Draining())
    assert any(isinstance(command, Finished) for command in commands)


def test_a_new_deadline_is_kept_and_counts(bench: Bench) -> None:
    commands = bench.tell(SetDeadline(A, Instant(500.0)))
    assert SaveTasks((Task(A, deadline_at=Instant(500.0)),)) in commands
    assert bench.crawl.stats.site_stats(A).task.deadline_at == 500.0
    bench.tell(SetDeadline(A, None))
    assert bench.crawl.stats.site_stats(A).task.deadline_at is None


def test_a_stopped_site_is_never_asked_again(bench: Bench) -> None:
    commands = bench.tell(StopSite(A))
    dropped = [command for command in commands if isinstance(command, SaveSettled)]
    assert len(dropped) == 9
    assert {each.state for each in dropped} == {PageState.EXCLUDED}
    for _ in range(12):
        new_link = (page(A, 100 + int(bench.now)),)
        assert all(fetch.lease.page.site == B for fetch in bench.answer_all(new_link))
    assert bench.crawl.frontier.waiting == 0


def test_an_added_site_is_in_scope_from_then_on(bench: Bench) -> None:
    bench.answer_all((page(C, 1),))
    assert not any(fetch.lease.page.site == C for fetch in bench.under_way)
    bench.tell(AddSite(Task(C, ("http://c.test/2",), Instant(900.0)), (page(C, 2),)))
    assert bench.line() == ("order-add", "")
    assert [fetch.lease.page.url for fetch in bench.asked()] == ["http://c.test/2"]
    asked = [*bench.answer_all((page(C, 3),)), *bench.answer_all()]
    assert "http://c.test/3" in [fetch.lease.page.url for fetch in asked]


def test_pages_that_were_passed_over_before_are_asked_of_a_site_that_is_added(bench: Bench) -> None:
    bench.answer_all((page(C, 1),))
    commands = bench.tell(AddSite(Task(C), (page(C, 1),)))
    assert [fetch.lease.page.url for fetch in bench.asked()] == ["http://c.test/1"]
    assert SaveAgain((page(C, 1),), Instant(bench.now)) in commands


def test_a_site_added_twice_is_not_started_again(bench: Bench) -> None:
    bench.tell(AddSite(Task(C), (page(C, 1),)))
    bench.answer_all()
    bench.tell(AddSite(Task(C, max_pages=9), (page(C, 1),)))
    assert not any(fetch.lease.page.site == C for fetch in bench.asked())
    assert bench.crawl.stats.site_stats(C).task.max_pages == 9


def test_stopping_a_site_twice_does_not_move_its_end(bench: Bench) -> None:
    bench.tell(StopSite(A))
    ended_at = bench.crawl.stats.site_stats(A).ended_at
    bench.now += 5.0
    bench.tell(StopSite(A))
    assert bench.crawl.stats.site_stats(A).ended_at == ended_at


def test_orders_about_unknown_sites_are_refused_and_noted(bench: Bench) -> None:
    bench.tell(StopSite(C))
    assert bench.line() == ("order-stop", f"there is no site {C} in this crawl")
    bench.tell(SetDeadline(C, Instant(9.0)))
    assert bench.line()[1]
