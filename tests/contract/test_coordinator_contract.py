"""What a collector may rely on from a coordinator: a PostgreSQL server, or its machine's supervisor."""

from __future__ import annotations

import socket
import time

import pytest

from headway.cluster.coordinator import ALL, CommitBatch, LeaseOver, Portion, Report
from headway.cluster.leader import Leader
from headway.cluster.local import WORKER_CALLS, LocalCoordinator, WorkerSession, WorkerTask
from headway.cluster.postgres import LeaderElection, PostgresCoordinator, ThreadedCoordinator
from headway.cluster.rpc import Offer, connect
from headway.model.command import PageState, SaveAgain, SaveFound, SaveSettled, SaveSite
from headway.model.page import AGAIN, Capture, Kind, Outcome, Page, Sighting
from headway.planning.allocator import Allocator
from headway.policy.revisit import add_visit
from headway.policy.timetable import Timetable
from headway.policy.yielding import LinkUse
from headway.runtime.driver import WallClock
from headway.store.postgres.connection import Address
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
        self._add(*(page(site) for site in range(4)))
        self.election = LeaderElection(self.address, Leader(Timetable(BOUND), Allocator))
        self.election.round()
        self.election._leads_since -= 60
        self.members = []

    def _add(self, *pages):
        self.store.commit([SaveFound(pages, is_elsewhere=True)], {})

    async def add(self, *pages):
        self._add(*pages)

    async def member(self):
        place = f"p{len(self.members)}"
        member = ThreadedCoordinator(PostgresCoordinator(self.address, name="m", label="", place=place))
        self.members.append(member)
        return member

    def round(self):
        self.election.round()

    async def kill(self, member):
        number = member.blocking._collector
        self.store.asked(
            lambda run: run.execute("UPDATE collector SET until_at = 5 WHERE id = %s", (number,))
        )

    def waiting(self):
        return {record.page.key for record in self.store.load().waiting}

    def close(self):
        for member in self.members:
            member.close()
        self.election.close()
        self.store.close()


class LocalArena:
    """The supervisor's coordinator, called over sockets as worker processes call it."""

    def __init__(self, store, tmp_path):
        self.store = SqliteStore(tmp_path / "crawl.sqlite")
        self.store.create(1.0, {})
        self.store.commit([SaveFound(tuple(page(site) for site in range(4)))], {})
        self.coordinator = LocalCoordinator(1.0, self.store, Leader(Timetable(BOUND), Allocator), self._save)
        self.connections = []
        self.sessions = {}

    def _save(self, batch):
        self.store.commit(batch.savings, batch.file_lengths, batch.notes)

    async def add(self, *pages):
        helper = await self.member()
        await helper.join()
        await helper.commit(1, CommitBatch([SaveFound(pages, is_elsewhere=True)]))
        await helper.leave()

    async def member(self):
        ours, theirs = socket.socketpair()
        session = WorkerSession(self.coordinator, WallClock(), WorkerTask({}, "", False, 1, 0.1))
        self.connections += [await connect(theirs, Offer(WORKER_CALLS, session)), await connect(ours)]
        member = self.connections[-1].remote(WORKER_CALLS)
        self.sessions[member] = session
        return member

    def round(self):
        self.coordinator.round(time.time())

    async def kill(self, member):
        self.sessions[member].died()

    def waiting(self):
        return {record.page.key for record in self.store.load().waiting}

    def close(self):
        for connection in self.connections:
            connection.close()
        self.store.close()


@pytest.fixture(params=[PostgresArena, LocalArena], ids=["postgres", "local"])
async def arena(request, postgres_store, tmp_path):
    arena = request.param(postgres_store, tmp_path)
    yield arena
    arena.close()


async def joined(arena, portion=ALL):
    member = await arena.member()
    await member.join(portion)
    return member


async def take(arena, *members):
    """What each holds after a round."""
    arena.round()
    news = [await member.beat(Report()) for member in members]
    return [each.taken.sites if each.taken is not None else frozenset() for each in news]


async def test_every_site_has_exactly_one_holder(arena):
    first, second = await joined(arena), await joined(arena)
    mine, others = await take(arena, first, second)
    assert mine | others == set(SITES)
    assert not mine & others
    assert len(mine) == len(others) == 2


