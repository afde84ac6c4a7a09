"""Parts of the commands that crawl: the name of a run, its progress (a display that updates in place on a
terminal, log lines anywhere else), its result as a table, signals, and the limit on open files."""

from __future__ import annotations

import asyncio
import datetime as dt
import heapq
import math
import resource
import time
import zoneinfo
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from headway.cli.frame import Log, print_lines
from headway.engine.decisions import advice_of
from headway.model.command import Decision
from headway.policy.scope import SITE_LIMIT
from headway.runtime.process import INTERRUPTS
from headway.store.postgres.connection import is_address
from headway.store.reader import DATABASE
from headway.store.rounds import CHANGES, Round, counts_of, words_of
from headway.units import format_duration, format_rate, format_size, is_clock_time
from headway.view.run import RobotsTrouble, RunView, SiteState
from headway.view.summary import SiteResult, Summary, lines_of, site_lines


class RunType(click.ParamType):  # type: ignore[type-arg]  # older ones take none
    """A run on the command line: the `Path` of its folder (or of the database in it), or its address on a
    PostgreSQL server as text."""

    name = "run"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Path | str:
        text = str(value)
        if is_address(text):
            return text
        path = Path(text)
        return path.parent if path.name == DATABASE else path


_VERDICT_STYLES = {
    "met": "green",
    "missed": "bold red",
    "open": "yellow",
    "redirects": "dim",
} | dict.fromkeys(("unreachable", "failed"), "red")


_MOST_SITES_EXPLAINED = 1000
_MOST_SITES_LISTED, LISTED_OF_MANY = 1000, 100


