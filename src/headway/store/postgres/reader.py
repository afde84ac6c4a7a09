"""Look into a crawl on a PostgreSQL server, with the same questions as into a run folder."""

from __future__ import annotations

from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any

from headway.store.postgres.address import Address
from headway.store.postgres.tables import check_version, translated_query
from headway.store.postgres.texts import from_text
from headway.store.reader import RunReader

_translated = lru_cache(maxsize=256)(translated_query)


class PostgresReader(RunReader):
    def __init__(self, address: Address | str) -> None:
        import psycopg

        self.address = Address.parse(address) if isinstance(address, str) else address
        self.path = Path(self.address.shown)
        self._server = self.address.connect("reader")
        # Values are put into the questions here: SQLite does not mind what type a NULL has, the server does.
        self._server.cursor_factory = psycopg.ClientCursor
        try:
            check_version(self.address, self._server)
        except BaseException:
            self._server.close()
            raise

    def close(self) -> None:
        self._server.close()

    def ask(self, query: str, values: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        """A question in SQLite's words."""
        return self._all(query, values)

    def _all(self, query: str, values: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        with self.address.clear_errors():
            found = self._server.execute(_translated(query).encode(), values).fetchall()
        return [tuple(map(_plain, row)) for row in found]


def _plain(value: object) -> object:
    if isinstance(value, str):
        return from_text(value)
    return int(value) if isinstance(value, Decimal) else value
