"""What a collector may rely on, whoever coordinates: a PostgreSQL server, or its own machine's office."""

from __future__ import annotations

import threading
import time
from multiprocessing import Pipe

import pytest

from headway.fleet.chair import Chair
from headway.fleet.coordinator import ALL, LeaseOver, Parcel, Portion, Report
from headway.fleet.desk import Desk
from headway.fleet.leader import Leader
from headway.fleet.office import Office
from headway.fleet.pipe import PipeCoordinator
from headway.fleet.postgres import PostgresCoordinator
from headway.model.command import PageState, SaveAgain, SaveFound, SaveSettled, SaveSite
from headway.model.outcome import Capture, Kind, Outcome, Sighting
from headway.model.page import AGAIN, Page
from headway.policy.allocation.allocator import Allocator
from headway.policy.freshness import add_visit
from headway.policy.timetable import Timetable
from headway.store.postgres.address import Address
from headway.store.postgres.store import PostgresStore
from headway.store.sqlite import SqliteStore

SITES = [f"http://s{number}.example" for number in range(4)]
BOUND = 1000.0
HISTORY = add_visit(b"", 3600.0, is_changed=True)


def page(site, number=0):
    return Page(f"{SITES[site]}/{number}", SITES[site], site * 1000 + number + 1)


def settled(each, state=PageState.DONE, links=()):
    outcome = Outcome(Kind.FETCHED, 200, wire_bytes=10, duration_s=0.1, detail="odd \udc80")
    return SaveSettled(each, outcome, state, 0, time.time(), None, Capture("archive/a", 0, 9), tuple(links))


class PostgresArena:
    def __init__(self, store, tmp_path):
        self.address = Address.parse(store)
        self.store = PostgresStore(self.address)
        self.store.create(1.0, {})
        self.add(*(page(site) for site in range(4)))
        self.chair = Chair(self.address, Leader(Timetable(BOUND), Allocator))
        self.chair.round()
        self.chair._seated_at -= 60
        self.members = []

    def add(self, *pages):
        self.store.commit([SaveFound(pages, is_elsewhere=True)], {})

    def member(self):
        member = PostgresCoordinator(self.address, name="m", label="", place=f"p{len(self.members)}")
        self.members.append(member)
        return member

    def round(self):
        self.chair.round()

    def kill(self, member):
        self.store.asked(
            lambda run: run.execute("UPDATE collector SET until_at = 5 WHERE id = %s", (member._collector,))
        )

    def waiting(self):
        return {record.page.key for record in self.store.load().waiting}

    def close(self):
        for member in self.members:
            member.close()
        self.chair.close()
        self.store.close()


class PipeArena:
    def __init__(self, store, tmp_path):
        self.store = SqliteStore(tmp_path / "crawl.sqlite")
        self.store.create(1.0, {})
        self.store.commit([SaveFound(tuple(page(site) for site in range(4)))], {})
        self.office = Office(1.0, self.store, Leader(Timetable(BOUND), Allocator), self._save)
        self.members = []
        self.desks = {}
        self.lock = threading.Lock()

    def _save(self, parcel):
        self.store.commit(parcel.batch, parcel.file_lengths, parcel.notes)

    def add(self, *pages):
        helper = self.member()
        helper.join()
        helper.commit(1, Parcel([SaveFound(pages, is_elsewhere=True)]))
        helper.leave()

    def member(self):
        desk = Desk(self.office, time.time)
        ours, theirs = zip(Pipe(), Pipe(), strict=True)
        member = PipeCoordinator(*ours)
        for pipe in theirs:
            threading.Thread(target=self._serve, args=(desk, pipe), daemon=True).start()
        self.members.append(member)
        self.desks[id(member)] = desk
        return member

    def _serve(self, desk, pipe):
        with pipe:
            while True:
                try:
                    asked = pipe.recv_bytes()
                except EOFError:
                    return
                with self.lock:
                    answer = desk.answer(asked)
                pipe.send_bytes(answer)

    def round(self):
        with self.lock:
            self.office.round(time.time())

    def kill(self, member):
        with self.lock:
            self.desks[id(member)].died()

    def waiting(self):
        return {record.page.key for record in self.store.load().waiting}

    def close(self):
        for member in self.members:
            member.close()
        self.store.close()


@pytest.fixture(params=[PostgresArena, PipeArena], ids=["postgres", "pipe"])
def arena(request, postgres_store, tmp_path):
    arena = request.param(postgres_store, tmp_path)
    yield arena
    arena.close()


def joined(arena, portion=ALL):
    member = arena.member()
    member.join(portion)
    return member


def take(arena, *members):
    """What each holds after a round."""
    arena.round()
    news = [member.beat(Report()) for member in members]
    return [each.taken.sites if each.taken is not None else frozenset() for each in news]


def test_every_site_is_held_once_and_by_somebody(arena):
    first, second = joined(arena), joined(arena)
    mine, others = take(arena, first, second)
    assert mine | others == set(SITES)
    assert not mine & others
    assert len(mine) == len(others) == 2


