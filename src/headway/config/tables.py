"""The tables within `[crawl]`, declared as `config.schema` declares the others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec

from headway.config import values as v
from headway.config.keys import Option, Table, key
from headway.http.models import Limits, Timeouts

DEADLINE_TEXT = (
    '`"2 h"` or a number of seconds from the start, `"07:30"` the next time of day, or a date and time'
)

# Each key takes two or three lines, so that a struct reads like a table.
# fmt: off


class TimetableEntry(Table, frozen=True):
    """Where entries overlap, the later one applies."""

    bandwidth: Annotated[str, key(
        'the bandwidth at that time; `"0"`: the crawl pauses', v.RATE_OR_NONE, aliases="rate limit max_rate",
    )]
    days: Annotated[str, key(
        "weekdays, also as `sat,sun`", v.DAYS, example="mon-fri", aliases="day weekdays"
    )] = "mon-sun"
    hours: Annotated[str, key(
        "may span midnight", v.HOURS, example="22:00-06:00", aliases="hour time times from to"
    )] = "00:00-24:00"


class WindowTable(Table, frozen=True):
    """When the crawl, a group of sites, or a site may run. Outside all windows it pauses."""

    begin: Annotated[str, key("when it opens", v.CLOCK, example="22:00", aliases="start begin")] = (
        msgspec.field(name="from")
    )
    until: Annotated[str, key(
        "when it closes; on the next day if that is before `from`", v.CLOCK, example="07:30",
        aliases="to end close",
    )]
    days: Annotated[str, key(
        "the weekdays on which it opens, also as `sat,sun`", v.DAYS, example="mon-fri",
        aliases="day weekdays",
    )] = "mon-sun"
    timezone: Annotated[str | None, key(
        "of its times, with summer time; that of `[crawl]` by default", v.ZONE, example="Europe/Berlin",
        aliases="time_zone tz zone",
    )] = None
    grace: Annotated[str, key(
        "how long requests under way may take to finish after it has closed; then they are ended, and "
        "repeated in the next window", v.PAUSE, aliases="grace_time overtime",
    )] = "30 s"


class LoginTable(Table, frozen=True):
    """A login with a form. The form is fetched and sent before the first page, and again when the site
    redirects to it."""

    url: Annotated[str, key(
        "the page with the form; on the site itself", v.URL, example="https://www.example.org/login",
        aliases="page form address",
    )]
    fields: Annotated[dict[str, str], key(
        "what to fill in, by the names of the fields; a value is `env:NAME`, `file:PATH` or text",
        example={"user": "crawler", "password": "env:SITE_PASSWORD"}, aliases="data values inputs",
    )]
    success: Annotated[str | None, key(
        "a text in the page after the login. Without this key, a login has failed if the answer is an error "
        "or the form again", example="Sign out", aliases="expect success_text contains",
    )] = None


class SharedTable(Table, frozen=True):
    """The settings of a site, or of all sites of a group."""

    deadline: Annotated[str | None, key(
        DEADLINE_TEXT, v.DEADLINE, aliases="until due by due_at finish_by before end deadline_at time_limit",
    )] = None
    stop_at_deadline: Annotated[bool | None, key(
        "at the deadline, end requests in flight and leave out the rest; otherwise a late site is crawled to "
        "its end", aliases="hard_deadline stop stop_after",
    )] = None
    weight: Annotated[float | None, key(
        "its share of a link that is too small", v.WEIGHT, example=1.0, default="`1.0`",
        aliases="priority importance share",
    )] = None
    max_pages: Annotated[int | None, key(
        "pages of this site", v.COUNT, example=20000, aliases="pages page_limit limit_pages",
    )] = None
    max_bytes: Annotated[str | None, key("bytes on the wire of this site", v.SIZE, aliases="bytes")] = None
    cap: Annotated[str | None, key(
        "the highest rate for this site", v.RATE, aliases="bandwidth rate limit max_rate limit_rate",
    )] = None
    interval: Annotated[str | None, key(
        "from the end of an answer to the next request; replaces that of `[crawl]`", v.PAUSE,
        example="15 s",
        aliases="delay politeness crawl_delay download_delay wait pause sleep throttle min_delay",
    )] = None
    strategy: Annotated[str | None, key(
        "the order of its pages, where `[crawl]` has `length`, `deadline` or `klwf`", v.STRATEGY,
        example="score", aliases="ordering order",
    )] = None
    prefix: Annotated[str | None, key(
        "only pages whose path begins with this; `/`: the whole site", v.PREFIX, example="/papers/",
        aliases="path_prefix folder path within directory",
        default="the folder of the start URL, if that ends with `/`",
    )] = None
    allow: Annotated[tuple[str, ...], key(
        "path patterns to keep; with `deny`, replaces those of `[crawl.scope]`", v.PATTERN,
        aliases="include includes include_paths whitelist allowlist only",
    )] = ()
    deny: Annotated[tuple[str, ...], key(
        "path patterns to leave out", v.PATTERN, example="*.pdf$",
        aliases="exclude excludes exclude_paths blacklist denylist blocklist disallow ignore skip reject",
    )] = ()
    max_depth: Annotated[int | None, key(
        "links from a seed; replaces that of `[crawl.scope]`", v.DEPTH,
        aliases="depth level levels depth_limit max_level max_hops hops",
    )] = None
    queries: Annotated[bool | None, key("also URLs with a query", aliases="query query_strings")] = None
    ports: Annotated[tuple[int, ...], key(
        "the other ports of its host that belong to the crawl, with the settings of the site; none given: "
        "every port of the host, if the URL has none itself", v.PORT,
        example=8080, aliases="port other_ports",
    )] = ()
    sitemaps: Annotated[tuple[str, ...], key(
        "URLs or paths of its sitemaps, in addition to those that robots.txt names", v.URL,
        example="https://www.example.org/sitemap-all.xml", aliases="sitemap sitemap_urls",
    )] = ()
    respect_robots: Annotated[bool | None, key(
        "obey robots.txt; `false` needs `robots_reason`",
        aliases="robots robots_txt robotstxt_obey obey_robots",
    )] = None
    robots_reason: Annotated[str | None, key(
        "why robots.txt is not obeyed; kept in the `warcinfo` record of each WARC file",
        example="our own site; agreed with its owner on 2026-11-02", aliases="reason robots_override",
    )] = None
    user_agent: Annotated[str | None, key(
        "replaces that of `[crawl]`, also for robots.txt", v.USER_AGENT,
        example="mybot/1.0 (+https://example.org/bot)", aliases="agent useragent ua bot_name",
    )] = None
    headers: Annotated[dict[str, str], key(
        "sent with each request; a value is text, `env:NAME` or `file:PATH`. What comes from the environment "
        "or a file is in no log or archive", example={"Accept-Language": "de"}, aliases="header http_headers",
    )] = msgspec.field(default_factory=dict)
    cookies: Annotated[bool | None, key(
        "keep the cookies that the site sets, and send them to it and its subdomains; never to another "
        "registered domain", aliases="cookie cookie_jar cookiejar cookies_enabled",
    )] = None
    basic_auth: Annotated[str | None, key(
        "user and password as `user:password`, in an environment variable (`env:NAME`) or a file "
        "(`file:PATH`); sent to the site alone", v.SECRET, example="env:SITE_LOGIN",
        aliases="basic auth credentials http_user http_password password username",
    )] = None
    bearer_token: Annotated[str | None, key(
        "a token in an environment variable (`env:NAME`) or a file (`file:PATH`); sent to the site alone",
        v.SECRET, example="env:SITE_TOKEN", aliases="bearer token api_key auth_token",
    )] = None
    login: Annotated[LoginTable | None, key(
        "log in with a form before the first page; turns cookies on", aliases="signin sign_in form",
    )] = None
    archive_secrets: Annotated[bool | None, key(
        "keep cookies, credentials and secret headers in the WARC files, too", aliases="archive_cookies",
    )] = None
    window: Annotated[tuple[WindowTable, ...], key(
        "when it may be crawled; within the windows of the crawl", aliases="windows hours schedule night",
    )] = ()


class EndTable(Table, frozen=True):
    """What `headway crawl` does when it ends: see [every night](../how-to/every-night.md)."""

    command: Annotated[tuple[str, ...], key(
        "a program with its arguments; it gets the result as JSON on standard input, and `HEADWAY_RUN`, "
        "`HEADWAY_STATE`, `HEADWAY_EXIT_CODE`, `HEADWAY_MISSED` and `HEADWAY_REPORT` in its environment",
        v.TEXT, example=["/usr/local/bin/crawl-done", "--verbose"],
        aliases="script program run exec cmd",
    )] = ()
    webhook: Annotated[str | None, key(
        "a URL to which the result is posted as JSON", v.WEBHOOK, aliases="url post http",
    )] = None
    email: Annotated[tuple[str, ...], key(
        "addresses to which the result is sent with the machine's `sendmail`", v.MAIL,
        aliases="mail mailto e_mail to",
    )] = ()
    report: Annotated[bool, key(
        "write the HTML report first, so that its path is part of the result", aliases="html write_report",
    )] = True
    when: Annotated[Literal["always", "trouble"], key(
        "after every crawl, or only if its exit code is not 0", aliases="if on",
    )] = "always"
    timeout: Annotated[str, key(
        "a command, webhook or mail that takes longer is ended", v.TIMEOUT, aliases="time_limit max_time",
    )] = "60 s"


class IdentityTable(Table, frozen=True):
    """A key made by [`headway identity init`](../how-to/identity.md), and when it signs requests."""

    folder: Annotated[str | None, key(
        "the folder with the key", example="identity", aliases="key path dir",
    )] = None
    sign: Annotated[Literal["always", "on-challenge", "never"], key(
        "`on-challenge`: from the first answer of a site on that asks for a signature or refuses a request",
        aliases="signing signatures",
    )] = "always"


class TimeoutsTable(Table, frozen=True):
    """How long to wait for one answer."""

    connect: Annotated[str, key(
        "until the connection is open, with TLS", v.TIMEOUT, aliases="connection dns tls",
    )] = "10 s"
    first_byte: Annotated[str, key(
        "from the request to the first byte of the answer", v.TIMEOUT, aliases="response ttfb",
    )] = "30 s"
    idle: Annotated[str, key("between two pieces of data", v.TIMEOUT, aliases="read stall")] = "30 s"
    low_speed_limit: Annotated[str, key(
        "an answer that is slower for `low_speed_time` is given up; time spent waiting for headway's own "
        "bandwidth limit does not count", v.RATE,
        aliases="speed_limit min_speed slow",
    )] = "800 bit/s"
    low_speed_time: Annotated[str, key(
        "for how long an answer may be slower than `low_speed_limit`; at least as long as `idle`", v.TIMEOUT,
        aliases="speed_time slow_time",
    )] = "30 s"
    total: Annotated[str, key(
        "for the whole answer; time spent waiting for headway's own bandwidth limit does not count",
        v.TIMEOUT,
        aliases="timeout request download download_timeout fetch",
    )] = "10 min"


class LimitsTable(Table, frozen=True):
    """How large one answer may be, and how much CPU time its items may take."""

    head: Annotated[str, key("the status line and headers", v.SIZE, aliases="headers header")] = "64 KiB"
    body: Annotated[str, key(
        "the body as transferred", v.SIZE, aliases="download_maxsize max_size max_body page",
    )] = "50 MB"
    decoded: Annotated[str, key(
        "the content after decompression", v.SIZE, aliases="decompressed unpacked content",
    )] = "200 MB"
    extraction: Annotated[str, key(
        "CPU time for the items of one page; a page that exceeds it twice is kept without items",
        v.TIMEOUT, aliases="extract extract_time extraction_time",
    )] = "10 s"


class QuotaTable(Table, frozen=True):
    """How much may be transferred in a period, in bytes on the wire."""

    day: Annotated[str | None, key(
        "in a day; the crawl pauses until midnight", v.SIZE, aliases="daily per_day",
    )] = None
    month: Annotated[str | None, key(
        "in a month; the crawl pauses until the first of the next", v.SIZE, aliases="monthly per_month",
    )] = None


class RevisitTable(Table, frozen=True):
    """With `every`: when pages are visited again."""

    adapt: Annotated[bool, key(
        "estimate how often each page changes, and visit it when that improves freshness most",
        aliases="adaptive learn",
    )] = False
    shortest: Annotated[str, key(
        "the shortest interval between two visits", v.TIMEOUT, example="1 h", aliases="min minimum",
    )] = "1 h"
    longest: Annotated[str, key(
        "the longest interval between two visits", v.TIMEOUT, example="30 d", aliases="max maximum",
    )] = "30 d"
    bandwidth: Annotated[str | None, key(
        "the most bandwidth for revisits; by default all that the deadlines leave",
        v.RATE, aliases="rate limit",
    )] = None


class ScopeTable(Table, frozen=True):
    """Which pages belong to the crawl."""

    hosts: Annotated[tuple[str, ...], key(
        "hosts in scope; without `hosts` and `suffixes`, those of the sites", v.HOST,
        aliases="host allowed_hosts allowed_domains include_hosts",
    )] = ()
    suffixes: Annotated[tuple[str, ...], key(
        "domains in scope with all their subdomains", v.SUFFIX, aliases="suffix domains domain tld tlds",
    )] = ()
    allow: Annotated[tuple[str, ...], key(
        "path patterns in the syntax of robots.txt to keep; the longest match decides", v.PATTERN,
        aliases="include includes include_paths whitelist allowlist only accept_regex",
    )] = ()
    deny: Annotated[tuple[str, ...], key(
        "path patterns in the syntax of robots.txt to leave out; the longest match decides", v.PATTERN,
        example="*.pdf$",
        aliases="exclude excludes exclude_paths blacklist denylist blocklist disallow ignore skip reject",
    )] = ()
    max_depth: Annotated[int | None, key(
        "links from a seed: 0 fetches only the seeds", v.DEPTH,
        aliases="depth level levels depth_limit max_level max_hops hops",
        option=Option("--max-depth N", "Fetch only pages at most N links away from a seed."),
    )] = 30
    max_url_length: Annotated[int, key(
        "longer URLs are left out", v.COUNT, example=2000, aliases="url_length urllength_limit",
    )] = 2000
    queries: Annotated[bool, key("also URLs with a query", aliases="query query_strings params")] = True
    max_sites: Annotated[int, key(
        "the most sites that are added because pages link to them; links to further sites are left out, "
        "counted and reported", v.COUNT, example=100000, aliases="sites site_limit max_hosts",
    )] = 100_000
    max_sites_per_domain: Annotated[int, key(
        "the most sites added of one registered domain, as `example.org` or `example.co.uk`",
        v.COUNT, example=1000,
        aliases="max_hosts_per_domain max_subdomains subdomains sites_per_domain",
    )] = 1000
    max_pages_per_domain: Annotated[int, key(
        "pages of a registered domain that no site of the job is in: 10,000 at first, and 20,000 more for "
        "each other domain that links to it, up to this",
        v.COUNT, example=1000000, aliases="pages_per_domain domain_pages",
    )] = 1_000_000
    max_bytes_per_domain: Annotated[str, key(
        "data of such a domain: 1 GB at first, and 2 GB more for each other domain that links to it, up to "
        "this",
        v.SIZE, example="100 GB", aliases="bytes_per_domain domain_bytes",
    )] = "100 GB"
    max_sites_per_page: Annotated[int, key(
        "the most sites added by one page", v.COUNT, example=500, aliases="max_hosts_per_page sites_per_page",
    )] = 500


# fmt: on
def timeouts_of(values: Mapping[str, float]) -> Timeouts:
    """Of the values that were read for a `TimeoutsTable`."""
    return Timeouts(
        connect_s=values["connect"],
        first_byte_s=values["first_byte"],
        idle_s=values["idle"],
        low_speed_bytes_per_s=values["low_speed_limit"],
        low_speed_s=values["low_speed_time"],
        total_s=values["total"],
    )


def limits_of(values: Mapping[str, int], memory_bytes: int | None) -> Limits:
    """Of the values that were read for a `LimitsTable`, and the memory of the whole crawl."""
    return Limits(
        max_head_bytes=values["head"],
        max_body_bytes=values["body"],
        max_decoded_bytes=values["decoded"],
        memory_bytes=memory_bytes,
    )
