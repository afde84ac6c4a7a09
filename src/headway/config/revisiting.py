"""Whether pages are visited again while the crawl goes on, and when."""

from __future__ import annotations

import msgspec

from headway.config import checks
from headway.config.schema import CrawlTable
from headway.errors import HeadwayError, UnitError
from headway.units import UNBOUNDED, BytesPerSecond, Seconds


class Revisiting(msgspec.Struct, frozen=True):
    every_s: Seconds
    """Between visits, or until the second one where the interval adapts to the page."""
    adapts: bool
    shortest_s: Seconds
    longest_s: Seconds
    bytes_per_s: BytesPerSecond


class Mistake(msgspec.Struct, frozen=True):
    key: tuple[str, ...]
    message: str


def read_revisiting(crawl: CrawlTable) -> Revisiting | Mistake | None:
    """None: every page is fetched once."""
    table = crawl.revisit
    lengths = []
    for key, text in (("every", crawl.every), ("shortest", table.shortest), ("longest", table.longest)):
        path = (key,) if key == "every" else ("revisit", key)
        try:
            lengths.append(None if text is None else checks.timeout(text))
        except HeadwayError as problem:
            return Mistake(path, str(problem))
    every_s, shortest_s, longest_s = lengths
    try:
        rate = UNBOUNDED if table.bandwidth is None else checks.rate(table.bandwidth)
    except UnitError as problem:
        return Mistake(("revisit", "bandwidth"), str(problem))
    assert shortest_s is not None
    assert longest_s is not None
    if shortest_s > longest_s:
        return Mistake(
            ("revisit", "shortest"), f"{table.shortest!r} is longer than the longest, {table.longest!r}"
        )
    if every_s is None:
        if table.adapt:
            return Mistake(("revisit", "adapt"), 'say with every = "24 h" when the second visit is due')
        return None
    return Revisiting(every_s, table.adapt, shortest_s, longest_s, rate)
