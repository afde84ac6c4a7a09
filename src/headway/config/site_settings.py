"""What a site or its group has of its own: rules for the engine, and who the crawl is to the site."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path as FilePath
from typing import Any, TypeVar

import msgspec

from headway.config.reading import Path, Source
from headway.config.schema import CrawlTable, JobFile, SiteTable
from headway.config.tables import LoginTable, SharedTable
from headway.config.values import machine_zone
from headway.errors import HeadwayError, JobError
from headway.http.identity import Identity, Login, is_secret
from headway.model.page import Page, Site
from headway.pages.url import page_of
from headway.policy.ordering import parse_ordering
from headway.policy.politeness import Politeness
from headway.policy.scope import host_of
from headway.policy.site_rules import ALWAYS_OPEN, SiteHours, SiteRules, SiteScope
from headway.policy.timetable import Entry, Timetable, problem_of_windows
from headway.units import UNBOUNDED, Seconds

Shared = TypeVar("Shared", bound=SharedTable)

_PAGE_ORDERS = frozenset({"depth", "length", "klwf", "score", "random", "deadline"})
"""Orders of pages that need nothing but the page."""
_SITE_ORDERS = frozenset({"length", "klwf", "deadline"})
"""Orders of sites that do not compare the keys of their pages."""


def windows_of(read: Sequence[Mapping[str, Any]], source: Source, where: Path) -> Timetable | None:
    """Tables of windows as a timetable; None if there is none."""
    if not read:
        return None
    windows = tuple(Entry.window(each["days"], each["from"], each["until"]) for each in read)
    if (problem := problem_of_windows(windows)) is not None:
        raise source.error((*where, *problem[:-1]), problem[-1])
    zone = read[0]["timezone"]
    for number, each in enumerate(read):
        if each["timezone"] != zone:
            raise source.error(
                (*where, number, "timezone"),
                "the windows above have another time zone; they need the same one",
            )
    return Timetable(
        UNBOUNDED, (), windows=windows, window_zone=zone, grace_s=Seconds(max(each["grace"] for each in read))
    )


class OwnSettings:
    """Reads the settings of one site. `at` says where a key stands: in the site's table or in its group's."""

    def __init__(
        self,
        crawl: Mapping[str, Any],
        source: Source,
        written: CrawlTable,
        at: Callable[[str], Path],
        *,
        reads_secrets: bool,
    ) -> None:
        self._reads_secrets = reads_secrets
        self._crawl = crawl
        self._source = source
        self._written = written
        self._at = at

    def rules(
        self, seeds: Sequence[Page], table: SiteTable, values: Mapping[str, Any], *, has_default_prefix: bool
    ) -> SiteRules | None:
        """None if the site has nothing of its own."""
        rules = SiteRules(
            politeness=self._politeness(values),
            scope=self._scope(seeds, values, has_default_prefix=has_default_prefix),
            hours=self._hours(table, values),
            ignores_robots=self._ignores_robots(values),
            strategy=self._strategy(table),
            sitemaps=self._sitemaps(seeds[0].site, table),
        )
        return None if rules == SiteRules() else rules

    def identity(self, site: Site, table: SiteTable, values: Mapping[str, Any]) -> Identity | None:
        """None if the site sees the crawl as any other does."""
        identity = Identity(
            user_agent=values["user_agent"],
            headers=tuple(values["headers"].items()),
            basic_auth=values["basic_auth"],
            bearer_token=values["bearer_token"],
            keeps_cookies=bool(values["cookies"]) or table.login is not None,
            login=self._login(site, table),
            archives_secrets=bool(values["archive_secrets"]),
        )
        if identity == Identity():
            return None
        identity = msgspec.structs.replace(identity, folder=self._source.folder)
        for key, part in (
            ("headers", Identity(headers=identity.headers, folder=identity.folder)),
            ("basic_auth", Identity(basic_auth=identity.basic_auth, folder=identity.folder)),
            ("bearer_token", msgspec.structs.replace(identity, headers=(), login=None)),
            ("login", Identity(login=identity.login, folder=identity.folder)),
        ):
            try:
                part.check(reads_secrets=self._reads_secrets)
            except HeadwayError as problem:
                raise self._error(key, str(problem)) from None
        if table.archive_secrets and not (
            identity.keeps_cookies
            or identity.basic_auth
            or identity.bearer_token
            or any(is_secret(value) for _, value in identity.headers)
        ):
            raise self._error("archive_secrets", "the site has no cookies, credentials or secret headers")
        return identity

    def _politeness(self, values: Mapping[str, Any]) -> Politeness | None:
        if values["interval"] is None:
            return None
        crawl = self._crawl
        return Politeness(
            interval_s=values["interval"],
            pages_per_connection=self._written.pages_per_connection,
            backoff_s=crawl["backoff"],
            max_backoff_s=crawl["max_backoff"],
            max_crawl_delay_s=crawl["max_crawl_delay"],
        )

    def _scope(
        self, seeds: Sequence[Page], values: Mapping[str, Any], *, has_default_prefix: bool
    ) -> SiteScope | None:
        allow, deny = values["allow"], values["deny"]
        has_rules = bool(allow or deny)
        prefixes: tuple[str, ...] = ()
        prefix = values["prefix"]
        if prefix is not None:
            page = page_of(f"{seeds[0].site}{prefix}")
            path = prefix if page is None else page.url[len(page.site) :]
            prefixes = () if path == "/" else (path,)
            for seed in seeds:
                if not seed.url.startswith(path, len(seed.site)):
                    raise self._error(
                        "prefix",
                        f"{seed.url} does not begin with it; the crawl would have nothing to start with",
                    )
        elif has_default_prefix and not allow and not self._crawl["scope"]["allow"]:
            prefixes = start_folders(seeds)
        scope = SiteScope(
            prefixes=prefixes,
            is_prefix_given=prefix is not None and bool(prefixes),
            allow=allow if has_rules else None,
            deny=deny if has_rules else None,
            max_depth=values["max_depth"],
            queries=values["queries"],
        )
        return None if scope == SiteScope() else scope

    def _hours(self, table: SiteTable, values: Mapping[str, Any]) -> SiteHours:
        stops = table.stop_at_deadline
        if stops and table.deadline is None:
            raise self._error("stop_at_deadline", 'there is no deadline to stop at; add deadline = "07:30"')
        windows = windows_of(values["window"], self._source, self._at("window"))
        if windows is None and not stops:
            return ALWAYS_OPEN
        if windows is not None and windows.window_zone is None:
            windows = msgspec.structs.replace(windows, window_zone=self._crawl["timezone"] or machine_zone())
        grace_s = ALWAYS_OPEN.grace_s if windows is None else windows.grace_s
        return SiteHours(windows, grace_s, bool(stops))

    def _ignores_robots(self, values: Mapping[str, Any]) -> bool | None:
        respects, reason = values["respect_robots"], values["robots_reason"]
        if respects is False and not (reason or "").strip():
            raise self._error(
                "respect_robots", "say why with robots_reason, which is kept in the archive: 'our own site'"
            )
        if reason is not None and respects is not False:
            raise self._error(
                "robots_reason", "robots.txt is obeyed; a reason goes with respect_robots = false"
            )
        return None if respects is None else not respects

    def _strategy(self, table: SiteTable) -> str | None:
        name = table.strategy
        if name is None:
            return None
        kind = parse_ordering(name)[0]
        if kind not in _PAGE_ORDERS:
            orders = ", ".join(sorted(_PAGE_ORDERS))
            raise self._error("strategy", f"{name!r} orders the pages of all sites; a site can have {orders}")
        whole = self._written.strategy
        if whole is not None and parse_ordering(whole)[0] not in _SITE_ORDERS:
            raise self._error(
                "strategy",
                f"the crawl has {whole!r}, which compares the pages of all sites; sites can have their own"
                f" order with {', '.join(sorted(_SITE_ORDERS))}",
            )
        return name

    def _sitemaps(self, site: Site, table: SiteTable) -> tuple[Page, ...]:
        pages = []
        for url in table.sitemaps:
            page = page_of(f"{site}{url}" if url.startswith("/") else url)
            if page is None:
                raise self._error("sitemaps", f"{url!r} is neither a URL nor a path such as '/sitemap.xml'")
            if page.site != site:
                raise self._error("sitemaps", f"{page.url} is not on {site}")
            pages.append(page)
        if pages and not self._written.sitemaps:
            raise self._error("sitemaps", "[crawl] has sitemaps = false, so they would not be read")
        return tuple(pages)

    def _login(self, site: Site, table: SiteTable) -> Login | None:
        login: LoginTable | None = table.login
        if login is None:
            return None
        if table.cookies is False:
            raise self._error("cookies", "a login needs cookies; leave this key out")
        page = page_of(f"{site}{login.url}" if login.url.startswith("/") else login.url)
        where = self._at("login")
        if page is None:
            raise self._source.error((*where, "url"), f"{login.url!r} is not a URL")
        if host_of(page.site) != host_of(site) or (
            site.startswith("https:") and page.site.startswith("http:")
        ):
            raise self._source.error(
                (*where, "url"), f"{page.url} is not on {site}; a login goes to the site itself"
            )
        if not login.fields:
            raise self._source.error(
                (*where, "fields"),
                'name what to fill in, such as { user = "crawler", password = "env:PASSWORD" }',
            )
        for name, value in login.fields.items():
            if "pass" in name.lower() and not is_secret(value):
                raise self._source.error(
                    (*where, "fields", name),
                    "write where the password is, as 'env:NAME' or 'file:PATH'; a job file is no place for"
                    " it",
                )
        return Login(page.url, tuple(login.fields.items()), login.success)

    def _error(self, key: str, message: str) -> JobError:
        return self._source.error(self._at(key), message)


def start_folders(seeds: Sequence[Page]) -> tuple[str, ...]:
    """The folders of the start pages, if each is one, as `/papers/`; otherwise the whole site is meant."""
    folders: dict[str, None] = {}
    for seed in seeds:
        path = seed.url[len(seed.site) :].partition("?")[0]
        if path == "/" or not path.endswith("/"):
            return ()
        folders[path] = None
    return tuple(folders)


def with_absolute_places(file: JobFile, folder: str | None) -> JobFile:
    """The job with the files of its secrets as they are found from anywhere: worker processes, collectors and
    later runs read the job from the run folder."""
    if folder is None:
        return file

    def absolute(text: str) -> str:
        if not text.startswith("file:"):
            return text
        return f"file:{FilePath(folder, FilePath(text.removeprefix('file:')).expanduser()).absolute()}"

    def changed(table: Shared) -> Shared:
        if not (table.basic_auth or table.bearer_token or table.headers or table.login):
            return table
        login = table.login
        if login is not None:
            fields = {name: absolute(value) for name, value in login.fields.items()}
            login = msgspec.structs.replace(login, fields=fields)
        return msgspec.structs.replace(
            table,
            basic_auth=None if table.basic_auth is None else absolute(table.basic_auth),
            bearer_token=None if table.bearer_token is None else absolute(table.bearer_token),
            headers={name: absolute(value) for name, value in table.headers.items()},
            login=login,
        )

    return msgspec.structs.replace(
        file, site=tuple(map(changed, file.site)), group=tuple(map(changed, file.group))
    )
