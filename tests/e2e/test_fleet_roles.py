"""A collector works with the rights that the page on fleets grants it, and has none beyond."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headway.cluster.coordinator import CommitBatch, Report
from headway.cluster.leader import Leader
from headway.cluster.postgres import LeaderElection, PostgresCoordinator
from headway.errors import StoreError
from headway.model.command import SaveFound
from headway.model.page import Page
from headway.planning.allocator import Allocator
from headway.policy.timetable import Timetable
from headway.store.postgres.connection import Address
from headway.store.postgres.store import PostgresStore

PAGE = Page("http://a.example/", "http://a.example", 1)
NEW = Page("http://b.example/", "http://b.example", 2)
DOCS = Path(__file__).parents[2] / "docs" / "how-to" / "fleet.md"


@pytest.fixture
def as_collector(postgres_store):
    """The address of a crawl that has begun, for a role with the documented grants."""
    address = Address.parse(postgres_store)
    store = PostgresStore(address)
    store.create(1.0, {})
    store.commit([SaveFound((PAGE,), is_elsewhere=True)], {})
    script = re.search(r"```sql\n(.*?)```", DOCS.read_text(), re.DOTALL)[1]
    grants = [line for line in script.splitlines() if line.startswith("GRANT") and "SCHEMA" in line]
    assert len(grants) == 3
    store.asked(
        lambda run: run.execute(
            "DO $$ BEGIN CREATE ROLE collector LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$"
        )
    )
    for grant in grants:
        store.asked(lambda run, text=grant: run.execute(text.replace("headway_news", address.schema)))
    store.close()
    return Address.parse(postgres_store.replace("headway@", "collector@"))


def test_the_documented_rights_are_enough(as_collector):
    election = LeaderElection(as_collector, Leader(Timetable(1000.0), Allocator))
    member = PostgresCoordinator(as_collector, name="c", label="here", place="c")
    try:
        member.join()
        assert election.round()
        assert member.beat(Report(round_trips_s=((PAGE.site, 0.1),))).taken.sites == {PAGE.site}
        member.commit(1, CommitBatch([SaveFound((NEW,), is_elsewhere=True)], {"archive/a": 1}))
        assert election.round()
        assert member.beat(Report()).taken.sites == {NEW.site}
        member.give_back([PAGE.site])
        member.leave()
    finally:
        election.close()
        member.close()


def test_no_tables_can_be_made_or_dropped(as_collector):
    store = PostgresStore(as_collector, make=False)
    try:
        for statement in (
            "DROP TABLE page",
            "CREATE TABLE mine (x int)",
            "ALTER TABLE page ADD COLUMN x int",
        ):
            with pytest.raises(StoreError, match="lacks a privilege"):
                store.asked(lambda run, text=statement: run.execute(text))
    finally:
        store.close()
