"""The requests of a Scrapy job in SQLite: those that wait, those under way, and all ever seen.

A request leaves the book when all that came of it has been dealt with, and what it led to was written before.
Commits are made together, a few a second, so a killed job loses nothing, and asks again at most what was
under way or had just ended.
"""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from headway.errors import StoreError

DATABASE = "requests.sqlite"

_TABLES = """
CREATE TABLE IF NOT EXISTS request (
    id INTEGER PRIMARY KEY,
    queue TEXT NOT NULL,
    slot TEXT NOT NULL,
    priority INTEGER NOT NULL,
    content BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS seen (fingerprint BLOB PRIMARY KEY) WITHOUT ROWID;
"""


class RequestBook:
    """One process has it at a time."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / DATABASE
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(self.path, isolation_level=None, timeout=1.0)
            self._connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = NORMAL")
            self._connection.executescript(_TABLES)
            self._ids = self._load_ids()
        except (sqlite3.Error, OSError) as problem:
            with suppress(AttributeError):
                self._connection.close()
            why = "another spider uses it" if "locked" in str(problem) else str(problem)
            raise StoreError(f"{self.path}: {why}; wait for it to end, or give another JOBDIR") from None
        self._last_id = max((ids[-1] for ids in self._ids.values() if ids), default=0)
        self._is_dirty = False

    def __len__(self) -> int:
        return sum(map(len, self._ids.values()))

    def waiting(self, queue: str) -> deque[int]:
        """The ids of a queue, in the order in which they were added; whoever takes one removes it there."""
        return self._ids.setdefault(queue, deque())

    def queues(self) -> Iterator[tuple[str, int]]:
        """The slot and priority of each queue that is not empty."""
        yield from self._connection.execute("SELECT DISTINCT slot, priority FROM request")

    def fingerprints(self) -> Iterator[bytes]:
        for (fingerprint,) in self._connection.execute("SELECT fingerprint FROM seen"):
            yield fingerprint

    def add(self, queue: str, slot: str, priority: int, content: bytes) -> None:
        self._begin()
        self._last_id += 1
        row = (self._last_id, queue, slot, priority, content)
        self._connection.execute("INSERT INTO request VALUES (?, ?, ?, ?, ?)", row)
        self.waiting(queue).append(self._last_id)

    def content(self, number: int) -> bytes:
        row = self._connection.execute("SELECT content FROM request WHERE id = ?", (number,)).fetchone()
        content: bytes = row[0]
        return content

    def add_seen(self, fingerprint: bytes) -> None:
        self._begin()
        self._connection.execute("INSERT OR IGNORE INTO seen VALUES (?)", (fingerprint,))

    def remove(self, numbers: Iterable[int]) -> None:
        self._begin()
        self._connection.executemany("DELETE FROM request WHERE id = ?", ((number,) for number in numbers))

    def commit(self) -> None:
        if not self._is_dirty:
            return
        try:
            self._connection.execute("COMMIT")
        except sqlite3.Error as problem:
            raise StoreError(f"{self.path}: {problem}; make room, then start the spider again") from None
        self._is_dirty = False

    def close(self) -> None:
        self.commit()
        self._connection.close()

    def _begin(self) -> None:
        if not self._is_dirty:
            self._connection.execute("BEGIN")
            self._is_dirty = True

    def _load_ids(self) -> dict[str, deque[int]]:
        ids: dict[str, deque[int]] = {}
        for number, queue in self._connection.execute("SELECT id, queue FROM request ORDER BY id"):
            ids.setdefault(queue, deque()).append(number)
        return ids
