"""Pages that are fetched more than once, on PostgreSQL: their last copies, and a new round of all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headway.model.command import PageState
from headway.model.copy import Copy
from headway.model.outcome import Kind, Sighting
from headway.model.page import AGAIN, Page, PageKey, Site
from headway.store.postgres.tables import PLACES
from headway.store.postgres.texts import from_text, to_text
from headway.units import Instant, Seconds

if TYPE_CHECKING:
    import psycopg

ADD_SIGHTINGS = "INSERT INTO sighting SELECT * FROM unnest(%s::bigint[], %s::text[], %s::text[], %s::bytea[])"
# A page that has not changed is what it was: the row says so without a body having come.
KEEP_CONTENTS = """
    UPDATE page SET links = coalesce(page.links, old.links),
        content_bytes = greatest(page.content_bytes, old.content_bytes)
    FROM unnest(%s::bigint[], %s::bigint[]) AS visit (old_id, id) JOIN page AS old ON old.id = visit.old_id
    WHERE page.id = visit.id"""
_FIND_COPIES = """
    SELECT site.site, seen.key, seen.place IS NOT NULL, state, kind, status, content_type, digest, fetched_at,
           page.depth, etag, last_modified, history
    FROM unnest(%s::text[], %s::bigint[]) AS asked (site, key)
    JOIN site ON site.site = asked.site
    JOIN seen ON seen.site_id = site.id AND seen.key = asked.key
    LEFT JOIN page ON page.id = seen.page_id LEFT JOIN sighting ON sighting.page_id = page.id"""
# A page that waits once more after a single visit has none yet, and is to be visited all the same.
_HISTORIES = """
    SELECT site.site, coalesce(sighting.history, '')
    FROM site JOIN seen ON seen.site_id = site.id LEFT JOIN sighting ON sighting.page_id = seen.page_id
    WHERE (sighting.history IS NOT NULL OR (seen.place IS NOT NULL AND seen.page_id IS NOT NULL))"""
_HISTORIES_OF = f"{_HISTORIES} AND site.site = ANY(%s)"
_CHOOSE = f"""
    CREATE TEMP TABLE chosen ON COMMIT DROP AS
    SELECT seen.site_id, (SELECT last_value + 1 FROM {PLACES}) * 1000
               + row_number() OVER (ORDER BY page.depth, page.id) AS place,
           seen.key, page.path, page.depth, CASE WHEN page.kind = %s THEN 0 ELSE %s END AS attempt
    FROM seen JOIN page ON page.id = seen.page_id
    WHERE seen.place IS NULL AND page.kind <> %s AND page.fetched_at <= %s"""  # noqa: S608
_ROUND = (
    f"SELECT setval('{PLACES}', last_value + 2 + (SELECT count(*) FROM chosen) / 1000) FROM {PLACES}",  # noqa: S608
    """INSERT INTO waiting (site_id, place, key, path, depth, attempt, rank)
       SELECT site_id, place, key, path, depth, attempt, 0.0 FROM chosen ORDER BY site_id, place""",
    """UPDATE seen SET place = chosen.place FROM chosen
       WHERE seen.site_id = chosen.site_id AND seen.key = chosen.key""",
    """INSERT INTO holding (site_id) SELECT DISTINCT site_id FROM chosen ORDER BY site_id
       ON CONFLICT DO NOTHING""",
    # Bytes and times are those of the round; pages count as what they are, until they are something else.
    """UPDATE site SET started_at = NULL, ended_at = NULL, wire_bytes = 0, content_bytes = 0
       WHERE free_at IS NOT NULL""",
    # Whatever ranks the pages next finds an order that it does not know, and ranks them anew.
    "UPDATE crawl SET waiting_order = '', ended_at = NULL",
)


def find_copies(
    connection: psycopg.Connection[tuple[Any, ...]], pages: Sequence[Page]
) -> dict[tuple[Site, PageKey], Copy]:
    """What earlier visits have left of pages, but for those never seen."""
    asked = ([to_text(page.site) for page in pages], [page.key for page in pages])
    return {
        (Site(from_text(site)), PageKey(key)): _copy(rest)
        for site, key, *rest in connection.execute(_FIND_COPIES, asked).fetchall()
    }


def histories(
    connection: psycopg.Connection[tuple[Any, ...]], sites: Sequence[Site] | None = None
) -> list[tuple[Site, bytes]]:
    """How every page of these sites, or of all, was found that has been visited and may be visited again."""
    asked = (_HISTORIES,) if sites is None else (_HISTORIES_OF, ([to_text(site) for site in sites],))
    return [(Site(from_text(site)), history) for site, history in connection.execute(*asked).fetchall()]


def begin_round(
    connection: psycopg.Connection[tuple[Any, ...]], now: Instant, older_than_s: Seconds = Seconds(0.0)
) -> int | None:
    """Queue every page of a finished crawl once more, as long as its copy is so old; returns how many.

    Deadlines are reckoned from now. Nothing happens, and None is returned, when pages still wait from before.
    """
    run = connection.execute
    with connection.transaction():
        run("SELECT FROM crawl FOR UPDATE")
        left = run("SELECT FROM waiting WHERE attempt >= 0 OR retry_at IS NULL LIMIT 1").fetchone()
        if left is not None:
            return None
        run(_CHOOSE, (Kind.LIMIT.value, AGAIN, Kind.OUT_OF_SCOPE.value, now - older_than_s))
        row = run("SELECT count(*) FROM chosen").fetchone()
        assert row is not None
        count = int(row[0])
        if count:
            for statement in _ROUND:
                run(statement.encode())
            run("UPDATE waiting SET retry_at = NULL WHERE attempt < 0 AND retry_at <= %s", (now,))
            run("UPDATE crawl SET started_at = %s", (now,))
            run("INSERT INTO round SELECT 1 + count(*), %s, %s FROM round", (now, count))
    return count


def _copy(row: Sequence[Any]) -> Copy:
    is_waiting, state, kind, status, content_type, digest, fetched_at, depth, *rest = row
    if state is None:
        return Copy(PageState.WAITING, None, 0, "", "", Instant(0.0), is_waiting=is_waiting)
    etag, last_modified, history = rest
    sighting = Sighting(from_text(etag or ""), from_text(last_modified or ""), history or b"")
    return Copy(
        PageState(state),
        Kind(kind),
        status,
        from_text(content_type),
        digest,
        Instant(fetched_at),
        depth,
        sighting,
        is_waiting,
    )
