"""The HEADWAY_ settings of a Scrapy project, read and checked.

Where Scrapy has a name for a thing, that name holds: CONCURRENT_REQUESTS, CONCURRENT_REQUESTS_PER_DOMAIN,
DOWNLOAD_DELAY, DOWNLOAD_TIMEOUT, DOWNLOAD_MAXSIZE, USER_AGENT, LOGSTATS_INTERVAL, JOBDIR, the TLS settings.
"""

from __future__ import annotations

import datetime as dt
import zoneinfo
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec
from scrapy.exceptions import UsageError
from scrapy.settings import BaseSettings

from headway.config import checks
from headway.config.deadline import deadline_at
from headway.config.holidays import national_holidays
from headway.config.job import machine_zone
from headway.errors import HeadwayError, JobError
from headway.model.page import Site
from headway.parse.url import page_of
from headway.policy.allocation.problem import Objective
from headway.policy.calendar import Calendar
from headway.policy.timetable import Entry, Timetable
from headway.units import UNBOUNDED, Bytes, BytesPerSecond, Instant, Seconds

T = TypeVar("T")

_SITE_KEYS = frozenset({"deadline", "weight", "data"})
_ENTRY_KEYS = frozenset({"bandwidth", "days", "hours"})
_LONGEST_HOLD = "1 h"


class SettingsError(JobError, UsageError):
    """A setting that cannot be read. Scrapy prints it in one line where it can."""

    def __init__(self, message: str) -> None:
        UsageError.__init__(self, message, print_help=False)


class SiteWish(msgspec.Struct, frozen=True):
    """What HEADWAY_SITES says of one site."""

    deadline_at: Instant | None = None
    weight: float = 1.0
    data_bytes: Bytes | None = None


class LinkSettings(msgspec.Struct, frozen=True):
    timetable: Timetable
    deadline_at: Instant | None
    """Of every site that has none of its own."""
    sites: Mapping[Site, SiteWish]
    objective: Objective
    calendar: Calendar
    folder: str
    """Where what was learnt of servers is kept; relative to Scrapy's data folder."""
    allow_private: bool
    longest_hold_s: Seconds
    log_every_s: Seconds
    lanes: int
    """How many requests to a site may be under way."""
    delay_s: Seconds

    def wish_for(self, site: Site) -> SiteWish:
        """HEADWAY_SITES may name a site with its scheme, or a host alone."""
        host = site.partition("://")[2]
        return self.sites.get(site) or self.sites.get(Site(host)) or _NO_WISH


_NO_WISH = SiteWish()


def read_settings(now: Instant, settings: BaseSettings) -> LinkSettings:
    """Raises SettingsError, which names the setting."""
    zone = _zone(settings)
    due = settings.get("HEADWAY_DEADLINE")
    usual = settings.get("HEADWAY_BANDWIDTH")
    entries = tuple(
        _entry(number, entry) for number, entry in enumerate(_listed(settings, "HEADWAY_TIMETABLE"))
    )
    rate = UNBOUNDED if usual is None else _read(checks.rate, usual, "HEADWAY_BANDWIDTH", "2 Mbit/s")
    return LinkSettings(
        timetable=Timetable(BytesPerSecond(rate), entries, zone),
        deadline_at=None if due is None else _deadline(due, now, zone, "HEADWAY_DEADLINE"),
        sites=_sites(now, settings, zone),
        objective=_objective(settings.get("HEADWAY_OBJECTIVE", "max-completion")),
        calendar=_calendar(settings, zone),
        folder=str(settings.get("HEADWAY_DIR", "headway")),
        allow_private=settings.getbool("HEADWAY_ALLOW_PRIVATE", True),
        longest_hold_s=_read(
            checks.timeout,
            settings.get("HEADWAY_MAX_RETRY_AFTER", _LONGEST_HOLD),
            "HEADWAY_MAX_RETRY_AFTER",
            _LONGEST_HOLD,
        ),
        log_every_s=Seconds(settings.getfloat("LOGSTATS_INTERVAL")),
        lanes=max(1, settings.getint("CONCURRENT_REQUESTS_PER_DOMAIN")),
        delay_s=Seconds(settings.getfloat("DOWNLOAD_DELAY")),
    )


