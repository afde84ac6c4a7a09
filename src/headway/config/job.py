"""A job as values: quantities read, URLs in canonical form, policies' parameters ready to build with."""

from __future__ import annotations

import datetime as dt
import difflib
import math
import re
import ssl
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from pathlib import Path as FilePath
from types import MappingProxyType
from typing import Any, TypeVar

import msgspec

from headway.config.keys import root_of
from headway.config.reading import (
    Path,
    Source,
    as_run,
    convert,
    groups_of,
    know_public_suffixes,
    link_part_of,
    read_job_file,
    read_table,
    read_values,
    setting_suggestion,
    signer_of,
    timetable_of,
)
from headway.config.schema import ExtractField, ExtractTable, JobFile, SiteTable
from headway.config.site_list import SiteList
from headway.config.site_settings import OwnSettings, windows_of, with_absolute_places
from headway.config.tables import SharedTable, limits_of, timeouts_of
from headway.config.values import Rounds, deadline_at, machine_zone, toml, without_login
from headway.errors import HeadwayError, JobError, install_command
from headway.http.identity import Identity, Signer
from headway.http.models import ClientOptions, Limits, Timeouts, parse_proxy
from headway.model.page import Page, Site, Task
from headway.pages.extract import RESERVED, Extractor, Field, Rule
from headway.pages.url import keyed, page_of
from headway.plugins import is_reference, search_in
from headway.policy.ordering.base import PathScores
from headway.policy.scope import Exclusion, Scope, host_of
from headway.policy.server_groups import GroupRules
from headway.policy.site_rules import BySite, SiteRules
from headway.policy.timetable import Calendar, Period, Quota, Timetable
from headway.units import UNBOUNDED, Bytes, BytesPerSecond, Instant, Seconds

T = TypeVar("T")
Written = TypeVar("Written")


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
    own: SiteRules | None = None
    """What it has of its own, or by its group."""
    identity: Identity | None = None
    """Who the crawl is to it."""
    ports: tuple[int, ...] = ()


class Revisiting(msgspec.Struct, frozen=True):
    """Whether pages are visited again during the crawl, and when."""

    every_s: Seconds
    """Between visits, or until the second one where the interval adapts to the page."""
    adapts: bool
    shortest_s: Seconds
    longest_s: Seconds
    bytes_per_s: BytesPerSecond


