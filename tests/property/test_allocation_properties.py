"""Laws that every allocation keeps, whatever the sites; optima are held against independent solvers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import linprog, minimize

from headway.planning.baselines import is_sufficient, m_maxt, m_stet, m_sumt, required_bandwidth
from headway.planning.feasibility import Work, is_feasible, least_bandwidths, mandatory
from headway.planning.policies import POLICIES, run_policy
from headway.planning.problem import Objective, Problem, Schedule, Timetable

Floats = NDArray[np.float64]

amounts = st.floats(1.0, 1e9, allow_nan=False)
ROUNDING = 1e-6
# 5 ppm less than 1 byte by the deadline of 0.2 ms: the rounding of times below a second is absolute.
JUST_WITHIN_ITS_CAP = Problem.of(
    [1.0], Timetable.constant(2501.0), deadline_s=[0.00019992], cap_bytes_per_s=[5001.97499]
)


@st.composite
def problems(
    draw: st.DrawFn, *, most_sites: int = 12, caps: bool = True, seats: bool = True, timetables: bool = False
) -> Problem:
    n = draw(st.integers(1, most_sites))
    data = draw(st.lists(st.sampled_from([1.0, 3.0, 10.0, 10.0, 1e3]) | amounts, min_size=n, max_size=n))
    link = draw(st.floats(0.1, 1e6))
    whole_s = sum(data) / link
    tightness = st.sampled_from([0.0, 0.5, 1.0]) | st.floats(0.02, 5.0)
    deadlines = [share * whole_s for share in draw(st.lists(tightness, min_size=n, max_size=n))]
    cap_shares = draw(st.lists(st.just(math.inf) | st.floats(0.02, 2.0), min_size=n, max_size=n))
    steps = [(0.0, link)]
    if timetables:
        turns = draw(st.lists(st.floats(0.05, 1.5), max_size=3, unique=True))
        rates = draw(st.lists(st.sampled_from([0.0, 0.5, 2.0]), min_size=len(turns), max_size=len(turns)))
        steps += [(turn * whole_s, rate * link) for turn, rate in zip(sorted(turns), rates, strict=True)]
        steps.append((steps[-1][0] + whole_s, link))
    return Problem.of(
        data,
        Timetable(steps),
        deadline_s=deadlines,
        cap_bytes_per_s=[share * link for share in cap_shares] if caps else None,
        crawlers=draw(st.none() | st.integers(1, n)) if seats else None,
    )


def check_schedule(schedule: Schedule) -> None:
    """Everything is fetched, nothing is shared out twice, and no site gets more than it can take."""
    problem = schedule.problem
    site, rate = schedule.segment_site, schedule.segment_rate_bytes_per_s
    from_s, to_s = schedule.segment_from_s, schedule.segment_to_s
    assert np.all(np.isfinite(schedule.end_s)), "every site ends"
    assert np.all(rate > 0)
    assert np.all(to_s >= from_s)
    fetched = np.zeros(len(problem))
    np.add.at(fetched, site, rate * (to_s - from_s))
    # Late in a long schedule a moment is only known to the last bit of its number.
    last_bit = 1e-14 * schedule.max_completion_s * problem.capacity.most
    np.testing.assert_allclose(fetched, problem.data_bytes, rtol=ROUNDING, atol=last_bit)
    assert np.all(rate <= problem.cap_bytes_per_s[site] * (1 + ROUNDING))
    horizon_s = schedule.max_completion_s
    moments = np.unique(np.concatenate((from_s, to_s)))
    # Between two moments that differ by rounding alone, segments may seem to overlap.
    moments = moments[:-1][np.diff(moments) > 1e-7 * horizon_s] if len(moments) > 1 else moments[:0]
    for moment in (moments + 0.5e-7 * horizon_s).tolist():
        running = (from_s <= moment) & (moment < to_s)
        assert rate[running].sum() <= problem.capacity.at(moment) * (1 + ROUNDING)
        assert running.sum() <= problem.crawlers


@pytest.mark.parametrize("name", [name for name in POLICIES if name not in {"ga", "de", "headway"}])
@given(problem=problems())
@settings(max_examples=40, deadline=None)
def test_every_policy_fetches_all_within_the_link_the_caps_and_the_seats(name: str, problem: Problem) -> None:
    check_schedule(run_policy(name, problem))


@pytest.mark.parametrize("objective", list(Objective))
@given(problem=problems(timetables=True))
@settings(max_examples=60, deadline=None)
def test_headway_fetches_all_within_the_link_the_caps_and_the_seats(
    objective: Objective, problem: Problem
) -> None:
    check_schedule(run_policy("headway", problem, objective))


@given(problem=problems(seats=False), objective=st.sampled_from(list(Objective)))
@settings(max_examples=300, deadline=None)
def test_headway_meets_all_deadlines_whenever_that_is_possible(
    problem: Problem, objective: Objective
) -> None:
    if is_feasible(Work.at_start(problem), problem.deadline_s):
        assert run_policy("headway", problem, objective).late == 0


@given(problem=problems(most_sites=6, seats=False))
@settings(max_examples=150, deadline=None)
def test_deadlines_are_feasible_exactly_if_a_linear_program_says_so(problem: Problem) -> None:
    link = problem.capacity.most
    # Away from the border, where solvers may differ by rounding.
    assert not is_feasible(_work(problem, 0.999), problem.deadline_s) or _lp_feasible(problem, link)
    assert is_feasible(_work(problem, 1.001), problem.deadline_s) or not _lp_feasible(problem, link)


@given(problem=problems(seats=False))
@example(problem=JUST_WITHIN_ITS_CAP)
@settings(max_examples=100, deadline=None)
def test_the_least_bandwidth_is_enough_and_nothing_less_is(problem: Problem) -> None:
    least, _ = least_bandwidths(problem)
    if least == 0:
        assert not np.any(problem.has_deadline)
    elif math.isinf(least):
        assert not is_feasible(Work.at_start(problem.with_capacity(1e12)), problem.deadline_s)
    else:
        assert is_feasible(Work.at_start(problem.with_capacity(least * 1.0001)), problem.deadline_s)
        assert not is_feasible(Work.at_start(problem.with_capacity(least * 0.9999)), problem.deadline_s)
        assert least <= required_bandwidth(problem) * 1.0001


@given(problem=problems(), shares=st.lists(st.floats(0, 2), min_size=1, max_size=5))
def test_work_that_must_be_done_by_prefix_sums_equals_its_definition(
    problem: Problem, shares: list[float]
) -> None:
    work = Work.at_start(problem)
    left, caps, due_s = work.left_bytes, work.cap_bytes_per_s, work.due_s
    latest_s = float(np.max(due_s[np.isfinite(due_s)], initial=1.0))
    at_s = np.sort(np.array(shares)) * latest_s
    by_definition = [
        sum(
            max(0.0, w - c * max(0.0, d - at))
            for w, c, d in zip(left, caps, due_s, strict=True)
            if d < math.inf
        )
        for at in at_s
    ]
    many = 400  # beyond the size up to which a plain table is used
    got = mandatory(np.tile(left, many), np.tile(caps, many), np.tile(due_s, many), at_s)
    scale = float((caps * latest_s).sum() + left.sum())
    np.testing.assert_allclose(got / many, by_definition, atol=1e-9 * scale)


@given(problem=problems(seats=False, most_sites=40))
@settings(max_examples=200, deadline=None)
def test_constant_rates_are_the_optimum_of_the_dual(problem: Problem) -> None:
    _compare_with_dual(problem)


@pytest.mark.parametrize("n", [1, 2, 10, 100, 1_000, 10_000])
@pytest.mark.parametrize("spread", [0.0, 1.0, 6.0])
def test_constant_rates_are_the_optimum_of_the_dual_for_many_sites(n: int, spread: float) -> None:
    rng = np.random.default_rng(n)
    data = np.exp(rng.normal(10, spread, n))
    deadlines = rng.uniform(0.1, 10, n) * data.sum() ** 0.5
    deadlines[rng.random(n) < 0.2] = 0.0
    deadlines[rng.random(n) < 0.3] = deadlines[0]
    needed = float((data / np.where(deadlines > 0, deadlines, np.inf)).sum())
    for tightness in (0.3, 0.999, 1.5):
        _compare_with_dual(Problem.of(data, max(needed / tightness, 1.0), deadline_s=deadlines))


@given(problem=problems(seats=False, most_sites=5, caps=False))
@settings(max_examples=40, deadline=None)
def test_no_general_solver_beats_the_closed_forms(problem: Problem) -> None:
    link, data = problem.capacity.most, problem.data_bytes
    needed = data / problem.deadline_s
    if not is_sufficient(problem) or float(needed.sum()) > 0.99 * link:
        return
    ours = float((data / m_sumt(problem)).sum())
    start = needed + (link - needed.sum()) * data / data.sum()
    found = minimize(
        lambda shares: float((data / (shares * link)).sum()) / ours,
        start / link,
        bounds=[(max(low, 1e-9), 1.0) for low in needed / link],
        constraints=[{"type": "ineq", "fun": lambda shares: 1.0 - shares.sum()}],
        method="SLSQP",
    )
    if found.success and found.x.sum() <= 1 + 1e-9:
        assert ours <= found.fun * ours * (1 + 1e-6)


@given(problem=problems(seats=False, caps=False))
@settings(max_examples=60, deadline=None)
def test_without_caps_headway_ends_no_later_and_sums_no_higher_than_the_papers_optima(
    problem: Problem,
) -> None:
    varying = run_policy("headway", problem, Objective.SUM_COMPLETION)
    if is_sufficient(problem):
        assert varying.late == 0
        assert varying.max_completion_s <= float((problem.data_bytes / m_maxt(problem)).max()) * (
            1 + ROUNDING
        )
        assert varying.sum_completion_s <= float((problem.data_bytes / m_sumt(problem)).sum()) * (
            1 + ROUNDING
        )


@given(problem=problems(seats=False, caps=False, most_sites=8))
@settings(max_examples=60, deadline=None)
def test_headway_is_never_tardier_than_m_stet(problem: Problem) -> None:
    constant = run_policy("m-stet", problem)
    varying = run_policy("headway", problem, Objective.TARDINESS)
    slack_s = 1e-5 * varying.max_completion_s
    assert varying.total_tardiness_s <= constant.total_tardiness_s * (1 + ROUNDING) + slack_s


@given(problem=problems(), seed=st.integers(0, 5))
@settings(max_examples=20, deadline=None)
def test_the_same_question_always_has_the_same_answer(problem: Problem, seed: int) -> None:
    for name in ("random", "ga", "headway", "realloc-sumt"):
        once, again = (run_policy(name, problem, seed=seed) for _ in range(2))
        assert np.array_equal(once.end_s, again.end_s)


@given(
    steps=st.lists(st.tuples(st.floats(0.1, 100), st.sampled_from([0.0, 1.0, 7.5])), max_size=6),
    shares=st.lists(st.floats(0, 3), min_size=1, max_size=8),
)
def test_the_time_of_an_amount_is_the_inverse_of_the_amount_by_a_time(
    steps: list[tuple[float, float]], shares: list[float]
) -> None:
    turns = np.concatenate(([0.0], np.cumsum([length for length, _ in steps])))
    rates = [*(rate for _, rate in steps), 2.0]
    table = Timetable(list(zip(turns.tolist(), rates, strict=True)))
    times = np.array(shares) * max(float(turns[-1]), 1.0)
    amounts_then = table.amount_until(times)
    first_times = table.time_of(amounts_then)
    np.testing.assert_allclose(table.amount_until(first_times), amounts_then, rtol=1e-9, atol=1e-9)
    assert np.all(first_times <= times + 1e-9 * np.maximum(times, 1.0))
    for time_s in times.tolist():
        later = table.seen_from(time_s)
        ahead = np.array([0.0, 1.0, 50.0])
        expected = table.amount_until(ahead + time_s) - table.amount_until(np.array([time_s]))
        np.testing.assert_allclose(later.amount_until(ahead), expected, atol=1e-7)


def _work(problem: Problem, share_of_link: float) -> Work:
    return Work.at_start(problem.with_capacity(problem.capacity.most * share_of_link))


def _lp_feasible(problem: Problem, link: float) -> bool:
    """Work of each site in each interval between deadlines, as a linear program for HiGHS."""
    timed = np.flatnonzero(problem.has_deadline)
    if not len(timed):
        return True
    data, due_s = problem.data_bytes[timed], problem.deadline_s[timed]
    caps = np.minimum(problem.cap_bytes_per_s[timed], link)
    edges = np.concatenate(([0.0], np.unique(due_s)))
    lengths = np.diff(edges)
    sites, pieces = len(timed), len(lengths)
    bounds = [
        (0.0, caps[i] * lengths[j] / data[i] if edges[j + 1] <= due_s[i] else 0.0)
        for i in range(sites)
        for j in range(pieces)
    ]
    every_site = np.kron(np.eye(sites), np.ones(pieces))
    every_piece = np.kron(np.ones(sites), np.eye(pieces)) * np.repeat(data, pieces)
    answer = linprog(
        np.zeros(sites * pieces),
        A_ub=every_piece / (link * lengths)[:, np.newaxis],
        b_ub=np.ones(pieces),
        A_eq=every_site,
        b_eq=np.ones(sites),
        bounds=bounds,
    )
    return bool(answer.status == 0)


def _compare_with_dual(problem: Problem) -> None:
    """The optimum by bisection on the multiplier of the link's constraint, written for this test."""
    link, data, caps = problem.capacity.most, problem.data_bytes, problem.cap_bytes_per_s
    needed = np.where(problem.has_deadline, data / problem.deadline_s, 0.0)

    def by_multiplier(floor: Floats, ceiling: Floats, weight: Floats) -> Floats:
        low, high = -120.0, 120.0
        for _ in range(300):
            log_s = (low + high) / 2
            rates = np.minimum(np.maximum(math.exp(log_s) * weight, floor), ceiling)
            low, high = (low, log_s) if rates.sum() > link else (log_s, high)
        return np.minimum(np.maximum(math.exp(low) * weight, floor), ceiling)

    if is_sufficient(problem):
        best = by_multiplier(needed, caps, data)
        ours = m_maxt(problem)
        assert _close((data / ours).max(), (data / best).max())
        best, ours = by_multiplier(needed, caps, np.sqrt(data)), m_sumt(problem)
        assert _close((data / ours).sum(), (data / best).sum())
        assert np.all(data / ours <= problem.deadline_s * (1 + 1e-9))
    else:
        ceiling = np.minimum(np.where(problem.has_deadline, needed, math.inf), caps)
        best, ours = by_multiplier(np.zeros(len(data)), ceiling, np.sqrt(data)), m_stet(problem)
        assert _close(_tardiness(problem, ours), _tardiness(problem, best))
    assert ours.sum() <= link * (1 + 1e-9)


def _tardiness(problem: Problem, rates: Floats) -> float:
    return float(np.maximum(problem.data_bytes / rates - problem.deadline_s, 0.0).sum())


def _close(ours: float, best: float) -> bool:
    return bool(abs(ours - best) <= 1e-6 * max(abs(best), 1e-12))
