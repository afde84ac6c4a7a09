"""The files that connect `headway listen-squid` with the crawl, in the run folder's `announced/`.

The spool: the listener appends accepted announcements as lines, and the crawl reads them, in the same process
or in another. They survive a crash of either. The reader stores the offset up to which everything is settled;
after a crash some announcements are read twice, and their pages are then found fresh.

The settings: how the crawl fetches announced pages through the proxy. Also here: the counts of listener and
crawl, added up and formatted as a table.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path

import msgspec

from headway.archive.files import clear_errors, put_in_place
from headway.errors import StoreError
from headway.squid.intake import Counters
from headway.units import Instant

FOLDER = "announced"
MAX_BYTES = 100_000_000
_SPOOL_NAME = "waiting.log"
_OFFSET_NAME = "read-until"
_SETTINGS_NAME = "settings.json"
_TRUNCATE_FROM_BYTES = 1_000_000
_CHUNK_BYTES = 262_144


class Announced(msgspec.Struct, frozen=True, gc=False):
    at: Instant
    url: str
    offset: int
    """Where its line begins in the file."""


class SpoolWriter:
    """Appends announcements to the spool."""

    def __init__(self, run_folder: Path) -> None:
        self._path = run_folder / FOLDER / _SPOOL_NAME
        with clear_errors(self._path):
            self._path.parent.mkdir(mode=0o755, exist_ok=True)
            self._fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def append(self, lines: list[tuple[Instant, str]]) -> bool:
        """Append all lines and return True, or none and return False if the spool would exceed
        `MAX_BYTES`."""
        data = "".join(f"{at:.3f} {url}\n" for at, url in lines).encode("utf-8", "replace")
        with clear_errors(self._path):
            # Locked, since the reader may truncate the file.
            fcntl.flock(self._fd, fcntl.LOCK_EX)
            try:
                if os.fstat(self._fd).st_size + len(data) > MAX_BYTES:
                    return False
                while data:
                    data = data[os.write(self._fd, data) :]
                return True
            finally:
                fcntl.flock(self._fd, fcntl.LOCK_UN)

    def close(self) -> None:
        os.close(self._fd)


class SpoolReader:
    """Reads new announcements, and stores how far they are settled."""

    def __init__(self, run_folder: Path) -> None:
        self._path = run_folder / FOLDER / _SPOOL_NAME
        self._offset_path = run_folder / FOLDER / _OFFSET_NAME
        self._fd = -1
        self._next = self._stored = self._load()

    def read(self, most: int) -> list[Announced]:
        """The next announcements in order, at most `most`."""
        if self._fd < 0:
            with suppress(FileNotFoundError):
                self._fd = os.open(self._path, os.O_RDWR)
        if self._fd < 0 or most <= 0:
            return []
        if os.fstat(self._fd).st_size < self._next:
            self._next = self._stored = 0  # the file was truncated
        found: list[Announced] = []
        chunk = os.pread(self._fd, _CHUNK_BYTES, self._next)
        whole = chunk[: chunk.rfind(b"\n") + 1]
        if not whole and len(chunk) == _CHUNK_BYTES:
            self._next += _CHUNK_BYTES  # damaged: the listener writes no line of this length
        for line in whole.splitlines(keepends=True)[:most]:
            announced = _read_line(line, self._next)
            self._next += len(line)
            if announced is not None:
                found.append(announced)
        return found

    @property
    def offset(self) -> int:
        """Where the next line begins in the file."""
        return self._next

    def settle(self, offset: int) -> None:
        """Store that everything before `offset` is settled. A large file that is settled to its end is
        truncated."""
        if self._fd < 0 or offset == self._stored:
            return
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        try:
            if offset >= _TRUNCATE_FROM_BYTES and offset == os.fstat(self._fd).st_size:
                self._store(0)
                os.ftruncate(self._fd, 0)
                self._next = self._stored = 0
                return
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)
        self._store(offset)
        self._stored = offset

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _load(self) -> int:
        try:
            return int(self._offset_path.read_text())
        except (OSError, ValueError):
            return 0

    def _store(self, offset: int) -> None:
        put_in_place(self._offset_path, b"%d\n" % offset)


def _read_line(line: bytes, offset: int) -> Announced | None:
    at, _, url = line.decode("utf-8", "replace").rstrip("\n").partition(" ")
    try:
        return Announced(Instant(float(at)), url, offset)
    except ValueError:
        return None


class ProxySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How announced pages are fetched through the proxy. The listener writes it, the crawl reads it."""

    proxy: str
    delay_s: float = 10.0
    """Pause after an announcement, so that the proxy has stored the page."""
    refresh_after_s: float = 86400.0
    """A copy younger than this is fresh and not fetched again."""
    interval_s: float = 1.0
    """Least time between two requests for pages of one site, since some of them reach the site."""
    max_connections: int = 8
    bandwidth_bytes_per_s: float | None = None
    timeout_s: float = 30.0


