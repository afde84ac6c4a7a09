"""Every site that nobody holds gets a holder, near and not too busy; nobody's sites are asked for in vain."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headway.cluster.coordinator import Report
from headway.cluster.leader import Fleet, Leader, Member, Standing, Unheld, ask_back, assign, much_nearer
from headway.model.page import Site
from headway.planning.allocator import Allocator
from headway.policy.timetable import Timetable
from headway.units import UNBOUNDED

labels = st.sampled_from(["eu", "us", "br"])
members = st.lists(
    st.builds(Member, st.integers(1, 99), labels, st.integers(0, 500)),
    min_size=1,
    max_size=8,
    unique_by=lambda member: member.number,
)
sites = st.lists(
    st.builds(Unheld, st.integers(1, 9999), st.dictionaries(labels, st.floats(0.001, 1))),
    max_size=60,
    unique_by=lambda site: site.site,
)


@given(sites, members)
def test_every_site_gets_exactly_one_holder_who_is_there(sites, members):
    assigned = assign(sites, members)
    assert assigned.keys() == {site.site for site in sites}
    assert set(assigned.values()) <= {member.number for member in members}


@given(sites, members)
def test_no_collector_gets_more_while_others_have_much_less(sites, members):
    assigned = assign(sites, members)
    loads = {member.number: member.load for member in members}
    before = dict(loads)
    for holder in assigned.values():
        loads[holder] += 1
    limit = max(1.0, 1.25 * sum(loads.values()) / len(members))
    assert all(loads[number] <= max(before[number], limit + 1) for number in loads)


@given(members)
def test_what_is_asked_back_is_what_the_idle_lack(members):
    asked = ask_back(members)
    mean = sum(member.load for member in members) / len(members)
    by_number = {member.number: member for member in members}
    assert all(by_number[number].load - count >= mean - 1 for number, count in asked.items())
    lacking = sum(int(mean) - member.load for member in members if member.load < 0.5 * mean)
    assert sum(asked.values()) <= max(0, lacking)


def test_a_newcomer_gets_half_of_what_one_alone_had():
    assert ask_back([Member(1, "", 10), Member(2, "", 0)]) == {1: 5}


def test_a_balanced_fleet_is_left_alone():
    assert ask_back([Member(1, "", 10), Member(2, "", 8), Member(3, "", 9)]) == {}


def test_the_nearest_place_gets_the_site():
    fleet = [Member(1, "eu", 5), Member(2, "us", 5), Member(3, "br", 5)]
    site = Unheld(7, {"eu": 0.2, "us": 0.12, "br": 0.01})
    assert assign([site], fleet) == {7: 3}


def test_the_nearest_place_gets_no_more_than_it_can_do():
    fleet = [Member(1, "eu", 5), Member(2, "br", 50)]
    assert assign([Unheld(7, {"eu": 0.2, "br": 0.01})], fleet) == {7: 1}


def test_a_site_moves_only_for_less_than_half_of_the_way():
    assert much_nearer({"eu": 0.2, "br": 0.02}, "eu", ["eu", "br"]) == "br"
    assert much_nearer({"eu": 0.2, "br": 0.15}, "eu", ["eu", "br"]) is None
    assert much_nearer({"br": 0.02}, "eu", ["eu", "br"]) is None
    assert much_nearer({"eu": 0.2, "br": 0.02}, "eu", ["eu"]) is None


def orders_for(*reports):
    standings = [Standing(number, "", report, 0) for number, report in enumerate(reports, 1)]
    leader = Leader(Timetable(UNBOUNDED), Allocator)
    return leader.decide(1.0, Fleet(standings, [], {}, []))


def sites_of(count):
    return tuple(Site(f"http://{number}.example") for number in range(count))


def test_who_is_done_in_a_moment_is_given_more_in_time():
    asked = orders_for(Report(sites_of(20), left_s=60.0), Report(sites_of(20), left_s=0.1)).asked_back
    assert {number: len(sites) for number, sites in asked.items()} == {1: 9}
    assert not orders_for(Report(sites_of(20), left_s=60.0), Report(sites_of(20), left_s=30.0)).asked_back


def test_who_is_done_before_its_sites_are_handed_on_keeps_them():
    assert not orders_for(Report(sites_of(20), left_s=0.2), Report()).asked_back
    assert orders_for(Report(sites_of(20), left_s=2.0), Report()).asked_back
