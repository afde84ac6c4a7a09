from __future__ import annotations

from urllib.parse import urlsplit

from hypothesis import example, given, settings
from hypothesis import strategies as st

from headway.pages.url import canonical, page_of, pages_of

PIECES = (
    st.sampled_from(
        ["http:", "https:", "//", "/", "\\", "h.example", "User:pw@", "@", ":80", ":443", ":8080", "."]
    )
    | st.sampled_from(
        ["..", "%2e", "%2F", "%", "%4", "%zz", "%41", "%c3%a9", "?", "#", "[", "]", "[::1]", "|", "^"]
    )
    | st.sampled_from(["{", "é", "日本", "xn--", "\x00", "\x7f", "\xad", "\u2024", "\uff0e", "\t", "\n", " "])
    | st.sampled_from(["javascript:", "a", "b.html", "0x7f.1", ";p", "=", "&"])
)
HREFS = st.lists(PIECES, max_size=12).map("".join) | st.text(max_size=40)
BASE = "http://www.example.org/a/b.html?c"
PLAIN = st.text(alphabet="aZ09-_.~+,=@/?&;:", max_size=12)
HOSTS = st.sampled_from(["", "http://", "https://"]).flatmap(
    lambda scheme: st.text(alphabet="ab1-.x", max_size=9).map(lambda host: scheme + host if scheme else "")
)
PLAIN_HREFS = st.tuples(st.sampled_from(["", "/", "../", "../../", "..//", "?", "./"]) | HOSTS, PLAIN).map(
    "".join
)
BASES = st.tuples(
    st.sampled_from(["http://h.example", "https://127.0.0.1:8080", "http://xn--bcher-kva.example"]),
    st.text(alphabet="ab./;%~", max_size=8).map("/".__add__),
    st.sampled_from(["", "?", "?a/b", "?../x?"]),
).map("".join)


@given(HREFS)
@settings(deadline=None)
@example("http://h/%%36%36")
@example("http://a..//")
@example("http://h../?")
def test_canonical_is_canonical(href: str) -> None:
    once = canonical(href, BASE)
    if once is not None:
        assert canonical(once) == once
        assert canonical(once, "https://elsewhere.example/") == once


@given(HREFS)
@settings(deadline=None)
def test_a_canonical_url_is_plain_ascii_without_fragment_or_credentials(href: str) -> None:
    page = page_of(href, BASE)
    if page is None:
        return
    parts = urlsplit(page.url)
    assert page.url.isascii()
    assert page.url.isprintable()
    assert not set(parts.path + parts.query) & set(' #"<>[\\]^`{|}')
    assert parts.scheme in {"http", "https"}
    assert parts.hostname
    assert parts.username is None
    assert parts.password is None
    assert parts.path.startswith("/")
    assert page.site == f"{parts.scheme}://{parts.netloc}"
    assert page.url.startswith(page.site + "/")
    assert -(2**63) <= page.key < 2**63


@given(st.lists(HREFS, max_size=20), st.integers(0, 100))
@settings(deadline=None)
def test_links_in_bulk_are_the_links_one_by_one(hrefs: list[str], depth: int) -> None:
    one_by_one = [page_of(href, BASE, depth) for href in hrefs]
    expected = list(dict.fromkeys(page for page in one_by_one if page is not None))
    assert pages_of(hrefs, BASE, depth).pages == expected


@given(st.lists(PLAIN_HREFS, max_size=8), BASES)
@settings(max_examples=2000, deadline=None)
@example(["..//x", "../../x", "x//y", "/", "//x", "a.", "x/..", "-", "x?"], "http://h.example/a//b/c")
@example(
    ["http://xn--a.example/", "http://a.xn--b/", "http://0x.example/", "http://a.0x1/"], "http://h.example/"
)
@example(
    ["https://a--b.example?x", "http://-a.example/", "http://a..b.example/", "http://a.b./"], "http://h/x"
)
def test_links_that_are_put_together_lead_where_the_rules_say(hrefs: list[str], base: str) -> None:
    one_by_one = [page_of(href, base, 3) for href in hrefs]
    expected = list(dict.fromkeys(page for page in one_by_one if page is not None))
    skipped = {href for href, page in zip(hrefs, one_by_one, strict=True) if page is None}
    found = pages_of(hrefs, base, 3)
    assert found == (expected, len(skipped))
    home = page_of(base)
    assert home is not None
    assert pages_of(hrefs, home, 3, "latin-1") == found


@given(st.text(alphabet=st.characters(), max_size=30), st.text(alphabet=st.characters(), max_size=30))
@settings(deadline=None)
def test_nothing_raises(href: str, base: str) -> None:
    page_of(href)
    page_of(href, base)
    pages_of([href], base, 1, "shift_jis")
    pages_of([href], BASE, 1, "iso2022_jp")
