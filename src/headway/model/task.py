"""A task, as in zhu2020: a site, by when it is wanted, how much data it holds, what it is worth."""

from __future__ import annotations

import msgspec

from headway.model.page import Site
from headway.units import Bytes, BytesPerSecond, Instant


class Task(msgspec.Struct, frozen=True):
    site: Site
    seeds: tuple[str, ...] = ()
    deadline_at: Instant | None = None
    """None: wanted, but at no particular time (the paper writes t* = 0)."""
    weight: float = 1.0
    max_pages: int | None = None
    max_bytes: Bytes | None = None
    expected_bytes: Bytes | None = None
    """What the user, or an earlier crawl, says that the site holds."""
    cap_bytes_per_s: BytesPerSecond | None = None
    """The most that the site may be asked for, whatever the link has left."""
