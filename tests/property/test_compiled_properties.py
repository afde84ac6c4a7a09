"""What is written in C gives what the same thing in Python gives, on whatever page."""

from __future__ import annotations

import struct
import time
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rensa import RMinHash  # type: ignore[import-untyped]

from headway.pages import document, fast, fingerprint, url
from headway.pages.scanner import elements_of, scan
from headway.policy.traps import distance, near, near_in_python

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
    assert document.interpret(elements_of(octets), "headway") == document.interpret(scan(octets), "headway")


@given(st.binary(max_size=60) | PAGES.map(lambda text: text.encode("utf-16", "surrogatepass")), PAGES)
@settings(max_examples=500, deadline=None)
def test_octets_that_mean_nothing_are_read_alike(nonsense: bytes, text: str) -> None:
    page = text.encode("utf-8", "replace")
    octets = page[: len(page) // 2] + nonsense + page[len(page) // 2 :]
    assert document.interpret(elements_of(octets), "headway") == document.interpret(scan(octets), "headway")
    assert fast is not None
    assert fast.words(octets, fingerprint.LONGEST_READ) == fingerprint.words_of(octets)


@given(PAGES, st.integers(0, 60))
@settings(max_examples=500, deadline=None)
def test_the_same_words_are_split(text: str, padding: int) -> None:
    octets = (">" + "a b\n" * padding + text).encode("utf-8", "surrogatepass")
    assert fast is not None
    assert fast.words(octets, fingerprint.LONGEST_READ) == fingerprint.words_of(octets)


@pytest.mark.parametrize("letter", ["x", "é", "日", "\N{GRINNING FACE}", "a longer word "])
def test_thousands_of_words_of_any_width_are_split(letter: str) -> None:
    words = [f"{letter}{number % 3000}".replace(" ", "_").encode() for number in range(6000)]
    octets = b"<p>" + b" ".join(words)
    assert fast is not None
    count, hashes = fast.words(octets, len(octets))
    assert count == 6000
    assert list(memoryview(hashes).cast("Q")) == [fingerprint.hash_of(word) for word in words[:3000]]
    assert len(set(memoryview(hashes).cast("Q"))) == 3000
    assert fast.words(octets, 3) == (0, b"")


def _words_with_hashes_alike(count: int) -> list[bytes]:
    """Words of eight octets whose hashes end in the same 32 bits."""
    numbers, words, every_bit = Random(1), [], 2**64 - 1
    inverse, length = pow(fingerprint._FACTOR, -1, 2**64), 8 * fingerprint._FACTOR & every_bit
    while len(words) < count:
        wanted = numbers.getrandbits(32) << 32 | 5
        word = ((wanted ^ wanted >> 32) * inverse & every_bit ^ length).to_bytes(8, "little")
        if min(word) > ord(" ") and not set(word) & set(b"<>"):
            words.append(word)
    return words


def test_words_made_to_share_a_place_in_the_table_are_split_as_fast_as_others() -> None:
    assert fast is not None
    crafted = _words_with_hashes_alike(3500)
    assert len({fingerprint.hash_of(word) & 0xFFFF_FFFF for word in crafted}) == 1
    plain = [b"%08d" % number for number in range(3500)]

    def seconds(words: list[bytes]) -> float:
        octets, best = b"<p>" + b" ".join(words), float("inf")
        for _ in range(5):
            begin = time.thread_time()
            fast.words(octets, len(octets))
            best = min(best, time.thread_time() - begin)
        return best

    assert seconds(crafted) < 30 * seconds(plain)  # with a table that could be foreseen 160 times


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
    assert RMinHash.ALGORITHM_VERSION == fingerprint.VERSION


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
        fast.scan("<a href=x>", str, str, 10, 0, 1000)
    with pytest.raises(TypeError):
        fast.words("<p>x", 10)
    numbers = fingerprint.numbers_of(fingerprint.BITS, 1)
    for hashes, others in ((b"1234567", numbers), (b"12345678", numbers[8:])):
        with pytest.raises(ValueError, match="64 bits"):
            fast.likeness(hashes, others)


def test_a_problem_in_between_comes_out() -> None:
    def refuse(_: str) -> str:
        raise LookupError

    assert fast is not None
    for octets in (b"<a href=?a&b>", b"<title>x</title>"):
        with pytest.raises(LookupError):
            fast.scan(octets, refuse, refuse, 10, 0, 1000)


HREFS = st.sampled_from(
    [
        "",
        "#",
        "#top",
        "a.html",
        "a.html#x",
        "b c",
        "b c#x",
        "b #x",
        " #x",
        "../a.html",
        "/z",
        "//h/x",
        "mailto:x",
        "é#é",
        "日本#x",
        "?q",
        "http://[",
    ]
)


@given(st.lists(HREFS, max_size=250), st.sampled_from([1, 3, 1000]))
@settings(max_examples=300, deadline=None)
def test_the_same_links_are_followed(hrefs: list[str], most: int) -> None:
    found = []
    for module in (fast, None):
        for _ in range(2):  # at first nothing is remembered
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(url, "fast", module)
                found.append(url.pages_of(hrefs, "http://example.org/f/page.html", 1, most=most))
        url._folders.clear()
    assert found == found[:1] * 4


@given(st.integers(0, 2**64 - 1), st.lists(st.integers(0, 2**64 - 1), max_size=5), st.integers(0, 64))
def test_the_same_fingerprints_are_near(fingerprint: int, others: list[int], bits: int) -> None:
    others = [*others, fingerprint ^ 0b1011, fingerprint]
    assert near(fingerprint, dict.fromkeys(others), bits) == near_in_python(fingerprint, others, bits)
