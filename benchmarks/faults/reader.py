"""Somebody else with the database open: long reads that hold up checkpoints, and short locks."""

from __future__ import annotations

import random
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import Self

_LONGEST_READ_S = 0.6
_LONGEST_LOCK_S = 0.15


class BusyReader:
    """Runs on a thread of its own; use as a context manager."""

    def __init__(self, database: Path, seed: int) -> None:
        self._database = database
        self._dice = random.Random(seed)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._disturb, daemon=True)
        self.reads = 0
        self.locks = 0
        self.held_s = 0.0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _disturb(self) -> None:
        while not self._over.wait(self._dice.uniform(0.0, 0.3)):
            try:
                self._hold(is_lock=self._dice.random() < 0.3)
            except sqlite3.Error:
                continue  # not there yet, or being made

    def _hold(self, *, is_lock: bool) -> None:
        address = f"{self._database.absolute().as_uri()}?mode=rw"
        with closing(sqlite3.connect(address, uri=True, isolation_level=None, timeout=1.0)) as connection:
            connection.execute("BEGIN IMMEDIATE" if is_lock else "BEGIN")
            connection.execute("SELECT count(*) FROM page").fetchone()
            length_s = self._dice.uniform(0.0, _LONGEST_LOCK_S if is_lock else _LONGEST_READ_S)
            self._over.wait(length_s)
            connection.execute("ROLLBACK")
        self.reads += not is_lock
        self.locks += is_lock
        self.held_s += length_s
