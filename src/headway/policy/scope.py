"""Which pages belong to the crawl. What does not is counted with its reason and never requested.

Path rules speak robots.txt: a pattern begins at the path, `*` stands for anything, a final `$` for the end;
the longest pattern that fits wins, and allow wins a tie. Order does not matter.
"""

from __future__ import annotations

import enum
import functools
import re

import msgspec
from msgspec import structs

from headway.model.page import Page
from headway.policy.extensions import TYPE_OF_EXTENSION

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
    UNWANTED_EXTENSION = "unwanted-extension"
    REDIRECT_CHAIN = "redirect-chain"


class Scope(msgspec.Struct, frozen=True):
    hosts: frozenset[str] = frozenset()
    """Exact names, in lower case. With a port (`a.org:8080`) only that port, without one every port."""
    suffixes: tuple[str, ...] = ()
    """Domains with all that lies under them: `.br`, `example.org`. No hosts and no suffixes: any host."""
    allow: tuple[str, ...] = ()
    """Path patterns. With allow patterns and no deny patterns, nothing else is in scope."""
    deny: tuple[str, ...] = ()
    max_depth: int | None = None
    max_url_length: int = 2000
    queries: bool = True
    accept: tuple[str, ...] = DEFAULT_TYPES
    """Media types to keep, `*` for all."""

    def judge_list(self, page: Page) -> Exclusion | None:
        """Of a sitemap or feed, which is read and not kept: where it is counts, not what it is called."""
        if not _takes_in(self.hosts, self.suffixes, page.site):
            return Exclusion.OTHER_HOST
        if self.max_depth is not None and page.depth > self.max_depth:
            return Exclusion.TOO_DEEP
        return Exclusion.URL_TOO_LONG if len(page.url) > self.max_url_length else None

    def judge(self, page: Page) -> Exclusion | None:
        """Why the page is out of scope, or None when it is in."""
        url = page.url
        if (exclusion := self.judge_list(page)) is not None:
            return exclusion
        path_at = len(page.site)
        path_end = url.find("?", path_at)
        if path_end < 0:
            path_end = len(url)
        elif not self.queries:
            return Exclusion.QUERY
        if (self.allow or self.deny) and not _allows(self.allow, self.deny, url[path_at:]):
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
        # A wiki's `File:Map.png` is a page about a picture, so there the extension is not sure.
        return ":" in path.rpartition("/")[2]

    def widened(self, site: str) -> Scope:
        """The same, with one more site in it."""
        if not self.hosts and not self.suffixes:
            return self
        return structs.replace(self, hosts=self.hosts | {site.partition("://")[2]})

    @property
    def accept_types(self) -> frozenset[str] | None:
        """For the fetcher, which reads no body of another type. None: all."""
        return None if ANY_TYPE in self.accept else frozenset(self.accept)


def host_of(site: str) -> str:
    """The host of a site, without scheme and port; an IPv6 address keeps its brackets."""
    host_and_port = site.partition("://")[2]
    host, colon, port = host_and_port.rpartition(":")
    return host if colon and port.isdecimal() else host_and_port


# A crawl meets the same sites again and again; the cache makes the check independent of the rules' number.
@functools.lru_cache(maxsize=65536)
def _takes_in(hosts: frozenset[str], suffixes: tuple[str, ...], site: str) -> bool:
    if not hosts and not suffixes:
        return True
    host = host_of(site)
    if host in hosts or site.partition("://")[2] in hosts:
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
    """Whether a path (with its query) matches a pattern, in linear time whatever the number of stars."""
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
