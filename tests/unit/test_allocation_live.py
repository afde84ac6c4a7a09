"""What a running crawl may rely on when it asks the allocator."""

from __future__ import annotations

import math

import msgspec
import pytest

from headway.model.page import Site
from headway.planning import priority_lists
from headway.planning.allocator import Allocator, SiteDemand, advise
from headway.planning.problem import Objective, Timetable
from headway.units import BytesPerSecond, Instant, Seconds

NOW = Instant(1_700_000_000.0)
LINK = Timetable.constant(100.0)


def demand(
    name: str, left: float, due_s: float | None = None, cap: float = math.inf, weight: float = 1.0
) -> SiteDemand:
    deadline = None if due_s is None else Instant(NOW + due_s)
    return SiteDemand(Site(name), left, deadline, BytesPerSecond(cap), weight)


def test_a_site_that_must_run_from_now_on_goes_before_a_shorter_one() -> None:
    demands = [demand("short", 100.0), demand("slow", 1000.0, due_s=20.0, cap=50.0)]
    allocation = Allocator().decide(NOW, demands, LINK)
    assert allocation.rates == {"slow": 50.0, "short": 50.0}
    assert allocation.late == ()


def test_what_one_site_cannot_take_goes_to_the_next() -> None:
    demands = [demand(f"s{i}", 1000.0, cap=30.0) for i in range(5)]
    rates = Allocator().decide(NOW, demands, LINK).rates
    assert sum(rates.values()) == pytest.approx(100.0)
    assert max(rates.values()) <= 30.0


def test_no_more_sites_are_open_than_there_are_seats() -> None:
    demands = [demand(f"s{i}", 1000.0, cap=10.0) for i in range(9)]
    assert len(Allocator(seats=3).decide(NOW, demands, LINK).rates) == 3


def test_a_deadline_that_cannot_be_met_is_reported_at_once_with_what_would_help() -> None:
    demands = [demand("a", 3000.0, due_s=10.0), demand("b", 100.0, due_s=10.0)]
    allocation = Allocator(Objective.LATE_SITES).decide(NOW, demands, LINK)
    assert allocation.late == ("a",)
    advice = advise(NOW, demands, LINK)
    assert advice.bandwidth_bytes_per_s == pytest.approx(310.0)
    assert advice.out_of_reach == {}


def test_a_site_whose_cap_is_too_low_is_named_with_its_earliest_end() -> None:
    advice = advise(NOW, [demand("a", 1000.0, due_s=10.0, cap=50.0)], LINK)
    assert advice.bandwidth_bytes_per_s is None
    assert advice.out_of_reach == {"a": pytest.approx(NOW + 20.0)}


def test_the_forecast_comes_true_when_rates_are_obeyed() -> None:
    left = {"a": 500.0, "b": 700.0, "c": 300.0}
    due_s = {"a": 9.0, "b": 30.0, "c": None}
    allocator, now = Allocator(), NOW
    ends: dict[str, float] = {}
    first_forecast = None
    while left:
        demands = [
            SiteDemand(Site(name), size, None if due_s[name] is None else Instant(NOW + (due_s[name] or 0.0)))
            for name, size in left.items()
        ]
        allocation = allocator.decide(now, demands, LINK)
        first_forecast = first_forecast or allocation.forecast
        step_s = allocation.decide_again_at - now
        for site, rate in allocation.rates.items():
            left[site] -= rate * step_s
        now = allocation.decide_again_at
        for name in [name for name, size in left.items() if size <= 1e-3]:
            del left[name]
            ends[name] = now
    assert ends == pytest.approx(first_forecast, abs=1e-3)
    assert allocator.plans_made == 1, "nothing unforeseen happened, so the first plan stood"


def test_small_drift_keeps_the_plan_and_large_drift_makes_a_new_one() -> None:
    allocator = Allocator()
    demands = [demand("a", 1000.0), demand("b", 2000.0)]
    allocator.decide(NOW, demands, LINK)
    allocator.decide(NOW, [demand("a", 1010.0), demand("b", 2000.0)], LINK)
    assert allocator.plans_made == 1
    allocator.decide(NOW, [demand("a", 3000.0), demand("b", 2000.0)], LINK)
    assert allocator.plans_made == 2


@pytest.mark.parametrize(
    "changed",
    [
        [demand("a", 1000.0), demand("b", 2000.0), demand("new", 10.0)],
        [demand("a", 1000.0, due_s=5.0), demand("b", 2000.0)],
        [demand("a", 1000.0, cap=3.0), demand("b", 2000.0)],
        [demand("b", 2000.0)],
    ],
)
def test_a_new_site_a_moved_deadline_a_lower_cap_or_an_early_end_make_a_new_plan(
    changed: list[SiteDemand],
) -> None:
    allocator = Allocator()
    allocator.decide(NOW, [demand("a", 1000.0), demand("b", 2000.0)], LINK)
    allocator.decide(NOW, changed, LINK)
    assert allocator.plans_made == 2


def test_a_changed_link_makes_a_new_plan_but_a_planned_change_does_not() -> None:
    allocator = Allocator()
    demands = [demand("a", 1000.0, due_s=60.0), demand("b", 2000.0, due_s=90.0)]
    later = Timetable([(0.0, 100.0), (10.0, 50.0)])
    allocator.decide(NOW, demands, later)
    halfway = [demand("a", 500.0, due_s=60.0), demand("b", 2000.0, due_s=90.0)]
    after = Instant(NOW + 5.0)
    allocator.decide(after, halfway, later.seen_from(5.0))
    assert allocator.plans_made == 1
    allocator.decide(after, halfway, Timetable.constant(70.0))
    assert allocator.plans_made == 2


