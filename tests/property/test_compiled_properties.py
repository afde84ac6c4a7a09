"""What is written in C gives what the same thing in Python gives, on whatever page."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headway.parse import fingerprint, links
from headway.parse.compiled import fast
from headway.parse.scanner import elements_of, scan

if fast is None:
    pytest.skip("headway was built without a compiler", allow_module_level=True)

TAGS = (
    "<a|<A |<area|<base |<frame|<iframe>|<link |<meta |<title>|</title>|<script>|</script|</SCRIPT>|<style|"
    "</style>|<textarea |</textarea>|<xmp>|</xmp/|<noembed>|<plaintext>|<img alt=|<b|</b>|<é|<!--|-->|--!>|"
    """<!-->|<!--->|<!doctype html>|<a href="x">|<a href='y' rel=nofollow>|<a class="k" href="z" id="i">|"""
    """<a name="n">|</a>|"""
    """<link rel="stylesheet" href="s">|<meta name="generator" content="g">|<link rel="next" href=n>"""
)
INSIDE = ' href=| HREF = |rel=| name="robots"| content=noindex| http-equiv=refresh|src=|type=|0;url=z'
TEXTS = "x|/y?a=1&amp;b=2|&copy|é|日本|\N{GRINNING FACE}|\u017f|\u212a|\ud800|\0|\N{NO-BREAK SPACE}|\u200b"
BLANKS = "'\"=/><& \n\x1c\x85\u2003\u3000"
PIECES = st.sampled_from([*f"{TAGS}|{INSIDE}|{TEXTS}".split("|"), *BLANKS])
SOUP = st.text(alphabet="<>!-/ ='\"&;axthref\n\x85é", max_size=80)
PAGES = st.lists(PIECES, max_size=40).map("".join) | SOUP


@given(PAGES)
@example('<a name="x > <a href=y>">')
@example('<img alt="a> <a href="x">')
@example("a <é <a href=x>")
@settings(max_examples=1500, deadline=None)
def test_the_same_markup_is_read(text: str) -> None:
    assert links.interpret(elements_of(text), "headway") == links.interpret(scan(text), "headway")


@given(PAGES, st.integers(0, 60))
@settings(max_examples=500, deadline=None)
def test_the_same_words_are_told_apart(text: str, padding: int) -> None:
    text = ">" + "a b\n" * padding + text
    assert fast is not None
    count, words = fast.words(text, fingerprint.LONGEST_READ)
    expected_count, expected = fingerprint.words_of(text)
    assert (count, words) == (expected_count, list(dict.fromkeys(expected)))


@pytest.mark.parametrize("letter", ["x", "é", "日", "\N{GRINNING FACE}"])
def test_thousands_of_words_of_any_width_are_told_apart(letter: str) -> None:
    text = "<p>" + " ".join(f"{letter}{number % 3000}" for number in range(6000))
    assert fast is not None
    count, words = fast.words(text, len(text))
    assert count == 6000
    assert words == [f"{letter}{number}" for number in range(3000)]
    assert fast.words(text, 3) == (0, [])


def test_no_more_than_the_beginning_is_read() -> None:
    text = "<p>" + "one two three four " * 5000
    assert fingerprint.of_text(text) == fingerprint.of_text(text[: fingerprint.LONGEST_READ] + "other words")


def test_what_is_no_text_is_refused() -> None:
    assert fast is not None
    with pytest.raises(TypeError):
        fast.scan(b"<a href=x>", str, str, 10)
    with pytest.raises(TypeError):
        fast.words(b"<p>x", 10)


def test_a_problem_in_between_comes_out() -> None:
    def refuse(_: str) -> str:
        raise LookupError

    assert fast is not None
    for text in ("<a href=?a&b>", "<title>x</title>"):
        with pytest.raises(LookupError):
            fast.scan(text, refuse, refuse, 10)
