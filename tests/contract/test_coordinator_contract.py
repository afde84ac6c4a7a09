"""What a collector may rely on, whoever coordinates: a PostgreSQL server, or its own machine's office."""

from __future__ import annotations

import threading
import time
from multiprocessing import Pipe

import pytest

from headway.fleet.chair import Chair
from headway.fleet.coordinator import LeaseOver, Parcel, Report
from headway.fleet.desk import Desk
from headway.fleet.leader import Leader
from headway.fleet.office import Office
from headway.fleet.pipe import PipeCoordinator
from headway.fleet.postgres import PostgresCoordinator
from headway.model.command import PageState, SaveFound, SaveSettled, SaveSite
from headway.model.outcome import Capture, Kind, Outcome
from headway.model.page import Page
from headway.policy.allocation.allocator import Allocator
from headway.policy.timetable import Timetable
from headway.store.postgres.address import Address
from headway.store.postgres.store import PostgresStore
from headway.store.sqlite import SqliteStore

SITES = [f"http://s{number}.example" for number in range(4)]
BOUND = 1000.0


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


def joined(arena):
    member = arena.member()
    member.join()
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
