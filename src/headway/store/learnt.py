"""What crawls of this user have learnt, kept beside the runs: sizes and rates of sites, rates of servers by
hour, and how wide the ranges of forecasts have to be. A new run folder each night starts from it.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import msgspec

from headway.errors import StoreError
from headway.model.page import Site
from headway.planning.ends import WANTED
from headway.planning.estimate import Knowledge, SiteFacts
from headway.store.reader import knowledge_of_run

T = TypeVar("T")
FILE = "learnt.sqlite"
VARIABLE = "HEADWAY_LEARNT"
_APPLICATION_ID = 0x6864776C
_VERSION = 1
_MOST_ROWS = 200_000
"""Of each table; the oldest are dropped first."""
_AT_ONCE = 500
_MOST_SERVERS = 20_000
"""So many are read at the start of a crawl, the latest."""
_MOST_BYTES = 1e18
_BUSY_S = 5.0
_TABLES = """
CREATE TABLE site (
    site TEXT PRIMARY KEY, data_bytes REAL, page_bytes REAL, rate_bytes_per_s REAL, run TEXT, at REAL
) WITHOUT ROWID;
CREATE TABLE server (address TEXT PRIMARY KEY, rates BLOB, at REAL) WITHOUT ROWID;
CREATE TABLE level (what TEXT PRIMARY KEY, value REAL) WITHOUT ROWID;
"""


class Levels(msgspec.Struct, frozen=True):
    """How wide ranges have to be for four of five ends to lie in them: of sites, and of crawls."""

    sites: float = WANTED
    crawls: float = WANTED


def default_place() -> Path | None:
    """The file of this user; None if the variable HEADWAY_LEARNT is set and empty."""
    named = os.environ.get(VARIABLE)
    if named is not None:
        return Path(named) if named else None
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser() / "headway" / FILE


class LearntStore:
    """The file. A damaged one is set aside under another name, with a warning, and a new one is begun."""

    def __init__(
        self,
        path: Path | None,
        warn: Callable[[str], None],
        *,
        learn_from: Path | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`path`: None for no file. `learn_from`: a run folder, which is read as well and counts more."""
        self._path = path
        self._learn_from = learn_from
        self._warn = warn
        self._clock = clock

    def read(self, sites: Iterable[Site]) -> tuple[Knowledge, Levels]:
        """What is known of these sites and of servers, and the levels of forecasts."""
        found = None
        if self._path is not None and self._path.exists():
            found = self._do(lambda database: _read(database, list(sites)))
        knowledge, levels = found or (Knowledge("earlier runs"), Levels())
        if self._learn_from is None:
            return knowledge, levels
        named = knowledge_of_run(self._learn_from)
        sites_known = {**knowledge.sites, **named.sites}
        return Knowledge(named.source, sites_known, knowledge.servers + named.servers), levels

    def learn(self, run: Path, levels: Levels | None = None) -> None:
        """Take in what a run folder has measured. Whatever prevents it is a warning: the crawl itself is
        stored."""
        if self._path is None:
            return
        try:
            knowledge = knowledge_of_run(run)
        except StoreError:
            return  # it has fetched nothing
        at, name = self._clock(), run.resolve().name
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            self._warn(f"{self._path}: what this run has learnt is not kept: {problem}")
            return
        self._do(lambda database: _write(database, knowledge, levels, at, name))

    def _do(self, work: Callable[[sqlite3.Connection], T]) -> T | None:
        """Work on the database; None if it cannot be used. Errors become warnings."""
        assert self._path is not None
        try:
            with closing(sqlite3.connect(self._path, timeout=_BUSY_S, isolation_level=None)) as database:
                return work(database) if self._is_usable(database) else None
        except sqlite3.OperationalError as problem:
            self._warn(f"{self._path}: what earlier runs learnt is not used: {problem}")
        except sqlite3.DatabaseError as problem:
            self._set_aside(str(problem))
        return None

    def _is_usable(self, database: sqlite3.Connection) -> bool:
        (application,) = database.execute("PRAGMA application_id").fetchone()
        (version,) = database.execute("PRAGMA user_version").fetchone()
        (tables,) = database.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if not tables and not application:
            database.executescript(
                f"BEGIN IMMEDIATE; {_TABLES} PRAGMA application_id = {_APPLICATION_ID};"
                f" PRAGMA user_version = {_VERSION}; COMMIT;"
            )
            return True
        if application != _APPLICATION_ID:
            raise sqlite3.DatabaseError("it is a database of another program")
        if version > _VERSION:
            self._warn(f"{self._path}: written by a newer version of headway; it is not used")
            return False
        return True

    def _set_aside(self, why: str) -> None:
        assert self._path is not None
        aside = self._path.with_name(f"{self._path.name}.damaged-{int(self._clock())}")
        try:
            self._path.rename(aside)
        except OSError as problem:
            self._warn(f"{self._path} is damaged ({why}) and cannot be set aside: {problem}")
        else:
            self._warn(
                f"{self._path} is damaged ({why}); it is now {aside.name}, and headway starts a new one"
            )


def _read(database: sqlite3.Connection, sites: Sequence[Site]) -> tuple[Knowledge, Levels]:
    levels = {
        name: value
        for name, value in database.execute("SELECT what, value FROM level")
        if name in Levels.__struct_fields__ and isinstance(value, float)
    }
    return Knowledge("earlier runs", _of_sites(database, sites), _of_servers(database)), Levels(**levels)


def _write(
    database: sqlite3.Connection, knowledge: Knowledge, levels: Levels | None, at: float, run: str
) -> None:
    database.execute("BEGIN IMMEDIATE")
    database.executemany(
        "INSERT OR REPLACE INTO site VALUES (?, ?, ?, ?, ?, ?)",
        [
            (site, fact.data_bytes, fact.page_bytes, fact.rate_bytes_per_s, run, at)
            for site, fact in knowledge.sites.items()
        ],
    )
    database.executemany(
        "INSERT OR REPLACE INTO server VALUES (?, ?, ?)",
        [(address, rates, at) for address, rates in knowledge.servers],
    )
    if levels is not None:
        values = list(msgspec.structs.asdict(levels).items())
        database.executemany("INSERT OR REPLACE INTO level VALUES (?, ?)", values)
    for table, key in (("site", "site"), ("server", "address")):
        oldest = f"SELECT {key} FROM {table} ORDER BY at DESC LIMIT -1 OFFSET {_MOST_ROWS}"  # noqa: S608
        database.execute(f"DELETE FROM {table} WHERE {key} IN ({oldest})")  # noqa: S608
    database.execute("COMMIT")


def _of_sites(database: sqlite3.Connection, sites: Sequence[Site]) -> dict[Site, SiteFacts]:
    facts = {}
    query = "SELECT site, data_bytes, page_bytes, rate_bytes_per_s FROM site"
    for first in range(0, len(sites), _AT_ONCE):
        part = sites[first : first + _AT_ONCE]
        marks = ", ".join("?" * len(part))
        for site, *numbers in database.execute(f"{query} WHERE site IN ({marks})", part):
            if all(isinstance(number, float) and 0 <= number < _MOST_BYTES for number in numbers):
                facts[Site(site)] = SiteFacts(*numbers)
    return facts


def _of_servers(database: sqlite3.Connection) -> tuple[tuple[str, bytes], ...]:
    query = f"SELECT address, rates FROM server ORDER BY at DESC LIMIT {_MOST_SERVERS}"  # noqa: S608
    return tuple(
        (address, rates)
        for address, rates in database.execute(query)
        if isinstance(address, str) and isinstance(rates, bytes)
    )