class ListedSites:
    """The sites of a long list, built one by one."""

    def __init__(self, sites: SiteList, build: Callable[[dict[str, Any]], SiteWish]) -> None:
        self.sites = sites
        self._build = build

    def wishes(self) -> Iterator[SiteWish]:
        """Each with its pages. In a list of URLs, the further URLs of a site come by themselves."""
        for row in self.sites.rows():
            yield self._build(row.fields)


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
    groups: GroupRules
    """What holds for servers and domains."""
    signer: Signer | None
    """Signs requests."""
    timeouts: Timeouts
    limits: Limits
    extraction_s: float
    scope: Scope
    quotas: tuple[Quota, ...]
    calendar: Calendar
    zone: dt.tzinfo
    revisiting: Revisiting | None = None
    link_part: float | None = None
    """The bound as a part of what the link carries."""
    kept: Rounds | Bytes | None = None
    """How many rounds are kept, or how many bytes of the archive; None: all."""
    hook_timeout_s: Seconds = Seconds(60.0)
    own: BySite[SiteRules] = BySite()
    """What sites have of their own."""
    identities: Mapping[Site, Identity] = MappingProxyType({})
    """Who the crawl is to a site."""
    listed: ListedSites | None = None
    """Further sites, which are read from their list when they are needed; None: `sites` are all."""
    secret: bytes = b""
    """Of the crawl that the job is run as, for the keys of its pages; empty before there is one."""

    @property
    def site_count(self) -> int:
        return len(self.sites) + (self.listed.sites.sites if self.listed is not None else 0)

    def wishes(self) -> Iterator[SiteWish]:
        """The sites of the job, then those of its list."""
        yield from self.sites
        if self.listed is not None:
            yield from self.listed.wishes()

    @property
    def has_deadlines(self) -> bool:
        is_listed = self.listed is not None and self.listed.sites.has_deadlines
        return is_listed or any(wish.deadline is not None for wish in self.sites)

    def tasks(self, started_at: Instant) -> tuple[Task, ...]:
        return tuple(self.task_of(wish, started_at) for wish in self.sites)

    def task_of(self, wish: SiteWish, started_at: Instant) -> Task:
        return Task(
            wish.site,
            tuple(page.url for page in wish.seeds),
            deadline_at(wish.deadline, started_at, self.zone) if wish.deadline else None,
            wish.weight,
            wish.max_pages,
            wish.max_bytes,
            wish.expected_bytes,
            wish.cap_bytes_per_s,
        )

    def limits_of(self, sites: Collection[Site]) -> dict[Site, tuple[int | None, int | None]]:
        """`max_pages` and `max_bytes` of those of these sites that are sites of the job."""
        wishes = (wish for wish in self.wishes() if wish.site in sites)
        return {wish.site: (wish.max_pages, wish.max_bytes) for wish in wishes}

    def with_crawl(self, **keys: Any) -> Job:
        """The job with other values of these keys of `[crawl]`, which need no reading."""
        file = msgspec.structs.replace(self.file, crawl=msgspec.structs.replace(self.file.crawl, **keys))
        return msgspec.structs.replace(self, file=file)

    def client_options(self) -> ClientOptions:
        crawl = self.file.crawl
        return ClientOptions(
            user_agent=crawl.user_agent,
            sender=crawl.contact if crawl.contact is not None and "@" in crawl.contact else "",
            signer=self.signer,
            signs_first=crawl.identity.sign == "always",
            timeouts=self.timeouts,
            limits=self.limits,
            allow_private=crawl.allow_private,
            verify_tls=crawl.verify_tls,
            ca_file=crawl.ca_file,
            proxy=None if crawl.proxy is None else parse_proxy(crawl.proxy),
            no_proxy=crawl.no_proxy,
        )

    def extractor(self) -> Extractor:
        return Extractor({wish.site: wish.rules for wish in self.sites})

    @property
    def is_bounded(self) -> bool:
        """Whether there is a bound at any hour."""
        rates = [entry.rate_bytes_per_s for entry in self.timetable.entries + self.timetable.windows]
        is_timed = any(math.isfinite(rate) for rate in (self.timetable.usual_bytes_per_s, *rates))
        return is_timed or self.link_part is not None

    def with_secret(self, secret: bytes) -> Job:
        """The job as the crawl with this secret."""
        return msgspec.structs.replace(self, secret=secret)

    def seeds(self) -> tuple[Page, ...]:
        return keyed([page for wish in self.sites for page in wish.seeds], self.secret)

    def first_pages(self) -> tuple[Page, ...]:
        """The seeds, and the sitemaps that the job names."""
        own = (wish.own for wish in self.sites if wish.own is not None)
        return (*self.seeds(), *keyed([page for rules in own for page in rules.sitemaps], self.secret))

    def judge(self, page: Page) -> Exclusion | None:
        """Why a page is out of scope; None if it is in scope."""
        own = self.own.of(page.site)
        return self.scope.judge(page, None if own is None else own.scope)

    def user_agent_for(self, site: Site) -> str:
        """As it is sent to a site, and matched with its robots.txt."""
        identity = BySite(self.identities).of(site) if self.identities else None
        given = None if identity is None else identity.user_agent
        return self.file.crawl.user_agent if given is None else given

    @property
    def robots_exceptions(self) -> dict[Site, str]:
        """The sites whose robots.txt is not obeyed, and why."""
        tables = {group.name: group for group in self.file.group}
        found = {}
        for wish, table in zip(self.sites, self.file.site, strict=False):
            if wish.own is not None and wish.own.ignores_robots:
                group = tables.get(table.group or "")
                found[wish.site] = table.robots_reason or (group.robots_reason if group else None) or ""
        return found


def load_job(path: FilePath, now: Instant | None = None) -> Job:
    """Read and check a job file; JobError says what is wrong and where. Given `now`, deadlines are read as
    well."""
    return build_job(*read_job_file(path), now=now)


