"""Look on at a crawl that several collectors do together, by way of the PostgreSQL server they meet on."""

from __future__ import annotations

from typing import Any

from headway.store.onlooker import CollectorNow, Onlooker
from headway.store.postgres.reader import PostgresReader

_COLLECTORS = """
    SELECT name, label, joined_at,
           (SELECT count(*) FROM holding WHERE holding.collector_id = collector.id), received_bytes
    FROM collector WHERE NOT is_gone AND until_at > extract(epoch FROM clock_timestamp()) ORDER BY id"""


class PostgresOnlooker(Onlooker):
    def __init__(self, address: str) -> None:
        self._reader = PostgresReader(address)
        self.path = self._reader.path

    @property
    def name(self) -> str:
        return self._reader.address.name

    def collectors(self) -> list[CollectorNow]:
        return [CollectorNow(*row) for row in self._all(_COLLECTORS)]

    def close(self) -> None:
        self._reader.close()

    def _all(self, query: str, values: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        return self._reader.ask(query, values)
