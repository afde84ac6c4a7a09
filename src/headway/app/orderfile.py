"""Orders to a crawl, also while it runs: lines of JSON in the run folder, which the crawl looks at.

A file rather than a socket, as for the bandwidth: it works when nothing is running yet, over any file system,
and it is there to be read afterwards. A crawl that is taken up again carries the orders out again, but for a
pause, which ends with the process that was paused.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
from msgspec import structs

from headway.errors import StoreError
from headway.model.order import AddSite, Order, Pause, Resume
from headway.store.onlooker import Onlooker
from headway.store.reader import database_of
from headway.units import Instant

ORDERS_FILE = "orders.jsonl"
_MOST_PASSED_OVER = 10_000


class OrderLine(msgspec.Struct, frozen=True):
    at: Instant
    order: Order


def write_order(folder: Path, now: Instant, order: Order) -> None:
    """Hand an order to the crawl in a folder: to the one that runs within a second, else to the next."""
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


def with_known_pages(folder: Path, order: Order) -> Order:
    """A site that is added may have been linked to and passed over before: those pages are wanted now."""
    if not isinstance(order, AddSite):
        return order
    with Onlooker(folder) as onlooker:
        passed_over = onlooker.passed_over(order.task.site, _MOST_PASSED_OVER)
    pages = {page.key: page for page in (*order.pages, *passed_over)}
    return structs.replace(order, pages=tuple(pages.values()))


class OrderWatch:
    """Notices orders that are new since it last looked."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / ORDERS_FILE
        self._read_bytes = 0

    def lasting(self) -> list[Order]:
        """What was ordered before this process began, and still counts."""
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
    """A line that is no order changes nothing: somebody's slip of the pen must not stop a crawl."""
    try:
        return msgspec.json.decode(line, type=OrderLine).order
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
