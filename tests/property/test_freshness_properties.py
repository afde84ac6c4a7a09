"""Change rates are estimated as Cho and Garcia-Molina do, and visits go where they gain the most."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.policy.revisit import (
    KEPT_VISITS,
    UNKNOWN,
    Beliefs,
    add_visit,
    best_interval_s,
    change_rate,
    freshness,
    price_within,
    visits_of,
)
from headway.units import Seconds

rates = st.floats(1e-8, 1e-1)
intervals = st.floats(1.0, 1e7)
visits = st.lists(st.tuples(intervals, st.booleans()), min_size=1, max_size=40)


@given(st.integers(1, 60), st.integers(0, 60), intervals)
def test_with_equal_intervals_it_is_the_estimator_of_the_paper(
    n: int, changes: int, interval_s: float
) -> None:
    changes = min(changes, n)
    seen = [(interval_s, number < changes) for number in range(n)]
    expected = -math.log((n - changes + 0.5) / (n + 0.5)) / interval_s
    assert change_rate(seen) == pytest.approx(expected, rel=1e-9)


@given(visits)
def test_unequal_intervals_give_the_rate_that_is_most_likely_with_half_a_quiet_visit_more(
    seen: list[tuple[float, bool]],
) -> None:
    rate = change_rate(seen)
    assert rate is not None
    changed = [interval_s for interval_s, is_changed in seen if is_changed]
    if not changed:
        assert rate == 0.0
        return
    quiet_s = sum(interval_s for interval_s, is_changed in seen if not is_changed)
    quiet_s += 0.5 * sum(interval_s for interval_s, _ in seen) / len(seen)
    gain = sum(
        interval_s / math.expm1(rate * interval_s) for interval_s in changed if rate * interval_s < 700
    )
    assert gain == pytest.approx(quiet_s, rel=1e-3)


@given(visits, intervals)
def test_a_change_more_never_lowers_the_rate_and_a_quiet_visit_never_raises_it(
    seen: list[tuple[float, bool]], interval_s: float
) -> None:
    rate = change_rate(seen)
    assert rate is not None
    as_if_changed = change_rate([*seen[:-1], (seen[-1][0], True)])
    as_if_quiet = change_rate([*seen[:-1], (seen[-1][0], False)])
    assert as_if_changed is not None
    assert as_if_quiet is not None
    assert as_if_quiet * (1 - 1e-6) <= rate <= as_if_changed * (1 + 1e-6)


@given(st.lists(st.tuples(st.floats(1.0, 1e6), st.booleans()), max_size=100))
def test_a_history_keeps_the_last_visits(seen: list[tuple[float, bool]]) -> None:
    history = b""
    for interval_s, is_changed in seen:
        history = add_visit(history, interval_s, is_changed=is_changed)
    kept = visits_of(history)
    assert [is_changed for _, is_changed in kept] == [is_changed for _, is_changed in seen[-KEPT_VISITS:]]
    for (interval_s, _), (expected_s, _) in zip(kept, seen[-KEPT_VISITS:], strict=True):
        assert interval_s == pytest.approx(expected_s, rel=1e-6)


@given(rates, st.floats(1e-6, 1e6), st.floats(1.01, 100.0))
def test_no_other_interval_gains_more_at_the_same_price(rate: float, price_s: float, factor: float) -> None:
    price = price_s
    interval_s = best_interval_s(rate, price)

    def gain(interval_s: float) -> float:
        return freshness(rate, interval_s) - price / interval_s

    best = 0.0 if math.isinf(interval_s) else gain(interval_s)
    for other_s in (1 / rate, 10 / rate, 0.1 / rate):
        assert gain(other_s) <= best + 1e-9
    if not math.isinf(interval_s):
        assert gain(interval_s * factor) <= best + 1e-9
        assert gain(interval_s / factor) <= best + 1e-9


@given(
    st.lists(st.tuples(rates, st.integers(1, 100), st.floats(1.0, 1e5)), min_size=1, max_size=20), st.data()
)
def test_the_price_spends_the_budget_and_no_more(
    pages: list[tuple[float, int, float]], data: st.DataObject
) -> None:
    rate, count, cost = (np.array(column, dtype=np.float64) for column in zip(*pages, strict=True))
    budget = data.draw(st.floats(1e-3, 1.0)) * float(np.sum(count * cost * rate))
    price = price_within(rate, count, cost, budget, 1.0)
    intervals_s = [max(1.0, best_interval_s(r, price * c)) for r, c in zip(rate, cost, strict=True)]
    spent = sum(n * c / i for n, c, i in zip(count, cost, intervals_s, strict=True) if math.isfinite(i))
    # At the price at which a page is given up its visits end with a jump, on either side of which it may be.
    at_the_edge = sum(n * c * r / 30 for r, n, c in pages if price * c * r > 1 - 1e-9)
    assert spent <= budget * 1.001 + at_the_edge
    if price > 0:
        cheaper = [max(1.0, best_interval_s(r, 0.98 * price * c)) for r, c in zip(rate, cost, strict=True)]
        more = sum(n * c / i for n, c, i in zip(count, cost, cheaper, strict=True) if math.isfinite(i))
        assert more >= budget * 0.999


def test_the_optimum_beats_equal_and_proportional_visits_on_pages_of_many_rates() -> None:
    """Cho and Garcia-Molina: equal visits beat proportional ones, and the optimum beats both."""
    draw = random.Random(8)
    rate = np.array([math.exp(draw.gauss(math.log(1 / 86400), 2.0)) for _ in range(2000)])
    budget = len(rate) / 86400.0
    price = price_within(rate, np.ones_like(rate), np.ones_like(rate), budget, 0.0)
    best = np.array([best_interval_s(r, price) for r in rate])
    optimal = np.mean([0.0 if math.isinf(i) else freshness(r, i) for r, i in zip(rate, best, strict=True)])
    equal = np.mean([freshness(r, 86400.0) for r in rate])
    proportional = np.mean([freshness(r, np.sum(rate) / budget / r) for r in rate])
    assert optimal > equal > proportional
    assert optimal / equal > 1.05


SHORTEST_S, LONGEST_S = Seconds(3600.0), Seconds(30 * 86400.0)


def history_of(seen: list[tuple[float, bool]]) -> bytes:
    history = b""
    for interval_s, is_changed in seen:
        history = add_visit(history, interval_s, is_changed=is_changed)
    return history


@given(visits)
def test_a_belief_is_a_whole_and_with_no_prior_is_highest_where_the_visits_are_most_likely(
    seen: list[tuple[float, bool]],
) -> None:
    beliefs = Beliefs(SHORTEST_S, LONGEST_S)
    belief = beliefs.posterior(history_of(seen))
    assert belief.sum() == pytest.approx(1.0)
    kept = visits_of(history_of(seen))

    def likelihood(rate: float) -> float:
        return sum(math.log(-math.expm1(-rate * i)) if changed else -rate * i for i, changed in kept)

    best = likelihood(float(beliefs.rates[int(belief.argmax())]))
    assert best >= max(likelihood(float(rate)) for rate in beliefs.rates) - 1e-6 * max(1.0, abs(best))


@given(visits, st.floats(1e-3, 1e7), st.floats(1.1, 10.0))
def test_a_higher_price_never_shortens_an_interval_and_it_stays_within_its_limits(
    seen: list[tuple[float, bool]], price: float, factor: float
) -> None:
    beliefs = Beliefs(SHORTEST_S, LONGEST_S)
    belief = beliefs.posterior(history_of(seen))
    dear, cheap = beliefs.interval_s(belief, price * factor), beliefs.interval_s(belief, price)
    assert SHORTEST_S <= cheap <= dear * (1 + 1e-9) <= LONGEST_S * (1 + 1e-9)


@given(
    st.lists(st.tuples(visits, st.integers(1, 100), st.sampled_from([1.0, 16.0, 4096.0])), max_size=8),
    st.floats(1e-6, 1.0),
)
def test_visits_at_the_price_of_all_beliefs_cost_no_more_than_the_budget(
    pages: list[tuple[list[tuple[float, bool]], int, float]], part: float
) -> None:
    beliefs = Beliefs(SHORTEST_S, LONGEST_S)
    counts: dict[tuple[int, float], int] = {(UNKNOWN, 1.0): 3}
    for seen, count, cost in pages:
        step = beliefs.step_of(history_of(seen))
        beliefs.observe(step, beliefs.posterior(history_of(seen)))
        counts[step, cost] = counts.get((step, cost), 0) + count
    everything = sum(count * cost for (_, cost), count in counts.items())
    least, most = everything / LONGEST_S, everything / SHORTEST_S
    budget = least + part * (most - least)
    price = beliefs.price_within(counts, budget)
    spent = sum(
        count * cost / beliefs.interval_s(beliefs._typical[step], price * cost)
        for (step, cost), count in counts.items()
    )
    assert spent <= budget * 1.1
    if price == 0.0:
        assert most <= budget * 1.001
