"""A crawl's progress: a live picture on a terminal, plain lines anywhere else."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from headway.app.view import SiteLine, Trouble, View
from headway.cli.log import Log
from headway.model.page import Site
from headway.units import format_duration, format_rate, format_size

_LINE_EVERY_S = 5.0
_COLUMNS = {
    "site": 0,
    "state": 0,
    "done": 50,
    "waiting": 60,
    "failed": 120,
    "bytes": 120,
    "rate": 72,
    "deadline": 78,
    "forecast": 105,
}
"""What is shown of a site, and from which width of the screen on."""
_STYLES = {"fetching": "green", "late": "bold red", "unreachable": "red", "done": "dim", "waiting": ""}


class Progress:
    """Shows `look()` every second, or tells of it every few; a context manager around the crawl."""

    def __init__(self, log: Log, look: Callable[[], View]) -> None:
        self._log = log
        self._look = look
        self._live: Live | None = None
        self._next_line_at = 0.0
        self._told: set[Site] = set()

    def __enter__(self) -> Progress:
        if self._log.has_picture:
            console = self._log.console
            self._live = Live(console=console, transient=True, auto_refresh=False)
            with self._if_heard():
                self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._tell_troubles(self._look())
        if self._live is not None:
            with self._if_heard():
                self._live.stop()

    def refresh(self) -> None:
        """Called by the crawl's own timer: all on one thread, so the picture never sees half a change."""
        if not self._log.is_heard:
            return
        view = self._look()
        self._tell_troubles(view)
        if self._live is not None:
            with self._if_heard():
                size = self._log.console.size
                self._live.update(picture_of(view, size.width, size.height), refresh=True)
        elif time.monotonic() >= self._next_line_at:
            self._next_line_at = time.monotonic() + _LINE_EVERY_S
            self._log.say("progress", line_of(view), _facts(view))

    def _tell_troubles(self, view: View) -> None:
        for trouble in view.troubles:
            if trouble.site not in self._told:
                self._told.add(trouble.site)
                _tell_trouble(self._log, view, trouble)

    @contextmanager
    def _if_heard(self) -> Iterator[None]:
        try:
            yield
        except OSError:
            self._log.unheard()


def _tell_trouble(log: Log, view: View, trouble: Trouble) -> None:
    again_s = None if trouble.again_at is None else max(0.0, trouble.again_at - view.now)
    hope = "given up" if again_s is None else f"asked again in {format_duration(again_s)}"
    log.say(
        "no-robots",
        f"{trouble.site}: its robots.txt cannot be had ({trouble.problem}); {hope}",
        {"site": trouble.site, "problem": trouble.problem, "again_s": again_s},
    )


def _facts(view: View) -> dict[str, object]:
    return {
        "elapsed_s": round(view.now - view.started_at, 3),
        "done": view.done,
        "waiting": view.waiting,
        "in_flight": view.in_flight,
        "failed": view.failed,
        "wire_bytes": view.wire_bytes,
        "rate_bytes_per_s": view.rate_bytes_per_s,
        "capacity_bytes_per_s": view.capacity_bytes_per_s,
        "errors": view.errors,
    }


def line_of(view: View) -> str:
    bound = "" if math.isinf(view.capacity_bytes_per_s) else f" of {format_rate(view.capacity_bytes_per_s)}"
    errors = ", ".join(f"{count} {kind}" for kind, count in list(view.errors.items())[:4])
    return (
        f"{format_duration(view.now - view.started_at)}: {view.done} pages done, {view.waiting} waiting, "
        f"{view.failed} failed, {format_size(view.wire_bytes)}, {format_rate(view.rate_bytes_per_s)}{bound}"
        + (f" ({errors})" if errors else "")
    )


def picture_of(view: View, columns: int = 100, lines: int = 40) -> RenderableType:
    """What fits: first the sums and the link, then as many sites and figures as there is room for."""
    head = Text.assemble(
        ("headway ", "bold"),
        f"{format_duration(view.now - view.started_at)}   ",
        (f"{view.done} pages", "bold"),
        f" done, {view.waiting} waiting, {view.in_flight} under way, {view.failed} failed   "
        f"{format_size(view.wire_bytes)}",
        no_wrap=columns >= 40,
        overflow="ellipsis",
    )
    shown = view.sites[: max(1, lines - 6)]
    parts: list[RenderableType] = [head, _link(view, columns), _sites(view, shown, columns)]
    hidden = view.other_sites + len(view.sites) - len(shown)
    if hidden:
        parts.append(Text(f"and {hidden} more sites", style="dim"))
    if view.errors:
        counts = ", ".join(f"{count} {kind}" for kind, count in list(view.errors.items())[:8])
        parts.append(Text(f"not fetched: {counts}", style="yellow", no_wrap=True, overflow="ellipsis"))
    return Group(*parts)


def _link(view: View, columns: int) -> RenderableType:
    table = Table.grid(padding=(0, 1))
    rate, bound = view.rate_bytes_per_s, view.capacity_bytes_per_s
    if math.isinf(bound):
        table.add_row("link", format_rate(rate), "(no bound)")
    else:
        bar = ProgressBar(total=bound, completed=min(rate, bound), width=max(4, min(40, columns - 40)))
        table.add_row("link", bar, f"{format_rate(rate)} of {format_rate(bound)} ({rate / bound:.0%})")
    return table


def _sites(view: View, shown: Sequence[SiteLine], columns: int) -> RenderableType:
    names = [name for name, least_columns in _COLUMNS.items() if columns >= least_columns]
    table = Table(box=None, padding=(0, 1), pad_edge=False)
    for name in names:
        is_number = name in {"done", "waiting", "failed", "bytes", "rate"}
        table.add_column(name, justify="right" if is_number else "left", no_wrap=True)
    for line in shown:
        cells = {
            "site": line.site,
            "state": line.state,
            "done": str(line.done),
            "waiting": str(line.waiting),
            "failed": str(line.failed or ""),
            "bytes": format_size(line.wire_bytes),
            "rate": _rate(line),
            "deadline": _deadline(line, view),
            "forecast": _forecast(line, view),
        }
        table.add_row(*(cells[name] for name in names), style=_STYLES.get(line.state, ""))
    return table


def _rate(line: SiteLine) -> str:
    if not line.rate_bytes_per_s or line.state in {"done", "unreachable"}:
        return ""
    return format_rate(line.rate_bytes_per_s)


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
