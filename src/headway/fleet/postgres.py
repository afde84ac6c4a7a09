"""A collector's side of the coordination over PostgreSQL: leases, mail and news are rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from headway.errors import StoreError
from headway.fleet import statements as sql
from headway.fleet.coordinator import (
    ALL,
    Joined,
    LeaseOver,
    News,
    NewShare,
    Parcel,
    Portion,
    Report,
    Taken,
)
from headway.frontier.spilling import pages_held_each
from headway.model.copy import Copy
from headway.model.page import Page, PageKey, Site
from headway.model.snapshot import WaitingRecord
from headway.ports import Original, Part
from headway.store import rows
from headway.store.postgres.address import Address
from headway.store.postgres.store import PostgresStore
from headway.store.postgres.texts import from_text, to_text
from headway.units import BytesPerSecond, Instant, Seconds
from headway.version import __version__

if TYPE_CHECKING:
    import psycopg

LEASE_S = Seconds(10.0)
_MEASURED_AT_ONCE = 5
_SITES_AT_ONCE = 500
"""Taken over in one beat: their pages have to be read."""


class PostgresCoordinator:
    """Committing has a connection of its own, so that a lease is renewed while a large batch is written."""

    def __init__(
        self, address: Address, *, name: str, label: str, place: str, lease_s: Seconds = LEASE_S
    ) -> None:
        self.address = address
        self._name = name
        self._label = label
        self._lease_s = lease_s
        self._collector = 0
        self._started_at = Instant(0.0)
        self._portion = ALL
        self._held: set[Site] = set()
        self.store = PostgresStore(address, place=place, make=False)
        try:
            self._beats = PostgresStore(address, make=False)
        except BaseException:
            self.store.close()
            raise

    def join(self, portion: Portion = ALL) -> Joined:
        self._portion = portion
        crawl = self._beats.asked(lambda run: run.execute("SELECT started_at FROM crawl").fetchone())
        if crawl is None:
            raise StoreError(
                f"{self.address.shown}: the crawl has not begun yet; begin it with headway crawl"
            )
        others = self._beats.asked(lambda run: run.execute(sql.OTHER_VERSIONS, (__version__,)).fetchall())
        if others:
            raise StoreError(
                f"{self.address.shown}: the collectors at work are headway {others[0][0]}, this is "
                f"{__version__}; install the same on all machines, or wait until they have left"
            )
        values = (to_text(self._name), to_text(self._label), __version__, self._lease_s)
        row = self._beats.asked(lambda run: run.execute(sql.JOIN, values).fetchone())
        assert row is not None
        self._collector = row[0]
        self._started_at = Instant(crawl[0])
        return Joined(self._collector, self._started_at, *self._read_clock(), self._lease_s)

    def _read_clock(self) -> tuple[Instant, float]:
        """The server's clock, from the quickest of some answers."""
        readings = []
        for _ in range(5):
            asked_at = time.monotonic()
            row = self._beats.asked(lambda run: run.execute(sql.READ_CLOCK).fetchone())
            assert row is not None
            read_at = time.monotonic()
            readings.append((read_at - asked_at, row[0], read_at))
        _, now, read_at = min(readings)
        return Instant(now), read_at

    def beat(self, report: Report) -> News:
        packed = msgspec.msgpack.encode(msgspec.structs.replace(report, round_trips_s=()))

        def ask(connection: psycopg.Connection[tuple[Any, ...]]) -> list[list[tuple[Any, ...]]]:
            me = self._collector
            with connection.pipeline():
                questions = [
                    connection.execute(
                        sql.RENEW,
                        (
                            self._lease_s,
                            report.taken_share,
                            packed,
                            report.second,
                            report.received_bytes,
                            me,
                        ),
                    ),
                    connection.execute(sql.NEWEST_SHARE, (me,)),
                    connection.execute(sql.NOT_TAKEN, (me, _SITES_AT_ONCE)),
                    connection.execute(sql.ASKED_BACK, (me,)),
                    connection.execute(sql.FETCH_MAIL, (me,)),
                    connection.execute(sql.IS_OVER),
                    connection.execute(sql.COUNT_COLLECTORS),
                ]
                if self._label:
                    mine = to_text(self._label)
                    questions.append(connection.execute(sql.TO_MEASURE, (mine, mine, _MEASURED_AT_ONCE)))
                if report.round_trips_s:
                    sites, seconds = zip(*report.round_trips_s, strict=True)
                    connection.execute(
                        sql.PUT_ROUND_TRIPS, (to_text(self._label), list(map(to_text, sites)), list(seconds))
                    )
                return [question.fetchall() for question in questions]

        renewed, share, not_taken, asked_back, mail, is_over, count, *to_measure = self._beats.asked(ask)
        if not renewed:
            raise self._lease_over()
        return News(
            lease_s=Seconds(renewed[0][0]),
            share=_share(share),
            taken=self._take(not_taken),
            asked_back=tuple(Site(from_text(site)) for (site,) in asked_back),
            to_measure=tuple(Site(from_text(site)) for rows in to_measure for (site,) in rows),
            mail=self._read(mail),
            is_over=bool(is_over and is_over[0][0]),
            collectors=count[0][0],
        )

    def commit(self, number: int, parcel: Parcel) -> bool:
        fence = self._fence(number)
        if self.store.commit(parcel.batch, parcel.file_lengths, parcel.notes, first=fence):
            return False
        row = self.store.asked(lambda run: run.execute(sql.LAST_BATCH, (self._collector,)).fetchone())
        if row is None or row[0] < number:
            raise self._lease_over()
        return False

    def first_waiting(self, site: Site, most: int) -> Sequence[WaitingRecord]:
        return self.store.first_waiting(site, most, self._server_time(self.store))

    def find_originals(self, digests: Sequence[str]) -> Mapping[str, tuple[Original, str]]:
        return self._beats.find_originals(digests)

    def find_copies(self, pages: Sequence[Page]) -> Mapping[tuple[Site, PageKey], Copy]:
        return self._beats.find_copies(pages)

    def give_back(self, sites: Sequence[Site]) -> None:
        names = [to_text(site) for site in sites]
        self.store.asked(lambda run: run.execute(sql.GIVE_BACK, (names, self._collector)))
        self._held.difference_update(sites)

    def leave(self) -> None:
        def go(connection: psycopg.Connection[tuple[Any, ...]]) -> None:
            with connection.transaction():
                for statement in (sql.GIVE_ALL_BACK, sql.DROP_SHARES, sql.LEAVE):
                    connection.execute(statement, (self._collector,))

        self.store.asked(go)

    def close(self) -> None:
        self.store.close()
        self._beats.close()

    def _read(self, mail: Sequence[tuple[int, int]]) -> tuple[Page, ...]:
        """Pages that were mailed, but for those that were settled since by who held the site before."""
        if not mail:
            return ()
        places = [list(column) for column in zip(*mail, strict=True)]
        return tuple(
            _page(*row)
            for row in self._beats.asked(lambda run: run.execute(sql.READ_MAIL, places).fetchall())
        )

    def _take(self, found: Sequence[tuple[int, str, float | None]]) -> Taken | None:
        if not found:
            return None
        ids = [number for number, _, _ in found]
        names = {number: Site(from_text(site)) for number, site, _ in found}
        sites = frozenset(names.values())
        part = None
        if self._portion.most_waiting is not None:
            each = pages_held_each(self._portion.most_waiting, len(self._held | sites))
            part = Part(each, self._server_time(self._beats))
        snapshot = self._beats.load_sites(self._started_at, ids, part=part)
        histories = self._beats.histories(list(sites)) if self._portion.histories else ()
        self._beats.asked(lambda run: run.execute(sql.TAKE, (ids, self._collector)))
        self._held |= sites
        soiled = {names[number]: Instant(until) for number, _, until in found if until is not None}
        return Taken(sites, snapshot, soiled, histories)

    def _server_time(self, store: PostgresStore) -> Instant:
        """By which all collectors go, none of them ahead of it."""
        row = store.asked(lambda run: run.execute(sql.READ_CLOCK).fetchone())
        assert row is not None
        return Instant(row[0])

    def _fence(self, number: int) -> Callable[[psycopg.Connection[tuple[Any, ...]]], bool]:
        """Lets a batch pass only while the lease holds, and only once."""

        def check(connection: psycopg.Connection[tuple[Any, ...]]) -> bool:
            return bool(connection.execute(sql.FENCE, (number, self._collector, number)).fetchall())

        return check

    def _lease_over(self) -> LeaseOver:
        return LeaseOver(f"{self.address.shown}: the lease of collector {self._collector} is over")


def _share(found: Sequence[tuple[Any, ...]]) -> NewShare | None:
    if not found:
        return None
    number, rate, lasts_s = found[0]
    return NewShare(number, BytesPerSecond(rate), Seconds(lasts_s))


def _page(site: str, path: str, key: int, depth: int, score: float) -> Page:
    name = Site(from_text(site))
    return Page(rows.url_of(from_text(path), name), name, PageKey(key), depth, score)