def test_decisions_come_no_sooner_than_asked_and_guard_that_much_earlier() -> None:
    demands = [demand("quick", 10.0), demand("slow", 95.0, due_s=2.4, cap=50.0)]
    patient = Allocator().decide(NOW, demands, LINK, at_least_s=Seconds(1.0))
    assert patient.decide_again_at >= NOW + 1.0
    assert patient.rates["slow"] == 50.0, "its half second of laxity would be gone before the next decision"


def test_sites_with_nothing_left_or_closed_for_now_get_nothing_and_do_no_harm() -> None:
    demands = [demand("done", 0.0), demand("closed", 10.0, cap=0.0), demand("open", 10.0)]
    allocation = Allocator().decide(NOW, demands, LINK)
    assert allocation.rates == {"open": 100.0}
    assert Allocator().decide(NOW, [], LINK).rates == {}


def test_an_unbounded_link_gives_everyone_what_it_can_take() -> None:
    demands = [demand("a", 10.0, cap=5.0), demand("b", 10.0, cap=7.0)]
    allocation = Allocator().decide(NOW, demands, Timetable.constant(math.inf))
    assert allocation.rates == {"a": 5.0, "b": 7.0}


def test_ties_go_to_the_site_that_is_named_first() -> None:
    demands = [demand(name, 50.0, due_s=100.0) for name in ("c", "a", "b")]
    for many in (1, 200):
        named = [demand(f"{one.site}{i}", 50.0, due_s=100.0) for i in range(many) for one in demands]
        rates = Allocator().decide(NOW, named, LINK).rates
        assert list(rates) == ["c0"]


def test_two_allocators_told_the_same_decide_the_same() -> None:
    tellings = [
        [
            demand(f"s{i}", 100.0 + i * 37 % 11, due_s=None if i % 3 else 5.0 * i + 5, cap=9.0)
            for i in range(n)
        ]
        for n in (30, 29, 200, 150)
    ]
    one, other = Allocator(), Allocator()
    for step, demands in enumerate(tellings):
        now = Instant(NOW + step)
        assert one.decide(now, demands, LINK) == other.decide(now, demands, LINK)


def test_what_is_kept_of_unchanged_demands_changes_no_decision() -> None:
    kept, fresh = Allocator(), Allocator()
    demands = [demand(f"s{i}", 500.0 + i, due_s=None if i % 2 else 90.0 + i, cap=20.0) for i in range(60)]
    tellings = [
        demands,
        [demand("s0", 90.0, due_s=44.0, cap=5.0), *demands[1:]],
        [*demands[:30], demand("new", 77.0), *demands[31:]],
        [demands[1], demands[0], *demands[2:]],
        [demand("s0", 0.0), *demands[1:]],
        demands[:59],
        demands,
    ]
    for step, telling in enumerate(tellings):
        now = Instant(NOW + step)
        copies = [msgspec.structs.replace(one) for one in telling]
        assert kept.decide(now, telling, LINK) == fresh.decide(now, copies, LINK), step


def test_a_deadline_that_eases_a_little_needs_no_new_plan_and_one_that_nears_does() -> None:
    allocator = Allocator()
    allocator.decide(NOW, [demand("a", 1000.0, due_s=100.0), demand("b", 500.0)], LINK)
    allocator.decide(NOW, [demand("a", 1000.0, due_s=101.0), demand("b", 500.0)], LINK)
    assert allocator.plans_made == 1
    allocator.decide(NOW, [demand("a", 1000.0, due_s=99.0), demand("b", 500.0)], LINK)
    assert allocator.plans_made == 2


def test_many_sites_keep_the_link_full_and_feasible_deadlines_unharmed() -> None:
    demands = [
        demand(f"s{i}", 1000.0, due_s=None if i % 2 else 400.0 + 10 * i, cap=2.0 + i % 5) for i in range(3000)
    ]
    allocation = Allocator().decide(NOW, demands, Timetable.constant(7000.0))
    assert sum(allocation.rates.values()) == pytest.approx(7000.0)
    assert len(allocation.forecast) == 3000


def test_weight_decides_between_sites_that_cannot_both_be_in_time() -> None:
    demands = [demand("plain", 100.0, due_s=1.0), demand("dear", 100.0, due_s=1.0, weight=5.0)]
    allocation = Allocator(Objective.TARDINESS).decide(NOW, demands, LINK)
    assert allocation.late == ("plain",)


@pytest.mark.parametrize("precision_s", [1e-15, 1e-9])
@pytest.mark.parametrize("room_after", [-1.0, -1e-3])
def test_the_last_moment_with_room_is_found_days_ahead_and_while_the_link_is_closed(
    precision_s: float, room_after: float
) -> None:
    """Floats days ahead lie further apart than the precision, and room does not change on a closed link."""
    last_at = 1_000_000.3

    def room(after_s: float) -> float:
        return last_at - after_s if after_s <= last_at else room_after

    assert priority_lists._last_with_room(room, 1_209_600.0, precision_s) == pytest.approx(last_at, abs=1e-8)
