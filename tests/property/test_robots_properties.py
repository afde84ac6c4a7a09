from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from headway.http.robots import judge, rules_from_text

FIELDS = [
    "User-agent",
    "user agent",
    "Disallow",
    "Allow",
    "Crawl-delay",
    "Sitemap",
    "Disalow",
    "Nonsense",
    "",
]
VALUES = ["*", "us", "usher", "them", "/", "/a", "/a*b$", "*", "$", "/%", "/%zz", "/é", "1", "1e999", "#", ""]
LINES = st.lists(
    st.builds(
        lambda field, mark, value: f"{field}{mark}{value}",
        st.sampled_from(FIELDS),
        st.sampled_from([":", ": ", " ", " : ", "::"]),
        st.sampled_from(VALUES) | st.text(max_size=20),
    ),
    max_size=30,
)
PATHS = st.sampled_from(["/", "/a", "/ab", "/a/b?c", "/%c3%a9", "/x"])


@given(st.binary(max_size=500), st.text(max_size=30), st.text(max_size=50), st.integers(0, 999))
@settings(deadline=None)
def test_garbage_never_raises(body: bytes, user_agent: str, url: str, status: int) -> None:
    rules = judge(status, body, user_agent)
    if rules is not None:
        assert rules.allows(url) in {True, False}
        assert rules.allows("http://h/robots.txt")


@given(LINES, PATHS)
@settings(deadline=None)
def test_files_that_look_like_one_never_raise(lines: list[str], path: str) -> None:
    rules = rules_from_text("\n".join(lines), "us/1.0")
    assert rules.allows("http://h" + path) in {True, False}
    assert rules.crawl_delay_s is None or rules.crawl_delay_s >= 0


@given(LINES, PATHS)
@settings(deadline=None)
def test_groups_for_others_do_not_change_what_we_may(lines: list[str], path: str) -> None:
    text = "\n".join(lines)
    others = "\n\nUser-agent: usher\nUser-agent: busy\nDisallow: /\nCrawl-delay: 99\n"
    before, after = (
        rules_from_text(text + "\n\nAllow:\n", "us"),
        rules_from_text(text + "\n\nAllow:\n" + others, "us"),
    )
    assert before.allows("http://h" + path) == after.allows("http://h" + path)
    assert before.crawl_delay_s == after.crawl_delay_s


@given(LINES, PATHS)
@settings(deadline=None)
def test_a_longer_rule_overrules_all_that_was_said(lines: list[str], path: str) -> None:
    text = "User-agent: us\n" + "\n".join(line for line in lines if len(line) < 60)
    longest = path + "*" * 300
    assert rules_from_text(f"{text}\nUser-agent: us\nAllow: {longest}", "us").allows("http://h" + path)
    if not path.startswith("/robots.txt"):
        assert not rules_from_text(f"{text}\nUser-agent: us\nDisallow: {longest}", "us").allows(
            "http://h" + path
        )