async def test_a_site_comes_with_its_pages_once(arena):
    member = await joined(arena)
    arena.round()
    taken = (await member.beat(Report())).taken
    assert {record.page for record in taken.snapshot.waiting} == {page(site) for site in range(4)}
    assert sorted(map(int, taken.snapshot.seen)) == sorted(page(site).key for site in range(4))
    assert (await member.beat(Report())).taken is None


async def test_pages_found_by_others_come_as_mail_to_who_holds_the_site(arena):
    first, second = await joined(arena), await joined(arena)
    mine, _ = await take(arena, first, second)
    there = next(site for site in range(4) if SITES[site] not in mine)
    await first.commit(1, CommitBatch([SaveFound((page(there, 7),), is_elsewhere=True)]))
    assert (await second.beat(Report())).mail == (page(there, 7),)
    assert (await second.beat(Report())).mail == ()
    assert (await first.beat(Report())).mail == ()


async def test_a_new_site_gets_a_holder(arena):
    member = await joined(arena)
    await take(arena, member)
    new = Page("http://new.example/", "http://new.example", 99)
    await member.commit(1, CommitBatch([SaveFound((new,), is_elsewhere=True)]))
    assert await take(arena, member) == [{"http://new.example"}]


async def test_what_is_committed_is_committed_once(arena):
    member = await joined(arena)
    await take(arena, member)
    batch = CommitBatch([settled(page(0), links=[page(0, 5)]), SaveFound((page(0, 5),))], {"archive/a": 9})
    await member.commit(1, batch)
    await member.commit(1, batch)
    assert arena.waiting() == {page(site).key for site in (1, 2, 3)} | {page(0, 5).key}
    snapshot = arena.store.load()
    assert [record.done for record in snapshot.sites if record.site == SITES[0]] == [1]


async def test_a_collector_that_died_can_commit_no_more_and_its_sites_are_taken_over(arena):
    first, second = await joined(arena), await joined(arena)
    mine, _ = await take(arena, first, second)
    await arena.kill(first)
    assert await take(arena, second) == [mine]
    with pytest.raises(LeaseOver):
        await first.beat(Report())
    with pytest.raises(LeaseOver):
        await first.commit(1, CommitBatch([settled(page(0))]))
    assert page(0).key in arena.waiting()


async def test_a_site_of_one_that_died_comes_with_the_time_until_which_it_may_have_been_asked(arena):
    first = await joined(arena)
    await take(arena, first)
    await arena.kill(first)
    second = await joined(arena)
    arena.round()
    assert (await second.beat(Report())).taken.unclean_until.keys() == set(SITES)


async def test_a_site_given_back_goes_to_another_with_what_was_committed(arena):
    first = await joined(arena)
    await take(arena, first)
    await first.commit(1, CommitBatch([settled(page(0)), SaveSite(SITES[0], 77.0, 0)]))
    second = await joined(arena)
    await first.give_back([SITES[0], SITES[1]])
    await first.beat(Report(active=tuple(SITES[2:])))
    arena.round()
    taken = (await second.beat(Report())).taken
    assert taken.sites == {SITES[0], SITES[1]}
    assert taken.unclean_until == {}
    assert [record.page for record in taken.snapshot.waiting] == [page(1)]
    assert {record.site: record.free_at for record in taken.snapshot.sites}[SITES[0]] == 77.0


async def test_a_newcomer_is_given_sites_that_are_asked_back(arena):
    first = await joined(arena)
    await take(arena, first)
    await first.beat(Report(active=tuple(SITES)))
    second = await joined(arena)
    arena.round()
    asked_back = (await first.beat(Report(active=tuple(SITES)))).asked_back
    assert len(asked_back) == 2
    await first.give_back(asked_back)
    await first.beat(Report(active=tuple(set(SITES) - set(asked_back))))
    assert await take(arena, second) == [set(asked_back)]


async def test_who_leaves_gives_everything_back_at_once(arena):
    first, second = await joined(arena), await joined(arena)
    mine, _ = await take(arena, first, second)
    await first.leave()
    arena.round()
    taken = (await second.beat(Report())).taken
    assert taken.sites == mine
    assert taken.unclean_until == {}