_DEADLINES_REMEMBERED = _ROWS_REMEMBERED = 10_000
_URLS_OF_ROW = frozenset({"url", "seeds"})
_LONG_LIST = 5000
"""A shorter list is read as if its sites stood in the job file."""


def build_job(file: JobFile, source: Source, *, now: Instant | None = None, streams: bool = False) -> Job:
    """Check a job as written. Given `now`, deadlines are read as well, so that a mistake shows at once.
    `streams`: the sites of a long list are left in their file; otherwise all are in the job."""
    file = with_absolute_places(file, source.folder)
    if file.crawl.sites_from is None:
        return _Builder(file, source).job(now)
    listed = SiteList(
        file.crawl.sites_from, None if source.is_overruled("crawl.sites_from") else source.folder
    )
    # Without the list: the job itself has to be right before a list is checked against it.
    rest = msgspec.structs.replace(file, crawl=msgspec.structs.replace(file.crawl, sites_from=None))
    builder = _Builder(rest, source, listed)
    taken = [page.site for table in file.site if (page := page_of(table.url)) is not None]
    read_at = now if now is not None else Instant(dt.datetime.now(dt.UTC).timestamp())
    listed.check(lambda fields: builder.check_row(fields, read_at), taken)
    if streams and listed.sites > _LONG_LIST:
        return builder.job(now)
    tables = listed.tables()
    sites = convert({"site": tables}, Source(listed.name)).site
    whole = msgspec.structs.replace(rest, site=(*file.site, *sites))
    return _Builder(whole, source, listed_from=len(file.site)).job(now)


def without_password(job: Job) -> dict[str, Any]:
    """The tables of the job as a run stores them. Others can read these, so the proxy's login is left out."""
    tables: dict[str, Any] = msgspec.to_builtins(job.file)
    proxy = job.file.crawl.proxy
    if proxy is not None:
        tables["crawl"]["proxy"] = without_login(proxy)
    return tables


