"""A crawl, or some sites of it, out of the tables on PostgreSQL, within one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from headway.frontier.spilling import pages_held_each
from headway.model.command import SaveNotice
from headway.model.page import Page, PageKey, Site
from headway.model.snapshot import SiteRecord, Snapshot, WaitingRecord
from headway.model.task import Task
from headway.ports import Part
from headway.store import rows
from headway.store import statements as shared
from headway.store.postgres import statements as sql
from headway.store.postgres.tables import translated_query
from headway.store.postgres.texts import from_text
from headway.units import Instant

if TYPE_CHECKING:
    import psycopg

_KEYS_AT_ONCE = 50_000


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
        waiting, unloaded = self._waiting()
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
            seen=self._seen(),
            servers=self._run(shared.SERVERS).fetchall(),
            notices=[
                SaveNotice(Site(from_text(site)), at, from_text(what), from_text(subject))
                for site, at, what, subject in self._run(shared.NOTICES).fetchall()
            ],
        )

    def _waiting(self) -> tuple[list[WaitingRecord], dict[Site, int]]:
        if self._part is not None:
            return self._part_waiting(self._part)
        if self._most_waiting is None:
            everyone = self._all(shared.LOAD_WAITING, "waiting.site_id")
            return [
                WaitingRecord(page_from(path, site, key, depth, score), attempt, retry_at)
                for site, path, key, depth, score, attempt, retry_at in everyone
            ], {}
        ids = None if self._site_ids is None else list(self._site_ids)
        counts = [
            (site_id, Site(from_text(site)), count)
            for site_id, site, count in self._run(sql.COUNT_WAITING, {"sites": ids}).fetchall()
        ]
        each = pages_held_each(self._most_waiting, len(counts))
        waiting = [
            record
            for site_id, site, _ in counts
            for record in first_waiting(self._connection, site, site_id, each)
        ]
        return waiting, {site: count - each for _, site, count in counts if count > each}

    def _part_waiting(self, part: Part) -> tuple[list[WaitingRecord], dict[Site, int]]:
        waiting: list[WaitingRecord] = []
        unloaded: dict[Site, int] = {}
        values = {"sites": list(self._site_ids or ()), "due_by": part.due_by}
        for site_id, name, count in self._run(sql.COUNT_DUE, values).fetchall():
            site = Site(from_text(name))
            waiting += first_due(self._connection, site, site_id, part.each, part.due_by)
            if count > part.each:
                unloaded[site] = count - part.each
        waiting += [
            WaitingRecord(page_from(path, site, key, depth, score), attempt, retry_at)
            for site, path, key, depth, score, attempt, retry_at in self._run(sql.PUT_OFF, values).fetchall()
        ]
        return waiting, unloaded

    def _seen(self) -> Sequence[PageKey]:
        query, values = self._only("SELECT key FROM seen ORDER BY site_id, key", "seen.site_id")
        # Eight bytes a key: ten million of them as Python integers would take 400 MB.
        with self._connection.cursor("seen_keys") as cursor:
            cursor.itersize = _KEYS_AT_ONCE
            cursor.execute(query, values)
            seen: Any = np.fromiter((key for (key,) in cursor), dtype=np.int64)
        return seen  # type: ignore[no-any-return]

    def _all(self, query: str, column: str) -> list[tuple[Any, ...]]:
        return self._run(*self._only(query, column)).fetchall()

    def _only(self, query: str, column: str) -> tuple[bytes, tuple[list[int], ...]]:
        """A query about the sites that are read, and what to ask it with."""
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
    """The first pages of a site that wait for nothing but their turn."""
    return _records(site, connection.execute(sql.FIRST_DUE, (site_id, due_by, most)).fetchall())


def _records(site: Site, found: Sequence[tuple[Any, ...]]) -> list[WaitingRecord]:
    return [
        WaitingRecord(page_from(path, site, key, depth, score), attempt, retry_at)
        for path, key, depth, score, attempt, retry_at in found
    ]


def page_from(path: str, site: str, key: int, depth: int, score: float) -> Page:
    site = from_text(site)
    return Page(rows.url_of(from_text(path), Site(site)), Site(site), PageKey(key), depth, score)
