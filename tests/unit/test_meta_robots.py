from __future__ import annotations

import pytest

from headway.pages.document import read
from headway.pages.headers import Directives, of_headers, of_meta, of_words

NOINDEX, NOFOLLOW = Directives(noindex=True), Directives(nofollow=True)
NONE, NOTHING = Directives(noindex=True, nofollow=True), Directives()


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("noindex", NOINDEX),
        ("NoFollow", NOFOLLOW),
        ("noindex,nofollow", NONE),
        ("noindex nofollow", NONE),
        ("none", NONE),
        ("NONE", NONE),
        ("index, follow", NOTHING),
        ("all", NOTHING),
        ("max-snippet:20, noindex", NOINDEX),
        ("noindexed", NOTHING),
        ("", NOTHING),
    ],
)
def test_directives_are_words_in_any_case(content: str, expected: Directives) -> None:
    assert of_words(content) == expected


@pytest.mark.parametrize("name", ["robots", "ROBOTS", " robots ", "headway", "HeadWay"])
def test_meta_elements_for_all_robots_and_for_us_count(name: str) -> None:
    assert of_meta(name, "noindex", "headway") == NOINDEX


@pytest.mark.parametrize("name", ["googlebot", "headwaybot", "robot", "description", ""])
def test_meta_elements_for_others_do_not_count(name: str) -> None:
    assert of_meta(name, "none", "headway") == NOTHING


def test_the_strictest_of_several_meta_elements_holds() -> None:
    text = (
        "<meta name=robots content=noindex><meta name=headway content=nofollow><meta name=robots content=all>"
    )
    assert read(text.encode(), "headway").asked == NONE
    assert read(text.encode(), "otherbot").asked == NOINDEX


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["noindex"], NOINDEX),
        (["noindex, nofollow"], NONE),
        (["noindex", "nofollow"], NONE),
        (["none"], NONE),
        (["otherbot: noindex"], NOTHING),
        (["headway: noindex"], NOINDEX),
        (["HeadWay: NoIndex, nofollow"], NONE),
        (["otherbot: noindex, nofollow"], NOTHING),
        (["otherbot: noindex, headway: nofollow"], NOFOLLOW),
        (["otherbot: noindex", "nofollow"], NOFOLLOW),
        (["unavailable_after: 25 Jun 2010 15:00:00 PST"], NOTHING),
        (["unavailable_after: Wed, 25 Jun 2010 15:00:00 PST, noindex"], NOINDEX),
        (["max-snippet: 20, noindex"], NOINDEX),
        (["max-image-preview:large, nofollow"], NOFOLLOW),
        ([":", "", ",,", "::noindex"], NOTHING),
        ([], NOTHING),
    ],
)
def test_x_robots_tag_is_read_with_and_without_a_name(values: list[str], expected: Directives) -> None:
    assert of_headers(values, "headway") == expected
