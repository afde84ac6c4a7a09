"""Which pages belong to the crawl. Other pages are counted with the reason and never requested.

Path rules have the syntax of robots.txt: a pattern matches from the start of the path, `*` matches anything,
and a final `$` matches the end. The longest matching pattern wins, and allow wins a tie. Order does not
matter.
"""

from __future__ import annotations

import enum
import functools
import re
from collections.abc import Callable, Iterable

import msgspec
from msgspec import structs

from headway.model.page import Page
from headway.policy.site_rules import SiteScope

# File extensions that reliably give the type of a URL, so that an unwanted type need not be requested.
# Extensions of server programs (`.php`, `.cgi`, `.asp`) and ambiguous ones (`.ts`, `.md`, source code) are
# not
# listed: for them the Content-Type of the answer decides.
_EXTENSIONS = {
    "application/pdf": "pdf",
    "application/postscript": "ps eps",
    "text/plain": "txt",
    "text/css": "css",
    "text/csv": "csv tsv",
    "text/calendar": "ics",
    "text/vcard": "vcf",
    "text/javascript": "js mjs",
    "application/json": "json map jsonld geojson webmanifest",
    "application/xml": "xml xsd xsl xslt",
    "application/rss+xml": "rss",
    "application/atom+xml": "atom",
    "application/wasm": "wasm",
    "application/rtf": "rtf",
    "application/epub+zip": "epub mobi azw azw3 djvu",
    "application/msword": "doc docx docm dotx",
    "application/vnd.ms-excel": "xls xlt xlsx xlsm xlsb",
    "application/vnd.ms-powerpoint": "ppt pps pptx ppsx",
    "application/vnd.oasis.opendocument": "odt ods odp odg odf",
    "application/x-dvi": "dvi",
    "application/zip": "zip jar war ear apk xpi crx whl egg nupkg cbz",
    "application/gzip": "gz tgz bz2 tbz tbz2 xz txz lz lzma zst 7z rar tar cpio cab lzh arj warc",
    "application/octet-stream": "bin exe dll dylib msi dmg pkg iso img deb rpm snap flatpak appimage pyc "
    "sqlite mdb torrent swf psd xcf blend dwg dxf stl pcap sig asc",
    "application/sql": "sql",
    "font/woff": "woff woff2 ttf otf eot",
    "image/jpeg": "jpg jpeg jpe jfif",
    "image/png": "png apng",
    "image/gif": "gif",
    "image/svg+xml": "svg svgz",
    "image/webp": "webp",
    "image/avif": "avif heic heif jxl",
    "image/tiff": "tif tiff",
    "image/bmp": "bmp dib",
    "image/x-icon": "ico cur",
    "image/x-portable-anymap": "pnm pbm pgm ppm xbm xpm tga pcx ras",
    "audio/mpeg": "mp3 mp2 m3u m3u8 pls",
    "audio/ogg": "ogg oga opus spx",
    "audio/wav": "wav aif aiff snd",
    "audio/flac": "flac",
    "audio/mp4": "m4a m4b aac wma ram mid midi",
    "video/mp4": "mp4 m4v mov qt 3gp 3g2",
    "video/mpeg": "mpg mpeg mpe vob",
    "video/webm": "webm mkv ogv",
    "video/x-msvideo": "avi wmv asf flv f4v rmvb",
}

TYPE_OF_EXTENSION = {
    extension: media_type
    for media_type, extensions in _EXTENSIONS.items()
    for extension in extensions.split()
}
"""File extension (lower case, without the dot) to media type."""


_TOKEN = re.compile(r"[^\s/;,()]+")
_COMPATIBLE = re.compile(r"\(\s*compatible\s*;\s*([^\s/;,()]+)", re.IGNORECASE)


@functools.lru_cache(maxsize=64)
def product_token(user_agent: str) -> str:
    """The product token (RFC 9309 2.2.1) of a User-Agent header, in lower case.

    It is `mybot` for `mybot/1.0 (+https://example.org/bot)` and for `Mozilla/5.0 (compatible; MyBot/1.0)`,
    whose first name only claims compatibility.
    """
    match = _COMPATIBLE.search(user_agent)
    if match:
        return match[1].lower()
    match = _TOKEN.search(user_agent)
    return match[0].lower() if match else ""