class _Builder:
    """Every value comes from `read_values`, which checks it by its declaration. Here are the checks that
    concern more than one key."""

    def __init__(
        self, file: JobFile, source: Source, listed: SiteList | None = None, *, listed_from: int | None = None
    ) -> None:
        """`listed`: further sites, which stay in their list. `listed_from`: the number of the first site that
        comes from a list."""
        know_public_suffixes()
        self._file = file
        self._listed_from = len(file.site) if listed_from is None else listed_from
        self._source = source
        self._listed = listed
        self._rows: dict[tuple[object, ...], tuple[SiteTable, dict[str, Any]]] = {}
        """What was read of a list's row, by all of its fields but the URLs."""
        self._read_deadlines: set[str] = set()
        names: tuple[str | None, ...]
        names = (file.crawl.strategy, file.crawl.scorer, file.crawl.policy, file.scrapy.policy)
        names += tuple(rule.function for site in file.site for rule in site.extract)
        if source.folder is not None and any(name is not None and is_reference(name) for name in names):
            search_in(source.folder)
        self._groups = {group.name: number for number, group in enumerate(file.group)}
        self._reads_secrets = False
        self._named: set[str] = set()
        """The groups to which a site belongs."""
        self._listed_own: dict[Site, tuple[SiteRules | None, Identity | None]] = {}
        self._values = read_values(file, root_of(type(file)), source)
        self._crawl: dict[str, Any] = self._values["crawl"]

    def job(self, now: Instant | None) -> Job:
        crawl = self._crawl
        # Plans, and jobs of earlier runs that are only read, need no secrets.
        self._reads_secrets = now is not None
        zone = crawl["timezone"] or machine_zone()
        self._check_groups()
        sites = tuple(
            self._site(number, table, values, is_listed=number >= self._listed_from)
            for number, (table, values) in enumerate(zip(self._file.site, self._values["site"], strict=True))
        )
        if not sites and self._listed is None:
            raise self._source.error((), "no site is named; add a [[site]] table with its url, or give URLs")
        self._no_twins(sites)
        self._check_all_groups_are_named()
        self._check_ca_file(crawl["ca_file"])
        self._check_scrapy_settings()
        if now is not None:
            self._check_deadlines(sites, now, zone)
        own, identities = self._own_of(sites)
        timetable = self._timetable(zone)
        self._check_hours(sites, timetable)
        limits = crawl["limits"]
        file, listed = as_run(self._file, self._source), None
        if self._listed is not None:
            crawl_table = msgspec.structs.replace(file.crawl, sites_from=str(self._listed.path))
            file = msgspec.structs.replace(file, crawl=crawl_table)
            listed = ListedSites(self._listed, self._wish_of_row)
        return Job(
            file=file,
            listed=listed,
            sites=sites,
            timetable=timetable,
            own=BySite(own),
            identities=identities,
            strategy=self._strategy(sites),
            interval_s=crawl["interval"],
            retry_penalty_s=crawl["retry_penalty"],
            backoff_s=crawl["backoff"],
            max_backoff_s=crawl["max_backoff"],
            max_crawl_delay_s=crawl["max_crawl_delay"],
            signer=signer_of(file.crawl.identity, now),
            groups=groups_of(crawl, self._values["server"], self._source),
            timeouts=timeouts_of(crawl["timeouts"]),
            limits=msgspec.structs.replace(
                limits_of(limits, crawl["memory"]), max_idle_connections=max(1024, crawl["max_connections"])
            ),
            extraction_s=limits["extraction"],
            scope=self._scope(sites),
            quotas=self._quotas(zone),
            calendar=self._calendar(zone),
            zone=zone,
            revisiting=self._revisiting(),
            kept=self._kept(crawl),
            hook_timeout_s=self._values["on_end"]["timeout"],
            link_part=link_part_of(crawl, self._values["window"], self._source),
        )

    def _kept(self, crawl: dict[str, Any]) -> Rounds | Bytes | None:
        kept: Rounds | Bytes | None = crawl["keep"]
        if crawl["keep_old_in"] is not None and kept is None:
            raise self._source.error(
                ("crawl", "keep_old_in"),
                "without 'keep' nothing is moved; write keep = \"30 rounds\" as well",
            )
        if kept is not None and crawl["every"] is not None:
            raise self._source.error(
                ("crawl", "keep"), "a crawl with 'every' has no rounds; remove 'keep' or 'every'"
            )
        return kept

    def _site(
        self, number: int, table: SiteTable, values: dict[str, Any], *, is_listed: bool = False
    ) -> SiteWish:
        where: Path = ("site", number)
        table, values, at = self._with_group(table, values, where)
        seeds = []
        for position, url in enumerate((table.url, *table.seeds)):
            page = page_of(url)
            key = (*where, "seeds") if position else (*where, "url")
            if page is not None and re.match(r"[^/?#]*//[^/?#]*@", url):
                raise self._source.error(
                    key, 'a login in a URL is not sent; write basic_auth = "env:NAME" beside the URL'
                )
            if page is None:
                raise self._source.error(
                    key, f"{url!r} is not an http or https URL such as 'https://www.example.org/'"
                )
            seeds.append(page)
        site = seeds[0].site
        if stranger := next((page.url for page in seeds if page.site != site), None):
            raise self._source.error(
                (*where, "seeds"), f"{stranger} is not on {site}; give it a [[site]] of its own"
            )
        max_pages, max_bytes = values["max_pages"], values["max_bytes"]
        own = OwnSettings(self._crawl, self._source, self._file.crawl, at, reads_secrets=self._reads_secrets)
        return SiteWish(
            site=site,
            seeds=tuple(seeds),
            deadline=table.deadline,
            weight=1.0 if values["weight"] is None else values["weight"],
            max_pages=self._crawl["max_pages"] if max_pages is None else max_pages,
            max_bytes=self._crawl["max_bytes"] if max_bytes is None else max_bytes,
            expected_bytes=values["data"],
            cap_bytes_per_s=values["cap"],
            rules=self._rules(table.extract, values["extract"], where),
            own=own.rules(seeds, table, values, has_default_prefix=not is_listed),
            identity=own.identity(site, table, values),
            ports=values["ports"],
        )

    def _with_group(
        self, table: SiteTable, values: dict[str, Any], where: Path
    ) -> tuple[SiteTable, dict[str, Any], Callable[[str], Path]]:
        """A site with what it has by its group, and where each key stands."""
        if table.group is None:
            return table, values, lambda key: (*where, key)
        number = self._groups.get(table.group)
        if number is None:
            near = difflib.get_close_matches(table.group, self._groups, n=1)
            known = ", ".join(map(repr, self._groups)) or "none"
            advice = f"did you mean {near[0]!r}?" if near else f"the groups of the job are: {known}"
            raise self._source.error((*where, "group"), f"there is no group {table.group!r}; {advice}")
        self._named.add(table.group)
        group, read = self._file.group[number], self._values["group"][number]
        taken = {
            name
            for name in SharedTable.__struct_fields__
            if getattr(table, name) in (None, (), {}) and getattr(group, name) not in (None, (), {})
        }
        table = msgspec.structs.replace(table, **{name: getattr(group, name) for name in taken})
        values = {**values, **{name: read[name] for name in taken}}
        return table, values, lambda key: ("group", number, key) if key in taken else (*where, key)

    def _check_groups(self) -> None:
        seen: set[str] = set()
        for number, group in enumerate(self._file.group):
            if group.name in seen:
                raise self._source.error(
                    ("group", number, "name"), f"the group {group.name!r} is there already"
                )
            seen.add(group.name)

    def _check_all_groups_are_named(self) -> None:
        for number, group in enumerate(self._file.group):
            if group.name not in self._named:
                raise self._source.error(
                    ("group", number, "name"),
                    f"no site belongs to it; write group = {toml(group.name)} in its [[site]] tables, or in"
                    " the column 'group' of the list",
                )

    def _own_of(self, sites: tuple[SiteWish, ...]) -> tuple[dict[Site, SiteRules], dict[Site, Identity]]:
        """What sites have of their own, and their other ports."""
        own = {site: rules for site, (rules, _) in self._listed_own.items() if rules is not None}
        identities = {site: each for site, (_, each) in self._listed_own.items() if each is not None}
        for wish in sites:
            for site in (wish.site, *_at_ports(wish.site, wish.ports)):
                if wish.own is not None:
                    own[site] = wish.own
                if wish.identity is not None:
                    identities[site] = wish.identity
        return own, identities

    def _timetable(self, zone: dt.tzinfo) -> Timetable:
        return timetable_of(self._crawl, zone, windows_of(self._values["window"], self._source, ("window",)))

    def _check_hours(self, sites: tuple[SiteWish, ...], timetable: Timetable) -> None:
        """The windows of a site have to be open at some time when those of the crawl are."""
        if not timetable.windows:
            return
        checked: set[Timetable] = set()
        for number, wish in enumerate(sites):
            windows = None if wish.own is None else wish.own.hours.windows
            if windows is None or windows in checked:
                continue
            checked.add(windows)
            if not _ever_open_together(timetable, windows):
                place = self._with_group(self._file.site[number], {}, ("site", number))[2]
                raise self._source.error(
                    place("window"), "it is never open while a [[window]] of the crawl is open"
                )

    def check_row(self, fields: dict[str, Any], now: Instant) -> None:
        """JobError if the fields of a list's row are no site."""
        table, values = self._row(fields)
        deadline = table.deadline
        if table.group is not None:
            wish = self._site(0, table, values, is_listed=True)
            deadline = deadline or wish.deadline
            self._listed_own[wish.site] = (wish.own, wish.identity)
        if deadline is not None and deadline not in self._read_deadlines:
            deadline_at(deadline, now, self._crawl["timezone"] or machine_zone())
            if len(self._read_deadlines) < _DEADLINES_REMEMBERED:
                self._read_deadlines.add(deadline)

    def _row(self, fields: dict[str, Any]) -> tuple[SiteTable, dict[str, Any]]:
        """The table of a row and its values. Many rows differ only in their URLs."""
        others = tuple(
            (name, type(value), value) for name, value in fields.items() if name not in _URLS_OF_ROW
        )
        url, seeds = fields.get("url"), fields.get("seeds", ())
        are_urls = isinstance(seeds, list | tuple) and all(isinstance(each, str) for each in (url, *seeds))
        if not are_urls or not all(isinstance(value, str | int | float) for _, _, value in others):
            return self._read_row(fields)
        read = self._rows.get(others)
        if read is None:
            read = self._read_row(fields)
            if len(self._rows) < _ROWS_REMEMBERED:
                self._rows[others] = read
        table, values = read
        return msgspec.structs.replace(table, url=url, seeds=tuple(seeds)), values

    def _read_row(self, fields: dict[str, Any]) -> tuple[SiteTable, dict[str, Any]]:
        source = Source("")
        table = read_table(SiteTable, fields, source)
        return table, read_values(table, root_of(SiteTable), source)

    def _wish_of_row(self, fields: dict[str, Any]) -> SiteWish:
        return self._site(0, *self._row(fields), is_listed=True)

    def _no_twins(self, sites: tuple[SiteWish, ...]) -> None:
        seen: set[Site] = set()
        for number, wish in enumerate(sites):
            if wish.site in seen:
                raise self._source.error(
                    ("site", number, "url"),
                    f"{wish.site} is there already; list its other URLs under 'seeds'",
                )
            seen.add(wish.site)

    def _check_deadlines(self, sites: tuple[SiteWish, ...], now: Instant, zone: dt.tzinfo) -> None:
        for number, wish in enumerate(sites):
            if wish.deadline is not None:
                self._read(
                    lambda text: deadline_at(text, now, zone), wish.deadline, "site", number, "deadline"
                )

    def _scope(self, sites: tuple[SiteWish, ...]) -> Scope:
        scope = self._crawl["scope"]
        return Scope(
            hosts=frozenset(
                (
                    *scope["hosts"],
                    *(wish.site.partition("://")[2] for wish in sites),
                    *(
                        each.partition("://")[2]
                        for wish in sites
                        for each in _at_ports(wish.site, wish.ports)
                    ),
                    *(self._listed.hosts if self._listed is not None else ()),
                )
            ),
            exact=frozenset(host_of(wish.site) for wish in sites if wish.ports) - frozenset(scope["hosts"]),
            suffixes=scope["suffixes"],
            allow=scope["allow"],
            deny=scope["deny"],
            max_depth=scope["max_depth"],
            max_url_length=scope["max_url_length"],
            queries=scope["queries"],
            max_sites=scope["max_sites"],
            max_sites_per_domain=scope["max_sites_per_domain"],
            max_sites_per_page=scope["max_sites_per_page"],
            max_pages_per_domain=scope["max_pages_per_domain"],
            max_bytes_per_domain=scope["max_bytes_per_domain"],
            accept=self._crawl["accept"],
        )

    def _calendar(self, zone: dt.tzinfo) -> Calendar:
        country, days = self._crawl["country"], self._crawl["holidays"]
        if country is None:
            return Calendar(zone, frozenset(days))
        return Calendar(
            zone, self._read(lambda name: national_holidays(name, days), country, "crawl", "country")
        )

    def _quotas(self, zone: dt.tzinfo) -> tuple[Quota, ...]:
        quota = self._crawl["quota"]
        limits = ((quota["day"], Period.DAY), (quota["month"], Period.MONTH))
        return tuple(Quota(limit, period, zone) for limit, period in limits if limit is not None)

    def _revisiting(self) -> Revisiting | None:
        """None: every page is fetched once."""
        every_s, revisit, written = self._crawl["every"], self._crawl["revisit"], self._file.crawl.revisit
        if revisit["shortest"] > revisit["longest"]:
            raise self._source.error(
                ("crawl", "revisit", "shortest"),
                f"{written.shortest!r} is longer than the longest, {written.longest!r}",
            )
        if every_s is None:
            if revisit["adapt"]:
                raise self._source.error(
                    ("crawl", "revisit", "adapt"), 'say with every = "24 h" when the second visit is due'
                )
            return None
        rate = revisit["bandwidth"]
        return Revisiting(
            every_s=every_s,
            adapts=revisit["adapt"],
            shortest_s=revisit["shortest"],
            longest_s=revisit["longest"],
            bytes_per_s=UNBOUNDED if rate is None else rate,
        )

    def _strategy(self, sites: tuple[SiteWish, ...]) -> str:
        has_deadlines = any(wish.deadline is not None for wish in sites)
        if self._listed is not None:
            has_deadlines = has_deadlines or self._listed.has_deadlines
        name = self._file.crawl.strategy or ("deadline" if has_deadlines else "length")
        self._read(PathScores, self._file.crawl.scores, "crawl", "scores")
        if self._file.crawl.scorer is not None and self._file.crawl.scores:
            raise self._source.error(("crawl", "scorer"), "give either 'scorer' or 'scores'")
        if self._crawl["strategy"] == ("optimal", None) and self._file.crawl.ranks_from is None:
            raise self._source.error(
                ("crawl", "strategy"),
                "'optimal' needs the ranks of an earlier crawl: name its folder (ranks_from, --ranks-from)",
            )
        return name

    def _rules(
        self, tables: tuple[ExtractTable, ...], values: tuple[dict[str, Any], ...], where: Path
    ) -> tuple[Rule, ...]:
        return tuple(
            self._rule(table, read, (*where, "extract", number))
            for number, (table, read) in enumerate(zip(tables, values, strict=True))
        )

    def _rule(self, table: ExtractTable, values: dict[str, Any], where: Path) -> Rule:
        if table.function is not None:
            if table.fields or table.each is not None:
                raise self._source.error(
                    (*where, "function"), "give either 'function', or 'fields' and 'each'"
                )
            return Rule((), table.item, values["pages"], function=table.function)
        if not table.fields:
            raise self._source.error(where, "a rule needs 'fields', such as fields = { title = \"h1\" }")
        fields = tuple(
            self._field(name, written, values["fields"][name], (*where, "fields", name))
            for name, written in table.fields.items()
        )
        return Rule(fields, table.item, values["pages"], values["each"])

    def _field(self, name: str, written: str | ExtractField, value: Any, where: Path) -> Field:
        if name in RESERVED:
            raise self._source.error(where, f"{name!r} is in every item already; choose another name")
        if isinstance(written, str):
            return Field(name, value)
        if (written.css is None) == (written.xpath is None):
            raise self._source.error(where, "give either 'css' or 'xpath'")
        if written.every and written.join is not None:
            raise self._source.error(where, "'all' gives a list and 'join' one text; give one of them")
        query = value["css"] or value["xpath"]
        return Field(name, query, written.type, written.every, written.join, written.regex, written.required)

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

    def _check_scrapy_settings(self) -> None:
        """A misspelt setting of Scrapy itself cannot be distinguished from a setting of the project."""
        for name in self._file.scrapy.settings:
            if advice := setting_suggestion(name):
                raise self._source.error(("scrapy", "settings", name), advice)

    def _read(self, parse: Callable[[Written], T], value: Written, *path: str | int) -> T:
        try:
            return parse(value)
        except HeadwayError as problem:
            raise self._source.error(path, str(problem)) from None


