"""Long work lets others have their turn, compiled or not."""

from __future__ import annotations

import pytest

from headway.model.page import Kind
from headway.pages import LET_OTHERS_EVERY, document, scanner, url
from headway.pages.parsed import ParseOptions
from headway.ports import Response
from headway.units import Instant, Seconds

MANY = 10 * LET_OTHERS_EVERY


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    given: list[None] = []
    for module in (document, document, scanner, url):
        monkeypatch.setattr(module, "let_others", lambda: given.append(None))
    return given


def test_a_page_of_very_many_links_lets_others_have_their_turn(turns: list[None]) -> None:
    page = b"".join(b'<a href="/%d">' % number for number in range(MANY))
    assert len(document.read(page, "headway").links) == MANY
    assert len(turns) == 10


def test_very_many_links_to_look_up_let_others_have_their_turn(turns: list[None]) -> None:
    found = url.pages_of([f"/{number}" for number in range(MANY)], "http://a.test/", 1)
    assert len(found.pages) == MANY
    assert len(turns) == 10


def test_a_list_of_very_many_pages_lets_others_have_their_turn(turns: list[None]) -> None:
    page = url.page_of("http://a.test/sitemap.txt")
    assert page is not None
    body = b"".join(b"http://a.test/%d\n" % number for number in range(MANY))
    head = (("content-type", "text/plain"),)
    response = Response(Kind.FETCHED, page.url, Instant(0.0), Seconds(0.1), 200, head, body=body)
    assert len(document.parse(response, page, ParseOptions(read_sitemaps=True)).links) == MANY
    assert len(turns) == 10


def test_a_tag_of_very_many_attributes_lets_others_have_their_turn(turns: list[None]) -> None:
    scanner.attributes_of(b"".join(b'data-attribute-%d="1234567890" ' % number for number in range(MANY)))
    assert len(turns) == 10


def test_a_page_as_most_are_keeps_its_turn(turns: list[None]) -> None:
    document.read(b'<a href="/1">' * 24, "headway")
    url.pages_of(["/1"] * 24, "http://a.test/", 1)
    assert turns == []
