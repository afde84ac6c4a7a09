"""Scrapy's scheduler with its requests in an SQLite database, so that a job survives a kill; and Retry-After.

Order, priorities and slots are Scrapy's. The database has the requests that wait, those in flight, and the
fingerprints of all requests ever seen. A request is removed when its response has been processed, after the
requests that resulted from it were added. Changes are committed together, every 0.1 s, so a killed job loses
nothing, and repeats at most the requests that were in flight or had just ended.

Requests are stored as MessagePack: what is read from a file must not be able to run code, as a pickle can.
Requests with anything but plain data, items and dataclasses of the spider's project (with a lambda as the
callback, for example) stay in memory.

Retry-After is obeyed: no request goes to a site before the time that it named, and the other sites go on.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import sqlite3
import sys
import time
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Self
from weakref import WeakKeyDictionary

import msgspec
from scrapy import Item, Request, Spider
from scrapy.core.scheduler import Scheduler
from scrapy.crawler import Crawler
from scrapy.dupefilters import RFPDupeFilter
from scrapy.extensions.feedexport import FeedExporter
from scrapy.http import Response
from scrapy.pqueues import DownloaderAwarePriorityQueue
from scrapy.utils.request import request_from_dict

from headway.errors import StoreError
from headway.pages.headers import retry_after_s
from headway.scrapy.link import Link, link_of
from headway.units import Instant, format_duration

logger = logging.getLogger(__name__)

WAITED_FOR_S = 5.0
"""Requests wait in the downloader for a pause up to this long, since the engine polls its queue that
often."""
_RETRY_AFTER_STATUSES = frozenset({429, 503})


class SiteOnHoldError(Exception):
    """The site of a request has just asked for a pause; the request goes back into the queue."""


class Holds:
    """Until when no request may be sent, by downloader slot (usually a host)."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._until: dict[str, float] = {}

    def hold(self, slot: str, seconds: float) -> None:
        self._until[slot] = max(self._now_s() + seconds, self._until.get(slot, 0.0))

    def left_s(self, slot: str) -> float:
        """How long no request may be sent from this slot; 0 if it is not on hold."""
        if not self._until:
            return 0.0
        left_s = self._until.get(slot, 0.0) - self._now_s()
        if left_s <= 0:
            self._until.pop(slot, None)
        return max(0.0, left_s)

    async def wait(self, slot: str) -> None:
        """Wait for the end of a short pause; raise SiteOnHoldError if the pause is long."""
        left_s = self.left_s(slot)
        if left_s > WAITED_FOR_S:
            raise SiteOnHoldError(slot)
        if left_s > 0:
            await asyncio.sleep(left_s)


_holds_by_crawler: WeakKeyDictionary[Crawler, Holds] = WeakKeyDictionary()


def holds_of(crawler: Crawler) -> Holds:
    return _holds_by_crawler.setdefault(crawler, Holds())


class HoldAwarePriorityQueue(DownloaderAwarePriorityQueue):
    """Scrapy's own queue, except that it returns no requests of slots that are on hold."""

    def pop(self) -> Request | None:
        holds = holds_of(self.crawler)
        held = {slot: queue for slot, queue in self.pqueues.items() if holds.left_s(slot) > WAITED_FOR_S}
        if not held:
            return super().pop()
        self.pqueues = {slot: queue for slot, queue in self.pqueues.items() if slot not in held}
        try:
            return super().pop()
        finally:
            self.pqueues = {**self.pqueues, **held}