def print_summary(console: Console, summary: Summary, listed_of: int | None = None) -> None:
    """`listed_of`: how many sites there are, if the summary has only the most important ones."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("site", overflow="fold")
    for name in ("deadline", "finished", ""):
        table.add_column(name, no_wrap=True)
    for name in ("pages", "bytes"):
        table.add_column(name, no_wrap=True, justify="right")
    zone = zone_of(summary.timezone)
    deadlines = (
        summary.started_at + site.deadline_s for site in summary.sites if site.deadline_s is not None
    )
    by_clock = any(is_clock_time(round(at, 6)) for at in deadlines)
    listed = _most_important(summary.sites)
    for site in listed:
        cells = _cells(site, summary.started_at, zone, by_clock=by_clock)
        table.add_row(*cells, style=_VERDICT_STYLES.get(site.verdict, ""))
    console.print(table)
    if more := max(len(summary.sites), listed_of or 0) - len(listed):
        console.print(f"and {more:,} more sites; --json lists all, headway serve shows them in pages")
    waiting = f", {summary.waiting} still waiting" if summary.waiting else ""
    amount = f"{summary.done} pages, {format_size(summary.wire_bytes)} in {format_duration(summary.seconds)}"
    if summary.sittings > 1:
        amount += f" ({format_duration(summary.active_s)} of crawling in {summary.sittings} sessions)"
    lines = [f"{amount}; {summary.failed} failed{waiting}"]
    lines += round_lines(summary.rounds, zone)
    if summary.errors:
        lines.append("failed: " + ", ".join(f"{count} {kind}" for kind, count in summary.errors.items()))
    lines += site_lines(summary.sites[:_MOST_SITES_EXPLAINED])
    if summary.forecast_s is not None:
        lines.append(_forecast_line(summary))
    print_lines(console, *lines, *lines_of(summary.noticed), _link_line(summary), *_sharing_lines(summary))
    console.print(f"run folder: {summary.run}", soft_wrap=True)


def _most_important(sites: Sequence[SiteResult]) -> Sequence[SiteResult]:
    """The sites to list: all; of very many, the sites not crawled and the first deadlines to come."""
    if len(sites) <= _MOST_SITES_LISTED:
        return sites

    def importance(site: SiteResult) -> tuple[bool, bool, float]:
        due_s = math.inf if site.deadline_s is None else site.deadline_s
        return not site.is_failure, site.finished_s is not None, due_s

    return heapq.nsmallest(LISTED_OF_MANY, sites, key=importance)


def _forecast_line(summary: Summary) -> str:
    """When a running crawl will end."""
    ends = (summary.forecast_s, summary.forecast_from_s, summary.forecast_to_s)
    middle, early, late = (format_duration(max(0.0, (end or 0.0) - summary.seconds)) for end in ends)
    return f"forecast: ends in {middle}, four times of five in {early} to {late}"


def zone_of(name: str | None) -> dt.tzinfo | None:
    """A time zone by its name; None: that of the machine."""
    try:
        return None if name is None else zoneinfo.ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return None


def moment(at: float, near: float, zone: dt.tzinfo | None) -> str:
    """An instant as a time of day, with the date if that is another than that of `near`."""
    shown = dt.datetime.fromtimestamp(at, zone)
    if shown.date() == dt.datetime.fromtimestamp(near, zone).date():
        return f"{shown:%H:%M}" if shown.second == 0 else f"{shown:%H:%M:%S}"
    return f"{shown:%a %H:%M}" if abs(at - near) < 6 * 86400 else f"{shown:%Y-%m-%d %H:%M}"


def round_lines(rounds: Sequence[Round], zone: dt.tzinfo | None) -> list[str]:
    """What is to be said of the rounds of a run that has several."""
    if len(rounds) < 2:
        return []
    last = rounds[-1]
    began = f"{dt.datetime.fromtimestamp(last.started_at, zone):%Y-%m-%d %H:%M}"
    found = f": {words_of(last.result)}" if last.result is not None else ", which has not ended"
    return [f"round {last.number}, begun {began}{found}; 'headway status --rounds' lists all rounds"]


def print_rounds(console: Console, rounds: Sequence[Round], zone: dt.tzinfo | None) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("round", justify="right")
    for name in ("begun", "ended"):
        table.add_column(name, no_wrap=True)
    for name in (*CHANGES, "bytes", "met", "missed"):
        table.add_column(name, justify="right", no_wrap=True)
    for each in rounds:
        result = each.result
        began = dt.datetime.fromtimestamp(each.started_at, zone)
        ended = "" if each.ended_at is None else moment(each.ended_at, each.started_at, zone)
        counts = [""] * 8
        if result is not None:
            numbers = [*counts_of(result).values()]
            counts = [*map(str, numbers), format_size(result.wire_bytes), str(result.met), str(result.missed)]
            ended = ended if result.is_complete else "interrupted"
        style = "bold red" if result is not None and result.missed else ""
        table.add_row(str(each.number), f"{began:%Y-%m-%d %H:%M}", ended, *counts, style=style)
    console.print(table)


def print_round(console: Console, each: Round, zone: dt.tzinfo | None) -> None:
    print_rounds(console, [each], zone)
    if each.result is None:
        print_lines(console, "it has not ended, or an earlier version of headway made it")
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("site", overflow="fold")
    for name in ("deadline", "finished", "", "pages", "bytes"):
        table.add_column(name, no_wrap=True)
    for site in each.result.sites:
        table.add_row(
            site.site,
            "" if site.deadline_at is None else moment(site.deadline_at, each.started_at, zone),
            "" if site.ended_at is None else moment(site.ended_at, each.started_at, zone),
            site.verdict,
            f"{site.done} ({site.failed} failed)" if site.failed else str(site.done),
            format_size(site.wire_bytes),
            style=_VERDICT_STYLES.get(site.verdict, ""),
        )
    console.print(table)
    problems = [f"{site.site}: {site.problem}" for site in each.result.sites if site.problem]
    print_lines(console, *problems)


def _cells(site: SiteResult, started_at: float, zone: dt.tzinfo | None, *, by_clock: bool) -> tuple[str, ...]:
    def shown(length_s: float | None) -> str:
        if length_s is None:
            return ""
        return moment(started_at + length_s, started_at, zone) if by_clock else format_duration(length_s)

    return (
        f"{site.site} -> {site.leads_to}" if site.leads_to else site.site,
        shown(site.deadline_s),
        shown(site.finished_s),
        site.verdict,
        f"{site.done} ({site.failed} failed)" if site.failed else str(site.done),
        format_size(site.wire_bytes),
    )


def _link_line(summary: Summary) -> str:
    mean, highest = format_rate(summary.mean_bytes_per_s), format_rate(summary.max_bytes_per_s)
    if summary.use_of_bound is None:
        return f"link: mean {mean}, highest second {highest}, no bound"
    over = summary.most_over_bound
    if over is None:
        peak = "less than a second"
    else:
        peak = f"highest second {highest} ({_against_bound(over, summary.bound_changed)})"
    return f"link: mean {mean} ({summary.use_of_bound:.0%} of the bound), {peak}, {_bound(summary)}"


def _sharing_lines(summary: Summary) -> list[str]:
    sharing, estimate = summary.sharing, summary.link_estimate
    if sharing is None:
        return [] if estimate is None else [estimate.text()]
    now = [sharing.now()] if summary.state == "running" else []
    return [*now, f"in the background: {sharing.so_far()}"]


def _against_bound(over: float, changed: bool) -> str:
    """Once the bound has changed, the second that came nearest to its bound need not be the highest."""
    if changed:
        return (
            f"up to {over:.1%} over its bound" if over > 0 else f"each at least {-over:.1%} under its bound"
        )
    return f"{over:.1%} over" if over > 0 else f"{-over:.1%} under"


def _bound(summary: Summary) -> str:
    lowest, highest = summary.lowest_bound_bytes_per_s, summary.highest_bound_bytes_per_s
    last = summary.bound_bytes_per_s
    if lowest is None or not summary.bound_changed:
        return "no bound" if last is None else f"bound {format_rate(last)}"
    now = "none" if last is None else format_rate(last)
    most = "none" if highest is None else format_rate(highest)
    return f"bound {now} (changed, between {format_rate(lowest)} and {most})"


class Interruptible(Protocol):
    """What signals can end: `CrawlRun`, `ProcessRun`, `CollectRun`, `ScrapyRun` and the Squid listener."""

    interrupted: bool

    def drain(self) -> None: ...

    def stop(self) -> None: ...


def allow_many_files() -> None:
    """Raise the limit on open files as far as the system permits: each connection is one."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def drain_on_signals(run: Interruptible, log: Log) -> None:
    """The first signal finishes the requests in flight and stops, the second stops at once. What cannot be
    saved within a second after that is fetched again by the next run."""
    loop = asyncio.get_running_loop()

    def interrupt() -> None:
        if run.interrupted:
            run.stop()
        else:
            log.say("draining", "finishing the requests in flight; interrupt again to stop at once")
            run.drain()

    def on_signal(count: int) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(interrupt)
        elif count == 1:
            raise KeyboardInterrupt

    INTERRUPTS.handle(on_signal)


