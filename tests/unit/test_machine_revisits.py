"""Pages fetched more than once, as the machine sees them: due, asked for, or overtaken by another copy."""

from __future__ import annotations

from msgspec import structs

from headway.engine.machine import Engine
from headway.engine.scheduler import EngineSettings, Policies
from headway.model.command import (
    Command,
    FetchPage,
    Finished,
    PageState,
    SaveAgain,
    SaveFound,
    SaveSettled,
    Snapshot,
    WaitingRecord,
    WakeAt,
)
from headway.model.event import (
    Again,
    CollectorsCounted,
    Delivered,
    Draining,
    Found,
    PageSettled,
    Seeded,
    SitesLeft,
    SitesTaken,
    Tick,
    VisitHistories,
)
from headway.model.page import AGAIN, Kind, Outcome, Page, PageKey, Sighting, Site, Task, is_again
from headway.policy.ordering.simple import Depth
from headway.policy.politeness import Politeness, RetryPolicy
from headway.policy.revisit import FixedRevisit, RevisitPolicy, add_visit
from headway.policy.scope import Scope
from headway.units import BytesPerSecond, Instant, Seconds

SITE = Site("http://a.test")
FETCHED = Outcome(Kind.FETCHED, 200, 100, Seconds(0.1))


def page(number: int) -> Page:
    return Page(f"{SITE}/{number}", SITE, PageKey(number))


def machine(
    policy: RevisitPolicy | None = None, max_pages: int | None = None, *, is_part: bool = False
) -> Engine:
    crawl = Engine(
        Policies(
            ordering=Depth(),
            scope=Scope(),
            politeness=Politeness(interval_s=Seconds(0.0), pages_per_connection=100),
            retry=RetryPolicy(max_attempts=2, penalty_s=Seconds(5.0)),
            revisit=policy,
        ),
        EngineSettings(
            max_connections=1, lease_s=Seconds(600.0), asks_robots=False, recrawls=True, is_part=is_part
        ),
    )
    crawl.step(Instant(0.0), Seeded((Task(SITE, max_pages=max_pages),), ()))
    return crawl


def fetches(commands: object) -> list[FetchPage]:
    return [command for command in commands if isinstance(command, FetchPage)]  # type: ignore[attr-defined]


def settle(crawl: Engine, now: float, order: FetchPage, was: PageState | None = None) -> list[Command]:
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
    assert crawl.stats.done == 1
    settle(crawl, 62.0, again, PageState.DONE)
    assert crawl.stats.done == 1, "it counts once"


def test_a_site_is_done_while_its_pages_only_wait_for_their_next_visit() -> None:
    crawl = machine(FixedRevisit(Seconds(60.0)))
    (order,) = fetches(crawl.step(Instant(0.0), Found((page(1),))))
    settle(crawl, 1.0, order)
    assert crawl.stats.site_stats(SITE).ended_at == 1.0
    (again,) = fetches(crawl.step(Instant(61.0), Tick()))
    settle(crawl, 62.0, again, PageState.DONE)
    assert crawl.stats.site_stats(SITE).ended_at == 1.0, "and stays so"


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
    assert crawl.stats.done == 4


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
    assert crawl.stats.failed == 1


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


class Notes:
    """A policy that records its calls."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def next_at(self, now: Instant, site: Site, visit_bytes: int, history: bytes) -> Instant | None:
        return None

    def spare(self, now: Instant, bytes_per_s: BytesPerSecond) -> None: ...

    def learn(self, site: Site, history: bytes) -> None:
        self.told.append((site, history))

    def forget(self, site: Site) -> None:
        self.told.append(("forget", site))

    @property
    def longest_s(self) -> float:
        return 1e9

    def work_beside(self, collectors: int) -> None:
        self.told.append(collectors)


def taken(*waiting: WaitingRecord) -> SitesTaken:
    snapshot = Snapshot(Instant(0.0), (), (), waiting, [record.page.key for record in waiting])
    return SitesTaken(frozenset({SITE}), snapshot, {}, {})


def test_only_the_holder_of_a_site_decides_when_its_pages_are_visited() -> None:
    notes = Notes()
    crawl = machine(notes, is_part=True)
    crawl.step(Instant(1.0), VisitHistories(SITE, (b"0000",)))
    assert notes.told == [], "it is not ours"
    crawl.step(Instant(2.0), taken())
    crawl.step(Instant(3.0), VisitHistories(SITE, (b"1111", b"2222")))
    crawl.step(Instant(4.0), CollectorsCounted(3))
    crawl.step(Instant(5.0), SitesLeft((SITE,)))
    assert notes.told == [(SITE, b"1111"), (SITE, b"2222"), 3, ("forget", SITE)]


def test_a_visit_that_was_due_when_a_site_went_to_another_is_made_when_it_comes_back() -> None:
    crawl = machine(FixedRevisit(Seconds(60.0)), is_part=True)
    (order,) = fetches(crawl.step(Instant(0.0), taken(WaitingRecord(page(1)))))
    settle(crawl, 1.0, order)
    crawl.step(Instant(2.0), SitesLeft((SITE,)))
    assert not fetches(crawl.step(Instant(70.0), Tick())), "it is another's"
    crawl.step(Instant(80.0), taken(WaitingRecord(page(1), AGAIN, Instant(90.0))))
    (again,) = fetches(crawl.step(Instant(90.0), Tick()))
    commands = settle(crawl, 91.0, again, PageState.DONE)
    assert SaveAgain((page(1),), Instant(151.0)) in commands


def test_what_was_asked_for_again_of_a_site_that_left_can_be_asked_for_when_it_comes_back() -> None:
    crawl = machine(is_part=True)
    crawl.step(Instant(0.0), taken())
    crawl.step(Instant(1.0), Again((page(1),), Instant(100.0)))
    crawl.step(Instant(2.0), SitesLeft((SITE,)))
    crawl.step(Instant(3.0), taken())
    assert fetches(crawl.step(Instant(4.0), Again((page(1),), Instant(4.0))))


def test_a_page_that_says_it_stays_as_it_is_is_visited_later() -> None:
    crawl = machine(FixedRevisit(Seconds(60.0)))
    (order,) = fetches(crawl.step(Instant(0.0), Found((page(1),))))
    fresh = structs.replace(FETCHED, fresh_s=Seconds(150.0))
    commands = crawl.step(Instant(1.0), PageSettled(order.lease, fresh))
    assert [each.not_before for each in commands if isinstance(each, SaveAgain)] == [151.0]