async def test_shares_never_sum_up_to_more_than_the_bound(arena):
    first = await joined(arena)
    arena.round()
    alone = (await first.beat(Report())).share
    assert alone.rate_bytes_per_s == BOUND
    second = await joined(arena)
    arena.round()
    assert (await second.beat(Report())).share.rate_bytes_per_s == 0
    # The first takes its smaller share, and says so: only then the second may have the rest.
    smaller = (await first.beat(Report(taken_share=alone.number))).share
    await first.beat(Report(taken_share=smaller.number))
    arena.round()
    halves = [
        (await first.beat(Report(taken_share=smaller.number))).share,
        (await second.beat(Report())).share,
    ]
    assert sum(share.rate_bytes_per_s for share in halves) <= BOUND
    assert all(share.rate_bytes_per_s > 0 for share in halves)


async def test_it_is_over_when_nothing_waits_anywhere(arena):
    member = await joined(arena)
    await take(arena, member)
    arena.round()
    assert not (await member.beat(Report())).is_over
    await member.commit(1, CommitBatch([settled(page(site)) for site in range(4)]))
    arena.round()
    assert (await member.beat(Report())).is_over


# -- a part of what waits ---------------------------------------------------------------------------------

FEW = Portion(most_waiting=40)
EACH = 10
"""Of four sites, as many as there are."""


async def test_a_site_comes_with_its_first_pages_and_the_number_of_the_others(arena):
    await arena.add(*(page(0, number) for number in range(1, 50)))
    member = await joined(arena, FEW)
    arena.round()
    snapshot = (await member.beat(Report())).taken.snapshot
    mine = [record.page for record in snapshot.waiting if record.page.site == SITES[0]]
    assert mine == [page(0, number) for number in range(EACH)]
    assert snapshot.unloaded == {SITES[0]: 40}
    assert len(snapshot.seen) == 53, "what is known is known, wherever it waits"


async def test_more_pages_are_returned_on_request_without_committed_ones(arena):
    await arena.add(*(page(0, number) for number in range(1, 50)))
    member = await joined(arena, FEW)
    await take(arena, member)
    await member.commit(1, CommitBatch([settled(page(0, number)) for number in range(5)]))
    more = await member.first_waiting(SITES[0], 20)
    assert [record.page for record in more] == [page(0, number) for number in range(5, 25)]
    assert len(await member.first_waiting(SITES[0], 100)) == 45


async def test_pages_whose_time_has_not_come_are_all_given_with_their_site_and_never_as_more(arena):
    tomorrow = time.time() + 86400
    member = await joined(arena)
    await take(arena, member)
    pages = [page(0, number) for number in range(30)]
    await member.commit(
        1, CommitBatch([SaveFound(tuple(pages)), *map(settled, pages), SaveAgain(tuple(pages), tomorrow)])
    )
    await member.leave()
    other = await joined(arena, FEW)
    arena.round()
    snapshot = (await other.beat(Report())).taken.snapshot
    put_off = [record for record in snapshot.waiting if record.page.site == SITES[0]]
    assert {record.page.key for record in put_off} == {each.key for each in pages}
    assert {(record.attempt, record.retry_at) for record in put_off} == {(AGAIN, tomorrow)}
    assert snapshot.unloaded == {}
    assert not await other.first_waiting(SITES[0], 100)


async def test_a_visit_that_was_put_off_is_given_as_more_once_it_is_due(arena):
    member = await joined(arena, FEW)
    await take(arena, member)
    await member.commit(1, CommitBatch([settled(page(0)), SaveAgain((page(0),), time.time() - 1.0)]))
    assert [(each.page, each.attempt) for each in await member.first_waiting(SITES[0], 9)] == [
        (page(0), AGAIN)
    ]


# -- visits after the first -------------------------------------------------------------------------------


def visited(each, history=b"", at=None):
    """A page with what its next visit needs."""
    sighting = Sighting('"v1"', "Mon, 01 Jan 2024 00:00:00 GMT", history)
    outcome = Outcome(Kind.FETCHED, 200, 10, 0.1, "text/html", 5, "sha256:a")
    return SaveSettled(each, outcome, PageState.DONE, 0, at or time.time(), sighting=sighting)


