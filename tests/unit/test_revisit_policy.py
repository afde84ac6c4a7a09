"""When a page is due again: after a fixed time, or as its changes and what is left of the link say."""

from __future__ import annotations

import math

import pytest

from headway.model.page import Site
from headway.policy.revisit import (
    FIRST_LOOKS,
    AdaptiveRevisit,
    Beliefs,
    FixedRevisit,
    add_visit,
    not_while_fresh,
)
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


def test_a_new_page_is_looked_at_soon_and_then_later_and_later() -> None:
    policy = AdaptiveRevisit(every_s=Seconds(4 * DAY_S))
    looks = [interval_s(policy, changes) for changes in ("", ".", "x.")]
    assert looks == [part * 4 * DAY_S for part in FIRST_LOOKS]


def test_where_little_is_left_over_even_the_first_looks_come_late() -> None:
    policy = AdaptiveRevisit(every_s=Seconds(DAY_S))
    for _ in range(100):
        policy.learn(SITE, history(""))
    policy.spare(Instant(0.0), BytesPerSecond(1.0))
    round_s = 101 * 2.0**14
    assert interval_s(policy, "") == pytest.approx(FIRST_LOOKS[0] * round_s)


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


def test_pages_that_cannot_be_told_apart_are_believed_to_be_as_most_others_are() -> None:
    """Changed at each of a few visits: within hours, or within days?"""
    expected = []
    for common in (history("x" * 16, DAY_S / 24), history("xx.x.x..x.x.", 4 * DAY_S)):
        beliefs = Beliefs(Seconds(3600.0), Seconds(30 * DAY_S))
        step = beliefs.step_of(common)
        beliefs.observe(step, beliefs.posterior(common))
        beliefs.learn_from({step: 1000})
        expected.append(float(beliefs.posterior(history("xxx", 4 * DAY_S)) @ beliefs.rates))
    assert expected[0] > 3 * expected[1]


def test_every_page_is_tallied_once_however_often_it_was_visited() -> None:
    policy = AdaptiveRevisit(visits_per_s=1.0)
    now = 0.0
    for number in range(200):
        now += 3600.0
        for changes in ("x", "xx.", "." * 40, "x." * 20):
            policy.next_at(Instant(now), SITE, 1000, history((changes * 9)[: number % 40], DAY_S / 7))
    fresh = sum(number % 40 == 0 for number in range(200)) * 4
    assert policy._sites[SITE].pages.total() == fresh


def budget_for(collectors: int, sites: int) -> AdaptiveRevisit:
    policy = AdaptiveRevisit(bytes_per_s=BytesPerSecond(10.0))
    policy.work_beside(collectors)
    for number in range(sites):
        for _ in range(20):
            policy.learn(Site(f"http://{number}.test"), history("x.x."))
    return policy


def test_two_who_share_the_sites_and_the_budget_visit_as_often_as_one_would() -> None:
    alone, half = budget_for(1, sites=4), budget_for(2, sites=2)
    assert interval_s(half, "x.x.x") == pytest.approx(interval_s(alone, "x.x.x"), rel=0.1)
    assert interval_s(budget_for(2, sites=4), "x.x.x") > 1.5 * interval_s(alone, "x.x.x")


def test_a_site_of_another_collector_takes_nothing_of_the_budget() -> None:
    policy = budget_for(1, sites=8)
    for number in range(2, 8):
        policy.forget(Site(f"http://{number}.test"))
    assert interval_s(policy, "x.x.x") == pytest.approx(interval_s(budget_for(1, 2), "x.x.x"), rel=0.1)
    assert interval_s(budget_for(1, sites=8), "x.x.x") > 1.5 * interval_s(policy, "x.x.x")


def test_a_site_that_comes_or_goes_changes_the_price_at_once() -> None:
    policy = budget_for(1, sites=2)
    before_s = interval_s(policy, "x.x.x")
    for number in range(2, 8):
        for _ in range(20):
            policy.learn(Site(f"http://{number}.test"), history("x.x."))
    assert interval_s(policy, "x.x.x") > 1.5 * before_s
    for number in range(2, 8):
        policy.forget(Site(f"http://{number}.test"))
    assert interval_s(policy, "x.x.x") == pytest.approx(before_s, rel=0.2)


@pytest.mark.parametrize(
    ("fresh_s", "after_s"),
    [(None, 100.0), (0.0, 100.0), (50.0, 100.0), (250.0, 250.0), (1e9, 400.0), (math.inf, 400.0)],
)
def test_a_fresh_page_is_visited_later_within_limits(fresh_s: float | None, after_s: float) -> None:
    now, policy = Instant(1000.0), FixedRevisit(Seconds(100.0))
    at = policy.next_at(now, Site("http://a.test"), 1, b"")
    assert at is not None
    assert not_while_fresh(now, at, fresh_s, policy) == now + after_s


def test_a_fresh_page_is_visited_before_the_longest_interval_ends() -> None:
    policy = AdaptiveRevisit(
        every_s=Seconds(100.0),
        shortest_s=Seconds(10.0),
        longest_s=Seconds(150.0),
        visits_per_s=1.0,
        bytes_per_s=BytesPerSecond(1e6),
    )
    assert not_while_fresh(Instant(0.0), Instant(100.0), 1e6, policy) == 150.0
