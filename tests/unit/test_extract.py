"""Extraction rules: what they find on a page, and the message about a wrong one."""

from __future__ import annotations

import pytest

from headway.config.job import build_job
from headway.config.reading import Source, convert
from headway.errors import JobError
from headway.model.page import Site
from headway.pages.extract import number_of

SITE = Site("http://shop.invalid")
PAGE = b"""<html><head><title> A  shop </title><base href="/goods/"></head><body>
<ul><li class="b"><a href="one">One</a> <span>1.234,50 EUR</span></li>
<li class="b"><a href="/two">Two</a></li><li class="b">nothing</li></ul>
<p id="when">Sold 3 of 7</p></body></html>"""


def job_of(*rules: dict, source: Source | None = None):
    tables = {"site": [{"url": f"{SITE}/", "extract": list(rules)}]}
    source = source or Source("job.toml")
    return build_job(convert(tables, source), source)


def items(*rules: dict, url: str = f"{SITE}/goods/list.html", body: bytes = PAGE) -> list:
    return job_of(*rules).extractor().items(url, SITE, "text/html; charset=utf-8", body)


def test_css_and_xpath_find_the_same() -> None:
    css = items({"fields": {"title": "title", "to": {"css": "a::attr(href)", "all": True}}})
    xpath = items({"fields": {"title": "//title", "to": {"xpath": "//a/@href", "all": True}}})
    assert css == xpath == [{"url": f"{SITE}/goods/list.html", "title": "A shop", "to": ["one", "/two"]}]


def test_each_element_is_an_item_and_one_without_a_required_field_is_none() -> None:
    fields = {
        "name": "a",
        "link": {"css": "a::attr(href)", "type": "url", "required": True},
        "price": {"css": "span", "type": "number"},
    }
    found = items({"item": "book", "each": "li.b", "fields": fields})
    assert found == [
        {
            "url": f"{SITE}/goods/list.html",
            "item": "book",
            "name": "One",
            "link": f"{SITE}/goods/one",
            "price": 1234.5,
        },
        {
            "url": f"{SITE}/goods/list.html",
            "item": "book",
            "name": "Two",
            "link": f"{SITE}/two",
            "price": None,
        },
    ]


def test_a_regex_takes_its_group_and_join_makes_one_text() -> None:
    fields = {
        "sold": {"css": "#when", "regex": r"Sold (\d+)", "type": "number"},
        "names": {"css": "li a", "join": ", "},
        "html": {"css": "#when", "type": "html"},
    }
    (found,) = items({"fields": fields})
    assert (found["sold"], found["names"]) == (3, "One, Two")
    assert found["html"] == '<p id="when">Sold 3 of 7</p>'


def test_a_page_on_which_nothing_is_found_gives_no_item() -> None:
    assert items({"fields": {"price": ".price"}}) == []


def test_a_rule_holds_on_its_pages_only() -> None:
    rule = {"pages": ["/goods/*.html$"], "fields": {"title": "title"}}
    assert len(items(rule)) == 1
    assert items(rule, url=f"{SITE}/other/list.html") == []


def test_other_sites_and_other_types_give_nothing() -> None:
    extractor = job_of({"fields": {"title": "title"}}).extractor()
    assert extractor.items(f"{SITE}/", Site("http://other.invalid"), "text/html", PAGE) == []
    assert extractor.items(f"{SITE}/", SITE, "application/pdf", PAGE) == []


@pytest.mark.parametrize(
    "body", [b"", b"<", b"\x00\xff\xfe<p", b"<i>" * 5000, b"<!DOCTYPE x [<!ENTITY a 'b'>]>&a;"]
)
def test_no_page_is_too_odd(body: bytes) -> None:
    assert items({"fields": {"title": "title", "n": "//p"}}, body=body) == []


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1,234.50 €", 1234.5),
        ("1.234,50 €", 1234.5),
        ("£3", 3),
        ("-7.25", -7.25),
        ("1 234", 1234),
        ("12,5", 12.5),
        ("1,234", 1234),
        ("1.5", 1.5),
        ("none", None),
        ("1.234.567", 1234567),
    ],
)
def test_numbers_as_people_write_them(text: str, number: float | None) -> None:
    assert number_of(text) == number


@pytest.mark.parametrize("digit", ["1", "\u0661", "1,", "1.", "1 "])
def test_a_number_of_thousands_of_digits_is_none(digit):
    assert number_of(digit * 5000) is None


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ({"fields": {"t": "h1["}}, "site.extract.fields.t: 'h1[' is not a CSS selector"),
        ({"fields": {"t": "//h1["}}, "site.extract.fields.t: '//h1[' is not an XPath expression"),
        ({"fields": {"url": "h1"}}, "'url' is in every item already"),
        ({"fields": {}}, "a rule needs 'fields'"),
        ({"fields": {"t": {"css": "p", "xpath": "//p"}}}, "give either 'css' or 'xpath'"),
        ({"fields": {"t": {"css": "p", "regex": "("}}}, "is not a regular expression"),
        ({"fields": {"t": {"css": "p", "kind": "text"}}}, "there is no such key"),
        ({"fields": {"t": {"css": "p", "type": "date"}}}, "none of 'text', 'number', 'url', 'html'"),
        ({"pages": ["goods"], "fields": {"t": "p"}}, "'goods' is not a path"),
    ],
)
def test_a_wrong_rule_is_named(rule: dict, said: str) -> None:
    with pytest.raises(JobError) as caught:
        job_of(rule)
    assert said in str(caught.value)
    assert str(caught.value).startswith("job.toml")
