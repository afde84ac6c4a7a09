"""URL vectors of others: the WHATWG's own, and crawler-commons' for normalisation and resolution.

Where headway answers differently the case is listed here with its reason; a case that differs without
being listed fails, and so does a listed one that no longer differs.
"""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest

from headway.pages.url import canonical

VECTORS = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "vectors" / "url"
needs_vectors = pytest.mark.skipif(
    not VECTORS.is_dir(), reason="the vectors of URLs are not beside this repository"
)

SLASHES = "a server may tell /a//b from /a/b, so slashes are not merged"
SCHEME = "only http and https are crawled"
NO_SCHEME = "a link without a scheme is relative; a name typed by a person is completed by the command line"
ORDER = "a server may tell ?b&a from ?a&b, or ?b= from ?b, so parameters are neither sorted nor trimmed"

NORMALISED_DIFFERENTLY = {
    "http://foo.com//aa/bb/foo.html": SLASHES,
    "http://foo.com/aa//bb/foo.html": SLASHES,
    "http://foo.com/aa/bb//foo.html": SLASHES,
    "http://foo.com//aa//bb//foo.html": SLASHES,
    "http://foo.com////aa////bb//foo.html": SLASHES,
    "http://foo.com////aa////bb////foo.html": SLASHES,
    "file:///foo/bar.txt": SCHEME,
    "ftp:/": SCHEME,
    "ftp://foo.com/index.html": SCHEME,
    "file:/path/index.html": SCHEME,
    "file:/var/www/html/////./bar/index.html": SCHEME,
    "file:/var/www/html/foo/../bar/index.html": SCHEME,
    "http:////": "WHATWG: a URL without a host is none",
    "http:///////": "WHATWG: a URL without a host is none",
    "foo.com/index.html": NO_SCHEME,
    "http://example.com/?b=1&a=1": ORDER,
    "http://foo.com/foo.html?b=1&a=1": ORDER,
    "http://foo.com/index?b=2&a=1": ORDER,
    "http://foo.com/index?b=2&a=1#c": ORDER,
    "http://foo.com/index?a=1&b=": ORDER,
    "http://foo.com/index?b&a=1": ORDER,
    "http://foo.com/index?b=&a=1": ORDER,
    "http://foo.com/index?b=1&a=1&": ORDER,
    "http://foo.com/index?&b=1&a=1": ORDER,
    "http://foo.com/index?&=1&a=1": ORDER,
    "http://foo.com/index?=1&b=1&a=1": ORDER,
}
RESOLVED_DIFFERENTLY = {
    "http://user:pass@foo:21/bar;par?b#c": "credentials and fragments are dropped",
    "#right-menu": "fragments are dropped",
    "/a%2fc": "escapes are written in upper case",
    "/a/%2f/c": "escapes are written in upper case",
    "//server/file": SCHEME,
}


def beyond_whatwg(href: str) -> str | None:
    """What `canonical` documents on top of the WHATWG's answer, said a second time and in another way."""
    scheme, authority, rest = re.fullmatch(r"(https?://)([^/]*)(/[^#]*)(?:#.*)?", href, re.DOTALL).groups()
    host = authority.rpartition("@")[2]
    name = re.fullmatch(r"(.*?)(:\d+)?", host)
    bare = name[1].rstrip(".")
    if not bare or bare.rpartition(".")[2].isdecimal() != name[1].rpartition(".")[2].isdecimal():
        return None  # without its dots the host is empty, or a number that is no address
    rest = rest.removesuffix("?")
    rest = re.sub(r"%(?![0-9A-Fa-f]{2})", "%25", rest)
    rest = re.sub(r"%[0-9A-Fa-f]{2}", lambda escape: escape[0].upper(), rest)
    for plain in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~":
        # An escaped percent sign is set aside, so that what follows it is not read as an escape.
        rest = rest.replace("%25", "\0").replace(f"%{ord(plain):02X}", plain).replace("\0", "%25")
    for odd in "|^`{}[]\\":
        rest = rest.replace(odd, f"%{ord(odd):02X}")
    return scheme + bare + (name[2] or "") + rest


def whatwg_cases() -> list[dict[str, str]]:
    if not VECTORS.is_dir():
        return []
    cases = json.loads((VECTORS / "wpt-urltestdata-2022.json").read_text(encoding="utf-8"))
    return [case for case in cases if isinstance(case, dict)]


@needs_vectors
def test_every_whatwg_case_of_http_is_answered_by_the_standard_and_the_documented_additions() -> None:
    cases = whatwg_cases()
    plain = 0
    for case in cases:
        base = None if case["base"] == "about:blank" else case["base"]
        got = canonical(case["input"], base)
        expected = case.get("href")
        if expected is None or not expected.startswith(("http:", "https:")):
            assert got is None, case
        else:
            assert got == beyond_whatwg(expected), case
            plain += got == expected.partition("#")[0]
    assert len(cases) > 600
    assert plain > 150, "most cases need no addition"


@needs_vectors
def test_normalises_as_crawler_commons_does_but_for_the_listed_exceptions() -> None:
    check_against(
        {row[0]: (canonical(row[0]), row[1].strip()) for row in rows("weirdToNormalizedUrls.csv")},
        NORMALISED_DIFFERENTLY,
    )


@needs_vectors
def test_resolves_as_crawler_commons_does_but_for_the_listed_exceptions() -> None:
    check_against(
        {row[0]: (canonical(row[0], row[1] or None), row[2]) for row in rows("url-resolve.csv")},
        RESOLVED_DIFFERENTLY,
    )


@needs_vectors
def test_what_crawler_commons_calls_invalid_is_no_page() -> None:
    assert [canonical(row[0]) for row in rows("invalidUrls.csv")] == [None, None]


def check_against(cases: dict[str, tuple[str | None, str]], exceptions: dict[str, str]) -> None:
    assert len(cases) > 20
    different = {case for case, (got, expected) in cases.items() if got != expected}
    assert different == exceptions.keys()


def rows(name: str) -> list[list[str]]:
    text = (VECTORS / name).read_bytes().decode("utf-8")
    lines = [line for line in text.split("\n") if line.strip() and not line.startswith("#")]
    return list(csv.reader(lines, skipinitialspace=True))
