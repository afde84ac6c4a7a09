from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.policy.prediction import Prediction
from headway.units import BytesPerSecond, Instant

INSTANTS = st.integers(0, 4_000_000_000).map(lambda s: Instant(float(s)))
RATES = st.floats(1.0, 1e9).map(BytesPerSecond)
SERVERS = st.sampled_from("abcde")


@given(st.lists(st.tuples(INSTANTS, SERVERS, RATES), min_size=1, max_size=60), INSTANTS, RATES)
def test_a_prediction_lies_between_the_prior_and_all_measures(
    downloads: list[tuple[Instant, str, BytesPerSecond]], now: Instant, prior: BytesPerSecond
) -> None:
    table = Prediction(prior)
    for at, server, measured in downloads:
        table.learn(at, server, measured)
    seen = [prior, *(measured for _, _, measured in downloads)]
    for server in [*"abcde", "unknown"]:
        assert min(seen) * (1 - 1e-4) <= table.predict(now, server) <= max(seen) * (1 + 1e-4)


@given(INSTANTS, RATES, RATES)
def test_a_steady_server_is_predicted_rightly_in_the_end(
    now: Instant, prior: BytesPerSecond, steady: BytesPerSecond
) -> None:
    table = Prediction(prior)
    for _ in range(80):
        table.learn(now, "a", steady)
    assert table.predict(now, "a") == pytest.approx(steady, rel=1e-2, abs=prior * 1e-4)
