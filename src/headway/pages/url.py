"""Canonical URLs, which identify pages.

Links are resolved by the WHATWG rules (Ada's implementation). The only further changes are those that no
server distinguishes, so that a page is not fetched under two URLs; see `canonical`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import NamedTuple

import can_ada
from msgspec import structs

from headway.model.page import Page, PageKey, Site
from headway.pages import LET_OTHERS_EVERY, OF_LINK, Work, fast, let_others

LONGEST_HREF = 16_384
"""Characters. Longer links are ignored; servers accept about 8 KB."""
_LONGEST_AUTHORITY = 1024
_LONGEST_BEYOND_ASCII = 255
"""Characters of user name, password, host and port as written. A host name has at most 253, and converting
one of 16,384 letters beyond ASCII to ASCII takes 0.2 s, in quadratic time."""
_OF_LETTER = 20
"""Units of work for a character of a host that is not ASCII throughout."""
_LONGEST_FOLDER = 512
"""Characters. The links of a folder with a longer address are not cached: that could take gigabytes."""
_AUTHORITY = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*:[/\\]*|[/\\]{2,})([^/\\?#]*)")
_REMOVED = {ord(blank): None for blank in "\t\n\r"}
_BEFORE_LINK = "".join(map(chr, range(33)))

_SCHEMES = ("http://", "https://")
_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
# Characters that WHATWG allows in a path or query but a URI may not contain, and every percent sign.
_UNTIDY = re.compile(r"[#%|^`{}\[\]\\]")
_TIDY_ME = re.compile(r"%([0-9A-Fa-f]{2})?|[|^`{}\[\]\\]")
_KEY_BYTES = 8
SECRET_BYTES = 16
_fast_key: Callable[[str, bytes], int] | None = getattr(fast, "key_of", None)
_NOT_BY_FOLDER = frozenset({"", "?", *map(chr, range(33))})
"""First characters of links that depend on the page itself, not on its folder: empty, query only, or
blanks."""
_LONGEST_REMEMBERED = 200
_LINKS_REMEMBERED = 200
_FOLDERS_REMEMBERED = 256

# Links that no rule changes, so that they need not be parsed. No segment starts with a dot, and none is
# empty.
_NAMES = r"(?:[A-Za-z0-9_~+,=@-][A-Za-z0-9_.~+,=@-]*+/?+)++(?:\?[A-Za-z0-9_.~+,;:=&@/-]++)?+"
_PLAIN = re.compile(_NAMES)
# A host whose last label is letters is not an IP address, and without `xn--` needs no IDNA processing.
_PLAIN_ELSEWHERE = re.compile(
    rf"(https?+://(?:(?!xn--)[a-z0-9][a-z0-9-]*+\.)++[a-z]{{2,}}+)(/(?:{_NAMES})?+)?+"
)

_folders: dict[tuple[str, int, bytes], dict[str, Page]] = {}


class Found(NamedTuple):
    pages: list[Page]
    skipped: int
    """Links that are no page: other schemes, invalid hosts, invalid URLs."""


NOTHING_FOUND = Found([], 0)


def canonical(href: str, base: str | None = None) -> str | None:
    """The canonical URL of `href` on a page at `base`, or None if it is not an HTTP URL.

    In addition to WHATWG: no fragment, no credentials, no empty query, no dot at the end of the host. Percent
    encodings are in upper case and only where needed (RFC 3986 6.2.2), and characters that a URI may not
    contain are percent-encoded.
    """
    page = page_of(href, base)
    return page.url if page is not None else None


def key_of(url: str, secret: bytes = b"") -> PageKey:
    """The key of a canonical URL. Without the secret of the crawl nobody can find two URLs with one key."""
    if _fast_key is not None:
        return PageKey(_fast_key(url, secret))
    digest = blake2b(url.encode(), digest_size=_KEY_BYTES, key=secret).digest()
    return PageKey(int.from_bytes(digest, "little", signed=True))  # signed, like row ids in SQLite


def keyed(pages: Sequence[Page], secret: bytes) -> tuple[Page, ...]:
    """Pages whose keys were made without the secret of the crawl, with the keys that they have in it."""
    return tuple(structs.replace(page, key=key_of(page.url, secret)) for page in pages)


def page_of(
    href: str, base: str | None = None, depth: int = 0, score: float = 0.0, secret: bytes = b""
) -> Page | None:
    """The page that a link leads to, or None if it cannot be fetched over HTTP. Never raises."""
    if len(href) > _LONGEST_BEYOND_ASCII and not _is_sensible(href):
        return None
    try:
        parsed = can_ada.parse(href) if base is None else can_ada.parse(base) + href
    except (ValueError, TypeError):  # TypeError: a lone surrogate has no UTF-8 form
        return None
    return _page(parsed, depth, score, secret)


def pages_of(
    hrefs: Sequence[str],
    base: str | Page,
    depth: int,
    charset: str = "utf-8",
    *,
    most: int = sys.maxsize,
    work: Work | None = None,
    secret: bytes = b"",
) -> Found:
    """The pages that the links of a document lead to, without duplicates, in document order. Never raises.

    After `most` pages, or when `work` allows no more, the remaining links are not examined, and count as
    skipped. The base is a URL, or a page, whose URL is canonical already. If the charset is not UTF-8,
    queries are encoded in it, as in browsers.
    """
    home_page = page_of(base) if isinstance(base, str) else base
    if home_page is None:
        return Found([], len(hrefs))
    home = _Home(home_page, depth, charset, secret)
    remembered = home.remembered
    pages: dict[str, Page] = {}
    invalid: set[str] = set()
    place, count = -1, len(hrefs)
    links = hrefs if isinstance(hrefs, list) else list(hrefs)
    while (place := place + 1) < count:
        if fast is not None:
            place = fast.follow(links, place, remembered, pages, most)
            if place >= count:
                break
        written = links[place]
        if not (place + 1) % LET_OTHERS_EVERY:
            let_others()
        href = _without_fragment(written) if "#" in written else written
        page = remembered.get(href)
        if page is None:
            if work is not None and not work.spend(home.units(href)):
                return Found(list(pages.values()), len(invalid) + len(hrefs) - place)
            page = home.lead(href)
        if page is None:
            invalid.add(href)
        elif page.url not in pages:
            if len(pages) >= most:
                return Found(list(pages.values()), len(invalid) + len(hrefs) - place)
            pages[page.url] = page
    return Found(list(pages.values()), len(invalid))


class _Home:
    """Resolves the links of a document, with a cache of the links of its folder."""

    __slots__ = (
        "_charset",
        "_depth",
        "_folder",
        "_itself",
        "_page",
        "_parsed",
        "_secret",
        "_site",
        "remembered",
    )

    def __init__(self, page: Page, depth: int, charset: str, secret: bytes) -> None:
        self._page, self._site, self._depth = page, page.site, depth
        self._secret = secret
        self._folder = _folder_of(page.url)
        self._parsed: can_ada.URL | None = None
        self._itself: Page | None = None
        self._charset = None if charset == "utf-8" else charset
        # Pages of a folder have most of their links in common, with the same spelling.
        is_cached = self._charset is None and len(self._folder) <= _LONGEST_FOLDER
        self.remembered = _links_of(self._folder, depth, secret) if is_cached else {}

    def units(self, href: str) -> int:
        """The units of work of `lead`, at most."""
        units = OF_LINK + len(self._page.url) + len(href)
        return units if href.isascii() else units + _OF_LETTER * len(_authority_of(href))

    def lead(self, href: str) -> Page | None:
        if not href:  # only a fragment; a page may have many
            self._itself = self._itself or self._here(self._page.url)
            return self._itself
        page = self._concatenated(href) if len(href) <= _LONGEST_REMEMBERED else None
        page = page or self._parsed_link(href)
        if page is not None and len(href) <= _LONGEST_REMEMBERED and href[0] not in _NOT_BY_FOLDER:
            self.remembered[href] = page
        return page

    def _concatenated(self, href: str) -> Page | None:
        """Resolve a link by concatenation, which is enough for most links; None if it has to be parsed."""
        if href.startswith(_SCHEMES):
            elsewhere = _PLAIN_ELSEWHERE.fullmatch(href)
            if elsewhere is None:
                return None
            site = Site(elsewhere[1])
            return _known_page(href if elsewhere[2] else href + "/", site, self._depth, 0.0, self._secret)
        if href[0] == "/":
            return self._here(self._site + href) if _PLAIN.fullmatch(href, 1) or href == "/" else None
        folder = self._folder
        while href.startswith("../"):
            href = href[3:]
            if len(folder) > len(self._site) + 1:
                folder = folder[: folder.rindex("/", 0, -1) + 1]
        return self._here(folder + href) if _PLAIN.fullmatch(href) else None

    def _here(self, url: str) -> Page:
        return _known_page(url, self._site, self._depth, 0.0, self._secret)

    def _parsed_link(self, href: str) -> Page | None:
        if self._charset is not None and not href.isascii():
            href = _with_encoded_query(href, self._charset)
        if len(href) > _LONGEST_BEYOND_ASCII and not _is_sensible(href):
            return None
        if self._parsed is None:
            self._parsed = can_ada.parse(self._page.url)
        try:
            parsed = self._parsed + href
        except (ValueError, TypeError):
            return None
        url: str = parsed.href
        # A link within the site without characters to escape is canonical. The base is canonical, so checking
        # the href is enough.
        if url.startswith(self._site + "/") and url[-1] != "?" and not _UNTIDY.search(href):
            return self._here(url)
        return _page(parsed, self._depth, 0.0, self._secret)


def _is_sensible(href: str) -> bool:
    """Whether a link of more than a few characters is short enough, and so is what it has for a host."""
    if len(href) > LONGEST_HREF:
        return False
    authority = _authority_of(href)
    return len(authority) <= (_LONGEST_AUTHORITY if authority.isascii() else _LONGEST_BEYOND_ASCII)


def _authority_of(href: str) -> str:
    """What may be the host of a link, and what stands before it; empty if there is none."""
    match = _AUTHORITY.match(href.translate(_REMOVED).lstrip(_BEFORE_LINK))
    return match[1] if match is not None else ""


def _without_fragment(written: str) -> str:
    href = written[: written.index("#")]
    # A space before the fragment is part of the path; a space at the end of the link is not.
    return written if href and href[-1] <= " " else href


def _folder_of(url: str) -> str:
    """The part of a URL to which a relative link is appended."""
    query = url.find("?")
    return url[: url.rindex("/", 0, query if query >= 0 else len(url)) + 1]


def _links_of(folder: str, depth: int, secret: bytes) -> dict[str, Page]:
    """The cache of links for pages of a crawl in the same folder and with the same depth."""
    which = (folder, depth, secret)
    links = _folders.get(which)
    if links is None or len(links) >= _LINKS_REMEMBERED:
        if len(_folders) >= _FOLDERS_REMEMBERED:
            _folders.clear()  # atomic, because long pages are parsed in another thread
        links = _folders[which] = {}
    return links


def _known_page(url: str, site: Site, depth: int, score: float, secret: bytes) -> Page:
    return Page(url, site, key_of(url, secret), depth, score)


def _page(parsed: can_ada.URL, depth: int, score: float, secret: bytes) -> Page | None:
    site_and_url = _site_and_url(parsed)
    if site_and_url is None:
        return None
    site, url = site_and_url
    return _known_page(url, site, depth, score, secret)


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
    # `example.org.` is the same server as `example.org`, and must share its politeness. The URL is parsed
    # again, because the host may be invalid without its dot.
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
