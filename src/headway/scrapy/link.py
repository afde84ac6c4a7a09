"""One spider's link: its settings, its bound, the rates of its sites, and what was received.

The HEADWAY_ settings of a Scrapy project are read and checked by their declaration (`config.schema`). Where
Scrapy has a setting of its own, that one applies: CONCURRENT_REQUESTS, CONCURRENT_REQUESTS_PER_DOMAIN,
DOWNLOAD_DELAY, DOWNLOAD_TIMEOUT, DOWNLOAD_MAXSIZE, USER_AGENT, LOGSTATS_INTERVAL, JOBDIR, the TLS settings.
`Link` connects the parts that Scrapy builds one by one: they find it by their crawler, with `link_of`.
"""

from __future__ import annotations

import datetime as dt
import logging
import math
import re
import sqlite3
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import msgspec
import numpy as np
from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.exceptions import UsageError
from scrapy.settings import BaseSettings
from scrapy.utils.project import data_path
from scrapy.utils.ssl import _make_ssl_context

from headway.config.job import national_holidays
from headway.config.keys import DeclaredKey, root_of
from headway.config.reading import SETTING_PREFIX, Source, convert_as, read_values, setting_suggestion
from headway.config.reading import Path as KeyPath
from headway.config.schema import ScrapySettings
from headway.config.values import FLAG, deadline_at, machine_zone
from headway.engine.bandwidth import LinkBound
from headway.errors import HeadwayError, JobError
from headway.model.page import Site
from headway.pacing.shared_window import SpiderPacer
from headway.pages.url import page_of
from headway.planning.baselines import m_maxt, m_stet, m_sumt
from headway.planning.estimate import Evidence, cap_bytes_per_s, page_bytes, remaining_bytes
from headway.planning.problem import Objective, Problem
from headway.policy.prediction import Prediction
from headway.policy.timetable import Calendar, Entry, Timetable
from headway.scrapy.fetcher import FetchResult, SpiderFetcher
from headway.units import FOREVER, UNBOUNDED, Bytes, BytesPerSecond, Instant, Seconds


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

    def error(self, path: KeyPath, message: str) -> JobError:
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


def _deadline(
    value: str | None, now: Instant, zone: dt.tzinfo, source: Source, path: KeyPath
) -> Instant | None:
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


logger = logging.getLogger(__name__)

_BUSY_S = 5.0
_TABLE = "CREATE TABLE IF NOT EXISTS server (address TEXT PRIMARY KEY, rates BLOB NOT NULL) WITHOUT ROWID"
_SAVE = "INSERT INTO server VALUES (?, ?) ON CONFLICT (address) DO UPDATE SET rates = excluded.rates"

_MARGIN = 0.1
"""Part of the time left to a deadline that is kept in reserve, since the data of a site is only estimated."""
_TURN_S = 0.02
_POLICIES = {Objective.SUM_COMPLETION: m_sumt, Objective.TARDINESS: m_stet}
_NOTICEABLE = 0.1
"""A rate that changes by less is kept: after each change connections have to adapt their windows."""
_NEW_SERVER = BytesPerSecond(1_000_000.0)
_HELD_BACK = 0.1
"""If the bound delayed a download for more than this part of its time, the measured rate is only a lower
bound of the server's."""


class ServerRates:
    """The file with the learned rates of servers. If it cannot be read or written, the crawl goes on
    without."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "servers.sqlite"

    def load(self) -> list[tuple[str, bytes]]:
        if not self.path.exists():
            return []
        try:
            with closing(sqlite3.connect(self.path, timeout=_BUSY_S)) as connection:
                return connection.execute("SELECT address, rates FROM server").fetchall()
        except sqlite3.Error as problem:
            logger.warning("cannot read %s (%s); the rates of servers are learnt again", self.path, problem)
            return []

    def save(self, rows: Iterable[tuple[str, bytes]]) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(self.path, timeout=_BUSY_S)) as connection, connection:
                connection.execute(_TABLE)
                connection.executemany(_SAVE, rows)
        except (sqlite3.Error, OSError) as problem:
            logger.warning(
                "cannot write %s (%s); the rates of servers that were learnt are lost", self.path, problem
            )


class SiteCounters:
    """The requests and bytes of one site."""

    __slots__ = (
        "answers",
        "in_flight",
        "links_new",
        "links_seen",
        "server",
        "site",
        "waiting",
        "wire_bytes",
    )

    def __init__(self, site: Site) -> None:
        self.site = site
        self.server = ""
        self.answers = 0
        self.wire_bytes = 0
        self.waiting = 0
        self.in_flight = 0
        self.links_seen = 0
        self.links_new = 0

    @property
    def is_busy(self) -> bool:
        return self.waiting > 0 or self.in_flight > 0

    def evidence(self, data_bytes: Bytes | None) -> Evidence:
        """What an estimate of the site's remaining data is based on. `data_bytes`: its size, if given."""
        return Evidence(
            fetched_pages=self.answers,
            fetched_bytes=self.wire_bytes,
            waiting_pages=self.waiting,
            links_seen=float(self.links_seen),
            links_new=float(self.links_new),
            given_bytes=data_bytes,
        )


