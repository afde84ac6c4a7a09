"""After a power cut on a collector's machine: files of its folder that are shorter than was committed.

As in a run folder, pages whose captures were lost are queued once more, and so are those that refer to a lost
capture as theirs; whoever holds their sites hears of them. What a log has lost stays lost.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.store.mending import end_of_whole_lines, end_of_whole_records, shortened
from headway.store.postgres.tables import BLOCK, PLACES
from headway.store.postgres.texts import to_text
from headway.store.warc import ARCHIVE_FOLDER

if TYPE_CHECKING:
    import psycopg

_CHOOSE_LOST = """
    CREATE TEMP TABLE lost ON COMMIT DROP AS
    SELECT page.id, page.site_id, page.key, page.digest FROM page JOIN file ON file.id = page.file_id
    JOIN unnest(%s::text[], %s::bigint[]) AS short (name, length_bytes) ON short.name = file.name
    WHERE warc_offset + warc_length > short.length_bytes"""
_ADD_REFERRING = """
    INSERT INTO lost SELECT id, site_id, key, digest FROM page WHERE record_type = 'revisit'
    AND digest IN (SELECT digest FROM lost WHERE digest <> '') AND id NOT IN (SELECT id FROM lost)"""
_PLACE = f"""
    CREATE TEMP TABLE placed ON COMMIT DROP AS
    SELECT page.site_id, (SELECT last_value + 1 FROM {PLACES}) * {BLOCK}
               + row_number() OVER (ORDER BY page.id) AS place, page.key, page.path, page.depth
    FROM lost JOIN page ON page.id = lost.id
    JOIN seen ON seen.site_id = page.site_id AND seen.key = page.key
    WHERE seen.page_id = page.id AND seen.place IS NULL"""  # noqa: S608
_CHANGES = (
    f"SELECT setval('{PLACES}', last_value + 2 + (SELECT count(*) FROM placed) / {BLOCK}) FROM {PLACES}",  # noqa: S608
    """INSERT INTO waiting (site_id, place, key, path, depth, attempt, rank)
       SELECT site_id, place, key, path, depth, 0, 0.0 FROM placed""",
    """UPDATE seen SET place = placed.place FROM placed
       WHERE seen.site_id = placed.site_id AND seen.key = placed.key""",
    "INSERT INTO mail SELECT site_id, place FROM placed",
    """INSERT INTO holding (site_id) SELECT DISTINCT site_id FROM placed ORDER BY site_id
       ON CONFLICT DO NOTHING""",
    "UPDATE site SET ended_at = NULL WHERE id IN (SELECT site_id FROM placed)",
    "UPDATE crawl SET ended_at = NULL WHERE EXISTS (SELECT FROM placed)",
    """UPDATE page SET file_id = NULL, warc_offset = NULL, warc_length = NULL, record_type = NULL
       WHERE id IN (SELECT id FROM lost)""",
    "DELETE FROM content WHERE page_id IN (SELECT id FROM lost)",
)


def mend(
    connection: psycopg.Connection[tuple[Any, ...]],
    folder: Path,
    committed_lengths: Mapping[str, int],
    prefix: str,
) -> str:
    """Make up for files that are too short; returns what was done, empty if nothing. `prefix` goes before a
    file's name in the database."""
    short = shortened(folder, committed_lengths)
    if not short:
        return ""
    ends = {
        name: end_of_whole_records(folder / name, length)
        if name.startswith(f"{ARCHIVE_FOLDER}/")
        else end_of_whole_lines(folder / name)
        for name, length in short.items()
    }
    names, lengths = [to_text(prefix + name) for name in ends], list(ends.values())
    with connection.transaction():
        connection.execute(_CHOOSE_LOST, (names, lengths))
        connection.execute(_ADD_REFERRING)
        connection.execute(_PLACE.encode())
        row = connection.execute("SELECT count(*) FROM placed").fetchone()
        for statement in _CHANGES:
            connection.execute(statement.encode())
        connection.execute(
            "UPDATE file SET length_bytes = short.length_bytes FROM unnest(%s::text[], %s::bigint[]) "
            "AS short (name, length_bytes) WHERE file.name = short.name",
            (names, lengths),
        )
    for name, end in ends.items():
        os.truncate(folder / name, end)
    assert row is not None
    files = ", ".join(sorted(short))
    return f"{files} lost their ends, as in a power cut; {row[0]} pages are fetched again"
