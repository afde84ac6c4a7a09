"""Choosing among thousands of rules changes no verdict."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from protego import Protego

from headway.fetch.manyrules import MANY, ManyRules
from headway.fetch.robots import rules_from_text
from headway.parse.url import page_of

PIECES = st.sampled_from(
    ["a", "b", "/", "ab", "x.html", "*", "$", "?", "=1", "%41", "%2F", "%7E", "\u00e9", "-", "~"]
)
PATHS = st.lists(PIECES, max_size=6).map(lambda pieces: "/" + "".join(pieces))
RULES = st.lists(st.tuples(st.sampled_from(["Allow", "Disallow"]), PATHS), min_size=1, max_size=30)


@given(RULES, st.lists(PATHS, min_size=1, max_size=10))
@settings(max_examples=300)
def test_choosing_first_and_asking_all_agree(rules: list[tuple[str, str]], paths: list[str]) -> None:
    lines = [f"{field}: {value}" for field, value in rules]
    every = Protego.parse("\n".join(["User-agent: *", *lines]))
    many = ManyRules.sorted_out(lines)
    assert many is not None
    for written in paths:
        page = page_of("http://site" + written)
        assert page is not None
        path = page.url.removeprefix("http://site")
        assert many.can_fetch(page.url, path) == every.can_fetch(page.url, "*"), (lines, path)


def test_thousands_of_rules_are_still_obeyed() -> None:
    text = "User-agent: *\nDisallow: /secret\n" + "".join(f"Disallow: /{n}*a$\n" for n in range(10 * MANY))
    rules = rules_from_text(text + "Allow: /secret/open\n", "headway")
    assert not rules.allows("http://site/secret")
    assert not rules.allows("http://site/77/of/a")
    assert rules.allows("http://site/77/of/b")
    assert rules.allows("http://site/secret/open")
    assert rules.allows("http://site/other")


def test_thousands_of_rules_that_begin_alike_are_all_asked() -> None:
    lines = [f"Disallow: /*x{number}$" for number in range(2 * MANY)]
    assert ManyRules.sorted_out(lines) is None
    rules = rules_from_text("\n".join(["User-agent: *", *lines]), "headway")
    assert not rules.allows("http://site/a/x7")
    assert rules.allows("http://site/a/y7")