def test_a_site_comes_with_its_pages_once(arena):
    member = joined(arena)
    arena.round()
    taken = member.beat(Report()).taken
    assert {record.page for record in taken.snapshot.waiting} == {page(site) for site in range(4)}
    assert sorted(map(int, taken.snapshot.seen)) == sorted(page(site).key for site in range(4))
    assert member.beat(Report()).taken is None


def test_pages_found_by_others_come_as_mail_to_who_holds_the_site(arena):
    first, second = joined(arena), joined(arena)
    mine, _ = take(arena, first, second)
    there = next(site for site in range(4) if SITES[site] not in mine)
    first.commit(1, Parcel([SaveFound((page(there, 7),), is_elsewhere=True)]))
    assert second.beat(Report()).mail == (page(there, 7),)
    assert second.beat(Report()).mail == ()
    assert first.beat(Report()).mail == ()


def test_a_new_site_is_given_to_somebody(arena):
    member = joined(arena)
    take(arena, member)
    new = Page("http://new.example/", "http://new.example", 99)
    member.commit(1, Parcel([SaveFound((new,), is_elsewhere=True)]))
    assert take(arena, member) == [{"http://new.example"}]


def test_what_is_committed_is_committed_once(arena):
    member = joined(arena)
    take(arena, member)
    parcel = Parcel([settled(page(0), links=[page(0, 5)]), SaveFound((page(0, 5),))], {"archive/a": 9})
    member.commit(1, parcel)
    member.commit(1, parcel)
    assert arena.waiting() == {page(site).key for site in (1, 2, 3)} | {page(0, 5).key}
    snapshot = arena.store.load()
    assert [record.done for record in snapshot.sites if record.site == SITES[0]] == [1]


def test_a_collector_that_died_can_commit_no_more_and_its_sites_are_taken_over(arena):
    first, second = joined(arena), joined(arena)
    mine, _ = take(arena, first, second)
    arena.kill(first)
    assert take(arena, second) == [mine]
    with pytest.raises(LeaseOver):
        first.beat(Report())
    with pytest.raises(LeaseOver):
        first.commit(1, Parcel([settled(page(0))]))
    assert page(0).key in arena.waiting()


def test_a_site_of_one_that_died_comes_with_the_time_until_which_it_may_have_been_asked(arena):
    first = joined(arena)
    take(arena, first)
    arena.kill(first)
    second = joined(arena)
    arena.round()
    assert second.beat(Report()).taken.soiled_until.keys() == set(SITES)


def test_a_site_given_back_goes_to_another_with_what_was_committed(arena):
    first = joined(arena)
    take(arena, first)
    first.commit(1, Parcel([settled(page(0)), SaveSite(SITES[0], 77.0, 0)]))
    second = joined(arena)
    first.give_back([SITES[0], SITES[1]])
    first.beat(Report(active=tuple(SITES[2:])))
    arena.round()
    taken = second.beat(Report()).taken
    assert taken.sites == {SITES[0], SITES[1]}
    assert taken.soiled_until == {}
    assert [record.page for record in taken.snapshot.waiting] == [page(1)]
    assert {record.site: record.free_at for record in taken.snapshot.sites}[SITES[0]] == 77.0


def test_a_newcomer_is_given_sites_that_are_asked_back(arena):
    first = joined(arena)
    take(arena, first)
    first.beat(Report(active=tuple(SITES)))
    second = joined(arena)
    arena.round()
    asked_back = first.beat(Report(active=tuple(SITES))).asked_back
    assert len(asked_back) == 2
    first.give_back(asked_back)
    first.beat(Report(active=tuple(set(SITES) - set(asked_back))))
    assert take(arena, second) == [set(asked_back)]


def test_who_leaves_gives_everything_back_at_once(arena):
    first, second = joined(arena), joined(arena)
    mine, _ = take(arena, first, second)
    first.leave()
    arena.round()
    taken = second.beat(Report()).taken
    assert taken.sites == mine
    assert taken.soiled_until == {}


def test_shares_never_sum_up_to_more_than_the_bound(arena):
    first = joined(arena)
    arena.round()
    alone = first.beat(Report()).share
    assert alone.rate_bytes_per_s == BOUND
    second = joined(arena)
    arena.round()
    assert second.beat(Report()).share.rate_bytes_per_s == 0
    # The first takes its smaller share, and says so: only then the second may have the rest.
    smaller = first.beat(Report(taken_share=alone.number)).share
    first.beat(Report(taken_share=smaller.number))
    arena.round()
    halves = [first.beat(Report(taken_share=smaller.number)).share, second.beat(Report()).share]
    assert sum(share.rate_bytes_per_s for share in halves) <= BOUND
    assert all(share.rate_bytes_per_s > 0 for share in halves)


def test_it_is_over_when_nothing_waits_anywhere(arena):
    member = joined(arena)
    take(arena, member)
    arena.round()
    assert not member.beat(Report()).is_over
    member.commit(1, Parcel([settled(page(site)) for site in range(4)]))
    arena.round()
    assert member.beat(Report()).is_over


# -- a part of what waits ---------------------------------------------------------------------------------

FEW = Portion(most_waiting=40)
EACH = 10
"""Of four sites, as many as there are."""


