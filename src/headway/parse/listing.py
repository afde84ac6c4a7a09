"""Documents that are lists of pages: sitemaps, sitemap indexes and feeds, told by what they hold.

A content type says little here: sitemaps come as XML, as text and as gzip whatever the server calls them.
"""

from __future__ import annotations

import zlib

from headway.parse.feed import read_feed
from headway.parse.listed import Listing
from headway.parse.sitemap import read_sitemap, read_text_sitemap

XML_TYPES = frozenset({"application/xml", "text/xml", "application/rss+xml", "application/atom+xml"})
GZIP_TYPES = frozenset({"application/gzip", "application/x-gzip"})
_GZIP_NAMES = GZIP_TYPES | {"application/octet-stream"}
LIST_TYPES = XML_TYPES | _GZIP_NAMES
_TEXT = "text/plain"
GZIP_MARK = b"\x1f\x8b"
MAX_LISTING_BYTES = 50 * 1024 * 1024
"""sitemaps.org allows 50 MB uncompressed; what lies beyond counts as if it were not there."""


def types_to_read(url: str) -> frozenset[str]:
    """Media types, beyond the wanted ones, whose body is read because it may be a list of pages."""
    path = url.partition("?")[0].lower()
    return LIST_TYPES if path.endswith(".gz") else XML_TYPES


def read_listing(content: bytes, media_type: str, url: str) -> Listing | None:
    """The pages that a document lists, or None when it is no list. Never raises."""
    if media_type in _GZIP_NAMES and content.startswith(GZIP_MARK):
        content = _inflated(content)
        if url.partition("?")[0].lower().endswith(".txt.gz"):
            return read_text_sitemap(content)
    elif media_type == _TEXT:
        return read_text_sitemap(content)
    elif media_type not in XML_TYPES:
        return None
    return read_sitemap(content) or read_feed(content)


def _inflated(content: bytes) -> bytes:
    try:
        return zlib.decompressobj(wbits=31).decompress(content, MAX_LISTING_BYTES)
    except zlib.error:
        return b""