DEFAULT_TYPES = (
    "text/html",
    "application/xhtml+xml",
    "application/pdf",
    "application/postscript",
    "text/plain",
)
ANY_TYPE = "*"


class Exclusion(enum.StrEnum):
    OTHER_HOST = "other-host"
    TOO_DEEP = "too-deep"
    URL_TOO_LONG = "url-too-long"
    QUERY = "query"
    PATH_RULE = "path-rule"
    PREFIX = "prefix"
    UNWANTED_EXTENSION = "unwanted-extension"
    REDIRECT_CHAIN = "redirect-chain"


class Scope(msgspec.Struct, frozen=True):
    hosts: frozenset[str] = frozenset()
    """Exact names in lower case. With a port (`a.org:8080`) only that port, without one every port."""
    suffixes: tuple[str, ...] = ()
    """Domains with all their subdomains: `.br`, `example.org`. No hosts and no suffixes: any host."""
    allow: tuple[str, ...] = ()
    """Path patterns. With allow patterns and no deny patterns, only matching paths are in scope."""
    deny: tuple[str, ...] = ()
    max_depth: int | None = None
    max_url_length: int = 2000
    queries: bool = True
    accept: tuple[str, ...] = DEFAULT_TYPES
    """Media types to keep, `*` for all."""
    max_sites: int | None = None
    """How many sites may join those of the job, because pages link to them."""
    max_sites_per_domain: int | None = None
    max_sites_per_page: int | None = None
    max_pages_per_domain: int | None = None
    """Of a registered domain that the job does not name."""
    max_bytes_per_domain: int | None = None
    exact: frozenset[str] = frozenset()
    """Hosts of which only the ports in `hosts`, and the usual one, are in scope."""

    def judge_list(self, page: Page, own: SiteScope | None = None) -> Exclusion | None:
        """`judge` for a sitemap or feed, which is read and not stored: its path and extension do not
        matter."""
        if not _takes_in(self.hosts, self.exact, self.suffixes, page.site):
            return Exclusion.OTHER_HOST
        max_depth = self.max_depth if own is None or own.max_depth is None else own.max_depth
        if max_depth is not None and page.depth > max_depth:
            return Exclusion.TOO_DEEP
        return Exclusion.URL_TOO_LONG if len(page.url) > self.max_url_length else None

    def judge(self, page: Page, own: SiteScope | None = None) -> Exclusion | None:
        """Why the page is out of scope, or None if it is in scope. `own`: what its site has of its own."""
        url = page.url
        if (exclusion := self.judge_list(page, own)) is not None:
            return exclusion
        allow, deny, queries = self.allow, self.deny, self.queries
        if own is not None:
            if own.prefixes and not url.startswith(own.prefixes, len(page.site)):
                return Exclusion.PREFIX
            if own.allow is not None and own.deny is not None:
                allow, deny = own.allow, own.deny
            queries = queries if own.queries is None else own.queries
        path_at = len(page.site)
        path_end = url.find("?", path_at)
        if path_end < 0:
            path_end = len(url)
        elif not queries:
            return Exclusion.QUERY
        if (allow or deny) and not _allows(allow, deny, url[path_at:]):
            return Exclusion.PATH_RULE
        dot_at = url.rfind(".", path_at, path_end)
        if dot_at >= 0:
            media_type = TYPE_OF_EXTENSION.get(url[dot_at + 1 : path_end].lower())
            if media_type is not None and not self._wants(media_type, url[path_at:dot_at]):
                return Exclusion.UNWANTED_EXTENSION
        return None

    def _wants(self, media_type: str, path: str) -> bool:
        if media_type in self.accept or ANY_TYPE in self.accept:
            return True
        # `File:Map.png` in a wiki is a page about a picture, so its extension is not reliable.
        return ":" in path.rpartition("/")[2]

    def widened(self, site: str) -> Scope:
        """A copy with one more site in scope."""
        if _takes_in(self.hosts, self.exact, self.suffixes, site):
            return self
        return structs.replace(self, hosts=self.hosts | {site.partition("://")[2]})

    @property
    def accept_types(self) -> frozenset[str] | None:
        """The media types whose body the fetcher reads. None: all."""
        return None if ANY_TYPE in self.accept else frozenset(self.accept)


