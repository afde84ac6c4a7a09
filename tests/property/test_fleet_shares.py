"""However collectors join, take, leave and die, and whichever leads: all shares stay in the bound."""

from __future__ import annotations

import math
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from headway.cluster.leader import Share, Usage, divide_bound, lend, reserved
from headway.units import Instant

LENGTH_S = 4.0
rates = st.floats(0, 1e9, allow_nan=False)
happenings = st.lists(
    st.one_of(
        st.tuples(st.just("time passes"), st.floats(0.01, 3)),
        st.tuples(st.just("joins"), st.integers(1, 6)),
        st.tuples(st.just("dies"), st.integers(1, 6)),
        st.tuples(st.just("leaves"), st.integers(1, 6)),
        st.tuples(st.just("takes"), st.integers(1, 6)),
        st.tuples(st.just("wishes"), st.tuples(st.integers(1, 6), rates)),
        st.tuples(st.just("round"), st.none()),
        st.tuples(st.just("bound"), st.floats(1_000, 1e9)),
    ),
    max_size=60,
)


class World:
    """Shares as rows that all leaders see; what each collector really keeps to is known to itself alone."""

    def __init__(self, bound: float) -> None:
        self.now = 0.0
        self.bound = bound
        self.wishes: dict[int, float] = {}
        self.shares: list[Share] = []
        self.told: dict[int, int] = {}
        self.kept_to: dict[int, Share] = {}
        self.number = 0

    def round(self) -> None:
        held = reserved(self.now, self.shares, self.told)
        for collector, rate in divide_bound(self.bound, held, self.wishes).items():
            self.number += 1
            self.shares.append(Share(collector, rate, self.now + LENGTH_S, self.number))

    def take(self, collector: int) -> None:
        """A collector takes its newest share, and a beat later the leader knows."""
        mine = [share for share in self.shares if share.collector == collector and share.until_at > self.now]
        if collector in self.wishes and mine:
            self.told[collector] = self.kept_to[collector].number if collector in self.kept_to else 0
            self.kept_to[collector] = max(mine, key=lambda share: share.number)

    def read_bytes_per_s(self) -> float:
        """What all who keep to a share may be reading: the dead for as long as nobody knows of it."""
        return math.fsum(
            share.rate_bytes_per_s for share in self.kept_to.values() if share.until_at > self.now
        )


@settings(max_examples=300)
@given(happenings, st.floats(1_000, 1e9))
def test_the_sum_of_all_that_may_be_read_never_exceeds_the_bound(story, bound):
    world = World(bound)
    least_bound = bound
    for what, value in story:
        match what:
            case "time passes":
                world.now += value
            case "joins":
                world.wishes.setdefault(value, 1.0)
            case "dies":
                world.wishes.pop(value, None)
            case "leaves" if value in world.wishes:
                # It reads no more, and says so by taking its shares away.
                del world.wishes[value]
                world.kept_to.pop(value, None)
                world.shares = [share for share in world.shares if share.collector != value]
            case "takes":
                world.take(value)
            case "wishes" if value[0] in world.wishes:
                world.wishes[value[0]] = value[1]
            case "round":
                world.round()
            case "bound" if not reserved(world.now, world.shares, {}):
                # A timetable never lets a share outlast the bound that it was cut from.
                world.bound = least_bound = value
        assert world.read_bytes_per_s() <= max(world.bound, least_bound)


@given(st.dictionaries(st.integers(1, 9), rates, min_size=1), st.floats(1_000, 1e9))
def test_all_of_the_bound_is_divided_when_no_shares_are_valid(wishes, bound):
    given_out = math.fsum(divide_bound(bound, {}, wishes).values())
    assert bound - len(wishes) <= given_out <= bound


@given(st.dictionaries(st.integers(1, 9), rates, min_size=1), st.floats(1_000, 1e9))
def test_no_collector_starves(wishes, bound):
    assert all(rate > 0 for rate in divide_bound(bound, {}, wishes).values())


@given(st.dictionaries(st.integers(1, 5), st.tuples(rates, rates), min_size=1), st.floats(1, 1e9))
def test_what_is_lent_is_no_more_than_what_was_left(members, bound):
    whole = sum(planned for planned, _ in members.values()) or 1.0
    planned = {number: min(1.0, bound / whole) * rate for number, (rate, _) in members.items()}
    most = {number: most for number, (_, most) in members.items()}
    wishes = lend(bound, planned, most)
    assert math.fsum(wishes.values()) <= bound * (1 + 1e-9)
    assert all(wishes[number] <= most[number] * (1 + 1e-9) + 1e-6 for number in members)


def test_without_a_bound_everybody_may_read_what_it_can():
    assert divide_bound(math.inf, {}, {1: 0.0, 2: 5.0}) == {1: math.inf, 2: math.inf}


def test_a_share_is_not_handed_on_before_it_has_expired():
    old = [Share(1, 1_000.0, 10.0, 1)]
    assert divide_bound(1_000.0, reserved(9.9, old, {}), {2: 1.0}) == {2: 0}
    assert divide_bound(1_000.0, reserved(10.0, old, {}), {2: 1.0}) == {2: 1_000}


@given(
    st.lists(st.integers(0, 1_000_000), min_size=1, max_size=4),
    st.lists(st.integers(0, 1_000_000), min_size=1, max_size=4),
    st.integers(10, 1_000),
)
def test_a_new_leader_shows_no_second_with_bytes_of_earlier_ones(
    earlier: list[int], rates: list[int], began_at: int
) -> None:
    """Collectors that have left, and collectors at work with a constant rate since long ago."""
    usage = Usage()
    sums = []
    for passed in range(8):
        now = began_at + passed + 0.3
        left = [(number, began_at - 5, total) for number, total in enumerate(earlier)]
        at_work = [
            (100 + number, began_at + passed, 10_000_000 + rate * passed) for number, rate in enumerate(rates)
        ]
        usage.note([*left, *at_work])
        sums += usage.sums(Instant(now))
    assert [second for second, _ in sums] == list(range(began_at, began_at + 6))
    assert {later - sooner for (_, sooner), (_, later) in pairwise(sums)} == {sum(rates)}