class RetryAfterMiddleware:
    """Puts sites on hold that ask for a pause; Scrapy's RetryMiddleware sends the request again
    afterwards."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._link: Link = link_of(crawler)
        self._holds = holds_of(crawler)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def process_response(self, request: Request, response: Response) -> Response:
        if response.status not in _RETRY_AFTER_STATUSES or "cached" in response.flags:
            return response
        header = response.headers.get("Retry-After")
        if header is None:
            return response
        asked_s = retry_after_s(Instant(time.time()), header.decode("latin-1"))
        if asked_s is not None:
            self._pause(self._slot_of(request), asked_s)
        return response

    def process_exception(self, request: Request, exception: Exception) -> Request | None:
        if isinstance(exception, SiteOnHoldError):
            return request.replace(dont_filter=True)
        return None

    def _pause(self, slot: str, asked_s: float) -> None:
        longest_s = self._link.settings.longest_hold_s
        pause_s = min(asked_s, longest_s)
        is_news = self._holds.left_s(slot) < pause_s - 1
        self._holds.hold(slot, pause_s)
        if not is_news:
            return
        stats = self._crawler.stats
        assert stats is not None
        stats.inc_value("headway/retry_after/count")
        stats.inc_value("headway/retry_after/seconds", round(pause_s))
        limited = f" (limited by HEADWAY_MAX_RETRY_AFTER; the site asked for {format_duration(asked_s)})"
        logger.info(
            "headway: %s asked for a pause; it gets no requests for %s%s",
            slot,
            format_duration(pause_s),
            limited if asked_s > longest_s else "",
            extra={"spider": self._crawler.spider},
        )

    def _slot_of(self, request: Request) -> str:
        assert self._crawler.engine is not None
        return self._crawler.engine.downloader.get_slot_key(request)


# Requests as MessagePack. Types that it does not have are extensions: sequences and sets by their items,
# Scrapy items and dataclasses by their class and its fields. A class is looked up only among those that the
# spider's project has imported, and dataclasses are made without calling it.

_TUPLE, _SET, _FROZENSET, _OBJECT, _NUMBER = range(1, 6)
_COLLECTIONS: dict[int, Callable[[Iterable[Any]], Any]] = {_TUPLE: tuple, _SET: set, _FROZENSET: frozenset}
_PLAIN = (str, bytes, float, bool, type(None))
_LONGEST_DIGITS = 4000


def project_of(spider: Spider) -> str:
    """The package of the spider, whose items and dataclasses can be stored."""
    return type(spider).__module__.partition(".")[0]


def pack_request(fields: dict[str, Any], project: str) -> bytes:
    """ValueError for anything that cannot be stored."""
    try:
        return msgspec.msgpack.encode(_packable(fields, project))
    except (RecursionError, msgspec.MsgspecError, TypeError) as problem:
        raise ValueError(str(problem)) from problem


def unpack_request(content: bytes, project: str) -> dict[str, Any]:
    def extension(code: int, data: memoryview) -> Any:
        if code == _NUMBER:
            return int(bytes(data[:_LONGEST_DIGITS]))
        inner = msgspec.msgpack.decode(data, ext_hook=extension)
        if code in _COLLECTIONS:
            return _COLLECTIONS[code](inner)
        module, name, fields = inner
        return _made_again(module, name, fields, project)

    fields: dict[str, Any] = msgspec.msgpack.decode(content, ext_hook=extension)
    if (path := fields.get("_class")) is not None:  # Scrapy would import whatever it names
        module, _, name = str(path).rpartition(".")
        kind = getattr(sys.modules.get(module), name, None)
        if not (isinstance(kind, type) and issubclass(kind, Request)):
            raise ValueError(f"{path} is no class of requests")
    return fields


def _packable(value: Any, project: str) -> Any:
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is int:
        return value if -(2**63) <= value < 2**63 else msgspec.msgpack.Ext(_NUMBER, str(value).encode())
    if kind is list:
        return [_packable(each, project) for each in value]
    if kind is dict:
        return {_packable_key(key): _packable(each, project) for key, each in value.items()}
    for code, collection in _COLLECTIONS.items():
        if kind is collection:
            return _extension(code, [_packable(each, project) for each in value])
    if _is_storable(kind, project):
        fields = dict(value) if isinstance(value, Item) else _fields_of(value)
        return _extension(_OBJECT, [kind.__module__, kind.__qualname__, _packable(fields, project)])
    raise ValueError(f"{kind.__module__}.{kind.__qualname__} cannot be stored")


def _packable_key(key: Any) -> Any:
    if type(key) in _PLAIN or (type(key) is int and -(2**63) <= key < 2**63):
        return key
    raise ValueError(f"a key of type {type(key).__qualname__} cannot be stored")


def _extension(code: int, value: Any) -> msgspec.msgpack.Ext:
    return msgspec.msgpack.Ext(code, msgspec.msgpack.encode(value))


def _fields_of(value: Any) -> dict[str, Any]:
    names = {field.name for field in dataclasses.fields(value)}
    fields = {name: getattr(value, name) for name in names}
    if getattr(value, "__dict__", fields).keys() - names:
        raise ValueError(f"{type(value).__qualname__} has attributes that are no fields")
    return fields


def _is_storable(kind: type, project: str) -> bool:
    is_data = issubclass(kind, Item) or dataclasses.is_dataclass(kind)
    return is_data and kind.__module__.partition(".")[0] == project


def _made_again(module: str, name: str, fields: dict[str, Any], project: str) -> Any:
    kind: Any = sys.modules.get(module)
    for part in name.split("."):
        kind = getattr(kind, part, None)
    if not isinstance(kind, type) or not _is_storable(kind, project):
        raise ValueError(f"{module}.{name} is no item or dataclass of the project {project}")
    if issubclass(kind, Item):
        item = kind()
        for key, value in fields.items():
            item[key] = value
        return item
    made: Any = object.__new__(kind)
    for key, value in fields.items():
        object.__setattr__(made, key, value)
    return made


DATABASE = "requests.sqlite"
_COMMIT_EVERY_S = 0.1
_VERSION = 1

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


class RequestStore:
    """The database of one job. Only one process can open it at a time."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / DATABASE
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(self.path, isolation_level=None, timeout=1.0)
            self._connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = NORMAL")
            (version,) = self._connection.execute("PRAGMA user_version").fetchone()
            has_tables = self._connection.execute("SELECT 1 FROM sqlite_master").fetchone() is not None
            if version != _VERSION and has_tables:
                raise sqlite3.DatabaseError(
                    "its requests were stored by another version of headway, which alone can read them"
                )
            self._connection.executescript(f"{_TABLES} PRAGMA user_version = {_VERSION};")
            self._ids = self._load_ids()
        except (sqlite3.Error, OSError) as problem:
            with suppress(AttributeError):
                self._connection.close()
            why, remedy = str(problem), "set another JOBDIR, or delete this one to start again"
            if "locked" in why:
                why, remedy = "another spider uses it", "wait for it to end, or set another JOBDIR"
            raise StoreError(f"{self.path}: {why}; {remedy}") from None
        self._last_id = max((ids[-1] for ids in self._ids.values() if ids), default=0)
        self._is_dirty = False

    def __len__(self) -> int:
        return sum(map(len, self._ids.values()))

    def waiting(self, queue: str) -> deque[int]:
        """The ids of the requests in a queue, in the order in which they were added. The caller that takes
        one removes it from the deque."""
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
            raise StoreError(
                f"{self.path}: {problem}; free some disk space, then start the spider again"
            ) from None
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