class Counters:
    """Counters by site, updated at each step of each request."""

    def __init__(self) -> None:
        self._sites: dict[Site, SiteCounters] = {}

    def __iter__(self) -> Iterator[SiteCounters]:
        return iter(self._sites.values())

    def of(self, site: Site) -> SiteCounters:
        counters = self._sites.get(site)
        if counters is None:
            self._sites[site] = counters = SiteCounters(site)
        return counters

    def scheduled(self, site: Site) -> None:
        counters = self.of(site)
        counters.waiting += 1
        counters.links_seen += 1
        counters.links_new += 1

    def dropped(self, site: Site) -> None:
        """A request was a duplicate of an earlier one."""
        counters = self.of(site)
        counters.waiting = max(0, counters.waiting - 1)
        counters.links_new = max(0, counters.links_new - 1)

    def started(self, site: Site) -> None:
        counters = self.of(site)
        counters.waiting = max(0, counters.waiting - 1)
        counters.in_flight += 1

    def ended(self, site: Site) -> None:
        counters = self.of(site)
        counters.in_flight = max(0, counters.in_flight - 1)

    def record(self, site: Site, result: FetchResult) -> None:
        counters = self.of(site)
        counters.wire_bytes += result.wire_bytes
        counters.answers += 1
        if result.peer:
            counters.server = f"{result.peer} {site.rpartition(':')[2]}"


class Sharing:
    """Decides the rate of each site of a spider, and predicts when each will be done.

    These are zhu2020's constant rates, computed again while the spider runs, from each site's remaining data,
    highest rate, deadline and weight. Without deadlines or HEADWAY_SITES all sites have equal rates. The
    pacer lends what a site does not use to the others at once.
    """

    def __init__(self, settings: LinkSettings, prediction: Prediction) -> None:
        self._settings = settings
        self._prediction = prediction
        self._allocate = _POLICIES.get(settings.objective, m_maxt)
        self._has_settings = bool(settings.sites) or settings.deadline_at is not None
        self._rates: dict[Site, BytesPerSecond] = {}
        self._ends_at: dict[Site, Instant] = {}

    def decide(
        self, now: Instant, counters: Iterable[SiteCounters], capacity_bytes_per_s: BytesPerSecond
    ) -> dict[Site, BytesPerSecond] | None:
        """The rates from now on; None if they do not change."""
        busy = [each for each in counters if each.is_busy]
        if not busy or not 0 < capacity_bytes_per_s < math.inf:
            self._ends_at = {}
            return None
        left = np.array([self._left_bytes(each) for each in busy])
        due_s = np.array([self._due_s(now, each.site) for each in busy])
        caps = np.array([min(self._cap(now, each), capacity_bytes_per_s) for each in busy])
        weights = np.array([self._settings.settings_of(each.site).weight for each in busy])
        # The rate of a site without a deadline depends on its data, which its weight multiplies.
        problem = Problem.of(
            np.where(np.isfinite(due_s), left, left * weights),
            capacity_bytes_per_s,
            deadline_s=due_s,
            cap_bytes_per_s=caps,
        )
        rates = self._allocate(problem)
        ends_s = left / np.maximum(rates, 1.0)
        self._ends_at = {
            each.site: Instant(now + end_s) for each, end_s in zip(busy, ends_s.tolist(), strict=True)
        }
        if not self._has_settings:
            return None
        found = {each.site: BytesPerSecond(rate) for each, rate in zip(busy, rates.tolist(), strict=True)}
        if _alike(self._rates, found):
            return None
        self._rates = found
        return found

    def ends_at(self) -> Instant | None:
        """When the last site is predicted to be done; None if no site has requests left."""
        return max(self._ends_at.values(), default=None)

    def late(self) -> tuple[Site, ...]:
        """Sites that are predicted to miss their deadline."""
        return tuple(
            site for site, end_at in self._ends_at.items() if end_at > (self.deadline_of(site) or FOREVER)
        )

    def deadline_of(self, site: Site) -> Instant | None:
        return self._settings.settings_of(site).deadline_at or self._settings.deadline_at

    def _left_bytes(self, counters: SiteCounters) -> float:
        evidence = counters.evidence(self._settings.settings_of(counters.site).data_bytes)
        return max(remaining_bytes(evidence).guarded() + counters.in_flight * page_bytes(evidence), 1.0)

    def _due_s(self, now: Instant, site: Site) -> float:
        deadline_at = self.deadline_of(site)
        if deadline_at is None or deadline_at <= now:
            return math.inf  # after its deadline a site gets the same rate as one without
        return (1 - _MARGIN) * (deadline_at - now)

    def _cap(self, now: Instant, counters: SiteCounters) -> float:
        """The highest rate of the site with as many requests in flight as are allowed."""
        size_bytes = page_bytes(counters.evidence(None))
        one = cap_bytes_per_s(
            size_bytes,
            pause_s=Seconds(_TURN_S),
            server_rate_bytes_per_s=self._prediction.predict(now, counters.server),
        )
        delay_s = self._settings.delay_s
        return max(
            1.0, min(one * self._settings.max_in_flight, size_bytes / delay_s if delay_s > 0 else math.inf)
        )


