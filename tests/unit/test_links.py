"""Our reader of HTML and a browser's way by a tree are held to the same claims."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
from tests.support.tree_reader import tree_elements

from headway.pages.document import interpret, read, refresh_target
from headway.pages.parsed import Markup
from headway.pages.scanner import Found, scan

Reader = Callable[[bytes], Iterable[Found]]
both_readers = pytest.mark.parametrize("reader", [tree_elements, scan])


def hrefs(text: str, reader: Reader) -> list[str]:
    return [href for href, _ in interpret(reader(text.encode()), "headway").links]


@both_readers
def test_finds_every_kind_of_link_in_document_order(reader: Reader) -> None:
    text = """<!DOCTYPE html><html><head><link rel="next" href="/link">
      <META HTTP-EQUIV=Refresh CONTENT="5; URL=/meta"></head><body>
      <A HREF=/a>x</A><map><area shape=rect href='/area'></map><iframe src="/iframe"></iframe>
      <p>text<a href="/last">"""
    assert hrefs(text, reader) == ["/link", "/meta", "/a", "/area", "/iframe", "/last"]


@both_readers
def test_finds_frames(reader: Reader) -> None:
    text = "<html><frameset cols=1,2><frame src=menu.html><frame src='main.html'></frameset></html>"
    assert hrefs(text, reader) == ["menu.html", "main.html"]


@both_readers
@pytest.mark.parametrize(
    ("tag", "expected"),
    [
        ('<a href="x">', "x"),
        ("<a href='x'>", "x"),
        ("<a href=x>", "x"),
        ("<a href=x/>", "x/"),
        ("<a\n\tHreF \n=\r\n 'x' >", "x"),
        ("<a/href=x>", "x"),
        ("<a class='b'href=x>", "x"),
        ("<a href=x href=y>", "x"),
        ("<a data-href=y href=x>", "x"),
        ("<a title='> href=y' href=x>", "x"),
        ("<a title='don't' href=x>", "x"),
        ('<a title="a"b" href=x>', "x"),
        ("<a href='a&amp;b'>", "a&b"),
        ("<a href='?a=1&region=2&copy=3&lt;'>", "?a=1&region=2&copy=3<"),
        ("<a href='&#x61;&#98;&#99'>", "abc"),
        ("<a href='&copy'>", "\u00a9"),
        ("<a href='&nosuch;'>", "&nosuch;"),
        ("<a href=a=b>", "a=b"),
        ("<a href=a'b>", "a'b"),
        ("<a href='x\ny'>", "x\ny"),
    ],
)
def test_attributes_are_read_as_browsers_do(reader: Reader, tag: str, expected: str) -> None:
    assert hrefs(f"<p>{tag}text</a></p>", reader) == [expected]


@both_readers
@pytest.mark.parametrize(
    "text",
    [
        "<!-- <a href=x> -->",
        "<!--><a name=y><!-- <a href=x>",
        "<script>document.write('<a href=x>');</script>",
        "<SCRIPT>if (a<b) '<a href=x>'</SCRIPT >",
        "<style>/* <a href=x> */</style>",
        "<textarea><a href=x></textarea>",
        "<title><a href=x></title>",
        "<img alt='<a href=x>'>",
        "<abbr href=x>",
        "<a name=x>",
        "<a href>",
        "<a href=''>",
        "<a href=x",
        "< a href=x>",
        "<link href=x>",
        "<link rel=stylesheet href=x>",
        "<link rel='alternate stylesheet' href=x>",
        "<link rel=icon href=x><link rel=preload href=x><link rel=dns-prefetch href=x>",
        "<link rel=alternate type='application/rss+xml' href=x>",
        "<meta http-equiv=refresh content=30>",
        "<plaintext><a href=x>",
    ],
)
def test_what_is_no_link_is_not_followed(reader: Reader, text: str) -> None:
    assert hrefs(text, reader) == []


@both_readers
@pytest.mark.parametrize(
    "text",
    [
        "<!-- c --><a href=x>",
        "<!--><a href=x>",
        "<!----><a href=x>",
        "<!-- a --!><a href=x>",
        "<script></script><a href=x>",
        "<script/><b></script><a href=x>",
        "<noscript><a href=x></noscript>",
        "a < b <a href=x>",
        "<b title='>'><a href=x>",
        "<p><a href=x",
        "<link rel=alternate hreflang=de href=x>",
        "<link rel=Prev href=x>",
    ],
)
def test_a_link_after_odd_markup_is_found(reader: Reader, text: str) -> None:
    assert hrefs(text, reader) == ([] if text.endswith("x") else ["x"])


@both_readers
def test_reports_which_links_are_marked_nofollow(reader: Reader) -> None:
    text = "<a href=a rel=nofollow><a href=b rel='ugc NoFollow'><a href=c rel=me><area href=d rel=nofollow>"
    assert interpret(reader(text.encode()), "headway").links == [
        ("a", True),
        ("b", True),
        ("c", False),
        ("d", True),
    ]


@both_readers
def test_reads_base_canonical_and_title_each_where_it_first_stands(reader: Reader) -> None:
    text = """<head><title> A &amp; B\n </title><base target=_top><base href=/b/><base href=/c/>
      <link rel=canonical href=/one><link rel="Canonical" href=/two></head>
      <svg><title>not this</title></svg>"""
    markup = interpret(reader(text.encode()), "headway")
    assert (markup.title, markup.base, markup.canonical) == ("A & B", "/b/", "/one")


@pytest.mark.parametrize(
    ("content", "target"),
    [
        ("0;url=x", "x"),
        ("5; URL = 'x y'", "x y"),
        ("0, x", "x"),
        ("0 x", "x"),
        ('0.5; url="x"junk', "x"),
        (".5;url=x", "x"),
        ("0;url='x", "x"),
        ("0; http://h/?url=y", "http://h/?url=y"),
        ("10", ""),
        ("", ""),
        ("url=x", ""),
        ("soon;url=x", ""),
        ("0;url=", ""),
    ],
)
def test_a_refresh_leads_to_its_url(content: str, target: str) -> None:
    assert refresh_target(content) == target


HOSTILE = {
    "100,000 nested elements": "<div>" * 100_000 + "<a href=x>",
    "an attribute of 10 MB": "<a title='" + "y" * 10_000_000 + "' href=x>",
    "200,000 attributes": "<a " + " ".join(f"x{number}" for number in range(200_000)) + " href=x>",
    "a million stray signs": "<" * 1_000_000 + " <a href=x>",
    "a number of a million digits": "<a href=x title='&#" + "9" * 1_000_000 + ";'>",
    "a title without an end": "<a href=x><title>" + "&amp;" * 200_000,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
@pytest.mark.timeout(10)
def test_a_page_made_to_stall_a_crawler_is_read_in_linear_time(text: str) -> None:
    assert [href for href, _ in read(text.encode(), "headway").links] == ["x"]


UNENDING = {
    "tags": "<a " * 300_000,
    "quotes": '<a x="' * 200_000,
    "mixed quotes": "<a x='\"" * 200_000,
    "comments": "<!--" * 300_000,
    "titles": "<title>" * 200_000,
    "scripts": "<script>" * 200_000,
    "equals signs": "<a " + "=" * 1_000_000,
    "spaces": "<a " + " " * 1_000_000,
    "tags in tags": "<b <a " * 200_000,
    "tags in tags, closed at last": "<b <a " * 200_000 + ">",
    "attributes": "<a" + ' b="c"' * 300_000,
    "links of many attributes": ("<a" + ' b="c"' * 300 + ' href="x"') * 500,
}


@pytest.mark.parametrize("text", UNENDING.values(), ids=UNENDING.keys())
@pytest.mark.timeout(10)
def test_what_never_ends_is_read_in_linear_time(text: str) -> None:
    assert read(text.encode(), "headway").links == []


@both_readers
@pytest.mark.parametrize("text", ["", "\0", "<", "<>", "</", "<!", "<a", "<a ", "&", "\ufffd", "<title>"])
def test_scraps_are_read_without_a_word(reader: Reader, text: str) -> None:
    assert interpret(reader(text.encode()), "headway") == Markup([])
