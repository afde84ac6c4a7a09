"""What was learnt of servers, kept between runs; several spiders of a project may share it at once."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

logger = logging.getLogger(__name__)

_BUSY_S = 5.0
_TABLE = "CREATE TABLE IF NOT EXISTS server (address TEXT PRIMARY KEY, rates BLOB NOT NULL) WITHOUT ROWID"
_SAVE = "INSERT INTO server VALUES (?, ?) ON CONFLICT (address) DO UPDATE SET rates = excluded.rates"

Rows = Iterable[tuple[str, bytes]]


class ServerMemory:
    """A file that cannot be read or written costs what it knew, and never the crawl."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "servers.sqlite"

    def load(self) -> list[tuple[str, bytes]]:
        if not self.path.exists():
            return []
        try:
            with closing(sqlite3.connect(self.path, timeout=_BUSY_S)) as connection:
                return connection.execute("SELECT address, rates FROM server").fetchall()
        except sqlite3.Error as problem:
            logger.warning("%s cannot be read (%s); rates are learnt anew", self.path, problem)
            return []

    def save(self, rows: Rows) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(self.path, timeout=_BUSY_S)) as connection, connection:
                connection.execute(_TABLE)
                connection.executemany(_SAVE, rows)
        except (sqlite3.Error, OSError) as problem:
            logger.warning(
                "%s cannot be written (%s); what was learnt of servers is lost", self.path, problem
            )
