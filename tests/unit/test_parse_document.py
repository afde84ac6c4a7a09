from __future__ import annotations

import pytest

from headway.model.page import Kind
from headway.pages.document import parse
from headway.pages.headers import sniffed_type
from headway.pages.parsed import Parsed, ParseOptions
from headway.pages.url import page_of
from headway.ports import Response
from headway.units import Instant, Seconds

URL = "http://www.example.org/docs/page.html"
PAGE = page_of(URL, depth=2, score=0.25)
assert PAGE is not None


def answer(
    body: bytes | str = b"", content_type: str | None = "text/html", status: int = 200, **headers: str
) -> Response:
    pairs = [] if content_type is None else [("content-type", content_type)]
    pairs += [(name.replace("_", "-"), value) for name, value in headers.items()]
    content = body.encode() if isinstance(body, str) else body
    return Response(Kind.FETCHED, URL, Instant(0.0), Seconds(0.1), status, tuple(pairs), body=content)


def parsed(
    body: bytes | str = b"", *args: object, options: ParseOptions | None = None, **headers: str
) -> Parsed:
    response = answer(body, *args, **headers)  # type: ignore[arg-type]
    return parse(response, PAGE, options or ParseOptions(user_agent="headway/1.0 (+https://headway.example)"))


def urls(result: Parsed) -> list[str]:
    return [page.url for page in result.links]


def test_links_are_pages_one_step_deeper() -> None:
    result = parsed("<a href=next.html#x><a href=/top><a href=mailto:a@b><a href=next.html>")
    assert urls(result) == ["http://www.example.org/docs/next.html", "http://www.example.org/top"]
    assert {page.depth for page in result.links} == {3}
    assert result.skipped_links == 1


def test_a_base_element_bends_links_and_the_canonical_one() -> None:
    result = parsed("<base href='//other.example/b/'><link rel=canonical href=c><a href=a>")
    assert urls(result) == ["http://other.example/b/c", "http://other.example/b/a"]
    assert result.canonical == "http://other.example/b/c"


@pytest.mark.parametrize(
    "base", ["", "javascript:x", "http://", "data:,x", "\ud800".encode("utf-8", "replace").decode()]
)
def test_a_base_that_is_none_is_passed_over(base: str) -> None:
    assert urls(parsed(f"<base href='{base}'><a href=/a>"))[-1] == "http://www.example.org/a"


def test_nofollow_on_the_page_drops_its_links_and_noindex_does_not() -> None:
    followed = parsed("<meta name=robots content=noindex><a href=a>")
    assert (followed.noindex, followed.nofollow, len(followed.links)) == (True, False, 1)
    dropped = parsed("<meta name=headway content=nofollow><a href=a><link rel=next href=b>")
    assert (dropped.noindex, dropped.nofollow, dropped.links) == (False, True, ())


def test_x_robots_tag_counts_for_every_type() -> None:
    assert parsed("<a href=a>", x_robots_tag="none") == parsed("<a href=a>", x_robots_tag="headway: none")
    assert parsed(b"%PDF-1.4", "application/pdf", x_robots_tag="noindex").noindex
    assert not parsed(b"%PDF-1.4", "application/pdf", x_robots_tag="otherbot: noindex").noindex


def test_links_marked_nofollow_are_dropped_on_demand() -> None:
    body = "<a href=a rel=nofollow><a href=b><a href=c rel=nofollow><a href=c>"
    assert len(parsed(body).links) == 3
    dropped = parsed(body, options=ParseOptions(drop_rel_nofollow=True))
    assert urls(dropped) == ["http://www.example.org/docs/b", "http://www.example.org/docs/c"]


def test_link_headers_lead_on_and_name_the_page() -> None:
    result = parsed(
        "<base href=/b/><a href=a>",
        link='<c.html>; rel="canonical", </p2>; rel=next, </s.css>; rel=stylesheet',
    )
    assert urls(result) == [
        "http://www.example.org/docs/c.html",
        "http://www.example.org/p2",
        "http://www.example.org/b/a",
    ]
    assert result.canonical == "http://www.example.org/docs/c.html"
    assert urls(parsed(b"%PDF", "application/pdf", link="</p2>; rel=next")) == ["http://www.example.org/p2"]
    assert parsed("", link="</p2>; rel=next", x_robots_tag="nofollow").links == ()


