"""The tables on PostgreSQL: those of `crawl.sqlite` in its dialect, those of a fleet, and the statements on
them; whole columns as binary arrays, and the numbers by which rows refer to each other."""

from __future__ import annotations

import re
import secrets
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headway.engine.seen import check_bits
from headway.errors import StoreError
from headway.model.page import Site
from headway.pages.url import SECRET_BYTES, key_of
from headway.store import schema
from headway.store.postgres.connection import Address, from_text, to_text
from headway.store.repair import NewKeys
from headway.store.rows import url_of
from headway.version import __version__

if TYPE_CHECKING:
    import psycopg
    from psycopg.abc import Buffer
    from psycopg.adapt import Dumper

NAME_SITES = """
    INSERT INTO site (site) SELECT name FROM unnest(%s::text[]) AS name ORDER BY name
    ON CONFLICT DO NOTHING"""
FIND_SITES = "SELECT id, site FROM site WHERE site = ANY(%s::text[])"
NAME_FILES = """
    INSERT INTO file (name) SELECT name FROM unnest(%s::text[]) AS name ORDER BY name
    ON CONFLICT DO NOTHING"""
FIND_FILES = "SELECT id, name FROM file WHERE name = ANY(%s::text[])"
PUT_FILES = """
    UPDATE file SET length_bytes = new.length_bytes
    FROM unnest(%s::bigint[], %s::bigint[]) AS new (id, length_bytes) WHERE file.id = new.id"""
DRAW_BLOCKS = "SELECT nextval(%s) FROM generate_series(1, %s)"

ADD_SEEN = """
    INSERT INTO seen (site_id, key, place, check_bits)
    SELECT * FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[])
    ON CONFLICT DO NOTHING RETURNING place"""
FIND_CHECKS = """
    SELECT seen.site_id, seen.key, coalesce(seen.check_bits, 0)
    FROM unnest(%s::bigint[], %s::bigint[]) AS asked (site_id, key)
    JOIN seen ON seen.site_id = asked.site_id AND seen.key = asked.key"""
FIND_SEEN = """
    SELECT seen.site_id, seen.key, seen.place, seen.page_id, page.state, page.kind
    FROM unnest(%s::bigint[], %s::bigint[]) AS asked (site_id, key)
    JOIN seen ON seen.site_id = asked.site_id AND seen.key = asked.key
    LEFT JOIN page ON page.id = seen.page_id"""
RETRY_LATER = """
    UPDATE waiting SET attempt = new.attempt, retry_at = new.retry_at
    FROM unnest(%s::bigint[], %s::double precision[], %s::bigint[], %s::bigint[])
        AS new (attempt, retry_at, site_id, place)
    WHERE waiting.site_id = new.site_id AND waiting.place = new.place"""
DROP_WAITING = """
    DELETE FROM waiting USING unnest(%s::bigint[], %s::bigint[]) AS old (site_id, place)
    WHERE waiting.site_id = old.site_id AND waiting.place = old.place"""
PUT_SEEN = """
    INSERT INTO seen (place, page_id, site_id, key, check_bits)
    SELECT * FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[])
    ON CONFLICT (site_id, key) DO UPDATE SET place = excluded.place, page_id = excluded.page_id"""
ADD_CONTENT = """
    INSERT INTO content SELECT * FROM unnest(%s::bigint[], %s::bigint[]) ON CONFLICT DO NOTHING"""
ADD_MAIL = "INSERT INTO mail SELECT * FROM unnest(%s::bigint[], %s::bigint[]) ON CONFLICT DO NOTHING"
ADD_HOLDINGS = """
    INSERT INTO holding (site_id) SELECT id FROM unnest(%s::bigint[]) AS id ORDER BY id
    ON CONFLICT DO NOTHING"""

PUT_TASKS = """
    INSERT INTO task (position, site_id, seeds, deadline_at, weight, max_pages, max_bytes, expected_bytes,
                      cap_bytes_per_s)
    SELECT * FROM unnest(%s::bigint[], %s::bigint[], %s::text[], %s::double precision[],
                         %s::double precision[], %s::bigint[], %s::bigint[], %s::bigint[],
                         %s::double precision[])
    ON CONFLICT (site_id) DO UPDATE SET seeds = excluded.seeds, deadline_at = excluded.deadline_at,
        weight = excluded.weight, max_pages = excluded.max_pages, max_bytes = excluded.max_bytes,
        expected_bytes = excluded.expected_bytes, cap_bytes_per_s = excluded.cap_bytes_per_s"""
