"""Parts of the commands that crawl: the name of a run, its result as a table, signals, the limit on open
files, and logged decisions."""

from __future__ import annotations

import asyncio
import resource
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import click
from rich.console import Console
from rich.table import Table

from headway.cli.frame import Log, print_lines
from headway.engine.decisions import advice_of
from headway.model.command import Decision
from headway.policy.scope import SITE_LIMIT
from headway.runtime.process import INTERRUPTS
from headway.store.postgres.connection import is_address
from headway.store.reader import DATABASE
from headway.units import format_duration, format_rate, format_size
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


_STYLES = {"met": "green", "missed": "bold red", "open": "yellow", "redirects": "dim"} | dict.fromkeys(
    ("unreachable", "failed"), "red"
)


_MOST_SITES_EXPLAINED = 1000


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
    if summary.sittings > 1:
        amount += f" ({format_duration(summary.active_s)} of crawling in {summary.sittings} sessions)"
    lines = [f"{amount}; {summary.failed} failed{waiting}"]
    if summary.errors:
        lines.append("failed: " + ", ".join(f"{count} {kind}" for kind, count in summary.errors.items()))
    lines += site_lines(summary.sites[:_MOST_SITES_EXPLAINED])
    if summary.forecast_s is not None:
        lines.append(_forecast_line(summary))
    print_lines(console, *lines, *lines_of(summary.noticed), _link_line(summary), *_sharing_lines(summary))
    console.print(f"run folder: {summary.run}", soft_wrap=True)


def _forecast_line(summary: Summary) -> str:
    """When a running crawl will end."""
    ends = (summary.forecast_s, summary.forecast_from_s, summary.forecast_to_s)
    middle, early, late = (format_duration(max(0.0, (end or 0.0) - summary.seconds)) for end in ends)
    return f"forecast: ends in {middle}, four times of five in {early} to {late}"


def _cells(site: SiteResult) -> tuple[str, ...]:
    return (
        f"{site.site} -> {site.leads_to}" if site.leads_to else site.site,
        "" if site.deadline_s is None else format_duration(site.deadline_s),
        "" if site.finished_s is None else format_duration(site.finished_s),
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
                f"{decision.reason.removeprefix(SITE_LIMIT)}; links of {decision.site} to further sites are"
                " left out: see max_sites in [crawl.scope]",
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
