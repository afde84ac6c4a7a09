"""Sitemaps and feeds: what is listed is found, whatever the dress; what is broken or hostile harms nobody."""

from __future__ import annotations

import gzip
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.model.page import Kind, Page
from headway.pages.document import parse
from headway.pages.parsed import MAX_ENTRIES, Parsed, ParseOptions, instant_of
from headway.pages.sitemaps import read_listing, read_sitemap, read_text_sitemap
from headway.pages.url import page_of
from headway.ports import Response
from headway.units import Instant, Seconds

SITEMAP = b"""<?xml version="1.0" encoding="UTF-8"?>
<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:image="http://www.google.com/schemas/sitemap-image/1.1">
  <url><loc> http://a.test/one </loc><lastmod>2005-01-01</lastmod></url>
  <url><loc>http://a.test/two?x=1&amp;y=2</loc><image:image><image:loc>http://a.test/i.png</image:loc></image:image></url>
</urlset>"""
INDEX = b"""<sitemapindex><sitemap><loc>http://a.test/s1.xml.gz</loc><lastmod>2024-05-01T10:00:00+02:00</lastmod>
</sitemap><sitemap>http://a.test/s2.xml</sitemap></sitemapindex>"""
RSS = b"""<rss version="2.0"><channel><link>http://a.test/</link>
<item><title>x</title><link>http://a.test/post/1</link><pubDate>Thu, 05 Jan 2017 12:34:50 GMT</pubDate></item>
<item><guid isPermaLink="true">http://a.test/post/2</guid></item>
<item><guid isPermaLink="false">77</guid></item></channel></rss>"""
RDF = b"""<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"><channel/>
<item rdf:about="http://a.test/post/3"><title/></item></rdf:RDF>"""
ATOM = b"""<feed xmlns="http://www.w3.org/2005/Atom" xml:base="http://a.test/blog/">
<link rel="self" href="atom.xml"/><link rel="next" type="application/atom+xml" href="atom2.xml"/>
<entry><link rel="edit" href="edit/1"/><link href="post/1"/><updated>2003-12-13T18:30:02Z</updated>
</entry></feed>"""
BOMB = b"""<?xml version="1.0"?><!DOCTYPE urlset [<!ENTITY a "http://a.test/xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx">
<!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;&b;&b;">
<!ENTITY d "&c;&c;&c;&c;&c;&c;&c;&c;&c;&c;"><!ENTITY e "&d;&d;&d;&d;&d;&d;&d;&d;&d;&d;">]>
<urlset><url><loc>&e;</loc></url></urlset>"""
EXTERNAL = b"""<!DOCTYPE urlset [<!ENTITY x SYSTEM "file:///etc/passwd">]>
<urlset><url><loc>http://a.test/&x;</loc></url></urlset>"""
VECTORS = Path(__file__).resolve().parents[3] / "shared" / "data" / "vectors" / "sitemaps"


def hrefs(
    content: bytes, media_type: str = "application/xml", url: str = "http://a.test/sitemap.xml"
) -> list[str]:
    listing = read_listing(content, media_type, url)
    assert listing is not None
    return [entry.href for entry in listing.pages]


def parsed(content: bytes, media_type: str, url: str = "http://a.test/list", depth: int = 0) -> Parsed:
    page = page_of(url, depth=depth)
    assert page is not None
    response = Response(
        Kind.FETCHED, url, Instant(0.0), Seconds(0.0), 200, (("content-type", media_type),), body=content
    )
    return parse(response, page, ParseOptions(read_sitemaps=True, read_feeds=True))


def urls(pages: tuple[Page, ...]) -> list[str]:
    return [page.url for page in pages]


def test_a_sitemap_gives_its_pages_and_not_its_pictures() -> None:
    assert hrefs(SITEMAP) == ["http://a.test/one", "http://a.test/two?x=1&y=2"]


def test_a_sitemap_says_when_its_pages_changed() -> None:
    listing = read_sitemap(SITEMAP)
    assert listing is not None
    assert [entry.modified_at for entry in listing.pages] == [1104537600.0, None]


def test_an_index_gives_further_lists_also_without_loc_elements() -> None:
    listing = read_sitemap(INDEX)
    assert listing is not None
    assert not listing.pages
    assert [entry.href for entry in listing.lists] == ["http://a.test/s1.xml.gz", "http://a.test/s2.xml"]
    assert listing.lists[0].modified_at == 1714550400.0


@pytest.mark.parametrize("media_type", ["application/gzip", "application/x-gzip", "application/octet-stream"])
def test_a_compressed_sitemap_is_read_whatever_the_server_calls_it(media_type: str) -> None:
    assert hrefs(gzip.compress(SITEMAP), media_type, "http://a.test/s.xml.gz")[0] == "http://a.test/one"


def test_a_sitemap_that_explodes_is_cut_at_the_limit_of_the_standard() -> None:
    bomb = gzip.compress(b"<urlset>" + b" " * 200_000_000, 9)
    began = time.process_time()
    listing = read_listing(bomb, "application/gzip", "http://a.test/s.xml.gz")
    assert listing is not None
    assert not listing.pages
    assert time.process_time() - began < 5