PUT_SITES = """
    UPDATE site SET free_at = new.free_at, failures_in_a_row = new.failures, ended_at = new.ended_at
    FROM unnest(%s::double precision[], %s::bigint[], %s::double precision[], %s::bigint[])
        AS new (free_at, failures, ended_at, id)
    WHERE site.id = new.id"""
PUT_ROBOTS = """
    INSERT INTO robots SELECT * FROM unnest(%s::bigint[], %s::text[], %s::double precision[])
    ON CONFLICT (site_id) DO UPDATE SET text = coalesce(excluded.text, robots.text),
        expires_at = coalesce(excluded.expires_at, robots.expires_at)"""
ADD_SUMS = """
    UPDATE site SET done = site.done + new.done, failed = site.failed + new.failed,
        excluded = site.excluded + new.excluded, wire_bytes = site.wire_bytes + new.wire_bytes,
        content_bytes = site.content_bytes + new.content_bytes,
        started_at = coalesce(site.started_at, new.started_at), free_at = coalesce(site.free_at, 0)
    FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::double precision[],
                %s::bigint[])
        AS new (done, failed, excluded, wire_bytes, content_bytes, started_at, id)
    WHERE site.id = new.id"""
COUNT_OUTCOMES = """
    INSERT INTO outcome SELECT * FROM unnest(%s::bigint[], %s::text[], %s::text[], %s::text[], %s::bigint[])
    ON CONFLICT (site_id, state, kind, reason) DO UPDATE SET pages = outcome.pages + excluded.pages"""
PUT_SERVERS = """
    INSERT INTO server SELECT * FROM unnest(%s::text[], %s::bytea[])
    ON CONFLICT (address) DO UPDATE SET rates = excluded.rates"""
PUT_NOTICES = """
    INSERT INTO notice (site_id, what, subject, noticed_at)
    SELECT * FROM unnest(%s::bigint[], %s::text[], %s::text[], %s::double precision[])
    ON CONFLICT DO NOTHING"""
FIND_CONTENT = """
    SELECT site.site, page.path, page.fetched_at, page.payload_digest
    FROM content JOIN page ON page.id = content.page_id JOIN site ON site.id = page.site_id
    WHERE content.fingerprint = %s AND page.digest = %s"""
FIND_CONTENTS = """
    SELECT asked.digest, site.site, page.path, page.fetched_at, page.payload_digest
    FROM unnest(%s::bigint[], %s::text[]) AS asked (fingerprint, digest)
    JOIN content ON content.fingerprint = asked.fingerprint
    JOIN page ON page.id = content.page_id AND page.digest = asked.digest
    JOIN site ON site.id = page.site_id"""
COLUMN_TYPES = """
    SELECT table_name, data_type FROM information_schema.columns
    WHERE table_schema = %s AND table_name = ANY(%s) ORDER BY ordinal_position"""
COUNT_WAITING = """
    SELECT site.site, count(*), min(rank) FROM waiting JOIN site ON site.id = site_id
    WHERE %(sites)s::bigint[] IS NULL OR site_id = ANY(%(sites)s) GROUP BY site.id ORDER BY site.id"""
WAITING_BY_SITE = """
    SELECT site.site, path, key, depth, coalesce(score, 0.0), attempt, retry_at
    FROM waiting JOIN site ON site.id = site_id
    WHERE %(sites)s::bigint[] IS NULL OR site_id = ANY(%(sites)s) ORDER BY site_id, rank, place"""
FIRST_WAITING = """
    SELECT path, key, depth, coalesce(score, 0.0), attempt, retry_at
    FROM waiting WHERE site_id = %s ORDER BY rank, place LIMIT %s"""
FIRST_DUE = """
    SELECT path, key, depth, coalesce(score, 0.0), attempt, retry_at FROM waiting
    WHERE site_id = %s AND (retry_at IS NULL OR retry_at <= %s) ORDER BY rank, place LIMIT %s"""
FIRST_DUE_OF_EACH = """
    SELECT site.site, path, key, depth, coalesce(score, 0.0), attempt, retry_at
    FROM unnest(%(sites)s::bigint[]) AS wanted (site_id) JOIN site ON site.id = wanted.site_id
    CROSS JOIN LATERAL (
        SELECT path, key, depth, score, attempt, retry_at, rank, place FROM waiting
        WHERE waiting.site_id = wanted.site_id AND (retry_at IS NULL OR retry_at <= %(due_by)s)
        ORDER BY rank, place LIMIT %(each)s
    ) AS first ORDER BY site.id, rank, place"""
