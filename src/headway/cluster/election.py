"""The election of the leader of a fleet on a PostgreSQL server.

The leader holds an advisory lock, and the server ends its session when it is silent. So a leader that dies,
hangs or is cut off is replaced within seconds. It cannot write anything later, since its session has ended.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from headway.cluster import postgres as sql
from headway.cluster.coordinator import Report
from headway.cluster.leader import Fleet, Leader, Share, Standing, Unheld
from headway.model.page import Site
from headway.policy.timetable import Quota
from headway.store.postgres.connection import Address, from_text, to_text
from headway.units import BytesPerSecond, Instant, Seconds

if TYPE_CHECKING:
    import psycopg

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
        if time.monotonic() > self._leads_since + _GRACE_S and connection.execute(sql.EXPIRE).fetchall():
            connection.execute(sql.FREE_EXPIRED)
        now, fleet = self._look(connection)
        readings = connection.execute(sql.RECEIVED).fetchall()
        for sample in self._leader.samples(now, readings):
            bound = sample.bound_bytes_per_s
            connection.execute(sql.ADD_SAMPLE, (sample.at, sample.received_bytes, bound))
        self._leader.left_bytes = self._left_bytes(now, connection)
        orders = self._leader.decide(now, fleet)
        if orders.may_end and connection.execute(sql.MAY_END).fetchall():
            connection.execute(sql.END)
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
