from __future__ import annotations

import pytest

from headway.policy.admission import NaiveController
from headway.units import BytesPerSecond

ABOVE, AT, BELOW = BytesPerSecond(150.0), BytesPerSecond(140.0), BytesPerSecond(130.0)


def test_it_starts_a_fetcher_below_the_bound_and_stops_one_above() -> None:
    controller = NaiveController(AT, most_fetchers=10)
    assert [controller.measured(rate) for rate in (BELOW, BELOW, AT, ABOVE, ABOVE, BELOW)] == [
        2,
        3,
        3,
        2,
        1,
        2,
    ]


def test_it_keeps_within_its_fetchers() -> None:
    controller = NaiveController(AT, most_fetchers=2)
    assert [controller.measured(BELOW) for _ in range(3)] == [2, 2, 2]
    assert [controller.measured(ABOVE) for _ in range(4)] == [1, 0, 0, 0]
    assert controller.measured(BELOW) == 1, "an idle link starts one again"


def test_it_needs_a_fetcher() -> None:
    with pytest.raises(ValueError, match="most_fetchers must be at least 1, not 0"):
        NaiveController(AT, most_fetchers=0)
