"""What the guard lets into a second: the bound and its tolerance, but for a packet."""

from __future__ import annotations

import pytest

from headway.pacing.grants import PeakGuard, most_in_a_second

TOLERANCE = 0.035
PACKET = 1514.0


def granted_in_a_second(bound_bytes_per_s: float) -> float:
    """Packets until no more fits, all arriving at once."""
    guard = PeakGuard(0.0, bound_bytes_per_s, TOLERANCE)
    granted = 0.0
    while guard.fits(0.0, 0.0, PACKET):
        guard.reserve(0.0, 0.0, PACKET)
        granted += PACKET
    return granted


@pytest.mark.parametrize("bound", [100_000.0, 140_000.0, 1e6, 2e7])
def test_a_packet_more_than_was_granted_is_still_within_the_tolerance(bound: float) -> None:
    assert granted_in_a_second(bound) + PACKET <= (1 + TOLERANCE) * bound
    assert granted_in_a_second(bound) > bound - PACKET


def test_a_slow_link_may_have_a_packet_more_than_the_bound() -> None:
    assert most_in_a_second(10_000.0, TOLERANCE) == 10_000.0 + PACKET


def test_on_a_fast_link_a_packet_is_nothing() -> None:
    assert most_in_a_second(2e7, TOLERANCE) == pytest.approx(1.035 * 2e7, rel=1e-4)
