"""What an HTML page says: where it leads, what it asks of robots, its title."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from functools import lru_cache

import msgspec

from headway.parse import fingerprint
from headway.parse.directives import NOTHING_ASKED, Directives, of_meta
from headway.parse.headers import media_type_of
from headway.parse.scanner import Element, elements_of

LEADING_RELS = frozenset(
    {"alternate", "author", "bookmark", "canonical", "child", "contents", "copyright", "end", "first", "help"}
    | {"home", "index", "last", "license", "next", "parent", "prev", "previous", "start", "toc", "top", "up"}
    | {"appendix", "chapter", "glossary", "section", "subsection"}
)
"""Relations of a LINK element to another page for people: HTML 4's and today's navigation, and translations.
The rest is for the browser (stylesheet, icon, preload, preconnect, manifest), for programs (search,
pingback, EditURI) or another spelling of the same page (shortlink, amphtml)."""

_PAGE_TYPES = frozenset({"", "text/html", "application/xhtml+xml", "application/pdf", "text/plain"})
_FEED_TYPES = frozenset({"application/rss+xml", "application/atom+xml"})
_LONGEST_REMEMBERED = 100
_REFRESH = re.compile(
    r"\s*(?:\d+(?:\.[\d.]*)?|\.[\d.]*)\s*[;,\s]\s*(?:url\s*=\s*)?(.*)", re.IGNORECASE | re.DOTALL
)


class Markup(msgspec.Struct):
    """What was found, hrefs still as they are written."""

    links: list[tuple[str, bool]]
    """The href and whether it is marked `rel=nofollow`, in document order."""
    base: str | None = None
    canonical: str | None = None
    title: str = ""
    asked: Directives = NOTHING_ASKED
    feeds: list[str] = msgspec.field(default_factory=list)
    moves_on: bool = False
    """It has a refresh to another page: what it says itself is beside the point."""
    fingerprint: int = fingerprint.NO_FINGERPRINT


def read(
    text: str, product_token: str, *, takes_fingerprint: bool = False, most_links: int = sys.maxsize
) -> Markup:
    """Read a page's markup, as far as the last of so many links.

    Never raises, and takes time in proportion to the length of the page.
    """
    markup = interpret(elements_of(text), product_token, most_links)
    if takes_fingerprint and not markup.moves_on:
        markup.fingerprint = fingerprint.of_text(text)
    return markup


def interpret(elements: Iterable[Element], product_token: str, most_links: int = sys.maxsize) -> Markup:
    markup = Markup([])
    links = markup.links
    has_title = False
    for name, attributes in elements:
        if name == "a" or name == "area":  # noqa: PLR1714  the first is nearly always it
            if href := attributes.get("href"):
                links.append((href, "rel" in attributes and "nofollow" in (attributes["rel"] or "").lower()))
                if len(links) >= most_links:
                    break
        elif name in {"frame", "iframe"}:
            if src := attributes.get("src"):
                links.append((src, False))
        elif name == "link":
            _read_link(markup, attributes)
        elif name == "meta":
            _read_meta(markup, attributes, product_token)
        elif name == "base":
            markup.base = markup.base or attributes.get("href") or None
        elif not has_title:
            has_title = True
            markup.title = " ".join((attributes["text"] or "").split())
    return markup


def _read_link(markup: Markup, attributes: Mapping[str, str | None]) -> None:
    href = attributes.get("href")
    if not href:
        return
    rel, media_type = attributes.get("rel") or "", attributes.get("type") or ""
    judge = _judge if len(rel) + len(media_type) <= _LONGEST_REMEMBERED else _judge.__wrapped__
    is_canonical, leads, is_feed, nofollow = judge(rel, media_type)
    if is_canonical:
        markup.canonical = markup.canonical or href
    if leads:
        markup.links.append((href, nofollow))
    elif is_feed:
        markup.feeds.append(href)


@lru_cache(maxsize=512)
def _judge(rel: str, content_type: str) -> tuple[bool, bool, bool, bool]:
    """What a LINK element with these attributes is: canonical, a link, a feed, one not to be followed."""
    rels = frozenset(rel.lower().split())
    media_type = media_type_of(content_type)
    is_feed = media_type in _FEED_TYPES and "alternate" in rels
    return "canonical" in rels, leads_to_a_page(rels, media_type), is_feed, "nofollow" in rels


def leads_to_a_page(rels: frozenset[str], media_type: str) -> bool:
    """Whether a LINK element or a Link header is worth following; feeds and data are told by their type."""
    return not rels.isdisjoint(LEADING_RELS) and "stylesheet" not in rels and media_type in _PAGE_TYPES


def _read_meta(markup: Markup, attributes: Mapping[str, str | None], product_token: str) -> None:
    content = attributes.get("content") or ""
    if (attributes.get("http-equiv") or "").lower() == "refresh":
        if target := refresh_target(content):
            markup.links.append((target, False))
            markup.moves_on = True
    elif name := attributes.get("name"):
        asked = of_meta(name, content, product_token)
        if asked is not NOTHING_ASKED:
            markup.asked |= asked


def refresh_target(content: str) -> str:
    """The URL of a META refresh, empty when the page only reloads itself."""
    match = _REFRESH.fullmatch(content)
    if match is None:
        return ""
    target = match[1].strip()
    if target[:1] in {'"', "'"}:
        target = target[1:].partition(target[0])[0]
    return target.strip()
