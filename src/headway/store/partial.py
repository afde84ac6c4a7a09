"""Some sites of a crawl out of `crawl.sqlite`, for a process that is to work on them."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from headway.model.page import Page, PageKey, Site
from headway.model.snapshot import SiteRecord, Snapshot, WaitingRecord
from headway.model.task import Task
from headway.store import rows
from headway.store import statements as sql
from headway.units import Instant

_SEEN = "SELECT key FROM seen JOIN site ON site.id = seen.site_id ORDER BY site_id, key"


def load_sites(connection: sqlite3.Connection, started_at: Instant, sites: Sequence[Site]) -> Snapshot:
    wanted = msgspec.json.encode(sites).decode()

    def read(query: str) -> list[tuple[Any, ...]]:
        head, order, tail = query.rpartition("ORDER BY")
        joint = "AND" if "WHERE" in head else "WHERE"
        only = f"{joint} site.site IN (SELECT value FROM json_each(?))"  # noqa: S608 - our own words
        return connection.execute(f"{head} {only} {order} {tail}", (wanted,)).fetchall()

    seen: Any = np.array([key for (key,) in read(_SEEN)], dtype=np.int64)
    return Snapshot(
        started_at=started_at,
        tasks=[
            Task(Site(site), msgspec.json.decode(seeds, type=tuple[str, ...]), *rest)
            for site, seeds, *rest in read(sql.LOAD_TASKS)
        ],
        sites=[SiteRecord(*row) for row in read(sql.LOAD_SITES)],
        waiting=[
            WaitingRecord(Page(rows.url_of(path, site), site, PageKey(key), depth, score), attempt, retry_at)
            for site, path, key, depth, score, attempt, retry_at in read(sql.LOAD_WAITING)
        ],
        seen=seen,
        servers=connection.execute(sql.SERVERS).fetchall(),
    )


def sites_that_wait(connection: sqlite3.Connection) -> list[Site]:
    """Sites with pages to come, found in the index alone."""
    return [
        Site(site)
        for (site,) in connection.execute(
            "SELECT site FROM site WHERE EXISTS (SELECT 1 FROM waiting WHERE waiting.site_id = site.id)"
        )
    ]
