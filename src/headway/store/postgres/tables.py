"""The tables on PostgreSQL: those of `crawl.sqlite` in its dialect, and those that a fleet needs beside them.

Every change of the tables is a numbered step. A crawl is begun at the last one; an older one is brought up
when `headway crawl` opens it, and refused by everybody else until then.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headway.errors import StoreError
from headway.store import schema
from headway.store.postgres.address import Address
from headway.version import __version__

if TYPE_CHECKING:
    import psycopg

VERSION = schema.VERSION
_TO_2 = """
ALTER TABLE crawl ADD COLUMN waiting_order text NOT NULL DEFAULT '';
ALTER TABLE crawl ALTER COLUMN waiting_order DROP DEFAULT;
ALTER TABLE site ADD COLUMN looked_at double precision, ADD COLUMN waiting bigint,
    ADD COLUMN left_bytes double precision, ADD COLUMN share_bytes_per_s double precision,
    ADD COLUMN forecast_from_at double precision, ADD COLUMN forecast_to_at double precision;
CREATE TABLE course (
    site_id bigint NOT NULL,
    at double precision NOT NULL,
    wire_bytes bigint NOT NULL,
    waiting bigint NOT NULL,
    left_bytes double precision,
    share_bytes_per_s double precision,
    forecast_from_at double precision,
    forecast_to_at double precision,
    PRIMARY KEY (site_id, at)
);
ALTER TABLE waiting ADD COLUMN rank double precision NOT NULL DEFAULT 0;
ALTER TABLE waiting ALTER COLUMN rank DROP DEFAULT;
CREATE INDEX waiting_in_order ON waiting (site_id, rank, place);
ALTER TABLE page ADD COLUMN fingerprint bigint;
CREATE TABLE sighting (page_id bigint PRIMARY KEY, etag text, last_modified text, history bytea);
CREATE TABLE round (number bigint PRIMARY KEY, started_at double precision NOT NULL, pages bigint NOT NULL);
CREATE TABLE notice (
    site_id bigint NOT NULL,
    what text NOT NULL,
    subject text NOT NULL,
    noticed_at double precision NOT NULL,
    PRIMARY KEY (site_id, what, subject)
);
ALTER TABLE sample ADD COLUMN predicted_bytes_per_s double precision, ADD COLUMN in_flight bigint,
    ADD COLUMN waiting bigint, ADD COLUMN done bigint, ADD COLUMN failed bigint, ADD COLUMN is_paused bigint;
"""
UPGRADES: Mapping[int, str] = {2: _TO_2}
"""By the version that they lead to: the statements that make it from the one before."""
PAGE_IDS, PLACES = "page_id_blocks", "place_blocks"
BLOCK = 1000
"""Pages and places are numbered in blocks: each writer draws one, and uses it up without asking."""

_FLEET = f"""
CREATE TABLE version (version bigint PRIMARY KEY, made_by text NOT NULL, at timestamptz DEFAULT now());
CREATE SEQUENCE {PAGE_IDS};
CREATE SEQUENCE {PLACES};
ALTER TABLE crawl ADD COLUMN ended_at double precision;
-- One row for each time that a collector joined. A row whose time is over never comes to life again.
CREATE TABLE collector (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL,
    label text NOT NULL,
    version text NOT NULL,
    joined_at double precision NOT NULL,
    until_at double precision NOT NULL,
    is_gone boolean NOT NULL DEFAULT false,
    is_leaving boolean NOT NULL DEFAULT false,
    last_batch bigint NOT NULL DEFAULT 0,
    taken_share bigint NOT NULL DEFAULT 0,
    second bigint NOT NULL DEFAULT 0,
    received_bytes bigint NOT NULL DEFAULT 0,
    report bytea NOT NULL DEFAULT ''
) WITH (fillfactor = 50);
CREATE INDEX collector_here ON collector (id) WHERE NOT is_gone;
-- What a collector may read until an instant. The newest that it has taken is the one that counts.
CREATE TABLE share (
    collector_id bigint NOT NULL REFERENCES collector,
    number bigint GENERATED ALWAYS AS IDENTITY,
    rate_bytes_per_s double precision NOT NULL,
    until_at double precision NOT NULL,
    PRIMARY KEY (collector_id, number)
);
-- Who has which site. A site without a holder is to be given to one.
CREATE TABLE holding (
    site_id bigint PRIMARY KEY REFERENCES site,
    collector_id bigint REFERENCES collector,
    is_taken boolean NOT NULL DEFAULT false,
    is_asked_back boolean NOT NULL DEFAULT false,
    soiled_until double precision
) WITH (fillfactor = 70);
CREATE INDEX holding_by_collector ON holding (collector_id) WHERE NOT is_taken OR is_asked_back;
CREATE INDEX holding_of ON holding (collector_id);
-- Pages found by somebody who does not hold their site, for whoever does. They wait in `waiting` as well.
CREATE TABLE mail (
    site_id bigint NOT NULL,
    place bigint NOT NULL,
    PRIMARY KEY (site_id, place)
);
CREATE TABLE latency (
    site_id bigint NOT NULL,
    label text NOT NULL,
    round_trip_s double precision NOT NULL,
    PRIMARY KEY (site_id, label)
);
ALTER TABLE seen SET (fillfactor = 80);
ALTER TABLE site SET (fillfactor = 50);
ALTER TABLE waiting SET (autovacuum_vacuum_scale_factor = 0.02);
"""


def translated(statements: str) -> str:
    """From SQLite's dialect."""
    text = re.sub(r"--[^\n]*", "", statements).replace("WITHOUT ROWID", "")
    text = re.sub(r"\bid INTEGER PRIMARY KEY", "id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY", text)
    for ours, theirs in (("INTEGER", "bigint"), ("REAL", "double precision"), ("BLOB", "bytea")):
        text = re.sub(rf"\b{ours}\b", theirs, text)
    return text


