"""What was noticed of a site, and what its rules took of the link, is given back to the next run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.memory_store import MemoryStore

from headway.model.command import SaveLeftOut, SaveNotice, SaveSite
from headway.model.page import Site
from headway.ports import Store
from headway.store.postgres.reader import PostgresReader
from headway.store.postgres.store import PostgresStore
from headway.store.reader import RunReader
from headway.store.sqlite import SqliteStore
from headway.units import Instant

BEGAN_AT = Instant(1_700_000_000.25)
TRAP = SaveNotice(Site("https://a.example"), BEGAN_AT, "trap: endless calendar", "/calendar/#/#/")
MIRROR = SaveNotice(Site("https://b.example"), Instant(BEGAN_AT + 2), "mirror", "https://a.example")


@pytest.fixture(params=["sqlite", "memory", "postgres"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Store]:
    if request.param == "sqlite":
        return lambda: SqliteStore(tmp_path / "crawl.sqlite")
    if request.param == "memory":
        store = MemoryStore()
        return lambda: store
    address = request.getfixturevalue("postgres_store")
    return lambda: PostgresStore(address)


def test_each_notice_is_kept_once_as_of_the_first_time(open_store: Callable[[], Store]) -> None:
    store = open_store()
    store.create(BEGAN_AT, {})
    store.commit([TRAP], {})
    store.commit([SaveNotice(TRAP.site, Instant(BEGAN_AT + 1), TRAP.what, TRAP.subject), MIRROR], {})
    store.close()
    again = open_store()
    snapshot = again.load()
    again.close()
    assert snapshot is not None
    assert list(snapshot.notices) == [TRAP, MIRROR]


def test_what_rules_took_of_the_link_counts_after_a_restart(open_store: Callable[[], Store]) -> None:
    store = open_store()
    store.create(BEGAN_AT, {})
    store.commit(
        [SaveSite(TRAP.site, BEGAN_AT, 0, "", BEGAN_AT, robots_bytes=700), SaveSite(TRAP.site, BEGAN_AT, 0)],
        {},
    )
    store.commit([SaveSite(TRAP.site, BEGAN_AT, 0, "", BEGAN_AT, robots_bytes=300)], {})
    store.close()
    again = open_store()
    snapshot = again.load()
    again.close()
    assert snapshot is not None
    assert [(record.site, record.wire_bytes) for record in snapshot.sites] == [(TRAP.site, 1000)]


def test_links_left_out_are_counted_by_their_reason(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    for store in (
        SqliteStore(tmp_path / "crawl.sqlite"),
        PostgresStore(request.getfixturevalue("postgres_store")),
    ):
        store.create(BEGAN_AT, {})
        store.commit([SaveLeftOut(TRAP.site, "too many", 3), SaveLeftOut(TRAP.site, "too many", 4)], {})
        store.commit([SaveLeftOut(TRAP.site, "too many", 1), SaveLeftOut(MIRROR.site, "other", 9)], {})
        store.close()
    readers = RunReader(tmp_path), PostgresReader(request.getfixturevalue("postgres_store"))
    for reader in readers:
        with reader:
            counts = {each.reason: each.count for each in reader.outcomes()}
        assert counts == {"other": 9, "too many": 8}
