"""The live driver keeps rows and archive together: after every commit, and however a crawl ends."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.script import LoopClock
from tests.support.virtualtime import run_in_virtual_time

from headway.engine.machine import Engine
from headway.engine.scheduler import EngineSettings, Policies
from headway.errors import StoreError
from headway.model.command import (
    Decision,
    FetchPage,
    SaveFound,
    SaveSettled,
    Saving,
)
from headway.model.event import PageSettled, Seeded
from headway.model.page import Kind, Outcome, Page, PageKey, Site, Task
from headway.policy.ordering.simple import Depth
from headway.policy.politeness import Politeness, RetryPolicy
from headway.policy.scope import Scope
from headway.runtime.commands import WorldCommand
from headway.runtime.driver import EventSink, LiveDriver
from headway.units import Instant, Seconds

SITES = tuple(Site(f"http://s{number}.test") for number in range(3))
PAGES = 12


def page(number: int) -> Page:
    site = SITES[number % len(SITES)]
    return Page(f"{site}/{number}", site, PageKey(number))


class ArchivingCollector:
    """Archives a page and tells of it in one go, as the real one does."""

    def __init__(self, delays_s: Sequence[float]) -> None:
        self._delays_s = delays_s
        self.archived: list[str] = []

    def attach(self, sink: EventSink) -> None:
        self._sink = sink

    def start(self, now: Instant, command: WorldCommand) -> None:
        if isinstance(command, FetchPage):
            number = command.lease.page.key
            asyncio.get_running_loop().call_later(self._delays_s[number], self._answer, command)

    def _answer(self, command: FetchPage) -> None:
        number = command.lease.page.key
        links = tuple(page(link) for link in (2 * number + 1, 2 * number + 2) if link < PAGES)
        self.archived.append(command.lease.page.url)
        self._sink.tell(PageSettled(command.lease, Outcome(Kind.FETCHED, 200, 100), links))

    def committed(self) -> None: ...

    async def aclose(self) -> None: ...


class CheckingJournal:
    """Commits the archive as far as it is written, as the run folder does."""

    def __init__(self, collector: ArchivingCollector, failures: Sequence[Exception] = ()) -> None:
        self._collector = collector
        self._failures = list(failures)
        self.saved: list[Saving] = []
        self.without_a_row: set[str] = set()
        self.without_its_links: set[str] = set()

    @property
    def settled(self) -> list[str]:
        return [saving.page.url for saving in self.saved if isinstance(saving, SaveSettled)]

    @property
    def found(self) -> set[str]:
        return {page.url for saving in self.saved if isinstance(saving, SaveFound) for page in saving.pages}

    def decide(self, decision: Decision) -> None: ...

    def save(self, batch: Sequence[Saving]) -> None:
        if self.saved and self._failures:
            raise self._failures.pop()
        self.saved += batch
        self.without_a_row |= set(self._collector.archived) - set(self.settled)
        found = self.found
        for saving in self.saved:
            if isinstance(saving, SaveSettled) and not {link.url for link in saving.links} <= found:
                self.without_its_links.add(saving.page.url)


def driver_of(
    collector: ArchivingCollector,
    journal: CheckingJournal,
    commit_every_s: float,
    links_at_once: int | None = None,
) -> LiveDriver:
    crawl = Engine(
        Policies(
            ordering=Depth(),
            scope=Scope(),
            politeness=Politeness(interval_s=Seconds(0.0), pages_per_connection=100),
            retry=RetryPolicy(),
        ),
        EngineSettings(
            max_connections=3, lease_s=Seconds(600.0), asks_robots=False, links_at_once=links_at_once
        ),
    )
    return LiveDriver(crawl, collector, journal, LoopClock(), commit_every_s=Seconds(commit_every_s))


def opening() -> list[Seeded]:
    return [Seeded(tuple(Task(site) for site in SITES), tuple(page(number) for number in range(3)))]


# Sixteenths add up without rounding, so that answers and commits often fall on one instant.
def delays(least: int = 0) -> st.SearchStrategy[list[float]]:
    return st.lists(st.integers(least, 6).map(lambda n: n / 16), min_size=PAGES, max_size=PAGES)


commit_times = st.integers(0, 6).map(lambda n: n / 16)


@given(delays_s=delays(), commit_every_s=commit_times, links_at_once=st.sampled_from([None, 1]))
@settings(max_examples=150, deadline=None)
def test_no_commit_reaches_further_into_the_archive_than_its_rows(
    delays_s: list[float], commit_every_s: float, links_at_once: int | None
) -> None:
    collector = ArchivingCollector(delays_s)
    journal = CheckingJournal(collector)
    run_in_virtual_time(driver_of(collector, journal, commit_every_s, links_at_once).run(opening()))
    assert journal.without_a_row == set()
    assert journal.without_its_links == set()
    assert sorted(journal.settled) == sorted(page(number).url for number in range(PAGES))


@given(
    delays_s=delays(),
    commit_every_s=commit_times,
    stop_after_s=st.integers(0, 24).map(lambda n: n / 16),
    links_at_once=st.sampled_from([None, 1]),
)
@settings(max_examples=150, deadline=None)
def test_whenever_it_is_stopped_each_archived_page_has_its_row_and_its_links(
    delays_s: list[float], commit_every_s: float, stop_after_s: float, links_at_once: int | None
) -> None:
    collector = ArchivingCollector(delays_s)
    journal = CheckingJournal(collector)

    async def run() -> None:
        driver = driver_of(collector, journal, commit_every_s, links_at_once)
        asyncio.get_running_loop().call_later(stop_after_s, driver.stop)
        await driver.run(opening())

    run_in_virtual_time(run())
    assert journal.without_a_row == set()
    assert journal.without_its_links == set()
    assert sorted(journal.settled) == sorted(collector.archived[: len(journal.settled)])


@given(delays_s=delays(least=2))
@settings(max_examples=50, deadline=None)
def test_what_could_not_be_saved_is_saved_first_when_there_is_room_again(delays_s: list[float]) -> None:
    collector = ArchivingCollector(delays_s)
    journal = CheckingJournal(collector, [StoreError("the disk is full")])
    with pytest.raises(StoreError, match="the disk is full"):
        run_in_virtual_time(driver_of(collector, journal, 1 / 16).run(opening()))
    assert journal.without_a_row == set()
    assert set(journal.settled) == set(collector.archived)
    assert set(journal.settled) <= journal.found, "rows that build on rows which were dropped"


def test_an_unexpected_error_ends_the_crawl_too() -> None:
    collector = ArchivingCollector([0.25] * PAGES)
    journal = CheckingJournal(collector, [ZeroDivisionError("a bug")])
    with pytest.raises(ZeroDivisionError):
        run_in_virtual_time(driver_of(collector, journal, 0.0).run(opening()))


def test_a_crawl_that_is_stopped_before_it_runs_ends_at_once_and_loses_no_seed() -> None:
    collector = ArchivingCollector([0.25] * PAGES)
    journal = CheckingJournal(collector)
    driver = driver_of(collector, journal, 0.0)
    driver.stop()
    run_in_virtual_time(driver.run(opening()))
    assert collector.archived == []
    assert journal.found == {page(number).url for number in range(3)}
