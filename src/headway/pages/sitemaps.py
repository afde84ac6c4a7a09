"""Documents that list pages: sitemaps, sitemap indexes, RSS and Atom feeds, parsed in one pass over their
XML.

They are recognised by their content. The Content-Type is not reliable: sitemaps are XML, plain text or gzip,
and servers give them any type. Namespaces are not checked, because old and misspelt ones are common, and the
`loc` elements of extensions (images, videos) are skipped. XML is parsed without a tree, without entities
except the five predefined ones, and without fetching a DTD. Everything before an error counts: half a sitemap
is better than none.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Mapping
from xml.parsers import expat

from headway.pages import MOST_WORK_OF_LIST, Work, let_others
from headway.pages.parsed import MAX_ENTRIES, Entry, Listing, instant_of
from headway.units import Instant

Path = tuple[str, ...]
Take = Callable[[Path, Mapping[str, str], str], bool]
"""Called at the end of each element with its path (element names without prefixes), attributes and text.
False stops the parser."""

_DEEPEST = 64
_LONGEST_TEXT = 16_384
_PIECE_BYTES = 65_536
_LONGEST_TOKEN_BYTES = 262_144
"""Of a tag, comment or the like. Expat reads an unfinished one from its beginning with each further piece,
which takes quadratic time (CVE-2023-52425, in the Expat of Python 3.11)."""
_OF_ELEMENT = 100
"""Units of work for an element or an attribute. Expat keeps each name of either for as long as it parses."""
_BLANKS = re.compile(rb"[\t\n\x0b\f\r ]*")


class _Stop(Exception):  # noqa: N818 - not an error
    """Enough was read."""


def walk(content: bytes, roots: frozenset[str], take: Take, work: Work | None = None) -> str | None:
    """Parse a document whose root has one of these names, as far as `work` allows.

    Returns the problem with it, empty if there is none, or None if the root has another name. Raises only
    what `work` does, and takes time linear in the length.
    """
    reader = _Reader(roots, take, work or Work())
    try:
        return reader.read(content)
    except _Stop as stop:
        return str(stop) if reader.is_one else None
    except expat.ExpatError as problem:
        return f"not well-formed: {problem}" if reader.is_one else None
    except (ValueError, LookupError) as problem:  # an unknown encoding
        return str(problem) if reader.is_one else None


class _Reader:
    def __init__(self, roots: frozenset[str], take: Take, work: Work) -> None:
        self.is_one = False
        self._work = work
        self._roots = roots
        self._take = take
        self._path: Path = ()
        self._attributes: list[dict[str, str]] = []
        self._text: list[str] = []
        self._text_length = 0

    def read(self, content: bytes) -> str | None:
        parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters
        parser.EntityDeclHandler = self._refuse
        first = _first_of(content)
        for begin in range(first, min(len(content), first + MAX_LISTING_BYTES), _PIECE_BYTES):
            piece = content[begin : begin + _PIECE_BYTES]
            self._spend(len(piece))
            parser.Parse(piece, False)
            if begin + len(piece) - first - parser.CurrentByteIndex > _LONGEST_TOKEN_BYTES:
                raise _Stop(f"a tag or comment has more than {_LONGEST_TOKEN_BYTES:,} bytes")
            let_others()
        if len(content) - first > MAX_LISTING_BYTES:
            raise _Stop(f"only the first {MAX_LISTING_BYTES:,} bytes are read")
        parser.Parse(b"", True)
        return "" if self.is_one else None

    def _spend(self, units: int) -> None:
        if not self._work.spend(units):
            raise _Stop(self._work.problem)

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._spend(_OF_ELEMENT * (1 + len(attributes)))
        name = _local(name)
        if not self._path:
            self.is_one = name in self._roots
            if not self.is_one:
                raise _Stop
        if len(self._path) >= _DEEPEST:
            raise _Stop("nested too deep")
        self._path += (name,)
        self._attributes.append({_local(key): value for key, value in attributes.items()})
        self._text.clear()
        self._text_length = 0

    def _end(self, name: str) -> None:
        goes_on = self._take(self._path, self._attributes.pop(), "".join(self._text).strip())
        self._path = self._path[:-1]
        self._text.clear()
        self._text_length = 0
        if not goes_on:
            raise _Stop("it has more entries than are read from one document")

    def _characters(self, text: str) -> None:
        if self._text_length < _LONGEST_TEXT:
            self._text.append(text)
            self._text_length += len(text)

    def _refuse(self, *_: object) -> None:
        raise _Stop("it declares entities, which are not expanded")


def _first_of(content: bytes) -> int:
    """Where the blanks before a document end."""
    position = 0
    while (end := _BLANKS.match(content, position, position + _PIECE_BYTES)) and end.end() > position:
        position = end.end()
    return position


def _local(name: str) -> str:
    return name.rpartition(":")[2]


_SITEMAP_ROOTS = frozenset({"urlset", "sitemapindex"})
_SCHEMES = ("http://", "https://")
_LONGEST_LINE = 8192
# A line that is too long comes in parts, of which the second is no URL.
_LINE = re.compile(rb"([^\r\n]{1,8193})[\r\n]{0,8192}|[\r\n]{1,8192}()")
_MARK = b"\xef\xbb\xbf"


def read_sitemap(content: bytes, work: Work | None = None) -> Listing | None:
    """The entries of a sitemap or sitemap index; None if the document is neither."""
    collector = _SitemapEntry()
    problem = walk(content, _SITEMAP_ROOTS, collector.take, work)
    if problem is None:
        return None
    collector.listing.problem = problem
    return collector.listing


def read_text_sitemap(content: bytes, work: Work | None = None) -> Listing | None:
    """The entries of a text sitemap: only absolute URLs, one per line. None for any other text."""
    work = work or Work()
    listing = Listing([], [])
    for written in _LINE.finditer(content, len(_MARK) if content.startswith(_MARK) else 0):
        if not work.spend(_OF_ELEMENT + written.end() - written.start()):
            listing.problem = work.problem
            break
        for line in (written[1] or b"").decode("utf-8", "replace").splitlines():
            href = line.strip()
            if not href:
                continue
            if not href.startswith(_SCHEMES) or len(href) > _LONGEST_LINE or len(href.split(None, 1)) > 1:
                return None
            if listing.is_full:
                listing.problem = f"more than {MAX_ENTRIES} entries"
                return listing
            listing.pages.append(Entry(href))
    return listing if listing.pages else None


class _SitemapEntry:
    """Collects entries. An entry is complete at the end of its `url` or `sitemap` element."""

    def __init__(self) -> None:
        self.listing = Listing([], [])
        self._href = ""
        self._modified_at: Instant | None = None

    def take(self, path: Path, _: Mapping[str, str], text: str) -> bool:
        match path:
            case (_, "url" | "sitemap", "loc"):
                self._href = text
            case (_, "url" | "sitemap", "lastmod"):
                self._modified_at = instant_of(text)
            case (_, "url" | "sitemap" as name):
                # Some indexes have the URL in the entry itself.
                href = self._href or (text if text.startswith(_SCHEMES) else "")
                entries = self.listing.pages if name == "url" else self.listing.lists
                if href:
                    entries.append(Entry(href, self._modified_at))
                self._href, self._modified_at = "", None
        return not self.listing.is_full


_FEED_ROOTS = frozenset({"rss", "RDF", "feed"})
_PAGE_TYPES = frozenset({"", "text/html", "application/xhtml+xml"})
_LIST_TYPES = frozenset({"", "application/atom+xml", "application/rss+xml"})
_DATES = frozenset({"pubDate", "date", "updated", "published", "modified"})


def read_feed(content: bytes, work: Work | None = None) -> Listing | None:
    """The entries of a feed; None when the document is none."""
    collector = _FeedItem()
    problem = walk(content, _FEED_ROOTS, collector.take, work)
    if problem is None:
        return None
    collector.listing.problem = problem
    return collector.listing


class _FeedItem:
    """Collects entries. An entry is complete at the end of its `item` or `entry` element."""

    def __init__(self) -> None:
        self.listing = Listing([], [], is_feed=True)
        self._href = ""
        self._guid = ""
        self._modified_at: Instant | None = None

    def take(self, path: Path, attributes: Mapping[str, str], text: str) -> bool:
        match path:
            case (*_, "item" | "entry", "link"):
                self._href = self._href or _page_href(attributes, text)
            case (*_, "item", "guid"):
                is_link = attributes.get("isPermaLink", "true").strip().lower() == "true"
                self._guid = text if is_link else ""
            case (*_, "item" | "entry", name) if name in _DATES:
                self._modified_at = max(self._modified_at or Instant(0.0), instant_of(text) or Instant(0.0))
            case (*_, "item" | "entry"):
                self._finish(attributes)
            case ("feed", "link") | ("rss", "channel", "link") | ("RDF", "channel", "link"):
                self._link_of_feed(attributes, text)
            case ("feed",):
                self.listing.base = attributes.get("base")
        return not self.listing.is_full

    def _finish(self, attributes: Mapping[str, str]) -> None:
        href = self._href or self._guid or attributes.get("about", "")
        if href:
            self.listing.pages.append(Entry(href, self._modified_at or None))
        self._href = self._guid = ""
        self._modified_at = None

    def _link_of_feed(self, attributes: Mapping[str, str], text: str) -> None:
        if attributes.get("rel") == "next" and attributes.get("type", "") in _LIST_TYPES:
            if href := attributes.get("href"):
                self.listing.lists.append(Entry(href))
        elif href := _page_href(attributes, text):
            self.listing.pages.append(Entry(href))


def _page_href(attributes: Mapping[str, str], text: str) -> str:
    """The target of a link element if it is a page: an attribute in Atom, the text in RSS."""
    if "href" not in attributes:
        return text
    leads_to_page = attributes.get("rel", "alternate") == "alternate"
    return attributes["href"] if leads_to_page and attributes.get("type", "") in _PAGE_TYPES else ""


XML_TYPES = frozenset({"application/xml", "text/xml", "application/rss+xml", "application/atom+xml"})
GZIP_TYPES = frozenset({"application/gzip", "application/x-gzip"})
_GZIP_NAMES = GZIP_TYPES | {"application/octet-stream"}
LIST_TYPES = XML_TYPES | _GZIP_NAMES
_TEXT = "text/plain"
GZIP_MARK = b"\x1f\x8b"
MAX_LISTING_BYTES = 50 * 1024 * 1024
"""sitemaps.org allows 50 MB uncompressed; the rest is ignored."""


def types_to_read(url: str) -> frozenset[str]:
    """Further media types whose body is read because it may be a list of pages."""
    path = url.partition("?")[0].lower()
    return LIST_TYPES if path.endswith(".gz") else XML_TYPES


def read_listing(content: bytes, media_type: str, url: str, work: Work | None = None) -> Listing | None:
    """The pages that a document lists, or None if it is not a list. Raises only what `work` does."""
    work = work or Work()
    work.allow(MOST_WORK_OF_LIST)
    if media_type in _GZIP_NAMES and content.startswith(GZIP_MARK):
        content = _inflated(content)
        if url.partition("?")[0].lower().endswith(".txt.gz"):
            return read_text_sitemap(content, work)
    elif media_type == _TEXT:
        return read_text_sitemap(content, work)
    elif media_type not in XML_TYPES:
        return None
    return read_sitemap(content, work) or read_feed(content, work)


def _inflated(content: bytes) -> bytes:
    try:
        return zlib.decompressobj(wbits=31).decompress(content, MAX_LISTING_BYTES)
    except zlib.error:
        return b""