def _at_ports(site: Site, ports: Iterable[int]) -> Iterator[Site]:
    """The same host at other ports. Which scheme is spoken there is known by the links."""
    for port in ports:
        for scheme in ("http", "https"):
            page = page_of(f"{scheme}://{host_of(site)}:{port}/")
            if page is not None and page.site != site:
                yield page.site


_WEEKS_S = Seconds(14 * 86400.0)


def _ever_open_together(one: Timetable, other: Timetable) -> bool:
    """Windows repeat each week; two weeks have a change of the clock only now and then, either way."""
    now = Instant(dt.datetime.now(dt.UTC).timestamp())
    for begin_s, end_s, rate in other.segments(now, _WEEKS_S):
        for from_s, to_s, bound in one.segments(Instant(now + begin_s), Seconds(end_s - begin_s)):
            if rate and bound and to_s > from_s:
                return True
    return False


def national_holidays(country: str, more: Iterable[dt.date] = ()) -> Container[dt.date]:
    """A country's holidays, from the `holidays` library, which computes a year when it is asked for."""
    try:
        import holidays
    except ImportError:
        command = install_command("holidays")
        raise JobError(f"the holidays of a country need the package holidays: {command}") from None
    try:
        calendar = holidays.country_holidays(country)
    except NotImplementedError:
        raise JobError(f"{country!r} is not a country whose holidays are known, such as 'DE'") from None
    for day in more:
        calendar[day] = "of the job"
    return calendar
