"""What an HTML page says: where it leads, what it asks of robots, its title.

Lexbor builds the tree of a page of ordinary length; a long one, on which its time may grow with the square
of the nesting or of a tag's attributes, is read by the linear scanner instead. Both give the same elements.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

import msgspec
from selectolax.lexbor import LexborHTMLParser

from headway.parse import fingerprint
from headway.parse.directives import NOTHING_ASKED, Directives, of_meta
from headway.parse.headers import media_type_of
from headway.parse.scanner import Element, scan

LONGEST_FOR_TREE = 32_768
"""Characters. The worst page of this length that we could make up keeps lexbor busy for about 0.1 s."""

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
_SELECTOR = "a,area,base,frame,iframe,link,meta,title"
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


def read(text: str, product_token: str, *, takes_fingerprint: bool = False) -> Markup:
    """Read a page's markup. Never raises, and takes time in proportion to the length of the page."""
    tree = LexborHTMLParser(text) if len(text) <= LONGEST_FOR_TREE else None
    markup = interpret(scan(text) if tree is None else _elements(tree), product_token)
    if takes_fingerprint and not markup.moves_on:
        markup.fingerprint = fingerprint.of_text(text) if tree is None else fingerprint.of_tree(tree, text)
    return markup


def tree_elements(text: str) -> Iterator[Element]:
    """The same as `scanner.scan` gives, by way of a tree."""
    return _elements(LexborHTMLParser(text))


def _elements(tree: LexborHTMLParser) -> Iterator[Element]:
    for node in tree.css(_SELECTOR):
        name = node.tag or ""
        yield name, {"text": node.text()} if name == "title" else node.attributes


def interpret(elements: Iterable[Element], product_token: str) -> Markup:
    markup = Markup([])
    links = markup.links
    has_title = False
    for name, attributes in elements:
        if name in {"a", "area"}:
            if href := attributes.get("href"):
                links.append((href, "nofollow" in (attributes.get("rel") or "").lower()))
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
    rels = frozenset((attributes.get("rel") or "").lower().split())
    if "canonical" in rels:
        markup.canonical = markup.canonical or href
    media_type = media_type_of(attributes.get("type") or "")
    if leads_to_a_page(rels, media_type):
        markup.links.append((href, "nofollow" in rels))
    elif media_type in _FEED_TYPES and "alternate" in rels:
        markup.feeds.append(href)


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
        markup.asked |= of_meta(name, content, product_token)


def refresh_target(content: str) -> str:
    """The URL of a META refresh, empty when the page only reloads itself."""
    match = _REFRESH.fullmatch(content)
    if match is None:
        return ""
    target = match[1].strip()
    if target[:1] in {'"', "'"}:
        target = target[1:].partition(target[0])[0]
    return target.strip()
