"""Redirects cost no depth, so a chain of ever new places has to end by its length."""

from __future__ import annotations

from headway.engine.machine import Engine
from headway.engine.scheduler import EngineSettings, Policies
from headway.model.command import Command, FetchPage, SaveSettled
from headway.model.event import PageSettled, Seeded, Tick
from headway.model.page import Kind, Outcome, Page, PageKey, Site, Task
from headway.policy.ordering.simple import Depth
from headway.policy.politeness import Politeness, RetryPolicy
from headway.policy.scope import Exclusion, Scope
from headway.units import Instant, Seconds

SITE = Site("http://a.test")
MOVED = Outcome(Kind.REDIRECT, 302, 100)
FAILED = Outcome(Kind.SERVER_ERROR, 500, 100)


def page(number: int) -> Page:
    return Page(f"{SITE}/{number}", SITE, PageKey(number))


def follow(*, fails_first: bool = False, arrives_after: int | None = None) -> tuple[list[int], list[str]]:
    """Each page leads to the next; returns the pages asked for, in order, and why others were not."""
    crawl = Engine(
        Policies(
            ordering=Depth(),
            scope=Scope(),
            politeness=Politeness(interval_s=Seconds(1.0)),
            retry=RetryPolicy(max_attempts=3, penalty_s=Seconds(1.0)),
        ),
        EngineSettings(max_connections=1, lease_s=Seconds(1000.0), asks_robots=False),
    )
    now = Instant(0.0)
    asked: list[int] = []
    excluded: list[str] = []
    commands: list[Command] = list(crawl.step(now, Seeded((Task(SITE),), (page(0),))))
    for _ in range(500):
        now = Instant(now + 1000.0)
        fetches = [command for command in commands if isinstance(command, FetchPage)]
        settled = [command for command in commands if isinstance(command, SaveSettled)]
        excluded += [each.outcome.detail for each in settled if each.outcome.kind is Kind.OUT_OF_SCOPE]
        if not fetches:
            commands = list(crawl.step(now, Tick()))
            if not commands:
                break
            continue
        lease = fetches[0].lease
        asked.append(int(lease.page.key))
        outcome, links = MOVED, (page(lease.page.key + 1),)
        if fails_first and lease.attempt == 0:
            outcome, links = FAILED, ()
        elif lease.page.key == arrives_after:
            outcome, links = Outcome(Kind.FETCHED, 200, 100), (page(1000),)
        commands = list(crawl.step(now, PageSettled(lease, outcome, links)))
    return asked, excluded


def test_a_chain_of_ever_new_places_ends_with_its_reason() -> None:
    asked, excluded = follow()
    assert asked == list(range(21)), "the first page and twenty redirects"
    assert excluded == [Exclusion.REDIRECT_CHAIN]


def test_failures_in_between_do_not_make_a_chain_longer() -> None:
    asked, excluded = follow(fails_first=True)
    assert sorted(set(asked)) == list(range(21))
    assert excluded == [Exclusion.REDIRECT_CHAIN]


def test_a_page_at_the_end_of_a_chain_leads_on_as_any_other() -> None:
    asked, excluded = follow(arrives_after=20)
    assert asked[:21] == list(range(21))
    assert asked[21:42] == list(range(1000, 1021))
    assert excluded == [Exclusion.REDIRECT_CHAIN]