class RequestTracker:
    """The request store of one crawler, and the requests that were taken from it and are not done yet."""

    def __init__(self, crawler: Crawler, folder: Path) -> None:
        self._crawler = crawler
        self.store = RequestStore(folder)
        self.resumed = len(self.store)
        """How many requests an earlier run left."""
        self._taken: dict[Request, int] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, queue: str, request: Request, content: bytes) -> None:
        engine: Any = self._crawler.engine
        self.store.add(queue, engine.downloader.get_slot_key(request), -request.priority, content)
        self._commit_soon()

    def take(self, number: int, request: Request) -> None:
        self._taken[request] = number
        self._commit_soon()

    def note(self, fingerprint: bytes) -> None:
        self.store.add_seen(fingerprint)
        self._commit_soon()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._settle()
        self.store.close()

    def _commit_soon(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_COMMIT_EVERY_S, self._commit)

    def _commit(self) -> None:
        self._timer = None
        self._settle()
        if self._taken:
            self._commit_soon()

    def _settle(self) -> None:
        """Remove the requests that the engine is done with, after flushing their items to the feeds."""
        slot = getattr(self._crawler.engine, "_slot", None)  # Scrapy has no public name for it
        in_progress: Container[Request] = () if slot is None else slot.inprogress
        done = [request for request in self._taken if request not in in_progress]
        if done:
            _flush_feeds(self._crawler)
            self.store.remove(self._taken.pop(request) for request in done)
        self.store.commit()


_trackers: WeakKeyDictionary[Crawler, RequestTracker] = WeakKeyDictionary()