def _alike(before: dict[Site, BytesPerSecond], after: dict[Site, BytesPerSecond]) -> bool:
    if before.keys() != after.keys():
        return False
    return all(abs(after[site] - rate) <= _NOTICEABLE * rate for site, rate in before.items())


class Link:
    """One spider's link."""

    def __init__(self, crawler: Crawler) -> None:
        self.opened_at = Instant(time.time())
        self.settings: LinkSettings = read_settings(self.opened_at, crawler.settings)
        self.bound = LinkBound(self.settings.timetable)
        self.bound.look(self.opened_at)
        self.pacer = SpiderPacer(self.bound.capacity_bytes_per_s)
        self.counters = Counters()
        self.prediction = Prediction(_NEW_SERVER, self.settings.calendar)
        self.sharing = Sharing(self.settings, self.prediction)
        self.waited_s = 0.0
        """How long all requests together waited until the bound allowed them."""
        self.held_s = 0.0
        """How long the bound kept us from reading their responses."""
        self.on_result: Callable[[Request, FetchResult], None] | None = None
        """Called with the result of every request."""
        self._server_rates = ServerRates(Path(data_path(self.settings.folder)))
        self.prediction.restore(self._server_rates.load())
        self._context = _tls_context(crawler.settings)
        self._user_agent = str(crawler.settings.get("USER_AGENT") or "Scrapy")
        self._fetcher: SpiderFetcher | None = None

    @property
    def fetcher(self) -> SpiderFetcher:
        if self._fetcher is None:
            self._fetcher = SpiderFetcher(
                self.pacer,
                self._user_agent,
                self._context,
                allow_private=self.settings.allow_private,
            )
        return self._fetcher

    def set_limit(self, capacity_bytes_per_s: BytesPerSecond | None) -> None:
        """Set the bound from outside; None: use the settings again."""
        now = Instant(time.time())
        self.bound.set(now, capacity_bytes_per_s)
        if self.bound.look(now):
            self.pacer.set_capacity(self.bound.capacity_bytes_per_s)

    def update(self, now: Instant) -> None:
        """Follow the timetable and decide the rates of the sites. Called once a second."""
        if self.bound.look(now):
            self.pacer.set_capacity(self.bound.capacity_bytes_per_s)
        rates = self.sharing.decide(now, self.counters, self.bound.capacity_bytes_per_s)
        if rates is not None:
            self.pacer.set_rates(rates)

    def record(self, site: Site, result: FetchResult) -> None:
        self.counters.record(site, result)
        self.waited_s += result.waited_s
        self.held_s += result.held_s
        if result.peer and result.wire_bytes and result.duration_s > 0:
            own_s = max(result.duration_s - result.held_s, 1e-6)
            was_held = result.waited_s + result.held_s > _HELD_BACK * result.duration_s
            self.prediction.learn(
                Instant(time.time()),
                self.counters.of(site).server,
                BytesPerSecond(result.wire_bytes / own_s),
                held_back=was_held,
            )

    def save_learned(self) -> None:
        """Save the rates of servers that changed since the last call."""
        rows = list(self.prediction.changed_rows())
        if rows:
            self._server_rates.save(rows)

    async def aclose(self) -> None:
        if self._fetcher is not None:
            await self._fetcher.aclose()
        self.pacer.close()


def _tls_context(settings: BaseSettings) -> ssl.SSLContext:
    """The TLS context with verification, versions, ciphers and key log from Scrapy's settings."""
    context = _make_ssl_context(settings)
    context.set_alpn_protocols(["http/1.1"])
    return context


_links: WeakKeyDictionary[Crawler, Link] = WeakKeyDictionary()


def link_of(crawler: Crawler) -> Link:
    """The link of a crawler, made at the first call."""
    link = _links.get(crawler)
    if link is None:
        _links[crawler] = link = Link(crawler)
    return link
