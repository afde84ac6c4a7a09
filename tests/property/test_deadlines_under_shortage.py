"""Crawls of drawn jobs in virtual time: how many deadlines they meet, and what is said of the others."""

from __future__ import annotations

from dataclasses import replace

import pytest
from benchmarks.deadlines.cases import Case, cases, drawn, exact
from benchmarks.deadlines.possible import best_of_paper, planned, possible
from benchmarks.deadlines.simulated import Crawled, simulate

DRAWS = range(12)


@pytest.fixture(scope="module", params=DRAWS)
def case(request: pytest.FixtureRequest) -> Case:
    return drawn(request.param)


@pytest.fixture(scope="module")
def crawled(case: Case) -> Crawled:
    return simulate(case)


def test_with_exact_sizes_a_crawl_meets_what_the_plan_says_is_possible(case: Case) -> None:
    assert simulate(exact(case)).met >= planned(case) == possible(case)


def test_with_sizes_wrong_by_up_to_30_percent_no_policy_of_the_paper_meets_more(
    case: Case, crawled: Crawled
) -> None:
    assert crawled.met >= best_of_paper(case, searches=False)[0]


def test_nothing_is_said_of_a_deadline_after_it(case: Case, crawled: Crawled) -> None:
    assert all(at_s <= (case.sites[site].deadline_s or 0.0) for at_s, site, _ in crawled.messages)


def test_whoever_misses_a_deadline_was_announced(case: Case, crawled: Crawled) -> None:
    announced = {site for _, site, decision in crawled.messages if decision.decision == "foresee-late"}
    missed = {site for site, is_met in enumerate(crawled.is_met) if not is_met}
    assert len(missed - announced) <= 1, "one may be late by a page's time"


def named(name: str) -> Case:
    return next(case for case in cases() if case.name == name)


def test_what_is_given_up_from_the_start_is_said_at_the_start_with_the_bandwidth_that_would_help() -> None:
    case = named("insufficient")
    first = {site: decision for at_s, site, decision in simulate(case).messages if at_s == 0.0}
    assert len(first) == len(case.sites) - planned(case)
    assert {decision.reason for decision in first.values()} == {"bandwidth"}
    needed = max(decision.needed_bytes_per_s or 0.0 for decision in first.values())
    # The advice is true: with that bandwidth all deadlines are met.
    assert all(simulate(replace(case, link_bytes_per_s=needed)).is_met)


@pytest.mark.parametrize("name", ["sufficient", "tight", "a site slows down half-way", "the bound is halved"])
def test_what_is_possible_is_met_in_the_cases_of_the_benchmark(name: str) -> None:
    case = named(name)
    assert simulate(case).met >= possible(case)