def tell(log: Log, decision: Decision) -> None:
    """Log a decision of the engine that a person wants to see."""
    match decision.decision:
        case "foresee-late":
            _warn_late(log, decision)
        case "foresee-on-time":
            facts = {"site": decision.site}
            log.say("on-time-again", decision.site, facts, lead="on time again: ", style="green")
        case "notice" if decision.reason.startswith(SITE_LIMIT):
            log.say(
                "site-limit",
                f"{decision.reason.removeprefix(SITE_LIMIT)}; links of {decision.site} to further sites or"
                " pages are left out: see max_sites and max_pages_per_domain in [crawl.scope]",
                {"site": decision.site, "limit": decision.reason},
                lead="limit on sites reached: ",
                style="yellow",
            )
        case "first-page":
            log.say("first-page", f"{decision.site} {decision.reason}", {"site": decision.site})
        case "outage" | "outage-over" as word:
            log.say(word, f"{decision.site} is {decision.reason}", {"site": decision.site})
        case "retry" | "give-up":
            log.detail(
                decision.decision,
                f"{decision.decision}: {decision.url}: {decision.reason}",
                {"url": decision.url, "reason": decision.reason, "attempt": decision.attempt},
            )


def _warn_late(log: Log, forecast: Decision) -> None:
    """Log a deadline that will be missed by the forecast, with what would help."""
    assert forecast.deadline_at is not None
    assert forecast.until is not None
    late_s = forecast.until - forecast.deadline_at
    advice = advice_of(forecast.reason, forecast.needed_bytes_per_s)
    log.say(
        "deadline-in-danger",
        f"{forecast.site} will be about {format_duration(late_s)} late; {advice}",
        {
            "site": forecast.site,
            "late_s": late_s,
            "needed_bytes_per_s": forecast.needed_bytes_per_s,
            "limited_by": forecast.reason,
        },
        lead="deadline in danger: ",
        style="yellow",
    )


_LINE_EVERY_S = 60.0
_RECORD_EVERY_S = 5.0
"""Of a log as JSON, which programs read."""
_LINES_ABOVE_AND_BELOW = 7
_MAX_SITE_COLUMNS = 40
_COLUMNS = ("site", "state", "progress", "done", "waiting", "failed", "bytes", "rate", "deadline", "ends in")
_NUMBERS = frozenset({"progress", "done", "waiting", "failed", "bytes", "rate"})
_NARROW_SITE_COLUMNS = 23
_WIDE_COLUMNS = 100
_CHANCE_COLUMNS = 6
_CLOCK_FROM_S = 600.0
"""A deadline that was given as a time of day is shown as one until this long before it."""
_WIDTHS = {
    "progress": 8,
    "ends in": 14,
    "deadline": 13,
    "rate": 9,
    "done": 6,
    "bytes": 8,
    "failed": 6,
    "waiting": 7,
}
"""The usual width of each figure, most important first: as many are shown as fit the screen."""
_STATE_STYLES = {"fetching": "green", "late": "bold red", "unreachable": "red", "done": "dim", "waiting": ""}


