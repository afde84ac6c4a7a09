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
from headway.parse.turns import LET_OTHERS_EVERY, let_others

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

# Links that mean what they say: no rule changes a character of them, so that there is nothing to parse. No
# name begins with a dot, and none is empty.
_NAMES = r"(?:[A-Za-z0-9_~+,=@-][A-Za-z0-9_.~+,=@-]*+/?+)++(?:\?[A-Za-z0-9_.~+,;:=&@/-]++)?+"
_PLAIN = re.compile(_NAMES)
# A host whose last part is letters is no number, and one without `xn--` is spelt as it is.
_PLAIN_ELSEWHERE = re.compile(
    rf"(https?+://(?:(?!xn--)[a-z0-9][a-z0-9-]*+\.)++[a-z]{{2,}}+)(/(?:{_NAMES})?+)?+"
)

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
    home_page = page_of(base) if isinstance(base, str) else base
    if home_page is None:
        return Found([], len(hrefs))
    home = _Home(home_page, depth, charset)
    remembered = home.remembered
    pages: dict[str, Page] = {}
    nowhere: set[str] = set()
    for place, written in enumerate(hrefs):
        if not (place + 1) % LET_OTHERS_EVERY:
            let_others()
        href = _without_fragment(written) if "#" in written else written
        page = remembered.get(href) or home.lead(href)
        if page is None:
            nowhere.add(href)
        elif page.url not in pages:
            if len(pages) >= most:
                return Found(list(pages.values()), len(nowhere) + len(hrefs) - place)
            pages[page.url] = page
    return Found(list(pages.values()), len(nowhere))


class _Home:
    """A document whose links are looked up, and where those of its folder were found to lead."""

    __slots__ = (
        "_bits",
        "_charset",
        "_depth",
        "_folder",
        "_itself",
        "_page",
        "_parsed",
        "_site",
        "remembered",
    )

    def __init__(self, page: Page, depth: int, charset: str) -> None:
        self._page, self._site, self._depth = page, page.site, depth
        self._bits = _site_bits(page.site)
        self._folder = _folder_of(page.url)
        self._parsed: can_ada.URL | None = None
        self._itself: Page | None = None
        self._charset = None if charset == "utf-8" else charset
        # Pages of a folder share most of their links, written in the same way.
        self.remembered = _links_of(self._folder, depth) if self._charset is None else {}

    def lead(self, href: str) -> Page | None:
        if not href:  # a fragment alone, of which a page may have many
            self._itself = self._itself or self._here(self._page.url)
            return self._itself
        page = self._plainly(href) if len(href) <= _LONGEST_REMEMBERED else None
        page = page or self._by_the_rules(href)
        if page is not None and len(href) <= _LONGEST_REMEMBERED and href[0] not in _NOT_BY_FOLDER:
            self.remembered[href] = page
        return page

    def _plainly(self, href: str) -> Page | None:
        """Where a link leads that need only be put together, as most need; None where it needs more."""
        if href.startswith(_SCHEMES):
            elsewhere = _PLAIN_ELSEWHERE.fullmatch(href)
            if elsewhere is None:
                return None
            site = Site(elsewhere[1])
            return _known_page(href if elsewhere[2] else href + "/", site, _site_bits(site), self._depth)
        if href[0] == "/":
            return self._here(self._site + href) if _PLAIN.fullmatch(href, 1) or href == "/" else None
        folder = self._folder
        while href.startswith("../"):
            href = href[3:]
            if len(folder) > len(self._site) + 1:
                folder = folder[: folder.rindex("/", 0, -1) + 1]
        return self._here(folder + href) if _PLAIN.fullmatch(href) else None

    def _here(self, url: str) -> Page:
        return _known_page(url, self._site, self._bits, self._depth)

    def _by_the_rules(self, href: str) -> Page | None:
        if self._charset is not None and not href.isascii():
            href = _with_encoded_query(href, self._charset)
        if len(href) > LONGEST_HREF:
            return None
        if self._parsed is None:
            self._parsed = can_ada.parse(self._page.url)
        try:
            parsed = self._parsed + href
        except (ValueError, TypeError):
            return None
        url: str = parsed.href
        # A tidy link within the site is spared the second look; the base is tidy, so that looking at the href
        # is enough.
        if url.startswith(self._site + "/") and url[-1] != "?" and not _UNTIDY.search(href):
            return self._here(url)
        return _page(parsed, self._depth)


def _without_fragment(written: str) -> str:
    href = written[: written.index("#")]
    # A space before a fragment is part of the path, one at the end is not.
    return written if href and href[-1] <= " " else href


def _folder_of(url: str) -> str:
    """The part of a URL that a relative link keeps."""
    query = url.find("?")
    return url[: url.rindex("/", 0, query if query >= 0 else len(url)) + 1]


def _links_of(folder: str, depth: int) -> dict[str, Page]:
    """Where links of pages in the same folder, and as deep, were found to lead."""
    which = (folder, depth)
    links = _folders.get(which)
    if links is None or len(links) >= _LINKS_REMEMBERED:
        if len(_folders) >= _FOLDERS_REMEMBERED:
            _folders.clear()  # in one step, since a long page is parsed on another thread
        links = _folders[which] = {}
    return links


def _known_page(url: str, site: Site, bits: int, depth: int, score: float = 0.0) -> Page:
    return Page(url, site, PageKey(bits | (xxh3_64_intdigest(url.encode()) & _URL_MASK)), depth, score)


def _page(parsed: can_ada.URL, depth: int, score: float = 0.0) -> Page | None:
    site_and_url = _site_and_url(parsed)
    if site_and_url is None:
        return None
    site, url = site_and_url
    return _known_page(url, site, _site_bits(site), depth, score)


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
