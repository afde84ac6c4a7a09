"""zhu2020's own numbers and rules, the readings of its misprints, and what varying rates gain on them."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))  # `benchmarks` is not installed

from benchmarks.allocation.quality import best_known_tardiness_s, overloaded

from headway.errors import JobError
from headway.planning import policies
from headway.planning.baselines import (
    is_sufficient,
    m_maxt,
    m_stet,
    m_sumt,
    probandwidth,
    prodataamount,
    random_shares,
    required_bandwidth,
)
from headway.planning.feasibility import least_bandwidths
from headway.planning.policies import POLICIES, run_policy
from headway.planning.problem import Objective, Problem

RATIOS = np.array([1, 1.3, 1.6, 1.9, 2.2, 2.5])
SIX_SITES_KBIT = 125_000 * RATIOS / RATIOS.sum()
DEADLINES_S = [60, 90, 180, 200, 320, 400]


def six_sites(bandwidth_kbit_per_s: float = 1000.0, tightness: float = 1.0) -> Problem:
    deadlines = [deadline / tightness for deadline in DEADLINES_S]
    return Problem.of(SIX_SITES_KBIT, bandwidth_kbit_per_s, deadline_s=deadlines)


def test_varying_rates_need_less_than_half_the_bandwidth_of_constant_ones() -> None:
    problem = six_sites()
    least, needs = least_bandwidths(problem)
    assert required_bandwidth(problem) == pytest.approx(745.5, abs=0.1)
    assert least == pytest.approx(345.2, abs=0.1)
    assert int(np.argmax(needs)) == 3, "the fourth site's deadline binds"
    assert run_policy("headway", six_sites(345.3)).late == 0
    assert run_policy("headway", six_sites(345.1)).late > 0


def test_six_sites_at_1000_kbit_end_as_worked_out_by_hand() -> None:
    problem = six_sites()
    assert run_policy("m-maxt", problem).max_completion_s == pytest.approx(155.04, abs=0.01)
    assert run_policy("m-sumt", problem).sum_completion_s == pytest.approx(765.97, abs=0.01)
    varying = run_policy("headway", problem, Objective.SUM_COMPLETION)
    assert varying.max_completion_s == pytest.approx(125.0)
    assert varying.sum_completion_s == pytest.approx(375.0)
    assert varying.sum_execution_s == pytest.approx(125.0)


@pytest.mark.parametrize(("tightness", "ratio"), [(1.75, 1.3), (2.7, 2.0)])
def test_what_constant_rates_cannot_meet_varying_rates_can(tightness: float, ratio: float) -> None:
    problem = six_sites(tightness=tightness)
    assert required_bandwidth(problem) == pytest.approx(1000 * ratio, rel=0.01)
    assert not is_sufficient(problem)
    assert run_policy("m-stet", problem).total_tardiness_s > 50
    assert run_policy("headway", problem, Objective.TARDINESS).total_tardiness_s == 0


def test_each_of_the_papers_policies_wins_on_its_own_objective() -> None:
    constant = [name for name in POLICIES if name != "headway" and not name.startswith(("realloc", "alloc"))]
    for bandwidth in (800, 1000, 1200):
        done = {name: run_policy(name, six_sites(bandwidth)) for name in constant}
        meeting = {name: one for name, one in done.items() if one.late == 0}
        assert done["m-maxt"].max_completion_s == min(one.max_completion_s for one in meeting.values())
        best_sum = min(one.sum_completion_s for one in meeting.values())
        assert done["m-sumt"].sum_completion_s == pytest.approx(best_sum)
    short = {name: run_policy(name, six_sites(600), Objective.TARDINESS) for name in constant}
    least = min(one.total_tardiness_s for one in short.values())
    assert short["m-stet"].total_tardiness_s == pytest.approx(least)


def test_sites_left_over_by_algorithm_1_share_by_data_not_by_deadline() -> None:
    problem = Problem.of([10.0, 10.0, 30.0], 10.0, deadline_s=[2.0, 100.0, 200.0])
    assert m_maxt(problem) == pytest.approx([5.0, 1.25, 3.75])


def test_m_sumt_gives_square_root_shares_where_no_deadline_presses() -> None:
    assert m_sumt(Problem.of([1.0, 4.0, 9.0], 12.0)) == pytest.approx([2.0, 4.0, 6.0])


def test_m_stet_ends_no_site_before_the_deadline() -> None:
    problem = Problem.of([10.0, 10.0, 40.0], 5.0, deadline_s=[100.0, 2.0, 4.0])
    rates = m_stet(problem)
    assert rates.sum() == pytest.approx(5.0)
    assert rates[0] == pytest.approx(0.1), "it keeps to its deadline, and the rest goes to those in need"
    assert rates[2] / rates[1] == pytest.approx(2.0), "by the square root of the data"


def test_probandwidth_scales_what_deadlines_need() -> None:
    problem = Problem.of([10.0, 40.0], 10.0, deadline_s=[10.0, 10.0])
    assert probandwidth(problem) == pytest.approx([2.0, 8.0])


def test_a_site_without_a_deadline_stands_in_with_the_latest_one() -> None:
    problem = Problem.of([10.0, 10.0, 10.0], 9.0, deadline_s=[10.0, 20.0, 0.0])
    assert probandwidth(problem) == pytest.approx([4.5, 2.25, 2.25])
    assert probandwidth(Problem.of([1.0, 2.0], 3.0)) == pytest.approx([1.0, 2.0])


def test_random_meets_deadlines_first_and_gives_the_rest_by_lot() -> None:
    problem = six_sites()
    rates = random_shares(problem, np.random.default_rng(7))
    assert np.all(SIX_SITES_KBIT / rates <= np.array(DEADLINES_S) * (1 + 1e-9))
    assert rates.sum() == pytest.approx(1000.0)
    assert not np.allclose(rates, random_shares(problem, np.random.default_rng(8)))


def test_prodataamount_lets_all_end_together() -> None:
    assert np.ptp(SIX_SITES_KBIT / prodataamount(six_sites())) == pytest.approx(0.0, abs=1e-9)


def test_bandwidth_is_sufficient_only_if_sites_without_a_deadline_are_left_something() -> None:
    assert is_sufficient(Problem.of([10.0], 1.0, deadline_s=[10.0]))
    assert not is_sufficient(Problem.of([10.0, 5.0], 1.0, deadline_s=[10.0, 0.0]))


def test_a_cap_below_the_need_makes_every_bandwidth_insufficient() -> None:
    problem = Problem.of([10.0, 10.0], 100.0, deadline_s=[1.0, 5.0], cap_bytes_per_s=[5.0, math.inf])
    assert math.isinf(required_bandwidth(problem))
    assert math.isinf(least_bandwidths(problem)[0])
    assert run_policy("headway", problem, Objective.TARDINESS).total_tardiness_s == pytest.approx(1.0)


def test_a_round_passes_rates_on_and_allocates_again_when_its_first_sites_are_done() -> None:
    # Two crawlers: a and b are due first and end together at 4 s; c and d follow as a second round.
    problem = Problem.of([10.0, 30.0, 20.0, 20.0], 10.0, deadline_s=[5.0, 6.0, 7.0, 8.0], crawlers=2)
    done = run_policy("realloc-maxt", problem)
    assert done.end_s == pytest.approx([4.0, 4.0, 8.0, 8.0])
    assert done.start_s == pytest.approx([0.0, 0.0, 4.0, 4.0])
    once = run_policy(
        "alloconce", Problem.of([10.0, 40.0, 20.0], 10.0, deadline_s=[2.0, 8.0, 9.0], crawlers=2)
    )
    assert once.end_s == pytest.approx([2.0, 8.0, 6.0]), "c gets a's rate, and nothing is allocated again"


def test_batches_of_prodataamount_start_and_end_together() -> None:
    problem = Problem.of([10.0, 30.0, 20.0], 10.0, deadline_s=[3.0, 2.0, 9.0], crawlers=2)
    done = run_policy("realloc-prodataamount", problem)
    assert done.end_s == pytest.approx([4.0, 4.0, 6.0])


def test_a_site_late_before_its_round_begins_still_gets_its_share() -> None:
    problem = Problem.of([100.0, 100.0, 100.0], 10.0, deadline_s=[1.0, 1.0, 1.0], crawlers=1)
    for name in POLICIES:
        done = run_policy(name, problem)
        assert np.sort(done.end_s) == pytest.approx([10.0, 20.0, 30.0]), name


def test_rounds_of_as_many_crawlers_as_sites_are_one_instant_allocation() -> None:
    for rounds, instant in (("realloc-maxt", "m-maxt"), ("realloc-sumt", "m-sumt")):
        assert run_policy(rounds, six_sites()).end_s == pytest.approx(run_policy(instant, six_sites()).end_s)


def test_instant_policies_go_in_rounds_rather_than_open_too_many_sites() -> None:
    problem = Problem.of([10.0] * 4, 10.0, crawlers=2)
    done = run_policy("m-maxt", problem)
    assert done.end_s == pytest.approx([2.0, 2.0, 4.0, 4.0])
    assert any("rounds" in note for note in done.notes)


def test_wrong_estimates_change_the_ends_but_not_what_the_policy_believed() -> None:
    problem = Problem.of([10.0, 10.0], 10.0)
    done = run_policy("m-maxt", problem, actual=np.array([10.0, 13.0]))
    assert done.end_s == pytest.approx([2.0, 2.6])


@pytest.mark.parametrize("seed", range(4))
def test_with_estimates_wrong_by_30_per_cent_headway_still_meets_the_most_deadlines(seed: int) -> None:
    rng = np.random.default_rng(seed)
    data = rng.uniform(1.0, 2.5, 50)
    order = rng.permutation(50)
    deadlines = np.empty(50)
    deadlines[order] = np.cumsum(data[order]) * rng.uniform(0.9, 1.5, 50)
    problem = Problem.of(data, 1.2, deadline_s=deadlines, crawlers=5)
    actual = data * rng.uniform(0.7, 1.3, 50)
    ours = policies.run(problem, Objective.LATE_SITES, actual, margin=0.3)
    rounds = [name for name in POLICIES if name.startswith(("realloc", "alloconce"))]
    assert ours.late <= min(run_policy(name, problem, actual=actual).late for name in rounds)


def test_ga_and_de_come_near_the_optimum_and_refuse_what_they_cannot_search() -> None:
    best = run_policy("m-maxt", six_sites()).max_completion_s
    for name in ("ga", "de"):
        found = run_policy(name, six_sites())
        assert found.late == 0
        assert best <= found.max_completion_s <= 1.1 * best
        with pytest.raises(JobError, match="at most 200 sites"):
            run_policy(name, Problem.of(np.ones(201), 1.0))


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ({"data_bytes": [0.0]}, "data_bytes"),
        ({"data_bytes": [-1.0]}, "data_bytes"),
        ({"data_bytes": [math.nan]}, "data_bytes"),
        ({"data_bytes": [math.inf]}, "finite"),
        ({"data_bytes": [1.0], "deadline_s": [-1.0]}, "past"),
        ({"data_bytes": [1.0], "deadline_s": [math.nan]}, "past or not a number"),
        ({"data_bytes": [1.0], "cap_bytes_per_s": [0.0]}, "cap_bytes_per_s"),
        ({"data_bytes": [1.0], "weight": [0.0]}, "weight"),
        ({"data_bytes": [1.0], "xi": [-1.0]}, "xi"),
        ({"data_bytes": [1.0], "weight": [1.0, 2.0]}, "2 values for 1 sites"),
    ],
)
def test_a_problem_that_makes_no_sense_is_refused(columns: dict[str, list[float]], complaint: str) -> None:
    with pytest.raises(JobError, match=complaint):
        Problem.of(capacity=1.0, **columns)  # type: ignore[arg-type]


@pytest.mark.parametrize("bandwidth", [0.0, -1.0, math.nan])
def test_a_link_that_carries_nothing_is_refused(bandwidth: float) -> None:
    with pytest.raises(JobError, match="bandwidth"):
        Problem.of([1.0], bandwidth)


def test_no_sites_at_all_is_a_plan_of_nothing() -> None:
    for name in POLICIES:
        done = run_policy(name, Problem.of([], 1.0))
        assert done.max_completion_s == 0.0
        assert done.late == 0


def test_only_headway_can_live_with_hours_of_no_bandwidth() -> None:
    from headway.planning.problem import Timetable

    night_only = Timetable([(0.0, 10.0), (5.0, 0.0), (50.0, 10.0)])
    problem = Problem.of([40.0, 40.0], night_only, deadline_s=[60.0, 5.0])
    done = run_policy("headway", problem)
    assert done.end_s == pytest.approx([53.0, 4.0])
    with pytest.raises(JobError, match="never zero"):
        run_policy("m-maxt", problem)


def test_a_million_sites_with_ties_are_one_call() -> None:
    n = 1_000_000
    rng = np.random.default_rng(1)
    problem = Problem.of(rng.integers(1, 50, n) * 1e4, 1e9, deadline_s=rng.integers(1, 20, n) * 3600.0)
    rates = m_sumt(problem)
    assert rates.sum() <= 1e9 * (1 + 1e-9)
    assert np.all(problem.data_bytes / rates <= problem.deadline_s * (1 + 1e-9))


@pytest.mark.parametrize(("count", "seed", "load"), [(30, 0, 0.5), (30, 1, 0.95)])
def test_with_caps_and_too_little_bandwidth_no_simple_list_is_better(
    count: int, seed: int, load: float
) -> None:
    problem = overloaded(count, seed, load)
    ours = run_policy("headway", problem, Objective.TARDINESS).total_tardiness_s
    assert ours <= 1.05 * best_known_tardiness_s(problem, 0.0) + 1e-6