def host_of(site: str) -> str:
    """The host of a site, without scheme and port; an IPv6 address keeps its brackets."""
    host_and_port = site.partition("://")[2]
    host, colon, port = host_and_port.rpartition(":")
    return host if colon and port.isdecimal() else host_and_port


# The same sites are checked again and again; the cache makes the cost independent of the number of rules.
@functools.lru_cache(maxsize=65536)
def _takes_in(hosts: frozenset[str], exact: frozenset[str], suffixes: tuple[str, ...], site: str) -> bool:
    if not hosts and not suffixes:
        return True
    host = host_of(site)
    if site.partition("://")[2] in hosts or (host in hosts and host not in exact):
        return True
    return any(_is_under(host, suffix.lower().lstrip(".")) for suffix in suffixes)


def _is_under(host: str, domain: str) -> bool:
    return host == domain or host.endswith("." + domain)


def _allows(allow: tuple[str, ...], deny: tuple[str, ...], path: str) -> bool:
    allowed = _longest_match(allow, path)
    denied = _longest_match(deny, path)
    if allowed < 0 and denied < 0:
        return bool(deny)
    return allowed >= denied


def _longest_match(patterns: tuple[str, ...], path: str) -> int:
    return max((len(pattern) for pattern in patterns if fits(pattern, path)), default=-1)


def fits(pattern: str, path: str) -> bool:
    """Whether a path (with its query) matches a pattern, in linear time for any number of stars."""
    first, *rest = _parts(pattern)
    ends_here = pattern.endswith("$")
    if not path.startswith(first):
        return False
    position = len(first)
    if not rest:
        return not ends_here or len(path) == position
    *middle, last = rest
    for part in middle:
        position = path.find(part, position)
        if position < 0:
            return False
        position += len(part)
    if ends_here:
        return path.endswith(last) and len(path) - len(last) >= position
    return path.find(last, position) >= 0


@functools.lru_cache(maxsize=4096)
def _parts(pattern: str) -> tuple[str, ...]:
    return tuple(re.split(r"\*+", pattern.removesuffix("$")))


# Sites as a budget: where the scope has domains with all their subdomains, one page can name thousands of
# sites, each of which costs memory (3 KB), a robots.txt and a place among the waiting ones.

SITE_LIMIT = "site limit: "
OF_PAGE = f"{SITE_LIMIT}new sites of one page"
OF_DOMAIN = f"{SITE_LIMIT}sites of one domain"
IN_ALL = f"{SITE_LIMIT}sites in all"
PAGES_OF_DOMAIN = f"{SITE_LIMIT}pages of one domain"
BYTES_OF_DOMAIN = f"{SITE_LIMIT}bytes of one domain"
_DOMAINS_REPORTED = 100

# The second label of a registered domain with three, where the first has two letters: `example.co.uk`.
_REGISTRY_LABELS = frozenset(
    re.findall(
        r"\w+",
        """
        ac asn art biz co com coop csiro ed edu ernet firm ge gen go gob gouv gov govt gr gv id idv in ind
        info int jus k12 law lg ltd ltda maori me mil mobi mod muni name ne net nhs nic nom or org parliament
        plc pol police press pro psc re res sch school sci tm tv web
        """,
    )
)


_suffixes: frozenset[str] = frozenset()


def use_public_suffixes(rules: Iterable[str]) -> None:
    """The rules of the Public Suffix List with several labels, as it writes them."""
    global _suffixes  # noqa: PLW0603 - the same for all crawls of a process
    _suffixes = frozenset(rules)
    registered_domain.cache_clear()


