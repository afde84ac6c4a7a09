"""The declaration of the job file: every table and key, once.

The JSON Schema, the tables in the documentation, the command-line options, the checks, the error messages
with their suggestions, and the HEADWAY_ settings of Scrapy are all derived from it. Here values stay as they
were written; `config.job` reads them by their kind. Command-line options fill the same tables, so a job file
and a command line mean the same.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from headway.config import values as v
from headway.config.keys import Option, Table, key
from headway.config.tables import (
    DEADLINE_TEXT,
    EndTable,
    IdentityTable,
    LimitsTable,
    QuotaTable,
    RevisitTable,
    ScopeTable,
    SharedTable,
    TimeoutsTable,
    TimetableEntry,
    WindowTable,
)
from headway.policy.ordering import ORDERING_NAMES
from headway.policy.scope import DEFAULT_TYPES
from headway.version import __version__

DEFAULT_USER_AGENT = f"headway/{__version__}"

Objective = Literal["max-completion", "sum-completion", "tardiness", "late-sites"]
Mirrors = Literal["report", "skip", "ignore"]
Purpose = Literal["search", "archive", "ai-input", "ai-train", "tdm"]
Digest = Literal["sha1", "sha256"]
FieldType = Literal["text", "number", "url", "html"]

_OBJECTIVE = "what to minimize once every deadline that can be met is met"
_TIMEZONE = "of clock times in deadlines and in the timetable; the machine's own by default"
_COUNTRY = "the country whose public holidays are used when rates are predicted: an ISO 3166 code"
_TIMETABLE = "another bandwidth on certain days and hours"

# Each key takes two or three lines, so that a struct reads like a table.
# fmt: off


class CrawlTable(Table, frozen=True):
    """Settings of the whole crawl."""

    bandwidth: Annotated[str | None, key(
        "the most bytes on the wire, or a part of the link (`60% of link`); unlimited by default", v.BOUND,
        aliases="rate limit max_rate limit_rate rate_limit max_bandwidth speed throughput bound",
        option=Option("--bandwidth RATE", "Bandwidth limit of the whole crawl, such as 5Mbit/s.",
                      "crawl plan simulate"),
    )] = None
    bandwidth_up: Annotated[str | None, key(
        "the most that a process may send; unlimited by default", v.RATE, aliases="upload")] = None
    objective: Annotated[Objective, key(
        _OBJECTIVE, aliases="goal minimize optimize",
        option=Option("--objective", "What to minimize once deadlines are met.", "plan"),
    )] = "max-completion"
    policy: Annotated[str, key(
        "how the link is shared among the sites: headway's planner, [a policy of the papers]"
        "(../explanation/deadlines.md#policies), or [a function of your own](../how-to/write-a-policy.md) by "
        "its dotted path, as `mypackage.shares:fair`", v.POLICY,
        aliases="allocation allocator planner",
        option=Option("--policy NAME", "How the link is shared among the sites.", "crawl plan"),
    )] = "headway"
    crawlers: Annotated[int | None, key(
        "how many sites are open at the same time, the *m* of the papers; by default all", v.COUNT,
        aliases="sites_at_once concurrent_sites",
        option=Option("--crawlers M", "Sites open at the same time; by default all.", "crawl plan"),
    )] = None
    user_agent: Annotated[str, key(
        "sent with each request; the part before the slash is matched with robots.txt", v.USER_AGENT,
        aliases="agent useragent ua bot_name",
        option=Option("--user-agent TEXT", "User-Agent header; name a web page about your crawl in it."),
        example="mybot/1.0 (+https://example.org/bot)", default="`headway/VERSION ...`",
    )] = DEFAULT_USER_AGENT
    contact: Annotated[str | None, key(
        "whom site owners can contact: an e-mail address, sent as `From`, or a web page. It is added to the "
        "default `user_agent`", v.CONTACT, aliases="from email mail operator owner",
        option=Option("--contact CONTACT", "E-mail address or web page of the crawl's owner."),
    )] = None
    strategy: Annotated[str | None, key(
        "the order of sites and pages: [strategies](strategies.md), or [your own]"
        "(../how-to/write-a-policy.md) by its dotted path, as `mypackage.orders:Newest`", v.STRATEGY,
        aliases="ordering order priority scheduler",
        option=Option("--strategy NAME", f"Order of sites and pages: {', '.join(ORDERING_NAMES)}, or your "
                      "own by its dotted path.", "crawl simulate"),
        default="deadline if a site has one, else length",
    )] = None
    scores: Annotated[dict[str, float], key(
        "scores of pages by path pattern, 0 for others; the longest match decides. "
        "For the strategies `score` and `deadline`", v.SCORE, example={"/news/": 10, "*.pdf$": -1},
        aliases="score weights worth priorities",
    )] = msgspec.field(default_factory=dict)
    scorer: Annotated[str | None, key(
        "[a function of your own](../how-to/write-a-policy.md) that returns the score of a page, by its "
        "path; in place of `scores`", v.SCORER,
        aliases="score_function score_with scoring",
    )] = None
    ranks_from: Annotated[str | None, key(
        'for `strategy = "optimal"`: the run folder of an earlier crawl with the PageRank of the pages',
        example="runs/monday", aliases="ranks pagerank pagerank_from",
        option=Option("--ranks-from RUN", "With --strategy optimal: run folder of an earlier crawl of these "
                      "sites."),
    )] = None
    interval: Annotated[str, key(
        "from the end of an answer to the next request to the same site; a longer Crawl-delay takes "
        "precedence", v.PAUSE,
        aliases="delay politeness crawl_delay download_delay wait pause sleep throttle min_delay",
        option=Option("--interval TIME", "Pause between two requests to a site, such as 15s.",
                      "crawl simulate"),
    )] = "5 s"
    server_interval: Annotated[str | None, key(
        "from the end of an answer to the next request to the same server, whatever the names of its sites; "
        "by default the `interval`. On a private address each port that the job names is a server",
        v.PAUSE, example="5 s", aliases="ip_delay address_interval interval_per_server ip_interval",
    )] = None
    domain_interval: Annotated[str | None, key(
        "the same for all sites of a registered domain; by default the `interval`", v.PAUSE, example="5 s",
        aliases="interval_per_domain domain_delay",
    )] = None
    per_server_connections: Annotated[int, key(
        "the most requests to a server at the same time, each followed by the interval. The crawl "
        "begins with one, adds one after 20 good answers, and halves their number when the "
        "server asks for a pause",
        v.COUNT, example=4,
        aliases="requests_per_server server_connections",
    )] = 1
    server_networks: Annotated[bool, key(
        "all addresses of a /24, or of an IPv6 /48, count as one server", aliases="server_prefix subnets",
    )] = False
    max_server_interval: Annotated[str, key(
        "the longest interval of a server that asks for pauses or answers more and more slowly",
        v.PAUSE, aliases="autothrottle_max_delay max_interval",
    )] = "5 min"
    pages_per_connection: Annotated[int, key(
        "pages that may be fetched in a row before the interval", v.COUNT,
        aliases="keep_alive keepalive burst pages_in_a_row",
        option=Option("--pages-per-connection K", "Pages fetched in a row from a site before the pause.",
                      "crawl simulate"),
    )] = 1
    max_connections: Annotated[int, key(
        "connections at the same time, at most one to each site", v.COUNT,
        aliases="threads concurrency connections workers robots parallel concurrent_requests",
        option=Option("--max-connections R", "Connections at the same time, at most one to each site.",
                      "crawl simulate", {"simulate": "--robots"}),
    )] = 256
    max_connections_per_server: Annotated[int | None, key(
        "the most connections to one server address; by default a quarter of all, at least 16", v.COUNT,
        aliases="per_server per_ip concurrent_requests_per_ip",
    )] = None
    max_connections_per_domain: Annotated[int | None, key(
        "the most connections to one registered domain; by default a quarter of all, at least 16", v.COUNT,
        aliases="per_domain concurrent_requests_per_domain",
    )] = None
    max_attempts: Annotated[int, key(
        "requests for a page, including the first", v.COUNT,
        aliases="retries retry tries attempts max_retries retry_times max_tries retry_count",
    )] = 3
    retry_penalty: Annotated[str, key(
        "the delay before a failed page is tried again; four times longer after each failure", v.PAUSE,
        aliases="retry_delay retry_wait retry_after retry_interval",
    )] = "60 s"
    backoff: Annotated[str, key(
        "the pause of a failing site; doubled after each failure", v.PAUSE,
        aliases="site_backoff cooldown",
    )] = "30 s"
    max_backoff: Annotated[str, key("the longest backoff of a site", v.PAUSE)] = "30 min"
    max_crawl_delay: Annotated[str, key(
        "the longest Crawl-delay of robots.txt that is obeyed; a longer one is reduced to it", v.PAUSE,
    )] = "1 d"
    accept: Annotated[tuple[str, ...], key(
        "media types to keep, or `*` for all; answers of other types are counted and not stored",
        v.MEDIA_TYPE, aliases="types media_types mime mime_types content_types accept_types",
        option=Option("--accept TYPE", "Media type to store, or '*' for all; may be repeated."),
        default="HTML, XHTML, PDF, PostScript, plain text",
    )] = DEFAULT_TYPES
    sitemaps: Annotated[bool, key("read the sitemaps that robots.txt names", aliases="sitemap")] = True
    feeds: Annotated[bool, key("read the feeds that a site's first page names", aliases="feed rss")] = True
    every: Annotated[str | None, key(
        "fetch each page again after this time, and run without end: [recrawling](../how-to/recrawl.md)",
        v.TIMEOUT, example="24 h", aliases="recrawl refresh repeat revisit_every recrawl_every",
    )] = None
    keep: Annotated[str | None, key(
        "how many [rounds of a run](../how-to/every-night.md) to keep: a number, as `30 rounds`, or as many "
        "as fit into a size. The newest copy of each page is always kept; by default everything is",
        v.KEPT, example="30 rounds",
        aliases="retention keep_rounds max_rounds history expire prune",
    )] = None
    keep_old_in: Annotated[str | None, key(
        "a folder to which archive files beyond `keep` are moved, with their index; by default they are "
        "removed", example="/archive/crawl", aliases="move_to move_old_to old_archive archive_to",
    )] = None
    stop_at_deadline: Annotated[bool, key(
        "at the deadline of a site, end its requests in flight and leave out the rest; otherwise a late site "
        "is crawled to its end", aliases="hard_deadline stop_after",
        option=Option("--stop-at-deadline", "At the deadline of a site, leave out what is left of it."),
    )] = False
    max_pages: Annotated[int | None, key(
        "pages of each site, unless the site has its own `max_pages`", v.COUNT, example=20000,
        aliases="pages page_limit limit_pages closespider_pagecount",
        option=Option("--max-pages N", "Fetch at most N pages of each site."),
    )] = None
    max_bytes: Annotated[str | None, key(
        "bytes on the wire of each site, unless it has its own `max_bytes`", v.SIZE, aliases="bytes",
    )] = None
    respect_robots: Annotated[bool, key(
        "obey robots.txt (RFC 9309)", aliases="robots_txt robotstxt_obey obey_robots",
    )] = True
    respect: Annotated[tuple[Purpose, ...], key(
        "the purposes of the crawl. A page is not requested if robots.txt (Content-Signal, "
        "Content-Usage) does not allow one of them, and not stored if its headers (also X-Robots-Tag, "
        "tdm-reservation) do not. Preferences are recorded in any "
        "case", example="search", aliases="purposes purpose use",
    )] = ()
    respect_rel_nofollow: Annotated[bool, key(
        "do not follow links marked `rel=nofollow`", aliases="nofollow rel_nofollow",
    )] = False
    max_links: Annotated[int, key(
        "the most links of one page that are followed, from the first on",
        v.COUNT, example=10000, aliases="links",
    )] = 10_000
    traps: Annotated[bool, key(
        "skip endless parts of a site: calendars, numbered pages, one page under many URLs, paths that "
        "repeat themselves, session ids, combinations of parameters. `headway status` and the decision log "
        "say what was skipped and why",
        aliases="trap trap_detection avoid_traps",
    )] = True
    near_duplicates: Annotated[bool, key(
        "compare the text of pages, too, to find traps; otherwise only their URLs",
        aliases="duplicates dedup deduplicate simhash minhash",
    )] = True
    mirrors: Annotated[Mirrors, key(
        "what to do with a site that has the same content at the same paths as another: `report` it, "
        "`skip` the rest of it, or `ignore` the fact", aliases="mirror copies",
    )] = "report"
    digest: Annotated[Digest, key(
        "the digest of contents in `pages.jsonl`, `crawl.log` and the store: `sha1`, which the "
        "archive needs anyway, or `sha256`, computed in addition", aliases="hash digest_algorithm",
    )] = "sha1"
    allow_private: Annotated[bool, key(
        "also fetch from private, loopback and link-local addresses",
        aliases="private localhost allow_local allow_localhost",
        option=Option("--allow-private", "Also fetch from private and loopback addresses."),
    )] = False
    verify_tls: Annotated[bool, key(
        "verify TLS certificates",
        aliases="verify ssl_verify verify_ssl tls_verify check_certificate insecure",
        option=Option("--insecure", "Do not verify TLS certificates.", sets=False),
    )] = True
    ca_file: Annotated[str | None, key(
        "a PEM file with the certificate authorities to trust", example="ca.pem",
        aliases="ca cafile ca_bundle",
    )] = None
    proxy: Annotated[str | None, key(
        "an HTTP proxy for all requests, with user and password if it needs them", v.PROXY,
        aliases="http_proxy https_proxy proxies",
        option=Option("--proxy URL", "Send all requests through this HTTP proxy."),
    )] = None
    no_proxy: Annotated[tuple[str, ...], key(
        "hosts that are fetched without the proxy", example="localhost")] = ()
    timezone: Annotated[str | None, key(_TIMEZONE, v.ZONE, aliases="time_zone tz zone")] = None
    background: Annotated[bool, key(
        "yield to other users of the link: slow down when round-trip times grow",
        aliases="nice low_priority scavenger",
    )] = False
    waiting_in_memory: Annotated[int, key(
        "waiting pages held in memory; the rest is read from the store when it is needed (the strategies "
        "batch, partial and flow need all pages and ignore this). For each collector of a fleet; the "
        "worker processes of one machine share it. Pages that wait for their next visit or retry are not "
        "counted",
        v.COUNT, example=200000, aliases="queue_size max_queue",
    )] = 200_000
    sites_from: Annotated[str | None, key(
        "more sites, from [a list in a file](../how-to/many-sites.md): CSV or Parquet with a column `url`, "
        "TOML, or text with a URL on each line; `-` is standard input", example="sites.csv",
        aliases="sites_file site_list sites_list url_list urls_from seeds_file input_file",
        option=Option("--sites FILE", "More sites, from a CSV, Parquet or TOML file, or from text with a URL "
                      "on each line; - reads standard input."),
    )] = None
    memory: Annotated[str | None, key(
        "the most memory that the crawl may need; a job that needs more is refused before it starts. By "
        "default the memory of the machine or container. Answers hold at most half of it, divided by the "
        "number of cores: beyond that, new requests wait", v.SIZE, example="2 GB",
        aliases="max_memory memory_limit memusage_limit ram",
    )] = None
    admission_depth: Annotated[int | None, key(
        "start a download only if its predicted rate fits under the bandwidth, and search this many of "
        "the next sites for one that does (diligenti2004 used 6); by default only pacing limits the rate",
        v.COUNT, example=6, aliases="admission maxd",
    )] = None
    country: Annotated[str | None, key(_COUNTRY, v.COUNTRY, aliases="holiday_country")] = None
    holidays: Annotated[tuple[str, ...], key("more holidays", v.DATE, aliases="holiday")] = ()
    timetable: Annotated[tuple[TimetableEntry, ...], key(_TIMETABLE, aliases="schedule hours")] = ()
    identity: Annotated[IdentityTable, key(
        "a key that requests are signed with", aliases="signature signatures web_bot_auth",
    )] = IdentityTable()
    timeouts: Annotated[TimeoutsTable, key("how long to wait for an answer")] = TimeoutsTable()
    limits: Annotated[LimitsTable, key("how large an answer may be", aliases="sizes")] = LimitsTable()
    scope: Annotated[ScopeTable, key(
        "which pages belong to the crawl", aliases="filter filters rules",
    )] = ScopeTable()
    quota: Annotated[QuotaTable, key(
        "how much may be transferred in a day or a month", aliases="budget",
    )] = QuotaTable()
    revisit: Annotated[RevisitTable, key("when pages are visited again", aliases="revisits")] = RevisitTable()


class ExtractField(Table, frozen=True):
    """A field of an item."""

    css: Annotated[str | None, key(
        "a CSS selector, with `::text` and `::attr(name)` as in Scrapy", v.CSS,
    )] = None
    xpath: Annotated[str | None, key("or an XPath", v.XPATH, aliases="path")] = None
    type: Annotated[FieldType, key(
        "`text`: white space folded; `number`: the first number; `url`: absolute; `html`: as it is",
    )] = "text"
    every: Annotated[bool, key(
        "return all matches as a list; otherwise only the first", aliases="every list many",
    )] = msgspec.field(default=False, name="all")
    join: Annotated[str | None, key(
        "join all matches with this text", example=", ", aliases="separator glue",
    )] = None
    regex: Annotated[str | None, key(
        "return the match of its first group, or the whole match", v.REGEX, aliases="re pattern match",
    )] = None
    required: Annotated[bool, key("no item without this field", aliases="mandatory must")] = False


class ExtractTable(Table, frozen=True):
    """What to extract: see [extraction](../how-to/extraction.md). A field is a selector or a table."""

    fields: Annotated[dict[str, str | ExtractField], key(
        "name and selector of each field", v.SELECTOR, example={"title": "h1"}, aliases="field columns",
    )] = msgspec.field(default_factory=dict)
    function: Annotated[str | None, key(
        "[a function of your own](../how-to/write-a-policy.md) that returns the items of a page, by its "
        "path; in place of `fields`", v.EXTRACTOR, aliases="callback extractor callable",
    )] = None
    item: Annotated[str | None, key("the name of the items", example="book", aliases="name kind")] = None
    pages: Annotated[tuple[str, ...], key(
        "path patterns of the pages to look at; by default all", v.PATTERN, aliases="page paths urls",
    )] = ()
    each: Annotated[str | None, key(
        "one item for each element that this selects; by default one for each page", v.SELECTOR,
        aliases="rows container items",
    )] = None


class SiteTable(SharedTable, frozen=True, kw_only=True):
    """A site: scheme, host and port. Keys that it does not set are taken from its group."""

    url: Annotated[str, key(
        "where to start", v.URL, aliases="start_url uri address link host site domain start href",
    )]
    deadline: Annotated[str | None, key(
        DEADLINE_TEXT, v.DEADLINE, aliases="until due by due_at finish_by before end deadline_at time_limit",
        option=Option("--deadline WHEN", "Deadline of every site: 2h, 07:30, or a date and time."),
    )] = None
    prefix: Annotated[str | None, key(
        "only pages whose path begins with this; `/`: the whole site", v.PREFIX, example="/papers/",
        aliases="path_prefix folder path within directory",
        option=Option("--prefix PATH", "Only pages whose path begins with this; /: the whole site."),
        default="the folder of the start URL, if that ends with `/`",
    )] = None
    group: Annotated[str | None, key(
        "the name of its `[[group]]`", example="ministries", aliases="in_group member_of",
    )] = None
    seeds: Annotated[tuple[str, ...], key(
        "more URLs of the site to start with", v.URL,
        example="https://www.example.org/papers/", aliases="start_urls urls seed starts entry_points",
    )] = ()
    data: Annotated[str | None, key(
        "how much the site is expected to hold", v.SIZE, aliases="size expected volume expected_bytes",
    )] = None
    extract: Annotated[tuple[ExtractTable, ...], key(
        "what to extract from its pages", aliases="extraction items",
    )] = ()
    spider: Annotated[str | None, key(
        "its Scrapy spider, for `headway run-scrapy`: its name in the project of the current folder, or the "
        "path of its class", example="shop.spiders.Books",
        aliases="spider_class scrapy_spider",
    )] = None
    arguments: Annotated[dict[str, str], key(
        "arguments of the spider", example={"section": "books"}, aliases="args spider_args kwargs",
    )] = msgspec.field(default_factory=dict)


class ServerTable(Table, frozen=True):
    """Settings of particular servers, such as those of a large network that serves many sites."""

    network: Annotated[str | None, key(
        "an address, or a network", v.NETWORK, aliases="address ip cidr addresses",
    )] = None
    domain: Annotated[str | None, key(
        "or a registered domain", example="example.org", aliases="name",
    )] = None
    interval: Annotated[str | None, key(
        "replaces `server_interval` or `domain_interval`", v.PAUSE, example="1 s", aliases="delay",
    )] = None
    connections: Annotated[int | None, key(
        "replaces `per_server_connections`", v.COUNT, example=8,
        aliases="per_server_connections max_connections",
    )] = None


class GroupTable(SharedTable, frozen=True, kw_only=True):
    """Settings that several sites share: those with `group = "NAME"`, or with the name in the column `group`
    of a list. A key that a site sets itself takes precedence."""

    name: Annotated[str, key(
        "the name that sites give as `group`", example="ministries", aliases="id group title")]


class ScrapyTable(Table, frozen=True):
    """For [`headway run-scrapy`](../how-to/scrapy.md) only."""

    policy: Annotated[str | None, key(
        "how the link is shared: any policy of `headway plan`; by default that of `[crawl]`", v.POLICY,
        example="m-maxt", aliases="allocation",
        option=Option("--policy NAME", "How the link is shared among the sites.", "run-scrapy"),
    )] = None
    crawlers: Annotated[int | None, key(
        "sites at the same time; by default those of `[crawl]`", v.COUNT,
        aliases="concurrency workers max_connections",
        option=Option("--crawlers M", "Sites at the same time.", "run-scrapy"),
    )] = None
    settings: Annotated[dict[str, Any], key(
        "settings of Scrapy for every spider", v.ANYTHING, example={"COOKIES_ENABLED": False},
    )] = msgspec.field(default_factory=dict)


class JobFile(Table, frozen=True):
    """A headway job"""

    crawl: Annotated[CrawlTable, key(
        "settings of the whole crawl", aliases="headway settings config",
    )] = CrawlTable()
    site: Annotated[tuple[SiteTable, ...], key(
        "the sites, each with its deadline", aliases="sites task tasks target targets seed_list",
    )] = ()
    group: Annotated[tuple[GroupTable, ...], key(
        "settings that several sites share", aliases="groups defaults class",
    )] = ()
    window: Annotated[tuple[WindowTable, ...], key(
        "when the crawl may run", aliases="windows hours schedule night",
    )] = ()
    on_end: Annotated[EndTable, key(
        "what is done when the crawl has ended", aliases="hook hooks notify at_end after",
    )] = EndTable()
    server: Annotated[tuple[ServerTable, ...], key(
        "servers with other intervals or connections", aliases="servers",
    )] = ()
    scrapy: Annotated[ScrapyTable, key("for `headway run-scrapy`", aliases="spiders")] = ScrapyTable()


class ScrapySite(Table, frozen=True):
    """A site in HEADWAY_SITES, by its host or its origin."""

    deadline: Annotated[str | None, key(DEADLINE_TEXT, v.DEADLINE, aliases="until due by")] = None
    weight: Annotated[float, key("its share of the link", v.WEIGHT, example=2, aliases="priority")] = 1.0
    data: Annotated[str | None, key(
        "how much it is expected to hold", v.SIZE, example="50 MB", aliases="size",
    )] = None


class ScrapySettings(Table, frozen=True):
    """The settings of a Scrapy project: HEADWAY_ and the key in capital letters."""

    enabled: Annotated[bool, key("False: plain Scrapy", aliases="enable on active")] = True
    bandwidth: Annotated[str | None, key(
        "the most that the spider may receive; unlimited by default", v.RATE, example="2 Mbit/s",
        aliases="rate limit max_rate bound",
    )] = None
    timetable: Annotated[tuple[TimetableEntry, ...], key(_TIMETABLE, aliases="schedule")] = ()
    deadline: Annotated[str | None, key(
        f"for every site without its own: {DEADLINE_TEXT}", v.DEADLINE, aliases="until due by",
    )] = None
    sites: Annotated[dict[str, ScrapySite], key(
        "deadline, weight and expected size of a site, by its host or origin", aliases="site tasks",
    )] = msgspec.field(default_factory=dict)
    objective: Annotated[Objective, key(_OBJECTIVE, aliases="goal")] = "max-completion"
    timezone: Annotated[str | None, key(_TIMEZONE, v.ZONE, aliases="tz time_zone")] = None
    country: Annotated[str | None, key(_COUNTRY, v.COUNTRY)] = None
    max_retry_after: Annotated[str, key(
        "the longest pause that a site can ask for", v.TIMEOUT, example="1 h",
        aliases="retry_after max_hold",
    )] = "1 h"
    dir: Annotated[str, key(
        "where predicted rates are stored, inside Scrapy's `.scrapy` folder", example="headway",
        aliases="folder directory path",
    )] = "headway"
    allow_private: Annotated[bool, key(
        "`False`: refuse private and loopback addresses", aliases="private",
    )] = True
