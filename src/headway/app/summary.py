"""What came of a crawl, read from its run folder: finished, interrupted or still under way."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from headway.store.reader import RunReader
from headway.units import Instant


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
    errors: Mapping[str, int]
    first_problem: str | None
