"""By when: "2 h" from the start, "07:30" the next time the clock shows it, or a date and time."""

from __future__ import annotations

import datetime as dt
import re

from headway.config.checks import LONGEST_S
from headway.errors import UnitError
from headway.units import Instant, parse_duration

_CLOCK_TIME = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d))?")


def deadline_at(text: str, started_at: Instant, zone: dt.tzinfo) -> Instant:
    """The instant that a deadline means for a crawl begun at `started_at`."""
    text = text.strip()
    started = dt.datetime.fromtimestamp(started_at, zone)
    if clock := _CLOCK_TIME.fullmatch(text):
        hour, minute, second = (int(part or 0) for part in clock.groups())
        due = started.replace(hour=hour, minute=minute, second=second, microsecond=0)
        return Instant((due if due > started else due + dt.timedelta(days=1)).timestamp())
    if re.match(r"\d{4}-\d\d-\d\d", text):
        try:
            due = dt.datetime.fromisoformat(text)
        except ValueError:
            raise UnitError(_explain(text)) from None
        if due.tzinfo is None:
            due = due.replace(tzinfo=zone)
        if due.timestamp() <= started_at:
            raise UnitError(f"{text!r} is in the past: the crawl begins at {started:%Y-%m-%d %H:%M:%S %z}")
        return _within_reason(text, due.timestamp() - started_at, started_at)
    try:
        length_s = parse_duration(text)
    except UnitError:
        raise UnitError(_explain(text)) from None
    if length_s <= 0:
        raise UnitError(f"{text!r} leaves no time at all; a deadline lies after the start")
    return _within_reason(text, length_s, started_at)


def _within_reason(text: str, length_s: float, started_at: Instant) -> Instant:
    if length_s > LONGEST_S:
        raise UnitError(f"{text!r} is more than a hundred years away; leave it out to have no deadline")
    return Instant(started_at + length_s)


def _explain(text: str) -> str:
    return f"{text!r} is not a deadline such as '2 h', '07:30' or '2030-01-31T07:30'"
