"""The course of a crawl: what was so at an instant, for those who look on and for the report afterwards.

The link has a row each second. A site has its last row in `site`, and earlier ones in `course`, the further
apart the longer the crawl has lasted.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Sequence

import msgspec

from headway.model.page import Site

ADD_SAMPLE = """
    INSERT INTO sample (at, wire_bytes, capacity_bytes_per_s, predicted_bytes_per_s, in_flight, waiting, done,
                        failed, is_paused)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"""
ADD_COURSE = """
    INSERT OR REPLACE INTO course (site_id, at, wire_bytes, waiting, left_bytes, share_bytes_per_s,
                                   forecast_from_at, forecast_to_at)
    SELECT id, ?, ?, ?, ?, ?, ?, ? FROM site WHERE site = ?"""
PUT_OUTLOOK = """
    UPDATE site SET looked_at = ?, waiting = ?, left_bytes = ?, share_bytes_per_s = ?, forecast_from_at = ?,
                    forecast_to_at = ?
    WHERE site = ?"""


class Gauges(msgspec.Struct, frozen=True, gc=False):
    """The whole crawl at an instant."""

    predicted_bytes_per_s: float | None = None
    """What the servers under way should give together, by what was learnt of them, within the bound. None
    where nothing is planned."""
    in_flight: int | None = 0
    """None where nobody counts: such a crawl looks at no orders either."""
    waiting: int | None = 0
    """None where nobody knows of all: it is in the store."""
    done: int = 0
    failed: int = 0
    is_paused: bool = False


class SiteCourse(msgspec.Struct, frozen=True, gc=False):
    """A site at an instant. Without a bound and deadlines nothing is planned, and the last four are None."""

    site: Site
    at: float
    wire_bytes: int
    waiting: int
    left_bytes: float | None = None
    """What it is thought to hold still."""
    share_bytes_per_s: float | None = None
    """What the allocation gives it."""
    forecast_from_at: float | None = None
    forecast_to_at: float | None = None


def sample_row(
    at: float, wire_bytes: int, capacity_bytes_per_s: float, gauges: Gauges | None
) -> tuple[object, ...]:
    if gauges is None:
        return at, wire_bytes, capacity_bytes_per_s, *(None,) * 6
    return at, wire_bytes, capacity_bytes_per_s, *msgspec.structs.astuple(gauges)


def write_course(connection: sqlite3.Connection, rows: Sequence[SiteCourse]) -> None:
    """Inside the transaction that the store has begun. Sites that it does not know yet are passed over."""
    for statement, values in course_rows(rows):
        connection.executemany(statement, values)


def course_rows(rows: Sequence[SiteCourse]) -> list[tuple[str, list[tuple[object, ...]]]]:
    """What keeps them: statements, each with its rows."""
    finite = [_finite(row) for row in rows]
    return [
        (ADD_COURSE, [(*row[1:], row[0]) for row in finite]),
        (PUT_OUTLOOK, [(row[1], *row[3:], row[0]) for row in finite]),
    ]


def _finite(row: SiteCourse) -> tuple[object, ...]:
    values: tuple[object, ...] = msgspec.structs.astuple(row)
    return tuple(None if isinstance(value, float) and not math.isfinite(value) else value for value in values)
