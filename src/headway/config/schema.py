"""The job file as it is written: TOML tables and keys, quantities still as text.

Every key has its default here and nowhere else. Command-line options fill the same tables, so a job file
and a command line mean the same thing.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from headway.policy.scope import DEFAULT_TYPES
from headway.version import __version__

DEFAULT_USER_AGENT = f"headway/{__version__} (+https://headway.example/bot)"

Objective = Literal["max-completion", "sum-completion", "tardiness", "late-sites"]


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A table of the job file: unknown keys are errors."""


class TimetableEntry(Table, frozen=True):
    """The bound on certain days and hours; where entries overlap the later one holds."""

    bandwidth: str
    days: str = "mon-sun"
    hours: str = "00:00-24:00"


class TimeoutsTable(Table, frozen=True):
    connect: str = "10 s"
    first_byte: str = "30 s"
    idle: str = "30 s"
    total: str = "10 min"


class LimitsTable(Table, frozen=True):
    head: str = "64 KiB"
    body: str = "50 MB"
    decoded: str = "200 MB"


class QuotaTable(Table, frozen=True):
    """How much may be fetched in a day or a month, in bytes on the wire; nothing more until it is renewed."""

    day: str | None = None
    month: str | None = None


class RevisitTable(Table, frozen=True):
    """With `every`, when pages are visited again."""

    adapt: bool = False
    """Learn how often each page changes, and come when it pays most."""
    shortest: str = "1 h"
    longest: str = "30 d"
    bandwidth: str | None = None
    """The most that such visits may take of what the deadlines leave; None: all of that."""


class ScopeTable(Table, frozen=True):
    """Which pages belong to the crawl. Without hosts and suffixes: the hosts of the sites, no others."""

    hosts: tuple[str, ...] = ()
    suffixes: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    max_depth: int | None = 30
    max_url_length: int = 2000
    queries: bool = True


class CrawlTable(Table, frozen=True):
    bandwidth: str | None = None
    objective: Objective = "max-completion"
    user_agent: str = DEFAULT_USER_AGENT
    strategy: str | None = None
    scores: dict[str, float] = {}
    """By path pattern, what pages are worth: for the strategies score and deadline."""
    ranks_from: str | None = None
    """The run folder of an earlier crawl, whose ranks the strategy optimal goes by."""
    interval: str = "5 s"
    pages_per_connection: int = 1
    max_connections: int = 256
    max_attempts: int = 3
    retry_penalty: str = "60 s"
    """How long a page that failed waits before it is tried again; longer each time."""
    backoff: str = "30 s"
    """How long a site in trouble is left alone; twice as long each time."""
    max_backoff: str = "30 min"
    max_crawl_delay: str = "1 d"
    """A longer Crawl-delay counts as this much: one line must not hold up a crawl for ever."""
    accept: tuple[str, ...] = DEFAULT_TYPES
    sitemaps: bool = True
    """Read the sitemaps that robots.txt names."""
    feeds: bool = True
    """Read the feeds that a site's first page names."""
    every: str | None = None
    """Come back to each page after so long, and do not end; None: each page once."""
    max_pages: int | None = None
    """For each site that says nothing itself."""
    max_bytes: str | None = None
    respect_robots: bool = True
    respect_rel_nofollow: bool = False
    max_links: int = 10_000
    """Of one page, the first so many count."""
    traps: bool = True
    """Leave out what goes on for ever: calendars, paths that repeat themselves, session ids, ..."""
    near_duplicates: bool = True
    """Tell pages apart by their words, too; without it traps are known by their addresses alone."""
    mirrors: Literal["report", "skip", "ignore"] = "report"
    """What to do with a site that turns out to be a copy of another."""
    allow_private: bool = False
    verify_tls: bool = True
    ca_file: str | None = None
    proxy: str | None = None
    no_proxy: tuple[str, ...] = ()
    timezone: str | None = None
    """Of deadlines such as "07:30" and of the timetable; the machine's own when not given."""
    background: bool = False
    """Give way to the other users of the link: slow down when round trips grow longer."""
    waiting_in_memory: int = 200_000
    """Pages that wait beyond so many stay in the store until their turn comes near."""
    admission_depth: int | None = None
    """diligenti2004's maxd; None asks every site that is free, and leaves the bound to the pacer alone."""
    country: str | None = None
    """Whose holidays count as such when rates are predicted: "DE", "BR", ..."""
    holidays: tuple[str, ...] = ()
    """More holidays, as dates."""
    timetable: tuple[TimetableEntry, ...] = ()
    timeouts: TimeoutsTable = TimeoutsTable()
    limits: LimitsTable = LimitsTable()
    scope: ScopeTable = ScopeTable()
    quota: QuotaTable = QuotaTable()
    revisit: RevisitTable = RevisitTable()


class ExtractField(Table, frozen=True):
    """A field of an item: what CSS or XPath finds, the first or all of it."""

    css: str | None = None
    xpath: str | None = None
    type: Literal["text", "number", "url", "html"] = "text"
    every: bool = msgspec.field(default=False, name="all")
    """All that is found, as a list."""
    join: str | None = None
    """All that is found, as one text with this in between."""
    regex: str | None = None
    required: bool = False
    """Without it there is no item."""


class ExtractTable(Table, frozen=True):
    """What makes an item of a page, or of each of some elements on it."""

    fields: dict[str, str | ExtractField]
    item: str | None = None
    pages: tuple[str, ...] = ()
    each: str | None = None


class SiteTable(Table, frozen=True):
    url: str
    seeds: tuple[str, ...] = ()
    """More pages to begin with, beside `url`."""
    deadline: str | None = None
    """ "2 h" from the start, "07:30" the next time the clock shows it, or a date and time."""
    weight: float = 1.0
    max_pages: int | None = None
    max_bytes: str | None = None
    data: str | None = None
    """How much the site is expected to hold."""
    cap: str | None = None
    """The most that it may be asked for."""
    extract: tuple[ExtractTable, ...] = ()
    spider: str | None = None
    """The class of its Scrapy spider, for `headway run-scrapy`: "shop.spiders.Books"."""
    arguments: dict[str, str] = {}
    """What the spider is given, as by `scrapy crawl -a`."""


class ScrapyTable(Table, frozen=True):
    """For `headway run-scrapy` alone."""

    policy: str = "headway"
    """How the link is shared out: any policy of `headway plan`."""
    crawlers: int | None = None
    """How many sites at once; None: all."""
    settings: dict[str, Any] = {}
    """Scrapy's own, for every spider: FEEDS, ITEM_PIPELINES, DOWNLOAD_DELAY, ..."""


class JobFile(Table, frozen=True):
    crawl: CrawlTable = CrawlTable()
    site: tuple[SiteTable, ...] = ()
    scrapy: ScrapyTable = ScrapyTable()
