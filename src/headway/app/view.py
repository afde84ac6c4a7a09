"""A crawl at a glance, taken from the machine while it runs."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Mapping
from itertools import islice

import msgspec

from headway.crawl.ledger import SiteBook
from headway.crawl.machine import Crawl
from headway.model.outcome import SUCCESS
from headway.model.page import Site
from headway.units import BytesPerSecond, Instant

_NO_ERROR = frozenset(str(kind) for kind in SUCCESS)


class SiteLine(msgspec.Struct, frozen=True):
    site: Site
    state: str
    """ "fetching", "waiting", "done", "late" or "unreachable"."""
    done: int
    waiting: int
    failed: int
    wire_bytes: int
    rate_bytes_per_s: float
    deadline_at: Instant | None
    forecast_at: tuple[Instant, Instant] | None
    """Between which instants it will probably end."""
    ended_at: Instant | None


class Trouble(msgspec.Struct, frozen=True):
    """A site that cannot be asked for pages, because its robots.txt could not be had."""

    site: Site
    problem: str
    again_at: Instant | None
    """When it is asked again; None when it was given up."""


class View(msgspec.Struct, frozen=True):
    now: Instant
    started_at: Instant
    done: int
    waiting: int
    in_flight: int
    failed: int
    wire_bytes: int
    rate_bytes_per_s: float
    """Measured over the last second."""
    capacity_bytes_per_s: BytesPerSecond
    sites: tuple[SiteLine, ...]
    """Those that matter most now: under way, then by deadline."""
    other_sites: int
    errors: Mapping[str, int]
    troubles: tuple[Trouble, ...] = ()


def view_of(
    crawl: Crawl,
    now: Instant,
    started_at: Instant,
    *,
    rate_bytes_per_s: float,
    site_rates: Mapping[Site, float],
    capacity_bytes_per_s: BytesPerSecond,
    most_sites: int = 12,
) -> View:
    ledger = crawl.ledger
    lines = (
        _line(crawl, book, now, site_rates.get(site, 0.0))
        for site, book in ledger.books.items()
        if crawl.frontier.room(site).waiting or book.in_flight or book.done or book.failed
    )
    chosen = heapq.nsmallest(most_sites, lines, key=_importance)
    errors = {
        kind: count
        for kind, count in ledger.outcomes.most_common()
        if kind not in _NO_ERROR and not kind.startswith("out-of-scope")
    }
    return View(
        now,
        started_at,
        ledger.done,
        crawl.frontier.waiting,
        crawl.in_flight,
        ledger.failed,
        ledger.wire_bytes,
        rate_bytes_per_s,
        capacity_bytes_per_s,
        tuple(chosen),
        max(0, len(ledger.books) - len(chosen)),
        errors,
        tuple(islice(_troubles(crawl), most_sites)),
    )


def _troubles(crawl: Crawl) -> Iterator[Trouble]:
    for book in crawl.ledger.books.values():
        if book.robots_problem:
            room = crawl.frontier.room(book.site)
            yield Trouble(book.site, book.robots_problem, room.free_at if room.waiting else None)


def _line(crawl: Crawl, book: SiteBook, now: Instant, rate_bytes_per_s: float) -> SiteLine:
    waiting = crawl.frontier.room(book.site).waiting
    deadline_at = book.task.deadline_at
    if book.ended_at is not None and not waiting and not book.in_flight:
        state = "unreachable" if not book.done and book.failed else "done"
    else:
        state = "fetching" if book.in_flight else "waiting"
        if deadline_at is not None and now > deadline_at:
            state = "late"
    return SiteLine(
        book.site,
        state,
        book.done,
        waiting,
        book.failed,
        book.wire_bytes,
        rate_bytes_per_s,
        deadline_at,
        crawl.steward.range_of(now, book, crawl.frontier) if crawl.steward is not None else None,
        book.ended_at,
    )


def _importance(line: SiteLine) -> tuple[bool, float, str]:
    return (
        line.state in {"done", "unreachable"},
        line.deadline_at if line.deadline_at is not None else math.inf,
        line.site,
    )
