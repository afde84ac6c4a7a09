"""The store's part in recrawls: known contents, last copies, and a new round."""

from __future__ import annotations

import mmap
import os
import sqlite3
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self

import msgspec

from headway.archive.files import clear_errors
from headway.engine.availability import REACHABLE_AGAIN, UNREACHABLE_SINCE
from headway.engine.start_pages import FETCHED, NOT_FETCHED, REDIRECTS, site_of
from headway.model.command import Copy, PageState, SaveAgain, SaveSettled, Saving
from headway.model.page import AGAIN, Kind, Page, PageKey, Sighting, Site
from headway.policy.politeness import TROUBLE, UNREACHABLE
from headway.store import schema
from headway.store.reader import database_of
from headway.units import Instant, Seconds

_BITS = 1 << 24
"""Two mebibytes. With ten million contents it still saves every second query."""


class KnownContents:
    """A Bloom filter: finds everything that was added, and a few other things."""

    __slots__ = ("_bits",)

    def __init__(self, fingerprints: Iterable[int] = ()) -> None:
        self._bits: bytearray | mmap.mmap = bytearray(_BITS // 8)
        for fingerprint in fingerprints:
            self.add(fingerprint)

    def share(self) -> int:
        """An open file without a name: processes that inherit it see additions at once."""
        fd = _nameless_file()
        os.truncate(fd, _BITS // 8)
        shared = mmap.mmap(fd, _BITS // 8)
        shared[:] = bytes(self._bits)
        self._bits = shared
        return fd

    @classmethod
    def shared(cls, fd: int) -> Self:
        """A filter that another process fills, for reading only."""
        known = cls()
        known._bits = mmap.mmap(fd, _BITS // 8, access=mmap.ACCESS_READ)
        return known

    def add(self, fingerprint: int) -> None:
        place = fingerprint % _BITS
        self._bits[place >> 3] |= 1 << (place & 7)

    def may_have(self, fingerprint: int) -> bool:
        place = fingerprint % _BITS
        return bool(self._bits[place >> 3] >> (place & 7) & 1)


def _nameless_file() -> int:
    """In memory if the system supports that, since it need not be on disk."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("headway-known")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


TRANSIENT_NOTICES = (NOT_FETCHED, FETCHED, UNREACHABLE_SINCE, REACHABLE_AGAIN)
ADD_SIGHTING = "INSERT INTO sighting VALUES (?, ?, ?, ?)"
# An unchanged page keeps its state: its row says so without a body.
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
# A page that is queued again after a single visit has no history yet, and is to be visited all the same.
_HISTORIES = """
    SELECT site.site, coalesce(sighting.history, x'')
    FROM site JOIN seen ON seen.site_id = site.id LEFT JOIN sighting ON sighting.page_id = seen.page_id
    WHERE (sighting.history NOT NULL OR (seen.place NOT NULL AND seen.page_id NOT NULL))"""
_HISTORIES_OF = _HISTORIES + " AND site.site IN (SELECT value FROM json_each(?))"  # noqa: S608 - our own words
# A page beyond its site's limit was never requested: the limit treats it as new.
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
    # Bytes and times are those of the round; pages count with their present state until it changes.
    """UPDATE site SET started_at = NULL, ended_at = NULL, wire_bytes = 0, content_bytes = 0
       WHERE free_at NOT NULL""",
    # What failed before is asked for again, and counts if it fails again.
    "DELETE FROM outcome WHERE state IN ('failed', 'waiting')",
    # What trouble a site had is found out again.
    f"DELETE FROM notice WHERE what IN {TRANSIENT_NOTICES!r}",  # noqa: S608 - our own words
    # The next process that ranks the waiting pages finds an unknown order, and ranks them again.
    "UPDATE crawl SET waiting_order = ''",
)


def find_copy(connection: sqlite3.Connection, page: Page) -> Copy | None:
    """What the store has of a page from earlier visits; None for a page never seen."""
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
    """The visit histories of all pages of these sites, or of all sites, that were visited and may be visited
    again."""
    if sites is None:
        return iter(connection.execute(_HISTORIES))
    return iter(connection.execute(_HISTORIES_OF, (msgspec.json.encode(sites).decode(),)))


def begin_round(
    run_folder: Path, now: Instant, older_than_s: Seconds = Seconds(0.0), *, cuts: bool = False
) -> int | None:
    """Queue every page of a finished crawl again, if its copy is old enough; returns how many.

    Deadlines are computed from now. If pages of an earlier round still wait, nothing happens and None is
    returned; with `cuts` they wait in the new round.
    """
    path = database_of(run_folder)
    schema.open_for_reading(path).close()  # raises an error before anything is created
    lock = schema.lock(path)
    try:
        connection = schema.open_for_writing(path)
        try:
            with clear_errors(path):
                return _begin_round(connection, now, older_than_s, cuts=cuts)
        finally:
            schema.close_for_good(connection)
    finally:
        os.close(lock)


def _begin_round(
    connection: sqlite3.Connection, now: Instant, older_than_s: Seconds, *, cuts: bool
) -> int | None:
    run = connection.execute
    (left,) = run("SELECT count(*) FROM waiting WHERE attempt >= 0").fetchone()
    (due,) = run("SELECT count(*) FROM waiting WHERE attempt < 0 AND retry_at IS NULL").fetchone()
    if (left or due) and not cuts:
        return None
    run("BEGIN IMMEDIATE")
    try:
        values = (Kind.LIMIT.value, AGAIN, Kind.OUT_OF_SCOPE.value, now - older_than_s)
        run(_CHOOSE, values)
        (count,) = run("SELECT count(*) FROM chosen").fetchone()
        if count or cuts:
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


# A page that was given up because its server could not be reached is as good as new: another row settles it.
_GIVEN_UP = """
    CREATE TEMP TABLE given_up AS
    SELECT seen.site_id, row_number() OVER (ORDER BY page.id)
               + (SELECT coalesce(max(place), 0) FROM waiting) AS place,
           seen.key, page.path, page.depth, page.kind
    FROM page JOIN seen ON seen.site_id = page.site_id AND seen.key = page.key AND seen.page_id = page.id
    JOIN site ON site.id = page.site_id
    WHERE page.state = 'failed' AND seen.place IS NULL
          AND (page.kind IN (SELECT value FROM json_each(?1))
               OR (site.done = 0 AND page.kind IN (SELECT value FROM json_each(?2))))"""
_TRY_AGAIN = (
    """INSERT INTO waiting (site_id, place, key, path, depth, attempt, rank)
       SELECT site_id, place, key, path, depth, 0, 0.0 FROM given_up ORDER BY site_id, place""",
    """UPDATE seen SET page_id = NULL, place = given_up.place FROM given_up
       WHERE given_up.site_id = seen.site_id AND given_up.key = seen.key""",
    """UPDATE site SET failed = failed - pages, ended_at = NULL, failures_in_a_row = 0
       FROM (SELECT site_id, count(*) AS pages FROM given_up GROUP BY site_id) AS lost
       WHERE lost.site_id = site.id""",
    """UPDATE outcome SET pages = outcome.pages - lost.pages
       FROM (SELECT site_id, kind, count(*) AS pages FROM given_up GROUP BY site_id, kind) AS lost
       WHERE lost.site_id = outcome.site_id AND lost.kind = outcome.kind AND state = 'failed'""",
    "DELETE FROM outcome WHERE pages <= 0",
    "UPDATE crawl SET waiting_order = ''",
)


def try_again(connection: sqlite3.Connection) -> int:
    """Queue the pages whose servers could not be reached in earlier sessions; returns how many. The caller
    ranks the waiting pages, in the same transaction or the next."""
    sites_down = sorted((UNREACHABLE | {Kind.ROBOTS_UNREACHABLE}) - {Kind.THROTTLED})
    (has_failed,) = connection.execute("SELECT EXISTS (SELECT 1 FROM site WHERE failed > 0)").fetchone()
    if not has_failed:
        return 0
    kinds = (msgspec.json.encode(sites_down).decode(), msgspec.json.encode(sorted(TROUBLE)).decode())
    connection.execute(_GIVEN_UP, kinds)
    (count,) = connection.execute("SELECT count(*) FROM given_up").fetchone()
    if count:
        for statement in _TRY_AGAIN:
            connection.execute(statement)
    connection.execute("DROP TABLE given_up")
    return int(count)


Limits = tuple[int | None, int | None]
"""The `max_pages` and `max_bytes` of a site."""
LimitsOf = Callable[[Collection[Site]], Mapping[Site, Limits]]
"""The limits that the job gives to sites; those that it does not name are missing."""

_LIMITED = """
    SELECT site.site, site.id, max_pages, max_bytes, site.done, site.wire_bytes
    FROM site JOIN task ON task.site_id = site.id
    WHERE (max_pages > 0 OR (max_pages IS NULL AND max_bytes NOT NULL))
          AND site.id IN (SELECT site_id FROM outcome WHERE kind = ? AND pages > 0)"""
_LEADS_TO = (
    "SELECT notice.subject, site.site FROM notice JOIN site ON site.id = notice.site_id WHERE what = ?"
)
_LEFT_OUT = """
    CREATE TEMP TABLE left_out AS
    SELECT seen.site_id, row_number() OVER (ORDER BY page.depth, page.id)
               + (SELECT coalesce(max(place), 0) FROM waiting) AS place,
           seen.key, page.path, page.depth
    FROM page JOIN seen ON seen.site_id = page.site_id AND seen.key = page.key AND seen.page_id = page.id
    WHERE page.kind = ? AND page.state = 'excluded' AND page.detail = '' AND seen.place IS NULL
          AND page.site_id IN (SELECT value FROM json_each(?))"""
_TAKE_IN = (
    """INSERT INTO waiting (site_id, place, key, path, depth, attempt, rank)
       SELECT site_id, place, key, path, depth, 0, 0.0 FROM left_out ORDER BY site_id, place""",
    """UPDATE seen SET page_id = NULL, place = left_out.place FROM left_out
       WHERE left_out.site_id = seen.site_id AND left_out.key = seen.key""",
    """UPDATE site SET excluded = excluded - pages, ended_at = NULL
       FROM (SELECT site_id, count(*) AS pages FROM left_out GROUP BY site_id) AS found
       WHERE found.site_id = site.id""",
    f"""UPDATE outcome SET pages = outcome.pages - found.pages
       FROM (SELECT site_id, count(*) AS pages FROM left_out GROUP BY site_id) AS found
       WHERE found.site_id = outcome.site_id AND kind = '{Kind.LIMIT}' AND reason = ''""",  # noqa: S608
    "DELETE FROM outcome WHERE pages <= 0",
    "UPDATE crawl SET waiting_order = ''",
)


def take_in_left_out(connection: sqlite3.Connection, limits_of: LimitsOf) -> int:
    """Queue the pages beyond the limits of sites whose limits the job has raised; returns how many.
    The caller ranks the waiting pages, in the same transaction or the next."""
    limited = connection.execute(_LIMITED, (Kind.LIMIT.value,)).fetchall()
    if not limited:
        return 0
    # A site to which another one leads has the limits of that one.
    sources = {site_of(url): source for url, source in connection.execute(_LEADS_TO, (REDIRECTS,))}
    found = limits_of({site for site, *_ in limited} | set(sources.values()))
    raised = []
    for site, number, max_pages, max_bytes, done, wire_bytes in limited:
        origin, passed = site, {site}
        while origin not in found and (source := sources.get(origin)) is not None and source not in passed:
            passed.add(source)
            origin = source
        if (limits := found.get(origin)) is None or limits == (max_pages, max_bytes):
            continue
        if (limits[0] is None or done < limits[0]) and (limits[1] is None or wire_bytes < limits[1]):
            raised.append(number)
    if not raised:
        return 0
    connection.execute(_LEFT_OUT, (Kind.LIMIT.value, msgspec.json.encode(raised).decode()))
    (count,) = connection.execute("SELECT count(*) FROM left_out").fetchone()
    if count:
        for statement in _TAKE_IN:
            connection.execute(statement)
    connection.execute("DROP TABLE left_out")
    return int(count)


def in_turn(batch: Iterable[Saving]) -> Iterator[tuple[list[SaveSettled], list[SaveAgain]]]:
    """Settled pages and pages queued again, in parts: within each, a page settles once, and is
    queued again only after that; nearly always one part."""
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