class StoreScheduler(Scheduler):
    """`SCHEDULER` of jobs with a JOBDIR; its disk queues are `StoreLifoQueue` and `StoreFifoQueue`."""

    def open(self, spider: Spider) -> Any:
        assert self.crawler is not None
        assert self.dqdir is not None
        _trackers[self.crawler] = self._tracker = RequestTracker(self.crawler, Path(self.dqdir).parent)
        if self.stats is not None:
            self.stats.set_value("headway/requests_resumed", self._tracker.resumed)
        return super().open(spider)

    def close(self, reason: str) -> Any:
        try:
            return super().close(reason)
        finally:
            self._tracker.close()
            if self.crawler is not None:
                _trackers.pop(self.crawler, None)

    def enqueue_request(self, request: Request) -> bool:
        """A resumed spider yields its start requests again; those that were seen before are dropped."""
        if request.meta.get("is_start_request") and isinstance(self.df, StoreDupeFilter):
            is_known = not self.df.note(request) if request.dont_filter else False
            if is_known and self._tracker.resumed:
                return False
        return super().enqueue_request(request)

    def _read_dqs_state(self, dqdir: str) -> Any:
        by_slot: dict[str, list[int]] = {}
        for slot, priority in self._tracker.store.queues():
            by_slot.setdefault(slot, []).append(priority)
        queue_class: Any = self.pqclass
        if issubclass(queue_class, DownloaderAwarePriorityQueue):
            return by_slot
        return sorted({priority for priorities in by_slot.values() for priority in priorities})

    def _write_dqs_state(self, dqdir: str, state: Any) -> None:
        """Nothing to write: the request store has the state."""


class StoreLifoQueue:
    """The queue of one priority in one slot of Scrapy's priority queue: last in, first out."""

    def __init__(self, crawler: Crawler, key: str) -> None:
        self._tracker = _trackers[crawler]
        self._spider = crawler.spider
        folder = str(self._tracker.store.path.parent / "requests.queue")
        self._queue = str(Path(key)).removeprefix(folder).lstrip("/")
        self._ids: deque[int] = self._tracker.store.waiting(self._queue)

    @classmethod
    def from_crawler(cls, crawler: Crawler, key: str) -> Self:
        return cls(crawler, key)

    def push(self, request: Request) -> None:
        """Raises ValueError if the request cannot be stored; Scrapy then keeps it in memory."""
        assert self._spider is not None
        content = pack_request(request.to_dict(spider=self._spider), project_of(self._spider))
        self._tracker.add(self._queue, request, content)

    def pop(self) -> Request | None:
        if not self._ids:
            return None
        number = self._next(take=True)
        request = self._read(number)
        self._tracker.take(number, request)
        return request

    def peek(self) -> Request | None:
        return self._read(self._next(take=False)) if self._ids else None

    def close(self) -> None:
        """Nothing to do: the scheduler closes the request store."""

    def __len__(self) -> int:
        return len(self._ids)

    def _next(self, *, take: bool) -> int:
        return self._ids.pop() if take else self._ids[-1]

    def _read(self, number: int) -> Request:
        assert self._spider is not None
        content = self._tracker.store.content(number)
        return request_from_dict(unpack_request(content, project_of(self._spider)), spider=self._spider)


class StoreFifoQueue(StoreLifoQueue):
    """First in, first out."""

    def _next(self, *, take: bool) -> int:
        return self._ids.popleft() if take else self._ids[0]


class StoreDupeFilter(RFPDupeFilter):
    """Scrapy's duplicate filter with its fingerprints in the request store, where they are committed together
    with the requests."""

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(
            None,
            crawler.settings.getbool("DUPEFILTER_DEBUG"),
            fingerprinter=crawler.request_fingerprinter,
        )
        self._crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def open(self) -> None:
        self._tracker = _trackers[self._crawler]
        self._fingerprints.update(self._tracker.store.fingerprints())

    def note(self, request: Request) -> bool:
        """Add the request. Returns whether it is new."""
        return not self.request_seen(request)

    def request_seen(self, request: Request) -> bool:
        fingerprint = self.fingerprinter.fingerprint(request)
        if fingerprint in self._fingerprints:
            return True
        self._fingerprints.add(fingerprint)
        self._tracker.note(fingerprint)
        return False


def _flush_feeds(crawler: Crawler) -> None:
    """Flush the items of finished requests to the feed files."""
    for part in crawler.extensions.middlewares:
        if isinstance(part, FeedExporter):
            for slot in part.slots:
                if slot.file is not None:
                    slot.file.flush()
