"""The HEADWAY_ settings of a Scrapy project, read and checked by their declaration (`config.schema`).

Where Scrapy has a setting of its own, that one applies: CONCURRENT_REQUESTS, CONCURRENT_REQUESTS_PER_DOMAIN,
DOWNLOAD_DELAY, DOWNLOAD_TIMEOUT, DOWNLOAD_MAXSIZE, USER_AGENT, LOGSTATS_INTERVAL, JOBDIR, the TLS settings.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from typing import Any

import msgspec
from scrapy.exceptions import UsageError
from scrapy.settings import BaseSettings

from headway.config.job import national_holidays
from headway.config.keys import DeclaredKey, root_of
from headway.config.reading import SETTING_PREFIX, Path, Source, convert_as, read_values, setting_suggestion
from headway.config.schema import ScrapySettings
from headway.config.values import FLAG, deadline_at, machine_zone
from headway.errors import HeadwayError, JobError
from headway.model.page import Site
from headway.pages.url import page_of
from headway.planning.problem import Objective
from headway.policy.timetable import Calendar, Entry, Timetable
from headway.units import UNBOUNDED, Bytes, Instant, Seconds


class SettingsError(JobError, UsageError):
    """An invalid setting. As a UsageError, Scrapy prints it in one line where possible."""

    def __init__(self, message: str) -> None:
        UsageError.__init__(self, message, print_help=False)


class SiteSettings(msgspec.Struct, frozen=True):
    """The entry of one site in HEADWAY_SITES."""

    deadline_at: Instant | None = None
    weight: float = 1.0
    data_bytes: Bytes | None = None


class LinkSettings(msgspec.Struct, frozen=True):
    """The settings of a spider's link, checked and converted."""

    timetable: Timetable
    deadline_at: Instant | None
    """The deadline of every site without its own."""
    sites: Mapping[Site, SiteSettings]
    objective: Objective
    calendar: Calendar
    folder: str
    """Where the rates of servers are stored; relative to Scrapy's data folder."""
    allow_private: bool
    longest_hold_s: Seconds
    log_every_s: Seconds
    max_in_flight: int
    """How many requests to one site may be in flight."""
    delay_s: Seconds

    def settings_of(self, site: Site) -> SiteSettings:
        """The settings of a site, which HEADWAY_SITES may name with its scheme or by its host only."""
        host = site.partition("://")[2]
        return self.sites.get(site) or self.sites.get(Site(host)) or _NO_SETTINGS


_NO_SETTINGS = SiteSettings()


class _Settings(Source):
    """Errors name the setting: HEADWAY_SITES['www.example.org']['deadline']."""

    def error(self, path: Path, message: str) -> JobError:
        first, *rest = path
        # Write examples in the message as in settings.py, not as in a job file.
        message = re.sub(rf"\b{first} = ", f"{_setting(str(first))} = ", message)
        return SettingsError(f"{_setting(str(first))}{''.join(f'[{part!r}]' for part in rest)}: {message}")


def read_settings(now: Instant, settings: BaseSettings) -> LinkSettings:
    """Read all settings that begin with HEADWAY_. Raises SettingsError if one is invalid or unknown."""
    _refuse_unknown(settings)
    source = _Settings("settings")
    keys = root_of(ScrapySettings).keys
    given = {name: value for name, key in keys.items() if (value := _value(settings, key)) is not None}
    values = read_values(convert_as(ScrapySettings, given, source), root_of(ScrapySettings), source)
    zone = values["timezone"] or machine_zone()
    usual = values["bandwidth"]
    return LinkSettings(
        timetable=Timetable(UNBOUNDED if usual is None else usual, _entries(values["timetable"]), zone),
        deadline_at=_deadline(values["deadline"], now, zone, source, ("deadline",)),
        sites=_sites(values["sites"], now, zone, source),
        objective=Objective(values["objective"]),
        calendar=_calendar(values["country"], zone, source),
        folder=values["dir"],
        allow_private=values["allow_private"],
        longest_hold_s=values["max_retry_after"],
        log_every_s=Seconds(settings.getfloat("LOGSTATS_INTERVAL")),
        max_in_flight=max(1, settings.getint("CONCURRENT_REQUESTS_PER_DOMAIN")),
        delay_s=Seconds(settings.getfloat("DOWNLOAD_DELAY")),
    )


def _refuse_unknown(settings: BaseSettings) -> None:
    """Without this check a misspelt HEADWAY_BANDWIDTH would mean a crawl without a bound."""
    for name in settings:
        if advice := setting_suggestion(str(name)):
            raise SettingsError(f"{name}: {advice}")


def _setting(key: str) -> str:
    return f"{SETTING_PREFIX}{key.upper()}"


def _value(settings: BaseSettings, key: DeclaredKey) -> Any:
    """The value of a setting. Values from the command line (`scrapy crawl -s NAME=VALUE`) are text: flags are
    read as Scrapy does, tables and lists as JSON."""
    name = _setting(key.name)
    value = settings.get(name)
    if not isinstance(value, str):
        return dict(value) if isinstance(value, BaseSettings) else value
    if key.kind is FLAG:
        try:
            return settings.getbool(name)
        except ValueError:
            return value
    if not (key.is_list or key.is_map):
        return value
    try:
        return msgspec.json.decode(value)
    except msgspec.DecodeError:
        return value


def _entries(values: tuple[dict[str, Any], ...]) -> tuple[Entry, ...]:
    return tuple(
        Entry(entry["days"], from_minute, to_minute, entry["bandwidth"])
        for entry in values
        for from_minute, to_minute in [entry["hours"]]
    )


def _deadline(value: str | None, now: Instant, zone: dt.tzinfo, source: Source, path: Path) -> Instant | None:
    try:
        return None if value is None else deadline_at(value, now, zone)
    except HeadwayError as problem:
        raise source.error(path, str(problem)) from None


def _sites(
    values: Mapping[str, dict[str, Any]], now: Instant, zone: dt.tzinfo, source: Source
) -> dict[Site, SiteSettings]:
    return {
        _site(name, source): SiteSettings(
            _deadline(table["deadline"], now, zone, source, ("sites", name, "deadline")),
            float(table["weight"]),
            table["data"],
        )
        for name, table in values.items()
    }


def _site(name: str, source: Source) -> Site:
    page = page_of(name if "://" in name else f"http://{name}")
    if page is None:
        raise source.error(
            ("sites", name), "not a site such as 'https://www.example.org' or 'www.example.org'"
        )
    return page.site if "://" in name else Site(page.site.partition("://")[2])


def _calendar(country: str | None, zone: dt.tzinfo, source: Source) -> Calendar:
    if country is None:
        return Calendar(zone)
    try:
        return Calendar(zone, national_holidays(country))
    except HeadwayError as problem:
        raise source.error(("country",), str(problem)) from None
