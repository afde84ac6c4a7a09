"""Laws of the fluid link: never more than there is, never less than could be, and fair."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.sim.link import (
    RECEIVING,
    ClaimedLink,
    Slots,
    advance,
    begin_transfer,
    new_slots,
    next_change_at,
    set_weight,
    share_link,
)

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


# -- the link with claims, event by event, against the rule over all transfers at each event -----------------

claims = st.sampled_from([0.0, 0.0, 0.5, 20.0, 300.0])
claimed_transfers = st.lists(
    st.tuples(
        st.floats(0.0, 5.0), st.floats(0.0, 2.0), st.integers(0, 5_000), st.floats(1.0, 1_000.0), claims
    ),
    min_size=1,
    max_size=25,
)
changes = st.lists(
    st.tuples(
        st.floats(0.0, 8.0),
        st.tuples(st.just("capacity"), st.floats(5.0, 3_000.0) | st.just(math.inf))
        | st.tuples(st.just("rates"), st.lists(claims, min_size=25, max_size=25))
        | st.tuples(st.just("cut"), st.integers(0, 24)),
    ),
    max_size=6,
)


class EveryTransferAtEachEvent:
    """The rule: the weights of all transfers, and from them all rates, at each event."""

    def __init__(self, capacity: float) -> None:
        self.capacity = capacity
        self.now = 0.0
        self.left: dict[int, list[float]] = {}
        """Latency and bytes left, the server's rate, and the rate of its site."""

    def rates(self) -> dict[int, float]:
        claim = {number: min(row[3], self.capacity, 1e15) for number, row in self.left.items()}
        claimed, without = sum(claim.values()), sum(not each for each in claim.values())
        basis = self.capacity if math.isfinite(self.capacity) else max(1.0, claimed)
        common = max(basis - claimed, 0.01 * max(basis, claimed)) / max(1, without)
        receiving = [number for number, row in self.left.items() if row[0] <= 0.0]
        if not receiving:
            return {}
        caps = np.array([self.left[number][2] for number in receiving])
        weights = np.array([claim[number] or common for number in receiving])
        return dict(zip(receiving, fair_shares(caps, weights, self.capacity).tolist(), strict=True))

    def until(self, then: float) -> dict[int, float]:
        """Go on until then; returns when transfers have ended."""
        ended = {}
        while True:
            rates = self.rates()
            ends = {
                n: max(0.0, self.left[n][1] / rate)
                for n, rate in rates.items()
                if rate or not self.left[n][1]
            }
            waits = [row[0] for row in self.left.values() if row[0] > 0.0]
            step_s = min([then - self.now, *ends.values(), *waits])
            self.now += step_s
            for number, row in list(self.left.items()):
                if number in rates:
                    row[1] -= step_s * rates[number]
                elif row[0] <= step_s:
                    row[0] = 0.0
                else:
                    row[0] -= step_s
                if ends.get(number, math.inf) <= step_s * (1 + 1e-12):
                    ended[number] = self.now
                    del self.left[number]
            if self.now >= then and not any(end <= step_s for n, end in ends.items() if n in self.left):
                return ended
            if not math.isfinite(then) and not self.left:
                return ended


@given(claimed_transfers, st.floats(5.0, 3_000.0), changes)
@settings(max_examples=200, deadline=None)
def test_only_what_changes_is_touched_and_every_transfer_ends_when_the_rule_says(
    wishes: list[tuple[float, float, int, float, float]],
    capacity: float,
    orders: list[tuple[float, tuple[str, Any]]],
) -> None:
    rule, link, number_of = EveryTransferAtEachEvent(capacity), ClaimedLink(0.0, capacity), {}
    expected: dict[int, float] = {}
    ended: dict[int, float] = {}
    todo = [(wish[0], ("begin", row)) for row, wish in enumerate(wishes)] + orders
    for at, (what, value) in [*sorted(todo, key=lambda each: each[0]), (math.inf, ("end", None))]:
        expected |= rule.until(at)
        while (now := link.next_at()) <= at and math.isfinite(now):
            ended |= dict.fromkeys(link.advance(now), now)
        if what == "begin":
            _, latency_s, size, cap, rate = wishes[value]
            number_of[value] = link.begin(at, latency_s, size, cap, rate)
            rule.left[number_of[value]] = [latency_s, float(size), cap, rate]
        elif what == "capacity":
            rule.capacity = value
            link.set_capacity(at, value)
        elif what == "rates":
            both = [n for n in number_of.values() if n in rule.left and n not in ended]
            for number in both:
                rule.left[number][3] = value[number % 25]
            link.set_wishes(at, [(number, value[number % 25]) for number in both])
        elif what == "cut" and (number := number_of.get(value)) in rule.left and number not in ended:
            del rule.left[number]
            link.drop(at, [number])
        is_between = not any(0.0 < row[0] < 1e-6 or row[1] < 1e-6 for row in rule.left.values())
        if what != "end" and is_between:  # rounding decides which of two events at one instant comes first
            for number, rate in rule.rates().items():
                if number not in ended and rule.left[number][1] > 1e-6 and link.next_at() > at + 1e-6:
                    assert link.rate_of(number) == pytest.approx(rate, rel=1e-6, abs=1e-6)
    assert ended.keys() == expected.keys()
    for number, at in expected.items():
        assert ended[number] == pytest.approx(at, rel=1e-6, abs=1e-6)


def test_a_change_touches_no_more_transfers_the_more_there_are() -> None:
    def touched(count: int) -> float:
        """By a transfer that begins and ends, among so many others: some as fast as their servers."""
        rng = np.random.default_rng(1)
        caps, rates = rng.uniform(1.0, 50.0, count), rng.choice([0.0, 5.0, 20.0], count)
        link = ClaimedLink(0.0, 10.0 * count)
        for cap, rate in zip(caps.tolist(), rates.tolist(), strict=True):
            link.begin(0.0, 0.0, 1e9, cap, rate)
        link.advance(0.0)
        before, now = link.touched, 0.0
        for _ in range(1000):
            number = link.begin(now, 0.0, 5.0, 20.0, 10.0)
            link.advance(now)
            while number not in link.advance(now := link.next_at()):
                pass
        return (link.touched - before) / 1000

    few, many = touched(50), touched(5_000)
    assert many < 2 * few + 5