@functools.lru_cache(maxsize=65536)
def registered_domain(host: str) -> str:
    """The part of a host name that one owner has registered, by the Public Suffix List: two labels, or more
    below a registry such as `co.uk` or a host of many owners such as `github.io`. An address, and a suffix
    itself, is its own domain."""
    labels = host.split(".")
    if len(labels) <= 2 or is_address(host):
        return host
    if not _suffixes:
        has_three = len(labels[-1]) == 2 and labels[-2] in _REGISTRY_LABELS
        return ".".join(labels[-3 if has_three else -2 :])
    for first in range(len(labels) - 1):
        name = ".".join(labels[first:])
        parent = name.partition(".")[2]
        if f"!{name}" in _suffixes:
            return name
        if name in _suffixes or f"*.{parent}" in _suffixes:
            return ".".join(labels[max(0, first - 1) :])
    return ".".join(labels[-2:])


def belong_together(site: str, other: str) -> bool:
    """Whether two sites have one owner by their names: one registered domain, or the first has none, as an
    address or a name inside a network."""
    host = host_of(site)
    domain = registered_domain(host)
    return "." not in domain or is_address(domain) or domain == registered_domain(host_of(other))


def is_address(host: str) -> bool:
    return host.startswith("[") or host.rpartition(".")[2].isdecimal()


_FIRST_SITES = 50
_SITES_A_LINK = 20
_FIRST_PAGES, _PAGES_A_LINK = 10_000, 20_000
_FIRST_BYTES, _BYTES_A_LINK = 1_000_000_000, 2_000_000_000
"""What a domain that the job does not name may have at first, and for each other domain that links to it."""


