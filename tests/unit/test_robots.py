from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.http.robots import MAX_ROBOTS_BYTES, decode_robots, judge, rules_from_text
from headway.policy.scope import product_token

US = "headway/1.0 (+https://headway.example/bot)"


def allows(text: str, path: str, user_agent: str = US) -> bool:
    return rules_from_text(text, user_agent).allows("http://site.example" + path)


@pytest.mark.parametrize(
    ("user_agent", "token"),
    [
        (US, "headway"),
        ("MyBot", "mybot"),
        ("my-bot_2/3.0", "my-bot_2"),
        ("Mozilla/5.0 (compatible; FooBot/2.1; +http://foo.example)", "foobot"),
        ("Mozilla/5.0 (X11; Linux)", "mozilla"),
        ("", ""),
    ],
)
def test_the_product_token_is_cut_from_the_user_agent(user_agent: str, token: str) -> None:
    assert product_token(user_agent) == token


def test_a_group_for_a_longer_or_a_shorter_name_is_not_ours() -> None:
    for name in ("headwaybot", "head", "headway-images", "way"):
        assert allows(f"User-agent: {name}\nDisallow: /", "/x")
    for name in ("headway", "HeadWay", "headway/2.0", "Headway (the crawler)", "headway*"):
        assert not allows(f"User-agent: {name}\nDisallow: /", "/x")


def test_a_group_of_our_own_replaces_the_one_for_everybody() -> None:
    text = "User-agent: *\nDisallow: /\nCrawl-delay: 9\n\nUser-agent: headway\nDisallow: /private"
    assert allows(text, "/x")
    assert not allows(text, "/private/x")
    assert rules_from_text(text, US).crawl_delay_s is None
    assert not allows(text, "/x", "otherbot")


def test_an_empty_group_of_our_own_allows_everything() -> None:
    assert allows("User-agent: *\nDisallow: /\n\nUser-agent: headway\n", "/x")


def test_groups_with_our_name_are_merged_wherever_they_stand() -> None:
    text = "User-agent: headway\nDisallow: /a\n\nUser-agent: x\nUser-agent: headway\nDisallow: /b\n"
    assert not allows(text, "/a")
    assert not allows(text, "/b")
    assert allows(text, "/c")


def test_records_that_are_no_rules_do_not_part_user_agent_lines() -> None:
    text = "User-agent: headway\nCrawl-delay: 3\nSitemap: /m.xml\nUnknown: x\nUser-agent: b\nDisallow: /a"
    assert not allows(text, "/a")
    assert not allows(text, "/a", "b")
    assert rules_from_text(text, US).crawl_delay_s == 3
    assert rules_from_text(text, "b").crawl_delay_s is None


def test_rules_before_any_user_agent_line_concern_nobody() -> None:
    assert allows("Disallow: /\nUser-agent: x\nDisallow: /", "/a")


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/", True),
        ("/shop", False),
        ("/shop/open", True),
        ("/shop/open/not", False),
        ("/shop/x.gif", False),
        ("/a.gif", False),
        ("/a.gif?x", True),
        ("/deep/er/print", False),
        ("/tie", True),
        ("/caf%C3%A9", False),
        ("/caf%c3%a9", False),
        ("/cafe", True),
        ("/a%2fb", False),
        ("/a/b", True),
        ("/%7Euser/", False),
        ("/~user/", False),
        ("/x?session=1", False),
        ("/robots.txt", True),
    ],
)
def test_the_longest_match_wins_and_allow_wins_a_tie(path: str, allowed: bool) -> None:
    text = """User-agent: *
        Disallow: /shop
        Allow: /shop/open
        Disallow: /shop/open/not
        Disallow: /*.gif$
        Disallow: /*/print
        Disallow: /tie
        Allow: /tie
        Disallow: /café
        Disallow: /a%2Fb
        Disallow: /~user
        Disallow: /*?session=
        Disallow:
    """
    assert allows(text, path) is allowed


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_line_ends_and_byte_order_marks_make_no_difference(end: str, encoding: str) -> None:
    body = end.join(["User-agent: *", "Disallow: /x # why", "", "Sitemap: http://s/m.xml"]).encode(encoding)
    rules = judge(200, body, US)
    assert rules is not None
    assert not rules.allows("http://s/x")
    assert rules.allows("http://s/y")
    assert rules.sitemaps == ("http://s/m.xml",)


@pytest.mark.parametrize("mark", [b"\xef\xbb\xbf", b"\xef\xbb", b"\xef"])
def test_a_part_of_a_byte_order_mark_hides_no_line(mark: bytes) -> None:
    rules = judge(200, mark + b"User-agent: *\nDisallow: /x", US)
    assert rules is not None
    assert not rules.allows("/x")


def test_a_broken_byte_order_mark_hides_one_line_only() -> None:
    rules = judge(200, b"\xef\x11\xbfDisallow: /a\nUser-agent: *\nDisallow: /x", US)
    assert rules is not None
    assert rules.allows("/a")
    assert not rules.allows("/x")


