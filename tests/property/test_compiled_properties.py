"""What is written in C gives what the same thing in Python gives, on whatever page."""

from __future__ import annotations

import struct
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rensa import RMinHash  # type: ignore[import-untyped]

from headway.parse import fingerprint, links, minhash
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


@given(st.lists(st.integers(0, 70), max_size=12), st.sampled_from([" ", "\0\n", "<b>", ">", "< >", "\x1f<"]))
@settings(max_examples=500, deadline=None)
def test_words_of_any_length_end_at_any_place(lengths: list[int], between: str) -> None:
    words = (("abcdefghijklmnopqrstuvwxyzé日" * 3 + "x")[-length:] if length else "" for length in lengths)
    octets = ("<p>" + between.join(words)).encode()
    assert fast is not None
    for end in range(max(0, len(octets) - 20), len(octets) + 1):
        assert fast.words(octets[:end], fingerprint.LONGEST_READ) == fingerprint.words_of(octets[:end])
        assert fast.words(octets, end) == fingerprint.words_of(octets[:end])


@pytest.mark.parametrize("count", [0, 1, 2, 5, 20, 63, 64, 65, 100, 250, 1000, 5000, 70_000])
def test_a_likeness_is_what_rensa_makes_of_the_same_hashes(count: int) -> None:
    for seed in range(20 if count <= 1000 else 1):
        drawn = Random(seed)
        hashes = struct.pack(f"={count}Q", *(drawn.getrandbits(64) for _ in range(count)))
        assert fingerprint._of_hashes(hashes) == fingerprint.by_rensa(hashes)
        assert fingerprint._of_hashes(hashes * 2) == fingerprint.by_rensa(hashes)


def test_rensa_is_not_asked_where_it_does_as_we_do() -> None:
    assert RMinHash.ALGORITHM_VERSION == minhash.VERSION


@given(st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 3), max_size=90))
@settings(max_examples=300, deadline=None)
def test_a_likeness_does_not_depend_on_which_of_the_two_was_asked(numbers: list[int]) -> None:
    hashes = struct.pack(f"={len(numbers)}Q", *numbers)
    assert fingerprint._of_hashes(hashes) == fingerprint.by_rensa(hashes)


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
    numbers = minhash.numbers_of(fingerprint.BITS, 1)
    for hashes, others in ((b"1234567", numbers), (b"12345678", numbers[8:])):
        with pytest.raises(ValueError, match="64 bits"):
            fast.likeness(hashes, others)


def test_a_problem_in_between_comes_out() -> None:
    def refuse(_: str) -> str:
        raise LookupError

    assert fast is not None
    for octets in (b"<a href=?a&b>", b"<title>x</title>"):
        with pytest.raises(LookupError):
            fast.scan(octets, refuse, refuse, 10)
