"""Every store that headway ships keeps the promises of the port."""

from __future__ import annotations

import pytest
from tests.support.check_store import STORE_CHECKS
from tests.support.memory_store import MemoryStore

from headway.store.postgres.store import PostgresStore
from headway.store.sqlite import SqliteStore


@pytest.mark.parametrize("check", STORE_CHECKS)
def test_sqlite_store_keeps_every_promise(check, tmp_path):
    check(lambda: SqliteStore(tmp_path / "crawl.sqlite"))


@pytest.mark.parametrize("check", STORE_CHECKS)
def test_memory_store_keeps_every_promise(check):
    store = MemoryStore()
    check(lambda: store)


@pytest.mark.parametrize("check", STORE_CHECKS)
def test_postgres_store_keeps_every_promise(check, postgres_store):
    check(lambda: PostgresStore(postgres_store))


def test_there_are_checks():
    assert len(STORE_CHECKS) >= 15
