"""The servers of a recorded run are those that a second crawl would meet, not those that our bound let
through."""

from __future__ import annotations

import math

import numpy as np
import pytest

from headway.sim.graph import RecordedServers, fit_rates, use_of_bound
from headway.sim.web import Servers
from headway.store.rows import AnswerTiming
from headway.store.sqlite import SqliteStore
from headway.units import BytesPerSecond, Instant

MEAN, DEVIATION = math.log(50_000.0), 0.5


def test_rates_that_we_held_back_do_not_make_the_server_slow():
    chance = np.random.default_rng(1)
    true = np.exp(chance.normal(MEAN, DEVIATION, 600))
    bound = np.exp(chance.normal(MEAN, 0.3, 600))
    seen, is_limited = np.minimum(true, bound), bound < true
    mean, deviation = fit_rates(seen, is_limited)
    assert mean == pytest.approx(MEAN, abs=0.08)
    assert deviation == pytest.approx(DEVIATION, abs=0.08)
    naive, _ = fit_rates(seen, np.zeros(600, dtype=np.bool_))
    assert naive < MEAN - 0.15


def test_if_nearly_all_were_held_back_the_server_is_taken_to_be_faster_than_any_seen():
    mean, deviation = fit_rates(np.array([1e4, 2e4, 3e4]), np.array([True, True, True]))
    assert (math.exp(mean), deviation) == (pytest.approx(6e4), 0.0)


def timing(first_byte_s: float, transfer_s: float, **changes) -> AnswerTiming:
    fields = {
        "connect_s": 0.0,
        "tls_s": 0.0,
        "held_s": 0.0,
        "turnaround_s": 0.005,
        "links": 3,
        "found": 1,
        "is_limited": False,
        "is_kept": True,
    }
    return AnswerTiming(first_byte_s=first_byte_s, transfer_s=transfer_s, **(fields | changes))


@pytest.fixture
def servers():
    chance = np.random.default_rng(2)
    timings = [timing(float(delay), 0.1) for delay in chance.uniform(0.1, 0.3, 80)]
    timings[0] = timing(0.2, 0.1, connect_s=0.04, tls_s=0.06, is_kept=False)
    site_of = np.zeros(80, dtype=np.int32)
    usual = Servers.alike(2, connect_s=0.5, answer_s=0.7, rate_bytes_per_s=1e5)
    return RecordedServers(site_of, np.full(80, 10_000), timings, usual, 0)


def test_a_server_answers_as_it_did(servers):
    drawn = [servers.answering(0.0, 0) for _ in range(2000)]
    assert np.mean([each.first_byte_s for each in drawn]) == pytest.approx(0.2, rel=0.05)
    assert np.mean([each.rate_bytes_per_s for each in drawn]) == pytest.approx(1e5, rel=0.02)
    assert all(each.connect_s == pytest.approx(0.1) for each in drawn)
    assert {each.turnaround_s for each in drawn} == {0.005}
    assert servers.keeps_connections


def test_a_site_without_measured_answers_has_the_usual_server(servers):
    assert servers.answering(0.0, 1)[:3] == (0.5, 0.7, pytest.approx(1e5))
    assert servers.only(np.array([1])).answering(0.0, 0)[1] == 0.7


def test_the_same_seed_draws_the_same_servers():
    usual = Servers.alike(1)
    timings = [timing(0.1 * number, 0.1) for number in range(1, 9)]
    made = [
        RecordedServers(np.zeros(8, dtype=np.int32), np.full(8, 9_000), timings, usual, seed)
        for seed in (7, 7, 8)
    ]
    first, again, other = ([each.answering(0.0, 0) for _ in range(20)] for each in made)
    assert first == again != other


def test_the_accelerator_is_given_the_means(servers):
    constant = servers.constant()
    assert constant.answer_s[0] == pytest.approx(0.205, rel=0.05)
    assert constant.rate_bytes_per_s[0] == pytest.approx(1e5, rel=0.02)


@pytest.mark.parametrize(("share", "use"), [(0.95, 0.95), (0.3, 1.0)], ids=["full", "idle"])
def test_a_simulated_link_is_used_as_far_as_the_pacer_used_it(tmp_path, share, use):
    """A link that was never full says nothing of the pacer."""
    store = SqliteStore(tmp_path / "crawl.sqlite")
    store.create(Instant(1.0), {})
    for second in range(60):
        store.record_sample(Instant(1.0 + second), int(second * share * 1e5), BytesPerSecond(1e5))
    store.commit((), {})
    store.close()
    assert use_of_bound(tmp_path) == pytest.approx(use, abs=0.001)
