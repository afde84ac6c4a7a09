"""Each ordering puts pages and sites where its paper says."""

from __future__ import annotations

import pytest

from headway.engine import frontier as frontier_module
from headway.engine.frontier import Frontier
from headway.engine.site_queue import ReorderableSiteQueue
from headway.errors import JobError
from headway.model.page import Page, PageKey, Site
from headway.policy.ordering import ORDERING_NAMES, LearningOrdering, Ordering, make_ordering, ranked
from headway.policy.ordering.simple import Deadline
from headway.units import FOREVER, Instant

A, B, C = Site("http://a.test"), Site("http://b.test"), Site("http://c.test")
NOW = Instant(100.0)


def page(number: int, site: Site = A, depth: int = 0, score: float = 0.0) -> Page:
    return Page(f"{site}/{number}", site, PageKey(number), depth, score)


def filled(ordering: Ordering, *pages: Page) -> Frontier:
    frontier = Frontier(ordering)
    for each in pages:
        frontier.put(each)
    return frontier


def hand_out(frontier: Frontier, most: int = 100) -> list[int]:
    """Take pages until none is ready, a site being free again at once."""
    order: list[int] = []
    while len(order) < most and (queue := frontier.next_site(NOW)) is not None:
        order.append(frontier.take(queue).page.key)
    return order


def test_depth_goes_level_by_level_over_all_sites() -> None:
    frontier = filled(make_ordering("depth"), page(1, A, 2), page(2, B, 0), page(3, A, 1), page(4, C, 1))
    assert hand_out(frontier) == [2, 3, 4, 1]


def test_length_takes_the_longest_queue_and_follows_it_as_it_shrinks() -> None:
    pages = [page(1, A), page(2, B), page(3, B), page(4, B), page(5, A)]
    assert hand_out(filled(make_ordering("length"), *pages)) == [2, 1, 3, 4, 5]


def test_klwf_takes_what_has_waited_longest() -> None:
    frontier = filled(make_ordering("klwf"), page(7, B, 5), page(3, A, 0), page(9, B, 0))
    assert hand_out(frontier) == [7, 3, 9]


def test_score_takes_the_worthiest_page_of_any_site() -> None:
    frontier = filled(
        make_ordering("score"), page(1, A, score=0.2), page(2, B, score=0.9), page(3, A, score=0.5)
    )
    assert hand_out(frontier) == [2, 3, 1]


def test_optimal_follows_its_oracle_and_puts_strangers_last() -> None:
    ordering = make_ordering("optimal", ranks={PageKey(1): 0.1, PageKey(2): 0.4})
    assert hand_out(filled(ordering, page(3, C), page(1, A), page(2, B))) == [2, 1, 3]


def test_random_repeats_with_its_seed_and_differs_without() -> None:
    pages = [page(number, (A, B, C)[number % 3]) for number in range(40)]
    once, again, other = (hand_out(filled(make_ordering("random", seed=s), *pages)) for s in (1, 1, 2))
    assert once == again != other
    assert once != sorted(once)


def test_deadline_puts_the_site_with_the_least_time_first_and_those_without_last() -> None:
    latest = {A: Instant(500.0), B: Instant(200.0), C: FOREVER}
    ordering = make_ordering("deadline", latest_start_at=latest.__getitem__)
    frontier = filled(ordering, page(1, C), page(2, A, 3), page(3, A, 1), page(4, B))
    assert hand_out(frontier) == [4, 3, 2, 1]


def test_deadline_follows_a_changing_view_once_it_is_set() -> None:
    latest = {A: Instant(500.0), B: Instant(900.0)}
    ordering = Deadline()
    frontier = filled(ordering, page(1, A), page(2, B))
    ordering.follow(latest.__getitem__)
    frontier.sites_changed()
    assert frontier.next_site(NOW).site == A  # type: ignore[union-attr]
    latest[B] = Instant(50.0)
    frontier.sites_changed()
    assert frontier.next_site(NOW).site == B  # type: ignore[union-attr]


def test_deadline_by_score_brings_the_best_pages_in_before_time_runs_out() -> None:
    ordering = make_ordering(
        "deadline", latest_start_at=lambda _: Instant(1.0), score_of=lambda page: page.score
    )
    frontier = filled(ordering, page(1, A, 0, 0.1), page(2, A, 5, 0.8))
    assert hand_out(frontier) == [2, 1]


# -- orderings that learn ---------------------------------------------------------------------------------


def settle(frontier: Frontier, taken: Page, *links: Page) -> None:
    frontier.settled(taken, links)
    for link in links:
        frontier.put(link)


def test_batch_returns_no_more_than_its_pages_until_all_are_settled() -> None:
    seeds = [page(number, (A, B, C)[number % 3]) for number in range(5)]
    frontier = filled(make_ordering("batch(2)"), *seeds)
    assert hand_out(frontier) == [0, 1], "equal ranks at the start: in the order in which they came"
    settle(frontier, seeds[0], page(10, B))
    assert hand_out(frontier) == [], "the batch is not over yet"
    frontier.settled(seeds[1], (page(10, B),))
    assert hand_out(frontier)[0] == 10, "two pages link to it"


def test_a_page_to_be_tried_again_waits_for_the_next_batch() -> None:
    seeds = [page(0, A), page(1, B), page(2, C)]
    frontier = filled(make_ordering("batch(2)"), *seeds)
    assert hand_out(frontier) == [0, 1]
    frontier.settled(seeds[0])
    frontier.put(seeds[0], attempt=1, not_before=NOW)
    assert hand_out(frontier) == []
    frontier.settled(seeds[1])
    assert sorted(hand_out(frontier)) == [0, 2]


