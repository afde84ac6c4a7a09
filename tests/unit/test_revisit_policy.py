"""When a page is due again: after a fixed time, or as its changes and what is left of the link say."""

from __future__ import annotations

from headway.model.page import Site
from headway.policy.freshness import add_visit
from headway.policy.revisit import AdaptiveRevisit, FixedRevisit
from headway.units import BytesPerSecond, Instant, Seconds

SITE = Site("http://a.test")
DAY_S = 86400.0


def history(changes: str, interval_s: float = DAY_S) -> bytes:
    packed = b""
    for change in changes:
        packed = add_visit(packed, interval_s, is_changed=change == "x")
    return packed


def interval_s(policy: AdaptiveRevisit, changes: str, bytes_a_visit: int = 10_000) -> float:
    at = policy.next_at(Instant(1000.0), SITE, bytes_a_visit, history(changes))
    assert at is not None
    return at - 1000.0


def test_a_fixed_interval_is_what_it_says() -> None:
    assert FixedRevisit(Seconds(60.0)).next_at(Instant(5.0), SITE, 10, b"") == 65.0


def test_a_page_seen_once_comes_at_the_usual_time() -> None:
    assert interval_s(AdaptiveRevisit(every_s=Seconds(DAY_S)), "") == DAY_S


def test_a_page_that_never_changed_waits_at_most_twice_as_long_as_the_last_time() -> None:
    assert interval_s(AdaptiveRevisit(), "....") == 2 * DAY_S


def test_without_any_bound_pages_that_change_come_as_soon_as_allowed() -> None:
    assert interval_s(AdaptiveRevisit(shortest_s=Seconds(1800.0)), "x.x.x") == 1800.0


def test_of_a_small_budget_slowly_changing_pages_get_more_than_those_that_always_change() -> None:
    policy = AdaptiveRevisit(bytes_per_s=BytesPerSecond(0.5))
    for _ in range(20):
        policy.learn(SITE, history("xxxxxxxx"))
        policy.learn(SITE, history("x...x..."))
    assert interval_s(policy, "x...x...") < interval_s(policy, "xxxxxxxx")


def test_less_left_over_by_the_deadlines_means_longer_intervals() -> None:
    lengths = []
    for spare in (1000.0, 10.0, 0.5):
        policy = AdaptiveRevisit()
        for _ in range(50):
            policy.learn(SITE, history("x..x"))
        policy.spare(Instant(0.0), BytesPerSecond(spare))
        lengths.append(interval_s(policy, "x..x"))
    assert lengths == sorted(lengths)
    assert lengths[0] < lengths[-1]


def test_nothing_left_over_sends_every_page_to_the_longest_interval() -> None:
    policy = AdaptiveRevisit(longest_s=Seconds(7 * DAY_S))
    policy.learn(SITE, history("x..x"))
    policy.spare(Instant(0.0), BytesPerSecond(0.0))
    assert interval_s(policy, "x..x") == 7 * DAY_S


def test_a_site_is_not_asked_more_often_than_its_turns_allow() -> None:
    policy = AdaptiveRevisit(visits_per_s=1 / 3600.0, shortest_s=Seconds(60.0))
    for _ in range(100):
        policy.learn(SITE, history("x.x.x."))
    assert interval_s(policy, "x.x.x.") > 50 * 3600.0
