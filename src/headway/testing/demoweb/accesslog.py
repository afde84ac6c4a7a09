"""What the demo web saw: every request and connection with its times, to judge a crawler's manners by.

Times are those of the monotonic clock, which all processes of a machine share. An answer ends
when its last piece is handed to the kernel, before the crawler can have it: so a gap measured here is never
shorter than the one that the crawler kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import msgspec


class Exchange(msgspec.Struct, tag="exchange"):
    """One request and what became of it."""

    site: str
    connection: int
    received_at: float
    method: str
    path: str
    user_agent: str
    answered_at: float = 0.0
    """When its last piece was about to be sent, or the attempt given up."""
    status: int = 0
    """0 when no status line was sent."""
    sent_bytes: int = 0
    """Head and body as they went out, chunk marks included."""
    complete: bool = False


class Connection(msgspec.Struct, tag="connection"):
    site: str
    number: int
    opened_at: float
    closed_at: float | None = None


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Exchange | Connection)


class AccessLog:
    """Kept in memory, and written line by line to a file if there is one."""

    def __init__(self, path: Path | None = None) -> None:
        self._exchanges: list[Exchange] = []
        self._connections: dict[int, Connection] = {}
        self._file = path.open("wb", buffering=0) if path is not None else None

    def record(self, entry: Exchange | Connection) -> None:
        """An exchange when it has ended; a connection when it opens and again when it closes."""
        if isinstance(entry, Exchange):
            self._exchanges.append(entry)
        else:
            self._connections[entry.number] = entry
        if self._file is not None:
            self._file.write(_ENCODER.encode(entry) + b"\n")

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def requests(self, site: str | None = None) -> list[Exchange]:
        """In the order of their coming."""
        chosen = (e for e in self._exchanges if site is None or e.site == site)
        return sorted(chosen, key=lambda exchange: exchange.received_at)

    def connections(self, site: str | None = None) -> list[Connection]:
        return [c for c in self._connections.values() if site is None or c.site == site]

    def most_connections(self, site: str | None = None) -> int:
        """The most that were open at once."""
        changes = [(c.opened_at, 1) for c in self.connections(site)]
        changes += [(c.closed_at, -1) for c in self.connections(site) if c.closed_at is not None]
        most = count = 0
        for _, change in sorted(changes):
            count += change
            most = max(most, count)
        return most

    def gaps_s(self, site: str) -> list[float]:
        """From the end of each answer to the next request; below zero where they overlapped."""
        return [later.received_at - earlier.answered_at for earlier, later in pairwise(self.requests(site))]


def read_access_log(path: Path) -> AccessLog:
    """The log that another process writes, as far as it has come."""
    log = AccessLog()
    for entry in _entries(path.read_bytes().splitlines()):
        log.record(entry)
    return log


def _entries(lines: Iterable[bytes]) -> Iterable[Exchange | Connection]:
    return (_DECODER.decode(line) for line in lines)
