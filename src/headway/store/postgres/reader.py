"""Reads a crawl, or some of its sites, from the tables on PostgreSQL, with the queries of `store.reader`."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from headway.model.command import SaveNotice, SiteRecord, Snapshot, WaitingRecord
from headway.model.page import Page, PageKey, Site, Task
from headway.ports import Part
from headway.store import rows
from headway.store import schema as shared
from headway.store.postgres import tables as sql
from headway.store.postgres.connection import Address, from_text
from headway.store.postgres.tables import check_version, translated_query
from headway.store.reader import CollectorNow, LiveReader, RunReader
from headway.units import Instant

if TYPE_CHECKING:
    import psycopg

_KEYS_AT_ONCE = 50_000
_SEEN_TYPE = np.dtype([("key", np.int64), ("check", np.uint16)])


def _column(seen: Any, name: str) -> Any:
    return np.ascontiguousarray(seen[name])


class Reading:
    """A snapshot read within one transaction."""

    def __init__(
        self,
        connection: psycopg.Connection[tuple[Any, ...]],
        site_ids: Sequence[int] | None,
        most_waiting: int | None,
        part: Part | None = None,
    ) -> None:
        self._connection = connection
        self._run = connection.execute
        self._site_ids = site_ids
        self._most_waiting = most_waiting
        self._part = part

    def snapshot(self, started_at: Instant) -> Snapshot:
        waiting, unloaded, first_ranks = self._waiting()
        seen = self._seen()
        return Snapshot(
            started_at=started_at,
            tasks=[
                Task(
                    Site(from_text(site)), msgspec.json.decode(from_text(seeds), type=tuple[str, ...]), *rest
                )
                for site, seeds, *rest in self._all(shared.LOAD_TASKS, "task.site_id")
            ],
            sites=[
                SiteRecord(Site(from_text(site)), free_at, failures, text and from_text(text), *rest)
                for site, free_at, failures, text, *rest in self._all(shared.LOAD_SITES, "site.id")
            ],
            waiting=waiting,
            unloaded=unloaded,
            first_ranks=first_ranks,
            seen=_column(seen, "key"),
            seen_checks=_column(seen, "check"),
            servers=self._run(shared.SERVERS).fetchall(),
            notices=[
                SaveNotice(Site(from_text(site)), at, from_text(what), from_text(subject))
                for site, at, what, subject in self._run(shared.NOTICES).fetchall()
            ],
        )

    def _waiting(self) -> tuple[list[WaitingRecord], dict[Site, int], dict[Site, float]]:
        """All waiting pages, a part of them, or if they are too many only their number by site and the first
        rank of each."""
        if self._part is not None:
            return (*self._part_waiting(self._part), {})
        if self._most_waiting is None:
            everyone = self._all(shared.LOAD_WAITING, "waiting.site_id")
            return _records_of(everyone), {}, {}
        ids = None if self._site_ids is None else list(self._site_ids)
        counts = [
            (Site(from_text(site)), count, rank)
            for site, count, rank in self._run(sql.COUNT_WAITING, {"sites": ids}).fetchall()
        ]
        if sum(count for _, count, _ in counts) <= self._most_waiting:
            return _records_of(self._run(sql.WAITING_BY_SITE, {"sites": ids}).fetchall()), {}, {}
        return [], {site: count for site, count, _ in counts}, {site: rank for site, _, rank in counts}

    def _part_waiting(self, part: Part) -> tuple[list[WaitingRecord], dict[Site, int]]:
        values = {"sites": list(self._site_ids or ()), "due_by": part.due_by, "each": part.each}
        unloaded = {
            Site(from_text(name)): count - part.each
            for _, name, count in self._run(sql.COUNT_DUE, values).fetchall()
            if count > part.each
        }
        waiting = _records_of(self._run(sql.FIRST_DUE_OF_EACH, values).fetchall())
        return waiting + _records_of(self._run(sql.PUT_OFF, values).fetchall()), unloaded

    def _seen(self) -> Any:
        query, values = self._only(
            "SELECT key, coalesce(check_bits, 0) FROM seen ORDER BY site_id, key", "seen.site_id"
        )
        # Ten bytes a key: ten million of them as Python integers would take 400 MB.
        with self._connection.cursor("seen_keys") as cursor:
            cursor.itersize = _KEYS_AT_ONCE
            cursor.execute(query, values)
            return np.fromiter(cursor, dtype=_SEEN_TYPE)

    def _all(self, query: str, column: str) -> list[tuple[Any, ...]]:
        return self._run(*self._only(query, column)).fetchall()

    def _only(self, query: str, column: str) -> tuple[bytes, tuple[list[int], ...]]:
        """A query about the sites to be read, and its parameters."""
        text = translated_query(query)
        if self._site_ids is None:
            return text.encode(), ()
        head, order, tail = text.rpartition("ORDER BY")
        joint = "AND" if "WHERE" in head else "WHERE"
        text = f"{head} {joint} {column} = ANY(%s) {order} {tail}"
        return text.encode(), (list(self._site_ids),)


def first_waiting(
    connection: psycopg.Connection[tuple[Any, ...]], site: Site, site_id: int, most: int
) -> list[WaitingRecord]:
    return _records(site, connection.execute(sql.FIRST_WAITING, (site_id, most)).fetchall())


def first_due(
    connection: psycopg.Connection[tuple[Any, ...]], site: Site, site_id: int, most: int, due_by: Instant
) -> list[WaitingRecord]:
    """The first pages of a site that are due."""
    return _records(site, connection.execute(sql.FIRST_DUE, (site_id, due_by, most)).fetchall())


def _records(site: Site, found: Sequence[tuple[Any, ...]]) -> list[WaitingRecord]:
    return [
        WaitingRecord(page_from(path, site, key, depth, score), attempt, retry_at)
        for path, key, depth, score, attempt, retry_at in found
    ]


def _records_of(found: Sequence[tuple[Any, ...]]) -> list[WaitingRecord]:
    return [
        WaitingRecord(page_from(path, site, key, depth, score), attempt, retry_at)
        for site, path, key, depth, score, attempt, retry_at in found
    ]


def page_from(path: str, site: str, key: int, depth: int, score: float) -> Page:
    site = from_text(site)
    return Page(rows.url_of(from_text(path), Site(site)), Site(site), PageKey(key), depth, score)


_translated = lru_cache(maxsize=256)(translated_query)


class PostgresReader(RunReader):
    """Reads a crawl on a PostgreSQL server, with the same queries as a run folder."""

    def __init__(self, address: Address | str) -> None:
        import psycopg

        self.address = Address.parse(address) if isinstance(address, str) else address
        self.path = Path(self.address.shown)
        self._server = self.address.connect("reader")
        # Values are put into the queries here: the type of a NULL does not matter to SQLite, but to the
        # server.
        self._server.cursor_factory = psycopg.ClientCursor
        try:
            check_version(self.address, self._server)
        except BaseException:
            self._server.close()
            raise

    def close(self) -> None:
        self._server.close()

    def _all(self, query: str, values: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        with self.address.clear_errors():
            found = self._server.execute(_translated(query).encode(), values).fetchall()
        return [tuple(map(_plain, row)) for row in found]


def _plain(value: object) -> object:
    if isinstance(value, str):
        return from_text(value)
    return int(value) if isinstance(value, Decimal) else value


_COLLECTORS = """
    SELECT name, label, joined_at,
           (SELECT count(*) FROM holding WHERE holding.collector_id = collector.id), received_bytes
    FROM collector WHERE NOT is_gone AND until_at > extract(epoch FROM clock_timestamp()) ORDER BY id"""


class PostgresOnlooker(LiveReader):
    """Reads a crawl by several collectors for a live display, from their PostgreSQL server."""

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
