"""A crawl's progress: a live picture on a terminal, plain lines anywhere else."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from headway.app.view import SiteLine, View
from headway.units import format_duration, format_rate, format_size

_LINE_EVERY_S = 5.0
_STYLES = {"fetching": "green", "late": "bold red", "unreachable": "red", "done": "dim", "waiting": ""}


class Progress:
    """Shows `look()` about twice a second; use as a context manager around the crawl."""

    def __init__(self, console: Console, look: Callable[[], View | None]) -> None:
        self._console = console
        self._look = look
        self._live: Live | None = None
        self._next_line_at = 0.0

    def __enter__(self) -> Progress:
        if self._console.is_terminal:
            self._live = Live(
                get_renderable=self._picture,
                console=self._console,
                refresh_per_second=4,
                transient=True,
                auto_refresh=False,
            )
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def refresh(self) -> None:
        """Called by the crawl's own timer: all on one thread, so the picture never sees half a change."""
        if self._live is not None:
            self._live.refresh()
        elif time.monotonic() >= self._next_line_at and (view := self._look()) is not None:
            self._next_line_at = time.monotonic() + _LINE_EVERY_S
            self._console.print(line_of(view))

    def _picture(self) -> RenderableType:
        view = self._look()
        return picture_of(view) if view is not None else Text("starting ...")


def line_of(view: View) -> str:
    bound = "" if math.isinf(view.capacity_bytes_per_s) else f" of {format_rate(view.capacity_bytes_per_s)}"
    errors = ", ".join(f"{count} {kind}" for kind, count in list(view.errors.items())[:4])
    return (
        f"{format_duration(view.now - view.started_at)}: {view.done} pages done, {view.waiting} waiting, "
        f"{view.failed} failed, {format_size(view.wire_bytes)}, {format_rate(view.rate_bytes_per_s)}{bound}"
        + (f" ({errors})" if errors else "")
    )


def picture_of(view: View) -> RenderableType:
    head = Text.assemble(
        ("headway ", "bold"),
        f"{format_duration(view.now - view.started_at)}   ",
        (f"{view.done} pages", "bold"),
        f" done, {view.waiting} waiting, {view.in_flight} under way, {view.failed} failed   "
        f"{format_size(view.wire_bytes)}",
    )
    parts: list[RenderableType] = [head, _link(view), _sites(view)]
    if view.other_sites:
        parts.append(Text(f"and {view.other_sites} more sites", style="dim"))
    if view.errors:
        counts = ", ".join(f"{count} {kind}" for kind, count in list(view.errors.items())[:8])
        parts.append(Text(f"not fetched: {counts}", style="yellow"))
    return Group(*parts)


def _link(view: View) -> RenderableType:
    table = Table.grid(padding=(0, 1))
    rate, bound = view.rate_bytes_per_s, view.capacity_bytes_per_s
    if math.isinf(bound):
        table.add_row("link", format_rate(rate), "(no bound)")
    else:
        bar = ProgressBar(total=bound, completed=min(rate, bound), width=40)
        table.add_row("link", bar, f"{format_rate(rate)} of {format_rate(bound)} ({rate / bound:.0%})")
    return table


def _sites(view: View) -> RenderableType:
    table = Table(box=None, padding=(0, 1), pad_edge=False)
    for name in ("site", "state", "done", "waiting", "failed", "bytes", "share", "deadline", "forecast"):
        is_number = name in {"done", "waiting", "failed", "bytes", "share"}
        table.add_column(name, justify="right" if is_number else "left", no_wrap=True)
    for line in view.sites:
        table.add_row(
            line.site,
            line.state,
            str(line.done),
            str(line.waiting),
            str(line.failed or ""),
            format_size(line.wire_bytes),
            format_rate(line.rate_bytes_per_s) if line.rate_bytes_per_s else "",
            _deadline(line, view),
            _forecast(line, view),
            style=_STYLES.get(line.state, ""),
        )
    return table


def _deadline(line: SiteLine, view: View) -> str:
    if line.deadline_at is None:
        return ""
    if line.ended_at is not None and line.state == "done":
        spare_s = line.deadline_at - line.ended_at
        return (
            f"met, {format_duration(spare_s)} early"
            if spare_s >= 0
            else f"missed by {format_duration(-spare_s)}"
        )
    left_s = line.deadline_at - view.now
    return f"in {format_duration(left_s)}" if left_s >= 0 else f"{format_duration(-left_s)} ago"


def _forecast(line: SiteLine, view: View) -> str:
    if line.forecast_at is None or line.state in {"done", "unreachable"}:
        return ""
    early_s, late_s = (max(0.0, at - view.now) for at in line.forecast_at)
    if late_s - early_s < 1.0:
        return f"ends in {format_duration(late_s)}"
    return f"ends in {format_duration(early_s)} to {format_duration(late_s)}"
