"""Every store that headway ships keeps the promises of the port."""

from __future__ import annotations

import psycopg
import pytest
from tests.support.check_store import STORE_CHECKS
from tests.support.memory_store import MemoryStore

from headway.model.command import SaveTasks
from headway.model.page import Site, Task
from headway.store import schema
from headway.store.postgres.store import PostgresStore
from headway.store.sqlite import SqliteStore
from headway.units import Instant


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


def test_postgres_store_looks_for_the_last_task_once_for_any_number_of_batches(postgres_store, monkeypatch):
    queries = []
    execute = psycopg.Connection.execute

    def noted(self, query, *args, **named):
        queries.append(query if isinstance(query, bytes) else str(query).encode())
        return execute(self, query, *args, **named)

    monkeypatch.setattr(psycopg.Connection, "execute", noted)
    sites = [Site(f"http://s{number}.test") for number in (3, 1, 2, 5, 4)]
    for part, known in ((sites[:3], sites[:3]), (sites[3:], sites)):
        store = PostgresStore(postgres_store)
        if store.load() is None:
            store.create(Instant(0.0), {})
        queries.clear()
        for site in part:
            store.commit([SaveTasks((Task(site),))], {})
        assert sum(schema.LAST_TASK.encode() in query for query in queries) == 1
        assert not any(b"max(position)" in query for query in queries if b"INSERT" in query)
        assert [task.site for task in store.load().tasks] == known
        store.close()