class Progress:
    """Shows the view that `look` returns; a context manager around the crawl.

    The display changes each second, a log line is written every minute (as JSON: every 5 s).
    """

    def __init__(self, log: Log, look: Callable[[], RunView], zone: dt.tzinfo | None = None) -> None:
        """`zone`: of the times of day that are shown; None: that of the machine."""
        self._log = log
        self._look = look
        self._zone = zone
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
                self._live.update(display_of(view, size.width, size.height, self._zone), refresh=True)
        elif time.monotonic() >= self._next_line_at:
            pause_s = _RECORD_EVERY_S if self._log.as_json else _LINE_EVERY_S
            self._next_line_at = time.monotonic() + pause_s
            self._log.say("progress", line_of(view, self._zone), _facts(view))

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
        "progress": round(view.progress, 4),
        "ends_in_s": _rounded_since(view.now, view.forecast_middle_at),
        "ends_in_from_s": _rounded_since(view.now, view.forecast_from_at),
        "ends_in_to_s": _rounded_since(view.now, view.forecast_at),
        "done": view.done,
        "waiting": view.waiting,
        "in_flight": view.in_flight,
        "failed": view.failed,
        "wire_bytes": view.wire_bytes,
        "rate_bytes_per_s": view.rate_bytes_per_s,
        "capacity_bytes_per_s": view.bound_bytes_per_s,
        "errors": view.failures,
        "closed_until": view.closed_until,
    }


def _rounded_since(now: float, at: float | None) -> float | None:
    return None if at is None or not math.isfinite(at) else round(max(0.0, at - now), 1)


def line_of(view: RunView, zone: dt.tzinfo | None = None) -> str:
    """The progress as one line."""
    bound = "" if view.bound_bytes_per_s is None else f" of {format_rate(view.bound_bytes_per_s)}"
    errors = ", ".join(f"{count} {kind}" for kind, count in list(view.failures.items())[:4])
    ends = _end_of(view)
    link = f"{format_rate(view.rate_bytes_per_s)}{bound}"
    if view.closed_until is not None:
        link = _closed(view, zone)
    return (
        f"{format_duration(view.elapsed_s)}: {view.progress:.0%}{ends}, {view.done} pages done, "
        f"{view.waiting} waiting, {view.failed} failed, {format_size(view.wire_bytes)}, "
        f"{link}" + (f" ({errors})" if errors else "")
    )


def _closed(view: RunView, zone: dt.tzinfo | None) -> str:
    assert view.closed_until is not None
    return f"closed until {moment(view.closed_until, view.now, zone)}"


def _end_of(view: RunView) -> str:
    """When the crawl will end, with the range."""
    if view.forecast_at is not None and view.forecast_from_at is not None:
        return f", ends in {_span(view.forecast_from_at - view.now, view.forecast_at - view.now)}"
    is_whole = len(view.sites) >= view.site_count - view.sites_done
    if view.forecast_at is not None and is_whole:
        return f", ends within {format_duration(max(0.0, view.forecast_at - view.now))}"
    return ""


def display_of(
    view: RunView, columns: int = 100, lines: int = 40, zone: dt.tzinfo | None = None
) -> RenderableType:
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
    parts: list[RenderableType] = [head, _bars(view, columns, zone), _sites(view, shown, columns, zone)]
    hidden = view.site_count - len(shown)
    if hidden:
        parts.append(Text(f"and {hidden} more sites", style="dim"))
    if view.failures:
        counts = ", ".join(f"{count} {kind}" for kind, count in list(view.failures.items())[:8])
        parts.append(Text(f"not fetched: {counts}", style="yellow", no_wrap=True, overflow="ellipsis"))
    return Group(*parts)


def _bars(view: RunView, columns: int, zone: dt.tzinfo | None) -> RenderableType:
    table = Table.grid(padding=(0, 1))
    for _ in range(3):
        table.add_column(no_wrap=True)
    width = max(4, min(40, columns - 60))
    sites = f"{view.progress:.0%}, {view.sites_done} of {view.site_count} sites done"
    sites += _end_of(view)
    progress = ProgressBar(total=1.0, completed=view.progress, width=width)
    table.add_row("crawl", progress, sites)
    rate, bound = view.rate_bytes_per_s, view.bound_bytes_per_s
    if view.closed_until is not None:
        table.add_row("link", "", _closed(view, zone))
    elif not bound:
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


