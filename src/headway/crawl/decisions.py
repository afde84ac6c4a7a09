"""The decision log: what was decided, when, in a form that two runs can be compared by."""

from __future__ import annotations

import math

from headway.model.command import (
    Command,
    FetchPage,
    FetchRobots,
    Finished,
    Foresee,
    Obeyed,
    PageState,
    SaveFound,
    SaveNotice,
    SaveSettled,
    SaveSite,
    SetCapacity,
    SetRates,
    WakeAt,
)
from headway.model.decision import Decision
from headway.model.order import AddSite, Order, SetDeadline, StopSite
from headway.model.page import is_again, tries_before
from headway.units import Instant

_SILENT = frozenset({SaveFound, SaveSite, WakeAt})


def decision_of(now: Instant, command: Command) -> Decision | None:
    """The line that a command leaves in the log; saving what is known already is no decision."""
    kind = type(command)
    # Most commands are of these kinds, and asking in turn takes time.
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
            return Decision(now, "notice", site, reason=f"{what}: {subject}")
        case Foresee(site, deadline_at, forecast_at, is_late, needed):
            word = "foresee-late" if is_late else "foresee-on-time"
            return Decision(
                now, word, site, until=forecast_at, deadline_at=deadline_at, needed_bytes_per_s=needed
            )
        case Obeyed(order, refusal):
            return _order_line(now, order, refusal)
        case SetCapacity(capacity):
            return Decision(now, "set-capacity", capacity_bytes_per_s=_finite(capacity))
        case SetRates(rates):
            rounded = {str(site): round(float(rate), 1) for site, rate in rates.items()}
            return Decision(now, "set-rates", rates_bytes_per_s=rounded)
        case Finished():
            return Decision(now, "finish")
        case _:
            return None


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
