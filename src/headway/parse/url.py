"""The one spelling of a URL by which a page is known.

The WHATWG rules (Ada's implementation) decide what a link means. On top of them come only changes that no
server can tell from the original, so that one page is not fetched under two names: see `canonical`.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Sequence
from typing import NamedTuple

import can_ada
from xxhash import xxh3_64_intdigest

from headway.model.page import Page, PageKey, Site

LONGEST_HREF = 65_536
"""Beyond this many characters a link is nonsense (servers stop at 8 KB or so) and not worth a look."""

_SCHEMES = ("http://", "https://")
_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
# What WHATWG lets stand in a path or query although a URI may not contain it, and every percent sign.
_UNTIDY = re.compile(r"[#%|^`{}\[\]\\]")
_TIDY_ME = re.compile(r"%([0-9A-Fa-f]{2})?|[|^`{}\[\]\\]")
_KEY_BITS_OF_URL = 48
_NOT_BY_FOLDER = frozenset({"", "?", *map(chr, range(33))})
"""How links begin that mean something else on each page: a query alone, nothing, or blanks before either."""
_LONGEST_REMEMBERED = 200
_LINKS_REMEMBERED = 200
_FOLDERS_REMEMBERED = 256
_URL_MASK = (1 << _KEY_BITS_OF_URL) - 1


_folders: dict[tuple[str, int], dict[str, Page]] = {}


class Found(NamedTuple):
    pages: list[Page]
    skipped: int
    """Links that lead to no page: other schemes, hosts that cannot be, nonsense."""


NOTHING_FOUND = Found([], 0)


def canonical(href: str, base: str | None = None) -> str | None:
    """The canonical URL that `href` means on a page at `base`, or None where there is none.

    Beyond WHATWG: no fragment, no credentials, no empty query, no dot after the host's name; escapes are
    in upper case and only where needed (RFC 3986 6.2.2), and characters that no URI may hold are escaped.
    """
    page = page_of(href, base)
    return page.url if page is not None else None


def page_of(href: str, base: str | None = None, depth: int = 0, score: float = 0.0) -> Page | None:
    """The page that a link leads to. Never raises: what cannot be fetched over HTTP is None."""
    if len(href) > LONGEST_HREF:
        return None
    try:
        parsed = can_ada.parse(href) if base is None else can_ada.parse(base) + href
    except (ValueError, TypeError):  # TypeError: a lone surrogate has no UTF-8 form
        return None
    return _page(parsed, depth, score)


def pages_of(
    hrefs: Sequence[str],
    base: str | Page,
    depth: int,
    charset: str = "utf-8",
    *,
    most: int = sys.maxsize,
) -> Found:
    """The pages that the links of a document lead to, each once, in document order. Never raises.
    Beyond so many pages, links are not even looked at, and count as skipped.

    The base is a URL, or a page in its canonical form, which need not be looked at again.
    A document in another charset than UTF-8 has its queries encoded in it, as browsers do.
    """
    pages: list[Page] = []
    skipped = 0
    home_page = page_of(base) if isinstance(base, str) else base
    if home_page is None:
        return Found(pages, len(hrefs))
    home = _Home(home_page, depth, charset)
    known_hrefs: set[str] = set()
    known_urls: set[str] = set()
    for place, written in enumerate(hrefs):
        href = _without_fragment(written) if "#" in written else written
        if href in known_hrefs:
            continue
        known_hrefs.add(href)
        page = home.remembered.get(href) or home.lead(href)
        if page is None:
            skipped += 1
        elif page.url not in known_urls:
            if len(pages) >= most:
                return Found(pages, skipped + len(hrefs) - place)
            known_urls.add(page.url)
            pages.append(page)
    return Found(pages, skipped)


class _Home:
    """A document whose links are looked up, and where those of its folder were found to lead."""

    __slots__ = ("_bits", "_charset", "_depth", "_prefix", "_site", "_url", "remembered")

    def __init__(self, page: Page, depth: int, charset: str) -> None:
        self._site, self._url = page.site, can_ada.parse(page.url)
        self._prefix, self._bits = page.site + "/", _site_bits(page.site)
        self._depth = depth
        self._charset = None if charset == "utf-8" else charset
        # Pages of a folder share most of their links, written in the same way.
        self.remembered = _folder(page.url, depth) if self._charset is None else {}

    def lead(self, href: str) -> Page | None:
        written = href
        if self._charset is not None and not href.isascii():
            href = _with_encoded_query(href, self._charset)
        try:
            parsed = self._url + href if len(href) <= LONGEST_HREF else None
        except (ValueError, TypeError):
            parsed = None
        if parsed is None:
            return None
        url: str = parsed.href
        # A tidy link within the site, which is what most are, is spared the second look; the base is tidy,
        # so that looking at the href is enough.
        if url.startswith(self._prefix) and url[-1] != "?" and not _UNTIDY.search(href):
            key = self._bits | (xxh3_64_intdigest(url.encode()) & _URL_MASK)
            page = Page(url, self._site, PageKey(key), self._depth)
        else:
            other = _page(parsed, self._depth)
            if other is None:
                return None
            page = other
        if len(written) <= _LONGEST_REMEMBERED and written[:1] not in _NOT_BY_FOLDER:
            self.remembered[written] = page
        return page


def _without_fragment(written: str) -> str:
    href = written[: written.index("#")]
    # A space before a fragment is part of the path, one at the end is not.
    return written if href and href[-1] <= " " else href


def _folder(base: str, depth: int) -> dict[str, Page]:
    """Where links of pages in the same folder, and as deep, were found to lead."""
    which = (base[: base.partition("?")[0].rindex("/")], depth)
    links = _folders.get(which)
    if links is None or len(links) >= _LINKS_REMEMBERED:
        if len(_folders) >= _FOLDERS_REMEMBERED:
            _folders.clear()  # in one step, since a long page is parsed on another thread
        links = _folders[which] = {}
    return links


def _page(parsed: can_ada.URL, depth: int, score: float = 0.0) -> Page | None:
    site_and_url = _site_and_url(parsed)
    if site_and_url is None:
        return None
    site, url = site_and_url
    key = _site_bits(site) | (xxh3_64_intdigest(url.encode()) & _URL_MASK)
    return Page(url, site, PageKey(key), depth, score)


def _site_and_url(parsed: can_ada.URL) -> tuple[Site, str] | None:
    url: str = parsed.href
    if not url.startswith(_SCHEMES):
        return None
    if parsed.has_credentials():
        parsed.username = parsed.password = ""
    parsed.hash = ""
    host: str = parsed.hostname
    if host.endswith("."):
        return _without_final_dots(parsed, host)
    url, site = parsed.href, Site(parsed.origin)
    if _UNTIDY.search(url, len(site)):
        url = site + _TIDY_ME.sub(_tidied, url[len(site) :])
    if url.find("?") == len(url) - 1:
        url = url[:-1]
    return site, url


def _without_final_dots(parsed: can_ada.URL, host: str) -> tuple[Site, str] | None:
    # `example.org.` is the same server as `example.org` and must be asked as politely. The URL is parsed
    # anew, because without its dot a host may turn out to be no host at all.
    bare = host.rstrip(".")
    if not bare:
        return None
    try:
        return _site_and_url(can_ada.parse(parsed.href.replace(host, bare, 1)))
    except ValueError:
        return None


def _tidied(match: re.Match[str]) -> str:
    digits = match[1]
    if digits is None:
        return f"%{ord(match[0]):02X}"
    octet = int(digits, 16)
    return chr(octet) if octet in _UNRESERVED else f"%{digits.upper()}"


def _with_encoded_query(href: str, charset: str) -> str:
    path, mark, query = href.partition("?")
    try:
        return path + mark + "".join(_in_charset(character, charset) for character in query)
    except LookupError:
        return href


def _in_charset(character: str, charset: str) -> str:
    if character.isascii():
        return character
    try:
        octets = character.encode(charset)
    except UnicodeError:
        return f"%26%23{ord(character)}%3B"  # a character reference, as browsers write it
    return "".join(f"%{octet:02X}" for octet in octets)


@functools.lru_cache(maxsize=65_536)
def _site_bits(site: str) -> int:
    """The site's part of a key: the high bits, so that a store keeps the pages of a site side by side."""
    bits = xxh3_64_intdigest(site.encode()) >> _KEY_BITS_OF_URL
    # Signed, since a row number in SQLite is.
    return (bits - (1 << 16) if bits >= 1 << 15 else bits) << _KEY_BITS_OF_URL
