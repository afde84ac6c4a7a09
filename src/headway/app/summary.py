"""What came of a crawl, read from its run folder: finished, interrupted or still under way."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import msgspec

from headway.app.clock import WallClock
from headway.app.noticed import Noticed, noticed
from headway.errors import StoreError
from headway.store.postgres.address import Address, is_address
from headway.store.reader import RunReader, Sample, SiteRow, open_reader
from headway.units import Instant

_SHORTEST_SAMPLE_S = 0.9
"""The last sample of a run may span a moment only, in which any rate can be seen."""


class SiteResult(msgspec.Struct, frozen=True):
    site: str
    verdict: str
    """ "met", "missed", "done" (no deadline), "unreachable", or "open" while pages wait."""
    deadline_s: float | None
    """From the start of the crawl, as all the times here."""
    finished_s: float | None
    done: int
    failed: int
    waiting: int
    wire_bytes: int


class Summary(msgspec.Struct, frozen=True):
    run: str
    started_at: Instant
    seconds: float
    done: int
    failed: int
    waiting: int
    wire_bytes: int
    bound_bytes_per_s: float | None
    """The largest bound that held during the crawl; None without one."""
    mean_bytes_per_s: float
    max_bytes_per_s: float
    """The highest one-second sample."""
    use_of_bound: float | None
    most_over_bound: float | None
    """The highest sample over the bound that held then, as a share of it; below zero when all were under."""
    sites: tuple[SiteResult, ...]
    missed: int
    """Deadlines, those of unreachable sites among them."""
    errors: Mapping[str, int]
    first_problem: str | None
    noticed: Noticed


def begun_at(folder: Path | str) -> Instant | None:
    """When the crawl in a folder was first begun; None where there is none that can be read."""
    try:
        with open_reader(folder) as reader:
            return reader.started_at
    except (StoreError, OSError):
        return None  # whoever opens the folder next will say why


def summarise(folder: Path | str) -> Summary:
    """Of a run folder, or of a crawl on a PostgreSQL server by its address."""
    with open_reader(folder) as reader:
        started_at = reader.started_at
        totals = reader.totals()
        samples = reader.samples()
        rows = [row for row in reader.sites() if row.done or row.failed or row.waiting or row.deadline_at]
        outcomes = reader.outcomes()
        problem = _first_problem(reader) if not totals.done else None
        seen = noticed(reader)
    last_at = max([sample.at for sample in samples] + [row.ended_at or 0.0 for row in rows] + [started_at])
    now = max(last_at, WallClock().now())  # a deadline may have passed since the crawl was stopped
    sites = tuple(_site_result(row, started_at, now) for row in rows)
    use = _use_of_link(samples)
    errors: Counter[str] = Counter()
    for outcome in outcomes:
        if outcome.state == "failed":
            errors[outcome.kind] += outcome.count
    return Summary(
        _name_of(folder),
        started_at,
        last_at - started_at,
        totals.done,
        totals.failed,
        totals.waiting,
        totals.wire_bytes,
        *use,
        sites,
        sum(_is_missed(site) for site in sites),
        dict(errors.most_common()),
        problem,
        seen,
    )


def _name_of(run: Path | str) -> str:
    if is_address(str(run)):
        return Address.parse(str(run)).shown
    return os.fsencode(run).decode("utf-8", "replace")  # a file's name may be no text at all


def _site_result(row: SiteRow, started_at: float, now: float) -> SiteResult:
    ended_at = None if row.waiting else row.ended_at
    deadline_at = row.deadline_at
    if not row.done and row.failed and not row.waiting:
        verdict = "unreachable"
    elif deadline_at is not None and (ended_at or now) > deadline_at:
        verdict = "missed"
    elif ended_at is None:
        verdict = "open"
    else:
        verdict = "met" if deadline_at is not None else "done"
    return SiteResult(
        row.site,
        verdict,
        None if deadline_at is None else deadline_at - started_at,
        None if ended_at is None else ended_at - started_at,
        row.done,
        row.failed,
        row.waiting,
        row.wire_bytes,
    )


def _is_missed(site: SiteResult) -> bool:
    """A site of which nothing could be had by its deadline has missed it too."""
    return site.verdict == "missed" or (site.verdict == "unreachable" and site.deadline_s is not None)


def _use_of_link(samples: Sequence[Sample]) -> tuple[float | None, float, float, float | None, float | None]:
    """Bound, mean, highest, use of the bound, and the most over it, from the one-second samples.

    A counter that went back means that the crawl was taken up again in a new process: time in between,
    when nobody crawled, is left out.
    """
    allowed = seconds = highest = 0.0
    received = 0
    over: float | None = None
    for before, after in pairwise(samples):
        length_s = after.at - before.at
        if after.wire_bytes < before.wire_bytes or length_s <= 0:
            continue
        carried = after.wire_bytes - before.wire_bytes
        seconds += length_s
        received += carried
        allowed += length_s * before.capacity_bytes_per_s
        if length_s >= _SHORTEST_SAMPLE_S:
            rate = carried / length_s
            highest = max(highest, rate)
            bound = max(before.capacity_bytes_per_s, after.capacity_bytes_per_s)
            excess = rate / bound - 1
            over = excess if over is None else max(over, excess)
    mean = received / seconds if seconds else 0.0
    bounds = [sample.capacity_bytes_per_s for sample in samples]
    if not bounds or not all(math.isfinite(bound) for bound in bounds):
        return None, mean, highest, None, None
    return max(bounds), mean, highest, received / allowed if allowed else 0.0, over


def _first_problem(reader: RunReader) -> str | None:
    for page in reader.pages():
        if page.state in {"failed", "excluded"}:
            detail = f" ({page.detail})" if page.detail else ""
            return f"{page.url}: {page.kind}{detail}"
    return None
