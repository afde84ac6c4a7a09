"""What an HTML page says: where it leads, what it asks of robots, its title."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from functools import lru_cache

from headway.parse import fingerprint
from headway.parse.directives import NOTHING_ASKED, of_meta
from headway.parse.headers import media_type_of
from headway.parse.markup import Markup
from headway.parse.scanner import Found, elements_of
from headway.parse.turns import LET_OTHERS_EVERY, let_others

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
_LONGEST_TITLE = 1000
_REFRESH = re.compile(
    r"\s*(?:\d+(?:\.[\d.]*)?|\.[\d.]*)\s*[;,\s]\s*(?:url\s*=\s*)?(.*)", re.IGNORECASE | re.DOTALL
)


def read(
    octets: bytes, product_token: str, *, takes_fingerprint: bool = False, most_links: int = sys.maxsize
) -> Markup:
    """Read a page's markup, in UTF-8, as far as the last of so many links.

    Never raises, and takes time in proportion to the length of the page.
    """
    markup = interpret(elements_of(octets), product_token, most_links)
    if takes_fingerprint and not markup.moves_on:
        markup.fingerprint = fingerprint.of_page(octets)
    return markup


def interpret(elements: Iterable[Found], product_token: str, most_links: int = sys.maxsize) -> Markup:
    markup = Markup([])
    links = markup.links
    has_title = False
    for number, element in enumerate(elements, 1):
        if not number % LET_OTHERS_EVERY:
            let_others()
        if isinstance(element, str):
            if element:
                links.append((element, False))
        elif element[0] != "title":
            _take_in(markup, element[0], element[1], product_token)
        elif not has_title:
            has_title = True
            markup.title = " ".join((element[1]["text"] or "").split())[:_LONGEST_TITLE].rstrip()
        if len(links) >= most_links:
            break
    return markup


def _take_in(markup: Markup, name: str, attributes: Mapping[str, str | None], product_token: str) -> None:
    if name in {"a", "area"}:
        if href := attributes.get("href"):
            nofollow = "rel" in attributes and "nofollow" in (attributes["rel"] or "").lower()
            markup.links.append((href, nofollow))
    elif name in {"frame", "iframe"}:
        if src := attributes.get("src"):
            markup.links.append((src, False))
    elif name == "link":
        _read_link(markup, attributes)
    elif name == "meta":
        _read_meta(markup, attributes, product_token)
    elif name == "base":
        markup.base = markup.base or attributes.get("href") or None


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
    equivalent = attributes.get("http-equiv")
    if equivalent and equivalent.lower() == "refresh":
        if target := refresh_target(attributes.get("content") or ""):
            markup.links.append((target, False))
            markup.moves_on = True
    elif name := attributes.get("name"):
        asked = of_meta(name, attributes.get("content") or "", product_token)
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
