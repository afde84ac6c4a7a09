from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.tree_reader import tree_elements

from headway.model.page import Kind
from headway.pages.document import interpret, parse, read
from headway.pages.parsed import Markup
from headway.pages.scanner import scan
from headway.pages.url import page_of
from headway.ports import Response
from headway.units import Instant, Seconds

VALUES = st.sampled_from(
    ["x", "/y?a=1&amp;b=2", "é", "a b", "don't", 'say "x"', "", "&lt;", "?a&copy=1", "<b>", "z>"]
)
NAMES = st.sampled_from(
    ["href", "HREF", "src", "rel", "class", "data-href", "content", "name", "http-equiv", "title"]
)


def _attribute(name: str, value: str, quote: str) -> str:
    if not quote:
        return f" {name}={value}" if value and not set(value) & set(" \"'<>=`&") else f" {name}"
    escaped = value.replace(quote, "&quot;" if quote == '"' else "&#39;")
    return f"{' '}{name}={quote}{escaped}{quote}"


ATTRIBUTES = st.lists(st.builds(_attribute, NAMES, VALUES, st.sampled_from(["", '"', "'"])), max_size=4).map(
    "".join
)
TAGS = st.sampled_from(["a", "A", "area", "b", "p", "div", "span", "li", "base", "img", "em", "br"])
TEXTS = st.sampled_from(
    ["", "text", "a < b", "x > y", "&amp;", "\n", "<!-- <a href=no> -->", "</p>", "</div>", "'", '"']
)
SCRIPTS = st.sampled_from(
    ["<script>'<a href=no>'</script>", "<style><a href=no></style>", "<textarea><a href=no></textarea>"]
)
BODIES = st.lists(
    st.builds(lambda tag, attributes: f"<{tag}{attributes}>", TAGS, ATTRIBUTES) | TEXTS | SCRIPTS, max_size=25
).map("".join)


@given(BODIES)
@settings(max_examples=300, deadline=None)
def test_the_scanner_and_the_tree_find_the_same_links(body: str) -> None:
    text = f"<!DOCTYPE html><html><head><title>t</title></head><body>{body}"
    scanned, built = (
        interpret(scan(text.encode()), "headway"),
        interpret(tree_elements(text.encode()), "headway"),
    )
    # A tree repeats an unclosed A element in every block that follows it.
    scanned.links, built.links = list(dict.fromkeys(scanned.links)), list(dict.fromkeys(built.links))
    assert scanned == built


@given(st.text(alphabet="<>!-/ ='\"&;#axlinkmetahrefscript \n\0é", max_size=200))
@settings(deadline=None)
def test_soup_is_read_without_an_exception(text: str) -> None:
    assert isinstance(interpret(scan(text.encode()), "headway"), Markup)
    assert isinstance(read(text.encode(), "headway"), Markup)


PAGE = page_of("http://h.example/x")
NAMES_OF_HEADERS = st.sampled_from(
    ["content-type", "location", "link", "x-robots-tag", "content-location", "refresh"]
)
LATIN = st.text(alphabet=st.characters(max_codepoint=255), max_size=40)
BITS = st.sampled_from(
    [
        b"<",
        b"a ",
        b"href=",
        b"'",
        b"\xff\xfe",
        b"\xef\xbb\xbf",
        b"\x80",
        b">",
        b"<meta charset=",
        b"utf-16",
        b"hz",
    ]
)


@given(
    st.integers(0, 999),
    st.lists(st.tuples(NAMES_OF_HEADERS, LATIN), max_size=6),
    st.binary(max_size=200) | st.lists(BITS, max_size=20).map(b"".join),
)
@settings(deadline=None)
def test_whatever_a_server_sends_is_parsed(status: int, headers: list[tuple[str, str]], body: bytes) -> None:
    assert PAGE is not None
    response = Response(Kind.FETCHED, PAGE.url, Instant(0.0), Seconds(0.0), status, tuple(headers), body=body)
    result = parse(response, PAGE)
    assert all(link.url.startswith(("http://", "https://")) for link in result.links)
    if 300 <= status < 400:
        assert len(result.links) <= 1
