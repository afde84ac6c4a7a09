"""Yielding to other users, tried on a simulated bottleneck with users of its own."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.shared_link import Download, Scene, run

from headway.pacing.background import PathReader
from headway.pacing.wire import Arrivals
from headway.policy.yielding import Companions, LinkUse, QueueDelay, Yield
from headway.units import BytesPerSecond, Instant, Seconds

MBIT = 125_000.0


def free(scene: Scene) -> float:
    """What the users' pages leave of the link."""
    return scene.link_bytes_per_s - scene.page_bytes / scene.page_every_s


@pytest.mark.parametrize("mbit", [10, 50])
def test_pages_of_users_take_little_longer_and_most_of_the_rest_is_used(mbit: int) -> None:
    def scene() -> Scene:
        return Scene(mbit * MBIT, segments=5 * mbit // 10)

    alone, beside = run(scene(), crawls=False), run(scene())
    assert beside.page_quantile(0.95, 6) < 1.5 * alone.page_quantile(0.95, 6)
    assert beside.page_quantile(0.5, 6) < 1.2 * alone.page_quantile(0.5, 6)
    assert beside.crawl_rate(6, 30) > 0.75 * free(scene())


@pytest.mark.parametrize("buffer_s", [0.1, 0.25, 0.5])
@pytest.mark.parametrize("base_s", [0.02, 0.04, 0.1])
def test_a_download_gets_the_link_and_the_crawl_returns_when_it_ends(buffer_s: float, base_s: float) -> None:
    def scene() -> Scene:
        # Windows that are enough for the link at this distance.
        segments = max(5, math.ceil(8 * base_s / 0.04))
        download = [Download(15, 30)]
        return Scene(
            10 * MBIT, base_s, buffer_s, seconds=48, downloads=download, segments=segments, connections=12
        )

    alone, beside = scene(), scene()
    run(alone, crawls=False)
    outcome = run(beside)
    assert beside.downloads[0].rate(18, 30) > 0.9 * alone.downloads[0].rate(18, 30)
    assert outcome.crawl_rate(41, 48) > 0.75 * free(beside)


def test_a_slow_link_is_left_to_its_users_while_they_wait() -> None:
    outcome = run(Scene(1 * MBIT, seconds=40, page_every_s=1.5, downloads=[Download(10, 30)]))
    during = [rate for at, rate in outcome.rates if 14 <= at < 30]
    assert sum(during) / len(during) < 0.15 * MBIT


def test_jitter_of_the_path_does_not_starve_the_crawl() -> None:
    scene = Scene(10 * MBIT, jitter_s=0.005)
    assert run(scene).crawl_rate(6, 30) > 0.6 * free(scene)


def test_the_bound_holds_where_the_link_has_more() -> None:
    scene = Scene(10 * MBIT, bound_bytes_per_s=5 * MBIT)
    outcome = run(scene)
    assert max(rate for _, rate in outcome.rates) == 5 * MBIT
    assert outcome.crawl_rate(10, 30) > 0.95 * 5 * MBIT


def test_the_start_does_not_fill_the_buffer() -> None:
    outcome = run(Scene(10 * MBIT, bound_bytes_per_s=100 * MBIT))
    assert max(wait for _, wait in outcome.waits) < 0.15


def test_what_is_not_used_does_not_grow() -> None:
    control, delay = Yield(BytesPerSecond(1e6)), QueueDelay()
    for number in range(400):
        control.step(Instant(number * 0.05), delay, 1000.0)
    assert control.rate_bytes_per_s < 100_000


@given(
    st.lists(
        st.tuples(
            st.floats(-1e3, 1e9),
            st.floats(-1.0, 10.0) | st.just(math.nan) | st.just(math.inf),
            st.floats(0.0, 1e9),
            st.booleans(),
        ),
        max_size=60,
    )
)
def test_the_rate_stays_between_its_floor_and_the_bound(
    steps: list[tuple[float, float, float, bool]],
) -> None:
    control, delay = Yield(BytesPerSecond(800_000.0)), QueueDelay()
    for at, round_trip_s, delivered, has_lost in steps:
        for path in range(5):
            delay.add(Instant(at), path, Seconds(round_trip_s))
        rate = control.step(Instant(at), delay, delivered, has_lost=has_lost)
        assert 0 < rate <= 800_000.0


@pytest.mark.parametrize("bound", [0.0, -1.0, math.inf, math.nan])
def test_it_needs_a_bound(bound: float) -> None:
    with pytest.raises(ValueError, match="positive and finite"):
        Yield(BytesPerSecond(bound))


def test_a_wait_on_one_path_only_is_no_queue_on_the_link() -> None:
    delay = QueueDelay()
    for number in range(100):
        now = Instant(number * 0.05)
        for path in range(8):
            delay.add(now, path, Seconds(0.04 + (0.3 if path == 0 and number > 20 else 0.0)))
    measured = delay.of(Instant(5.0), Seconds(0.001))
    assert measured is not None
    assert measured[0] == pytest.approx(0.0, abs=1e-9)


def test_the_kernels_average_is_undone() -> None:
    reader = PathReader("192.0.2.1")
    smoothed, stream = 0.04, 14480
    assert reader.read(Arrivals(stream, smoothed, 0)) == (14480, 0.04, False)
    for _ in range(4):  # four segments, each after 90 ms
        smoothed += (0.09 - smoothed) / 8
        stream += 1448
    new_bytes, round_trip_s, is_missing = reader.read(Arrivals(stream, smoothed, 0))
    assert new_bytes == 4 * 1448
    assert round_trip_s == pytest.approx(0.09)
    assert not is_missing
    assert reader.read(Arrivals(stream + 1448, 0.041, 1)) == (1448, 0.041, True), "a fall is taken at once"
    assert reader.read(Arrivals(stream + 1500, 0.041, 1))[1] is None, "less than a segment is no measurement"


@pytest.mark.parametrize("joins_s", [(0.0, 0.0), (0.0, 0.0, 0.0, 8.0)], ids=["two", "one of four late"])
def test_processes_behind_one_link_yield_as_one(joins_s: tuple[float, ...]) -> None:
    def scene() -> Scene:
        return Scene(10 * MBIT, seconds=48, downloads=[Download(20, 33)], connections=12, joins_s=joins_s)

    alone, beside = scene(), scene()
    undisturbed = run(alone, crawls=False)
    outcome = run(beside)
    assert outcome.page_quantile(0.95, 10, 20) < 1.5 * undisturbed.page_quantile(0.95, 10, 20)
    assert beside.downloads[0].rate(23, 33) > 0.9 * alone.downloads[0].rate(23, 33)
    assert outcome.crawl_rate(10, 20) > 0.75 * free(beside)
    assert outcome.crawl_rate(41, 48) > 0.65 * free(beside)
    for begins_s, ends_s in ((12.0, 20.0), (41.0, 48.0)):
        rates = [outcome.rate_of(number, begins_s, ends_s) for number in range(len(joins_s))]
        assert min(rates) > 0.8 * max(rates)


def test_a_process_with_nothing_to_fetch_leaves_its_part_to_the_others() -> None:
    scene = Scene(10 * MBIT, seconds=24, joins_s=(0.0, 0.0), idle_s=(6.0, 18.0))
    outcome = run(scene)
    assert outcome.rate_of(0, 10, 18) > 0.7 * free(scene)
    assert outcome.rate_of(1, 10, 18) < 0.05 * free(scene)
    assert max(wait for at, wait in outcome.waits if at > 18) < 0.15, "its return does not fill the buffer"
    assert outcome.rate_of(1, 20, 24) > 0.6 * outcome.rate_of(0, 20, 24)


def use_of(at: float, rate: float, delivered: float, *, is_starting: bool = False) -> LinkUse:
    return LinkUse(at, 1e6, rate, rate / 2, delivered, None, is_starting)


def test_what_others_said_before_our_own_cut_does_not_undo_it() -> None:
    others = Companions()
    others.hear([use_of(10.0, 8e5, 4e5)])
    own = use_of(10.2, 4e5, 4e5)
    assert others.agreed(Instant(10.2), own, since_cut_s=0.1) is None
    assert others.agreed(Instant(10.2), own, since_cut_s=5.0) == pytest.approx(6e5)


def test_the_rate_agreed_on_is_that_of_those_who_use_it() -> None:
    others = Companions()
    others.hear([use_of(10.0, 8e5, 4e5)])
    newcomer = use_of(10.1, 5e4, 0.0, is_starting=True)
    assert others.agreed(Instant(10.1), newcomer, since_cut_s=math.inf) == pytest.approx(8e5)
    assert others.have_started(Instant(10.1))


def test_a_process_that_is_silent_is_not_counted() -> None:
    others = Companions()
    others.hear([use_of(10.0, 8e5, 4e5)])
    own = use_of(20.0, 4e5, 2e5)
    assert others.part(Instant(20.0), own) == 1.0
    assert others.bound_bytes_per_s(Instant(20.0)) == 0.0
