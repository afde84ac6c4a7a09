from __future__ import annotations

import pytest

from headway.config.job import build_job
from headway.config.reading import Source, convert
from headway.model.page import Page, PageKey, Site
from headway.policy.scope import Exclusion, Scope, fits, host_of


def page(url: str, depth: int = 0) -> Page:
    site, slash, _ = url.partition("://")[2].partition("/")
    assert slash
    return Page(url, Site(url.partition("://")[0] + "://" + site), PageKey(1), depth)


def verdict(scope: Scope, url: str, depth: int = 0) -> Exclusion | None:
    return scope.judge(page(url, depth))


def test_without_rules_every_host_is_in_scope() -> None:
    assert verdict(Scope(), "https://anything.example:8443/x") is None


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://www.example.org/x", None),
        ("https://www.example.org/x", None),
        ("http://www.example.org:8080/x", None),
        ("http://example.org/x", Exclusion.OTHER_HOST),
        ("http://sub.www.example.org/x", Exclusion.OTHER_HOST),
        ("http://www.example.org.evil.example/x", Exclusion.OTHER_HOST),
        ("http://10.0.0.1:8001/x", None),
        ("http://10.0.0.1:8002/x", Exclusion.OTHER_HOST),
        ("http://10.0.0.1/x", Exclusion.OTHER_HOST),
        ("http://[::1]:90/x", None),
        ("http://uni.br/x", None),
        ("http://www.uni.br/x", None),
        ("http://www.unibr/x", Exclusion.OTHER_HOST),
        ("http://a.b.example.net/x", None),
        ("http://example.net/x", None),
        ("http://notexample.net/x", Exclusion.OTHER_HOST),
    ],
)
def test_hosts_are_exact_and_suffixes_take_in_what_lies_under_them(
    url: str, reason: Exclusion | None
) -> None:
    hosts = frozenset({"www.example.org", "10.0.0.1:8001", "[::1]"})
    assert verdict(Scope(hosts=hosts, suffixes=(".br", "example.net")), url) == reason


def test_depth_length_and_queries_are_limited() -> None:
    scope = Scope(max_depth=2, max_url_length=30, queries=False)
    assert verdict(scope, "http://h.example/x", depth=2) is None
    assert verdict(scope, "http://h.example/x", depth=3) is Exclusion.TOO_DEEP
    assert verdict(scope, "http://h.example/" + "x" * 13) is None
    assert verdict(scope, "http://h.example/" + "x" * 14) is Exclusion.URL_TOO_LONG
    assert verdict(scope, "http://h.example/x?y") is Exclusion.QUERY
    assert verdict(Scope(), "http://h.example/x?y") is None
    assert verdict(Scope(), "http://h.example/x", depth=10**9) is None


@pytest.mark.parametrize(
    ("path", "allowed"),
    [("/", True), ("/docs", True), ("/docs/old/x", False), ("/docs/old/keep/x", True), ("/x?sort=a", False)],
)
def test_the_longest_path_rule_wins_whatever_the_order(path: str, allowed: bool) -> None:
    deny, allow = ("/docs/old/", "/*?sort="), ("/docs/old/keep/", "/docs")
    for scope in (Scope(allow=allow, deny=deny), Scope(allow=allow[::-1], deny=deny[::-1])):
        assert (verdict(scope, "http://h.example" + path) is None) is allowed


def test_allow_wins_a_tie() -> None:
    assert verdict(Scope(allow=("/a",), deny=("/a",)), "http://h.example/a") is None


def test_with_allow_rules_only_nothing_else_is_in_scope() -> None:
    scope = Scope(allow=("/docs/", "/faq$"))
    assert verdict(scope, "http://h.example/docs/x") is None
    assert verdict(scope, "http://h.example/faq") is None
    assert verdict(scope, "http://h.example/faq/x") is Exclusion.PATH_RULE
    assert verdict(scope, "http://h.example/") is Exclusion.PATH_RULE


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("/a", "/ab", True),
        ("/a$", "/ab", False),
        ("/a$", "/a", True),
        ("/*/b", "/x/y/b/z", True),
        ("/*/b$", "/x/b/c/b", True),
        ("/*/b$", "/x/b/c", False),
        ("*.gif$", "/x.gif", True),
        ("/a*a$", "/a", False),
        ("/a**b", "/a--b", True),
        ("*", "/", True),
        ("", "/", True),
        ("$", "/", False),
        ("/[a]", "/a", False),
    ],
)
def test_patterns_speak_robots_txt(pattern: str, path: str, expected: bool) -> None:
    assert fits(pattern, path) is expected


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/x",
        "/x.html",
        "/x.PHP",
        "/a.pdf",
        "/a.ps",
        "/a.txt",
        "/v1.2/",
        "/v1.2/x",
        "/x.unknown",
        "/.css/x",
    ],
)
def test_what_may_be_a_wanted_type_is_in_scope(path: str) -> None:
    assert verdict(Scope(), "http://h.example" + path) is None


@pytest.mark.parametrize(
    "path",
    ["/a.jpg", "/a.JPG", "/x.css?v=1", "/x.tar.gz", "/film.mp4", "/app.js", "/feed.rss", "/a.docx", "/.zip"],
)
def test_what_surely_is_another_type_is_not_asked_for(path: str) -> None:
    assert verdict(Scope(), "http://h.example" + path) is Exclusion.UNWANTED_EXTENSION
    assert verdict(Scope(accept=("*",)), "http://h.example" + path) is None


def test_the_extension_is_looked_for_in_the_path_alone() -> None:
    assert verdict(Scope(), "http://h.zip/x?file=a.jpg") is None
    assert verdict(Scope(), "http://wiki.example/wiki/File:Map.png") is None


def test_wanted_types_decide_which_extensions_are_unwanted() -> None:
    scope = Scope(accept=("text/html", "image/png"))
    assert verdict(scope, "http://h.example/a.png") is None
    assert verdict(scope, "http://h.example/a.pdf") is Exclusion.UNWANTED_EXTENSION
    assert scope.accept_types == {"text/html", "image/png"}
    assert Scope(accept=("text/html", "*")).accept_types is None


@pytest.mark.parametrize(
    ("site", "host"),
    [
        ("http://a.example", "a.example"),
        ("http://a.example:81", "a.example"),
        ("http://[::1]", "[::1]"),
        ("https://[::1]:8443", "[::1]"),
    ],
)
def test_the_host_of_a_site(site: str, host: str) -> None:
    assert host_of(site) == host


def test_the_ports_of_a_site_are_those_that_it_names_and_the_usual_one() -> None:
    source = Source("the test")
    sites = [{"url": "http://a.example/", "ports": [8080]}, {"url": "http://b.example/"}]
    scope = build_job(convert({"site": sites}, source), source).scope
    for url in ("http://a.example/x", "https://a.example/x", "http://a.example:8080/x"):
        assert verdict(scope, url) is None, url
    assert verdict(scope, "http://a.example:9000/x") is Exclusion.OTHER_HOST
    assert verdict(scope, "http://b.example:9000/x") is None, "a site without `ports` is the whole host"
    tables = {"site": sites, "crawl": {"scope": {"hosts": ["a.example"]}}}
    scope = build_job(convert(tables, source), source).scope
    assert verdict(scope, "http://a.example:9000/x") is None, "[crawl.scope] names the whole host"
