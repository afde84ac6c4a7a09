"""How large a fleet must be, computed from measurements: tables of the pages on fleets and on scale."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec

DOCS = Path(__file__).parents[2] / "docs"
PAGES = (DOCS / "how-to" / "fleet.md", DOCS / "explanation" / "scale.md")
PAGE_BYTES, INTERVAL_S, FOUND_A_PAGE = 50_000, 15.0, 5.0
"""Assumed of the web: what a page weighs, how long a site is left alone, how many new pages each brings."""
CORES_EACH, CORE_HOUR_USD, GB_MONTH_USD = 8, 0.04, 0.02
"""Assumed of a cloud: cores of a machine, and list prices of a core and of storage."""
DAY_S = 86_400.0
_NOT_MEASURED = "not measured"
_RATES = (100, 1000, 5000, 20_000)
_MACHINES = (1, 10, 1000)


class Units(msgspec.Struct, frozen=True):
    """What a page costs, as measured."""

    cpu_ms: float | None
    """Of a collector: fetch, parse, archive, log. None: not measured."""
    pages_per_core_s: float
    """Of the database."""
    beat_ms: float
    seen_bytes: float
    waiting_bytes: float
    page_bytes: float

    @classmethod
    def of(cls, coordination: list[dict[str, Any]], processes: list[dict[str, Any]]) -> Units:
        worst = min(coordination, key=lambda row: row["pages_per_core_s"])
        sizes = {name: worst[name] for name in ("seen_bytes", "waiting_bytes", "page_bytes")}
        cpu_ms = processes[0]["cpu_ms"] if processes else None
        # Of one that does not wait for others on the same two cores.
        beat_ms = coordination[0]["beat_ms"]
        return cls(cpu_ms, worst["pages_per_core_s"], beat_ms, **sizes)


def write(units: Units) -> None:
    tables = {"units": _units(units), "sizes": _sizes(units), "machines": _machines(units)}
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        for name, table in tables.items():
            mark = re.compile(rf"(<!-- {name}: .*? -->\n).*?(<!-- end -->\n)", re.DOTALL)
            text = mark.sub(lambda found, table=table: found[1] + table + found[2], text)
        path.write_text(text, encoding="utf-8")


def _units(units: Units) -> str:
    rows = [
        (
            "a page for a collector: fetch, parse, archive, log",
            _NOT_MEASURED if units.cpu_ms is None else f"{units.cpu_ms:.2f} ms of CPU",
            "processes",
        ),
        (
            "a page for the database: lease, seen set, queue, result, sums, contents",
            f"{1000 / units.pages_per_core_s:.2f} ms of a core ({units.pages_per_core_s:,.0f} pages/s)",
            "coordination",
        ),
        ("a collector's beat, two a second", f"{units.beat_ms:.2f} ms until it is answered", "coordination"),
        ("a known page, with its index", f"{units.seen_bytes:.0f} bytes", "coordination"),
        ("more, while it waits", f"{units.waiting_bytes:.0f} bytes", "coordination"),
        ("a fetched page, with its links", f"{units.page_bytes:.0f} bytes", "coordination"),
    ]
    return _table(("what", "cost", "measured by `benchmarks.fleet`"), rows)


def _sizes(units: Units) -> str:
    rows = [
        (
            f"{rate:,}",
            _NOT_MEASURED if units.cpu_ms is None else f"{rate * units.cpu_ms / 1000:,.1f}",
            f"{rate / units.pages_per_core_s:,.2f}",
            f"{_in_bits(rate * PAGE_BYTES)}",
            f"{rate * INTERVAL_S:,.0f}",
            _in_bytes(rate * DAY_S * _database_bytes(units)),
        )
        for rate in _RATES
    ]
    columns = "pages/s", "collector cores", "database cores", "link", "sites at once", "database, a day"
    return _table(columns, rows)


def _machines(units: Units) -> str:
    if units.cpu_ms is None:
        return f"{_NOT_MEASURED}\n"
    rows: list[tuple[str, ...]] = []
    rates = [count * CORES_EACH * 1000 / units.cpu_ms for count in _MACHINES]
    rows.append(("collector cores", *(f"{count * CORES_EACH:,}" for count in _MACHINES)))
    rows.append(("pages/s, where no interval and no bound holds them back", *(f"{r:,.0f}" for r in rates)))
    rows.append(("pages a day", *(f"{rate * DAY_S / 1e9:,.2f} billion" for rate in rates)))
    rows.append(("bytes fetched a day", *(_in_bytes(rate * DAY_S * PAGE_BYTES) for rate in rates)))
    rows.append(("database cores", *(f"{rate / units.pages_per_core_s:,.0f}" for rate in rates)))
    known = [30 * DAY_S * rate * FOUND_A_PAGE for rate in rates]
    rows.append(("rows of known pages after 30 days", *(f"{count / 1e9:,.0f} billion" for count in known)))
    sizes = [30 * DAY_S * rate * _database_bytes(units) for rate in rates]
    rows.append(("database after 30 days", *(map(_in_bytes, sizes))))
    cores = [
        count * CORES_EACH + rate / units.pages_per_core_s
        for count, rate in zip(_MACHINES, rates, strict=True)
    ]
    rows.append(("USD a day, cores", *(f"{count * 24 * CORE_HOUR_USD:,.0f}" for count in cores)))
    kept = [rate * DAY_S * PAGE_BYTES / 1e9 * GB_MONTH_USD for rate in rates]
    rows.append(("USD a month, to keep what a day brings", *(f"{price:,.0f}" for price in kept)))
    heads = [f"{count:,} machine{'s' * (count > 1)}" for count in _MACHINES]
    return _table(("", *heads), rows)


def _database_bytes(units: Units) -> float:
    """That a fetched page leaves there: its row, and those of the pages it has brought."""
    return units.page_bytes + FOUND_A_PAGE * units.seen_bytes


def _in_bytes(size: float) -> str:
    for unit, name in ((1e15, "PB"), (1e12, "TB"), (1e9, "GB")):
        if size >= unit:
            return f"{size / unit:,.1f} {name}"
    return f"{size / 1e6:,.0f} MB"


def _in_bits(bytes_per_s: float) -> str:
    bits = 8 * bytes_per_s
    return f"{bits / 1e9:,.1f} Gbit/s" if bits >= 1e9 else f"{bits / 1e6:,.0f} Mbit/s"


def _table(columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [columns, ("---",) * len(columns), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
