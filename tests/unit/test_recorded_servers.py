"""What the answers of a recorded run say of its servers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.sim.graph import fit_servers, limited_by_link

LATENCY_S, RATE = 0.05, 200_000.0
SITE = np.zeros(400, dtype=np.int32)


def sizes_of(seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).integers(2_000, 200_000, 400)


@given(st.lists(st.tuples(st.integers(200, 10**6), st.floats(1e-3, 100.0)), min_size=1, max_size=40))
def test_the_mean_time_of_the_answers_is_kept(answers: list[tuple[int, float]]) -> None:
    """As long as no rate below a byte a second is needed for that."""
    size, length_s = (np.array(column) for column in zip(*answers, strict=True))
    fitted = fit_servers(np.zeros(len(answers), dtype=np.int32), size, length_s, 1, 0)
    assert (fitted.connect_s >= 0).all()
    assert (fitted.answer_s >= 0).all()
    mean_s = fitted.connect_s[0] + fitted.answer_s[0] + size.mean() / fitted.rate_bytes_per_s[0]
    assert mean_s == pytest.approx(length_s.mean(), rel=1e-6, abs=1e-2)


def test_latency_and_rate_are_found_where_nothing_limits() -> None:
    size = sizes_of()
    fitted = fit_servers(SITE, size, LATENCY_S + size / RATE, 1, 0)
    assert fitted.connect_s[0] + fitted.answer_s[0] == pytest.approx(LATENCY_S)
    assert fitted.rate_bytes_per_s[0] == pytest.approx(RATE)


def test_answers_that_the_link_limited_do_not_slow_the_server_down() -> None:
    """Half of the answers had a tenth of the rate, since the link had no more."""
    size, chance = sizes_of(), np.random.default_rng(2)
    rates = RATE * np.exp(chance.normal(0.0, 0.2, len(size)))
    limited = chance.random(len(size)) < 0.5
    length_s = LATENCY_S + size / np.where(limited, rates / 10, rates)
    naive, censored = (
        fit_servers(SITE, size, length_s, 1, 0, flags).rate_bytes_per_s[0] for flags in (None, limited)
    )
    assert naive < 0.4 * RATE
    assert censored == pytest.approx(RATE, rel=0.25)


def test_where_all_answers_were_limited_the_server_is_faster_than_any_of_them() -> None:
    size = sizes_of()
    fitted = fit_servers(SITE, size, LATENCY_S + size / RATE, 1, 0, np.ones(len(size), dtype=np.bool_))
    assert fitted.rate_bytes_per_s[0] >= 1.9 * RATE


def test_an_answer_is_limited_while_the_link_is_busy_and_not_otherwise() -> None:
    at = np.arange(6.0)
    received = np.array([0.0, 100.0, 200.0, 200.0, 210.0, 210.0])
    samples = at, received, np.full(6, 100.0)
    begun_at, lengths_s = np.array([0.5, 1.2, 2.5, 3.1]), np.array([0.2, 0.3, 0.1, 1.5])
    assert limited_by_link(samples, begun_at, lengths_s).tolist() == [True, True, False, False]


def test_an_unbounded_link_limits_no_server() -> None:
    at = np.arange(3.0)
    samples = at, np.array([0.0, 1e9, 2e9]), np.full(3, np.inf)
    assert not limited_by_link(samples, np.array([0.5]), np.array([1.0])).any()
