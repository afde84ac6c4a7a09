from __future__ import annotations

import pytest

from headway.pages.headers import LinkHeader, charset_of, links_of, media_type_of, retry_after_s
from headway.units import Instant

NOW = Instant(1_700_000_000.0)  # Tue, 14 Nov 2023 22:13:20 GMT


@pytest.mark.parametrize(
    ("value", "media_type", "charset"),
    [
        ("text/html", "text/html", ""),
        (" Text/HTML ; Charset=UTF-8", "text/html", "UTF-8"),
        ('text/html; charset="utf-8"; x=y', "text/html", "utf-8"),
        ("text/html; charset='utf-8'", "text/html", "utf-8"),
        ("text/html;charset = latin1 ", "text/html", "latin1"),
        ("text/html, text/plain", "text/html", ""),
        ("application/vnd.ms-excel+xml", "application/vnd.ms-excel+xml", ""),
        ("text/html charset=x", "", ""),
        ("text", "", ""),
        ("/", "", ""),
        ("", "", ""),
        ("text/html; charset=", "text/html", ""),
    ],
)
def test_content_type_is_taken_apart(value: str, media_type: str, charset: str) -> None:
    assert (media_type_of(value), charset_of(value)) == (media_type, charset)


@pytest.mark.parametrize(
    ("value", "wait_s"),
    [
        ("120", 120),
        (" 0 ", 0),
        ("1.5", 1),
        ("Tue, 14 Nov 2023 22:14:20 GMT", 60),
        ("Tuesday, 14-Nov-23 22:14:20 GMT", 60),
        ("Tue Nov 14 22:14:20 2023", 60),
        ("Tue, 14 Nov 2023 22:00:00 GMT", 0),
        ("Tue, 14 Nov 2023 23:14:20 +0100", 60),
        ("", None),
        ("-5", None),
        ("soon", None),
        ("Tue, 99 Nov 2023 22:14:20 GMT", None),
        ("1e3", None),
        ("٣", None),
        ("9" * 5000, None),
        ("Tue, 14 Nov 99999999 22:14:20 GMT", None),
    ],
)
def test_retry_after_is_seconds_or_a_date(value: str, wait_s: float | None) -> None:
    assert retry_after_s(NOW, value) == wait_s


def link(href: str, rels: str, media_type: str = "") -> LinkHeader:
    return LinkHeader(href, frozenset(rels.split()), media_type)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("</a>; rel=next", [link("/a", "next")]),
        ('</a>; rel="Next prev"; title="a, <b>; c"', [link("/a", "next prev")]),
        ('</a>;rel=next, <b?c,d>; rel="canonical"', [link("/a", "next"), link("b?c,d", "canonical")]),
        ("</a>; rel=alternate; type='x'", [link("/a", "alternate")]),
        ("</a>; rel=alternate; type=Text/HTML", [link("/a", "alternate", "text/html")]),
        ("</a>; rel=next; rel=prev", [link("/a", "next")]),
        ("</a>", [link("/a", "")]),
        ("</a>; crossorigin; rel=preload", [link("/a", "preload")]),
        ("no link", []),
        ("<", []),
        ("<<>>;;rel", [link("", "")]),
        ("", []),
    ],
)
def test_link_headers_are_taken_apart(value: str, expected: list[LinkHeader]) -> None:
    assert links_of([value]) == expected


@pytest.mark.timeout(10)
@pytest.mark.parametrize(
    "value", ["<a>" + ";" * 100_000, "<" * 100_000, "<a>; x" + " " * 100_000, '<a>;x="' * 20_000]
)
def test_a_long_link_header_does_not_stall(value: str) -> None:
    assert len(links_of([value])) <= 20_000
