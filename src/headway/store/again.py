"""What the store does for pages that are fetched more than once: their last copy, and a new round of all."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from headway.model.command import PageState, SaveAgain, SaveSettled, Saving
from headway.model.copy import Copy
from headway.model.outcome import Kind, Sighting
from headway.model.page import AGAIN, Page, PageKey, Site
from headway.store import schema
from headway.store.failures import clear_errors
from headway.store.reader import database_of
from headway.units import Instant, Seconds

ADD_SIGHTING = "INSERT INTO sighting VALUES (?, ?, ?, ?)"
# A page that has not changed is what it was: the row says so without a body having come.
KEEP_CONTENT = """
    UPDATE page SET (links, content_bytes) = (
        SELECT coalesce(page.links, old.links), max(page.content_bytes, old.content_bytes)
        FROM page AS old WHERE old.id = ?)
    WHERE id = ?"""
_FIND_COPY = """
    SELECT seen.place, state, kind, status, content_type, digest, fetched_at, page.depth, etag,
           last_modified, history
    FROM seen LEFT JOIN page ON page.id = seen.page_id LEFT JOIN sighting ON sighting.page_id = page.id
    WHERE seen.site_id = (SELECT id FROM site WHERE site = ?) AND seen.key = ?"""
# A page that waits once more after a single visit has none yet, and is to be visited all the same.
_HISTORIES = """
    SELECT site.site, coalesce(sighting.history, x'')
    FROM site JOIN seen ON seen.site_id = site.id LEFT JOIN sighting ON sighting.page_id = seen.page_id
    WHERE (sighting.history NOT NULL OR (seen.place NOT NULL AND seen.page_id NOT NULL))"""
_HISTORIES_OF = _HISTORIES + " AND site.site IN (SELECT value FROM json_each(?))"  # noqa: S608 - our own words
# A page beyond its site's limit was never asked for: for the limit it is as new as it was.
_CHOOSE = """
    CREATE TEMP TABLE chosen AS
    SELECT seen.site_id, row_number() OVER (ORDER BY page.depth, page.id)
               + (SELECT coalesce(max(place), 0) FROM waiting) AS place,
           seen.key, page.path, page.depth, iif(page.kind = ?, 0, ?) AS attempt
    FROM seen JOIN page ON page.id = seen.page_id
    WHERE seen.place IS NULL AND page.kind <> ? AND page.fetched_at <= ?"""
_ROUND = (
    """INSERT INTO waiting (site_id, place, key, path, depth, attempt, rank)
       SELECT site_id, place, key, path, depth, attempt, 0.0 FROM chosen ORDER BY site_id, place""",
    """INSERT INTO seen (site_id, key, place) SELECT site_id, key, place FROM chosen WHERE true
       ON CONFLICT DO UPDATE SET place = excluded.place""",
    # Bytes and times are those of the round; pages count as what they are, until they are something else.
    """UPDATE site SET started_at = NULL, ended_at = NULL, wire_bytes = 0, content_bytes = 0
       WHERE free_at NOT NULL""",
    # Whatever ranks the pages next finds an order that it does not know, and ranks them anew.
    "UPDATE crawl SET waiting_order = ''",
)


def find_copy(connection: sqlite3.Connection, page: Page) -> Copy | None:
    """What earlier visits have left of a page; None of one never seen."""
    row = connection.execute(_FIND_COPY, (page.site, page.key)).fetchone()
    if row is None:
        return None
    place, state, kind, status, content_type, digest, fetched_at, depth, *rest = row
    is_waiting = place is not None
    if state is None:
        return Copy(PageState.WAITING, None, 0, "", "", Instant(0.0), is_waiting=is_waiting)
    etag, last_modified, history = rest
    sighting = Sighting(etag or "", last_modified or "", history or b"")
    return Copy(
        PageState(state),
        Kind(kind),
        status,
        content_type,
        digest,
        Instant(fetched_at),
        depth,
        sighting,
        is_waiting,
    )


def histories(
    connection: sqlite3.Connection, sites: Sequence[Site] | None = None
) -> Iterator[tuple[Site, bytes]]:
    """How every page of these sites, or of all, was found that has been visited and may be visited again."""
    if sites is None:
        return iter(connection.execute(_HISTORIES))
    return iter(connection.execute(_HISTORIES_OF, (msgspec.json.encode(sites).decode(),)))


def begin_round(run_folder: Path, now: Instant, older_than_s: Seconds = Seconds(0.0)) -> int | None:
    """Queue every page of a finished crawl once more, as long as its copy is so old; returns how many.

    Deadlines are reckoned from now. Nothing happens, and None is returned, when pages still wait from before.
    """
    path = database_of(run_folder)
    schema.open_for_reading(path).close()  # says what is wrong before anything is made
    lock = schema.lock(path)
    try:
        connection = schema.open_for_writing(path)
        try:
            with clear_errors(path):
                return _begin_round(connection, now, older_than_s)
        finally:
            schema.close_for_good(connection)
    finally:
        os.close(lock)


def _begin_round(connection: sqlite3.Connection, now: Instant, older_than_s: Seconds) -> int | None:
    run = connection.execute
    (left,) = run("SELECT count(*) FROM waiting WHERE attempt >= 0").fetchone()
    (due,) = run("SELECT count(*) FROM waiting WHERE attempt < 0 AND retry_at IS NULL").fetchone()
    if left or due:
        return None
    run("BEGIN IMMEDIATE")
    try:
        values = (Kind.LIMIT.value, AGAIN, Kind.OUT_OF_SCOPE.value, now - older_than_s)
        run(_CHOOSE, values)
        (count,) = run("SELECT count(*) FROM chosen").fetchone()
        if count:
            for statement in _ROUND:
                run(statement)
            run("UPDATE waiting SET retry_at = NULL WHERE attempt < 0 AND retry_at <= ?", (now,))
            run("UPDATE crawl SET started_at = ?", (now,))
            run("INSERT INTO round (started_at, pages) VALUES (?, ?)", (now, count))
        run("DROP TABLE chosen")
        run("COMMIT")
    except BaseException:
        run("ROLLBACK")
        raise
    return int(count)


def in_turn(batch: Iterable[Saving]) -> Iterator[tuple[list[SaveSettled], list[SaveAgain]]]:
    """Settled pages and those that wait once more, in parts in each of which a page settles once, and waits
    again after that if at all; nearly always one part."""
    settled: dict[PageKey, SaveSettled] = {}
    again: list[SaveAgain] = []
    waits: set[PageKey] = set()
    for saving in batch:
        if isinstance(saving, SaveAgain):
            again.append(saving)
            waits.update(page.key for page in saving.pages)
        elif isinstance(saving, SaveSettled):
            if saving.page.key in settled or saving.page.key in waits:
                yield list(settled.values()), again
                settled, again, waits = {}, [], set()
            settled[saving.page.key] = saving
    yield list(settled.values()), again
