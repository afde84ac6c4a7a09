"""Laws of the fluid link: never more than there is, never less than could be, and fair."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.sim.link import Slots, advance, begin_transfer, new_slots, next_change_at, set_weight, share_link
from headway.sim.world import RECEIVING

transfers = st.lists(
    st.tuples(
        st.floats(0.0, 5.0),  # when it is asked for
        st.floats(0.0, 2.0),  # latency
        st.integers(0, 5_000),  # bytes
        st.floats(1.0, 1_000.0),  # the server's rate
        st.sampled_from([1.0, 1.0, 0.25, 3.0]),  # weight
    ),
    min_size=1,
    max_size=12,
)
capacities = st.floats(5.0, 3_000.0) | st.just(math.inf)


def fair_shares(caps: np.ndarray, weights: np.ndarray, capacity: float) -> np.ndarray:
    """Max-min fairness by raising one level until the link or every cap is reached, by bisection."""
    low, high = 0.0, float((caps / weights).max())
    if caps.sum() <= capacity:
        return caps
    for _ in range(200):
        level = (low + high) / 2
        low, high = (low, level) if np.minimum(caps, level * weights).sum() > capacity else (level, high)
    return np.minimum(caps, low * weights)


def check_shares(slots: Slots, capacity: float) -> None:
    receiving = np.flatnonzero(slots.stage == RECEIVING)
    if len(receiving):
        shares = fair_shares(slots.cap[receiving], slots.weight[receiving], capacity)
        np.testing.assert_allclose(slots.rate[receiving], shares, rtol=1e-6, atol=1e-9)


@given(transfers, capacities)
@settings(max_examples=300, deadline=None)
def test_everyone_has_a_fair_share_at_every_instant(
    wishes: list[tuple[float, float, int, float, float]], capacity: float
) -> None:
    slots = new_slots(len(wishes))
    coming, ended, now, carried = sorted(wishes), 0, 0.0, 0.0
    while ended < len(wishes):
        rate = slots.rate[slots.stage == RECEIVING].sum()
        before, now = now, min(next_change_at(slots), coming[0][0] if coming else math.inf)
        assert math.isfinite(now), "a transfer is under way that will never end"
        carried += rate * (now - before)
        ended += advance(slots, now, capacity)
        while coming and coming[0][0] <= now:
            _, latency_s, size, cap, weight = coming.pop(0)
            begin_transfer(slots, now, latency_s, size, cap, weight)
        check_shares(slots, capacity)
    assert carried == pytest.approx(sum(size for _, _, size, _, _ in wishes), rel=1e-6, abs=1e-6)
    if math.isfinite(capacity):
        assert now * capacity >= carried * (1 - 1e-9)


def test_a_link_with_enough_for_all_slows_no_transfer() -> None:
    slots = new_slots(3)
    for cap in (10.0, 20.0, 30.0):
        begin_transfer(slots, 0.0, 1.0, 60.0, cap, 1.0)
    ends = []
    while math.isfinite(at := next_change_at(slots)):
        ends += [at] * advance(slots, at, 60.0)
    assert ends == [3.0, 4.0, 7.0]


def test_what_a_slow_server_leaves_goes_to_the_others() -> None:
    slots = new_slots(3)
    for cap in (10.0, 1000.0, 1000.0):
        begin_transfer(slots, 0.0, 0.0, 1e6, cap, 1.0)
    advance(slots, 0.0, 110.0)
    assert slots.rate.tolist() == [10.0, 50.0, 50.0]


def test_a_link_that_is_closed_lets_nothing_through_until_it_opens() -> None:
    slots = new_slots(1)
    begin_transfer(slots, 0.0, 0.0, 100.0, 10.0, 1.0)
    advance(slots, 0.0, 0.0)
    assert math.isinf(next_change_at(slots))
    share_link(slots, 50.0, 5.0)
    assert next_change_at(slots) == 70.0


def test_a_new_weight_counts_from_the_next_sharing() -> None:
    slots = new_slots(2)
    for _ in range(2):
        begin_transfer(slots, 0.0, 0.0, 1e6, 1000.0, 1.0)
    advance(slots, 0.0, 100.0)
    set_weight(slots, 1, 3.0)
    share_link(slots, 1.0, 100.0)
    assert slots.rate.tolist() == [25.0, 75.0]
