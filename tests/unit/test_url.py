from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.pages.url import LONGEST_HREF, canonical, key_of, page_of, pages_of

BASE = "http://www.example.org/docs/guide/start.html"


@pytest.mark.parametrize(
    ("href", "expected"),
    [
        ("http://Example.ORG", "http://example.org/"),
        ("HTTPS://example.org:443/x", "https://example.org/x"),
        ("http://example.org:80/x", "http://example.org/x"),
        ("http://example.org:8080/x", "http://example.org:8080/x"),
        ("http://example.org/a/./b/../c", "http://example.org/a/c"),
        ("http://example.org/a/%2e%2E/c", "http://example.org/c"),
        ("http://example.org/x#part", "http://example.org/x"),
        ("http://example.org/x?#", "http://example.org/x"),
        ("http://example.org/x?a=b#c?d", "http://example.org/x?a=b"),
        ("http:\\\\example.org\\a\\b", "http://example.org/a/b"),
        ("  http://example.org/\tx\n ", "http://example.org/x"),
        ("http://example.org/a b", "http://example.org/a%20b"),
        ("http://bücher.example/ä?ö", "http://xn--bcher-kva.example/%C3%A4?%C3%B6"),
        ("http://0x7f.1/", "http://127.0.0.1/"),
        ("http://[::0:1]:80/", "http://[::1]/"),
        ("http:///example.org/x", "http://example.org/x"),
    ],
)
def test_follows_the_whatwg_rules(href: str, expected: str) -> None:
    assert canonical(href) == expected


@pytest.mark.parametrize(
    ("href", "expected"),
    [
        ("http://h/%66%6Fo%2ehtml", "http://h/foo.html"),
        ("http://h/%7Euser/a%2fb", "http://h/~user/a%2Fb"),
        ("http://h/?q=a%26b%3D1", "http://h/?q=a%26b%3D1"),
        ("http://h/100%/x?50%z", "http://h/100%25/x?50%25z"),
        ("http://h/%%36%36", "http://h/%2566"),
        ("http://h/x?a[]=1&b={2}|3^4`", "http://h/x?a%5B%5D=1&b=%7B2%7D%7C3%5E4%60"),
        ("http://h/x?", "http://h/x"),
        ("http://h/x??", "http://h/x??"),
        ("http://h/x #y", "http://h/x%20"),
        ("http://h.example./x", "http://h.example/x"),
        ("http://h.example..:8080/x", "http://h.example:8080/x"),
        ("http://h//a///b", "http://h//a///b"),
        ("http://h/?b=1&a=2&", "http://h/?b=1&a=2&"),
    ],
)
def test_adds_only_changes_that_no_server_can_see(href: str, expected: str) -> None:
    assert canonical(href) == expected
    assert [page.url for page in pages_of([href], "http://h/y", 0).pages] == [expected]


@pytest.mark.parametrize(
    "href",
    [
        "javascript:void(0)",
        "mailto:a@example.org",
        "data:text/html,x",
        "ftp://example.org/",
        "file:///etc/passwd",
        "about:blank",
        "tel:+123",
        "blob:http://example.org/1",
        "http://",
        "http:////",
        "http://./",
        "http://..../",
        "http://a:99999/",
        "http://a:b/",
        "http://exa mple.org/",
        "http://ex%00ample.org/",
        "http://example.org\x00/",
        "http://1.2.3.4.5/",
        "http://256.1.1.1/",
        "http://[::1/",
        "http://xn--a/",
        "http://foo.0x4../",
        "httpx://example.org/",
        "\ud800",
        "http://example.org/\udfff",
        "http://h/" + "a" * LONGEST_HREF,
    ],
)
def test_what_is_no_page_on_the_web_is_none(href: str) -> None:
    assert canonical(href) is None
    assert canonical(href, "relative/base") is None
    assert pages_of([href], BASE, 1) == ([], 1) or not href.startswith("http")


