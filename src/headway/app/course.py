"""How some sites of a run went on, as arrays: what they were given, what they got, what was foreseen."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headway.report.run_facts import Course, Floats
from headway.store.aggregates import RunSums, SiteSums

_MOST_SITES = 400
_FEWEST_ROWS = 3


def courses_of(sums: RunSums, rows: Sequence[SiteSums], started_at: float) -> list[Course]:
    """Those with the most data first, as far as there is enough to draw."""
    largest = sorted(rows, key=lambda row: -row.wire_bytes)[:_MOST_SITES]
    courses = []
    for row in largest:
        table = np.array(
            [[np.nan if cell is None else cell for cell in each] for each in sums.course(row.number)]
        )
        if len(table) >= _FEWEST_ROWS:
            courses.append(_course(row, table, started_at))
    return courses


def _course(row: SiteSums, table: Floats, started_at: float) -> Course:
    at, wire_bytes, _, _, share, from_at, to_at = table.T
    end_s = row.ended_at - started_at if row.ended_at is not None and not row.waiting else None
    return Course(
        row.site, at - started_at, wire_bytes, share, from_at - started_at, to_at - started_at, end_s
    )