async def test_a_page_that_settles_and_is_to_be_visited_again_waits(arena):
    member = await joined(arena)
    await take(arena, member)
    again = SaveAgain((page(0),), time.time() + 60)
    await member.commit(1, CommitBatch([settled(page(1)), settled(page(0)), again, settled(page(2))]))
    assert arena.waiting() == {page(0).key, page(3).key}
    await member.commit(2, CommitBatch([settled(page(0))]))
    assert arena.waiting() == {page(3).key}


async def test_the_next_visitor_finds_what_a_visit_has_stored(arena):
    first = await joined(arena)
    await take(arena, first)
    await first.commit(1, CommitBatch([visited(page(0), HISTORY)]))
    await first.leave()
    second = await joined(arena)
    await take(arena, second)
    copies = await second.find_copies([page(0), page(1), page(0, 7)])
    assert set(copies) == {(SITES[0], page(0).key), (SITES[1], page(1).key)}
    copy = copies[SITES[0], page(0).key]
    assert (copy.state, copy.digest, copy.is_waiting) == (PageState.DONE, "sha256:a", False)
    assert copy.sighting == Sighting('"v1"', "Mon, 01 Jan 2024 00:00:00 GMT", HISTORY)
    assert copies[SITES[1], page(1).key].is_waiting


async def test_visit_histories_come_with_the_sites_for_collectors_that_want_them(arena):
    first = await joined(arena)
    await take(arena, first)
    again = SaveAgain((page(1),), time.time() + 60)
    await first.commit(1, CommitBatch([visited(page(0), HISTORY), visited(page(1)), again, settled(page(2))]))
    await first.leave()
    await arena.add(page(0, 1), page(2, 1))
    careless, curious = await joined(arena), await joined(arena, Portion(histories=True))
    arena.round()
    assert not (await careless.beat(Report())).taken.histories
    taken = (await curious.beat(Report())).taken
    told = list(taken.histories)
    assert {site for site, _ in told} <= taken.sites
    await careless.leave()
    arena.round()
    told += (await curious.beat(Report())).taken.histories
    assert sorted(told) == [(SITES[0], HISTORY), (SITES[1], b"")]


async def test_every_collector_learns_how_many_work_on_the_crawl(arena):
    first, second = await joined(arena), await joined(arena)
    assert (await first.beat(Report())).collectors == (await second.beat(Report())).collectors == 2
    await second.leave()
    assert (await first.beat(Report())).collectors == 1


async def test_members_behind_one_link_know_what_the_others_do_there(arena):
    first, second = await arena.member(), await arena.member()
    await first.join()
    await second.join()
    use = LinkUse(12.0, 500.0, 400.0, 200.0, 150.0, None, False)
    assert (await first.beat(Report(link_use=use))).link_uses == ()
    other = LinkUse(13.0, 500.0, 410.0, 200.0, 190.0, 0.004, True)
    assert (await second.beat(Report(link_use=other))).link_uses == (use,)
    assert (await first.beat(Report(link_use=use))).link_uses == (other,)
    await second.leave()
    assert (await first.beat(Report(link_use=use))).link_uses == ()


async def test_a_server_is_leased_to_one_collector_until_another_wants_it(arena):
    first, second = await arena.member(), await arena.member()
    await first.join()
    await second.join()
    wish = Report(wanted=("192.0.2.1", "example.org"))
    news = await first.beat(wish)
    assert {lease.key for lease in news.granted} == {"192.0.2.1", "example.org"}
    assert not (await first.beat(Report())).recalled
    assert not (await second.beat(Report(wanted=("192.0.2.1",)))).granted
    assert (await first.beat(Report())).recalled == ("192.0.2.1",)
    free_at = time.time() + 40
    back = Report(wanted=("192.0.2.1",), released=(("192.0.2.1", free_at),))
    assert not (await first.beat(back)).granted  # the second was first to ask
    (lease,) = (await second.beat(Report(wanted=("192.0.2.1",)))).granted
    assert lease.not_before == pytest.approx(free_at)
    assert not lease.is_unclean


async def test_the_servers_of_a_dead_collector_go_to_others(arena):
    first, second = await arena.member(), await arena.member()
    await first.join()
    await second.join()
    await first.beat(Report(wanted=("192.0.2.1",)))
    await arena.kill(first)
    arena.round()
    (lease,) = (await second.beat(Report(wanted=("192.0.2.1",)))).granted
    assert lease.is_unclean
