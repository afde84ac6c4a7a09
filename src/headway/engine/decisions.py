"""The order of simultaneous events, and the lines of the decision log, by which two runs can be compared."""

from __future__ import annotations

import math
from collections.abc import Iterable

from headway.engine.availability import BLOCKED, REACHABLE_AGAIN, UNREACHABLE_SINCE
from headway.engine.start_pages import FETCHED, LEADS_OUT, MOVED, NOT_FETCHED, REDIRECTS
from headway.model.command import (
    AddSite,
    Command,
    CutRequests,
    DeadlineForecast,
    Decision,
    FetchPage,
    FetchRobots,
    FindServer,
    Finished,
    Limit,
    NoteYield,
    Order,
    OrderAnswered,
    PageState,
    SaveFound,
    SaveNotice,
    SaveSettled,
    SaveSite,
    SetCapacity,
    SetContention,
    SetDeadline,
    SetRates,
    StopSite,
    WakeAt,
)
from headway.model.event import Event, PageSettled, RobotsSettled, ServerFound, Tick
from headway.model.page import is_again, tries_before
from headway.units import Instant, format_rate


def in_order(events: Iterable[Event]) -> list[Event]:
    """Sort the events of one instant: pages by lease number, robots.txt by site, other events as they came,
    ticks.

    A tick comes last whichever timer fired first: a pause that is ordered at the same instant must take
    effect before more pages are requested, under every driver.
    """
    return sorted(events, key=_rank)


def _rank(event: Event) -> tuple[int, int, str]:
    match event:
        case PageSettled(lease):
            return (0, lease.number, "")
        case RobotsSettled(site):
            return (1, 0, site)
        case ServerFound(site):
            return (2, 0, site)
        case Tick():
            return (4, 0, "")
        case _:
            return (3, 0, "")


_SILENT = frozenset({FindServer, SaveFound, SaveSite, SetContention, WakeAt})


_WORDS_OF_NOTICES = {
    REDIRECTS: "first-page",
    MOVED: "first-page",
    LEADS_OUT: "first-page",
    NOT_FETCHED: "first-page",
    FETCHED: "first-page",
    UNREACHABLE_SINCE: "outage",
    REACHABLE_AGAIN: "outage-over",
    BLOCKED: "blocked",
}


def decision_of(now: Instant, command: Command) -> Decision | None:
    """The line of a command in the decision log; None for commands that only save what has happened."""
    kind = type(command)
    # Checked first because most commands are of these kinds, and a match tries its cases one by one.
    if kind in _SILENT or (kind is SaveSettled and command.state is PageState.DONE):  # type: ignore[union-attr]
        return None
    match command:
        case FetchPage(lease):
            page = lease.page
            word = "fetch-again" if is_again(lease.attempt) else "fetch"
            return Decision(now, word, page.site, page.url, page.depth, tries_before(lease.attempt))
        case SaveSettled(page, outcome, PageState.WAITING, attempt):
            tries = tries_before(attempt)
            return Decision(
                now, "retry", page.site, page.url, page.depth, tries, outcome.kind, command.retry_at
            )
        case SaveSettled(page, outcome, PageState.FAILED | PageState.EXCLUDED as state, attempt):
            verdict = "give-up" if state is PageState.FAILED else "exclude"
            reason = outcome.detail if outcome.kind == "out-of-scope" else outcome.kind
            return Decision(now, verdict, page.site, page.url, page.depth, tries_before(attempt), reason)
        case FetchRobots(site):
            return Decision(now, "ask-robots", site)
        case SaveNotice(site, _, what, subject):
            return Decision(now, _WORDS_OF_NOTICES.get(what, "notice"), site, reason=f"{what}: {subject}")
        case DeadlineForecast(site, deadline_at, forecast_at, is_late, needed, limit):
            return Decision(
                now,
                "foresee-late" if is_late else "foresee-on-time",
                site,
                reason=limit,
                until=forecast_at,
                deadline_at=deadline_at,
                needed_bytes_per_s=needed,
            )
        case OrderAnswered(order, refusal):
            return _order_line(now, order, refusal)
        case SetCapacity() | NoteYield():
            return _link_line(now, command)
        case SetRates(rates):
            rounded = {str(site): round(float(rate), 1) for site, rate in rates.items()}
            return Decision(now, "set-rates", rates_bytes_per_s=rounded)
        case CutRequests() | Finished():
            return _end_line(now, command)
        case _:
            return None


def _end_line(now: Instant, command: CutRequests | Finished) -> Decision:
    if isinstance(command, Finished):
        return Decision(now, "finish")
    sites = command.sites
    return Decision(now, "cut-requests", reason="" if sites is None else " ".join(sorted(sites)[:20]))


def _link_line(now: Instant, command: SetCapacity | NoteYield) -> Decision:
    if isinstance(command, SetCapacity):
        return Decision(now, "set-capacity", capacity_bytes_per_s=_finite(command.capacity_bytes_per_s))
    queue_s = command.queue_s
    return Decision(
        now,
        "yield",
        reason=command.doing,
        rate_bytes_per_s=round(command.rate_bytes_per_s),
        delivered_bytes_per_s=round(command.delivered_bytes_per_s),
        queue_s=None if queue_s is None else round(queue_s, 4),
    )


def _order_line(now: Instant, order: Order, refusal: str) -> Decision:
    match order:
        case SetDeadline(site, deadline_at):
            return Decision(now, "order-deadline", site, reason=refusal, deadline_at=deadline_at)
        case StopSite(site):
            return Decision(now, "order-stop", site, reason=refusal)
        case AddSite(task):
            return Decision(now, "order-add", task.site, reason=refusal, deadline_at=task.deadline_at)
        case _:
            return Decision(now, f"order-{type(order).__name__.lower()}", reason=refusal)


def _finite(rate: float) -> float | None:
    return rate if math.isfinite(rate) else None


_NO_BANDWIDTH: dict[str, str] = {
    Limit.SERVER: "more bandwidth would not help: its server is too slow",
    Limit.INTERVAL: "more bandwidth would not help, a shorter interval would",
    Limit.CAP: "more bandwidth would not help, a higher cap of the site would",
}


def advice_of(limited_by: str, needed_bytes_per_s: float | None) -> str:
    """What would meet the deadline of a site that is forecast to be late, from its line in the log."""
    if needed_bytes_per_s is not None:
        return f"a bandwidth of {format_rate(needed_bytes_per_s)} would meet it"
    return _NO_BANDWIDTH.get(limited_by, "too little time is left")
