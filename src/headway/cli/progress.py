"""The progress of a crawl: a display that updates in place on a terminal, log lines anywhere else."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from headway.cli.frame import Log
from headway.units import format_duration, format_rate, format_size
from headway.view.run import RobotsTrouble, RunView, SiteState

_LINE_EVERY_S = 60.0
_RECORD_EVERY_S = 5.0
"""Of a log as JSON, which programs read."""
_LINES_ABOVE_AND_BELOW = 7
_MAX_SITE_COLUMNS = 40
_COLUMNS = ("site", "state", "progress", "done", "waiting", "failed", "bytes", "rate", "deadline", "ends in")
_NUMBERS = frozenset({"progress", "done", "waiting", "failed", "bytes", "rate"})
_WIDTHS = {
    "progress": 8,
    "done": 6,
    "rate": 10,
    "deadline": 14,
    "ends in": 14,
    "bytes": 8,
    "failed": 6,
    "waiting": 7,
}
"""The usual width of each figure, most important first: as many are shown as fit the screen."""
_STYLES = {"fetching": "green", "late": "bold red", "unreachable": "red", "done": "dim", "waiting": ""}


class Progress:
    """Shows the view that `look` returns; a context manager around the crawl.

    The display changes each second, a log line is written every minute (as JSON: every 5 s).
    """

    def __init__(self, log: Log, look: Callable[[], RunView]) -> None:
        self._log = log
        self._look = look
        self._live: Live | None = None
        self._next_line_at = 0.0
        self._reported: set[str] = set()
        """Sites whose robots.txt cannot be fetched."""

    def __enter__(self) -> Progress:
        if self._log.is_live:
            self._live = Live(console=self._log.console, transient=True, auto_refresh=False)
            with self._if_open():
                self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._report_troubles(self._look())
        if self._live is not None:
            with self._if_open():
                self._live.stop()

    def refresh(self) -> None:
        """Called each second by the crawl, in its own thread, so that a view never shows half a change."""
        if not self._log.is_open:
            return
        view = self._look()
        self._report_troubles(view)
        if self._live is not None:
            with self._if_open():
                size = self._log.console.size
                self._live.update(display_of(view, size.width, size.height), refresh=True)
        elif time.monotonic() >= self._next_line_at:
            pause_s = _RECORD_EVERY_S if self._log.as_json else _LINE_EVERY_S
            self._next_line_at = time.monotonic() + pause_s
            self._log.say("progress", line_of(view), _facts(view))

    def _report_troubles(self, view: RunView) -> None:
        for trouble in view.troubles:
            if trouble.site not in self._reported:
                self._reported.add(trouble.site)
                _report_trouble(self._log, view, trouble)

    @contextmanager
    def _if_open(self) -> Iterator[None]:
        try:
            yield
        except OSError:
            self._log.close()


def _report_trouble(log: Log, view: RunView, trouble: RobotsTrouble) -> None:
    again_s = None if trouble.again_at is None else max(0.0, trouble.again_at - view.now)
    next_step = "no more retries" if again_s is None else f"retry in {format_duration(again_s)}"
    log.say(
        "no-robots",
        f"{trouble.site}: robots.txt cannot be fetched ({trouble.problem}); {next_step}",
        {"site": trouble.site, "problem": trouble.problem, "again_s": again_s},
    )


def _facts(view: RunView) -> dict[str, object]:
    return {
        "elapsed_s": round(view.elapsed_s, 3),
        "done": view.done,
        "waiting": view.waiting,
        "in_flight": view.in_flight,
        "failed": view.failed,
        "wire_bytes": view.wire_bytes,
        "rate_bytes_per_s": view.rate_bytes_per_s,
        "capacity_bytes_per_s": view.bound_bytes_per_s,
        "errors": view.failures,
    }


def line_of(view: RunView) -> str:
    """The progress as one line."""
    bound = "" if view.bound_bytes_per_s is None else f" of {format_rate(view.bound_bytes_per_s)}"
    errors = ", ".join(f"{count} {kind}" for kind, count in list(view.failures.items())[:4])
    return (
        f"{format_duration(view.elapsed_s)}: {view.done} pages done, {view.waiting} waiting, "
        f"{view.failed} failed, {format_size(view.wire_bytes)}, {format_rate(view.rate_bytes_per_s)}{bound}"
        + (f" ({errors})" if errors else "")
    )


def display_of(view: RunView, columns: int = 100, lines: int = 40) -> RenderableType:
    """Counts, progress and the link, then as many sites and figures as fit the screen."""
    head = Text.assemble(
        ("headway ", "bold"),
        f"{format_duration(view.elapsed_s)}   ",
        (f"{view.done} pages", "bold"),
        f" done, {view.waiting} waiting, {view.in_flight} in flight, {view.failed} failed   "
        f"{format_size(view.wire_bytes)}",
        no_wrap=columns >= 40,
        overflow="ellipsis",
    )
    shown = view.sites[: max(1, lines - _LINES_ABOVE_AND_BELOW)]
    parts: list[RenderableType] = [head, _bars(view, columns), _sites(view, shown, columns)]
    hidden = view.site_count - len(shown)
    if hidden:
        parts.append(Text(f"and {hidden} more sites", style="dim"))
    if view.failures:
        counts = ", ".join(f"{count} {kind}" for kind, count in list(view.failures.items())[:8])
        parts.append(Text(f"not fetched: {counts}", style="yellow", no_wrap=True, overflow="ellipsis"))
    return Group(*parts)


def _bars(view: RunView, columns: int) -> RenderableType:
    table = Table.grid(padding=(0, 1))
    for _ in range(3):
        table.add_column(no_wrap=True)
    width = max(4, min(40, columns - 60))
    sites = f"{view.progress:.0%}, {view.sites_done} of {view.site_count} sites done"
    is_whole = len(view.sites) >= view.site_count - view.sites_done
    if view.forecast_at is not None and view.forecast_from_at is not None:
        sites += f", ends in {_span(view.forecast_from_at - view.now, view.forecast_at - view.now)}"
    elif view.forecast_at is not None and is_whole:
        sites += f", ends within {format_duration(max(0.0, view.forecast_at - view.now))}"
    progress = ProgressBar(total=1.0, completed=view.progress, width=width)
    table.add_row("crawl", progress, sites)
    rate, bound = view.rate_bytes_per_s, view.bound_bytes_per_s
    if not bound:
        table.add_row(
            "link",
            format_rate(rate),
            "no bound" if bound is None else "closed now",
        )
    else:
        link = ProgressBar(total=bound, completed=min(rate, bound), width=width)
        table.add_row("link", link, f"{format_rate(rate)} of {format_rate(bound)} ({rate / bound:.0%})")
    if view.link.sharing is not None:
        table.add_row("others", Text(view.link.sharing.doing), view.link.sharing.now())
    return table


def _sites(view: RunView, shown: Sequence[SiteState], columns: int) -> RenderableType:
    names = _fitting(shown, columns)
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    for name in names:
        justify = "right" if name in _NUMBERS else "left"
        table.add_column(name, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    for site in shown:
        state = "late" if site.outlook == "late" else site.phase
        cells = {
            "site": site.site,
            "state": f"redirects to {site.leads_to}" if site.leads_to and site.is_over else state,
            "progress": f"{site.progress:.0%}",
            "done": str(site.done),
            "waiting": str(site.waiting),
            "failed": str(site.failed or ""),
            "bytes": format_size(site.wire_bytes),
            "rate": format_rate(site.rate_bytes_per_s) if site.rate_bytes_per_s else "",
            "deadline": _deadline(site, view),
            "ends in": _forecast(site, view),
        }
        table.add_row(*(cells[name] for name in names), style=_STYLES.get(state, ""))
    return table


def _fitting(shown: Sequence[SiteState], columns: int) -> list[str]:
    """The columns of the table that fit the screen beside the names of the sites and their states."""
    names_columns = min(_MAX_SITE_COLUMNS, max((len(site.site) for site in shown), default=0))
    left = columns - names_columns - len(" unreachable")
    chosen = {"site", "state"}
    for name, width in _WIDTHS.items():
        left -= width + 1
        if left < 0:
            break
        chosen.add(name)
    return [name for name in _COLUMNS if name in chosen]


def _deadline(site: SiteState, view: RunView) -> str:
    if site.deadline_at is None:
        return ""
    if site.late_s is not None and site.phase == "done":
        if site.outlook == "met":
            return f"met, {format_duration(-site.late_s)} early"
        return f"missed by {format_duration(site.late_s)}" if site.late_s > 0 else "nothing fetched"
    left_s = site.deadline_at - view.now
    return f"in {format_duration(left_s)}" if left_s >= 0 else f"{format_duration(-left_s)} ago"


def _forecast(site: SiteState, view: RunView) -> str:
    if site.forecast_from_at is None or site.forecast_to_at is None:
        return ""
    span = _span(site.forecast_from_at - view.now, site.forecast_to_at - view.now)
    return span if site.deadline_chance is None else f"{span} ({site.deadline_chance:.0%})"


def _span(early_s: float, late_s: float) -> str:
    early_s, late_s = max(0.0, early_s), max(0.0, late_s)
    if late_s - early_s < 1.0:
        return format_duration(late_s)
    return f"{format_duration(early_s)} to {format_duration(late_s)}"
