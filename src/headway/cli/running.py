"""What every command that crawls does beside it: signals, warnings, as many files as the system allows."""

from __future__ import annotations

import asyncio
import resource
import signal
from contextlib import suppress
from typing import Protocol

from headway.cli.log import Log
from headway.model.decision import Decision
from headway.units import format_duration, format_rate


class Interruptible(Protocol):
    interrupted: bool

    def drain(self) -> None: ...

    def stop(self) -> None: ...


def allow_many_files() -> None:
    """As many as the system lets us: each connection is a file."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def drain_on_signals(run: Interruptible, log: Log) -> None:
    """The first lets what is under way finish, the second stops at once."""
    loop = asyncio.get_running_loop()

    def interrupt() -> None:
        if run.interrupted:
            run.stop()
        else:
            log.say("draining", "finishing what is under way; interrupt again to stop at once")
            run.drain()

    for signum in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(signum, interrupt)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup wants us to go on
        loop.add_signal_handler(signal.SIGHUP, interrupt)


def tell(log: Log, decision: Decision) -> None:
    match decision.decision:
        case "foresee-late":
            _warn(log, decision)
        case "foresee-on-time":
            facts = {"site": decision.site}
            log.say("on-time-again", decision.site, facts, lead="on time again: ", style="green")
        case "retry" | "give-up":
            log.detail(
                decision.decision,
                f"{decision.decision}: {decision.url}: {decision.reason}",
                {"url": decision.url, "reason": decision.reason, "attempt": decision.attempt},
            )


def _warn(log: Log, foresight: Decision) -> None:
    """A deadline that can no longer be met, as soon as that is known, with what would help."""
    assert foresight.deadline_at is not None
    assert foresight.until is not None
    late_s = foresight.until - foresight.deadline_at
    needed = foresight.needed_bytes_per_s
    help_text = (
        f"{format_rate(needed)} would meet all deadlines"
        if needed is not None
        else "more bandwidth alone would not help: its server or the interval sets the pace"
    )
    about = f"{foresight.site} will be about {format_duration(late_s)} late"
    log.say(
        "deadline-in-danger",
        f"{about}; {help_text}",
        {"site": foresight.site, "late_s": late_s, "needed_bytes_per_s": needed},
        lead="deadline in danger: ",
        style="yellow",
    )
