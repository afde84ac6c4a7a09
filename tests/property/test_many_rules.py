"""Rules compiled once match as in Protego, in time that depends on the path; the longest as written holds."""

from __future__ import annotations

import re
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from protego import Protego

from headway.http import robots
from headway.http.robots import rules_from_text
from headway.pages.url import page_of

PIECES = st.sampled_from(
    [
        "a",
        "b",
        "/",
        "ab",
        "x.html",
        "*",
        "**",
        "$",
        "?",
        "=1",
        "%41",
        "%2F",
        "%7E",
        "\u00e9",
        "-",
        "~",
        "%c3",
        "index.html",
    ]
)
PATHS = st.lists(PIECES, max_size=6).map(lambda pieces: "/" + "".join(pieces))
PATTERNS = PATHS | st.sampled_from(["*", "$", "*$", "a", "*a", "http://site/a", "/%", "/%4"])
RULES = st.lists(st.tuples(st.sampled_from(["Allow", "Disallow"]), PATTERNS), min_size=1, max_size=30)


def matches(pattern: str, url: str, *, allows: bool) -> bool:
    """What Protego says of a pattern by itself."""
    patterns = [pattern]
    if allows and pattern.endswith("/index.html"):
        patterns.append(pattern.removesuffix("index.html") + "$")
    return any(
        not Protego.parse(f"User-agent: *\nDisallow: {each}").can_fetch(url, "*") for each in patterns if each
    )


def octets(pattern: str) -> int:
    return len(re.sub(r"[^\x00-\x7f]", lambda match: "%00" * len(match[0].encode()), pattern))


@pytest.mark.parametrize("few", [16, 0], ids=["one after the other", "by their parts"])
@given(RULES, st.lists(PATHS, min_size=1, max_size=10))
@settings(max_examples=300)
def test_of_the_rules_that_protego_finds_to_match_the_longest_holds(
    few: int, rules: list[tuple[str, str]], paths: list[str]
) -> None:
    text = "\n".join(["User-agent: *", *(f"{field}: {value}" for field, value in rules)])
    with patch.object(robots, "_FEW_PATTERNS", few):
        ours = rules_from_text(text, "headway")
    for written in paths:
        page = page_of("http://site" + written)
        assert page is not None
        fitting = [
            (octets(value), field == "Allow")
            for field, value in rules
            if matches(value, page.url, allows=field == "Allow")
        ]
        assert ours.allows(page.url) == max(fitting, default=(0, True))[1], (rules, page.url)


def test_thousands_of_rules_are_still_obeyed() -> None:
    text = "User-agent: *\nDisallow: /secret\n" + "".join(f"Disallow: /{n}*a$\n" for n in range(2000))
    rules = rules_from_text(text + "Allow: /secret/open\n", "headway")
    assert not rules.allows("http://site/secret")
    assert not rules.allows("http://site/77/of/a")
    assert rules.allows("http://site/77/of/b")
    assert rules.allows("http://site/secret/open")
    assert rules.allows("http://site/other")


def test_thousands_of_rules_that_begin_alike_are_all_asked() -> None:
    rules = rules_from_text(
        "User-agent: *\n" + "".join(f"Disallow: /*x{n}$\n" for n in range(5000)), "headway"
    )
    assert not rules.allows("http://site/a/x7")
    assert rules.allows("http://site/a/y7")
    assert not rules.allows("http://site/a/x4999")


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("/*a{}$", "/" + "a" * 2000),
        ("/*{}", "/" + "0123456789" * 200),
        ("/{}*z", "/1"),
        ("/*/*/*/*/*/*/*{}", "/" * 2000),
        ("/a{}", "/a1234"),
    ],
)
def test_a_url_is_compared_with_the_rules_that_have_a_part_of_it(pattern: str, path: str) -> None:
    text = "User-agent: *\n" + "".join(f"Disallow: {pattern.format(n)}\n" for n in range(20_000))
    matcher = rules_from_text(text, "headway")._matcher  # type: ignore[attr-defined]
    assert sum(1 for _ in matcher._candidates(path)) < 2500


def test_what_would_take_too_long_to_compare_is_not_fetched_and_says_so() -> None:
    text = "User-agent: *\n" + "".join(f"Disallow: /*the-same-part-in-all-{n}\n" for n in range(15_000))
    rules = rules_from_text(text, "headway")
    assert rules.allows("http://site/a")
    assert not rules.problem
    assert not rules.allows("http://site/the-same-part-in-all")
    assert "too long" in rules.problem
    assert rules.allows("http://site/the-same-path")
    assert not rules.problem
