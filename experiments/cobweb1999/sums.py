"""Tables 2, 4, 5 and 6 of any run folder: rates by day, documents and bytes, servers, errors."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

from headway.store.reader import RunReader

_HTML = ("text/html", "application/xhtml+xml")


def tables(run: Path) -> str:
    days: Counter[str] = Counter()
    first: dict[str, float] = {}
    last: dict[str, float] = {}
    quantity: Counter[str] = Counter()
    size: Counter[str] = Counter()
    errors: Counter[str] = Counter()
    servers: set[str] = set()
    with RunReader(run) as reader:
        totals = reader.totals()
        for page in reader.pages():
            if page.state == "failed":
                errors[_error(page.kind, page.status)] += 1
            if page.state != "done" or page.kind == "redirect":
                continue
            day = time.strftime("%Y-%m-%d", time.gmtime(page.fetched_at))
            days[day] += 1
            first[day] = min(first.get(day, page.fetched_at), page.fetched_at)
            last[day] = max(last.get(day, 0.0), page.settled_at)
            name = "HTML" if page.content_type in _HTML else "Other"
            quantity[name] += 1
            size[name] += page.content_bytes
            servers.add(page.site)
    rates = [
        f"| {day} | {count / max(1e-9, (last[day] - first[day]) / 60):.0f} | {count} |"
        for day, count in sorted(days.items())
    ]
    sizes = [
        f"| {name} collected | {quantity[name]} | {size[name] / 1e6:.2f} MB | "
        f"{size[name] / max(1, quantity[name]) / 1e3:.1f} KB |"
        for name in ("HTML", "Other")
    ]
    total = sum(quantity.values())
    return "\n".join(
        [
            "Table 2, collection rates\n",
            "| day | docs/min | docs |\n|---|---|---|",
            *rates,
            "\nTable 4, documents\n",
            "| | quantity | bytes | mean |\n|---|---|---|---|",
            *sizes,
            f"| Total collected | {total} | {sum(size.values()) / 1e6:.2f} MB | |",
            f"| URLs to be collected | {totals.waiting} | | |",
            "\nTable 5, servers\n",
            f"| visited servers | {len(servers)} |\n|---|---|",
            f"| documents per server (mean) | {total / max(1, len(servers)):.0f} |",
            "\nTable 6, errors\n",
            "| error | frequency |\n|---|---|",
            *(f"| {name} | {count} |" for name, count in errors.most_common()),
            f"| Total | {errors.total()} |",
        ]
    )


def _error(kind: str, status: int) -> str:
    return f"{status} - {kind}" if status >= 400 else kind
