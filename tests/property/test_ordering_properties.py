"""A frontier whose keys change hands out what a naive one would, that looks at every page each time."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from headway.engine.frontier import Frontier
from headway.model.page import Page, PageKey, Site
from headway.policy.ordering.base import HELD, Key, LearningOrdering, SiteQueue
from headway.units import Instant

SITES = tuple(Site(f"http://s{number}.test") for number in range(3))
NOW = Instant(0.0)


class Whimsical:
    """Keys that change as a script says: at each settled page some, now and then all."""

    name = "whimsical"

    def __init__(self, whims: Sequence[tuple[list[tuple[int, float]], bool]], pages: Sequence[Page]) -> None:
        self._whims = list(whims)
        self._pages = pages
        self.keys: dict[PageKey, Key] = {}
        self._due = False

    def page_key(self, page: Page) -> Key:
        return self.keys.get(page.key, 5.0)

    def site_key(self, queue: SiteQueue) -> Key:
        return queue.first_key

    def settled(self, page: Page, links: Sequence[Page]) -> Sequence[Page]:
        changes, self._due = self._whims.pop(0) if self._whims else ([], False)
        if self._due:
            self._pending = changes
            return ()
        for number, key in changes:
            self.keys[PageKey(number)] = key
        return [self._pages[number] for number, _ in changes]

    def is_due(self) -> bool:
        return self._due

    def reorder(self, waiting: Sequence[Page]) -> None:
        self._due = False
        for number, key in self._pending:
            self.keys[PageKey(number)] = key


keys = st.sampled_from([0.0, 1.0, 2.0, 5.0, 9.0])


@given(data=st.data(), count=st.integers(1, 15))
@settings(max_examples=300, deadline=None)
def test_the_page_taken_is_the_first_of_all_that_wait(data: st.DataObject, count: int) -> None:
    pages = [Page(f"{SITES[n % 3]}/{n}", SITES[n % 3], PageKey(n)) for n in range(count)]
    changes = st.lists(st.tuples(st.integers(0, count - 1), keys), max_size=4)
    ordering = Whimsical(data.draw(st.lists(st.tuples(changes, st.booleans()), max_size=count)), pages)
    assert isinstance(ordering, LearningOrdering)
    frontier = Frontier(ordering)
    for page in pages:
        frontier.put(page)
    waiting = list(pages)
    while waiting:
        queue = frontier.next_site(NOW)
        assert queue is not None
        taken = frontier.take(queue).page
        # Nothing changes between the question and the taking, so the keys are those of the question.
        assert taken == min(waiting, key=lambda page: (ordering.page_key(page), page.key))
        waiting.remove(taken)
        assert frontier.waiting == len(waiting) == sum(queue.waiting for queue in frontier.queues())
        frontier.settled(taken)
    assert frontier.next_site(NOW) is None


@given(held=st.sets(st.integers(0, 9)))
@settings(max_examples=100, deadline=None)
def test_pages_that_are_held_wait_and_the_others_do_not(held: set[int]) -> None:
    pages = [Page(f"{SITES[n % 3]}/{n}", SITES[n % 3], PageKey(n)) for n in range(10)]
    ordering = Whimsical([], pages)
    ordering.keys = {PageKey(number): HELD for number in held}
    frontier = Frontier(ordering)
    for page in pages:
        frontier.put(page)
    taken = []
    while (queue := frontier.next_site(NOW)) is not None:
        taken.append(frontier.take(queue).page.key)
    assert sorted(taken) == sorted(set(range(10)) - held)
    assert frontier.waiting == len(held)