@pytest.mark.parametrize(
    ("allow", "disallow", "path", "allowed"),
    [
        ("*.js", "*?*", "/a.js?v=1", True),  # four octets against three
        ("/a?b", "/a*", "/a?b", True),
        ("/*?", "/*.js", "/a.js?v", False),
        ("/\u30c4", "/%E3%83*", "/%E3%83%84", True),  # ten octets against eight
        ("/&&", "/%26*", "/%26%26", False),
        ("/a$b", "/a*b", "/a$b", True),  # a tie
    ],
)
def test_of_two_rules_the_one_with_more_octets_as_written_holds(
    allow: str, disallow: str, path: str, allowed: bool
) -> None:
    assert allows(f"User-agent: *\nAllow: {allow}\nDisallow: {disallow}", path) is allowed


def test_of_a_line_the_first_16_kib_count() -> None:
    long = "/x/" + "a" * (2083 * 8 - len("disallow: /x/"))
    text = f"User-agent: *\nDisallow: {long}/cut"
    assert not allows(text, f"{long}/other")
    assert allows(text, "/x/a")


def test_other_line_separators_do_not_smuggle_a_rule_in() -> None:
    for separator in "\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029":
        assert not allows(f"User-agent: *\nDisallow: /{separator}Allow: /", f"/{separator}Allow: /x")
        assert allows(f"User-agent: *\nDisallow: /a{separator}Disallow: /", "/b")


def test_only_the_whole_lines_within_500_kib_count() -> None:
    first, last = b"User-agent: *\nDisallow: /early\n", b"Disallow: /cut-here\nDisallow: /late\n"
    filler = b"#" * (MAX_ROBOTS_BYTES - len(first) - 10) + b"\n"
    text = decode_robots(first + filler + last)
    assert not allows(text, "/early")
    assert allows(text, "/cut-here")
    assert allows(text, "/late")
    assert allows(text, "/anything"), "a rule cut in the middle would deny more than it says"
    assert decode_robots(b"x" * (MAX_ROBOTS_BYTES + 1)) == ""


@pytest.mark.parametrize(
    ("value", "delay_s"),
    [
        ("10", 10.0),
        ("0.5", 0.5),
        ("0", 0.0),
        ("-1", None),
        ("nan", None),
        ("inf", None),
        ("soon", None),
        ("", None),
    ],
)
def test_a_crawl_delay_is_a_number_of_seconds(value: str, delay_s: float | None) -> None:
    assert rules_from_text(f"User-agent: *\nCrawl-delay: {value}", US).crawl_delay_s == delay_s


def test_of_several_crawl_delays_the_longest_holds() -> None:
    text = "User-agent: *\nCrawl-delay: 1\nDisallow:\n\nUser-agent: *\nCrawl-delay: 7\nCrawl-delay: 3"
    assert rules_from_text(text, US).crawl_delay_s == 7


@pytest.mark.parametrize("status", [301, 302, 308, 400, 401, 403, 404, 410, 451])
def test_where_there_are_no_rules_everything_is_allowed(status: int) -> None:
    rules = judge(status, b"User-agent: *\nDisallow: /", US)
    assert rules is not None
    assert rules.allows("http://s/x")


@pytest.mark.parametrize("status", [0, 100, 429, 500, 502, 503, 504, 599, 999])
def test_rules_that_cannot_be_fetched_deny_everything(status: int) -> None:
    assert judge(status, b"User-agent: *\nAllow: /", US) is None


@pytest.mark.parametrize(
    "url", ["", "/", "x", "http://", "http://[", "http://h", "//", "\ud800", "http://h//x", "?"]
)
def test_asking_about_nonsense_does_not_raise(url: str) -> None:
    assert rules_from_text("User-agent: *\nDisallow: /no/*/x$", US).allows(url) is True


def test_a_path_that_begins_with_two_slashes_is_a_path() -> None:
    assert not allows("User-agent: *\nDisallow: //x", "//x/y")
    assert not allows("User-agent: *\nDisallow: //x", "//x/y?q=ü")


def longest_path(by_path: dict[str, dict[str, bool]], path: str) -> dict[str, bool]:
    found = [prefix for prefix in by_path if path.startswith(prefix)]
    return by_path[max(found, key=len)] if found else {}


@given(st.lists(st.text("ab", max_size=8), min_size=1, max_size=12), st.lists(st.text("abc", max_size=10)))
def test_the_preferences_of_the_longest_path_count(paths: list[str], pages: list[str]) -> None:
    lines = [f"Content-Usage: /{path} tdm=n, p{number}=y" for number, path in enumerate(paths)]
    rules = rules_from_text("\n".join(["User-agent: *", *lines, "Disallow:"]), "mybot/1.0")
    by_path: dict[str, dict[str, bool]] = {}
    for number, path in enumerate(paths):
        by_path.setdefault(f"/{path}", {"tdm": False})[f"p{number}"] = True
    for page in pages:
        assert rules.preferences(f"https://example.org/{page}") == longest_path(by_path, f"/{page}")  # type: ignore[attr-defined]