def translated_query(query: str) -> str:
    text = query.replace("%", "%%").replace("?", "%s")
    text, conflicts = re.subn(r"INSERT OR (REPLACE|IGNORE)", "INSERT", text)
    return re.sub(r"(?<!IS) NOT NULL", " IS NOT NULL", text) + " ON CONFLICT DO NOTHING" * conflicts


def open_or_make(address: Address, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
    """The tables of this crawl, made or brought up where they are not the newest."""
    with address.clear_errors(), connection.transaction():
        # Two who begin at once: one makes, the other finds.
        connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (address.schema,))
        version = _version_of(address, connection)
        if version is None:
            _run(connection, f"CREATE SCHEMA IF NOT EXISTS {address.schema}")
            _run(connection, translated(schema.TABLES) + _FLEET)
            _note_version(connection, VERSION)
            return
        for step in range(version + 1, VERSION + 1):
            if step not in UPGRADES:
                raise _other_version(address, version)
            _run(connection, UPGRADES[step])
            _note_version(connection, step)
        if version > VERSION:
            raise _other_version(address, version)


def check_version(address: Address, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
    """StoreError where there is no crawl of this name, or one of another make."""
    with address.clear_errors():
        version = _version_of(address, connection)
    if version is None:
        raise StoreError(
            f"{address.shown}: there is no crawl named {address.name!r} in this database; "
            f"begin one with: headway crawl JOB.toml --store ..."
        )
    if version != VERSION:
        raise _other_version(address, version)


def _version_of(address: Address, connection: psycopg.Connection[tuple[Any, ...]]) -> int | None:
    row = connection.execute("SELECT to_regclass(%s)", (f"{address.schema}.version",)).fetchone()
    if row is None or row[0] is None:
        return None
    row = connection.execute("SELECT max(version) FROM version").fetchone()
    return None if row is None else row[0]


def _note_version(connection: psycopg.Connection[tuple[Any, ...]], version: int) -> None:
    connection.execute("INSERT INTO version (version, made_by) VALUES (%s, %s)", (version, __version__))


def _other_version(address: Address, version: int) -> StoreError:
    if version > VERSION:
        cure = "install the newer headway here"
    else:
        cure = (
            "take it up once with this headway's `headway crawl JOB --store ...`, which brings it up"
            if all(step in UPGRADES for step in range(version + 1, VERSION + 1))
            else "finish it with the headway that wrote it, or give the new crawl another name after the #"
        )
    return StoreError(f"{address.shown}: its tables have version {version}, this headway's {VERSION}; {cure}")


def _run(connection: psycopg.Connection[tuple[Any, ...]], statements: str) -> None:
    connection.execute(statements.encode())
