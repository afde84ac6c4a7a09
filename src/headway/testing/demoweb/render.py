"""From a page design to the bytes of its content, once the origins (and so the ports) are known."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Mapping
from functools import cache
from html import escape
from random import Random

import brotlicffi
import zstandard

from headway.testing.demoweb import documents
from headway.testing.demoweb.hypertext import html_page
from headway.testing.demoweb.page import HTML_LAYOUTS, Layout, LinkKind, PageDesign, Place
from headway.testing.demoweb.site import SiteDesign
from headway.testing.demoweb.words import Sentences

_SITEMAP_XMLNS = 'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'
CHANGED_ON = "2026-11-02"
"""The day on which every page of the demo web was last changed, as its sitemaps and feeds say."""


def content_of(site: SiteDesign, page: PageDesign, origins: Mapping[str, str]) -> bytes:
    """The body before content coding. The same design and origins give the same bytes."""
    if page.copy_of:
        page = site.pages[page.copy_of]
    rng = Random(f"{site.seed}{page.path}")
    if page.layout in HTML_LAYOUTS:
        hint = page.charset if page.charset != "utf-8" else ""
        return html_page(site, page, origins, _sentences(site.seed, hint).stream(rng))
    ascii_text = _sentences(site.seed, "").stream(rng)
    match page.layout:
        case Layout.TEXT:
            return documents.plain_text(page.title, ascii_text, page.size_bytes)
        case Layout.PDF:
            return documents.pdf(page.title, ascii_text, page.size_bytes)
        case Layout.POSTSCRIPT:
            return documents.postscript(page.title, ascii_text, page.size_bytes)
        case Layout.PNG:
            return documents.png(rng.randrange(256), page.size_bytes)
        case Layout.CSS:
            return documents.stylesheet(page.size_bytes)
        case Layout.ZIP:
            return documents.empty_zip(page.size_bytes)
    return _service_file(site, page, origins)


def encoded(content: bytes, coding: str) -> bytes:
    """With the content coding put on; the same bytes every time."""
    match coding:
        case "gzip":
            return _gzip(content)
        case "deflate":
            return zlib.compress(content, 6)
        case "br":
            compressed: bytes = brotlicffi.compress(content, quality=4)
            return compressed
        case "zstd":
            return zstandard.ZstdCompressor(level=3).compress(content)
    raise ValueError(f"unknown content coding {coding!r}")


def _gzip(content: bytes) -> bytes:
    data = bytearray(gzip.compress(content, 6, mtime=0))
    data[9] = 255  # "unknown system": what stands here differs between versions of Python
    return bytes(data)


@cache
def _sentences(seed: str, charset: str) -> Sentences:
    return Sentences(seed, charset)


def _service_file(site: SiteDesign, page: PageDesign, origins: Mapping[str, str]) -> bytes:
    match page.layout:
        case Layout.ROBOTS:
            return _robots(site, origins).encode()
        case Layout.FEED:
            return _feed(site, page, origins).encode()
        case Layout.SITEMAP:
            text = _sitemap("urlset", "url", page, origins)
        case Layout.SITEMAP_INDEX:
            text = _sitemap("sitemapindex", "sitemap", page, origins)
        case Layout.REDIRECT:
            return f"<!doctype html>\n<title>Moved</title>\n<p>{escape(page.title)}</p>\n".encode()
        case _:
            raise ValueError(f"no way to render {page.layout}")
    return _gzip(text.encode()) if page.path.endswith(".gz") else text.encode()


def _robots(site: SiteDesign, origins: Mapping[str, str]) -> str:
    lines = [f"# {site.title}"]
    for group in site.robots:
        lines += ["", *(f"User-agent: {agent}" for agent in group.agents)]
        lines += [f"Disallow: {pattern}" for pattern in group.disallow]
        lines += [f"Allow: {pattern}" for pattern in group.allow]
        if group.crawl_delay_s is not None:
            lines.append(f"Crawl-delay: {group.crawl_delay_s:g}")
    lines += ["", *(f"Sitemap: {Place(site.name, path).url(origins)}" for path in site.sitemaps)]
    return "\n".join(lines).rstrip() + "\n"


def _sitemap(outer: str, inner: str, page: PageDesign, origins: Mapping[str, str]) -> str:
    entries = "".join(
        f"<{inner}><loc>{escape(link.to.url(origins))}</loc><lastmod>{CHANGED_ON}</lastmod></{inner}>\n"
        for link in page.links
        if link.to is not None
    )
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<{outer} {_SITEMAP_XMLNS}>\n{entries}</{outer}>\n'


def _feed(site: SiteDesign, page: PageDesign, origins: Mapping[str, str]) -> str:
    home = escape(site.home.url(origins))
    entries = "".join(
        f"<entry><title>{escape(link.text)}</title><id>{url}</id>"
        f'<link href="{url}"/><updated>{CHANGED_ON}T08:00:00Z</updated></entry>\n'
        for link in page.links
        if link.to is not None and link.kind is LinkKind.A
        for url in [escape(link.to.url(origins))]
    )
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<feed xmlns="http://www.w3.org/2005/Atom">\n'
        f"<title>{escape(site.title)}</title><id>{home}</id>"
        f"<updated>{CHANGED_ON}T08:00:00Z</updated>\n{entries}</feed>\n"
    )
