"""Instants as the archive formats write them: ISO 8601 in UTC, and the fourteen digits of CDX."""

from __future__ import annotations

import time
from functools import lru_cache

from headway.units import Instant


@lru_cache(maxsize=64)
def _second(unix_s: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(unix_s))


# An instant is written in the archive, in the list of pages and in the log.
@lru_cache(maxsize=1024)
def iso_utc(instant: Instant) -> str:
    """`2026-11-16T00:04:06.204475Z`, as WARC 1.1 allows it."""
    microseconds = round(instant * 1_000_000)
    return f"{_second(microseconds // 1_000_000)}.{str(microseconds % 1_000_000).zfill(6)}Z"


def cdx_timestamp(instant: Instant) -> str:
    """`20261116000406`, cut and not rounded: the second that the WARC date shows, too."""
    return _digits(round(instant * 1_000_000) // 1_000_000)


@lru_cache(maxsize=64)
def _digits(unix_s: int) -> str:
    return time.strftime("%Y%m%d%H%M%S", time.gmtime(unix_s))