COUNT_DUE = """
    SELECT site.id, site.site, count(*) FROM waiting JOIN site ON site.id = site_id
    WHERE site_id = ANY(%(sites)s) AND (retry_at IS NULL OR retry_at <= %(due_by)s)
    GROUP BY site.id ORDER BY site.id"""
PUT_OFF = """
    SELECT site, path, key, depth, coalesce(score, 0.0), attempt, retry_at
    FROM waiting JOIN site ON site.id = waiting.site_id
    WHERE site_id = ANY(%(sites)s) AND retry_at > %(due_by)s ORDER BY place"""
ALL_WAITING = """
    SELECT site_id, place, site, path, key, depth, coalesce(score, 0.0)
    FROM waiting JOIN site ON site.id = waiting.site_id"""
RANK_ANEW = """
    UPDATE waiting SET rank = new.rank
    FROM unnest(%s::bigint[], %s::bigint[], %s::double precision[]) AS new (site_id, place, rank)
    WHERE waiting.site_id = new.site_id AND waiting.place = new.place"""


# The tables on PostgreSQL: those of `crawl.sqlite` in its dialect, and those that a fleet needs beside them.
#
# Every change of the tables is a numbered step. A new crawl starts with the last one; an older one is
# upgraded when `headway crawl` opens it, and refused by all other commands until then.

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
PAGE_IDS, PLACES = "page_id_blocks", "place_blocks"
BLOCK = 1000
"""Pages and places are numbered in blocks: each writer draws a block, and uses it without further queries."""

GROUP_LEASES = """
-- Which collector may request which server or domain (`policy.server_groups`).
CREATE TABLE IF NOT EXISTS group_lease (
    key text PRIMARY KEY,
    collector_id bigint,
    free_at double precision NOT NULL DEFAULT 0,
    wanted_by bigint,
    wanted_at double precision
) WITH (fillfactor = 70);
CREATE INDEX IF NOT EXISTS group_lease_wanted ON group_lease (collector_id) WHERE wanted_by IS NOT NULL;
"""

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
    report bytea NOT NULL DEFAULT '',
    -- The link behind which it is, and what it does there, if it yields to other users.
    link text NOT NULL DEFAULT '',
    link_use bytea
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
-- Pages found by a collector that does not hold their site, for its holder. They wait in `waiting` as well.
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
{GROUP_LEASES}
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


_FLEET_TO: Mapping[int, str] = {
    5: "; ALTER TABLE collector ADD COLUMN link text NOT NULL DEFAULT '', ADD COLUMN link_use bytea",
}
UPGRADES: Mapping[int, str] = {2: _TO_2} | {
    version: translated(schema.upgrade_to(version)) + _FLEET_TO.get(version, "") for version in schema.ADDED
}
"""By the version that they lead to: the statements that upgrade from the version before."""


def translated_query(query: str) -> str:
    text = query.replace("%", "%%").replace("?", "%s")
    text, conflicts = re.subn(r"INSERT OR (REPLACE|IGNORE)", "INSERT", text)
    return re.sub(r"(?<!IS) NOT NULL", " IS NOT NULL", text) + " ON CONFLICT DO NOTHING" * conflicts