def _read(parse: Callable[[str], T], value: object, name: str, example: str) -> T:
    if not isinstance(value, str):
        raise SettingsError(f"{name}: {value!r} is not text with a unit such as {example!r}")
    try:
        return parse(value)
    except HeadwayError as problem:
        raise SettingsError(f"{name}: {problem}") from None


def _deadline(text: object, now: Instant, zone: dt.tzinfo, name: str) -> Instant:
    return _read(lambda written: deadline_at(written, now, zone), text, name, "2 h")


def _entry(number: int, entry: object) -> Entry:
    name = f"HEADWAY_TIMETABLE[{number}]"
    table = _table(entry, _ENTRY_KEYS, name)
    if "bandwidth" not in table:
        raise SettingsError(f"{name}: the key 'bandwidth' is missing")
    rate = _read(checks.rate, table["bandwidth"], f"{name}['bandwidth']", "2 Mbit/s")
    try:
        return Entry.parse(str(table.get("days", "mon-sun")), str(table.get("hours", "00:00-24:00")), rate)
    except HeadwayError as problem:
        raise SettingsError(f"{name}: {problem}") from None


def _sites(now: Instant, settings: BaseSettings, zone: dt.tzinfo) -> dict[Site, SiteWish]:
    wishes: dict[Site, SiteWish] = {}
    for key, value in settings.getdict("HEADWAY_SITES").items():
        name = f"HEADWAY_SITES[{key!r}]"
        table = _table(value, _SITE_KEYS, name)
        weight = table.get("weight", 1.0)
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not weight > 0:
            raise SettingsError(f"{name}['weight']: {weight!r} is not a number above zero")
        due, data = table.get("deadline"), table.get("data")
        wishes[_site(str(key), name)] = SiteWish(
            None if due is None else _deadline(due, now, zone, f"{name}['deadline']"),
            float(weight),
            None if data is None else _read(checks.size, data, f"{name}['data']", "50 MB"),
        )
    return wishes


def _site(key: str, name: str) -> Site:
    page = page_of(key if "://" in key else f"http://{key}")
    if page is None:
        raise SettingsError(f"{name}: not a site such as 'https://www.example.org' or 'www.example.org'")
    return page.site if "://" in key else Site(page.site.partition("://")[2])


def _table(value: object, known: frozenset[str], name: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise SettingsError(f"{name}: {value!r} is not a dict")
    if strangers := sorted(set(value) - known):
        raise SettingsError(
            f"{name}: there is no key {strangers[0]!r}; known here: {', '.join(sorted(known))}"
        )
    return value


def _listed(settings: BaseSettings, name: str) -> list[object]:
    value = settings.get(name) or []
    if isinstance(value, str):  # from the command line: `scrapy crawl -s NAME=JSON`
        try:
            value = msgspec.json.decode(value)
        except msgspec.DecodeError:
            value = settings.get(name)
    if not isinstance(value, list | tuple):
        raise SettingsError(f"{name}: {value!r} is not a list of dicts with 'bandwidth', 'days' and 'hours'")
    return list(value)


def _objective(name: object) -> Objective:
    try:
        return Objective(str(name))
    except ValueError:
        raise SettingsError(
            f"HEADWAY_OBJECTIVE: {name!r} is none of {', '.join(map(repr, map(str, Objective)))}"
        ) from None


def _zone(settings: BaseSettings) -> dt.tzinfo:
    name = settings.get("HEADWAY_TIMEZONE")
    if name is None:
        return machine_zone()
    try:
        return zoneinfo.ZoneInfo(str(name))
    except (zoneinfo.ZoneInfoNotFoundError, ValueError):
        raise SettingsError(
            f"HEADWAY_TIMEZONE: {name!r} is not a time zone such as 'Europe/Berlin'"
        ) from None


def _calendar(settings: BaseSettings, zone: dt.tzinfo) -> Calendar:
    country = settings.get("HEADWAY_COUNTRY")
    if country is None:
        return Calendar(zone)
    try:
        return Calendar(zone, national_holidays(str(country), set()))
    except HeadwayError as problem:
        raise SettingsError(f"HEADWAY_COUNTRY: {problem}") from None