def save_settings(run_folder: Path, settings: ProxySettings) -> None:
    path = run_folder / FOLDER / _SETTINGS_NAME
    with clear_errors(path):
        path.parent.mkdir(mode=0o755, exist_ok=True)
        # Readable by the owner only: the proxy's URL may contain a password.
        put_in_place(path, msgspec.json.encode(settings), 0o600)


def load_settings(run_folder: Path) -> ProxySettings | None:
    """None if `listen-squid` was never started on this run folder."""
    path = run_folder / FOLDER / _SETTINGS_NAME
    try:
        return msgspec.json.decode(path.read_bytes(), type=ProxySettings)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as problem:
        raise StoreError(f"{path} cannot be read: {problem}; start `headway listen-squid` again") from None


class Listened(msgspec.Struct, frozen=True):
    """The counts of listener and crawl together, as `--json` prints them."""

    announced: int
    accepted: int
    refused: dict[str, int]
    lost: dict[str, int]
    updates: int
    unchanged: int
    fresh: int
    new: int
    errors: dict[str, int]
    answered_under_1_s: float | None
    """Share of the requests that were sent to the proxy; None before the first."""


def listened(listener: Counters, collector: Counters) -> Listened:
    """Add up the counts of the listener and of the process that fetches the pages."""
    refused = dict(listener.refused)
    for reason, count in collector.refused.items():
        refused[reason] = refused.get(reason, 0) + count
    return Listened(
        listener.announced,
        listener.accepted,
        refused,
        dict(listener.lost),
        collector.updates,
        collector.unchanged,
        collector.fresh,
        collector.new,
        dict(collector.errors),
        collector.quick / collector.asked if collector.asked else None,
    )


def table_lines(result: Listened) -> list[str]:
    """The counts as the lines of a table, as in table 3 of cobweb1999."""
    errors = sum(result.errors.values())
    total = result.updates + result.fresh + result.new + errors
    rows = [
        ("updates performed", result.updates),
        ("  of which unchanged", result.unchanged),
        ("updates skipped because the copy is fresh", result.fresh),
        ("new documents collected", result.new),
        *((f"errors: {kind}", count) for kind, count in _most_frequent_first(result.errors)),
        ("announcements checked", total),
    ]
    lines = [_line(name, count, total) for name, count in rows]
    if result.answered_under_1_s is not None:
        lines.append(f"{'answered by the proxy in under a second':<44}{result.answered_under_1_s:>17.0%}")
    refused = sum(result.refused.values())
    lines.append(f"{'total announced':<44}{result.announced:>9}")
    lines.append(f"{'  refused':<44}{refused:>9}")
    lines += [f"{f'    {reason}':<44}{count:>9}" for reason, count in _most_frequent_first(result.refused)]
    lines += [f"{f'  lost: {reason}':<44}{count:>9}" for reason, count in _most_frequent_first(result.lost)]
    return lines


def _line(name: str, count: int, total: int) -> str:
    share = f"{count / total:.1%}" if total else ""
    return f"{name:<44}{count:>9}{share:>8}"


def _most_frequent_first(counts: dict[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))
