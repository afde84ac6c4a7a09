"""What is written in C gives what the same thing in Python gives, on whatever page."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headway.parse import fingerprint, links
from headway.parse.compiled import fast
from headway.parse.scanner import elements_of, scan
from headway.policy.duplicates import distance

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
    octets = text.encode("utf-8", "surrogatepass")
    assert links.interpret(elements_of(octets), "headway") == links.interpret(scan(octets), "headway")


@given(st.binary(max_size=60) | PAGES.map(lambda text: text.encode("utf-16", "surrogatepass")), PAGES)
@settings(max_examples=500, deadline=None)
def test_octets_that_mean_nothing_are_read_alike(nonsense: bytes, text: str) -> None:
    page = text.encode("utf-8", "replace")
    octets = page[: len(page) // 2] + nonsense + page[len(page) // 2 :]
    assert links.interpret(elements_of(octets), "headway") == links.interpret(scan(octets), "headway")
    assert fast is not None
    assert fast.words(octets, fingerprint.LONGEST_READ) == fingerprint.words_of(octets)


@given(PAGES, st.integers(0, 60))
@settings(max_examples=500, deadline=None)
def test_the_same_words_are_told_apart(text: str, padding: int) -> None:
    octets = (">" + "a b\n" * padding + text).encode("utf-8", "surrogatepass")
    assert fast is not None
    assert fast.words(octets, fingerprint.LONGEST_READ) == fingerprint.words_of(octets)


@pytest.mark.parametrize("letter", ["x", "é", "日", "\N{GRINNING FACE}", "a longer word "])
def test_thousands_of_words_of_any_width_are_told_apart(letter: str) -> None:
    words = [f"{letter}{number % 3000}".replace(" ", "_").encode() for number in range(6000)]
    octets = b"<p>" + b" ".join(words)
    assert fast is not None
    count, hashes = fast.words(octets, len(octets))
    assert count == 6000
    assert list(memoryview(hashes).cast("Q")) == [fingerprint.hash_of(word) for word in words[:3000]]
    assert len(set(memoryview(hashes).cast("Q"))) == 3000
    assert fast.words(octets, 3) == (0, b"")


def test_no_more_than_the_beginning_is_read() -> None:
    octets = b"<p>" + b"one two three four " * 5000
    beginning = octets[: fingerprint.LONGEST_READ]
    assert fingerprint.of_page(octets) == fingerprint.of_page(beginning + b"other words")


@given(st.sets(st.integers(0, 10**6), min_size=200, max_size=400), st.integers(0, 10))
@settings(max_examples=50, deadline=None)
def test_pages_that_share_most_words_differ_in_few_bits(words: set[int], changed: int) -> None:
    each = sorted(words)
    page = b"<p>" + b" ".join(b"w%d" % word for word in each)
    other = b"<p>" + b" ".join(b"w%d" % word for word in each[changed:])
    stranger = b"<p>" + b" ".join(b"s%d" % word for word in each)
    assert distance(fingerprint.of_page(page), fingerprint.of_page(other)) <= 10
    assert distance(fingerprint.of_page(page), fingerprint.of_page(stranger)) >= 12


def test_what_is_no_octets_is_refused() -> None:
    assert fast is not None
    with pytest.raises(TypeError):
        fast.scan("<a href=x>", str, str, 10)
    with pytest.raises(TypeError):
        fast.words("<p>x", 10)


def test_a_problem_in_between_comes_out() -> None:
    def refuse(_: str) -> str:
        raise LookupError

    assert fast is not None
    for octets in (b"<a href=?a&b>", b"<title>x</title>"):
        with pytest.raises(LookupError):
            fast.scan(octets, refuse, refuse, 10)
