"""Links that were resolved before are remembered by folder: what they mean must not depend on who asked."""

from __future__ import annotations

import pytest

from headway.pages.url import page_of, pages_of

BASES = [
    "http://h.example/a/x",
    "http://h.example/a/y?q=/b/",
    "http://h.example/b/x",
    "https://h.example/a/x",
]
HREFS = [
    "z",
    "/z",
    "",
    "?p",
    " ?p",
    "\t",
    "../z",
    "//o.example/z",
    "z?p",
    ".",
    "?",
    "z#f",
    "http://o.example/",
]


@pytest.mark.parametrize("base", BASES)
def test_a_link_leads_where_it_would_if_no_other_page_had_been_read(base: str) -> None:
    for other in BASES:
        pages_of(HREFS, other, 1)
    for href in HREFS:
        expected = page_of(href, base, 1)
        assert pages_of([href], base, 1).pages == [expected]


def test_the_depth_of_a_page_is_that_of_the_page_that_led_to_it() -> None:
    assert [pages_of(["z"], BASES[0], depth).pages[0].depth for depth in (1, 2, 1, 3)] == [1, 2, 1, 3]


def test_a_query_is_encoded_in_the_charset_of_its_own_page() -> None:
    utf8, latin = (pages_of(["z?é"], BASES[0], 1, charset).pages[0] for charset in ("utf-8", "latin-1"))
    assert (utf8.url, latin.url) == ("http://h.example/a/z?%C3%A9", "http://h.example/a/z?%E9")


def test_what_is_remembered_is_bounded() -> None:
    from headway.pages import url

    for number in range(2000):
        pages_of([f"{number}-{each}" for each in range(3)], f"http://h.example/{number}/", 1)
    pages_of([f"l{each}" for each in range(5000)], "http://h.example/long/", 1)
    pages_of(["z"], "http://h.example/long/", 1)
    assert sum(map(len, url._folders.values())) < 6000
