"""Which cookies of a site are kept, and to which requests they go back (RFC 6265)."""

from __future__ import annotations

import pytest

from headway.http.identity import CookieJar, Identity, Visitor
from headway.model.page import Site
from headway.units import Instant

NOW = Instant(1_700_000_000.0)


def sent(url: str, *cookies: str, by: str = "https://www.example.org/a/b", now: Instant = NOW) -> str:
    jar = CookieJar("www.example.org")
    jar.take(NOW, by, site_of(by), [("set-cookie", cookie) for cookie in cookies])
    return jar.header(now, url, site_of(url))


def site_of(url: str) -> Site:
    return Site("/".join(url.split("/")[:3]))


@pytest.mark.parametrize(
    ("cookie", "url", "header"),
    [
        ("a=1; Path=/", "https://www.example.org/", "a=1"),
        ("a=1", "https://www.example.org/a/c", "a=1"),
        ("a=1", "https://www.example.org/", ""),
        ("a=1; Path=/x", "https://www.example.org/xy", ""),
        ("a=1; Path=/x", "https://www.example.org/x/y", "a=1"),
        ("a=1; Path=/; Secure", "http://www.example.org/", ""),
        ("a=1; Path=/", "https://sub.www.example.org/", ""),
        ("a=1; Path=/; Domain=example.org", "https://sub.example.org/", "a=1"),
        ("a=1; Path=/; Domain=.example.org", "https://www.example.org/", "a=1"),
        ("a=1; Path=/; Domain=example.org", "https://example.com/", ""),
        ("a=1; Path=/; Domain=example.org", "https://notexample.org/", ""),
        ("a=1; Path=/; Domain=org", "https://www.example.org/", ""),
        ("a=1; Path=/; Domain=other.org", "https://www.example.org/", ""),
        ("a=1; Path=/; Max-Age=0", "https://www.example.org/", ""),
        ("a=1; Path=/; Expires=Thu, 01 Jan 1970 00:00:00 GMT", "https://www.example.org/", ""),
        ("a=1; Path=/; Expires=Thu, 01-Jan-2032 00:00:00 GMT", "https://www.example.org/", "a=1"),
        ("a=1; Path=/; Expires=some day", "https://www.example.org/", "a=1"),
        ("__Host-a=1; Path=/; Secure", "https://www.example.org/", "__Host-a=1"),
        ("__Host-a=1; Path=/; Secure; Domain=www.example.org", "https://www.example.org/", ""),
        ("__Secure-a=1; Path=/", "https://www.example.org/", ""),
        ("no pair", "https://www.example.org/a/", ""),
        ("=1; Path=/", "https://www.example.org/", ""),
        ("a=1\x00; Path=/", "https://www.example.org/", ""),
        (f"a={'x' * 5000}; Path=/", "https://www.example.org/", ""),
    ],
)
def test_a_cookie_goes_back_where_it_belongs(cookie: str, url: str, header: str) -> None:
    assert sent(url, cookie) == header


def test_a_secure_cookie_is_not_taken_over_http() -> None:
    assert sent("https://www.example.org/", "a=1; Path=/; Secure", by="http://www.example.org/") == ""


def test_no_cookie_is_for_a_whole_registry() -> None:
    jar = CookieJar("shop.co.uk")
    jar.take(
        NOW, "https://shop.co.uk/", Site("https://shop.co.uk"), [("set-cookie", "a=1; Path=/; Domain=co.uk")]
    )
    assert len(jar) == 0


def test_the_longest_path_comes_first_and_a_new_value_replaces_the_old() -> None:
    cookies = ("a=1; Path=/", "b=2; Path=/a", "a=3; Path=/")
    assert sent("https://www.example.org/a/", *cookies) == "b=2; a=3"


def test_a_cookie_ends_with_its_age() -> None:
    assert sent("https://www.example.org/", "a=1; Path=/; Max-Age=60", now=Instant(NOW + 61)) == ""


def test_a_site_cannot_fill_the_memory() -> None:
    jar = CookieJar("www.example.org")
    for number in range(1000):
        jar.take(
            NOW, "https://www.example.org/", Site("https://www.example.org"), [("set-cookie", f"c{number}=1")]
        )
    assert len(jar) <= 100
    big = [("set-cookie", f"b{number}={'x' * 4000}") for number in range(50)]
    jar.take(NOW, "https://www.example.org/", Site("https://www.example.org"), big)
    assert len(jar.header(NOW, "https://www.example.org/", Site("https://www.example.org"))) <= 16 * 1024


@pytest.mark.parametrize(
    ("site", "is_told"),
    [
        ("https://example.org", True),
        ("https://www.example.org", True),
        ("http://example.org", False),
        ("https://sub.example.org", False),
        ("https://example.com", False),
        ("https://example.org.evil.example", False),
    ],
)
def test_credentials_go_to_the_site_alone(site: str, is_told: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGIN", "me:secret")
    visitor = Visitor(Site("https://example.org"), Identity(basic_auth="env:LOGIN"))
    names = [name for name, _ in visitor.headers(NOW, f"{site}/", Site(site))]
    assert ("Authorization" in names) is is_told
