"""What Squid says is read in every dress, nothing private is kept, and nothing goes uncounted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.policy.scope import Scope
from headway.squid.spool import (
    Counters,
    DatagramHead,
    Intake,
    PrivacyRules,
    ProxyRequest,
    listened,
    read_announced_line,
    read_datagram,
    read_log_line,
    table_lines,
)
from headway.units import Instant, Seconds

NATIVE = (
    "1066037222.352    126 10.0.0.7 TCP_MISS/200 5270 GET http://a.test/page.html alice "
    "DIRECT/1.2.3.4 text/html"
)
COMBINED = (
    '10.0.0.7 - alice [01/Jan/2026:00:00:00 +0000] "GET http://a.test/page.html HTTP/1.1" 200 5270 '
    '"http://ref.test/" "Mozilla/5.0" TCP_MISS:HIER_DIRECT'
)
OURS = "200 GET text/html;charset=utf-8 http://a.test/page.html"


@pytest.mark.parametrize("line", [NATIVE, COMBINED, OURS])
def test_every_log_format_gives_method_url_and_status_and_no_user(line: str) -> None:
    asked = read_log_line(line)
    assert asked is not None
    assert (asked.method, asked.url, asked.status) == ("GET", "http://a.test/page.html", 200)
    assert asked.media_type in {"text/html", ""}
    assert "alice" not in repr(asked)
    assert "10.0.0.7" not in repr(asked)


def test_an_aborted_request_is_no_answer() -> None:
    aborted = read_log_line(NATIVE.replace("TCP_MISS/200", "TCP_MISS_ABORTED/000"))
    assert aborted is not None
    assert aborted.status >= 400


@given(st.text(max_size=300))
def test_no_line_makes_a_reader_raise(line: str) -> None:
    read_log_line(line)
    read_announced_line(line)
    read_datagram(line.encode("utf-8", "surrogatepass"))


def intake(*, queries: bool = False, **scope: object) -> Intake:
    return Intake(Scope(hosts=frozenset({"a.test"}), **scope), PrivacyRules(queries), Counters())  # type: ignore[arg-type]


def taken(each: Intake, url: str, method: str = "GET", now: float = 0.0) -> str | None:
    return each.take(Instant(now), ProxyRequest(method, url))


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (None, "garbage"),
        (ProxyRequest("CONNECT", "a.test:443"), "connect"),
        (ProxyRequest("POST", "http://a.test/"), "method"),
        (ProxyRequest("GET", "http://a.test/", 404), "not-answered-well"),
        (ProxyRequest("GET", "http://a.test/x", 200, "image/png"), "unwanted-type"),
        (ProxyRequest("GET", "ftp://a.test/x"), "not-http"),
        (ProxyRequest("GET", "urn:x"), "not-http"),
        (ProxyRequest("GET", "http://[::1"), "not-http"),
        (ProxyRequest("GET", "http://b.test/"), "out-of-scope: other-host"),
        (ProxyRequest("GET", "http://a.test/x.zip"), "out-of-scope: unwanted-extension"),
        (ProxyRequest("GET", "http://a.test/" + "x" * 3000), "url-too-long"),
        (ProxyRequest("GET", "http://me:secret@a.test/"), "credentials"),
        (ProxyRequest("GET", "http://a.test/x?q=1"), "query"),
        (ProxyRequest("GET", "http://a.test/x?"), "query"),
        (ProxyRequest("GET", "http://a.test/x;jsessionid=1A"), "session-in-path"),
        (ProxyRequest("GET", "http://a.test/robots.txt"), "robots-txt"),
    ],
)
def test_refused_requests_are_counted_with_their_reasons(asked: ProxyRequest | None, reason: str) -> None:
    each = intake()
    assert each.take(Instant(0.0), asked) is None
    assert each.counters.refused == {reason: 1}
    assert (each.counters.announced, each.counters.accepted) == (1, 0)


@pytest.mark.parametrize(
    "name", ["token", "SID", "PHPSESSID", "user_id", "access_token", "e-mail", "X-Amz-Signature"]
)
def test_with_queries_on_a_private_parameter_still_keeps_a_url_out(name: str) -> None:
    each = intake(queries=True)
    assert taken(each, f"http://a.test/x?page=2&{name}=abc") is None
    assert each.counters.refused == {"private-parameter": 1}


def test_with_queries_on_an_ordinary_query_is_taken() -> None:
    assert taken(intake(queries=True), "http://a.test/x?page=2&sort=asc") == "http://a.test/x?page=2&sort=asc"


def test_a_page_asked_for_again_and_again_is_taken_once_until_it_may_be_old() -> None:
    each = Intake(Scope(), PrivacyRules(), Counters(), repeat_after_s=Seconds(60.0))
    assert taken(each, "http://a.test/x#top") == "http://a.test/x"
    assert taken(each, "http://A.test/x", now=59.0) is None
    assert taken(each, "http://a.test/x", now=60.0) == "http://a.test/x"
    assert each.counters.refused == {"repeated": 1}


@given(
    st.lists(
        st.one_of(st.none(), st.builds(ProxyRequest, st.sampled_from(["GET", "CONNECT", "PUT"]), st.text())),
        max_size=30,
    )
)
def test_every_announcement_is_either_accepted_or_refused(asked: list[ProxyRequest | None]) -> None:
    each = intake(queries=True)
    for one in asked:
        each.take(Instant(0.0), one)
    counters = each.counters
    assert counters.announced == len(asked) == counters.accepted + sum(counters.refused.values())


def test_what_a_helper_could_not_send_and_what_was_lost_on_the_way_is_counted() -> None:
    each = intake()
    for head in (DatagramHead(7, 0, 0), DatagramHead(7, 1, 5), DatagramHead(7, 4, 5), DatagramHead(8, 0, 2)):
        each.note_datagram(head)
    assert each.counters.lost == {"headway-was-away-or-busy": 7, "datagrams-dropped-by-the-system": 2}


def test_a_restarted_helper_is_not_taken_for_one_that_lost_everything() -> None:
    each = intake()
    each.note_datagram(DatagramHead(7, 9, 3))
    each.note_datagram(DatagramHead(7, 0, 0))
    assert each.counters.lost == {"headway-was-away-or-busy": 3}


def test_the_table_adds_up() -> None:
    collector = Counters(updates=89, fresh=6, new=4, errors={"missing": 1}, asked=94, quick=47)
    lines = table_lines(listened(Counters(announced=200, accepted=100, refused={"query": 100}), collector))
    assert any("updates performed" in line and "89.0%" in line for line in lines)
    assert any("announcements checked" in line and " 100 " in line for line in lines)
    assert any("50%" in line for line in lines)