def _sites(view: RunView, shown: Sequence[SiteState], columns: int, zone: dt.tzinfo | None) -> RenderableType:
    names = _fitting(shown, columns)
    site_columns = _name_columns(shown, columns)
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    for name in names:
        justify = "right" if name in _NUMBERS else "left"
        table.add_column(name, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    for site in shown:
        state, leads_on = _state_of(site), site.leads_to and site.is_over
        cells = {
            "site": _short(_name(site), site_columns),
            "state": state if columns < _WIDE_COLUMNS or not leads_on else f"redirects to {site.leads_to}",
            "progress": f"{site.progress:.0%}",
            "done": str(site.done),
            "waiting": str(site.waiting),
            "failed": str(site.failed or ""),
            "bytes": format_size(site.wire_bytes),
            "rate": format_rate(site.rate_bytes_per_s) if site.rate_bytes_per_s else "",
            "deadline": _deadline(site, view, zone),
            "ends in": _forecast(site, view, with_chance=columns >= _WIDE_COLUMNS),
        }
        table.add_row(*(cells[name] for name in names), style=_STATE_STYLES.get(state, ""))
    return table


def _state_of(site: SiteState) -> str:
    if site.leads_to and site.is_over:
        return "redirects"
    return "late" if site.outlook == "late" else site.phase


def _name(site: SiteState) -> str:
    """Without the usual scheme, for which there is no room."""
    return site.site.removeprefix("https://")


def _name_columns(shown: Sequence[SiteState], columns: int) -> int:
    most = _MAX_SITE_COLUMNS if columns >= _WIDE_COLUMNS else _NARROW_SITE_COLUMNS
    return min(most, max((len(_name(site)) for site in shown), default=0))


def _short(name: str, columns: int) -> str:
    """A long name without its middle: its end tells sites apart as often as its beginning."""
    if len(name) <= columns:
        return name
    tail = max(1, columns // 3)
    return f"{name[: max(1, columns - tail - 1)]}\N{HORIZONTAL ELLIPSIS}{name[-tail:]}"


def _fitting(shown: Sequence[SiteState], columns: int) -> list[str]:
    """The columns of the table that fit the screen beside the names of the sites and their states."""
    states = max((len(_state_of(site)) for site in shown), default=0)
    left = columns - _name_columns(shown, columns) - 1 - states
    chosen = {"site", "state"}
    for name, width in _WIDTHS.items():
        left -= width + 1
        if name == "ends in" and columns >= _WIDE_COLUMNS:
            left -= _CHANCE_COLUMNS
        if left < 0:
            break
        chosen.add(name)
    return [name for name in _COLUMNS if name in chosen]


def _deadline(site: SiteState, view: RunView, zone: dt.tzinfo | None) -> str:
    if site.deadline_at is None:
        return ""
    if site.late_s is not None and site.phase == "done":
        if site.outlook == "met":
            return f"met, {format_duration(-site.late_s)} early"
        return f"missed by {format_duration(site.late_s)}" if site.late_s > 0 else "nothing fetched"
    left_s = site.deadline_at - view.now
    if is_clock_time(site.deadline_at) and left_s > _CLOCK_FROM_S:
        return moment(site.deadline_at, view.now, zone)
    return f"in {format_duration(left_s)}" if left_s >= 0 else f"{format_duration(-left_s)} ago"


def _forecast(site: SiteState, view: RunView, *, with_chance: bool = True) -> str:
    if site.forecast_from_at is None or site.forecast_to_at is None:
        return ""
    span = _span(site.forecast_from_at - view.now, site.forecast_to_at - view.now)
    return span if site.deadline_chance is None or not with_chance else f"{span} ({site.deadline_chance:.0%})"


def _span(early_s: float, late_s: float) -> str:
    """A range of times, as "3 to 9 min" or "40 s to 2 min": a forecast has no more digits than that."""
    early_s, late_s = max(0.0, early_s), max(0.0, late_s)
    if late_s - early_s < 1.0:
        return format_duration(late_s)
    (early, early_unit), (late, late_unit) = _rough(early_s), _rough(late_s)
    if early_unit == late_unit:
        return f"{early} to {late} {late_unit}" if early != late else f"{late} {late_unit}"
    return f"{early} {early_unit} to {late} {late_unit}"


def _rough(length_s: float) -> tuple[str, str]:
    """In one unit, with at most two digits."""
    for unit, seconds in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if length_s >= (0.995 if unit == "min" else 1.5) * seconds:
            count = length_s / seconds
            return (f"{count:.1f}" if count < 9.95 and unit != "min" else f"{count:.0f}"), unit
    return f"{length_s:.0f}", "s"
