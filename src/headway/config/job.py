"""A job as values: quantities read, URLs in canonical form, policies' parameters ready to build with."""

from __future__ import annotations

import datetime as dt
import math
import ssl
import zoneinfo
from collections.abc import Callable
from pathlib import Path as FilePath
from typing import TypeVar

import msgspec

from headway.config import checks
from headway.config.deadline import deadline_at
from headway.config.extraction import extraction_rules
from headway.config.holidays import national_holidays
from headway.config.lines import Path
from headway.config.reading import Source, read_job_file
from headway.config.revisiting import Mistake, Revisiting, read_revisiting
from headway.config.schema import JobFile, SiteTable
from headway.errors import HeadwayError
from headway.fetch.settings import Limits, Timeouts
from headway.model.page import Page, Site
from headway.model.task import Task
from headway.parse.extract import Extractor, Rule
from headway.parse.url import page_of
from headway.policy.calendar import Calendar
from headway.policy.ordering import parse_ordering
from headway.policy.ordering.worth import Worth
from headway.policy.quota import Period, Quota
from headway.policy.scope import Scope
from headway.policy.timetable import Entry, Timetable, parse_days, parse_hours
from headway.units import (
    UNBOUNDED,
    Bytes,
    BytesPerSecond,
    Instant,
    Seconds,
)

T = TypeVar("T")
Written = TypeVar("Written", str, int, float, dict[str, float])


class SiteWish(msgspec.Struct, frozen=True):
    """A site of the job. Its deadline stays as it was written until the crawl's start is known."""

    site: Site
    seeds: tuple[Page, ...]
    deadline: str | None
    weight: float
    max_pages: int | None
    max_bytes: Bytes | None
    expected_bytes: Bytes | None
    cap_bytes_per_s: BytesPerSecond | None
    rules: tuple[Rule, ...] = ()
    """What to extract from its pages."""


class Job(msgspec.Struct, frozen=True):
    file: JobFile
    """As written, which is also how the run folder remembers it."""
    sites: tuple[SiteWish, ...]
    timetable: Timetable
    strategy: str
    interval_s: Seconds
    retry_penalty_s: Seconds
    backoff_s: Seconds
    max_backoff_s: Seconds
    max_crawl_delay_s: Seconds
    timeouts: Timeouts
    limits: Limits
    scope: Scope
    quotas: tuple[Quota, ...]
    calendar: Calendar
    zone: dt.tzinfo
    revisiting: Revisiting | None = None

    def tasks(self, started_at: Instant) -> tuple[Task, ...]:
        return tuple(
            Task(
                wish.site,
                tuple(page.url for page in wish.seeds),
                deadline_at(wish.deadline, started_at, self.zone) if wish.deadline else None,
                wish.weight,
                wish.max_pages,
                wish.max_bytes,
                wish.expected_bytes,
                wish.cap_bytes_per_s,
            )
            for wish in self.sites
        )

    def extractor(self) -> Extractor:
        return Extractor({wish.site: wish.rules for wish in self.sites})

    @property
    def is_bounded(self) -> bool:
        """Whether there is a bound at any hour."""
        rates = [entry.rate_bytes_per_s for entry in self.timetable.entries]
        return any(math.isfinite(rate) for rate in (self.timetable.usual_bytes_per_s, *rates))

    def seeds(self) -> tuple[Page, ...]:
        return tuple(page for wish in self.sites for page in wish.seeds)


def load_job(path: FilePath) -> Job:
    """Read and check a job file; JobError says what is wrong and where."""
    return build_job(*read_job_file(path))


def build_job(file: JobFile, source: Source, *, now: Instant | None = None) -> Job:
    """Check a job as written. Given `now`, deadlines are tried as well, so that a mistake shows at once."""
    return _Builder(file, source).job(now)


