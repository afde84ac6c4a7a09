"""The tables that a crawl ends with, and that `headway status` shows of any run."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from headway.app.noticed import lines_of
from headway.app.summary import SiteResult, Summary
from headway.cli.frame import print_lines
from headway.units import format_duration, format_rate, format_size

_STYLES = {"met": "green", "missed": "bold red", "unreachable": "red", "open": "yellow"}


def print_summary(console: Console, summary: Summary) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("site", overflow="fold")
    for name in ("deadline", "finished", ""):
        table.add_column(name, no_wrap=True)
    for name in ("pages", "bytes"):
        table.add_column(name, no_wrap=True, justify="right")
    for site in summary.sites:
        table.add_row(*_cells(site), style=_STYLES.get(site.verdict, ""))
    console.print(table)
    waiting = f", {summary.waiting} still waiting" if summary.waiting else ""
    amount = f"{summary.done} pages, {format_size(summary.wire_bytes)} in {format_duration(summary.seconds)}"
    lines = [f"{amount}; {summary.failed} failed{waiting}"]
    if summary.errors:
        lines.append("failed: " + ", ".join(f"{count} {kind}" for kind, count in summary.errors.items()))
    print_lines(console, *lines, *lines_of(summary.noticed), _link_line(summary))
    console.print(f"run folder: {summary.run}", soft_wrap=True)


def _cells(site: SiteResult) -> tuple[str, ...]:
    return (
        site.site,
        "" if site.deadline_s is None else format_duration(site.deadline_s),
        "" if site.finished_s is None else format_duration(site.finished_s),
        site.verdict,
        f"{site.done} ({site.failed} failed)" if site.failed else str(site.done),
        format_size(site.wire_bytes),
    )


def _link_line(summary: Summary) -> str:
    mean, highest = format_rate(summary.mean_bytes_per_s), format_rate(summary.max_bytes_per_s)
    if summary.bound_bytes_per_s is None or summary.use_of_bound is None:
        return f"link: mean {mean}, highest second {highest}, no bound"
    over = summary.most_over_bound
    if over is None:
        peak = "less than a second"
    else:
        peak = f"highest second {highest} " + (f"({over:.1%} over)" if over > 0 else f"({-over:.1%} under)")
    return (
        f"link: mean {mean} ({summary.use_of_bound:.0%} of the bound), {peak}, "
        f"bound {format_rate(summary.bound_bytes_per_s)}"
    )
