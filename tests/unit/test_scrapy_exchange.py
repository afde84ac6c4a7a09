"""Requests as they go over the line: what the spider wrote, and nothing that breaks the line."""

from __future__ import annotations

import pytest

from headway.http.head import HeadError
from headway.http.models import Proxy, TargetError
from headway.scrapy.fetcher import FetchRequest, destination_of, message, split_url


def sent(
    url: str, method: str = "GET", body: bytes = b"", proxy: Proxy | None = None, **headers: str
) -> bytes:
    beginning, path = split_url(url)
    asked = FetchRequest(url, method, tuple(headers.items()), body, 10.0, proxy)
    return message(asked, destination_of(beginning).origin, path)


@pytest.mark.parametrize(
    ("url", "line"),
    [
        ("http://a.invalid", b"GET / HTTP/1.1"),
        ("http://a.invalid?q=1", b"GET /?q=1 HTTP/1.1"),
        ("http://a.invalid/a/../b#part", b"GET /a/../b HTTP/1.1"),
        ("http://a.invalid/%7Eme//x?a=b%20c", b"GET /%7Eme//x?a=b%20c HTTP/1.1"),
    ],
)
def test_the_path_is_sent_as_the_spider_wrote_it(url: str, line: bytes) -> None:
    assert sent(url).split(b"\r\n")[0] == line


def test_a_body_has_its_length_and_a_post_without_one_says_so() -> None:
    assert sent("http://a.invalid/", "POST", b"x=1").endswith(b"Content-Length: 3\r\n\r\nx=1")
    assert b"Content-Length: 0\r\n" in sent("http://a.invalid/", "POST")
    assert b"Content-Length" not in sent("http://a.invalid/")


def test_a_host_header_of_the_spiders_own_stays() -> None:
    assert sent("http://a.invalid:81/").count(b"Host: a.invalid:81\r\n") == 1
    assert b"Host: other.invalid\r\n" in sent("http://a.invalid/", Host="other.invalid")


def test_a_proxy_is_asked_for_the_whole_url_and_only_for_http() -> None:
    proxy = Proxy("proxy.invalid", 3128, "Basic eA==")
    plain = sent("http://a.invalid/x", proxy=proxy)
    assert plain.startswith(b"GET http://a.invalid/x HTTP/1.1\r\n")
    assert b"Proxy-Authorization: Basic eA==" in plain
    assert b"Proxy" not in sent("https://a.invalid/x", proxy=proxy)


@pytest.mark.parametrize(
    ("url", "method", "headers"),
    [
        ("http://a.invalid/a b", "GET", {}),
        ("http://a.invalid/\r\nX: y", "GET", {}),
        ("http://a.invalid/", "GET\r\n", {}),
        ("http://a.invalid/", "GET", {"X": "a\r\nY: b"}),
    ],
)
def test_nothing_breaks_the_line(url: str, method: str, headers: dict[str, str]) -> None:
    with pytest.raises(HeadError):
        sent(url, method, **headers)


@pytest.mark.parametrize("url", ["", "a.invalid", "ftp://a.invalid/", "http://", "http://[::1/"])
def test_what_is_no_web_address_is_refused(url: str) -> None:
    with pytest.raises(TargetError):
        sent(url)
