"""The leader's seat over PostgreSQL: an advisory lock of a session that the server ends when it is silent.

So a leader that dies, hangs or is cut off is replaced within seconds, and nothing that it would still write
can arrive: it would have to be written by the session that has ended.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from headway.fleet import statements as sql
from headway.fleet.assignment import Unheld
from headway.fleet.coordinator import Report
from headway.fleet.leader import Fleet, Leader, Standing
from headway.fleet.shares import Share
from headway.model.page import Site
from headway.policy.quota import Quota
from headway.store.postgres.address import Address
from headway.store.postgres.texts import from_text, to_text
from headway.units import BytesPerSecond, Instant, Seconds

if TYPE_CHECKING:
    import psycopg

_SILENCE_MS = 4000
_SITES_A_ROUND = 5000
_GRACE_S = 2.0


class Chair:
    def __init__(self, address: Address, leader: Leader, quotas: Sequence[Quota] = ()) -> None:
        self._address = address
        self._leader = leader
        self._quotas = quotas
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None
        self._is_mine = False
        self._seated_at = 0.0

    def round(self) -> bool:
        """Lead if nobody else does. True if this was our round."""
        try:
            with self._address.clear_errors():
                connection = self._seat()
                if not self._is_mine:
                    return False
                with connection.transaction():
                    self._lead(connection)
                return True
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._is_mine = False
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _seat(self) -> psycopg.Connection[tuple[Any, ...]]:
        if self._connection is None or self._connection.closed:
            self._is_mine = False
            self._connection = self._address.connect("leader")
            self._connection.execute(f"SET idle_session_timeout = {_SILENCE_MS}")
            self._connection.execute(f"SET idle_in_transaction_session_timeout = {_SILENCE_MS}")
        if not self._is_mine:
            row = self._connection.execute(
                "SELECT pg_try_advisory_lock(hashtextextended(%s, 1))", (self._address.schema,)
            ).fetchone()
            self._is_mine = row is not None and row[0]
            self._seated_at = time.monotonic()
        return self._connection

    def _lead(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        # Who could not reach the server while it was down is given the time to say what it has.
        if time.monotonic() > self._seated_at + _GRACE_S and connection.execute(sql.BURY).fetchall():
            connection.execute(sql.FREE_DEAD)
        now, fleet = self._look(connection)
        is_quiet = not any(each.report.active or each.coming for each in fleet.collectors)
        if is_quiet and connection.execute(sql.MAY_END).fetchall():
            connection.execute(sql.END)
        self._leader.usage.note(connection.execute(sql.RECEIVED).fetchall())
        for second, received in self._leader.usage.sums(now):
            connection.execute(sql.ADD_SAMPLE, (second, received, self._leader.bound_at(now)))
        self._leader.left_bytes = self._left_bytes(now, connection)
        orders = self._leader.decide(now, fleet)
        if orders.shares:
            connection.execute(
                sql.ADD_SHARES,
                (
                    [share.collector for share in orders.shares],
                    [float(share.rate_bytes_per_s) for share in orders.shares],
                    [float(share.until_at) for share in orders.shares],
                ),
            )
        if orders.assigned:
            connection.execute(sql.ASSIGN, (list(orders.assigned), list(orders.assigned.values())))
        for collector, sites in orders.asked_back.items():
            connection.execute(sql.ASK_BACK, (list(map(to_text, sites)), collector))

    def _left_bytes(self, now: Instant, connection: psycopg.Connection[tuple[Any, ...]]) -> float:
        left = math.inf
        for quota in self._quotas:
            row = connection.execute(sql.READ_SINCE, (quota.window(now)[0],)).fetchone()
            assert row is not None
            left = min(left, quota.limit_bytes - float(row[0]))
        return max(0.0, left)

    def _look(self, connection: psycopg.Connection[tuple[Any, ...]]) -> tuple[Instant, Fleet]:
        connection.execute(sql.DROP_OLD_SHARES)
        shares = connection.execute(sql.SHARES).fetchall()
        row = connection.execute(f"SELECT {sql.NOW}").fetchone()
        assert row is not None
        collectors = [
            Standing(number, from_text(label), _report(report), taken, coming=coming, leaving=leaving)
            for number, label, taken, report, coming, leaving in connection.execute(sql.COLLECTORS).fetchall()
        ]
        ids = [site for (site,) in connection.execute(sql.UNHELD, (_SITES_A_ROUND,)).fetchall()]
        near: dict[int, dict[str, float]] = {}
        held_near: dict[Site, dict[str, float]] = {}
        if len({each.label for each in collectors}) > 1:
            for site, label, seconds in connection.execute(sql.ROUND_TRIPS, (ids,)).fetchall():
                near.setdefault(site, {})[from_text(label)] = seconds
            active = [to_text(site) for each in collectors for site in each.report.active]
            for name, label, seconds in connection.execute(sql.ROUND_TRIPS_OF, (active,)).fetchall():
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
