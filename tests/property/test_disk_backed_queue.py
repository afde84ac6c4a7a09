"""A crawl whose pages wait in the store mostly does just what one with all of them in memory does."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.memory_store import MemoryStore

from headway.engine.frontier import Frontier
from headway.engine.machine import Engine
from headway.engine.scheduler import EngineSettings, Policies
from headway.engine.site_queue import DiskBackedSiteQueue, pages_held_each
from headway.model.command import (
    Command,
    FetchPage,
    Finished,
    LoadPages,
    SaveFound,
    SaveSettled,
    SaveSite,
    SaveTasks,
    Saving,
)
from headway.model.event import Event, Loaded, PageSettled, PagesLoaded, Restored, Seeded, Tick
from headway.model.page import Kind, Lease, Outcome, Page, PageKey, Site, Task
from headway.policy.ordering.base import Ordering
from headway.policy.ordering.simple import Depth, Length, LongestWait, Random, Score
from headway.policy.politeness import Politeness, RetryPolicy
from headway.policy.scope import Scope
from headway.units import Instant, Seconds

SITES = tuple(Site(f"http://s{number}.test") for number in range(2))
MAKERS: Sequence[Callable[[], Ordering]] = (Depth, Length, LongestWait, Score, Random)
MOST_HELD = 16
GOOD, LATER = Outcome(Kind.FETCHED, 200, 5000), Outcome(Kind.SERVER_ERROR, 502, 100)


def page(number: int, site: Site) -> Page:
    return Page(
        f"{site}/{number}",
        site,
        PageKey(number * 2 + SITES.index(site)),
        depth=(number * 7919) % 5,
        score=float((number * 31) % 11),
    )


class Played:
    """A crawl and its store, driven by hand: one instant after the other, the oldest lease answered first."""

    def __init__(self, make: Callable[[], Ordering], most_held: int | None, store: MemoryStore | None = None):
        ordering = make()
        self.crawl = Engine(
            Policies(
                ordering=ordering,
                scope=Scope(),
                politeness=Politeness(interval_s=Seconds(0.0)),
                retry=RetryPolicy(max_attempts=3, penalty_s=Seconds(0.0)),
            ),
            EngineSettings(max_connections=8, lease_s=Seconds(1e9), asks_robots=False, most_held=most_held),
        )
        self.store = store or MemoryStore()
        self.store.order_waiting(ordering.name, ordering.page_key)
        if store is None:
            self.store.create(Instant(0.0), {})
        self.asked: dict[Site, list[int]] = {site: [] for site in SITES}
        self.open: list[Lease] = []
        self.most_in_memory = 0
        self.is_finished = False

    def tell(self, now: Instant, event: Event) -> None:
        batch: list[Saving] = []
        to_load: list[LoadPages] = []
        for command in self.crawl.step(now, event):
            self._obey(command, batch, to_load)
        self.store.commit(batch, {})
        held = sum(len(queue._pages) + len(queue._deferred) for queue in self.crawl.frontier.queues())
        self.most_in_memory = max(self.most_in_memory, held)
        if to_load:
            first = [(wish, tuple(self.store.first_waiting(wish.site, wish.most))) for wish in to_load]
            loads = [Loaded(wish.site, records, len(records) < wish.most) for wish, records in first]
            self.tell(now, PagesLoaded(tuple(loads)))

    def _obey(self, command: Command, batch: list[Saving], to_load: list[LoadPages]) -> None:
        match command:
            case SaveFound() | SaveSettled() | SaveSite() | SaveTasks():
                batch.append(command)
            case LoadPages():
                to_load.append(command)
            case FetchPage(lease):
                self.open.append(lease)
                self.asked[lease.page.site].append(lease.page.key)
            case Finished():
                self.is_finished = True

    def answer(self, now: Instant, outcome: Outcome, links: tuple[Page, ...]) -> None:
        # Sites that wait for their pages are asked after the others, so the order among sites may differ.
        lease = min(self.open, key=lambda lease: (lease.page.site, lease.page.key))
        self.open.remove(lease)
        self.tell(now, PageSettled(lease, outcome, links))


turns = st.lists(
    st.tuples(
        st.sampled_from([GOOD, GOOD, GOOD, GOOD, GOOD, LATER]),
        st.lists(st.tuples(st.integers(0, 400), st.sampled_from(SITES)), max_size=60),
    ),
    min_size=1,
    max_size=30,
)


@pytest.mark.parametrize("make", MAKERS)
@given(turns)
@settings(max_examples=40)
def test_pages_come_in_the_same_order_and_none_is_lost_or_doubled(
    make: Callable[[], Ordering], drawn: list[tuple[Outcome, list[tuple[int, Site]]]]
) -> None:
    plain, spilling = Played(make, None), Played(make, MOST_HELD)
    seeded = Seeded(tuple(map(Task, SITES)), tuple(page(0, site) for site in SITES))
    for played in (plain, spilling):
        played.tell(Instant(0.0), seeded)
        now = 0.0
        for outcome, found in drawn:
            if played.open:
                now += 1.0
                played.answer(Instant(now), outcome, tuple(page(*each) for each in found))
        while not played.is_finished:
            now += 1.0
            if played.open:
                played.answer(Instant(now), GOOD, ())
            else:
                played.tell(Instant(now), Tick())
            assert now < 5000
    if later := sum(outcome is LATER for outcome, _ in drawn):
        # A page to be tried again stays at hand, and so may come before those that wait in the store. The
        # next answer that asks to come later may then be that of another page.
        for kept, other in zip(spilling.asked.values(), plain.asked.values(), strict=True):
            assert set(kept) == set(other)
        assert sum(len(keys) - len(set(keys)) for keys in spilling.asked.values()) <= later
    else:
        assert spilling.asked == plain.asked
    assert spilling.crawl.frontier.waiting == 0


def test_memory_holds_a_few_of_many() -> None:
    played = Played(Depth, MOST_HELD)
    pages = tuple(page(number, site) for number in range(2000) for site in SITES)
    played.tell(Instant(0.0), Seeded(tuple(map(Task, SITES)), pages))
    assert played.crawl.frontier.waiting == len(pages) - len(played.open)
    assert played.most_in_memory <= 2 * 2 * MOST_HELD
    now = 0.0
    while not played.is_finished:
        now += 1.0
        played.answer(Instant(now), GOOD, ())
    assert played.most_in_memory <= 2 * 2 * MOST_HELD
    assert sum(map(len, played.asked.values())) == len(pages)


@pytest.mark.parametrize("make", MAKERS)
def test_a_resumed_crawl_loads_a_few_pages_and_requests_the_rest_in_order(
    make: Callable[[], Ordering],
) -> None:
    pages = tuple(page(number, site) for number in range(300) for site in SITES)
    plain, first = Played(make, None), Played(make, MOST_HELD)
    for played in (plain, first):
        played.tell(Instant(0.0), Seeded(tuple(map(Task, SITES)), pages))
        for turn in range(100):
            played.answer(Instant(turn + 1.0), GOOD, ())
    # What is lent out when a crawl ends is asked for again.
    under_way = {lease.page.key for lease in first.open}
    done = {site: [key for key in keys if key not in under_way] for site, keys in first.asked.items()}
    again = Played(make, MOST_HELD, first.store)
    snapshot = first.store.load(MOST_HELD)
    assert snapshot is not None
    assert len(snapshot.waiting) < 100
    again.tell(Instant(200.0), Restored(snapshot, {}))
    again.tell(Instant(200.0), Seeded((), ()))
    now = 200.0
    for played in (plain, again):
        while not played.is_finished:
            now += 1.0
            played.answer(Instant(now), GOOD, ())
    assert {site: done[site] + again.asked[site] for site in SITES} == plain.asked


def test_the_more_sites_there_are_the_fewer_pages_of_each_are_held() -> None:
    most, sites = 640, 80
    frontier = Frontier(Depth(), most)
    for number in range(1, sites + 1):
        site = Site(f"http://s{number}.test")
        for place in range(2 * pages_held_each(most, number)):
            frontier.put(Page(f"{site}/{place}", site, PageKey(number * 10_000 + place)))
        queues = [queue for queue in frontier.queues() if isinstance(queue, DiskBackedSiteQueue)]
        assert sum(queue.waiting - queue.spilled for queue in queues) <= 4 * most
