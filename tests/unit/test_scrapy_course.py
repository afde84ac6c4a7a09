"""The rates of run-scrapy follow a policy's plan, and never add up to more than the link."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.policy.allocation.policies import POLICIES
from headway.policy.allocation.problem import Objective, Problem
from headway.scrapy.course import AIM, Course

SITES = st.lists(st.tuples(st.floats(1e3, 1e6), st.floats(1.0, 500.0)), min_size=1, max_size=6)


def course_of(policy: str, sites: list[tuple[float, float]], crawlers: int | None = None) -> Course:
    data, due = zip(*sites, strict=True)
    problem = Problem.of(list(data), AIM * 10_000.0, deadline_s=list(due), crawlers=crawlers)
    return Course(policy, Objective.MAX_COMPLETION, problem)


@given(sites=SITES, policy=st.sampled_from(["m-maxt", "m-sumt", "headway", "realloc-maxt", "prodataamount"]))
def test_the_rates_never_exceed_the_link(sites: list[tuple[float, float]], policy: str) -> None:
    course = course_of(policy, sites)
    left = {number: data for number, (data, _) in enumerate(sites)}
    now_s = 0.0
    while left:
        assert sum(course.rates(now_s).values()) <= AIM * 10_000.0 * (1 + 1e-9)
        left.popitem()
        now_s += 7.0
        course.go_on(now_s, left)


def test_a_constant_policy_keeps_its_rates_when_a_site_ends() -> None:
    course = course_of("m-maxt", [(50_000.0, 100.0), (100_000.0, 200.0)])
    before = course.rates(0.0)
    course.go_on(5.0, {1: 60_000.0})
    assert course.rates(5.0) == {1: before[1]}


def test_headway_gives_the_rest_what_a_site_leaves() -> None:
    course = course_of("headway", [(50_000.0, 100.0), (100_000.0, 200.0)])
    course.go_on(5.0, {1: 60_000.0})
    assert course.rates(5.0) == {1: pytest.approx(AIM * 10_000.0)}
    assert course.next_change_s(5.0) == math.inf


def test_a_site_behind_its_plan_keeps_its_last_rate() -> None:
    course = course_of("m-maxt", [(50_000.0, 100.0)])
    assert course.rates(1e6) == course.rates(0.0)


@pytest.mark.parametrize("policy", list(POLICIES))
def test_every_policy_of_plan_can_be_followed(policy: str) -> None:
    course = course_of(policy, [(5_000.0, 100.0), (9_000.0, 200.0), (2_000.0, 300.0)], crawlers=2)
    assert course.rates(0.0)
    assert len(course.rates(0.0)) <= 2