def open_or_make(address: Address, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
    """Create the tables of this crawl, or upgrade them."""
    with address.clear_errors(), connection.transaction():
        # If two processes begin at once, one creates them and the other finds them.
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
            if step == schema.KEYED_SINCE:
                _give_new_keys(connection)
            _note_version(connection, step)
        if version > VERSION:
            raise _other_version(address, version)
        if connection.execute("SELECT to_regclass('group_lease')").fetchone() == (None,):
            _run(connection, GROUP_LEASES)


_OLD_KEYS = """
    SELECT seen.site_id, seen.key, site.site, coalesce(waiting.path, page.path)
    FROM seen JOIN site ON site.id = seen.site_id
    LEFT JOIN waiting ON waiting.site_id = seen.site_id AND waiting.place = seen.place
    LEFT JOIN page ON page.id = seen.page_id
    WHERE coalesce(waiting.path, page.path) IS NOT NULL"""
_NEW_KEYS = """
    CREATE INDEX ON rekeyed (site_id, old);
    ANALYZE rekeyed;
    UPDATE waiting SET key = new.key FROM rekeyed AS new
    WHERE new.site_id = waiting.site_id AND new.old = waiting.key;
    UPDATE page SET key = new.key FROM rekeyed AS new WHERE new.site_id = page.site_id AND new.old = page.key;
    UPDATE seen SET key = new.key, check_bits = new.check_bits FROM rekeyed AS new
    WHERE new.site_id = seen.site_id AND new.old = seen.key;"""
_ROWS_AT_ONCE = 10_000


def _give_new_keys(connection: psycopg.Connection[tuple[Any, ...]]) -> None:
    """As `repair.give_new_keys`, within a transaction of the caller."""
    if connection.execute("SELECT FROM crawl").fetchone() is None:
        return  # it gets its secret when it is begun
    secret = secrets.token_bytes(SECRET_BYTES)
    connection.execute("UPDATE crawl SET secret = %s", (secret,))
    connection.execute(
        "CREATE TEMP TABLE rekeyed (site_id bigint, old bigint, key bigint, check_bits bigint) ON COMMIT DROP"
    )
    with connection.cursor("known_pages") as known:
        known.execute(_OLD_KEYS)
        while found := known.fetchmany(_ROWS_AT_ONCE):
            urls = [url_of(from_text(path), Site(from_text(site))) for _, _, site, path in found]
            connection.execute(
                "INSERT INTO rekeyed "
                "SELECT * FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[])",
                (
                    [row[0] for row in found],
                    [row[1] for row in found],
                    [key_of(url, secret) for url in urls],
                    [check_bits(url) for url in urls],
                ),
            )
    _run(connection, _NEW_KEYS)
    with connection.cursor("pairs") as pairs:
        pairs.itersize = _ROWS_AT_ONCE
        pairs.execute("SELECT old, key FROM rekeyed")
        keys = NewKeys(pairs)
    with connection.cursor("linking_pages") as linking:
        linking.execute("SELECT id, links FROM page WHERE links IS NOT NULL")
        while found := linking.fetchmany(_ROWS_AT_ONCE):
            connection.execute(
                "UPDATE page SET links = new.links FROM unnest(%s::bigint[], %s::bytea[]) AS new (id, links) "
                "WHERE page.id = new.id",
                ([row[0] for row in found], [keys.of_links(bytes(row[1])) for row in found]),
            )


def check_version(address: Address, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
    """StoreError if there is no crawl of this name, or one of another version."""
    with address.clear_errors():
        version = _version_of(address, connection)
    if version is None:
        raise StoreError(
            f"{address.shown}: there is no crawl named {address.name!r} in this database; "
            f"start one with: headway crawl JOB.toml --store ..."
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
        cure = "install the newer version of headway here"
    else:
        cure = (
            "open it once with this version's `headway crawl JOB --store ...`, which upgrades it"
            if all(step in UPGRADES for step in range(version + 1, VERSION + 1))
            else "finish it with the version that wrote it, or give the new crawl another name after the #"
        )
    return StoreError(
        f"{address.shown}: its tables have version {version}, this headway uses version {VERSION}; {cure}"
    )


def _run(connection: psycopg.Connection[tuple[Any, ...]], statements: str) -> None:
    connection.execute(statements.encode())


# The driver's own conversion takes a microsecond per element, and a commit has tens of thousands of them.

_INT8, _FLOAT8, _TEXT, _BYTEA = (20, 1016), (701, 1022), (25, 1009), (17, 1001)
"""The type of an element, and of the array."""
_HEADER = struct.Struct("!iiIii")
_NULL = b"\xff\xff\xff\xff"


class _Column(bytes):
    """An array, ready to be sent."""


class Integers(_Column): ...


class Floats(_Column): ...


class Texts(_Column): ...


class Blobs(_Column): ...


def integers(values: Sequence[int | None]) -> Integers:
    return Integers(_numbers(values, _INT8[0], ">i8", "!iq"))


def floats(values: Sequence[float | None]) -> Floats:
    return Floats(_numbers(values, _FLOAT8[0], ">f8", "!id"))


def texts(values: Sequence[str | None]) -> Texts:
    return Texts(_joined([None if text is None else to_text(text).encode() for text in values], _TEXT[0]))


def blobs(values: Sequence[bytes | None]) -> Blobs:
    return Blobs(_joined(values, _BYTEA[0]))


MAKERS: dict[str, Any] = {
    "bigint": integers,
    "double precision": floats,
    "text": texts,
    "bytea": blobs,
}
"""By the name of the column's type."""


def columns(rows: Iterable[Sequence[Any]], types: Sequence[str]) -> list[_Column]:
    """Rows turned into arrays, one for each column."""
    turned = list(zip(*rows, strict=True)) or [()] * len(types)
    return [MAKERS[name](values) for name, values in zip(types, turned, strict=True)]


def register(connection: psycopg.BaseConnection[Any]) -> None:
    for column, oid in ((Integers, _INT8[1]), (Floats, _FLOAT8[1]), (Texts, _TEXT[1]), (Blobs, _BYTEA[1])):
        connection.adapters.register_dumper(column, _dumper_for(oid))


def _dumper_for(array_oid: int) -> type[Dumper]:
    from psycopg.adapt import Dumper
    from psycopg.pq import Format

    class ColumnDumper(Dumper):
        format = Format.BINARY
        oid = array_oid

        def dump(self, obj: Any) -> Buffer | None:
            return bytes(obj)

    return ColumnDumper


def _header(count: int, oid: int) -> bytes:
    return _HEADER.pack(1, 1, oid, count, 1) if count else struct.pack("!iiI", 0, 0, oid)


def _numbers(values: Sequence[float | None], oid: int, code: str, one: str) -> bytes:
    header = _header(len(values), oid)
    if None in values:
        pack = struct.Struct(one).pack
        return header + b"".join([_NULL if value is None else pack(8, value) for value in values])
    cells = np.empty(len(values), dtype=[("length", ">i4"), ("value", code)])
    cells["length"] = 8
    cells["value"] = values
    return header + cells.tobytes()


def _joined(values: Sequence[bytes | None], oid: int) -> bytes:
    parts = [_header(len(values), oid)]
    for value in values:
        if value is None:
            parts.append(_NULL)
        else:
            parts.append(len(value).to_bytes(4, "big"))
            parts.append(value)
    return b"".join(parts)


class Numbers:
    """Call `prepare` with everything that a batch will need; afterwards nothing here waits for the database.

    Numbers that were drawn but not used, because a commit failed, are skipped forever.
    """

    def __init__(self, place: str) -> None:
        self._place = place
        self._site_ids: dict[str, int] = {}
        self._file_ids: dict[str, int] = {}
        self._page_ids: list[range] = []
        self._places: list[range] = []
        self._next_position: int | None = None
        self.held_site_ids: set[int] = set()
        """Sites that are known to have a row in `holding`."""

    def site_id(self, site: str) -> int:
        return self._site_ids[site]

    def file_id(self, name: str) -> int:
        return self._file_ids[name]

    def take_place(self) -> int:
        return _take(self._places)

    def take_page_id(self) -> int:
        return _take(self._page_ids)

    def take_positions(self, count: int) -> range:
        """Of tasks, in the order in which they came. Two processes that add tasks at the same time may take
        the same ones: the tasks of each stay in order."""
        assert self._next_position is not None
        self._next_position += count
        return range(self._next_position - count, self._next_position)

    def learn_sites(self, pairs: Iterable[tuple[int, str]]) -> None:
        self._site_ids.update((site, number) for number, site in pairs)

    def full_name(self, name: str) -> str:
        """A file's name among those of all collectors."""
        return f"{self._place}/{name}" if self._place else name

    def prepare(
        self,
        connection: psycopg.Connection[tuple[Any, ...]],
        *,
        sites: Iterable[str],
        files: Iterable[str],
        pages: int,
        places: int,
        has_tasks: bool = False,
    ) -> None:
        """Assign numbers to new names. Outside the transaction of the batch, since a name without rows does
        no harm."""
        new_sites = [to_text(site) for site in sites if site not in self._site_ids]
        if new_sites:
            connection.execute(NAME_SITES, (new_sites,))
            found = connection.execute(FIND_SITES, (new_sites,)).fetchall()
            self.learn_sites((number, from_text(site)) for number, site in found)
        new_files = {to_text(self.full_name(name)): name for name in files if name not in self._file_ids}
        if new_files:
            connection.execute(NAME_FILES, (list(new_files),))
            for number, name in connection.execute(FIND_FILES, (list(new_files),)).fetchall():
                self._file_ids[new_files[name]] = number
        if has_tasks and self._next_position is None:
            # Read once: the column has no index.
            row = connection.execute(schema.LAST_TASK.encode()).fetchone()
            assert row is not None
            self._next_position = int(row[0]) + 1
        _refill(connection, self._page_ids, PAGE_IDS, pages)
        _refill(connection, self._places, PLACES, places)


def _take(blocks: list[range]) -> int:
    number = blocks[0][0]
    blocks[0] = blocks[0][1:]
    if not blocks[0]:
        del blocks[0]
    return number


def _refill(
    connection: psycopg.Connection[tuple[Any, ...]], blocks: list[range], sequence: str, wanted: int
) -> None:
    missing = wanted - sum(map(len, blocks))
    if missing > 0:
        drawn = connection.execute(DRAW_BLOCKS, (sequence, -(-missing // BLOCK))).fetchall()
        blocks += [range(number * BLOCK, (number + 1) * BLOCK) for (number,) in drawn]
