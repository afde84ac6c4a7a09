"""How a crawl went second by second, written in PostgreSQL's dialect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headway.store import course
from headway.store.postgres.tables import translated_query

if TYPE_CHECKING:
    import psycopg


def sample_row(
    at: float, wire_bytes: int, capacity_bytes_per_s: float, gauges: course.Gauges | None
) -> tuple[object, ...]:
    """SQLite's booleans are numbers, and the tables were made for it."""
    row = course.sample_row(at, wire_bytes, capacity_bytes_per_s, gauges)
    return tuple(int(value) if isinstance(value, bool) else value for value in row)


def write_course(
    connection: psycopg.Connection[tuple[Any, ...]],
    samples: Sequence[tuple[object, ...]],
    looks: Sequence[course.SiteCourse],
) -> None:
    with connection.cursor() as cursor:
        if samples:
            cursor.executemany(translated_query(course.ADD_SAMPLE), samples)
        for statement, values in course.course_rows(looks):
            cursor.executemany(translated_query(statement), values)
