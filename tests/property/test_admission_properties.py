"""Whatever the queue and the order in which downloads end: the bound, the depth and fairness hold."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headway.policy.admission import Admission
from headway.units import BytesPerSecond, Instant, Seconds

BOUND = 140_000.0
PATIENCE_S = 10.0
RATES = st.one_of(st.floats(1.0, 400_000.0), st.sampled_from([70_000.0, BOUND, BOUND + 1.0]))


@given(st.data(), st.integers(1, 8), st.lists(RATES, min_size=1, max_size=40))
def test_the_bound_holds_and_no_download_waits_forever(
    data: st.DataObject, depth: int, rates: list[float]
) -> None:
    manager: Admission[int] = Admission(
        BytesPerSecond(BOUND), max_depth=depth, patience_s=Seconds(PATIENCE_S)
    )
    waiting = [(number, BytesPerSecond(rate)) for number, rate in enumerate(rates)]
    under_way: list[int] = []
    now = Instant(0.0)
    head_since = now
    while waiting or under_way:
        head = waiting[0][0] if waiting else None
        chosen = manager.admit(now, waiting)
        assert chosen == sorted(set(chosen))
        assert all(index < depth for index in chosen), "the scan looks no deeper"
        for index in chosen:
            manager.started(*waiting[index])
            under_way.append(waiting[index][0])
        waiting = [entry for index, entry in enumerate(waiting) if index not in chosen]
        assert len(under_way) == 1 or manager.committed_bytes_per_s <= BOUND * (1 + 1e-9)
        assert under_way, "the link is never left idle while something waits"
        if not waiting or waiting[0][0] != head:
            head_since = now
        # The head waits its patience, those under way end one a second, and others starved before it.
        assert now - head_since <= PATIENCE_S + 2 * len(rates) + 2
        ended = data.draw(st.sampled_from(under_way))
        under_way.remove(ended)
        manager.ended(ended)
        now = Instant(now + 1.0)
    assert manager.committed_bytes_per_s == 0.0


@given(st.lists(RATES, max_size=20), st.lists(RATES, max_size=5))
def test_nothing_that_fits_within_the_depth_is_left_waiting(rates: list[float], busy: list[float]) -> None:
    manager: Admission[str] = Admission(BytesPerSecond(BOUND), max_depth=6)
    for number, rate in enumerate(busy):
        manager.started(f"busy {number}", BytesPerSecond(rate))
    waiting = [(f"waiting {number}", BytesPerSecond(rate)) for number, rate in enumerate(rates)]
    chosen = manager.admit(Instant(0.0), waiting)
    total = manager.committed_bytes_per_s + sum(waiting[index][1] for index in chosen)
    for index, (_, rate) in enumerate(waiting[:6]):
        assert index in chosen or total + rate > BOUND
