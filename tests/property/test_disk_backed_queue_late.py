"""Where several work on a crawl, the store is elsewhere: what it says of waiting pages is old when it comes.

Pages are found, fetched and posted by others meanwhile, sites go and come back; none is lost or doubled, and
memory holds a few of many.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from tests.support.memory_store import MemoryStore

from headway.engine.machine import Engine
from headway.engine.scheduler import EngineSettings, Policies
from headway.engine.site_queue import pages_held_each
from headway.model.command import (
    FetchPage,
    LoadPages,
    PageState,
    SaveFound,
    SaveSettled,
    SaveSite,
    SaveTasks,
    Saving,
    Snapshot,
    StopSite,
    WaitingRecord,
)
from headway.model.event import (
    Event,
    Found,
    Loaded,
    Ordered,
    PageSettled,
    PagesLoaded,
    Seeded,
    SitesLeft,
    SitesTaken,
)
from headway.model.page import Kind, Lease, Outcome, Page, PageKey, Site
from headway.policy.ordering.simple import Depth
from headway.policy.politeness import Politeness, RetryPolicy
from headway.policy.scope import Scope
from headway.units import Instant, Seconds

SITES = tuple(Site(f"http://s{number}.test") for number in range(2))
MOST_HELD = 16
EACH = pages_held_each(MOST_HELD, len(SITES))
AT_MOST_HELD = 2 * EACH * len(SITES)
GOOD, LATER = Outcome(Kind.FETCHED, 200, 5000), Outcome(Kind.SERVER_ERROR, 502, 100)
MANY = 600
WEIGHTS = (12, 1, 1, 2, 3, 3, 2)


def page(number: int) -> Page:
    """Even numbers are pages of the first site."""
    site = SITES[number % 2]
    return Page(f"{site}/{number}", site, PageKey(number), depth=(number * 7919) % 5)


class Part:
    """A machine that holds both sites, and a store that others write to as well."""

    def __init__(self, seeds: Sequence[int]) -> None:
        ordering = Depth()
        self.crawl = Engine(
            Policies(
                ordering=ordering,
                scope=Scope(),
                politeness=Politeness(interval_s=Seconds(0.0)),
                retry=RetryPolicy(max_attempts=50, penalty_s=Seconds(0.0)),
            ),
            EngineSettings(
                max_connections=8, lease_s=Seconds(1e9), asks_robots=False, most_held=MOST_HELD, is_part=True
            ),
        )
        self.store = MemoryStore()
        self.store.order_waiting(ordering.name, ordering.page_key)
        self.store.create(Instant(0.0), {})
        self.store.commit([SaveFound(tuple(map(page, seeds)))], {})
        self.now = 0.0
        self.open: list[Lease] = []
        self.asked: Counter[int] = Counter()
        self.done: Counter[int] = Counter()
        self.settled: Counter[int] = Counter()
        self.batch: list[Saving] = []
        self.wishes: list[LoadPages] = []
        self.answers: list[Loaded] = []
        self.mail: list[Page] = []
        self.most_in_memory = 0
        self.tell(Seeded((), ()))
        self.take(SITES)

    def tell(self, event: Event) -> None:
        self.now += 1.0
        for command in self.crawl.step(Instant(self.now), event):
            match command:
                case SaveFound() | SaveSettled() | SaveSite() | SaveTasks():
                    self.batch.append(command)
                    if isinstance(command, SaveSettled) and command.state is not PageState.WAITING:
                        self.settled[command.page.key] += 1
                case LoadPages():
                    self.wishes.append(command)
                case FetchPage(lease):
                    self.open.append(lease)
                    self.asked[lease.page.key] += 1
        held = sum(len(queue._pages) for queue in self.crawl.frontier.queues())
        self.most_in_memory = max(self.most_in_memory, held)

    # -- what may happen, in any order -------------------------------------------------------------------

    def answer(self, outcome: Outcome, links: Sequence[int]) -> None:
        if self.open:
            self._settle(self.open.pop(0), outcome, tuple(map(page, links)))

    def commit(self) -> None:
        batch, self.batch = self.batch, []
        self.store.commit(batch, {})

    def read(self) -> None:
        """What was to_load for, read from a store that has at least what it had when it was to_load for."""
        self.commit()
        wishes, self.wishes = self.wishes, []
        for wish in wishes:
            if self.is_ours(wish.site):
                records = tuple(self.store.first_waiting(wish.site, wish.most))
                self.answers.append(Loaded(wish.site, records, is_all=len(records) < wish.most))

    def deliver(self) -> None:
        answers, self.answers = self.answers, []
        if answers:
            self.tell(PagesLoaded(tuple(answers)))

    def found_by_others(self, numbers: Sequence[int]) -> None:
        known = {int(key) for key in self._snapshot().seen}
        new = tuple(page(number) for number in numbers if number not in known)
        self.store.commit([SaveFound(new)], {})
        self.mail += new

    def post(self) -> None:
        mail, self.mail = self.mail, []
        if mail:
            self.tell(Found(tuple(mail)))

    def lend_a_site(self, number: int) -> None:
        """Given back, and taken up again; what came of it meanwhile is committed."""
        site = SITES[number]
        self.tell(SitesLeft((site,)))
        for lease in [lease for lease in self.open if lease.page.site == site]:
            self.open.remove(lease)
            self._settle(lease, LATER, ())
        self.tell(SitesLeft((site,)))
        self.read()
        self.deliver()
        self.mail = [each for each in self.mail if each.site != site]
        self.take((site,))

    # -- helpers -----------------------------------------------------------------------------------------

    def is_ours(self, site: Site) -> bool:
        assert self.crawl.owned is not None
        return site in self.crawl.owned.sites

    def take(self, sites: Sequence[Site]) -> None:
        whole = self._snapshot()
        waiting: list[WaitingRecord] = []
        unloaded = {}
        for site in sites:
            count = sum(record.page.site == site for record in whole.waiting)
            waiting += self.store.first_waiting(site, EACH)
            if count > EACH:
                unloaded[site] = count - EACH
        seen = [key for key in whole.seen if page(int(key)).site in sites]
        part = structs.replace(whole, waiting=waiting, unloaded=unloaded, seen=seen, sites=[], tasks=[])
        self.tell(SitesTaken(frozenset(sites), part, {}, {}))

    def finish(self) -> None:
        for _ in range(20 * MANY):
            self.read()
            self.deliver()
            self.post()
            if self.open:
                self.answer(GOOD, ())
            elif self.crawl.frontier.waiting:
                self.tell(Found(()))
            else:
                self.commit()
                return
        raise AssertionError("it does not come to an end")

    def _settle(self, lease: Lease, outcome: Outcome, links: tuple[Page, ...]) -> None:
        self.done[lease.page.key] += outcome is GOOD
        self.tell(PageSettled(lease, outcome, links))

    def _snapshot(self) -> Snapshot:
        snapshot = self.store.load()
        assert snapshot is not None
        return snapshot


def some(draw: Random, most: int) -> range:
    begin = draw.randrange(MANY)
    return range(begin, begin + draw.randint(0, most))


@given(st.integers(0, 2**64))
@settings(max_examples=150)
def test_none_is_lost_or_doubled_whatever_happens_until_the_store_answers(seed: int) -> None:
    # Drawn evenly, rather than by Hypothesis, which prefers what is short: it takes a long story until pages
    # are in the store, asked for, and overtaken.
    draw = Random(seed)
    seeds = some(draw, 120)
    part = Part(seeds)
    wanted = set(seeds)
    for _ in range(draw.randint(0, 150)):
        match draw.choices(("answer", "found", "lend", "commit", "read", "deliver", "post"), WEIGHTS)[0]:
            case "answer":
                links = some(draw, draw.choice((0, 0, 2, 60)))
                wanted.update(links if part.open else ())
                part.answer(draw.choice((GOOD, GOOD, GOOD, LATER)), links)
            case "found":
                others = some(draw, 20)
                wanted.update(others)
                part.found_by_others(others)
            case "lend":
                part.lend_a_site(draw.randrange(2))
            case name:
                getattr(part, name)()
    part.finish()
    assert part.done == part.settled == Counter(wanted)
    assert not part._snapshot().waiting
    assert part.most_in_memory <= AT_MOST_HELD


def test_a_collector_holds_a_few_of_many() -> None:
    part = Part(range(MANY))
    assert part.crawl.frontier.waiting == MANY - len(part.open)
    part.finish()
    assert part.most_in_memory <= AT_MOST_HELD
    assert part.done == Counter(range(MANY))


def until_more_is_wished_for(part: Part) -> None:
    while not part.wishes:
        part.answer(GOOD, ())
    part.read()


def test_what_goes_to_the_store_after_it_was_read_is_not_taken_for_missing_there() -> None:
    part = Part(range(0, 30, 2))
    until_more_is_wished_for(part)
    assert [load.is_all for load in part.answers] == [True]
    late = [number for number in range(30, 300, 2) if page(number).depth == 4]
    part.answer(GOOD, late)
    part.deliver()
    part.finish()
    assert part.done == Counter([*range(0, 30, 2), *late])


def test_a_site_stopped_while_the_store_is_read_has_each_page_passed_over_once() -> None:
    part = Part(range(0, 100, 2))
    until_more_is_wished_for(part)
    part.tell(Ordered(StopSite(SITES[0])))
    part.deliver()
    part.finish()
    assert part.settled == Counter(range(0, 100, 2))
