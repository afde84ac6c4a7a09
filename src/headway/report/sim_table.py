"""Simulated crawls side by side as a table."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from headway.report.sim_result import SimResult
from headway.units import format_duration, format_rate, format_size


def heading(results: Sequence[SimResult]) -> str:
    """What all of them have in common."""
    first = results[0]
    bound = "an unbounded link"
    if first.bandwidth_bytes_per_s is not None:
        bound = f"a link of {format_rate(first.bandwidth_bytes_per_s)}"
    robots = "1 robot" if first.robots == 1 else f"{first.robots} robots"
    pages = "1 page" if first.pages_per_connection == 1 else f"{first.pages_per_connection} pages"
    return (
        f"{first.web}: {robots}, {first.interval_s:g} s between connections to a site, "
        f"{pages} on each, {bound}"
    )


def strategy_table(results: Sequence[SimResult]) -> Table:
    differ = len({result.pages for result in results}) > 1
    # With the pages, too, eighty columns leave less for the others.
    table = Table(box=None, pad_edge=False, padding=(0, 1 if differ else 2, 0, 0), header_style="bold")
    table.add_column("strategy", no_wrap=True)
    for name in ("time", "speed-up", "robots", "link", "area", "half", "80%"):
        table.add_column(name, no_wrap=True, justify="right")
    if differ:
        table.add_column("pages", no_wrap=True, justify="right")
    for result in results:
        cells = [
            result.strategy,
            format_duration(result.seconds),
            f"{result.speedup:.1f}",
            f"{result.mean_active_robots:.1f}",
            _link(result, is_short=differ),
            f"{result.pagerank_auc:.3f}",
            _percent(result.pages_for_half_pagerank),
            _percent(result.pages_for_80_pagerank),
        ]
        table.add_row(*cells, *([f"{result.pages:,}"] if differ else []))
    return table


def legend(results: Sequence[SimResult]) -> str:
    failed = {result.strategy: result.failed for result in results if result.failed}
    if not failed:
        return LEGEND
    if len(set(failed.values())) == 1 and len(failed) == len(results):
        return f"{LEGEND} {results[0].failed:,} requests failed with each."
    each = ", ".join(f"{name} {count:,}" for name, count in failed.items())
    return f"{LEGEND} Requests that failed: {each}."


def fetched(result: SimResult) -> str:
    return f"{result.pages:,} pages" + (f" ({result.failed:,} requests failed)" if result.failed else "")


LEGEND = (
    "speed-up: against one robot that only waits for answers. area: the mean fraction of the PageRank over "
    "the pages, 0.5 for a random order. half, 80%: the pages that it takes to gather so much of the PageRank."
)


def one_result(result: SimResult) -> list[str]:
    size, length = format_size(result.wire_bytes), format_duration(result.seconds)
    active = f"{result.mean_active_robots:.1f} of {result.robots}"
    lines = [
        f"{result.strategy}: {fetched(result)}, {size} in {length}",
        f"robots active {active}, speed-up {result.speedup:.1f}, link {_link(result)}",
    ]
    if result.pages_for_half_pagerank is not None:
        lines.append(
            f"half of the PageRank with {_percent(result.pages_for_half_pagerank)} of the pages, 80% of it "
            f"with {_percent(result.pages_for_80_pagerank)}; area {result.pagerank_auc:.3f} (random 0.5)"
        )
    return lines


def _link(result: SimResult, *, is_short: bool = False) -> str:
    rate = format_rate(result.mean_bytes_per_s)
    if result.bandwidth_bytes_per_s is None:
        return rate
    share = f"{result.mean_bytes_per_s / result.bandwidth_bytes_per_s:.0%}"
    return share if is_short else f"{rate} ({share})"


def _percent(fraction: float | None) -> str:
    return "-" if fraction is None else f"{fraction:.0%}"
