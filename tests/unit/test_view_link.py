"""Samples of a counter as rates of the link: what a second is, and which bound it is compared with."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.store.reader import Sample
from headway.view.link import LONGEST_STEP_S, SHORTEST_SECOND_S, LinkFigures, LinkHistory, LinkSecond


def figures(*samples: Sample) -> LinkFigures:
    return LinkHistory(samples).figures


def samples_of(steps: list[tuple[float, int]], bound: float = 1000.0) -> list[Sample]:
    return [Sample(at, received, bound) for at, received in steps]


def test_the_mean_goes_by_how_long_each_step_was() -> None:
    found = figures(*samples_of([(0.0, 0), (10.0, 1000), (10.6, 1600), (10.7, 1600), (20.0, 0), (21.0, 100)]))
    assert found.mean_bytes_per_s == pytest.approx((1600 + 100) / (10.7 + 1.0))
    assert (found.received_bytes, found.sittings) == (1700, 2)
    assert LinkHistory([]).figures == LinkFigures()


def test_a_short_last_step_counts_in_the_mean_and_is_no_second() -> None:
    found = figures(*samples_of([(0.0, 0), (1.0, 1000), (1.2, 1600)], bound=2000.0))
    assert (found.mean_bytes_per_s, found.max_bytes_per_s) == pytest.approx((1600 / 1.2, 1000.0))
    assert found.use_of_bound == pytest.approx(1600 / 2400)


def test_time_between_sessions_counts_nowhere() -> None:
    resumed = figures(*samples_of([(0, 0), (1, 1000), (2, 2000), (5000, 100), (5001, 1100)]))
    assert (resumed.mean_bytes_per_s, resumed.active_s, resumed.use_of_bound) == (1000.0, 3.0, 1.0)
    fleet = figures(*samples_of([(0, 0), (1, 1000), (5000, 1000), (5001, 2000)]))
    assert (fleet.mean_bytes_per_s, fleet.active_s, fleet.sittings) == (1000.0, 2.0, 2)


def test_a_second_is_compared_with_the_bound_that_held_in_it() -> None:
    """The bound falls and rises at marked instants, and each second is as full as it may be."""
    history = LinkHistory(
        [
            Sample(0.0, 0, 4000.0),
            Sample(1.0, 4000, 4000.0),
            Sample(1.4, 5600, 4000.0),
            Sample(1.4, 5600, 1000.0),
            Sample(2.0, 6200, 1000.0),
            Sample(3.0, 7200, 1000.0),
            Sample(3.0, 7200, 8000.0),
            Sample(4.0, 15200, 8000.0),
        ]
    )
    assert [second.bound_bytes_per_s for second in history.seconds] == pytest.approx([4000, 2200, 1000, 8000])
    assert history.figures.most_over_bound == pytest.approx(0.0)
    assert history.figures.use_of_bound == pytest.approx(1.0)
    assert history.figures.bound_bytes_per_s == 8000.0
    assert (history.figures.lowest_bound_bytes_per_s, history.figures.highest_bound_bytes_per_s) == (
        1000,
        8000,
    )


def test_a_second_over_the_bound_that_held_is_found_though_a_higher_one_held_before() -> None:
    found = figures(
        Sample(0, 0, 9000.0), Sample(1, 9000, 9000.0), Sample(1, 9000, 1000.0), Sample(2, 12_000, 1000.0)
    )
    assert (found.most_over_bound, found.seconds_over_bound) == (pytest.approx(2.0), 1)


def test_a_change_at_an_unknown_instant_is_given_the_higher_bound() -> None:
    for bounds in ((4000.0, 1000.0), (1000.0, 4000.0)):
        before, after = bounds
        found = figures(Sample(0, 0, before), Sample(1, 4000, after))
        assert found.most_over_bound == pytest.approx(0.0)


def test_a_bound_of_zero_and_none_are_no_share_of_anything() -> None:
    found = figures(Sample(0, 0, 0.0), Sample(1, 70, 0.0), Sample(2, 70, 0.0))
    assert (found.use_of_bound, found.most_over_bound, found.bytes_at_zero_bound) == (None, None, 70)
    free = figures(Sample(0, 0, math.inf), Sample(1, 9000, math.inf))
    assert (free.use_of_bound, free.most_over_bound, free.bound_bytes_per_s) == (None, None, None)
    assert free.max_bytes_per_s == 9000.0
    bounded_later = figures(
        Sample(0, 0, math.inf), Sample(1, 9000, math.inf), Sample(1, 9000, 1000.0), Sample(2, 9900, 1000.0)
    )
    assert (bounded_later.use_of_bound, bounded_later.most_over_bound) == pytest.approx((0.9, -0.1))
    assert (bounded_later.lowest_bound_bytes_per_s, bounded_later.highest_bound_bytes_per_s) == (1000.0, None)


def test_while_a_person_has_paused_the_crawl_nothing_of_the_bound_is_unused() -> None:
    found = figures(
        Sample(0, 0, 1000.0),
        Sample(1, 1000, 1000.0),
        Sample(2, 1100, 1000.0, is_paused=1),
        Sample(3, 1100, 1000.0, is_paused=1),
        Sample(4, 2000, 1000.0),
    )
    assert found.use_of_bound == pytest.approx((1000 + 100 + 900) / 3000)
    assert found.active_s == 4


def test_what_was_used_between_two_instants() -> None:
    history = LinkHistory(samples_of([(0, 0), (10, 10_000), (20, 10_000), (30, 15_000)]))
    assert history.use_of_bound(0, 10) == pytest.approx(1.0)
    assert history.use_of_bound(10, 20) == pytest.approx(0.0)
    assert history.use_of_bound(12, 25) == pytest.approx(0.25), "whole steps"
    assert LinkHistory([]).use_of_bound(0, 1) is None


_STEPS = st.lists(
    st.tuples(
        st.floats(0.0, 40.0),
        st.integers(0, 10**7),
        st.sampled_from([0.0, 500.0, 1e5, math.inf]),
        st.booleans(),
    ),
    max_size=60,
)


@given(_STEPS)
def test_every_byte_of_a_sitting_is_counted_once(steps: list[tuple[float, int, float, bool]]) -> None:
    at, received, samples = 0.0, 0, [Sample(0.0, 0, 500.0)]
    for length_s, carried, bound, is_new_process in steps:
        at, received = at + length_s, carried if is_new_process else received + carried
        samples.append(Sample(at, received, bound))
    history = LinkHistory(samples)
    counted = [
        (before, after)
        for before, after in pairwise(samples)
        if after.wire_bytes >= before.wire_bytes and after.at - before.at <= LONGEST_STEP_S
    ]
    found = history.figures
    assert found.received_bytes == sum(after.wire_bytes - before.wire_bytes for before, after in counted)
    assert found.active_s == pytest.approx(sum(after.at - before.at for before, after in counted))
    assert sum(second.rate_bytes_per_s * second.length_s for second in history.seconds) <= (
        found.received_bytes * (1 + 1e-9)
    )
    assert all(second.length_s >= SHORTEST_SECOND_S for second in history.seconds)
    assert found.max_bytes_per_s == max((second.rate_bytes_per_s for second in history.seconds), default=0.0)
    _check_bounds(history.seconds, found)


def _check_bounds(seconds: list[LinkSecond], found: LinkFigures) -> None:
    overs = [second.over_bound for second in seconds if second.over_bound is not None]
    assert found.most_over_bound == (max(overs) if overs else None)
    assert found.seconds_over_bound <= len(overs)