@pytest.mark.parametrize("status", [300, 301, 302, 303, 307, 308])
def test_a_redirect_leads_to_its_target_alone_and_at_the_same_depth(status: int) -> None:
    result = parsed(
        "<a href=elsewhere>", "text/html", status, location="../moved?a=1#part", link="</x>; rel=next"
    )
    assert urls(result) == ["http://www.example.org/moved?a=1"]
    assert (result.links[0].depth, result.links[0].score) == (2, 0.25)


def test_a_redirect_in_raw_utf_8_is_understood() -> None:
    location = "/größe".encode().decode("latin-1")
    assert urls(parsed(b"", None, 302, location=location)) == ["http://www.example.org/gr%C3%B6%C3%9Fe"]
    assert urls(parsed(b"", None, 302, location="/gr\xf6\xdfe")) == ["http://www.example.org/gr%C3%B6%C3%9Fe"]


@pytest.mark.parametrize("location", ["", URL, "#part", "mailto:x@y", "http://", "http://user:secret@"])
def test_a_redirect_to_nowhere_or_to_itself_has_no_link(location: str) -> None:
    assert parsed(b"", None, 302, location=location).links == ()


@pytest.mark.parametrize("status", [304, 400, 403, 404, 410, 500, 503])
def test_an_error_page_leads_nowhere(status: int) -> None:
    result = parsed("<a href=a>", "text/html", status)
    assert result.links == ()
    assert result.content_type == "text/html"


@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/pdf", "application/json", "image/png", "text/css", "text/xml"]
)
def test_only_html_is_read_for_links(content_type: str) -> None:
    result = parsed("<html><title>t</title><a href=a>", content_type)
    assert (result.links, result.title, result.content_type) == ((), "", content_type)
    assert result.digest.startswith("sha1:")


def test_xhtml_is_read_for_links() -> None:
    body = (
        b'<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml"><body><a href="a"/></body></html>'
    )
    assert len(parsed(body, "application/xhtml+xml; charset=utf-8").links) == 1


@pytest.mark.parametrize("content_type", [None, "", "nonsense", "application/unknown", "*/*"])
def test_a_missing_or_unknown_type_is_guessed_from_the_content(content_type: str | None) -> None:
    result = parsed(" \n<!DOCTYPE html><a href=a>", content_type)
    assert (result.content_type, len(result.links)) == ("text/html", 1)


@pytest.mark.parametrize(
    ("content", "guess"),
    [
        (b"<!doctype HTML>", "text/html"),
        (b"\xef\xbb\xbf<html>", "text/html"),
        (b"  <!-- c --><b>", "text/html"),
        (b"<p>x", "text/html"),
        (b"<pre>x", "text/plain"),
        (b"<?xml version='1.0'?><rss/>", "text/xml"),
        (b"<?xml version='1.0'?><html xmlns='x'>", "application/xhtml+xml"),
        (b"%PDF-1.7", "application/pdf"),
        (b"%!PS-Adobe-3.0", "application/postscript"),
        (b"\x89PNG\r\n\x1a\n", "image/png"),
        (b"PK\x03\x04", "application/zip"),
        (b"just text\r\n", "text/plain"),
        (b"\x00\x01\x02", "application/octet-stream"),
        (b"", "text/plain"),
    ],
)
def test_the_first_bytes_tell_the_type(content: bytes, guess: str) -> None:
    assert sniffed_type("", content) == guess
    assert sniffed_type("text/css", content) == "text/css"


def test_charset_title_and_digest_are_reported() -> None:
    content = "<title>Привет,\n мир</title>".encode("koi8-r")
    result = parsed(content, "text/html; charset=KOI8-R")
    assert (result.title, result.charset) == ("Привет, мир", "koi8-r")
    assert result.digest == parsed(content, "text/plain").digest != parsed(content + b" ").digest
    assert parsed(b"").digest == ""


def test_queries_of_a_page_in_another_charset_are_encoded_in_it() -> None:
    content = "<meta charset=latin1><a href='?q=é'>".encode("latin-1")
    assert urls(parsed(content)) == [URL + "?q=%E9"]


def test_of_a_page_made_of_links_the_first_ones_count() -> None:
    body = "".join(f"<a href=/{number}>" for number in range(30))
    result = parsed(body, options=ParseOptions(max_links=10))
    assert urls(result) == [f"http://www.example.org/{number}" for number in range(10)]
    assert result.skipped_links == 20
