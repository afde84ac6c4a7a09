"""Some sites of a crawl out of `crawl.sqlite`, for a process that is to work on them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import numpy as np

from headway.model.page import Page, PageKey, Site
from headway.model.snapshot import SiteRecord, Snapshot, WaitingRecord
from headway.model.task import Task
from headway.ports import Part
from headway.store import rows
from headway.store import statements as sql
from headway.units import Instant

_PUT_OFF = f"""{sql.LOAD_WAITING.rpartition("ORDER BY")[0]}
    WHERE retry_at > ? ORDER BY place"""
_COUNT_DUE = """
    SELECT site, count(*) FROM site JOIN waiting ON waiting.site_id = site.id
    WHERE (retry_at IS NULL OR retry_at <= ?) GROUP BY site.id ORDER BY site.id"""
_SEEN = "SELECT key FROM seen JOIN site ON site.id = seen.site_id ORDER BY site_id, key"


def load_sites(
    connection: sqlite3.Connection, started_at: Instant, sites: Sequence[Site], part: Part | None = None
) -> Snapshot:
    wanted = msgspec.json.encode(sites).decode()

    def read(query: str, *values: object) -> sqlite3.Cursor:
        head, word, tail = query.rpartition("GROUP BY" if "GROUP BY" in query else "ORDER BY")
        joint = "AND" if "WHERE" in head else "WHERE"
        only = f"{joint} site.site IN (SELECT value FROM json_each(?))"  # noqa: S608 - our own words
        return connection.execute(f"{head} {only} {word} {tail}", (*values, wanted))

    waiting: list[WaitingRecord] = []
    unloaded: dict[Site, int] = {}
    if part is None:
        waiting = _records(read(sql.LOAD_WAITING))
    else:
        for site, count in read(_COUNT_DUE, part.due_by).fetchall():
            waiting += first_due(connection, site, part.each, part.due_by)
            if count > part.each:
                unloaded[site] = count - part.each
        waiting += _records(read(_PUT_OFF, part.due_by))
    seen: Any = np.fromiter((key for (key,) in read(_SEEN)), dtype=np.int64)
    return Snapshot(
        started_at=started_at,
        tasks=[
            Task(Site(site), msgspec.json.decode(seeds, type=tuple[str, ...]), *rest)
            for site, seeds, *rest in read(sql.LOAD_TASKS)
        ],
        sites=[SiteRecord(*row) for row in read(sql.LOAD_SITES)],
        waiting=waiting,
        unloaded=unloaded,
        seen=seen,
        servers=connection.execute(sql.SERVERS).fetchall(),
    )


def first_due(connection: sqlite3.Connection, site: Site, most: int, due_by: Instant) -> list[WaitingRecord]:
    """The first pages of a site that wait for nothing but their turn."""
    (site_id,) = connection.execute("SELECT id FROM site WHERE site = ?", (site,)).fetchone() or (0,)
    return _records((site, *row) for row in connection.execute(sql.FIRST_DUE, (site_id, due_by, most)))


def _records(found: Iterable[tuple[Any, ...]]) -> list[WaitingRecord]:
    return [
        WaitingRecord(Page(rows.url_of(path, site), site, PageKey(key), depth, score), attempt, retry_at)
        for site, path, key, depth, score, attempt, retry_at in found
    ]


def sites_that_wait(connection: sqlite3.Connection) -> list[Site]:
    """Sites with pages to come, found in the index alone."""
    return [
        Site(site)
        for (site,) in connection.execute(
            "SELECT site FROM site WHERE EXISTS (SELECT 1 FROM waiting WHERE waiting.site_id = site.id)"
        )
    ]
