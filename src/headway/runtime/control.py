"""Control of a running crawl through its run folder: another bound, and orders as lines of JSON."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
from msgspec import structs

from headway.archive.files import put_in_place
from headway.config.job import Job
from headway.config.values import rate
from headway.errors import StoreError, UnitError
from headway.http.client import HttpFetcher
from headway.model.command import AddSite, Order, Pause, Resume
from headway.model.event import CapacityChanged
from headway.pages.url import keyed
from headway.policy.yielding import LOOK_START_BYTES_PER_S, PACKET_BYTES, LinkShare, Phase
from headway.runtime.driver import EventSink
from headway.store.reader import LiveReader, database_of
from headway.store.run_folder import LINK_FILE, LinkRecord, read_link
from headway.units import BytesPerSecond, Instant, format_rate

# The bound that a person sets on a run, also while it crawls: one line of text in the run folder.
#
# A file rather than a socket: it works while nothing is running, over any file system, and from a shell.

LIMIT_FILE = "bandwidth"
SPIDERS_LOG = "scrapy.jsonl"
"""The log of `headway run-scrapy`. Its presence shows that the folder belongs to it."""


def write_limit(folder: Path, text: str | None) -> None:
    """Set the bound of a run; None restores the bound of its job."""
    path = database_of(folder).with_name(LIMIT_FILE)
    try:
        if text is None:
            path.unlink(missing_ok=True)
            return
        if (problem := why_too_small(rate(text))) is not None:
            raise UnitError(problem)
        put_in_place(path, f"{text.strip()}\n".encode())
    except OSError as problem:
        raise StoreError(f"{path}: cannot be written: {problem.strerror}") from None


def limit_of(folder: Path) -> str | None:
    """The bound that was set on a run; None: that of its job."""
    try:
        return database_of(folder).with_name(LIMIT_FILE).read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as problem:
        raise StoreError(f"{folder}: the limit cannot be read: {problem}") from None


def why_too_small(bound_bytes_per_s: float) -> str | None:
    """A message if a bound lets less than a packet arrive in a second; a bound of zero is a pause."""
    if not 0.0 < bound_bytes_per_s < PACKET_BYTES:
        return None
    return (
        f"{format_rate(bound_bytes_per_s)} is less than one packet ({PACKET_BYTES:,} bytes) a second;"
        " write at least '13 kbit/s'"
    )


class LimitWatch:
    """Notices when the bound in a run folder changes."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / LIMIT_FILE
        self._stamp: tuple[int, int] | None = None
        self.limit_bytes_per_s: BytesPerSecond | None = None

    def has_changed(self) -> bool:
        try:
            status = self._path.stat()
            stamp = (status.st_mtime_ns, status.st_ino)
        except OSError:
            stamp = None
        if stamp == self._stamp:
            return False
        self._stamp = stamp
        before = self.limit_bytes_per_s
        self.limit_bytes_per_s = self._read() if stamp is not None else None
        return self.limit_bytes_per_s != before

    def _read(self) -> BytesPerSecond | None:
        """A file that cannot be parsed leaves the bound as it was: a typing error must not lift the bound."""
        try:
            return rate(self._path.read_text(encoding="utf-8").strip())
        except (OSError, UnicodeDecodeError, UnitError):
            return self.limit_bytes_per_s


# Orders to a crawl, also while it runs: lines of JSON in the run folder, which the crawl reads.
#
# A file rather than a socket, as for the bandwidth: it works while nothing is running, over any file system,
# and it can be read afterwards. A resumed crawl carries out the orders again, except a pause, which ends with
# the process that was paused.

ORDERS_FILE = "orders.jsonl"
_MOST_PASSED_OVER = 10_000


class OrderLine(msgspec.Struct, frozen=True):
    at: Instant
    order: Order


def write_order(folder: Path, now: Instant, order: Order) -> None:
    """Give an order to the crawl in a folder: to the running process within a second, else to the next
    one."""
    path = database_of(folder).with_name(ORDERS_FILE)
    line = msgspec.json.encode(OrderLine(now, order)) + b"\n"
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            # One write, so that lines of several writers never mix.
            os.write(fd, line)
        finally:
            os.close(fd)
    except OSError as problem:
        raise StoreError(f"{path}: cannot be written: {problem.strerror}") from None


def with_known_pages(folder: Path, order: Order, secret: bytes) -> Order:
    """Pages of an added site may have been found and excluded before: they are wanted now. Who gives an order
    does not know the secret of the crawl, which the pages get here."""
    if not isinstance(order, AddSite):
        return order
    with LiveReader(folder) as live_reader:
        passed_over = live_reader.passed_over(order.task.site, _MOST_PASSED_OVER)
    pages = {page.key: page for page in (*keyed(order.pages, secret), *passed_over)}
    return structs.replace(order, pages=tuple(pages.values()))


class OrderWatch:
    """Notices new orders."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / ORDERS_FILE
        self._read_bytes = 0

    def lasting(self) -> list[Order]:
        """Earlier orders that are still in force."""
        return [order for order in self.fresh() if not isinstance(order, Pause | Resume)]

    def fresh(self) -> list[Order]:
        try:
            if self._path.stat().st_size <= self._read_bytes:
                return []
            with self._path.open("rb") as file:
                file.seek(self._read_bytes)
                text = file.read()
        except OSError:
            return []
        whole = text[: text.rfind(b"\n") + 1]
        self._read_bytes += len(whole)
        return [order for line in whole.splitlines() if (order := _read(line)) is not None]


def _read(line: bytes) -> Order | None:
    """A line that is not an order changes nothing: a typing error must not stop a crawl."""
    try:
        return msgspec.json.decode(line, type=OrderLine).order
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


# A bound that is a part of what the link carries, which the crawl finds out.


class LinkFinder:
    """Call `step` a few times a second."""

    def __init__(self, part: float, folder: Path, fetcher: HttpFetcher, sink: EventSink) -> None:
        assert fetcher.background is not None
        self._share = LinkShare(part, read_link(folder).looks)
        self._folder = folder
        self._background = fetcher.background
        self._sink = sink

    @classmethod
    def of(cls, job: Job, folder: Path, fetcher: HttpFetcher, sink: EventSink) -> LinkFinder | None:
        """None if the bound of the job is no part of the link."""
        return None if job.link_part is None else cls(job.link_part, folder, fetcher, sink)

    def step(self, now: Instant) -> None:
        is_full = self._share.phase is Phase.LOOKING and self._background.cuts > 0
        if not self._share.step(now, self._background.delivered_bytes_per_s, is_full=is_full):
            return
        bound = self._share.bound_bytes_per_s
        if self._share.phase is Phase.LOOKING:
            estimate = self._share.estimate
            start = LOOK_START_BYTES_PER_S if estimate is None else bound / 6
            self._background.look(start, bound)
        else:
            self._background.hold()
            self._remember()
        self._sink.tell(CapacityChanged(bound))

    def interrupt(self, limit: BytesPerSecond | None) -> BytesPerSecond:
        """A person has set a bound, which holds until it is taken back (None). Returns the bound for now."""
        self._background.hold()
        return self._share.bound_bytes_per_s if limit is None else limit

    def _remember(self) -> None:
        record = LinkRecord(tuple(self._share.looks), self._share.estimate)
        put_in_place(self._folder / LINK_FILE, msgspec.json.encode(record) + b"\n")
