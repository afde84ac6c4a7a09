"""How much data a site still holds, how fast it can be had, and how sure we are of it.

What the user or an earlier crawl says counts at first and is believed less the more has been seen. Without it
the size of a site is read off its links: the share of links that lead to pages already known is the share of
the site that is known (Good and Turing's coverage), so a site whose every second link is new is half known.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from headway.units import Bytes, BytesPerSecond, Instant, Seconds

PRIOR_PAGE_BYTES = 30_000.0
"""About the median HTML page with its headers, compressed as it travels."""
_PRIOR_PAGES = 2.0
_PRIOR_UNKNOWN_LINKS = 2.0
_MOST_GROWTH = 20.0
_GIVEN_ERROR = 0.3
_SAFETY = 0.5


class Evidence(msgspec.Struct, frozen=True, gc=False):
    """What is known of a site so far."""

    fetched_pages: int = 0
    fetched_bytes: int = 0
    """On the wire, failures and retries included: they use the link as well."""
    waiting_pages: int = 0
    links_seen: float = 0.0
    """Links to pages of the site, each as often as it was met; older ones may count less."""
    links_new: float = 0.0
    """Those of them that led to a page not known before."""
    new_per_page: float | None = None
    """How many pages not known before the last pages led to, each."""
    sitemap_pages: int = 0
    given_bytes: Bytes | None = None
    """What the user says, or an earlier crawl found, that the whole site holds."""
    max_pages: int | None = None
    max_bytes: Bytes | None = None


class Remaining(NamedTuple):
    """Bytes still to come. `low` is what is surely there, `high` what it may well turn out to be."""

    low: float
    expected: float
    high: float

    def guarded(self) -> float:
        """With a margin for what is not known, which shrinks as it becomes known."""
        return self.expected + _SAFETY * (self.high - self.expected)


def page_bytes(evidence: Evidence) -> float:
    """The mean size of a page, leaning on the prior while few have been seen."""
    pages = evidence.fetched_pages + _PRIOR_PAGES
    return (evidence.fetched_bytes + _PRIOR_PAGES * PRIOR_PAGE_BYTES) / pages


def remaining_bytes(evidence: Evidence) -> Remaining:
    size = page_bytes(evidence)
    known_pages = evidence.fetched_pages + evidence.waiting_pages
    doubt = 1 / math.sqrt(1 + evidence.fetched_pages)
    low = evidence.waiting_pages * size * (1 - doubt)
    if not evidence.waiting_pages:
        # Nothing is in line: what may still be found hangs on the pages under way alone.
        return _limited(evidence, Remaining(0.0, 0.0, 0.0))
    if evidence.given_bytes is not None:
        left = max(float(evidence.given_bytes - evidence.fetched_bytes), 0.0)
        progress = min(1.0, evidence.fetched_bytes / evidence.given_bytes) if evidence.given_bytes else 1.0
        # More may be in line than the site was said to hold: then the line is believed.
        expected = max(left, evidence.waiting_pages * size)
        high = expected * (1 + _GIVEN_ERROR * (1 - progress))
        return _limited(evidence, Remaining(min(low, expected), expected, high))
    total = max(_pages_by_coverage(evidence, known_pages), float(evidence.sitemap_pages), float(known_pages))
    expected = max(total - evidence.fetched_pages, evidence.waiting_pages) * size
    return _limited(evidence, Remaining(min(low, expected), expected, expected * (1 + doubt)))


def cap_bytes_per_s(
    size_bytes: float,
    *,
    pause_s: Seconds,
    latency_s: Seconds,
    server_rate_bytes_per_s: BytesPerSecond,
) -> BytesPerSecond:
    """The most that a polite crawl can get from a site: one page after another, with the pause between."""
    transfer_s = size_bytes / server_rate_bytes_per_s if math.isfinite(server_rate_bytes_per_s) else 0.0
    page_s = pause_s + latency_s + transfer_s
    return BytesPerSecond(size_bytes / page_s if page_s > 0 else math.inf)


def forecast_range(now: Instant, end_at: Instant, remaining: Remaining) -> tuple[Instant, Instant]:
    """Between which instants a site will end that is foreseen to end at `end_at` with the guarded amount."""
    planned = remaining.guarded()
    if planned <= 0 or not math.isfinite(end_at):
        return end_at, end_at
    left_s = end_at - now
    early, late = (now + left_s * share / planned for share in (remaining.low, remaining.high))
    return Instant(early), Instant(late)


def fit_xi(downloads: Iterable[tuple[float, float, float]]) -> float:
    """zhu2020's xi in t = xi * D / v, from past downloads as (D bytes, v bytes/s, t seconds): the least
    squares line through the origin. 1 when there is nothing to learn from."""
    above = below = 0.0
    for data_bytes, rate_bytes_per_s, seconds in downloads:
        if data_bytes > 0 and rate_bytes_per_s > 0 and seconds > 0:
            ideal_s = data_bytes / rate_bytes_per_s
            above += seconds * ideal_s
            below += ideal_s * ideal_s
    return above / below if below > 0 else 1.0


def _pages_by_coverage(evidence: Evidence, known_pages: int) -> float:
    new, seen = evidence.links_new + _PRIOR_UNKNOWN_LINKS, evidence.links_seen + 2 * _PRIOR_UNKNOWN_LINKS
    coverage = max(1 - new / seen, 1 / _MOST_GROWTH)
    total = known_pages / coverage
    if evidence.new_per_page is not None:
        # Each page that waits leads to so many more, and those again: where little is found any more,
        # little is left to be found, whatever the first pages were full of.
        again = min(evidence.new_per_page, 1 - 1 / _MOST_GROWTH)
        total = min(total, known_pages + evidence.waiting_pages * again / (1 - again))
    return total


def _limited(evidence: Evidence, remaining: Remaining) -> Remaining:
    """The site's own limits end it, whatever it holds."""
    most = math.inf
    if evidence.max_pages is not None:
        most = max(0, evidence.max_pages - evidence.fetched_pages) * page_bytes(evidence)
    if evidence.max_bytes is not None:
        most = min(most, max(0.0, float(evidence.max_bytes - evidence.fetched_bytes)))
    return Remaining(*(min(value, most) for value in remaining))
