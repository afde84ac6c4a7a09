"""What is known of a site narrows what is believed of it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.planning.estimate import (
    PRIOR_PAGE_BYTES,
    Evidence,
    cap_bytes_per_s,
    fit_xi,
    page_bytes,
    remaining_bytes,
)
from headway.units import Bytes, BytesPerSecond, Seconds

counts = st.integers(0, 100_000)
evidences = st.builds(
    Evidence,
    fetched_pages=counts,
    fetched_bytes=st.integers(0, 10**10),
    waiting_pages=counts,
    links_seen=st.floats(0, 1e6),
    sitemap_pages=counts,
    given_bytes=st.none() | st.integers(0, 10**10).map(Bytes),
    max_pages=st.none() | st.integers(1, 10**6),
    max_bytes=st.none() | st.integers(1, 10**10).map(Bytes),
)


@given(evidence=evidences)
def test_low_expected_and_high_are_numbers_in_order(evidence: Evidence) -> None:
    remaining = remaining_bytes(evidence)
    assert 0 <= remaining.low <= remaining.expected <= remaining.high < math.inf
    assert remaining.expected <= remaining.guarded() <= remaining.high


@given(evidence=evidences)
def test_a_sites_own_limits_are_never_exceeded(evidence: Evidence) -> None:
    remaining = remaining_bytes(evidence)
    if evidence.max_bytes is not None:
        assert remaining.high <= max(0, evidence.max_bytes - evidence.fetched_bytes)
    if evidence.max_pages is not None:
        pages_left = max(0, evidence.max_pages - evidence.fetched_pages)
        assert remaining.high <= pages_left * page_bytes(evidence) * (1 + 1e-9)


def test_nothing_remains_when_nothing_waits() -> None:
    assert remaining_bytes(Evidence(fetched_pages=10, fetched_bytes=1000)) == (0.0, 0.0, 0.0)


def test_the_range_closes_as_the_site_becomes_known() -> None:
    widths = []
    for fetched in (1, 10, 100, 900):
        seen = Evidence(
            fetched_pages=fetched,
            fetched_bytes=fetched * 20_000,
            waiting_pages=1000 - fetched,
            links_seen=fetched * 20.0,
            links_new=min(fetched * 20.0, 999.0) / 20,
        )
        remaining = remaining_bytes(seen)
        widths.append((remaining.high - remaining.low) / max(remaining.expected, 1.0))
    assert widths == sorted(widths, reverse=True)


def test_a_sitemap_and_the_users_figure_are_believed_before_anything_is_fetched() -> None:
    by_sitemap = remaining_bytes(Evidence(waiting_pages=1, sitemap_pages=5000, links_seen=100, links_new=1))
    assert by_sitemap.expected == pytest.approx(5000 * PRIOR_PAGE_BYTES)
    assert remaining_bytes(Evidence(waiting_pages=1, given_bytes=Bytes(10**9))).expected == 10**9


def test_the_mean_page_leans_on_the_prior_only_while_few_pages_are_known() -> None:
    assert page_bytes(Evidence()) == PRIOR_PAGE_BYTES
    known = Evidence(fetched_pages=10_000, fetched_bytes=10_000 * 4_000)
    assert page_bytes(known) == pytest.approx(4_000, rel=0.01)


@given(size=st.floats(100, 1e7), pause_s=st.floats(0.01, 60), rate=st.floats(1e3, 1e9))
def test_a_polite_site_gives_less_than_its_server_and_less_the_longer_the_pause(
    size: float, pause_s: float, rate: float
) -> None:
    def cap(pause_s: float) -> float:
        return cap_bytes_per_s(
            size,
            pause_s=Seconds(pause_s),
            server_rate_bytes_per_s=BytesPerSecond(rate),
        )

    assert 0 < cap(pause_s) < rate
    assert cap(2 * pause_s) < cap(pause_s)


def test_xi_is_found_from_past_downloads_and_is_one_without_any() -> None:
    downloads = [(size, rate, 1.4 * size / rate) for size in (1e5, 1e6, 1e7) for rate in (1e4, 1e5)]
    assert fit_xi(downloads) == pytest.approx(1.4)
    assert fit_xi([]) == 1.0
    assert fit_xi([(0.0, 1.0, 1.0), (1.0, 0.0, 1.0)]) == 1.0