class SiteBudget:
    """Says which new sites join the crawl. Sites of the job are free; of other sites it counts each once.

    Where several collectors work on a crawl, each has its share of the limits for a domain and in all.
    """

    def __init__(self, scope: Scope, is_open: Callable[[str], bool] = lambda site: False) -> None:
        """`is_open`: whether a site belongs to the crawl already, by what others keep of it."""
        self._is_open = is_open
        self._per_page = scope.max_sites_per_page
        self._per_domain = scope.max_sites_per_domain
        self._in_all = scope.max_sites
        self._hosts = scope.hosts
        self._pages, self._bytes = scope.max_pages_per_domain, scope.max_bytes_per_domain
        self._links_that_count = max(
            0.0 if most is None else (most - first) / a_link
            for most, first, a_link in (
                (self._per_domain, _FIRST_SITES, _SITES_A_LINK),
                (self._pages, _FIRST_PAGES, _PAGES_A_LINK),
                (self._bytes, _FIRST_BYTES, _BYTES_A_LINK),
            )
        )
        """How many domains that link to one can make a difference."""
        self._pages_of: dict[str, int] = {}
        self._bytes_of: dict[str, int] = {}
        """By domain, of the domains that the job does not name."""
        self._collectors = 1
        self._known: set[str] = set()
        """Further sites."""
        self._found = 0
        self._of_domain: dict[str, int] = {}
        self._of_job: set[str] = set()
        """Domains of the sites that the job names."""
        self._named = {registered_domain(suffix.lower().lstrip(".")) for suffix in scope.suffixes}
        """Domains that the job names with all their hosts."""
        self._linked_by: dict[str, set[str]] = {}
        """By domain: other domains that link to it, as many as count."""
        self._reported: set[tuple[str, str]] = set()

    def share_with(self, collectors: int) -> None:
        self._collectors = max(1, collectors)

    def add_free(self, site: str, *, is_of_job: bool = False) -> None:
        """A site of the job, or one that another collector has found."""
        if is_of_job:
            self._of_job.add(registered_domain(host_of(site)))
        if not self._is_open(site):
            self._known.add(site)

    def add(self, site: str) -> None:
        """A site that an earlier run found."""
        if site not in self._known and not self._is_open(site):
            self._known.add(site)
            self._found += 1
            domain = registered_domain(host_of(site))
            self._of_domain[domain] = self._of_domain.get(domain, 0) + 1

    def exceeded(self, site: str, new_of_page: set[str], source: str | None = None) -> str | None:
        """The limit that keeps a site out, or None: then it belongs to the crawl. `new_of_page`: the sites
        that the page with the link has added so far; `source`: its site."""
        if source is not None and source != site:
            self._count_link(source, site)
        domain = registered_domain(host_of(site))
        has_budget = domain not in self._of_job and domain not in self._named
        limit = self._spent(site, domain) if has_budget else None
        if limit is None:
            limit = self._site_exceeded(site, domain, new_of_page)
        if limit is None and self._pages is not None and has_budget:
            self._pages_of[domain] = self._pages_of.get(domain, 0) + 1
        return limit

    def _site_exceeded(self, site: str, domain: str, new_of_page: set[str]) -> str | None:
        if site in self._known or self._is_open(site):
            return None
        if self._per_page is not None and len(new_of_page) >= self._per_page:
            return OF_PAGE
        if self._in_all is not None and self._found >= self._part(self._in_all):
            return IN_ALL
        if self._per_domain is not None and self._of_domain.get(domain, 0) >= self._most_of(domain):
            return OF_DOMAIN
        self.add(site)
        new_of_page.add(site)
        return None

    def _count_link(self, source: str, target: str) -> None:
        domain, other = registered_domain(host_of(target)), registered_domain(host_of(source))
        if domain == other or domain in self._of_job or self._links_that_count <= 0:
            return
        linked_by = self._linked_by.setdefault(domain, set())
        if len(linked_by) < self._links_that_count:
            linked_by.add(other)

    def _spent(self, site: str, domain: str) -> str | None:
        """The limit that a domain has reached that the job does not name."""
        if host_of(site) in self._hosts:
            return None  # another collector has it from the job
        if self._pages is not None:
            count = self._pages_of.get(domain, 0)
            if count >= self._pages_for(domain):
                return PAGES_OF_DOMAIN
        if self._bytes is not None:
            size = self._bytes_of.get(domain, 0)
            if size >= self._bytes_for(domain):
                return BYTES_OF_DOMAIN
        return None

    def _pages_for(self, domain: str) -> int:
        standing = _FIRST_PAGES + _PAGES_A_LINK * len(self._linked_by.get(domain, ()))
        return self._part(min(self._pages or 0, standing))

    def _bytes_for(self, domain: str) -> int:
        standing = _FIRST_BYTES + _BYTES_A_LINK * len(self._linked_by.get(domain, ()))
        return self._part(min(self._bytes or 0, standing))

    def spend(self, site: str, pages: int, wire_bytes: int) -> None:
        """Count what was received of a site; `pages`: of an earlier run."""
        if self._bytes is None and self._pages is None:
            return
        domain = registered_domain(host_of(site))
        if domain in self._of_job or domain in self._named:
            return
        if pages:
            self._pages_of[domain] = self._pages_of.get(domain, 0) + pages
        self._bytes_of[domain] = self._bytes_of.get(domain, 0) + wire_bytes

    def _most_of(self, domain: str) -> int:
        """How many sites of a domain may join. A domain that the job does not name begins with a few, and
        gets more with each other domain that links to it, so that generated hosts cannot take the crawl
        (STAR in IRLbot)."""
        assert self._per_domain is not None
        if domain in self._of_job:
            return self._part(self._per_domain)
        standing = _FIRST_SITES + _SITES_A_LINK * len(self._linked_by.get(domain, ()))
        return self._part(min(self._per_domain, standing))

    def subject_of(self, limit: str, site: str) -> str | None:
        """What to report of a limit when it keeps out a site: None if that was reported before."""
        subject, most = "", self._in_all
        if limit == OF_PAGE:
            most = self._per_page
        elif limit != IN_ALL:
            domain = registered_domain(host_of(site))
            of_domain = {PAGES_OF_DOMAIN: self._pages_for, BYTES_OF_DOMAIN: self._bytes_for}
            subject, most = f"{domain}, ", of_domain.get(limit, self._most_of)(domain)
        if (limit, subject) in self._reported or len(self._reported) >= _DOMAINS_REPORTED:
            return None
        self._reported.add((limit, subject))
        return f"{subject}at most {most}"

    def _part(self, limit: int) -> int:
        return max(1, limit // self._collectors)