def test_a_site_given_up_does_not_hold_the_batch_up() -> None:
    seeds = [page(0, A), page(1, A), page(2, B)]
    frontier = filled(make_ordering("batch(2)"), *seeds)
    queue = frontier.next_site(NOW)
    assert queue is not None
    frontier.take(queue)
    frontier.take_all(A)
    frontier.settled(seeds[0])
    assert hand_out(frontier) == [2]


@pytest.mark.parametrize("name", ["partial(100)", "flow(100)"])
def test_a_page_moves_up_as_more_pages_point_to_it(name: str) -> None:
    seeds = [page(0, A), page(1, B), page(2, C)]
    frontier = filled(make_ordering(name), *seeds)
    assert hand_out(frontier) == [0, 1, 2]
    new, famous = page(10, A), page(11, B)
    settle(frontier, seeds[0], new, famous)
    frontier.settled(seeds[1], (new,))
    assert frontier.next_site(NOW).first_serial == 4  # type: ignore[union-attr]
    frontier.settled(seeds[2], (famous,))
    frontier.put(page(12, C))
    assert hand_out(frontier, 2) == [10, 11], "equal again: as they came"
    frontier.settled(new, (page(12, C),))
    assert hand_out(frontier) == [12]


def test_flow_divides_a_rank_among_links_and_partial_does_not() -> None:
    firsts = {}
    for name in ("partial(100)", "flow(100)"):
        seeds = [page(0, A), page(1, B)]
        frontier = filled(make_ordering(name), *seeds)
        assert hand_out(frontier) == [0, 1]
        settle(frontier, seeds[0], page(10, A), page(11, B), page(12, C))
        settle(frontier, seeds[1], page(20, A))
        firsts[name] = hand_out(frontier, 1)
    assert firsts == {"partial(100)": [10], "flow(100)": [20]}


def test_partial_ranks_again_after_its_number_of_pages() -> None:
    seeds = [page(number, (A, B)[number % 2]) for number in range(4)]
    ordering = make_ordering("partial(2)")
    assert isinstance(ordering, LearningOrdering)
    frontier = filled(ordering, *seeds)
    assert hand_out(frontier, 2) == [0, 1]
    assert not ordering.is_due()
    settle(frontier, seeds[0], page(10, A))
    frontier.settled(seeds[1], (page(10, A),))
    assert ordering.is_due()
    assert hand_out(frontier, 1) == [10]
    assert not ordering.is_due()


def test_telling_twice_that_a_page_is_settled_does_no_harm() -> None:
    seeds = [page(0, A), page(1, B)]
    frontier = filled(make_ordering("batch(1)"), *seeds)
    assert hand_out(frontier) == [0]
    frontier.settled(seeds[0])
    frontier.settled(seeds[0])
    assert hand_out(frontier) == [1]


# -- names ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ORDERING_NAMES)
def test_every_name_that_is_offered_makes_an_ordering_of_that_name(name: str) -> None:
    written = name.replace("K", "10000")
    assert make_ordering(written, ranks={}).name == written


def test_names_may_be_written_with_spaces_capitals_and_thousands() -> None:
    assert make_ordering(" Batch( 10,000 ) ").name == "batch(10000)"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("breadth", "not an ordering; use one of depth"),
        ("batch", "for example 'batch(10000)'"),
        ("batch(0)", "at least one page"),
        ("batch(-3)", "not an ordering"),
        ("depth(3)", "takes no number"),
        ("", "not an ordering"),
        ("optimal", "page ranks"),
    ],
)
def test_a_name_that_means_nothing_is_refused_with_what_would(name: str, words: str) -> None:
    with pytest.raises(JobError) as caught:
        make_ordering(name)
    assert words in str(caught.value)


@pytest.mark.parametrize("name", ["partial(40)", "flow(40)", "batch(40)"])
def test_a_large_web_is_ranked_beside_the_crawl_and_in_steps(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranked, "_FEW_PAGES", 300)
    monkeypatch.setattr(frontier_module, "_RANKED_AT_ONCE", 50)
    ordering = make_ordering(name)
    frontier = Frontier(ordering)
    sites = [Site(f"https://s{number}.test") for number in range(20)]
    pages = [Page(f"{sites[n % 20]}/{n}", sites[n % 20], PageKey(n), 1) for n in range(4000)]
    rekeyed: list[int] = []
    change = ReorderableSiteQueue.change_key

    def counted(queue: ReorderableSiteQueue, page: PageKey, key: float) -> bool:
        rekeyed[-1] += 1
        return change(queue, page, key)

    monkeypatch.setattr(ReorderableSiteQueue, "change_key", counted)
    for page in pages[:20]:
        frontier.put(page)
    found, fetched, now = 20, 0, Instant(0.0)
    while found < len(pages):
        rekeyed.append(0)
        queue = frontier.next_site(now)
        if queue is None:
            assert frontier.next_ready_at(now) < FOREVER, "it waits for the ranks"
            now = Instant(now + 0.1)
            continue
        waiting = frontier.take(queue)
        fetched += 1
        links = [*pages[found : found + 20], *pages[: found : max(1, found // 5)]]
        frontier.settled(waiting.page, links)
        for page in pages[found : found + 20]:
            frontier.put(page)
        found += 20
        now = Instant(now + 0.01)
    assert fetched > 150
    # Besides those of the new links of a page.
    assert max(rekeyed) <= 2 * 50 + 25
    assert frontier.waiting == len(pages) - fetched
