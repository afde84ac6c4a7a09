from __future__ import annotations

import pytest

from headway.policy.admission import Admission
from headway.units import BytesPerSecond, Instant, Seconds

KB = 1000.0
T0 = Instant(0.0)


def queue(**rates: float) -> list[tuple[str, BytesPerSecond]]:
    return [(name, BytesPerSecond(rate * KB)) for name, rate in rates.items()]


def admission(bound: float = 140, depth: int = 6, patience_s: float = 10.0) -> Admission[str]:
    return Admission(BytesPerSecond(bound * KB), max_depth=depth, patience_s=Seconds(patience_s))


def start(manager: Admission[str], waiting: list[tuple[str, BytesPerSecond]], now: Instant = T0) -> list[str]:
    chosen = manager.admit(now, waiting)
    for index in chosen:
        manager.started(*waiting[index])
    return [waiting[index][0] for index in chosen]


def test_everything_that_fits_is_started_in_order_of_score() -> None:
    assert start(admission(), queue(a=60, b=60, c=60, d=20)) == ["a", "b", "d"]


def test_a_download_that_exactly_fills_the_bound_fits() -> None:
    assert start(admission(), queue(a=100, b=40)) == ["a", "b"]


def test_the_scan_stops_at_its_depth() -> None:
    waiting = queue(a=100, b=60, c=60, d=10)
    assert start(admission(depth=3), waiting) == ["a"]
    assert start(admission(depth=4), waiting) == ["a", "d"]


def test_what_ends_makes_room() -> None:
    manager = admission()
    start(manager, queue(a=100, b=40))
    assert manager.committed_bytes_per_s == 140 * KB
    assert start(manager, queue(c=50)) == []
    manager.ended("a")
    assert manager.committed_bytes_per_s == 40 * KB
    assert start(manager, queue(c=50)) == ["c"]


def test_a_server_faster_than_the_bound_starts_alone_when_nothing_is_under_way() -> None:
    manager = admission()
    assert start(manager, queue(fast=900, slow=1)) == ["fast"]
    assert start(manager, queue(slow=1)) == []


def test_a_server_faster_than_the_bound_is_waited_for_when_its_patience_is_over() -> None:
    manager = admission(patience_s=10)
    start(manager, queue(a=70, b=70))
    assert start(manager, queue(fast=900, c=70), Instant(1.0)) == []
    manager.ended("a")
    assert start(manager, queue(fast=900, c=70), Instant(2.0)) == ["c"]
    manager.ended("b")
    assert start(manager, queue(fast=900, d=70), Instant(11.0)) == [], "the link drains for the starved one"
    manager.ended("c")
    assert start(manager, queue(fast=900, d=70), Instant(12.0)) == ["fast"]


def test_a_lower_bound_lets_what_is_under_way_end_and_starts_nothing_more() -> None:
    manager = admission()
    start(manager, queue(a=100, b=40))
    manager.bound_bytes_per_s = BytesPerSecond(50 * KB)
    manager.ended("b")
    assert start(manager, queue(c=1)) == []
    manager.ended("a")
    assert start(manager, queue(c=1)) == ["c"]


def test_an_empty_queue_starts_nothing() -> None:
    assert admission().admit(T0, []) == []


def test_a_download_cannot_be_under_way_twice_nor_end_without_having_begun() -> None:
    manager = admission()
    start(manager, queue(a=1))
    with pytest.raises(ValueError, match="has already started"):
        manager.started("a", BytesPerSecond(1.0))
    with pytest.raises(KeyError):
        manager.ended("b")


def test_with_a_pacer_the_first_takes_what_the_others_leave() -> None:
    admission: Admission[str] = Admission(BytesPerSecond(100.0), max_depth=2, paced=True)
    admission.started("slow", BytesPerSecond(40.0))
    assert admission.admit(
        Instant(0.0), [("fast", BytesPerSecond(90.0)), ("faster", BytesPerSecond(95.0))]
    ) == [0]
    admission.started("fast", BytesPerSecond(90.0))
    assert admission.committed_bytes_per_s == 100.0
    assert admission.admit(Instant(0.0), [("faster", BytesPerSecond(95.0))]) == []
    admission.ended("fast")
    assert admission.committed_bytes_per_s == 40.0


def test_with_a_pacer_one_that_fits_comes_before_one_that_does_not() -> None:
    admission: Admission[str] = Admission(BytesPerSecond(100.0), paced=True)
    admission.started("slow", BytesPerSecond(40.0))
    assert admission.admit(
        Instant(0.0), [("fast", BytesPerSecond(90.0)), ("small", BytesPerSecond(50.0))]
    ) == [1]


def test_without_one_a_download_that_does_not_fit_waits() -> None:
    admission: Admission[str] = Admission(BytesPerSecond(100.0))
    admission.started("slow", BytesPerSecond(40.0))
    assert admission.admit(Instant(0.0), [("fast", BytesPerSecond(90.0))]) == []
