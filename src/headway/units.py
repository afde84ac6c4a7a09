"""Quantities, and how they are parsed and formatted.

Inside headway every quantity is a plain number in a base unit: seconds, bytes, bytes per second. Only
the edges (job file, command line, tables) use text such as "5 Mbit/s" or "2 h". K, M, G are decimal, Ki,
Mi, Gi binary, and "bit" must be spelled out, because `Mb` can mean megabit or megabyte.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from typing import NewType

from headway.errors import UnitError

Instant = NewType("Instant", float)
"""Seconds on the clock in use: Unix time in a live crawl, seconds since the start in a simulation."""
Seconds = NewType("Seconds", float)
Bytes = NewType("Bytes", int)
BytesPerSecond = NewType("BytesPerSecond", float)

FOREVER = Instant(math.inf)
UNBOUNDED = BytesPerSecond(math.inf)

_QUANTITY = re.compile(r"\s*(?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)\s*(?P<unit>[^\d\s.].*?)?\s*")
_PREFIXES = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_PREFIXES |= {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_SIZE_UNITS = {
    prefix + name: factor * octets
    for prefix, factor in _PREFIXES.items()
    for name, octets in {"B": 1.0, "byte": 1.0, "bytes": 1.0, "bit": 0.125, "bits": 0.125}.items()
}
# A lower-case k is common for kilo. No other lower-case prefix is unambiguous.
_SIZE_UNITS |= {"k" + unit[1:]: size for unit, size in _SIZE_UNITS.items() if unit.startswith("K")}
_DURATION_UNITS = {
    name: seconds
    for names, seconds in (
        (("ms",), 0.001),
        (("s", "sec", "second", "seconds"), 1.0),
        (("min", "m", "minute", "minutes"), 60.0),
        (("h", "hour", "hours"), 3600.0),
        (("d", "day", "days"), 86400.0),
        (("w", "week", "weeks"), 604800.0),
    )
    for name in names
}


def parse_size(text: str) -> Bytes:
    """Parse a size such as "200 KB", "1 GiB" or "8 Mbit" to bytes."""
    return Bytes(round(_parse(text, _SIZE_UNITS, "a size", "200 KB", "1 GiB")))


def parse_rate(text: str) -> BytesPerSecond:
    """Parse a rate such as "5 Mbit/s" or "200 KB/s" to bytes per second."""
    body, slash, per = text.strip().partition("/")
    if not slash or per.strip() not in {"s", "sec", "second"}:
        raise UnitError(_explain(text, "a rate", "5 Mbit/s", "200 KB/s"))
    return BytesPerSecond(_parse(body, _SIZE_UNITS, "a rate", "5 Mbit/s", "200 KB/s", whole=text))


def parse_duration(text: str) -> Seconds:
    """Parse a duration such as "2 h", "90 s" or "1 h 30 min" to seconds."""
    parts = re.findall(r"\d+(?:\.\d+)?(?:[eE][+-]?\d+)?\s*[A-Za-z]+", text)
    if len(parts) > 1 and "".join(parts).replace(" ", "") == text.replace(" ", ""):
        return Seconds(sum(parse_duration(part) for part in parts))
    return Seconds(_parse(text, _DURATION_UNITS, "a duration", "2 h", "90 s"))


def format_size(size_bytes: float) -> str:
    return _format(size_bytes, "B")


def format_rate(rate_bytes_per_s: float) -> str:
    return "unbounded" if math.isinf(rate_bytes_per_s) else _format(rate_bytes_per_s, "B/s")


def format_duration(seconds: float) -> str:
    if not math.isfinite(seconds):
        return "never"
    sign, seconds = ("-" if seconds < 0 else ""), abs(seconds)
    if seconds < 60:
        return f"{sign}{seconds:.1f} s"
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [f"{days} d" if days else "", f"{hours} h" if hours else "", f"{minutes} min" if minutes else ""]
    if not days and not hours and seconds:
        parts.append(f"{seconds} s")
    return sign + " ".join(part for part in parts if part)


def _parse(text: str, units: dict[str, float], what: str, *examples: str, whole: str | None = None) -> float:
    shown = whole or text
    match = _QUANTITY.fullmatch(text)
    if match is None or (match["unit"] or "").strip() not in units:
        raise UnitError(_explain(shown, what, *examples))
    value = float(match["number"]) * units[match["unit"].strip()]
    if not math.isfinite(value):
        raise UnitError(f"{shown!r} is too large to be {what}")
    return value


def _explain(text: str, what: str, *examples: str) -> str:
    hint = ""
    if re.search(r"\d\s*[KMGkmg]?b(ps|/s)?\b", text):
        hint = "; write 'bit' for bits and 'B' for bytes, because 'b' can mean either"
    elif re.fullmatch(r"\s*-.*", text):
        hint = "; it must not be negative"
    elif re.fullmatch(r"\s*[\d.]+\s*", text):
        hint = "; the unit is missing"
    return f"{text!r} is not {what} such as {' or '.join(map(repr, examples))}{hint}"


def _format(value: float, unit: str) -> str:
    for prefix in ("", "K", "M", "G"):
        if abs(value) < 999.5:
            return f"{value:.0f} {unit}" if not prefix else f"{value:.3g} {prefix}{unit}"
        value /= 1000
    return f"{value:.3g} T{unit}"


def utc_text(at: Instant) -> str:
    """An instant for people and programs alike: 2030-01-31T07:30:00Z."""
    return dt.datetime.fromtimestamp(at, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def is_clock_time(at: float) -> bool:
    """Whether a deadline was given as a time of day, or a date: a whole second, which a length of time from
    the start of a crawl practically never is."""
    return at == int(at)
