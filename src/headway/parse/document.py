"""A response read once: where it leads, what it asks of robots, what it is.

A redirect leads to its target, at the same depth, and nowhere else. HTML is read for links, and sitemaps and
feeds for what they list; `Link` and `X-Robots-Tag` headers count for every type.
"""

from __future__ import annotations

from msgspec import structs

from headway.model.page import Page
from headway.parse.charset import in_utf_8
from headway.parse.digest import content_digest
from headway.parse.directives import of_headers
from headway.parse.headers import charset_of, links_of, media_type_of
from headway.parse.links import leads_to_a_page, read
from headway.parse.listed import Listing
from headway.parse.listing import read_listing
from headway.parse.markup import Markup
from headway.parse.parsed import Parsed, ParseOptions
from headway.parse.sniff import sniffed_type
from headway.parse.turns import LET_OTHERS_EVERY, let_others
from headway.parse.url import NOTHING_FOUND, canonical, page_of, pages_of
from headway.policy.identity import product_token
from headway.ports import Response

HTML_TYPES = frozenset({"text/html", "application/xhtml+xml"})
REDIRECT_STATUSES = frozenset({300, 301, 302, 303, 307, 308})


_WRITTEN_FOR_ONE = 5
_MOST_FEEDS = 10
DEFAULT_OPTIONS = ParseOptions()


def parse(response: Response, page: Page, options: ParseOptions = DEFAULT_OPTIONS) -> Parsed:
    """Read an answer to a request for `page`. Never raises, whatever the server sent."""
    if response.status in REDIRECT_STATUSES and (location := response.header("location")):
        return _parse_redirect(response, page, location)
    content = response.body
    declared = response.header("content-type")
    media_type = sniffed_type(media_type_of(declared), content) if content else media_type_of(declared)
    digest = content_digest(content) if content else ""
    if not 200 <= response.status < 300:
        return Parsed(digest=digest, content_type=media_type)
    if (options.read_sitemaps or options.read_feeds) and media_type not in HTML_TYPES:
        listing = read_listing(content, media_type, page.url)
        if listing is not None and (options.read_feeds if listing.is_feed else options.read_sitemaps):
            return _parse_listing(listing, page, Parsed(digest=digest, content_type=media_type))
    product = product_token(options.user_agent)
    # Some are written more than once; beyond so many they are not even looked for.
    most = _WRITTEN_FOR_ONE * options.max_links
    markup, charset, codec = Markup([]), "", "utf-8"
    if media_type in HTML_TYPES:
        octets, charset, codec = in_utf_8(content, charset_of(declared))
        markup = read(octets, product, takes_fingerprint=options.takes_fingerprints, most_links=most)
    asked = markup.asked
    if robots := [value for key, value in response.headers if key == "x-robots-tag"]:
        asked |= of_headers(robots, product)
    base = (canonical(markup.base, page.url) if markup.base else None) or page.url
    links, named = _links_of_headers(response, page)
    if markup.canonical:
        named = canonical(markup.canonical, base) or named
    links += [href for href, nofollow in markup.links if not (nofollow and options.drop_rel_nofollow)]
    home = page if base is page.url else base
    found = NOTHING_FOUND
    if not asked.nofollow:
        found = pages_of(links, home, page.depth + 1, codec, most=options.max_links)
    # Blogs name a feed of comments on every page; those that the first page names have what is new.
    reads_feeds = options.read_feeds and page.depth == 0 and not asked.nofollow
    feeds = pages_of(markup.feeds[:_MOST_FEEDS], base, page.depth + 1).pages if reads_feeds else ()
    return Parsed(
        links=tuple(found.pages),
        noindex=asked.noindex,
        nofollow=asked.nofollow,
        title=markup.title,
        canonical=named,
        digest=digest,
        fingerprint=markup.fingerprint,
        charset=charset,
        content_type=media_type,
        skipped_links=found.skipped,
        lists=tuple(feeds),
    )


def _parse_listing(listing: Listing, page: Page, parsed: Parsed) -> Parsed:
    base = (canonical(listing.base, page.url) if listing.base else None) or page.url
    pages, modified_at = {}, {}
    for number, (href, changed_at) in enumerate(listing.pages, 1):
        if not number % LET_OTHERS_EVERY:
            let_others()
        found = page_of(href, base, page.depth + 1)
        if found is not None:
            pages[found.key] = found
            if changed_at is not None:
                modified_at[found.key] = changed_at
    lists = pages_of([entry.href for entry in listing.lists], base, page.depth + 1)
    return structs.replace(
        parsed,
        links=tuple(pages.values()),
        lists=tuple(lists.pages),
        is_list=True,
        modified_at=modified_at,
        skipped_links=len(listing.pages) - len(pages) + lists.skipped,
    )


def _links_of_headers(response: Response, page: Page) -> tuple[list[str], str | None]:
    """Where Link headers lead, and what they call the page. A BASE element does not bend them."""
    links, named = [], None
    for header in links_of([value for key, value in response.headers if key == "link"]):
        target = canonical(header.href, page.url)
        if target is not None and leads_to_a_page(header.rels, header.media_type):
            links.append(target)
        if "canonical" in header.rels:
            named = named or target
    return links, named


def _parse_redirect(response: Response, page: Page, location: str) -> Parsed:
    target = page_of(_as_sent(location), page.url, page.depth, page.score)
    leads_elsewhere = target is not None and target.url != page.url
    return Parsed(
        links=(target,) if target is not None and leads_elsewhere else (),
        content_type=media_type_of(response.header("content-type")),
        digest=content_digest(response.body) if response.body else "",
        skipped_links=int(target is None),
    )


def _as_sent(location: str) -> str:
    """Servers put raw UTF-8 in Location, which arrives here as latin-1 text."""
    try:
        return location.encode("latin-1").decode("utf-8")
    except UnicodeError:
        return location
