"""Requests as they go out, and what must never go out."""

from __future__ import annotations

import pytest

from headway.http.head import HeadError, RequestHeads, request_head
from headway.http.models import TargetError, Targets, parse_target


def lines_of(head: bytes) -> list[str]:
    assert head.endswith(b"\r\n\r\n")
    return head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")


def test_a_request_says_who_asks_and_what_is_understood():
    lines = lines_of(request_head("/a?b", "www.example.org", "bot/1", (), close_after=False))
    assert lines[:3] == ["GET /a?b HTTP/1.1", "Host: www.example.org", "User-Agent: bot/1"]
    assert "Accept-Encoding: gzip, deflate, br, zstd" in lines
    assert "Connection: keep-alive" in lines
    assert any(line.startswith("Accept: ") for line in lines)


def test_the_last_request_of_a_connection_says_so():
    assert "Connection: close" in lines_of(request_head("/", "h", "bot/1", (), close_after=True))


def test_the_callers_headers_replace_ours():
    lines = lines_of(
        request_head("/", "h", "bot/1", (("accept", "text/plain"), ("X-A", "b")), close_after=False)
    )
    assert "accept: text/plain" in lines
    assert "X-A: b" in lines
    assert not any(line.startswith("Accept: ") for line in lines)


@pytest.mark.parametrize("extra", [(), (("X-A", "b"),)])
@pytest.mark.parametrize("close_after", [False, True])
def test_heads_from_the_cache_are_the_same(extra, close_after):
    heads = RequestHeads("bot/1")
    for host in ("a", "b", "a"):
        for path in ("/", "/x?y=1"):
            wanted = request_head(path, host, "bot/1", extra, close_after=close_after)
            assert heads.of(path, host, extra, close_after=close_after) == wanted


@pytest.mark.parametrize(
    "header",
    [
        ("X-A", "b\r\nX-Evil: c"),
        ("X-A", "b\nc"),
        ("X-A", "b\0"),
        ("X A", "b"),
        ("", "b"),
        ("X:", "b"),
        ("X-A", "ü€"),
    ],
)
def test_a_header_cannot_smuggle_another(header):
    with pytest.raises(HeadError):
        request_head("/", "h", "bot/1", (header,), close_after=False)


@pytest.mark.parametrize(
    ("url", "authority", "path"),
    [
        ("http://example.org/", "example.org", "/"),
        ("http://EXAMPLE.org:80/a?b#c", "example.org", "/a?b"),
        ("https://example.org:443/", "example.org", "/"),
        ("https://example.org:8443/x y", "example.org:8443", "/x%20y"),
        ("http://user:secret@example.org/", "example.org", "/"),
        ("http://bücher.example/ü", "xn--bcher-kva.example", "/%C3%BC"),
        ("http://[::1]:8080/", "[::1]:8080", "/"),
        ("http://0x7f.1/", "127.0.0.1", "/"),
        ("http://example.org/a\r\nX: y", "example.org", "/aX:%20y"),
    ],
)
def test_a_url_leads_to_one_server_and_path(url, authority, path):
    target = parse_target(url)
    assert (target.origin.authority, target.path) == (authority, path)
    assert Targets().of(url, "http://elsewhere") == target


def test_urls_of_a_known_site_are_read_alike():
    targets = Targets()
    site = "http://example.org:8080"
    hard = (
        "/",
        "/a?b#c",
        "/x y",
        "/ü",
        "/a\r\nb",
        "?q",
        "@evil/",
        "/a/../b",
        "/./a",
        "/a/%2e",
        "/a\\b",
        "/<'>",
    )
    for path in hard:
        assert targets.of(site + path, site) == parse_target(site + path)
        assert targets.of(site + "/", site).origin.port == 8080


@pytest.mark.parametrize(
    "url", ["ftp://a/", "file:///etc/passwd", "javascript:alert(1)", "http://", "//a/", ""]
)
def test_only_the_web_is_a_target(url):
    with pytest.raises(TargetError):
        parse_target(url)
