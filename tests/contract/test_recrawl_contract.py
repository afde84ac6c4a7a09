"""Every store that a crawl can be begun once more in keeps what later visits need."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.check_recrawl import RECRAWL_CHECKS, OpenStore
from tests.support.memory_store import MemoryStore

from headway.store.sqlite import SqliteStore

Check = Callable[[OpenStore], None]


@pytest.mark.parametrize("check", RECRAWL_CHECKS)
def test_sqlite(check: Check, tmp_path: Path) -> None:
    check(lambda: SqliteStore(tmp_path / "crawl.sqlite"))


@pytest.mark.parametrize("check", RECRAWL_CHECKS)
def test_postgres(check: Check, postgres_store: str) -> None:
    from headway.store.postgres.store import PostgresStore

    check(lambda: PostgresStore(postgres_store))


@pytest.mark.parametrize("check", RECRAWL_CHECKS)
def test_memory(check: Check) -> None:
    store = MemoryStore()
    check(lambda: store)
