"""robots.txt files of others. What each should say is written here from RFC 9309.

`EXCEPTIONS` lists where headway knowingly answers otherwise, and why; a listed case that no longer differs
fails, so that the list stays true.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from headway.http.robots import judge

VECTORS = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "vectors" / "robots"
needs_vectors = pytest.mark.skipif(
    not VECTORS.is_dir(), reason="the vectors of robots.txt are not beside this repository"
)

ALLOWED, DENIED = True, False

EXPECTED: dict[str, dict[tuple[str, str], bool]] = {
    "rfc9309-example-simple-robots.txt": {
        ("anybot", "/"): ALLOWED,
        ("anybot", "/a.gif"): DENIED,
        ("anybot", "/a.gif?x"): ALLOWED,
        ("anybot", "/example/page.html"): DENIED,
        ("anybot", "/publications/a.html"): ALLOWED,
        ("anybot", "/publications/a.gif"): ALLOWED,  # 14 octets against 6
        ("foobot", "/"): DENIED,
        ("foobot", "/example/page.html"): ALLOWED,
        ("foobot", "/example/allowed.gif"): ALLOWED,
        ("foobot", "/publications/a.html"): DENIED,
        ("barbot", "/example/page.html"): DENIED,
        ("bazbot", "/example/page.html"): DENIED,
        ("bazbot", "/example/a.gif"): ALLOWED,
        ("quxbot", "/example/a.gif"): ALLOWED,  # an empty group of its own
        ("QuxBot/2.0 (+https://q.example)", "/example/"): ALLOWED,
    },
    "rfc9309-example-longest-match-robots.txt": {
        ("foobot", "/example/page/index.html"): ALLOWED,
        ("foobot", "/example/page/disallowed.gif"): DENIED,
        ("foobot", "/elsewhere"): ALLOWED,
        ("otherbot", "/example/page/disallowed.gif"): ALLOWED,
    },
    "rfc9309-example-rule-group-merging.txt": {
        ("examplebot", "/foo"): DENIED,
        ("ExampleBot", "/bar"): DENIED,
        ("ExampleBot", "/baz"): DENIED,
        ("bazbot", "/baz"): DENIED,
        ("bazbot", "/foo"): ALLOWED,
        ("anybot", "/foo"): DENIED,
        ("anybot", "/baz"): ALLOWED,
    },
    "merge-rules.txt": {
        ("testy", "/"): DENIED,
        ("curl", "/x"): DENIED,
        ("wget", "/foo/bar"): ALLOWED,  # allowed in one group, denied in another: allow wins the tie
        ("wget", "/tmp/bar"): DENIED,
        ("wget", "/ckh/bar"): ALLOWED,
        ("anybot", "/foo/bar"): DENIED,
        ("anybot", "/tmp/bar"): DENIED,
        ("anybot", "/ckh/bar"): ALLOWED,
    },
    "precedence-of-rules.txt": {
        ("testy", "/foo"): DENIED,
        ("testy", "/foo/bar"): ALLOWED,
        ("testy", "/foo/baz"): DENIED,
        ("testy", "/fo"): ALLOWED,
        ("wget", "/foo"): ALLOWED,
        ("wget", "/foobar"): ALLOWED,
        ("wget", "/index.html"): ALLOWED,
        ("wget", "/bar"): DENIED,
        ("wget", "/"): DENIED,  # `/*` is longer than `/`
    },
    "directive-typos-robots.txt": {
        ("bot1", "/desallow/"): ALLOWED,  # too far from the word
        ("bot1", "/dissalow/"): DENIED,
        ("bot2", "/useragent/"): DENIED,
        ("bot3", "/useg-agent/"): ALLOWED,
        ("bot4", "/useragent-no-colon/"): DENIED,
    },
    "format-errors-robots.txt": {
        ("bot1", "/whitespace-before-colon/"): DENIED,
        ("bot1", "/no-colon/"): DENIED,
        ("bot2", "/no-colon-useragent/"): DENIED,
        ("bot3", "/whitespace-before-colon"): ALLOWED,
        ("bot3", "/elsewhere"): DENIED,
    },
    "crawl-delay-group-merging.txt": {
        ("mybot", "/private/"): DENIED,
        (
            "mybot",
            "/login/",
        ): ALLOWED,  # the group for everybody lies between, whatever the comment there says
        ("yourbot", "/private/"): DENIED,
        ("yourbot", "/login/"): DENIED,
        ("anybot", "/private/"): ALLOWED,
    },
    "extensions-group-merging.txt": {
        ("mybot", "/private/"): DENIED,
        ("mybot", "/login/"): DENIED,  # an unknown record between two user-agent lines parts no groups
        ("yourbot", "/private/"): DENIED,
        ("yourbot", "/login/"): DENIED,
        ("anybot", "/llms.txt"): ALLOWED,
        ("anybot", "/x"): DENIED,
    },
    "extension-robots.txt": {
        ("anybot", "/private/"): ALLOWED,
        ("mybot", "/private/"): DENIED,
        ("mybot", "/secret/"): ALLOWED,
        ("otherbot", "/admin/"): DENIED,
    },
    "extended-standard-robots.txt": {("bot1", "/x"): ALLOWED, ("bot3", "/x"): ALLOWED},
    "malformed-path.txt": {
        ("anybot", "/wiki/Wikipedia_talk:Mediation_Committee/"): DENIED,
        ("anybot", "/wiki/Wikipedia_talk%3AMediation_Committee/"): DENIED,
        ("anybot", "/wiki/Wikipedia_talk%3Mediation_Committee/"): DENIED,
        ("anybot", "/wiki/Main_Page"): ALLOWED,
    },
    "many-user-agents.txt": {
        ("wget", "/"): DENIED,
        ("Foobot/2.1", "/"): DENIED,
        ("BackDoorBot/1.0", "/"): DENIED,
        ("anybot", "/"): ALLOWED,
        ("anybot", "/bot-trap/"): DENIED,
        ("anybot", "/lang/zh-CN/forum/x"): DENIED,
    },
    "twitter.com-robots.txt": {
        ("Googlebot", "/user?x=1"): DENIED,
        ("Googlebot", "/user/with_friends"): DENIED,
        ("Googlebot", "/with_friends"): ALLOWED,
        ("anybot", "/user"): ALLOWED,
        ("anybot", "/user?"): DENIED,
    },
    "wildcards.txt": {
        ("anybot", "/wishlist/bogus"): DENIED,
        ("anybot", "/wishlist/universal/page"): ALLOWED,
        ("anybot", "/anydirectoryhere/gcrnsts"): DENIED,
        ("anybot", "/gp/registry/wishlist/x/reserve"): DENIED,
        ("anybot", "/gp/pdp/rss/x/reviews"): ALLOWED,
        ("Googlebot", "/gp/pdp/rss/x/reviews"): DENIED,
        ("Googlebot", "/x/sim/B001132UEE"): DENIED,
        ("EtaoSpider", "/"): DENIED,
    },
    "www.flot.com-robots.txt": {("anybot", "/bitrix/x"): DENIED, ("anybot", "/images/"): ALLOWED},
    "relative-sitemap-robots.txt": {("anybot", "/files/x"): DENIED, ("anybot", "/x"): ALLOWED},
    "sitemap-robots.txt": {("anybot", "/x"): ALLOWED},
    "robots-with-utf8-bom.txt": {("anybot", "/profile"): DENIED, ("anybot", "/foo"): ALLOWED},
    "robots-with-utf16le-bom.txt": {("anybot", "/profile"): DENIED, ("anybot", "/foo"): ALLOWED},
    "robots-with-utf16be-bom.txt": {("anybot", "/profile"): DENIED, ("anybot", "/foo"): ALLOWED},
}
EXCEPTIONS = {
    ("precedence-of-rules.txt", "wget", "/"): "where index.html is allowed, so is its directory: protego "
    "adds `Allow: /$` as Google does, which ties with `/*`, and allow wins a tie",
}
CRAWL_DELAYS_S = {
    ("astore.amazon.com-robots.txt", "anybot"): 5.0,
    ("dos-line-endings.txt", "anybot"): 1.0,
    ("crawl-delay-group-merging.txt", "mybot"): 10.0,
    ("crawl-delay-group-merging.txt", "yourbot"): None,
    ("crawl-delay-group-merging.txt", "anybot"): 30.0,
    ("twitter.com-robots.txt", "slurp"): 1.0,
    ("twitter.com-robots.txt", "msnbot"): 10.0,
    ("twitter.com-robots.txt", "googlebot"): None,
    ("twitter.com-robots.txt", "anybot"): None,
}
SITEMAPS = {
    "sitemap-robots.txt": ("http://domain.com/sitemap.xml", "http://domain.com/dir/MixedCased-sitemap.xml"),
    "sitemap-robots-dedup.txt": ("http://example.org/sitemap.xml",),
    "relative-sitemap-robots.txt": ("/sitemap.xml",),
    "robots-with-utf16le-bom.txt": ("http://www.newsweek.com/sitemap_index.xml",),
    "format-errors-robots.txt": ("/sitemap.xml",),
    "www.flot.com-robots.txt": ("http://flot.com/sitemap_index.xml",),
}


@needs_vectors
def test_rules_are_read_as_the_rfc_says_but_for_the_listed_exceptions() -> None:
    different = set()
    for name, cases in EXPECTED.items():
        content = (VECTORS / "crawler-commons" / name).read_bytes()
        for (agent, path), expected in cases.items():
            rules = judge(200, content, agent)
            assert rules is not None
            if rules.allows("http://site.example" + path) != expected:
                different.add((name, agent, path))
    assert different == EXCEPTIONS.keys()


@needs_vectors
def test_crawl_delays_and_sitemaps_are_read() -> None:
    for (name, agent), expected in CRAWL_DELAYS_S.items():
        rules = judge(200, (VECTORS / "crawler-commons" / name).read_bytes(), agent)
        assert rules is not None
        assert rules.crawl_delay_s == expected, (name, agent)
    for name, sitemaps in SITEMAPS.items():
        rules = judge(200, (VECTORS / "crawler-commons" / name).read_bytes(), "anybot")
        assert rules is not None
        assert rules.sitemaps == sitemaps, name


@needs_vectors
def test_every_file_of_the_crawler_commons_collection_is_expected_of_something() -> None:
    known = EXPECTED.keys() | SITEMAPS.keys() | {name for name, _ in CRAWL_DELAYS_S}
    assert known == {path.name for path in (VECTORS / "crawler-commons").glob("*.txt")}


@needs_vectors
def test_two_thousand_files_from_the_web_are_read_and_keep_the_invariants() -> None:
    with tarfile.open(VECTORS / "protego" / "robots-corpus-dev.tar.xz") as corpus:
        members = [member for member in corpus if member.isfile()]
        assert len(members) > 2000
        denies_all = 0
        for member in members:
            stream = corpus.extractfile(member)
            assert stream is not None
            rules = judge(200, stream.read(), "headway/1.0")
            assert rules is not None
            assert rules.allows("http://site.example/robots.txt")
            assert rules.allows("http://site.example/no/such/page/anywhere") in {True, False}
            assert rules.crawl_delay_s is None or 0 <= rules.crawl_delay_s < float("inf")
            denies_all += not rules.allows("http://site.example/")
        assert 0 < denies_all < 0.1 * len(members)
