"""Pages fetched more than once, as the machine sees them: due, asked for, or overtaken by another copy."""

from __future__ import annotations

from headway.crawl.machine import Crawl
from headway.model.command import (
    Command,
    FetchPage,
    Finished,
    PageState,
    SaveAgain,
    SaveFound,
    SaveSettled,
    WakeAt,
)
from headway.model.event import Again, Delivered, Draining, Found, PageSettled, Seeded, Tick
from headway.model.outcome import Kind, Outcome, Sighting
from headway.model.page import Page, PageKey, Site, is_again
from headway.model.task import Task
from headway.policy.freshness import add_visit
from headway.policy.ordering.simple import Depth
from headway.policy.politeness import Politeness
from headway.policy.retry import RetryPolicy
from headway.policy.revisit import FixedRevisit, RevisitPolicy
from headway.policy.scope import Scope
from headway.units import Instant, Seconds

SITE = Site("http://a.test")
FETCHED = Outcome(Kind.FETCHED, 200, 100, Seconds(0.1))


def page(number: int) -> Page:
    return Page(f"{SITE}/{number}", SITE, PageKey(number))


def machine(policy: RevisitPolicy | None = None, max_pages: int | None = None) -> Crawl:
    crawl = Crawl(
        ordering=Depth(),
        scope=Scope(),
        politeness=Politeness(interval_s=Seconds(0.0), pages_per_connection=100),
        retry=RetryPolicy(max_attempts=2, penalty_s=Seconds(5.0)),
        max_connections=1,
        lease_s=Seconds(600.0),
        asks_robots=False,
        revisit=policy,
        recrawls=True,
    )
    crawl.step(Instant(0.0), Seeded((Task(SITE, max_pages=max_pages),), ()))
    return crawl


def fetches(commands: object) -> list[FetchPage]:
    return [command for command in commands if isinstance(command, FetchPage)]  # type: ignore[attr-defined]


def settle(crawl: Crawl, now: float, order: FetchPage, was: PageState | None = None) -> list[Command]:
    return list(crawl.step(Instant(now), PageSettled(order.lease, FETCHED, was=was)))


def test_a_page_done_is_due_again_after_its_time_and_not_before() -> None:
    crawl = machine(FixedRevisit(Seconds(60.0)))
    (order,) = fetches(crawl.step(Instant(0.0), Found((page(1),))))
    commands = settle(crawl, 1.0, order)
    assert SaveAgain((page(1),), Instant(61.0)) in commands
    assert not fetches(commands)
    assert WakeAt(Instant(61.0)) in commands
    assert not fetches(crawl.step(Instant(60.9), Tick()))
    (again,) = fetches(crawl.step(Instant(61.0), Tick()))
    assert is_again(again.lease.attempt)
    assert crawl.ledger.done == 1
    settle(crawl, 62.0, again, PageState.DONE)
    assert crawl.ledger.done == 1, "it counts once"


def test_a_site_is_done_while_its_pages_only_wait_for_their_next_visit() -> None:
    crawl = machine(FixedRevisit(Seconds(60.0)))
    (order,) = fetches(crawl.step(Instant(0.0), Found((page(1),))))
    settle(crawl, 1.0, order)
    assert crawl.ledger.book(SITE).ended_at == 1.0
    (again,) = fetches(crawl.step(Instant(61.0), Tick()))
    settle(crawl, 62.0, again, PageState.DONE)
    assert crawl.ledger.book(SITE).ended_at == 1.0, "and stays so"


def test_a_page_asked_for_twice_is_queued_once() -> None:
    crawl = machine()
    commands = [*crawl.step(Instant(0.0), Again((page(1),), Instant(5.0)))]
    commands += crawl.step(Instant(0.0), Again((page(1),), Instant(5.0)))
    assert len([command for command in commands if isinstance(command, SaveAgain)]) == 1
    assert crawl.frontier.waiting == 1


def test_a_page_that_came_another_way_is_passed_over_when_its_turn_comes() -> None:
    crawl = machine()
    (order,) = fetches(crawl.step(Instant(0.0), Found((page(1), page(2), page(3)))))
    commands = crawl.step(Instant(0.5), Delivered(page(2), FETCHED, (page(4),)))
    assert any(isinstance(command, SaveSettled) and command.page == page(2) for command in commands)
    assert SaveFound((page(4),)) in commands, "its links are followed"
    asked = [order.lease.page]
    while orders := fetches(settle(crawl, 1.0, order)):
        (order,) = orders
        asked.append(order.lease.page)
    assert asked == [page(1), page(3), page(4)]
    assert crawl.ledger.done == 4


def test_a_failed_second_visit_is_tried_again_as_often_as_a_first_one() -> None:
    crawl = machine()
    (order,) = fetches(crawl.step(Instant(0.0), Again((page(1),), Instant(0.0))))
    failed = Outcome(Kind.RESET, 0, 10, Seconds(0.1))
    crawl.step(Instant(1.0), PageSettled(order.lease, failed, was=PageState.DONE))
    (order,) = fetches(crawl.step(Instant(100.0), Tick()))
    assert is_again(order.lease.attempt)
    commands = crawl.step(Instant(101.0), PageSettled(order.lease, failed, was=PageState.DONE))
    (saved,) = [command for command in commands if isinstance(command, SaveSettled)]
    assert saved.state is PageState.FAILED
    assert crawl.ledger.failed == 1


def test_a_site_that_is_full_takes_known_pages_and_no_new_ones() -> None:
    crawl = machine(max_pages=1)
    (order,) = fetches(crawl.step(Instant(0.0), Found((page(1),))))
    settle(crawl, 1.0, order)
    commands = crawl.step(Instant(2.0), Found((page(2),)))
    assert not fetches(commands)
    assert any(isinstance(each, SaveSettled) and each.outcome.kind is Kind.LIMIT for each in commands)
    (again,) = fetches(crawl.step(Instant(3.0), Again((page(1),), Instant(3.0))))
    assert again.lease.page == page(1)


def test_what_a_visit_has_for_the_next_is_saved_with_it() -> None:
    crawl = machine()
    (order,) = fetches(crawl.step(Instant(0.0), Found((page(1),))))
    sighting = Sighting('"v1"', "", add_visit(b"", 60.0, is_changed=True))
    commands = crawl.step(Instant(1.0), PageSettled(order.lease, FETCHED, sighting=sighting))
    (saved,) = [command for command in commands if isinstance(command, SaveSettled)]
    assert saved.sighting == sighting


def test_a_crawl_that_never_ends_by_itself_ends_when_drained() -> None:
    crawl = machine(FixedRevisit(Seconds(60.0)))
    (order,) = fetches(crawl.step(Instant(0.0), Found((page(1),))))
    assert Finished() not in settle(crawl, 1.0, order)
    assert Finished() in crawl.step(Instant(2.0), Draining())


def test_a_crawl_that_rests_can_be_drained() -> None:
    crawl = machine()
    assert Finished() in crawl.step(Instant(1.0), Draining())
