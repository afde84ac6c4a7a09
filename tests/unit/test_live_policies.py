"""A crawl follows the papers' policies as `headway plan` computes them, and never beyond the link."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.config.job import build_job
from headway.config.reading import Source, convert
from headway.errors import JobError
from headway.model.page import Site
from headway.planning.allocator import Allocation, Allocator, SiteDemand
from headway.planning.live_policies import DEADLINE_MARGIN, make_allocator
from headway.planning.policies import POLICIES, PUBLISHED, Rounds, run_policy
from headway.planning.problem import Objective, Problem, Timetable
from headway.runtime.simulation import DescribedWeb, simulate_job
from headway.sim.web import Servers, make_sites
from headway.units import BytesPerSecond, Instant

LINK = 10_000.0
START = 1_700_000_000.0
SITES = st.lists(
    st.tuples(st.floats(1e3, 1e6), st.one_of(st.none(), st.floats(1.0, 500.0))), min_size=1, max_size=6
)
QUICK = [name for name in PUBLISHED if name not in {"ga", "de"}]


def demand(number: int, left: float, due_s: float | None = None) -> SiteDemand:
    due_at = None if due_s is None else Instant(START + due_s)
    return SiteDemand(Site(f"http://{number}.test"), left, due_at)


def numbered(allocation: Allocation) -> dict[int, float]:
    return {
        int(site.removeprefix("http://").removesuffix(".test")): rate
        for site, rate in allocation.rates.items()
    }


def decide(allocator: Allocator, now_s: float, *demands: SiteDemand, link: float = LINK) -> dict[int, float]:
    return numbered(allocator.decide(Instant(START + now_s), demands, Timetable.constant(link)))


def follow(allocator: Allocator, data: Sequence[float], due_s: list[float | None]) -> list[float]:
    """Crawl sites of exactly this size at exactly the rates decided. Returns their ends."""
    left, ends_s, now_s = dict(enumerate(data)), [math.inf] * len(data), 0.0
    for _ in range(1000):
        if not left:
            return ends_s
        demands = [demand(number, rest, due_s[number]) for number, rest in left.items()]
        allocation = allocator.decide(Instant(START + now_s), demands, Timetable.constant(LINK))
        rates = numbered(allocation)
        until_s = min(
            allocation.decide_again_at - START, *(now_s + left[n] / rate for n, rate in rates.items())
        )
        for number, rate in rates.items():
            left[number] -= rate * (until_s - now_s)
            # An instant of today is a number of which a second's millionth part is barely left.
            if left[number] <= 1e-6 * max(data[number], LINK):
                ends_s[number] = until_s
                del left[number]
        now_s = until_s
    raise AssertionError("it never ends")


@given(sites=SITES, policy=st.sampled_from(list(POLICIES)), crawlers=st.integers(1, 7))
@settings(max_examples=60, deadline=None)
def test_the_rates_never_exceed_the_link_nor_the_sites_the_crawlers(
    sites: list[tuple[float, float | None]], policy: str, crawlers: int
) -> None:
    allocator = make_allocator(policy, Objective.MAX_COMPLETION, crawlers)
    left = dict(enumerate(sites))
    for turn in range(len(sites) + 1):
        rates = decide(allocator, 7.0 * turn, *(demand(number, *site) for number, site in left.items()))
        assert sum(rates.values()) <= LINK * (1 + 1e-9)
        assert len(rates) <= crawlers
        assert rates.keys() <= left.keys()
        assert bool(rates) == bool(left)
        left.pop(next(iter(rates), -1), None)


@pytest.mark.parametrize("policy", QUICK)
@given(sites=SITES)
@settings(max_examples=25, deadline=None)
def test_at_the_start_the_rates_are_those_of_the_plan(
    policy: str, sites: list[tuple[float, float | None]]
) -> None:
    data, due_s = [size for size, _ in sites], [due or math.inf for _, due in sites]
    earlier = Problem.of(data, LINK, deadline_s=[(1 - DEADLINE_MARGIN) * each for each in due_s])
    schedule = run_policy(policy, earlier)
    if not schedule.on_time:
        schedule = run_policy(policy, Problem.of(data, LINK, deadline_s=due_s))
    planned = [segments[0][2] for segments in schedule.segments_by_site()]
    rates = decide(
        make_allocator(policy, Objective.MAX_COMPLETION),
        0.0,
        *map(demand, range(len(sites)), *zip(*sites, strict=True)),
    )
    if not (policy == "random" and not schedule.on_time):
        assert [rates[number] for number in range(len(sites))] == pytest.approx(planned, rel=1e-5)


@pytest.mark.parametrize("policy", [name for name in QUICK if name != "random"])
@given(
    data=st.lists(st.integers(1_000, 1_000_000), min_size=1, max_size=6, unique=True),
    crawlers=st.integers(1, 6),
)
@settings(max_examples=25, deadline=None)
def test_sites_of_the_expected_size_end_as_planned(policy: str, data: list[int], crawlers: int) -> None:
    objective = Objective.SUM_COMPLETION  # by which sites of different sizes do not end together
    planned = run_policy(policy, Problem.of(data, LINK, crawlers=crawlers), objective).end_s
    ends_s = follow(make_allocator(policy, objective, crawlers), data, [None] * len(data))
    if PUBLISHED[policy].rounds is Rounds.ALWAYS:
        # In a crawl the rate of the last sites of a round is not left unused.
        assert max(ends_s) <= planned.max() * (1 + 1e-4) + 1e-3
    else:
        assert np.array(ends_s) == pytest.approx(planned, rel=1e-4, abs=1e-3)


@given(sites=SITES)
@settings(max_examples=50, deadline=None)
def test_what_the_plan_ends_in_time_the_crawl_ends_in_time(sites: list[tuple[float, float | None]]) -> None:
    data, due_s = [size for size, _ in sites], [due for _, due in sites]
    problem = Problem.of(data, LINK, deadline_s=[due or math.inf for due in due_s])
    schedule = run_policy("m-sumt", problem)
    ends_s = follow(make_allocator("m-sumt", Objective.SUM_COMPLETION), data, due_s)
    if schedule.on_time:
        assert all(due is None or end <= due * (1 + 1e-6) for end, due in zip(ends_s, due_s, strict=True))


def test_a_constant_policy_keeps_its_rates_when_a_site_ends() -> None:
    allocator = make_allocator("m-maxt", Objective.MAX_COMPLETION)
    before = decide(allocator, 0.0, demand(0, 50_000, 100), demand(1, 100_000, 200))
    assert decide(allocator, 5.0, demand(1, 60_000, 200)) == {1: before[1]}


def test_a_reallocating_policy_gives_the_rest_what_a_site_leaves() -> None:
    allocator = make_allocator("realloc-sumt", Objective.MAX_COMPLETION)
    decide(allocator, 0.0, demand(0, 50_000, 100), demand(1, 100_000, 200))
    assert decide(allocator, 5.0, demand(1, 60_000, 200)) == {1: pytest.approx(LINK)}


def test_the_rate_of_a_site_that_ends_passes_to_the_one_with_the_earliest_deadline() -> None:
    allocator = make_allocator("alloconce", Objective.MAX_COMPLETION, 2)
    sites = [demand(0, 50_000, 100), demand(1, 100_000, 200), demand(2, 5e4, 400), demand(3, 5e4, 300)]
    before = decide(allocator, 0.0, *sites)
    assert before.keys() == {0, 1}
    assert decide(allocator, 5.0, *sites[1:]) == {1: before[1], 3: before[0]}


@pytest.mark.parametrize("policy", ["m-maxt", "alloconce", "realloc-prodataamount"])
def test_another_link_or_deadline_and_a_site_that_is_added_begin_a_new_round(policy: str) -> None:
    allocator = make_allocator(policy, Objective.MAX_COMPLETION)
    two = demand(0, 50_000, 100), demand(1, 100_000, 200)
    decide(allocator, 0.0, *two)
    halved = decide(allocator, 1.0, *two, link=LINK / 2)
    assert sum(halved.values()) == pytest.approx(LINK / 2)
    assert decide(allocator, 2.0, *two, link=LINK / 2) == halved
    if policy != "realloc-prodataamount":
        assert decide(allocator, 3.0, two[0], demand(1, 100_000, 26), link=LINK / 2) != halved
        added = decide(allocator, 4.0, *two, demand(2, 10_000), link=LINK / 2)
        assert added.keys() == {0, 1, 2}


def test_a_link_that_is_closed_for_some_time_is_used_while_it_is_open() -> None:
    allocator = make_allocator("m-sumt", Objective.SUM_COMPLETION)
    at = Instant(START)
    closing = allocator.decide(at, [demand(0, 5e4)], Timetable([(0.0, LINK), (5.0, 0.0), (9.0, LINK)]))
    assert numbered(closing) == {0: pytest.approx(LINK)}
    closed = allocator.decide(at, [demand(0, 5e4)], Timetable([(0.0, 0.0), (4.0, LINK)]))
    assert not closed.rates
    assert closed.decide_again_at == START + 4.0


def test_more_sites_than_a_policy_can_take_are_a_problem_and_not_a_failure_of_the_crawl() -> None:
    allocator = make_allocator("ga", Objective.MAX_COMPLETION)
    rates = decide(allocator, 0.0, *(demand(number, 1e4) for number in range(201)))
    assert len(rates) == 201
    assert isinstance(allocator.problem, JobError)  # type: ignore[attr-defined]


def test_a_cap_is_held_when_a_rate_is_passed_on() -> None:
    allocator = make_allocator("alloconce", Objective.MAX_COMPLETION, 1)
    slow = SiteDemand(Site("http://1.test"), 1e4, None, BytesPerSecond(100.0))
    decide(allocator, 0.0, demand(0, 1e4, 10), slow)
    assert decide(allocator, 1.0, slow) == {1: 100.0}


def simulated_ends(
    crawl: dict[str, Any], sites: list[tuple[int, float | None]], **more: object
) -> list[float]:
    """When sites of so many pages of 2 KB end in a simulated crawl, by deadline."""
    origins = [f"http://{number}.test" for number in range(len(sites))]
    tables = []
    for origin, (pages, due_s) in zip(origins, sites, strict=True):
        table: dict[str, Any] = {"url": f"{origin}/", "data": f"{2000 * pages} B", **more}
        tables.append(table if due_s is None else {**table, "deadline": f"{due_s} s"})
    keys = {"bandwidth": f"{8 * LINK} bit/s", "interval": "0 s", "respect_robots": False, **crawl}
    source = Source("test")
    job = build_job(convert({"crawl": keys, "site": tables}, source), source)
    counts = np.array([pages for pages, _ in sites])
    web = make_sites([[f"{origin}/"] for origin in origins], counts, np.full(len(sites), 2000.0), 1)
    web = dataclasses.replace(web, size_bytes=np.full(web.pages, 2000))
    many = np.ones(len(sites))
    servers = Servers(0.01 * many, 0.02 * many, 1e6 * many)
    done = simulate_job(job, DescribedWeb.without_trouble(web, servers), Instant(START))
    ended_at = [done.engine.stats.site_stats(Site(origin)).ended_at for origin in origins]
    return [math.inf if at is None else at - START for at in ended_at]


def test_a_constant_rate_is_not_exceeded_when_the_link_is_free() -> None:
    ends = simulated_ends({"policy": "m-maxt"}, [(50, 20.0), (150, None)])
    in_time = 20.0 * (1 - DEADLINE_MARGIN)
    assert ends[0] == pytest.approx(in_time, rel=0.05)
    assert ends[1] == pytest.approx(300_000 / (LINK - 100_000 / in_time), rel=0.05)


def test_headways_own_policy_uses_what_is_free() -> None:
    ends = simulated_ends({"policy": "headway"}, [(50, 20.0), (150, None)])
    assert max(ends) < 1.1 * 400_000 / LINK


def test_a_few_open_sites_fill_the_link_together() -> None:
    """Each alone could use a fifth of it: a page of 2 KB takes 0.2 s, and 0.7 s pass before the next."""
    slow = {"policy": "headway", "interval": "0.7 s"}
    assert max(simulated_ends({**slow, "crawlers": 4}, [(30, None)] * 8)) < 1.25 * 2 * 30 * 0.95


@pytest.mark.parametrize("bandwidth", [f"{8 * LINK} bit/s", f"{80 * LINK} bit/s"])
def test_a_site_gets_no_more_than_its_cap_over_time(bandwidth: str) -> None:
    ends = simulated_ends({"bandwidth": bandwidth}, [(30, None)], cap="16 kbit/s")
    assert ends[0] == pytest.approx(30.0, rel=0.1)


def test_a_site_is_not_starved_by_a_search_that_looks_at_deadlines_alone() -> None:
    sites: list[tuple[int, float | None]] = [(50, 20.0), (60, 30.0), (150, None), (90, 60.0)]
    assert max(simulated_ends({"policy": "de"}, sites)) < 6.5 * 350 * 2000 / LINK
