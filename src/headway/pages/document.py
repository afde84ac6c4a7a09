"""Parse a response in one pass: links, directives to robots, title, type.

A redirect leads to its target, at the same depth, and nowhere else. HTML is parsed for links, sitemaps and
feeds for their entries. `Link` and `X-Robots-Tag` headers count for every type.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from functools import lru_cache

from msgspec import structs

from headway.model.page import Page
from headway.pages import LET_OTHERS_EVERY, LONGEST_READ_BYTES, OF_LINK, Work, fingerprint, let_others
from headway.pages.fingerprint import content_digests
from headway.pages.headers import (
    NOTHING_ASKED,
    charset_of,
    in_utf_8,
    links_of,
    media_type_of,
    of_headers,
    of_meta,
    sniffed_type,
)
from headway.pages.parsed import Listing, Markup, Parsed, ParseOptions
from headway.pages.scanner import Found, elements_of
from headway.pages.sitemaps import read_listing
from headway.pages.url import NOTHING_FOUND, canonical, page_of, pages_of
from headway.policy.politeness import forbidden, header_preferences
from headway.policy.scope import product_token
from headway.ports import Response

LEADING_RELS = frozenset(
    {"alternate", "author", "bookmark", "canonical", "child", "contents", "copyright", "end", "first", "help"}
    | {"home", "index", "last", "license", "next", "parent", "prev", "previous", "start", "toc", "top", "up"}
    | {"appendix", "chapter", "glossary", "section", "subsection"}
)
"""Relations of a LINK element to another page for people: navigation in HTML 4 and today, and translations.
Other relations are for the browser (stylesheet, icon, preload, preconnect, manifest), for programs (search,
pingback, EditURI) or another URL of the same page (shortlink, amphtml)."""

_PAGE_TYPES = frozenset({"", "text/html", "application/xhtml+xml", "application/pdf", "text/plain"})
_FEED_TYPES = frozenset({"application/rss+xml", "application/atom+xml"})
_LONGEST_REMEMBERED = 100
_LONGEST_TITLE = 1000
_REFRESH = re.compile(
    r"\s*(?:\d+(?:\.[\d.]*)?|\.[\d.]*)\s*[;,\s]\s*(?:url\s*=\s*)?(.*)", re.IGNORECASE | re.DOTALL
)


def read(
    octets: bytes,
    product_token: str,
    *,
    takes_fingerprint: bool = False,
    most_links: int = sys.maxsize,
    work: Work | None = None,
) -> Markup:
    """Parse the markup of a page in UTF-8, up to `most_links` links, and as far as `work` allows.

    Raises only what `work` does, and takes time linear in the length of the page.
    """
    markup = interpret(elements_of(octets, work), product_token, most_links)
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
    """Whether a LINK element with these attributes is: canonical, a link, a feed, nofollow."""
    rels = frozenset(rel.lower().split())
    media_type = media_type_of(content_type)
    is_feed = media_type in _FEED_TYPES and "alternate" in rels
    return "canonical" in rels, leads_to_a_page(rels, media_type), is_feed, "nofollow" in rels


def leads_to_a_page(rels: frozenset[str], media_type: str) -> bool:
    """Whether to follow a LINK element or Link header. Feeds and data are excluded by their type."""
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
    """The URL of a META refresh; empty if the page only reloads itself."""
    match = _REFRESH.fullmatch(content)
    if match is None:
        return ""
    target = match[1].strip()
    if target[:1] in {'"', "'"}:
        target = target[1:].partition(target[0])[0]
    return target.strip()


HTML_TYPES = frozenset({"text/html", "application/xhtml+xml"})
REDIRECT_STATUSES = frozenset({300, 301, 302, 303, 307, 308})


_WRITTEN_FOR_ONE = 5
_MOST_FEEDS = 10
DEFAULT_OPTIONS = ParseOptions()


def parse(
    response: Response,
    page: Page,
    options: ParseOptions = DEFAULT_OPTIONS,
    digest: str | None = None,
    work: Work | None = None,
) -> Parsed:
    """Parse the response to a request for `page`, as far as `work` allows. Raises only what `work` does,
    whatever the server sent.

    `digest` is that of the body, if it has been computed: with those of other pages, it takes less time.
    """
    work = work or Work()
    if digest is None:
        digest = content_digests([response.body], options.digest)[0] if response.body else ""
    if response.status in REDIRECT_STATUSES and (location := response.header("location")):
        return _parse_redirect(response, page, location, digest, options.secret)
    content = response.body
    declared = response.header("content-type")
    media_type = sniffed_type(media_type_of(declared), content) if content else media_type_of(declared)
    if not 200 <= response.status < 300:
        return Parsed(digest=digest, content_type=media_type)
    if (options.read_sitemaps or options.read_feeds) and media_type not in HTML_TYPES:
        listing = read_listing(content, media_type, page.url, work)
        if listing is not None and (options.read_feeds if listing.is_feed else options.read_sitemaps):
            return _parse_listing(
                listing, page, Parsed(digest=digest, content_type=media_type), work, options.secret
            )
    product = product_token(options.user_agent)
    # Links may occur several times; beyond this many the scan stops.
    most = _WRITTEN_FOR_ONE * options.max_links
    markup, charset, codec = Markup([]), "", "utf-8"
    if media_type in HTML_TYPES:
        if len(content) > LONGEST_READ_BYTES:
            work.stop(
                f"it has {len(content):,} bytes, and the first {LONGEST_READ_BYTES:,} are read for links"
            )
            content = content[:LONGEST_READ_BYTES]
        octets, charset, codec = in_utf_8(content, charset_of(declared))
        markup = read(
            octets, product, takes_fingerprint=options.takes_fingerprints, most_links=most, work=work
        )
    asked = markup.asked
    if robots := [value for key, value in response.headers if key == "x-robots-tag"]:
        asked |= of_headers(robots, product)
    preferences = header_preferences(response.headers, product)
    is_forbidden = bool(preferences) and bool(forbidden(preferences, options.purposes))
    base = (canonical(markup.base, page.url) if markup.base else None) or page.url
    links, named = _links_of_headers(response, page, work)
    if markup.canonical:
        named = canonical(markup.canonical, base) or named
    links += [href for href, nofollow in markup.links if not (nofollow and options.drop_rel_nofollow)]
    home = page if base is page.url else base
    found = NOTHING_FOUND
    if not asked.nofollow:
        found = pages_of(
            links, home, page.depth + 1, codec, most=options.max_links, work=work, secret=options.secret
        )
    # Blogs link to a feed of comments on every page; only the feeds of the seed page list new pages.
    reads_feeds = options.read_feeds and page.depth == 0 and not asked.nofollow
    named_feeds = markup.feeds[:_MOST_FEEDS] if reads_feeds else []
    feeds = pages_of(named_feeds, base, page.depth + 1, secret=options.secret).pages if named_feeds else ()
    return Parsed(
        links=tuple(found.pages),
        noindex=asked.noindex or is_forbidden,
        nofollow=asked.nofollow,
        title=markup.title,
        canonical=named,
        digest=digest,
        fingerprint=markup.fingerprint,
        charset=charset,
        content_type=media_type,
        skipped_links=found.skipped,
        lists=tuple(feeds),
        problem=work.problem,
        preferences=preferences,
    )


def _parse_listing(listing: Listing, page: Page, parsed: Parsed, work: Work, secret: bytes) -> Parsed:
    base = (canonical(listing.base, page.url) if listing.base else None) or page.url
    pages, modified_at = {}, {}
    for number, (href, changed_at) in enumerate(listing.pages, 1):
        if not number % LET_OTHERS_EVERY:
            let_others()
        if not work.spend(OF_LINK + len(base) + len(href)):
            break
        found = page_of(href, base, page.depth + 1, secret=secret)
        if found is not None:
            pages[found.key] = found
            if changed_at is not None:
                modified_at[found.key] = changed_at
    hrefs = [entry.href for entry in listing.lists]
    lists = pages_of(hrefs, base, page.depth + 1, work=work, secret=secret)
    if listing.problem:
        work.stop(listing.problem)
    return structs.replace(
        parsed,
        links=tuple(pages.values()),
        lists=tuple(lists.pages),
        is_list=True,
        modified_at=modified_at,
        skipped_links=len(listing.pages) - len(pages) + lists.skipped,
        problem=work.problem,
    )


def _links_of_headers(response: Response, page: Page, work: Work) -> tuple[list[str], str | None]:
    """The links of Link headers, and the canonical URL. A BASE element does not apply to them."""
    links, named = [], None
    for header in links_of([value for key, value in response.headers if key == "link"]):
        if not work.spend(OF_LINK + len(page.url) + len(header.href)):
            break
        target = canonical(header.href, page.url)
        if target is not None and leads_to_a_page(header.rels, header.media_type):
            links.append(target)
        if "canonical" in header.rels:
            named = named or target
    return links, named


def _parse_redirect(response: Response, page: Page, location: str, digest: str, secret: bytes) -> Parsed:
    target = page_of(_as_sent(location), page.url, page.depth, page.score, secret)
    leads_elsewhere = target is not None and target.url != page.url
    return Parsed(
        links=(target,) if target is not None and leads_elsewhere else (),
        content_type=media_type_of(response.header("content-type")),
        digest=digest,
        skipped_links=int(target is None),
    )


def _as_sent(location: str) -> str:
    """Decode a Location header again: servers send raw UTF-8, which is latin-1 text here."""
    try:
        return location.encode("latin-1").decode("utf-8")
    except UnicodeError:
        return location