def test_a_site_comes_with_its_first_pages_and_the_number_of_the_others(arena):
    arena.add(*(page(0, number) for number in range(1, 50)))
    member = joined(arena, FEW)
    arena.round()
    snapshot = member.beat(Report()).taken.snapshot
    mine = [record.page for record in snapshot.waiting if record.page.site == SITES[0]]
    assert mine == [page(0, number) for number in range(EACH)]
    assert snapshot.unloaded == {SITES[0]: 40}
    assert len(snapshot.seen) == 53, "what is known is known, wherever it waits"


def test_more_pages_come_when_they_are_asked_for_without_those_that_were_committed_as_done(arena):
    arena.add(*(page(0, number) for number in range(1, 50)))
    member = joined(arena, FEW)
    take(arena, member)
    member.commit(1, Parcel([settled(page(0, number)) for number in range(5)]))
    more = member.first_waiting(SITES[0], 20)
    assert [record.page for record in more] == [page(0, number) for number in range(5, 25)]
    assert len(member.first_waiting(SITES[0], 100)) == 45


def test_pages_whose_time_has_not_come_are_all_given_with_their_site_and_never_as_more(arena):
    tomorrow = time.time() + 86400
    member = joined(arena)
    take(arena, member)
    pages = [page(0, number) for number in range(30)]
    member.commit(
        1, Parcel([SaveFound(tuple(pages)), *map(settled, pages), SaveAgain(tuple(pages), tomorrow)])
    )
    member.leave()
    other = joined(arena, FEW)
    arena.round()
    snapshot = other.beat(Report()).taken.snapshot
    put_off = [record for record in snapshot.waiting if record.page.site == SITES[0]]
    assert {record.page.key for record in put_off} == {each.key for each in pages}
    assert {(record.attempt, record.retry_at) for record in put_off} == {(AGAIN, tomorrow)}
    assert snapshot.unloaded == {}
    assert not other.first_waiting(SITES[0], 100)


def test_a_visit_that_was_put_off_is_given_as_more_once_it_is_due(arena):
    member = joined(arena, FEW)
    take(arena, member)
    member.commit(1, Parcel([settled(page(0)), SaveAgain((page(0),), time.time() - 1.0)]))
    assert [(each.page, each.attempt) for each in member.first_waiting(SITES[0], 9)] == [(page(0), AGAIN)]


# -- visits after the first -------------------------------------------------------------------------------


def visited(each, history=b"", at=None):
    """A page with what its next visit needs."""
    sighting = Sighting('"v1"', "Mon, 01 Jan 2024 00:00:00 GMT", history)
    outcome = Outcome(Kind.FETCHED, 200, 10, 0.1, "text/html", 5, "sha256:a")
    return SaveSettled(each, outcome, PageState.DONE, 0, at or time.time(), sighting=sighting)


def test_a_page_that_settles_and_is_to_be_visited_again_waits(arena):
    member = joined(arena)
    take(arena, member)
    again = SaveAgain((page(0),), time.time() + 60)
    member.commit(1, Parcel([settled(page(1)), settled(page(0)), again, settled(page(2))]))
    assert arena.waiting() == {page(0).key, page(3).key}
    member.commit(2, Parcel([settled(page(0))]))
    assert arena.waiting() == {page(3).key}


def test_what_a_visit_left_for_the_next_one_is_found_by_whoever_makes_it(arena):
    first = joined(arena)
    take(arena, first)
    first.commit(1, Parcel([visited(page(0), HISTORY)]))
    first.leave()
    second = joined(arena)
    take(arena, second)
    copies = second.find_copies([page(0), page(1), page(0, 7)])
    assert set(copies) == {(SITES[0], page(0).key), (SITES[1], page(1).key)}
    copy = copies[SITES[0], page(0).key]
    assert (copy.state, copy.digest, copy.is_waiting) == (PageState.DONE, "sha256:a", False)
    assert copy.sighting == Sighting('"v1"', "Mon, 01 Jan 2024 00:00:00 GMT", HISTORY)
    assert copies[SITES[1], page(1).key].is_waiting


def test_how_pages_have_changed_is_told_of_the_sites_taken_to_who_wants_to_know(arena):
    first = joined(arena)
    take(arena, first)
    again = SaveAgain((page(1),), time.time() + 60)
    first.commit(1, Parcel([visited(page(0), HISTORY), visited(page(1)), again, settled(page(2))]))
    first.leave()
    arena.add(page(0, 1), page(2, 1))
    careless, curious = joined(arena), joined(arena, Portion(histories=True))
    arena.round()
    assert not careless.beat(Report()).taken.histories
    taken = curious.beat(Report()).taken
    told = list(taken.histories)
    assert {site for site, _ in told} <= taken.sites
    careless.leave()
    arena.round()
    told += curious.beat(Report()).taken.histories
    assert sorted(told) == [(SITES[0], HISTORY), (SITES[1], b"")]


def test_everybody_is_told_how_many_work_on_the_crawl(arena):
    first, second = joined(arena), joined(arena)
    assert first.beat(Report()).collectors == second.beat(Report()).collectors == 2
    second.leave()
    assert first.beat(Report()).collectors == 1
