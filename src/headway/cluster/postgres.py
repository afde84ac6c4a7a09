"""The coordination of a fleet over PostgreSQL: leases, mail and news are rows, and a leader is elected.

The leader holds an advisory lock, and the server ends its session when it is silent. So a leader that dies,
hangs or is cut off is replaced within seconds. It cannot write anything later, since its session has ended.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from headway.cluster.coordinator import (
    ALL,
    CommitBatch,
    Joined,
    LeaseOver,
    News,
    NewShare,
    Portion,
    Report,
    Taken,
)
from headway.cluster.leader import Fleet, Leader, Share, Standing, Unheld
from headway.engine.site_queue import pages_held_each
from headway.errors import StoreError
from headway.model.command import Copy, WaitingRecord
from headway.model.event import GroupLease
from headway.model.page import Page, PageKey, Site
from headway.policy.timetable import Quota
from headway.policy.yielding import LinkUse
from headway.ports import Original, Part
from headway.store import rows
from headway.store.postgres.connection import Address, from_text, to_text
from headway.store.postgres.store import PostgresStore
from headway.units import BytesPerSecond, Instant, Seconds
from headway.version import __version__

if TYPE_CHECKING:
    import psycopg

NOW = "extract(epoch FROM clock_timestamp())::double precision"

JOIN = f"""
    INSERT INTO collector (name, label, version, joined_at, until_at)
    VALUES (%s, %s, %s, {NOW}, {NOW} + %s) RETURNING id"""  # noqa: S608
READ_CLOCK = f"SELECT {NOW}"
OTHER_VERSIONS = f"""
    SELECT DISTINCT version FROM collector WHERE NOT is_gone AND until_at > {NOW} AND version <> %s"""  # noqa: S608
RENEW = f"""
    UPDATE collector SET until_at = {NOW} + %s, taken_share = %s, report = %s, second = %s,
        received_bytes = %s, link = %s, link_use = %s
    WHERE id = %s AND NOT is_gone AND until_at > {NOW} RETURNING until_at - {NOW}"""  # noqa: S608
# No other collector gets a site before its holder is marked as gone, however long ago the lease ended.
FENCE = """
    UPDATE collector SET last_batch = %s
    WHERE id = %s AND NOT is_gone AND last_batch < %s RETURNING id"""
LAST_BATCH = "SELECT last_batch FROM collector WHERE id = %s"
NEWEST_SHARE = f"""
    SELECT number, rate_bytes_per_s, until_at - {NOW} FROM share
    WHERE collector_id = %s AND until_at > {NOW} ORDER BY number DESC LIMIT 1"""  # noqa: S608
HAS_LEASES = "SELECT to_regclass('group_lease') IS NOT NULL"
RELEASE = """
    UPDATE group_lease SET collector_id = NULL, free_at = new.free_at
    FROM unnest(%s::text[], %s::double precision[]) AS new (key, free_at)
    WHERE group_lease.key = new.key AND collector_id = %s"""
# A holder that has gone may have sent requests until its lease ended, so its server is not clean: `unclean`.
GRANT = f"""
    WITH wish AS (SELECT key FROM unnest(%(keys)s::text[]) AS key ORDER BY key)
    INSERT INTO group_lease AS mine (key, collector_id) SELECT key, %(me)s FROM wish
    ON CONFLICT (key) DO UPDATE SET
        free_at = greatest(mine.free_at, (
            SELECT until_at FROM collector
            WHERE id = mine.collector_id AND id <> %(me)s AND (is_gone OR until_at <= {NOW}))),
        collector_id = %(me)s,
        wanted_by = CASE WHEN mine.wanted_by = %(me)s THEN NULL ELSE mine.wanted_by END
    WHERE mine.collector_id = %(me)s
        OR ((mine.collector_id IS NULL OR EXISTS (
                SELECT FROM collector WHERE id = mine.collector_id AND (is_gone OR until_at <= {NOW})))
            AND (mine.wanted_by IS NULL OR mine.wanted_by = %(me)s OR mine.wanted_at < {NOW} - 3))
    RETURNING key, free_at, EXISTS (SELECT FROM collector WHERE until_at = free_at)"""  # noqa: S608
WANT = f"""
    WITH wish AS (
        SELECT key FROM group_lease WHERE key = ANY(%s) AND collector_id IS DISTINCT FROM %s
            AND (wanted_by IS NULL OR wanted_by = %s OR wanted_at < {NOW} - 3)
        ORDER BY key FOR UPDATE SKIP LOCKED)
    UPDATE group_lease SET wanted_by = %s, wanted_at = {NOW} FROM wish WHERE group_lease.key = wish.key"""  # noqa: S608
RECALLED = f"""
    SELECT key FROM group_lease
    WHERE collector_id = %s AND wanted_by IS NOT NULL AND wanted_at > {NOW} - 3"""  # noqa: S608
NOT_TAKEN = """
    SELECT holding.site_id, site.site, soiled_until FROM holding JOIN site ON site.id = holding.site_id
    WHERE collector_id = %s AND NOT is_taken ORDER BY site_id LIMIT %s"""
TAKE = "UPDATE holding SET is_taken = true WHERE site_id = ANY(%s) AND collector_id = %s"
ASKED_BACK = """
    SELECT site.site FROM holding JOIN site ON site.id = holding.site_id
    WHERE collector_id = %s AND is_asked_back AND is_taken"""
FETCH_MAIL = """
    DELETE FROM mail USING holding
    WHERE holding.site_id = mail.site_id AND holding.collector_id = %s AND holding.is_taken
    RETURNING mail.site_id, mail.place"""
READ_MAIL = """
    SELECT site.site, path, key, depth, coalesce(score, 0.0)
    FROM unnest(%s::bigint[], %s::bigint[]) AS mine (site_id, place)
    JOIN waiting ON waiting.site_id = mine.site_id AND waiting.place = mine.place
    JOIN site ON site.id = mine.site_id"""
LINK_USES = f"""
    SELECT link_use FROM collector
    WHERE link = %s AND id <> %s AND %s AND link_use IS NOT NULL AND NOT is_gone AND until_at > {NOW}"""  # noqa: S608
COUNT_COLLECTORS = f"SELECT count(*) FROM collector WHERE NOT is_gone AND until_at > {NOW}"  # noqa: S608
IS_OVER = "SELECT ended_at IS NOT NULL FROM crawl"
PUT_ROUND_TRIPS = """
    INSERT INTO latency SELECT site.id, %s, new.round_trip_s
    FROM unnest(%s::text[], %s::double precision[]) AS new (site, round_trip_s)
    JOIN site ON site.site = new.site
    ORDER BY site.id
    ON CONFLICT (site_id, label) DO UPDATE SET round_trip_s = excluded.round_trip_s"""
TO_MEASURE = """
    SELECT site.site FROM holding JOIN collector ON collector.id = holding.collector_id
    JOIN site ON site.id = holding.site_id
    WHERE collector.label <> %s AND holding.is_taken AND NOT EXISTS (
        SELECT FROM latency WHERE latency.site_id = holding.site_id AND latency.label = %s)
    ORDER BY holding.site_id LIMIT %s"""
GIVE_BACK = """
    UPDATE holding SET collector_id = NULL, is_taken = false, is_asked_back = false, soiled_until = NULL
    FROM site WHERE site.id = holding.site_id AND site.site = ANY(%s) AND collector_id = %s"""
GIVE_ALL_BACK = """
    UPDATE holding SET collector_id = NULL, is_taken = false, is_asked_back = false, soiled_until = NULL
    WHERE collector_id = %s"""
LEAVE = f"UPDATE collector SET is_gone = true, until_at = least(until_at, {NOW}) WHERE id = %s"  # noqa: S608
DROP_SHARES = "DELETE FROM share WHERE collector_id = %s"

EXPIRE = f"UPDATE collector SET is_gone = true WHERE NOT is_gone AND until_at <= {NOW} RETURNING id"  # noqa: S608
FREE_EXPIRED = """
    UPDATE holding SET collector_id = NULL, is_taken = false, is_asked_back = false,
        soiled_until = CASE WHEN is_taken THEN collector.until_at ELSE soiled_until END
    FROM collector WHERE collector.id = holding.collector_id AND collector.is_gone"""
COLLECTORS = f"""
    SELECT id, label, taken_share, report,
        (SELECT count(*) FROM holding WHERE collector_id = collector.id AND NOT is_taken),
        (SELECT count(*) FROM holding WHERE collector_id = collector.id AND is_asked_back)
    FROM collector WHERE NOT is_gone AND until_at > {NOW} ORDER BY id"""  # noqa: S608
DROP_OLD_SHARES = f"DELETE FROM share WHERE until_at <= {NOW}"  # noqa: S608
SHARES = f"""
    SELECT share.collector_id, rate_bytes_per_s, share.until_at, number, taken_share, {NOW}
    FROM share JOIN collector ON collector.id = share.collector_id WHERE share.until_at > {NOW}"""  # noqa: S608
ADD_SHARES = """
    INSERT INTO share (collector_id, rate_bytes_per_s, until_at)
    SELECT * FROM unnest(%s::bigint[], %s::double precision[], %s::double precision[])"""
UNHELD = "SELECT site_id FROM holding WHERE collector_id IS NULL ORDER BY site_id LIMIT %s"
ROUND_TRIPS = "SELECT site_id, label, round_trip_s FROM latency WHERE site_id = ANY(%s)"
ROUND_TRIPS_OF = """
    SELECT site.site, label, round_trip_s FROM latency JOIN site ON site.id = latency.site_id
    WHERE site.site = ANY(%s)"""
ASSIGN = """
    UPDATE holding SET collector_id = new.collector_id, is_taken = false, is_asked_back = false
    FROM unnest(%s::bigint[], %s::bigint[]) AS new (site_id, collector_id)
    WHERE holding.site_id = new.site_id AND holding.collector_id IS NULL"""
ASK_BACK = """
    UPDATE holding SET is_asked_back = true FROM site
    WHERE site.id = holding.site_id AND site.site = ANY(%s) AND collector_id = %s AND is_taken"""
# Before `END`, which would otherwise decide on the rows of the moment before it waited: a process that queues
# pages of a finished crawl, as repair does, locks this row until they are there.
MAY_END = """
    SELECT FROM crawl WHERE ended_at IS NULL AND NOT EXISTS (SELECT FROM waiting) FOR UPDATE"""
END = f"""
    UPDATE crawl SET ended_at = {NOW}
    WHERE ended_at IS NULL AND NOT EXISTS (SELECT FROM waiting) RETURNING ended_at"""  # noqa: S608
RECEIVED = "SELECT id, second, received_bytes FROM collector"
READ_SINCE = """
    SELECT (SELECT coalesce(sum(received_bytes), 0) FROM collector) - coalesce(
        (SELECT wire_bytes FROM sample WHERE at <= %s ORDER BY at DESC LIMIT 1), 0)"""
ADD_SAMPLE = "INSERT INTO sample (at, wire_bytes, capacity_bytes_per_s) VALUES (%s, %s, %s)"
BEGIN_AGAIN = "UPDATE crawl SET ended_at = NULL"


T = TypeVar("T")

LEASE_S = Seconds(10.0)
_MEASURED_AT_ONCE = 5
_SITES_AT_ONCE = 500
"""Sites taken in one heartbeat: their pages have to be read."""


class PostgresCoordinator:
    """Its methods block. Commits have a connection of their own, so that a lease is renewed while a large
    batch is written."""

    def __init__(
        self,
        address: Address,
        *,
        name: str,
        label: str,
        place: str,
        link: str = "",
        lease_s: Seconds = LEASE_S,
    ) -> None:
        self.address = address
        self._name = name
        self._label = label
        self._link = link
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
        others = self._beats.asked(lambda run: run.execute(OTHER_VERSIONS, (__version__,)).fetchall())
        if others:
            raise StoreError(
                f"{self.address.shown}: the collectors at work are headway {others[0][0]}, this is "
                f"{__version__}; install the same on all machines, or wait until they have left"
            )
        if not self._beats.asked(lambda run: run.execute(HAS_LEASES).fetchone() == (True,)):
            raise StoreError(
                f"{self.address.shown}: its tables are of an earlier version; open it once with this "
                "version's `headway crawl JOB --store ...`, which upgrades it"
            )
        values = (to_text(self._name), to_text(self._label), __version__, self._lease_s)
        row = self._beats.asked(lambda run: run.execute(JOIN, values).fetchone())
        assert row is not None
        self._collector = row[0]
        self._started_at = Instant(crawl[0])
        return Joined(self._collector, self._started_at, *self._read_clock(), self._lease_s)

    def _read_clock(self) -> tuple[Instant, float]:
        """The server's clock, from the fastest of several answers."""
        readings = []
        for _ in range(5):
            asked_at = time.monotonic()
            row = self._beats.asked(lambda run: run.execute(READ_CLOCK).fetchone())
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
                        RENEW,
                        (
                            self._lease_s,
                            report.taken_share,
                            packed,
                            report.second,
                            report.received_bytes,
                            to_text(self._link),
                            None if report.link_use is None else msgspec.msgpack.encode(report.link_use),
                            me,
                        ),
                    ),
                    connection.execute(NEWEST_SHARE, (me,)),
                    connection.execute(NOT_TAKEN, (me, _SITES_AT_ONCE)),
                    connection.execute(ASKED_BACK, (me,)),
                    connection.execute(FETCH_MAIL, (me,)),
                    connection.execute(IS_OVER),
                    connection.execute(COUNT_COLLECTORS),
                    connection.execute(LINK_USES, (to_text(self._link), me, report.link_use is not None)),
                ]
                if report.released:
                    keys, free_at = zip(*report.released, strict=True)
                    connection.execute(RELEASE, (list(keys), list(free_at), me))
                wanted = list(report.wanted)
                grants = connection.execute(GRANT, {"keys": wanted, "me": me}) if wanted else None
                if wanted:
                    connection.execute(WANT, (wanted, me, me, me))
                questions.append(connection.execute(RECALLED, (me,)))
                if self._label:
                    mine = to_text(self._label)
                    questions.append(connection.execute(TO_MEASURE, (mine, mine, _MEASURED_AT_ONCE)))
                if report.round_trips_s:
                    sites, seconds = zip(*report.round_trips_s, strict=True)
                    connection.execute(
                        PUT_ROUND_TRIPS, (to_text(self._label), list(map(to_text, sites)), list(seconds))
                    )
                granted = [] if grants is None else grants.fetchall()
                return [granted, *(question.fetchall() for question in questions)]

        granted, renewed, share, not_taken, asked_back, mail, is_over, count, *more = self._beats.asked(ask)
        uses, recalled, *to_measure = more
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
            link_uses=tuple(msgspec.msgpack.decode(use, type=LinkUse) for (use,) in uses),
            granted=tuple(GroupLease(key, Instant(at), is_unclean) for key, at, is_unclean in granted),
            recalled=tuple(key for (key,) in recalled),
        )

    def commit(self, number: int, batch: CommitBatch) -> bool:
        fence = self._fence(number)
        if self.store.commit(batch.savings, batch.file_lengths, batch.notes, first=fence):
            return False
        row = self.store.asked(lambda run: run.execute(LAST_BATCH, (self._collector,)).fetchone())
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
        self.store.asked(lambda run: run.execute(GIVE_BACK, (names, self._collector)))
        self._held.difference_update(sites)

    def leave(self) -> None:
        def go(connection: psycopg.Connection[tuple[Any, ...]]) -> None:
            with connection.transaction():
                for statement in (GIVE_ALL_BACK, DROP_SHARES, LEAVE):
                    connection.execute(statement, (self._collector,))

        self.store.asked(go)

    def close(self) -> None:
        self.store.close()
        self._beats.close()

    def _read(self, mail: Sequence[tuple[int, int]]) -> tuple[Page, ...]:
        """Mailed pages, except those that the last holder of the site has settled since."""
        if not mail:
            return ()
        places = [list(column) for column in zip(*mail, strict=True)]
        return tuple(
            _page(*row) for row in self._beats.asked(lambda run: run.execute(READ_MAIL, places).fetchall())
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
        self._beats.asked(lambda run: run.execute(TAKE, (ids, self._collector)))
        self._held |= sites
        unclean = {names[number]: Instant(until) for number, _, until in found if until is not None}
        return Taken(sites, snapshot, unclean, histories)

    def _server_time(self, store: PostgresStore) -> Instant:
        """The clock that all collectors follow; none of them is ahead of it."""
        row = store.asked(lambda run: run.execute(READ_CLOCK).fetchone())
        assert row is not None
        return Instant(row[0])

    def _fence(self, number: int) -> Callable[[psycopg.Connection[tuple[Any, ...]]], bool]:
        """Accepts a batch only while the lease is valid, and only once."""

        def check(connection: psycopg.Connection[tuple[Any, ...]]) -> bool:
            return bool(connection.execute(FENCE, (number, self._collector, number)).fetchall())

        return check

    def _lease_over(self) -> LeaseOver:
        return LeaseOver(f"{self.address.shown}: the lease of collector {self._collector} is over")


class ThreadedCoordinator:
    """Implements `Coordinator` with a blocking one in threads. Heartbeats, commits and lookups have one each,
    so that none waits for another and commits keep their order."""

    def __init__(self, blocking: PostgresCoordinator) -> None:
        self.blocking = blocking
        self._beats = ThreadPoolExecutor(1, thread_name_prefix="headway-beats")
        self._commits = ThreadPoolExecutor(1, thread_name_prefix="headway-commits")
        self._lookups = ThreadPoolExecutor(1, thread_name_prefix="headway-lookups")

    async def join(self, portion: Portion = ALL) -> Joined:
        return await _in(self._beats, self.blocking.join, portion)

    async def beat(self, report: Report) -> News:
        return await _in(self._beats, self.blocking.beat, report)

    async def commit(self, number: int, batch: CommitBatch) -> bool:
        return await _in(self._commits, self.blocking.commit, number, batch)

    async def first_waiting(self, site: Site, most: int) -> Sequence[WaitingRecord]:
        return await _in(self._commits, self.blocking.first_waiting, site, most)

    async def find_originals(self, digests: Sequence[str]) -> Mapping[str, tuple[Original, str]]:
        return await _in(self._lookups, self.blocking.find_originals, digests)

    async def find_copies(self, pages: Sequence[Page]) -> Mapping[tuple[Site, PageKey], Copy]:
        return await _in(self._lookups, self.blocking.find_copies, pages)

    async def give_back(self, sites: Sequence[Site]) -> None:
        await _in(self._commits, self.blocking.give_back, sites)

    async def leave(self) -> None:
        await _in(self._commits, self.blocking.leave)

    def close(self) -> None:
        """May block. Calls in progress are not waited for."""
        for thread in (self._beats, self._commits, self._lookups):
            thread.shutdown(wait=False, cancel_futures=True)
        self.blocking.close()


async def _in(thread: ThreadPoolExecutor, call: Callable[..., T], *args: object) -> T:
    return await asyncio.get_running_loop().run_in_executor(thread, call, *args)


def _share(found: Sequence[tuple[Any, ...]]) -> NewShare | None:
    if not found:
        return None
    number, rate, lasts_s = found[0]
    return NewShare(number, BytesPerSecond(rate), Seconds(lasts_s))


def _page(site: str, path: str, key: int, depth: int, score: float) -> Page:
    name = Site(from_text(site))
    return Page(rows.url_of(from_text(path), name), name, PageKey(key), depth, score)


_SILENCE_MS = 4000
_SITES_A_ROUND = 5000
_GRACE_S = 2.0


class LeaderElection:
    def __init__(self, address: Address, leader: Leader, quotas: Sequence[Quota] = ()) -> None:
        self._address = address
        self._leader = leader
        self._quotas = quotas
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None
        self._leads = False
        self._leads_since = 0.0

    def round(self) -> bool:
        """Lead unless another process does. True if this process led this round."""
        try:
            with self._address.clear_errors():
                connection = self._lock()
                if not self._leads:
                    return False
                with connection.transaction():
                    self._lead(connection)
                return True
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._leads = False
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _lock(self) -> psycopg.Connection[tuple[Any, ...]]:
        if self._connection is None or self._connection.closed:
            self._leads = False
            self._connection = self._address.connect("leader")
            self._connection.execute(f"SET idle_session_timeout = {_SILENCE_MS}")
            self._connection.execute(f"SET idle_in_transaction_session_timeout = {_SILENCE_MS}")
        if not self._leads:
            row = self._connection.execute(
                "SELECT pg_try_advisory_lock(hashtextextended(%s, 1))", (self._address.schema,)
            ).fetchone()
            self._leads = row is not None and row[0]
            self._leads_since = time.monotonic()
        return self._connection

    def _lead(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        # Collectors that could not reach the server while it was down get the time to report.
        if time.monotonic() > self._leads_since + _GRACE_S and connection.execute(EXPIRE).fetchall():
            connection.execute(FREE_EXPIRED)
        now, fleet = self._look(connection)
        readings = connection.execute(RECEIVED).fetchall()
        for sample in self._leader.samples(now, readings):
            bound = sample.bound_bytes_per_s
            connection.execute(ADD_SAMPLE, (sample.at, sample.received_bytes, bound))
        self._leader.left_bytes = self._left_bytes(now, connection)
        orders = self._leader.decide(now, fleet)
        if orders.may_end and connection.execute(MAY_END).fetchall():
            connection.execute(END)
        if orders.shares:
            connection.execute(
                ADD_SHARES,
                (
                    [share.collector for share in orders.shares],
                    [float(share.rate_bytes_per_s) for share in orders.shares],
                    [float(share.until_at) for share in orders.shares],
                ),
            )
        if orders.assigned:
            connection.execute(ASSIGN, (list(orders.assigned), list(orders.assigned.values())))
        for collector, sites in orders.asked_back.items():
            connection.execute(ASK_BACK, (list(map(to_text, sites)), collector))

    def _left_bytes(self, now: Instant, connection: psycopg.Connection[tuple[Any, ...]]) -> float:
        left = math.inf
        for quota in self._quotas:
            row = connection.execute(READ_SINCE, (quota.window(now)[0],)).fetchone()
            assert row is not None
            left = min(left, quota.limit_bytes - float(row[0]))
        return max(0.0, left)

    def _look(self, connection: psycopg.Connection[tuple[Any, ...]]) -> tuple[Instant, Fleet]:
        connection.execute(DROP_OLD_SHARES)
        shares = connection.execute(SHARES).fetchall()
        row = connection.execute(f"SELECT {NOW}").fetchone()
        assert row is not None
        collectors = [
            Standing(number, from_text(label), _report(report), taken, coming=coming, leaving=leaving)
            for number, label, taken, report, coming, leaving in connection.execute(COLLECTORS).fetchall()
        ]
        ids = [site for (site,) in connection.execute(UNHELD, (_SITES_A_ROUND,)).fetchall()]
        near: dict[int, dict[str, float]] = {}
        held_near: dict[Site, dict[str, float]] = {}
        if len({each.label for each in collectors}) > 1:
            for site, label, seconds in connection.execute(ROUND_TRIPS, (ids,)).fetchall():
                near.setdefault(site, {})[from_text(label)] = seconds
            active = [to_text(site) for each in collectors for site in each.report.active]
            for name, label, seconds in connection.execute(ROUND_TRIPS_OF, (active,)).fetchall():
                held_near.setdefault(Site(from_text(name)), {})[from_text(label)] = seconds
        return Instant(row[0]), Fleet(
            collectors=collectors,
            shares=[
                Share(collector, BytesPerSecond(rate), Instant(until), number)
                for collector, rate, until, number, *_ in shares
            ],
            taken={collector: taken for collector, _, _, _, taken, _ in shares},
            unheld=[Unheld(site, near.get(site, {})) for site in ids],
            round_trips_s=held_near,
        )


def _report(packed: bytes) -> Report:
    return msgspec.msgpack.decode(packed, type=Report) if packed else Report()


ROUND_EVERY_S = Seconds(0.25)