@pytest.mark.parametrize("hostile", [BOMB, EXTERNAL])
def test_entities_are_never_expanded(hostile: bytes) -> None:
    assert read_listing(hostile, "application/xml", "http://a.test/s.xml") is None


def test_what_stands_before_a_mistake_counts() -> None:
    broken = SITEMAP.replace(b"</urlset>", b"<url><loc>http://a.test/three</url>")
    listing = read_sitemap(broken)
    assert listing is not None
    assert [entry.href for entry in listing.pages][:2] == ["http://a.test/one", "http://a.test/two?x=1&y=2"]
    assert "not well-formed" in listing.problem


def test_no_more_entries_are_taken_than_the_standard_allows() -> None:
    many = b"<urlset>" + b"<url><loc>http://a.test/x</loc></url>" * (MAX_ENTRIES + 10) + b"</urlset>"
    listing = read_sitemap(many)
    assert listing is not None
    assert len(listing.pages) == MAX_ENTRIES
    assert listing.problem


def test_a_document_nested_without_end_is_left() -> None:
    listing = read_sitemap(b"<urlset>" + b"<url>" * 100_000)
    assert listing is not None
    assert listing.problem == "nested too deep"


def test_a_text_of_urls_is_a_sitemap_and_any_other_text_is_not() -> None:
    listing = read_text_sitemap(b"\xef\xbb\xbfhttp://a.test/1\r\n\r\nhttps://a.test/2\n")
    assert listing is not None
    assert [entry.href for entry in listing.pages] == ["http://a.test/1", "https://a.test/2"]
    for other in (b"", b"see http://a.test/1", b"http://a.test/1\nand more", b"http://a.test/1 x"):
        assert read_text_sitemap(other) is None


def test_feeds_give_their_entries() -> None:
    assert hrefs(RSS, "application/rss+xml") == [
        "http://a.test/",
        "http://a.test/post/1",
        "http://a.test/post/2",
    ]
    assert hrefs(RDF, "text/xml") == ["http://a.test/post/3"]


def test_an_atom_feed_is_read_against_its_base_and_leads_on_to_its_next_page() -> None:
    feed = parsed(ATOM, "application/atom+xml", "http://a.test/blog/atom.xml")
    assert urls(feed.links) == ["http://a.test/blog/post/1"]
    assert urls(feed.lists) == ["http://a.test/blog/atom2.xml"]
    assert list(feed.modified_at.values()) == [1071340202.0]


def test_xml_that_lists_nothing_is_no_list() -> None:
    assert not parsed(b"<svg><a href='/x'/></svg>", "application/xml").is_list


def test_the_first_page_of_a_site_leads_to_its_feeds_and_later_ones_do_not() -> None:
    page = b'<link rel="alternate" type="application/rss+xml" href="/feed.xml"><a href="/b">b</a>'
    assert urls(parsed(page, "text/html").lists) == ["http://a.test/feed.xml"]
    assert not parsed(page, "text/html", depth=1).lists
    assert urls(parsed(page, "text/html").links) == ["http://a.test/b"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2005", 1104537600.0),
        ("2005-01", 1104537600.0),
        ("2005-01-01T00:00Z", 1104537600.0),
        ("Sat, 01 Jan 2005 00:00:00 GMT", 1104537600.0),
        ("yesterday", None),
        ("", None),
        ("9" * 80, None),
    ],
)
def test_dates_are_read_as_sitemaps_and_feeds_write_them(text: str, expected: float | None) -> None:
    assert instant_of(text) == expected


@given(st.binary(max_size=400))
def test_no_bytes_make_a_reader_raise(content: bytes) -> None:
    for media_type in ("application/xml", "application/gzip", "text/plain"):
        for start in (b"", b"<urlset>", b"<rss><channel><item>", b"\x1f\x8b"):
            read_listing(start + content, media_type, "http://a.test/x.gz")


@given(st.text(max_size=60))
def test_no_text_makes_the_reader_of_dates_raise(text: str) -> None:
    instant_of(text)


@pytest.mark.skipif(not VECTORS.exists(), reason="the shared sitemap vectors are not here")
@pytest.mark.parametrize(
    ("name", "pages", "lists"),
    [
        ("sitemap.badns.xml", 2, 0),
        ("sitemap.ns.xml", 2, 0),
        ("sitemap.index.xml", 0, 15),
        ("atom.xml", 2, 0),
        ("rss/feed.rss", 4, 0),
        ("rss/xmlRss_pubDate.xml", 8, 0),
        ("xmlSitemap.gz", 5, 0),
        ("sitemap.txt.gz", 5, 0),
        ("sitemap-with-bom.txt", 2, 0),
        ("extension/sitemap-images.xml", 1, 0),
        ("extension/sitemap-videos.xml", 3, 0),
        ("extension/sitemap-links.xml", 3, 0),
    ],
)
def test_lists_that_others_wrote_are_read(name: str, pages: int, lists: int) -> None:
    types = {".txt": "text/plain", ".gz": "application/gzip"}
    media_type = types.get(Path(name).suffix, "text/xml")
    listing = read_listing((VECTORS / name).read_bytes(), media_type, f"http://a.test/{Path(name).name}")
    assert listing is not None
    assert (len(listing.pages), len(listing.lists)) == (pages, lists)
