"""`waiting_in_memory` bounds the pages of all sites together, and the order is as with all in memory."""

from __future__ import annotations

import random
from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.engine.frontier import Frontier
from headway.model.command import WaitingRecord
from headway.model.page import Page, PageKey, Site
from headway.policy.ordering.simple import Depth, Length, Score
from headway.units import Instant

NOW = Instant(0.0)


class Store:
    """The waiting pages by site, in the order of the ordering."""

    def __init__(self, ordering: Depth) -> None:
        self._ordering = ordering
        self.pages: dict[Site, list[Page]] = defaultdict(list)
        self.loads = 0

    def add(self, page: Page) -> None:
        self.pages[page.site].append(page)

    def answer(self, frontier: Frontier) -> None:
        while frontier.is_short:
            for site, most in frontier.load_requests(()):
                self.loads += 1
                in_order = sorted(self.pages[site], key=self._ordering.page_key)
                records = [WaitingRecord(page, 0, None) for page in in_order[:most]]
                frontier.load(site, records, (), is_all=len(records) < most)


def crawl(frontier: Frontier, store: Store, *, most: int | None = None) -> list[Page]:
    """Fetch all pages one by one; each site is free at once."""
    fetched = []
    while frontier.waiting:
        store.answer(frontier)
        queue = frontier.next_site(NOW)
        if queue is None:
            assert frontier.is_short, "pages wait, and no site is ready"
            continue
        page = frontier.take(queue).page
        store.pages[page.site].remove(page)
        fetched.append(page)
        frontier.occupy(page.site)
        frontier.free(page.site, NOW)
        if most is not None:
            # What was just loaded comes on top.
            assert frontier.held <= most + 64
            assert frontier.held == sum(queue.held for queue in frontier._queues if queue is not None)  # type: ignore[attr-defined]
    return fetched


@pytest.mark.parametrize("sites", [10, 1000])
def test_pages_beyond_the_bound_are_left_to_the_store_whatever_the_number_of_sites(sites: int) -> None:
    ordering, most = Length(), 50
    frontier, store = Frontier(ordering, most), Store(ordering)  # type: ignore[arg-type]
    for number in range(10 * sites):
        site = Site(f"http://{number % sites}.test")
        page = Page(f"{site}/{number}", site, PageKey(number), 0)
        frontier.put(page)
        store.add(page)
        assert frontier.held <= most + 1
    assert frontier.waiting == 10 * sites
    assert len(crawl(frontier, store, most=most)) == 10 * sites


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 40), st.integers(1, 12))
def test_each_page_is_given_out_once_and_those_of_a_site_in_order(seed: int, most: int, sites: int) -> None:
    chance, ordering = random.Random(seed), Score()
    frontier, store = Frontier(ordering, most), Store(ordering)  # type: ignore[arg-type]
    pages = []
    for number in range(chance.randrange(1, 200)):
        site = Site(f"http://{chance.randrange(sites)}.test")
        pages.append(Page(f"{site}/{number}", site, PageKey(number), 0, float(chance.randrange(1, 9))))
        frontier.put(pages[-1])
        store.add(pages[-1])
    fetched = crawl(frontier, store, most=most)
    assert sorted(page.key for page in fetched) == [page.key for page in pages]
    for site in {page.site for page in pages}:
        scores = [page.score for page in fetched if page.site == site]
        assert scores == sorted(scores, reverse=True)


def test_pages_are_loaded_for_the_next_sites_and_not_for_all() -> None:
    ordering = Depth()
    frontier, store = Frontier(ordering, 100), Store(ordering)
    for number in range(5000):
        site = Site(f"http://{number}.test")
        store.add(Page(f"{site}/", site, PageKey(number), 0))
        frontier.count_stored(site, 1, 0.0)
    assert not frontier.is_short
    assert frontier.next_site(NOW) is None
    store.answer(frontier)
    assert frontier.next_site(NOW) is not None
    assert 0 < store.loads <= 256
    assert frontier.waiting == 5000


def test_a_restored_site_has_its_place_by_its_first_page_before_any_is_loaded() -> None:
    ordering = Score()
    frontier, store = Frontier(ordering, 4), Store(ordering)  # type: ignore[arg-type]
    for number in range(200):
        site = Site(f"http://{number}.test")
        store.add(Page(f"{site}/", site, PageKey(number), 0, float(number)))
        frontier.count_stored(site, 1, -float(number))
    assert [page.score for page in crawl(frontier, store)] == [float(number) for number in range(199, -1, -1)]