def test_a_relative_link_without_a_base_is_none() -> None:
    assert page_of("/x") is None
    assert page_of("x", base="nonsense") is None
    assert pages_of(["x", "y"], "nonsense", 1) == ([], 2)


@pytest.mark.parametrize(
    ("href", "base"),
    [
        ("http://user:secret@h/x", None),
        ("//user:secret@h/x", BASE),
        ("/x", "http://user:secret@h/"),
        ("http://secret@h/x", None),
        ("http:/\\user:secret@h/x", None),
    ],
)
def test_credentials_are_never_kept(href: str, base: str | None) -> None:
    page = page_of(href, base)
    assert page is not None
    assert (page.url, page.site) == ("http://h/x", "http://h")
    if base is not None:
        assert [found.url for found in pages_of([href], base, 0).pages] == ["http://h/x"]


def test_a_page_knows_its_site_and_depth() -> None:
    page = page_of("../x.html?q", BASE, depth=3, score=0.5)
    assert page is not None
    assert (page.url, page.site) == ("http://www.example.org/docs/x.html?q", "http://www.example.org")
    assert (page.depth, page.score) == (3, 0.5)
    other = page_of("https://www.example.org:8443/")
    assert other is not None
    assert other.site == "https://www.example.org:8443"


def test_a_key_fits_a_signed_64_bit_column_and_depends_on_the_secret() -> None:
    urls = [f"http://site{site}.example/{number}" for site in range(200) for number in range(20)]
    keys = [
        page.key
        for secret in (b"", b"one", b"other")
        for url in urls
        if (page := page_of(url, secret=secret)) is not None
    ]
    assert len(set(keys)) == 3 * 4000
    assert all(-(2**63) <= key < 2**63 for key in keys)
    assert min(keys) < 0 < max(keys)


@given(st.text(st.characters(codec="utf-8"), max_size=400), st.binary(max_size=64))
def test_a_key_is_that_of_hashlib(url: str, secret: bytes) -> None:
    digest = hashlib.blake2b(url.encode(), digest_size=8, key=secret).digest()
    assert key_of(url, secret) == int.from_bytes(digest, "little", signed=True)


def test_a_url_that_has_no_octets_has_no_key() -> None:
    with pytest.raises(UnicodeEncodeError):
        key_of("http://a.example/\ud800")


def test_links_have_the_keys_of_their_crawl_whatever_was_remembered() -> None:
    hrefs = ["a", "/b?c=%7e", "http://other.example/x", "../d", "//third.example./"]
    for secret in (b"one", b"other", b"one", b""):
        found = pages_of(hrefs, "http://a.example/e/", 1, secret=secret)
        assert [page.key for page in found.pages] == [key_of(page.url, secret) for page in found.pages]
        assert len(found.pages) == len(hrefs)


def test_links_of_a_page_come_once_each_in_document_order() -> None:
    hrefs = [
        "b.html#1",
        "a.html",
        "b.html#2",
        "./a.html",
        "/docs/guide/b.html",
        "//other.example/",
        "mailto:x@y",
    ]
    found = pages_of(hrefs, BASE, 4)
    assert [page.url for page in found.pages] == [
        "http://www.example.org/docs/guide/b.html",
        "http://www.example.org/docs/guide/a.html",
        "http://other.example/",
    ]
    assert {page.depth for page in found.pages} == {4}
    assert found.skipped == 1


def test_queries_are_encoded_in_the_charset_of_their_page() -> None:
    hrefs = ["/é?q=é", "/x?q=日"]
    assert [page.url for page in pages_of(hrefs, BASE, 1, "cp1252").pages] == [
        "http://www.example.org/%C3%A9?q=%E9",
        "http://www.example.org/x?q=%26%2326085%3B",
    ]
    assert pages_of(hrefs[:1], BASE, 1).pages[0].url == "http://www.example.org/%C3%A9?q=%C3%A9"
    assert pages_of(hrefs[:1], BASE, 1, "no-such-codec").pages == pages_of(hrefs[:1], BASE, 1).pages
