"""Whatever is committed, in whatever batches and with whatever restarts, PostgreSQL says what memory says."""

from __future__ import annotations

import itertools

import test_store_properties as sqlite_properties
from hypothesis import HealthCheck, given, settings
from tests.support.memory_store import MemoryStore

from headway.store.postgres.reader import PostgresReader
from headway.store.postgres.store import PostgresStore

_numbers = itertools.count()


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=sqlite_properties.batches)
def test_postgres_and_memory_agree_after_any_batches_and_restarts(batches, postgres_server):
    address = postgres_server.address(f"property{next(_numbers)}")
    memory = MemoryStore()
    memory.create(1.5, {})
    store = PostgresStore(address)
    try:
        store.create(1.5, {})
        for batch, lengths, restart in batches:
            memory.commit(batch, lengths)
            store.commit(batch, lengths)
            if restart:
                store.close()
                store = PostgresStore(address)
        sqlite_properties._check_same(store, memory)
        with PostgresReader(address) as reader:
            sqlite_properties._check_reader(reader, store)
    finally:
        store.close()
