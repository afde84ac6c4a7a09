"""A quota is kept for all collectors together, those that have left among them."""

from __future__ import annotations

import time

import pytest

from headway.cluster.coordinator import Report
from headway.cluster.leader import Leader
from headway.cluster.postgres import LeaderElection, PostgresCoordinator
from headway.planning.allocator import Allocator
from headway.policy.timetable import Period, Quota, Timetable
from headway.store.postgres.connection import Address
from headway.store.postgres.store import PostgresStore

LIMIT = 1_000_000
BUSY = ("http://a.example",)


@pytest.fixture
def fleet(postgres_store):
    address = Address.parse(postgres_store)
    store = PostgresStore(address)
    store.create(1.0, {})
    leader = Leader(Timetable(1e6), Allocator)
    election = LeaderElection(address, leader, [Quota(LIMIT, Period.DAY)])
    members = [PostgresCoordinator(address, name=name, label="", place=name) for name in ("a", "b")]
    for member in members:
        member.join()
    yield leader, election, members, store
    for each in (election, *members, store):
        each.close()


def beat(member, received_bytes):
    return member.beat(Report(active=BUSY, second=int(time.time()), received_bytes=received_bytes))


def test_what_all_have_read_is_taken_from_it(fleet):
    leader, election, (one, other), _ = fleet
    beat(one, 300_000)
    beat(other, 100_000)
    other.leave()
    election.round()
    assert leader.left_bytes == 600_000


def test_towards_its_end_no_more_is_allocated_than_is_left(fleet):
    _, election, (one, other), _ = fleet
    beat(one, 500_000)
    beat(other, 440_000)
    election.round()
    shares = [beat(one, 500_000).share, beat(other, 440_000).share]
    assert 0 < sum(share.rate_bytes_per_s * share.lasts_s for share in shares) < 60_000


def test_nothing_is_allocated_when_it_is_used_up(fleet):
    _, election, (one, other), _ = fleet
    beat(one, 999_500)
    beat(other, 0)
    election.round()
    assert beat(one, 999_500).share.rate_bytes_per_s == 0


def test_a_new_day_brings_all_of_it_again(fleet):
    leader, election, (one, _), store = fleet
    beat(one, 900_000)
    begin = Quota(LIMIT, Period.DAY).window(time.time())[0]
    query = "INSERT INTO sample (at, wire_bytes, capacity_bytes_per_s) VALUES (%s, 850000, 1)"
    store.asked(lambda run: run.execute(query, (begin - 1,)))
    election.round()
    assert leader.left_bytes == LIMIT - 50_000
