"""Figures of a fleet as tables, with the verdict on each that was asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from . import bound as bounded
from . import faults as faulty
from .growth import LATENCY_S

FAULTS = 200
_LINEAR, _LATENCY_MS, _PAGES_PER_S, _USE = 0.05, 1.0, 5000, 0.9
_NOT_ZERO = ("lost", "not_in_archive", "doubled", "too_soon", "over", "tracebacks")
Row = dict[str, Any]


def growth(rows: list[Row]) -> str:
    if not rows:
        return _section("Growth", (), (), ["Not measured."])
    one = rows[0]["pages_per_s"] / rows[0]["collectors"]
    ratios = [row["pages_per_s"] / row["collectors"] / one for row in rows]
    worst = max(abs(ratio - 1) for ratio in ratios)
    return _section(
        f"Growth: servers that take {LATENCY_S} s, each collector asks one at a time (cobweb1999, fig 3)",
        ("collectors", "pages/s", "of one each"),
        [
            f"| {row['collectors']} | {row['pages_per_s']:.2f} | {ratio:.3f} |"
            for row, ratio in zip(rows, ratios, strict=True)
        ],
        [f"Linear within {worst:.1%}: {_met(worst <= _LINEAR)} (within {_LINEAR:.0%})."],
    )


def coordination(rows: list[Row]) -> str:
    if not rows:
        return _section("Coordination", (), (), ["Not measured."])
    least, most = (pick(row["pages_per_core_s"] for row in rows) for pick in (min, max))
    latency = rows[0]["latency_ms"]
    columns = (
        "collectors",
        "pages/s",
        "pages/s on one core of the server",
        "a page, for who commits",
        "a beat",
    )
    sizes = "bytes a known page", "more while it waits", "bytes a fetched page"
    by_core = (
        f"One core coordinates {least:,.0f} to {most:,.0f} pages/s: {_met(least >= _PAGES_PER_S)} "
        f"(at least {_PAGES_PER_S:,})."
    )
    by_page = (
        f"The scheduler takes {latency:.2f} ms a page: {_met(latency < _LATENCY_MS)} "
        f"(under {_LATENCY_MS:.0f} ms; cobweb1999: 20 ms). That is of one collector; {rows[-1]['writers']} "
        f"that share two cores with the server and commit all the time wait {rows[-1]['latency_ms']:.2f} ms."
    )
    return _section(
        "Coordination: collectors commit and send heartbeats, without fetching; 22 links a page, 75% known",
        (*columns, *sizes),
        [
            f"| {row['writers']} | {row['pages_per_s']:,.0f} | {row['pages_per_core_s']:,.0f} "
            f"| {row['latency_ms']:.2f} ms | {row['beat_ms']:.2f} ms | {row['seen_bytes']:.0f} "
            f"| {row['waiting_bytes']:.0f} | {row['page_bytes']:.0f} |"
            for row in rows
        ],
        [by_core, by_page],
    )


def bound(rows: list[Row]) -> str:
    if not rows:
        return _section("Bound", (), (), ["Not measured."])
    least = min(row["use"] for row in rows)
    return _section(
        f"The bound of {bounded.BOUND_BYTES_PER_S // 1000} KB/s, shared by collectors on hosts of their own",
        (
            "collectors",
            "use, on the wire",
            "highest second",
            "any second",
            "resident memory of the largest",
            "kept by the host",
        ),
        [
            f"| {row['collectors']} | {row['use']:.1%} | {row['highest'] - 1:+.1%} | {row['worst'] - 1:+.1%} "
            f"| {row['resident_bytes'] / 1e6:.0f} MB | {row['stolen']:.0%} |"
            for row in rows
        ],
        [f"At least {least:.1%} of it is used: {_met(least >= _USE)} (at least {_USE:.0%})."],
    )


def processes(rows: list[Row]) -> str:
    one = rows[0]["pages_per_s"] if rows else 1.0
    return _section(
        "Processes: `--processes` against nginx on the same two cores",
        ("processes", "pages/s", "of one", "CPU a page"),
        [
            f"| {row['processes']} | {row['pages_per_s']:,.0f} | {row['pages_per_s'] / one:.2f} "
            f"| {row['cpu_ms']:.2f} ms |"
            for row in rows
        ],
        [] if rows else ["Not measured."],
    )


def faults(rows: list[Row]) -> str:
    if not rows:
        return _section("Faults", (), (), ["Not measured."])
    kinds: Counter[str] = Counter()
    for row in rows:
        kinds.update(row["faults"])
    sums = {name: sum(row[name] for row in rows) for name in (*_NOT_ZERO, "pages", "under_way")}
    survived = kinds.total()
    pause_s = min(row["shortest_pause_s"] for row in rows)
    worst = max(row["worst_second"] for row in rows) - 1
    use = sum(row["use"] * row["seconds"] for row in rows) / sum(row["seconds"] for row in rows)
    is_met = survived >= FAULTS and not any(sums[name] for name in _NOT_ZERO)
    told = (
        f"**{survived} faults survived**, {sums['pages']:,} pages: {sums['lost']} lost, "
        f"{sums['not_in_archive']} missing in the archive, {sums['doubled']} doubled, "
        f"{sums['too_soon']} requests too soon (shortest "
        f"pause {pause_s:.3f} s of {faulty.INTERVAL_S} s), {sums['over']} seconds over the bound (highest "
        f"{worst:+.1%}, {use:.0%} of it used on average), {sums['tracebacks']} tracebacks: "
        f"{_met(is_met)} ({FAULTS} faults, the rest zero). "
        f"{sums['under_way']} pages in flight or not committed when a fault came were fetched again."
    )
    return _section(
        f"Faults: {faulty.HOSTS} collectors on hosts of their own, {len(rows)} crawls",
        ("fault", "times"),
        [f"| {kind} | {count} |" for kind, count in kinds.most_common()],
        [told],
    )


def _met(is_met: bool) -> str:
    return "met" if is_met else "NOT MET"


def _section(title: str, columns: tuple[str, ...], rows: Iterable[str], verdicts: Iterable[str]) -> str:
    head = ["", f"## {title}"]
    if columns:
        head += ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    return "\n".join([*head, *rows, "", *verdicts, ""])