class _Builder:
    def __init__(self, file: JobFile, source: Source) -> None:
        self._file = file
        self._source = source

    def job(self, now: Instant | None) -> Job:
        crawl = self._file.crawl
        zone = self._zone()
        sites = tuple(self._site(number, table) for number, table in enumerate(self._file.site))
        if not sites:
            raise self._source.error((), "no site is named; add a [[site]] table with its url, or give URLs")
        self._no_twins(sites)
        self._read(checks.count, crawl.max_connections, "crawl", "max_connections")
        self._read(checks.count, crawl.pages_per_connection, "crawl", "pages_per_connection")
        self._read(checks.count, crawl.max_attempts, "crawl", "max_attempts")
        self._read(checks.count, crawl.max_links, "crawl", "max_links")
        self._read(checks.count, crawl.waiting_in_memory, "crawl", "waiting_in_memory")
        if crawl.admission_depth is not None:
            self._read(checks.count, crawl.admission_depth, "crawl", "admission_depth")
        self._read(checks.user_agent, crawl.user_agent, "crawl", "user_agent")
        self._read_if(checks.proxy, crawl.proxy, "crawl", "proxy")
        self._check_ca_file(crawl.ca_file)
        job = Job(
            self._file,
            sites,
            self._timetable(zone),
            self._strategy(sites),
            self._read(checks.pause, crawl.interval, "crawl", "interval"),
            self._read(checks.pause, crawl.retry_penalty, "crawl", "retry_penalty"),
            self._read(checks.pause, crawl.backoff, "crawl", "backoff"),
            self._read(checks.pause, crawl.max_backoff, "crawl", "max_backoff"),
            self._read(checks.pause, crawl.max_crawl_delay, "crawl", "max_crawl_delay"),
            self._timeouts(),
            self._limits(),
            self._scope(sites),
            self._quotas(zone),
            self._calendar(zone),
            zone,
            self._revisiting(),
        )
        for number, wish in enumerate(sites):
            if wish.deadline is not None and now is not None:
                self._read(
                    lambda text: deadline_at(text, now, zone), wish.deadline, "site", number, "deadline"
                )
        return job

    def _site(self, number: int, table: SiteTable) -> SiteWish:
        where: Path = ("site", number)
        crawl = self._file.crawl
        seeds = []
        for position, url in enumerate((table.url, *table.seeds)):
            page = page_of(url)
            if page is None:
                key = (*where, "seeds") if position else (*where, "url")
                raise self._source.error(
                    key, f"{url!r} is not an http or https URL such as 'https://www.example.org/'"
                )
            seeds.append(page)
        if strangers := [page.url for page in seeds if page.site != seeds[0].site]:
            raise self._source.error(
                (*where, "seeds"), f"{strangers[0]} is not on {seeds[0].site}; give it a [[site]] of its own"
            )
        max_pages = self._read_if(checks.count, table.max_pages, *where, "max_pages")
        max_bytes = self._read_if(checks.size, table.max_bytes, *where, "max_bytes")
        usual_pages = self._read_if(checks.count, crawl.max_pages, "crawl", "max_pages")
        usual_bytes = self._read_if(checks.size, crawl.max_bytes, "crawl", "max_bytes")
        return SiteWish(
            seeds[0].site,
            tuple(seeds),
            table.deadline,
            self._read(checks.weight, table.weight, *where, "weight"),
            max_pages if max_pages is not None else usual_pages,
            max_bytes if max_bytes is not None else usual_bytes,
            self._read_if(checks.size, table.data, *where, "data"),
            self._read_if(checks.rate, table.cap, *where, "cap"),
            extraction_rules(table.extract, self._source, where),
        )

    def _no_twins(self, sites: tuple[SiteWish, ...]) -> None:
        first: dict[Site, int] = {}
        for number, wish in enumerate(sites):
            if wish.site in first:
                raise self._source.error(
                    ("site", number, "url"),
                    f"{wish.site} is there already; list its further pages under 'seeds'",
                )
            first[wish.site] = number

    def _timetable(self, zone: dt.tzinfo) -> Timetable:
        crawl = self._file.crawl
        entries = []
        for number, entry in enumerate(crawl.timetable):
            where: Path = ("crawl", "timetable", number)
            rate = self._read(checks.rate, entry.bandwidth, *where, "bandwidth")
            days = self._read(parse_days, entry.days, *where, "days")
            hours = self._read(parse_hours, entry.hours, *where, "hours")
            entries.append(Entry(days, *hours, rate))
        bound = self._read_if(checks.rate, crawl.bandwidth, "crawl", "bandwidth")
        return Timetable(bound if bound is not None else UNBOUNDED, tuple(entries), zone)

    def _timeouts(self) -> Timeouts:
        table, where = self._file.crawl.timeouts, ("crawl", "timeouts")
        return Timeouts(
            connect_s=self._read(checks.timeout, table.connect, *where, "connect"),
            first_byte_s=self._read(checks.timeout, table.first_byte, *where, "first_byte"),
            idle_s=self._read(checks.timeout, table.idle, *where, "idle"),
            total_s=self._read(checks.timeout, table.total, *where, "total"),
        )

    def _limits(self) -> Limits:
        table, where = self._file.crawl.limits, ("crawl", "limits")
        return Limits(
            max_head_bytes=self._read(checks.size, table.head, *where, "head"),
            max_body_bytes=self._read(checks.size, table.body, *where, "body"),
            max_decoded_bytes=self._read(checks.size, table.decoded, *where, "decoded"),
        )

    def _scope(self, sites: tuple[SiteWish, ...]) -> Scope:
        table, where = self._file.crawl.scope, ("crawl", "scope")
        hosts = {wish.site.partition("://")[2] for wish in sites}
        return Scope(
            hosts=frozenset(hosts | {self._read(checks.host, text, *where, "hosts") for text in table.hosts}),
            suffixes=tuple(self._read(checks.suffix, text, *where, "suffixes") for text in table.suffixes),
            allow=tuple(self._read(checks.pattern, text, *where, "allow") for text in table.allow),
            deny=tuple(self._read(checks.pattern, text, *where, "deny") for text in table.deny),
            max_depth=self._read_if(checks.depth, table.max_depth, *where, "max_depth"),
            max_url_length=self._read(checks.count, table.max_url_length, *where, "max_url_length"),
            queries=table.queries,
            accept=tuple(
                self._read(checks.media_type, text, "crawl", "accept") for text in self._file.crawl.accept
            ),
        )

    def _calendar(self, zone: dt.tzinfo) -> Calendar:
        crawl = self._file.crawl
        days: set[dt.date] = set()
        for text in crawl.holidays:
            try:
                days.add(dt.date.fromisoformat(text))
            except ValueError:
                message = f"{text!r} is not a date such as '2030-12-25'"
                raise self._source.error(("crawl", "holidays"), message) from None
        if crawl.country is None:
            return Calendar(zone, frozenset(days))
        try:
            return Calendar(zone, national_holidays(crawl.country, days))
        except HeadwayError as problem:
            raise self._source.error(("crawl", "country"), str(problem)) from None

    def _quotas(self, zone: dt.tzinfo) -> tuple[Quota, ...]:
        table, where = self._file.crawl.quota, ("crawl", "quota")
        day = self._read_if(checks.size, table.day, *where, "day")
        month = self._read_if(checks.size, table.month, *where, "month")
        limits = ((day, Period.DAY), (month, Period.MONTH))
        return tuple(Quota(limit, period, zone) for limit, period in limits if limit is not None)

    def _revisiting(self) -> Revisiting | None:
        read = read_revisiting(self._file.crawl)
        if isinstance(read, Mistake):
            raise self._source.error(("crawl", *read.key), read.message)
        return read

    def _strategy(self, sites: tuple[SiteWish, ...]) -> str:
        has_deadlines = any(wish.deadline is not None for wish in sites)
        name = self._file.crawl.strategy or ("deadline" if has_deadlines else "length")
        word, _ = self._read(parse_ordering, name, "crawl", "strategy")
        self._read(Worth, self._file.crawl.scores, "crawl", "scores")
        if word == "optimal" and self._file.crawl.ranks_from is None:
            raise self._source.error(
                ("crawl", "strategy"),
                "'optimal' goes by the ranks of an earlier crawl: name its folder (ranks_from, --ranks-from)",
            )
        return name

    def _zone(self) -> dt.tzinfo:
        name = self._file.crawl.timezone
        if name is None:
            return machine_zone()
        try:
            return zoneinfo.ZoneInfo(name)
        except (zoneinfo.ZoneInfoNotFoundError, ValueError):
            raise self._source.error(
                ("crawl", "timezone"), f"{name!r} is not a time zone such as 'Europe/Berlin'"
            ) from None

    # -- reading one value ------------------------------------------------------------------------------

    def _read(self, parse: Callable[[Written], T], value: Written, *path: str | int) -> T:
        try:
            return parse(value)
        except HeadwayError as problem:
            raise self._source.error(path, str(problem)) from None

    def _read_if(self, parse: Callable[[Written], T], value: Written | None, *path: str | int) -> T | None:
        return None if value is None else self._read(parse, value, *path)

    def _check_ca_file(self, name: str | None) -> None:
        if name is None:
            return
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cafile=name)
        except OSError as problem:
            why = "it holds none" if isinstance(problem, ssl.SSLError) else problem.strerror
            raise self._source.error(
                ("crawl", "ca_file"), f"{name!r} cannot be read as a file of PEM certificates: {why}"
            ) from None


def machine_zone() -> dt.tzinfo:
    """The machine's own time zone, with its summer time, which a fixed offset would forget."""
    try:
        with FilePath("/etc/localtime").open("rb") as file:
            return zoneinfo.ZoneInfo.from_file(file)
    except (OSError, ValueError):
        return dt.datetime.now().astimezone().tzinfo or dt.UTC
